"""Identifiers that Python reads as one are not two names of a spec, and every other one is usable."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import assume, given
from hypothesis import strategies as st

import redalg as ra
from tests.support.profiles import examples

SAMPLES = ("\ufb01", "\u017f", "\u212a", "\u00aa", "x\u2093", "\U0001d431", "\uff58", "\u2126", "\u00b5", "\u1d62")
ROLES: dict[str, Callable[[str], Any]] = {
    "tensor": lambda n: ra.tensors(f"{n}[j]"),
    "axis": lambda n: ra.tensors(f"x[{n}]"),
    "scalar": lambda n: ra.scalar(n),
    "summed axis": lambda n: ra.sum(ra.tensors("x[j]"), n),
    "axis of the largest": lambda n: ra.topk(ra.tensors("x[j]"), 2, "j", name=n),
    "output": lambda n: ra.Spec(**{n: ra.sum(ra.tensors("x[j]"), "j")}),
    "monoid": lambda n: ra.Monoid(n, lambda a, b: sympy.Max(a, b), -sympy.oo, commutative=True),
    "tensor in text": lambda n: ra.parse(f"return y = sum[j]({n}[j])"),
    "axis in text": lambda n: ra.parse(f"return y = sum[{n}](x[{n}])"),
    "output in text": lambda n: ra.parse(f"return {n} = sum[j](x[j])"),
    "declared in text": lambda n: ra.parse(f"tensors {n}[j] positive; return y = sum[j]({n}[j])"),
    "monoid in text": lambda n: ra.parse(f"monoid {n} = (maximum(a0, b0),) identity (-oo,); return y = sum[j](x[j])"),
}
IDENTIFIERS = st.text(st.characters(categories=("L", "Nd", "Nl")), min_size=1, max_size=3).filter(str.isidentifier)


@pytest.mark.parametrize("role", ROLES)
@given(name=st.sampled_from(SAMPLES) | IDENTIFIERS.filter(lambda n: unicodedata.normalize("NFKC", n) != n))
@examples(20)
def test_names_that_python_would_change_are_refused(role: str, name: str) -> None:
    assume(name.isidentifier())
    with pytest.raises(ra.RedalgError) as caught:
        ROLES[role](name)
    shown = str(caught.value)
    assert repr(name) in shown and repr(unicodedata.normalize("NFKC", name)) in shown


@given(names=st.lists(IDENTIFIERS.map(lambda n: unicodedata.normalize("NFKC", n)), min_size=4, max_size=4, unique=True))
@examples(20)
def test_every_other_name_is_usable(names: list[str]) -> None:
    assume(all(n.isidentifier() and n not in ("if", "in", "is", "or", "as", "pi", "oo") for n in names))
    a, b, axis, out = names
    spec = ra.Spec(**{out: ra.sum(ra.tensors(f"{a}[{axis}]") * ra.tensors(f"{b}[{axis}]"), axis)})
    x, w = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    run = ra.derive_incremental(spec).compile("numpy")
    assert run(**{a: x, b: w}) == ra.reference(spec, **{a: x, b: w}) == 13


@pytest.mark.parametrize("nested", [False, True])
def test_one_name_is_one_monoid(nested: bool) -> None:
    """Also where one of them is read below the other."""
    x = ra.tensors("x[j]")
    low = ra.Monoid("m", lambda a, b: sympy.Min(a, b), sympy.oo, commutative=True)
    high = ra.Monoid("m", lambda a, b: sympy.Max(a, b), -sympy.oo, commutative=True)
    below = ra.reduce(x, "j", low)
    with pytest.raises(ra.RedalgError, match="two monoids named 'm'"):
        ra.Spec(y=ra.reduce(x - below, "j", high)) if nested else ra.Spec(y=below, z=ra.reduce(x, "j", high))
