"""What epilogues of products read beside the sums, by emulation: numbers along columns, a residual, several results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.gemm import passes
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Planned
from redalg.kernels.launch.ptx import assemble, ptxas
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200
from redalg.numeric.casts import cast_array
from tests.support import forms
from tests.support.chain_cases import emulated
from tests.support.epilogue_cases import EPILOGUES

FEW = replace(H200, multiprocessors=3)  # several tiles for each block


@pytest.fixture(autouse=True)
def wide_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles as of many rows: those of few rows are in `test_narrow`."""
    monkeypatch.setattr(passes, "narrow", lambda made: None)


def views_of(name: str, sizes: Mapping[str, int]) -> dict[str, View]:
    form = forms.form_of_text(EPILOGUES[name], "k", 4)
    return {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors}


def planned(
    name: str, sizes: Mapping[str, int], kinds: Mapping[str, str] | None = None, **views: View
) -> tuple[Planned, dict[str, str]]:
    form = forms.form_of_text(EPILOGUES[name], "k", 4)
    dtypes = {t.name: "bfloat16" for t in form.spec.tensors} | dict(kinds or {})
    return plan(form, dtypes, {**views_of(name, sizes), **views}, FEW, schedule="tensor"), dtypes


def drawn(name: str, sizes: Mapping[str, int], dtypes: Mapping[str, str]) -> dict[str, Any]:
    rng = np.random.default_rng(sum(sizes.values()))
    given: dict[str, Any] = {}
    for t in forms.form_of_text(EPILOGUES[name], "k", 4).spec.tensors:
        x = rng.standard_normal([sizes[a] for a in t.axes]) / (sizes["k"] ** 0.5 if t.name == "W" else 1.0)
        given[t.name] = np.asarray(cast_array(x, dtypes[t.name]), np.float64)
    return given


def checked(name: str, made: Planned, given: Mapping[str, Any], seed: int = 0, **views: View) -> None:
    spec = forms.form_of_text(EPILOGUES[name], "k", 4).spec
    expected = ra.reference(spec, **given)
    expected = expected if isinstance(expected, dict) else {next(iter(spec.outputs)): expected}
    lying = {**views_of(name, sizes_of(given, spec)), **views} if views else None
    found = emulated(made, given, seed, lying)
    for n, x in expected.items():
        assert (np.abs(found[n] - x) <= 2**-8 * np.abs(x) + 2**-13).all(), n


def sizes_of(given: Mapping[str, Any], spec: ra.Spec) -> dict[str, int]:
    return {a: n for t in spec.tensors if t.axes for a, n in zip(t.axes, np.shape(given[t.name]), strict=True)}


@pytest.mark.parametrize("sizes", [(150, 136, 200), (70, 72, 96), (300, 64, 8), (33, 72, 63)])
@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_are_what_the_definition_says(name: str, sizes: tuple[int, int, int]) -> None:
    """Tiles after tiles, the last ones with few rows and columns; 63 columns are no whole copies of 16 bytes."""
    lengths = dict(zip("mkl", sizes, strict=True)) | {"b": 2}
    made, dtypes = planned(name, lengths)
    given = drawn(name, lengths, dtypes)
    for seed in range(2):
        checked(name, made, given, seed)
    held = "shared_load_bfloat16" in made.module.source
    one = name not in ("bias", "gelu", "two results")
    assert held == (one and lengths["l"] % 8 == 0)
    assert ("own_vectors" in made.module.source) == ("c[" in EPILOGUES[name])


@pytest.mark.parametrize("kinds", [{"c": "float32"}, {"R": "float32"}, dict.fromkeys("XWcR", "float16"), {"R": "int8"}])
def test_numbers_of_other_formats(kinds: dict[str, str]) -> None:
    """Results of 16 bits are those of tensors that all have these; a residual of integers is read one by one."""
    lengths = {"m": 70, "k": 72, "l": 72}
    made, dtypes = planned("both", lengths, kinds)
    given = drawn("both", lengths, dtypes)
    checked("both", made, given)
    assert ("shared_load_float16" in made.module.source) == (len(kinds) == 4)
    assert "own_vectors" in made.module.source


def test_rows_that_copies_of_16_bytes_cannot_read_are_read_one_by_one() -> None:
    lengths = {"m": 70, "k": 72, "l": 72}
    for view in (View((70, 72), (1, 70)), View((70, 72), (72, 1), 8), View((70, 72), (76, 1)), View((70, 72), (0, 1))):
        made, dtypes = planned("residual", lengths, R=view)
        held = view.strides == (0, 1)  # one row for all
        assert ("fetch_bfloat16x8" in made.module.source) == held
        if view.strides != (0, 1) and view.align == 16:
            given = drawn("residual", lengths, dtypes)
            checked("residual", made, given, R=view)


BROKEN = {
    "not awaited": ("cp_async_wait_all()", "syncwarp()"),
    "another row": ("own_staged = staged + 144 * (lane >> 2)", "own_staged = staged + 144 * (lane >> 3)"),
    "another column": ("own_vectors = vectors + 8 * (lane & 3)", "own_vectors = vectors + 8 * (lane & 1)"),
    "half of the rows": ("clamped_m = min(own_first + line", "clamped_m = min(own_first + line // 2"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_epilogue_is_seen(name: str) -> None:
    lengths = {"m": 150, "k": 72, "l": 64}
    made, dtypes = planned("both", lengths)
    given, (old, new) = drawn("both", lengths, dtypes), BROKEN[name]
    assert old in made.module.source
    module = replace(made.module, source=made.module.source.replace(old, new))
    made = replace(made, kernel=made.kernel._replace(module=module))

    def seen(run: Callable[[], None]) -> bool:
        try:
            run()
        except (RedalgError, AssertionError):
            return True
        return False

    assert any(seen(lambda seed=seed: checked("both", made, given, seed)) for seed in range(4))


@pytest.mark.skipif(ptxas() is None, reason="ptxas was not found")
@pytest.mark.parametrize("name", ["bias", "gelu", "residual", "both"])
def test_wide_tiles_assemble_without_spills(name: str) -> None:
    sizes = {"m": 8192, "k": 1024, "l": 1024}
    form = forms.form_of_text(EPILOGUES[name], "k", 4)
    made = plan(form, dict.fromkeys((t.name for t in form.spec.tensors), "bfloat16"), views_of(name, sizes), H200)
    assembled = assemble(made.module, H200.cc, made.choice.registers)
    assert "by 256 columns" in made.choice.reasons[0] and assembled.spill_stores == assembled.spill_loads == 0
