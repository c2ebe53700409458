"""Sums over what lies beside an extremum: nothing of them is lost where the extremum is far larger than they are."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import Forms
from tests.support.profiles import examples

ORDER = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "!=": operator.ne, "==": operator.eq}
WRITTEN = {"!=": "ne({0}, {1})", "==": "eq({0}, {1})"}
BODIES: dict[str, Callable[[float, float], float]] = {
    "{x}": lambda x, w: x,
    "{w}": lambda x, w: w,
    "1": lambda x, w: 1.0,
    "{x}*{w}": lambda x, w: x * w,
    "{x}**2": lambda x, w: x * x,
}
KINDS = {"max": "<", "min": ">"}
CASES = {  # name -> (kind, operator, what is chosen, whether the condition is denied)
    f"{kind} {op} {body}{' else' if denied else ''}": (kind, op, body, denied)
    for kind, inside in KINDS.items()
    for op in (inside, f"{inside}=", "!=", "==")
    for body in BODIES
    for denied in (False, True)
}
LETTERS = {False: ("x[j]", "w[j]", "j"), True: ("shift[i,n1]", "n[n1]", "n1")}  # hostile names, and a second axis


def text(case: str, hostile: bool) -> str:
    kind, op, body, denied = CASES[case]
    x, w, axis = LETTERS[hostile]
    condition = WRITTEN.get(op, f"{{0}} {op} {{1}}").format(x, "m")
    sides = ["0", body.format(x=x, w=w)] if denied else [body.format(x=x, w=w), "0"]
    return f"m = {kind}[{axis}]({x}); return y = sum[{axis}](where({condition}, {', '.join(sides)}))"


FORMS = Forms({f"{case} {hostile}": text(case, hostile) for case in CASES for hostile in LETTERS})
NUMBER = st.sampled_from([3e-10, 1e10, -1e10, 1.0, 0.0, -3e-10, 7.0, 1e-300])
SPECIAL = st.sampled_from([3e-10, 1e10, -2.0, 0.0, np.inf, -np.inf, np.nan])
WEIGHT = st.sampled_from([1.0, 3e-10, 1e10, 2.0, 0.0])


def columns(number: Any) -> Any:
    pair = (number, WEIGHT)
    return st.integers(0, 6).flatmap(lambda n: st.tuples(*(st.lists(v, min_size=n, max_size=n) for v in pair)))


def expected(case: str, xs: list[float], ws: list[float]) -> tuple[float, float]:
    """The sum by its definition, rounded once, and a bound on what rounding its terms may change."""
    kind, op, body, denied = CASES[case]
    m = math.nan if any(map(math.isnan, xs)) else {"max": max, "min": min}[kind](xs, default=0.0)
    terms = [BODIES[body](x, w) for x, w in zip(xs, ws, strict=True) if ORDER[op](x, m) != denied]
    if any(map(math.isnan, terms)) or {math.inf, -math.inf} <= set(terms):
        return math.nan, 0.0
    infinite = [t for t in terms if math.isinf(t)]
    return (infinite[0] if infinite else math.fsum(terms)), 1e-15 * sum(abs(t) for t in terms if math.isfinite(t))


def held(case: str, hostile: bool, data: Any, cut: int, target: str) -> None:
    """Accumulators and a compiled form against the definition; beside hostile names the second row is reversed."""
    (xs, ws), form = data, FORMS[f"{case} {hostile}"]
    rows = [xs, xs[::-1]] if hostile else [xs]
    x, w, _ = (part.split("[")[0] for part in LETTERS[hostile])
    given = {x: np.array(rows if hostile else xs), w: np.array(ws)}
    arrays = {d.name: given[d.name] for d in form.spec.tensors}
    first, nothing, second = (form.accumulator() for _ in range(3))
    with np.errstate(all="ignore"):
        for part, at in ((first, slice(0, cut)), (nothing, slice(0, 0)), (second, slice(cut, None))):
            part.update(**{name: a[..., at] for name, a in arrays.items()})
        first.merge(nothing)
        first.merge(second)
        results = [first.result(), form.compile(target)(**arrays)]
    for result in results:
        for got, row in zip(np.ravel(result), rows, strict=True):
            wanted, bound = expected(case, row, ws)
            same = got == wanted or math.isnan(got) and math.isnan(wanted) or abs(got - wanted) <= bound
            assert same or math.isnan(got) and "finite_stage_values" in form.assumptions, (got, wanted)


@given(case=st.sampled_from(sorted(CASES)), hostile=st.booleans(), data=columns(NUMBER), cut=st.integers(0, 6))
@examples(150)
def test_small_elements_beside_a_large_extremum_are_kept(case: str, hostile: bool, data: Any, cut: int) -> None:
    held(case, hostile, data, cut, "numpy")


@given(case=st.sampled_from(sorted(CASES)), data=columns(SPECIAL), cut=st.integers(0, 6))
@examples(150)
def test_infinities_and_nan_beside_an_extremum(case: str, data: Any, cut: int) -> None:
    held(case, False, data, cut, "numpy")


@pytest.mark.parametrize("case", ["max < {x}", "min > {w}", "max < {x}*{w} else"])
@given(data=columns(NUMBER), cut=st.integers(0, 6))
@examples(20)
def test_kernels_keep_them(case: str, data: Any, cut: int) -> None:
    held(case, False, data, cut, "cpu")


@pytest.mark.parametrize("case", sorted(c for c in CASES if "{x}*{w}" in c))
def test_their_certificates_are_proved(case: str) -> None:
    assert FORMS[f"{case} False"].certificate.verify().proved


SEVERAL = {
    "either": "m = max[j](x[j]); return y = sum[j](where(eq(x[j], m) or w[j] > 1, x[j], 0))",
    "counts times values": "t = where(x[j] < max[j](x[j]), 1, 0); n = sum[j](t); return y = sum[j](t*n*x[j])",
    "both ends": "a = min[j](x[j]); b = max[j](x[j]); return y = sum[j](where(x[j] > a and x[j] < b, x[j], 0))",
    "two axes": "m = max[j,k](x[j,k]); return y = sum[j,k](where(x[j,k] < m, x[j,k], 0))",
    "of a product": "u = max[j](abs(w[j])) - 7; return y = sum[j](where(eq(x[j]*u, 0), x[j] + w[j], 0))",
}
OTHERS = Forms(SEVERAL)


@pytest.mark.parametrize("name", sorted(SEVERAL))
@given(data=columns(NUMBER), cut=st.integers(0, 6))
@examples(40)
def test_several_conditions(name: str, data: Any, cut: int) -> None:
    form, (x, w) = OTHERS[name], map(np.array, data)
    if name == "two axes":
        x, w = np.stack([x, x[::-1]], axis=1), np.stack([w, w], axis=1)
    arrays = {d.name: {"x": x, "w": w}[d.name] for d in form.spec.tensors}
    wanted = ra.reference(form.spec, exact=True, **arrays) if len(x) else np.array(0.0)
    first, second = form.accumulator(), form.accumulator()
    cut = min(cut, len(x))
    first.update(**{k: v[:cut] for k, v in arrays.items()})
    second.update(**{k: v[cut:] for k, v in arrays.items()})
    first.merge(second)
    inner = x[(x > x.min(initial=0)) & (x < x.max(initial=0))] if name == "both ends" else x
    lost = 2.0**-100 * np.abs(inner[np.isfinite(inner)]).sum()  # what sums as pairs of floats round away
    for got in (first.result(), form.compile("numpy")(**arrays)):
        np.testing.assert_allclose(float(got), float(wanted), rtol=1e-12, atol=1e-320 + lost)
