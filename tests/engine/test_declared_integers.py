"""Declared integers and conditions, which no infinity is among: stage values that vanish, and lists that are not full.

A result is the definition's, or NaN, or -1 for a position, where the form assumes finite stage values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import Forms
from tests.support.profiles import examples

STAGES = {
    "sum": "s = sum[j](x[j])",
    "last of a list": "s = min[t](topk[j:3:t](x[j]).values)",
    "last of a list of conditions": "s = min[t](topk[j:3:t](where(b[j], 2, 1)).values)",
}
ENDS = ("argmax[j](k[j] + s)", "argmax[j](k[j] + log(s))", "argmin[j](k[j]/(1 + s*s))", "topk[j:2:e](k[j] - s).indices")
ENDS += ("argmax[j](k[j]*exp(s))", "sum[j](k[j]/s)", "max[j](k[j]*exp(s))")
NAMES = [f"{stage}: {end}" for stage in STAGES for end in ENDS if "/s" not in end or stage == "sum"]
DECLARED = "tensors k[j] integer, {}; "


def text(name: str) -> str:
    stage, _, end = name.partition(": ")
    tensor = "b[j] bool" if "conditions" in stage else "x[j] integer"
    return f"{DECLARED.format(tensor)}{STAGES[stage]}; return y = {end}"


FORMS = Forms({name: text(name) for name in NAMES})


def allowed(found: Any, wanted: Any, assumes: bool) -> bool:
    a, b = np.asarray(found, float), np.asarray(wanted, float)
    none = (a == -1) if np.asarray(found).dtype.kind == "i" else np.isnan(a)
    same = np.isclose(a, b, rtol=1e-12, equal_nan=True)
    return bool((same | none & assumes).all())


@examples(60)
@given(st.sampled_from(NAMES), st.lists(st.integers(-3, 3), min_size=1, max_size=5), st.integers(0, 99))
def test_they_are_the_definition_or_none(name: str, elements: list[int], seed: int) -> None:
    form = FORMS[name]
    k = np.random.default_rng(seed).integers(-3, 4, len(elements))
    x = np.array(elements)
    given_ = {"k": k} | ({"b": x > 0} if "conditions" in name else {"x": x})
    with np.errstate(all="ignore"):
        found, wanted = form.compile("numpy")(**given_), ra.reference(form.spec, **given_)
    assert allowed(found, wanted, "finite_stage_values" in form.assumptions), (found, wanted)


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("argmax[j](k[j] + s)")])
def test_positions_where_a_list_is_not_full(name: str) -> None:
    tensor = {"b": np.array([True, False])} if "conditions" in name else {"x": np.array([2, -2])}
    assert FORMS[name].compile("numpy")(k=np.array([1, 2]), **tensor) == (1 if name.startswith("sum") else -1)
