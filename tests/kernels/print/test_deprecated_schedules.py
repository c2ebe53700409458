"""Old words of ``schedule=`` and old fields of a `Schedule`: understood for one minor version, with a warning."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from typing import Any

import pytest

import redalg as ra
from redalg.explore import kernel
from redalg.kernels.ir.schedule import RENAMED, Schedule

SIZES = {"h": 2, "i": 64, "j": 256, "d": 64, "e": 64}


@pytest.mark.parametrize("old", [name for name in RENAMED if name.isidentifier() and name != "optimistic"])
def test_a_field_is_known_by_its_old_name(old: str) -> None:
    made = Schedule(**{RENAMED[old]: 3})
    with pytest.warns(DeprecationWarning, match=RENAMED[old]) as seen:
        given: dict[str, Any] = {old: 3}
        assert Schedule(**given) == made and getattr(made, old) == 3
        assert replace(Schedule(), **given) == made
    assert {w.filename for w in seen} == {__file__}


@pytest.mark.parametrize("old", ["optimistic", "one launch"])
def test_a_word_is_known_by_its_old_name(old: str) -> None:
    spec, sizes = ("attention", SIZES) if old == "optimistic" else ("layer_norm_gemm", {"i": 512, "j": 512, "k": 512})
    form = ra.derive_incremental(ra.catalog[spec])
    with pytest.warns(DeprecationWarning, match=RENAMED[old]) as seen:
        found = kernel(form, sizes, "H200", "bfloat16", schedule=old)
    assert found.source == kernel(form, sizes, "H200", "bfloat16", schedule=RENAMED[old]).source
    assert {w.filename for w in seen} == {__file__}


def test_fields_in_a_dict_are_known_by_their_old_names() -> None:
    form = ra.derive_incremental(ra.catalog["softmax"])
    sizes = {"i": 512, "j": 4096}
    with pytest.warns(DeprecationWarning, match="coarsen"):
        found = kernel(form, sizes, schedule={"threads": 128, "beside": 1})
    assert found.schedule == kernel(form, sizes, schedule={"threads": 128, "coarsen": 1}).schedule


def test_names_of_now_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = Schedule(prefetch=64, prefetch_distance=1, coarsen=2, columns_per_thread=2)
        assert pickle.loads(pickle.dumps(made)) == made
        with pytest.raises(AttributeError, match="colour"):
            made.colour  # type: ignore[attr-defined]  # noqa: B018
