"""Integers beside constants that int64 does not hold: a result is exact, or it is refused, on every target."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import redalg as ra
from tests.support.profiles import examples

LARGEST = 2**63 - 1
CONSTANTS = [1, -3, 10**10, 2**62, 2**63, -(2**63), 10**19, -(10**20), 10**50, int(1e200), -(10**400)]
BODIES = {
    "product": lambda a, b, c: a * c,
    "square": lambda a, b, c: (a * c) ** 2,
    "sum": lambda a, b, c: a + b + c,
    "difference": lambda a, b, c: a * c - b * c,
    "clipped": lambda a, b, c: ra.minimum(ra.maximum(a, c), b),
    "magnitude": lambda a, b, c: ra.abs(a + c),
    "chosen": lambda a, b, c: ra.where(a > b, a, c),
    "above": lambda a, b, c: ra.where(a > c, a, b),
    "positive": lambda a, b, c: ra.relu(a * c) - b,
}
REDUCTIONS = {
    "sum": lambda e: ra.sum(e, "j"),
    "max": lambda e: ra.max(e, "j"),
    "prod": lambda e: ra.prod(e, "j"),
    "mean": lambda e: ra.mean(e, "j"),
    "argmax": lambda e: ra.argmax(e, "j"),
    "none": lambda e: e,
    "scaled": lambda e: ra.min(e, "j") * 10**19,
}
COLUMN = st.sampled_from([0, 1, -1, 5, -7, 2**31, 2**40, 2**62, -(2**62), LARGEST])
COLUMNS = st.integers(1, 4).flatmap(lambda n: st.tuples(*[st.lists(COLUMN, min_size=n, max_size=n)] * 2))


def judged(spec: Any, exact: Any, run: Any, arrays: dict[str, Any]) -> None:
    """A result is the exact one, rounded once where it is a float; one beyond int64 is refused."""
    wanted = list(np.asarray(exact, dtype=object).flat)
    try:
        found = np.asarray(run(**arrays))
    except ra.RedalgError as error:
        assert "int64" in str(error) and any(not -LARGEST - 1 <= v <= LARGEST for v in wanted)
        return
    for f, w in zip(found.flat, wanted, strict=True):
        if found.dtype.kind == "i":
            assert int(f) == w
        elif abs(w) > 2**1023:
            assert f == (np.inf if w > 0 else -np.inf)
        else:
            assert abs(Fraction(float(f)) - w) <= abs(w) / 2**45


def ways(spec: Any, target: str) -> list[Any]:
    form = ra.derive_incremental(spec)
    return [lambda **arrays: ra.reference(spec, **arrays), form.compile(target)]


@given(st.sampled_from(sorted(BODIES)), st.sampled_from(sorted(REDUCTIONS)), st.sampled_from(CONSTANTS), COLUMNS)
@example("square", "sum", int(1e200), ([0, 0], [1, 2]))
@example("product", "max", 10**19, ([1, 2, 3], [0, 0, 0]))
@example("sum", "sum", 2**62, ([5, 2**40, 1], [0, 3, 1]))
@examples(150)
def test_integers_beside_large_constants(body: str, reduced: str, constant: int, columns: Any) -> None:
    k, h = ra.tensors("k[j] h[j]", integer=True)
    spec = ra.Spec(y=REDUCTIONS[reduced](BODIES[body](k, h, constant)))
    arrays = {d.name: np.array(columns["kh".index(d.name)]) for d in spec.tensors}
    exact = ra.reference(spec, exact=True, **arrays)
    for run in ways(spec, "numpy"):
        judged(spec, exact, run, arrays)


@pytest.mark.parametrize("constant", [2**62, 10**30, 10**400])
@pytest.mark.parametrize("body", ["sum", "above", "clipped"])
def test_kernels_leave_large_constants_to_numpy(body: str, constant: int) -> None:
    k, h = ra.tensors("k[j] h[j]", integer=True)
    spec = ra.Spec(y=ra.sum(BODIES[body](k, h, constant), "j"))
    for columns in ([[1, 2, 3], [0, 0, 0]], [[2**40, -5, 1], [2**62, 0, 3]]):
        arrays = {d.name: np.array(columns["kh".index(d.name)]) for d in spec.tensors}
        exact = ra.reference(spec, exact=True, **arrays)
        for run in ways(spec, "cpu"):
            judged(spec, exact, run, arrays)


@pytest.mark.parametrize("constant", [2**60, 10**30, -(10**400)])
@pytest.mark.parametrize("name", ["sum", "largest", "mean", "compared", "element"])
def test_floats_beside_large_integers(name: str, constant: int) -> None:
    """A form multiplies a constant by the number of elements, which are integers where the definition has floats."""
    x = ra.tensors("x[j]")
    y = {
        "sum": ra.sum(x + constant, "j"),
        "largest": ra.max(ra.maximum(x, constant), "j"),
        "mean": ra.mean(x - constant, "j"),
        "compared": ra.any(x > constant, "j"),
        "element": x + constant,
    }[name]
    spec = ra.Spec(y=y)
    data = np.arange(50.0)
    wanted = ra.reference(spec, x=data)
    for target in ("numpy", "cpu"):
        found = ra.derive_incremental(spec).compile(target)(x=data)
        np.testing.assert_allclose(np.asarray(found, float), np.asarray(wanted, float), rtol=1e-12)


WATCHED = {  # extrema of which kernels of a CPU watch whether they left the range
    "largest": "y = max[j](maximum(x[i,j], C)); return y",
    "product": "y = max[j](C*x[i,j]); at = argmin[j](C*x[i,j]); return y, at",
    "distance": "at = argmin[j]((x[i,j] - C)**2); y = min[j]((x[i,j] - C)**2)/C; return at, y",
    "scaled": "m = max[j](abs(x[i,j])); y = x[i,j]/m/C; return y",
    "selected": "y = min[j](where(x[i,j] > 0, x[i,j]**2, C)); return y",
    "power": "y = 1/max[j](abs(x[i,j])**E); return y",
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("constant", [3, 2**60, 10**30, 10**400])
@pytest.mark.parametrize("name", WATCHED)
def test_watched_extrema_beside_large_constants(name: str, constant: int) -> None:
    """What bounds an extremum's terms takes logarithms of constants, and powers, that no float holds."""
    text = WATCHED[name].replace("C", str(constant)).replace("E", str(min(constant, 10**30)))
    found = ra.verdict(ra.parse(text))
    if not isinstance(found, ra.Form):
        assert constant > 2**59, text
        return
    for length in (1, 2, 7):
        data = np.linspace(-3.0, 5.0, 3 * length).reshape(3, length)
        for own, true in zip(
            values(found.compile("cpu")(x=data)), values(ra.reference(found.spec, x=data)), strict=True
        ):
            np.testing.assert_allclose(np.asarray(own, float), np.asarray(true, float), rtol=1e-12)


def values(found: Any) -> list[Any]:
    return [*found.values()] if isinstance(found, dict) else [found]


@pytest.mark.parametrize("constant", [2**63, 10**19, -(10**400)])
def test_large_constants_beside_floats_are_derived(constant: int) -> None:
    """Forms are tried at infinite elements, where the integers of the definition may be outside int64."""
    x, k = ra.tensors("x[j]"), ra.tensors("k[j]", integer=True)
    form = ra.derive_incremental(ra.Spec(y=ra.sum(ra.where(x > 0, constant, k), "j")))
    assert int(form.compile("numpy")(x=np.array([-1.0, -2.0]), k=np.array([3, 4]))) == 7
