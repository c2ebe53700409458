"""Integers never wrap: results outside int64 raise and change nothing; means and variances are exact to a rounding."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg import numeric_integers as integers
from redalg.integer_bounds import Integers

INSIDE = (-(2**63), 2**63 - 1)
WHOLE = {
    "sum": ("return y = sum[j](k[j])", lambda k, h: sum(k)),
    "squares": ("return y = sum[j](k[j]**2)", lambda k, h: sum(a * a for a in k)),
    "dot": ("return y = sum[j](k[j]*h[j])", lambda k, h: sum(a * b for a, b in zip(k, h, strict=True))),
    "product": ("return y = prod[j](k[j])", lambda k, h: int(np.prod(np.array(k, dtype=object)))),
    "masked": ("return y = sum[j](where(k[j] > h[j], k[j], 0))",
               lambda k, h: sum(a for a, b in zip(k, h, strict=True) if a > b)),
    "after": ("return y = max[j](k[j])**3 - sum[j](h[j])", lambda k, h: max(k) ** 3 - sum(h)),
}  # fmt: skip
FLOATS = {
    "mean": ("return y = mean[j](k[j])", lambda k, h: Fraction(sum(k), len(k))),
    "variance": ("u = mean[j](k[j]); return y = mean[j]((k[j]-u)**2)", lambda k, h: covariance(k, k)),
    "covariance": ("u = mean[j](k[j]); w = mean[j](h[j]); return y = mean[j]((k[j]-u)*(h[j]-w))",
                   lambda k, h: covariance(k, h)),
}  # fmt: skip


def covariance(k: list[int], h: list[int]) -> Fraction:
    u, w = Fraction(sum(k), len(k)), Fraction(sum(h), len(h))
    return sum(((a - u) * (b - w) for a, b in zip(k, h, strict=True)), Fraction(0)) / len(k)


def forms(table: Any) -> dict[str, Any]:
    return {name: ra.derive_incremental(ra.parse(text)) for name, (text, _) in table.items()}


FORMS = forms(WHOLE) | forms(FLOATS)
SIZES = st.sampled_from([0, 1, 3, 2**20, 2**31, 2**32 + 1, 2**53 + 1, 2**61, 2**62, 2**63 - 1])
NUMBERS = st.builds(lambda size, sign, less: max(INSIDE[0], sign * max(size - less, 0)),
                    SIZES, st.sampled_from([-1, 1]), st.integers(0, 3))  # fmt: skip
COLUMNS = st.integers(1, 5).flatmap(lambda n: st.tuples(*[st.lists(NUMBERS, min_size=n, max_size=n)] * 2))


def arrays_of(form: Any, k: list[int], h: list[int], dtype: Any = np.int64) -> dict[str, Any]:
    held = {"k": np.array(k, dtype), "h": np.array(h, dtype)}
    return {d.name: held[d.name] for d in form.spec.tensors}


def every_way(form: Any, arrays: dict[str, Any]) -> list[Any]:
    """What the reference, the NumPy target and merged accumulators give, or the error."""

    def pieces() -> Any:
        n = len(arrays["k"])
        acc, other = form.accumulator(), form.accumulator()
        acc.update(**{name: x[: n // 2] for name, x in arrays.items()})
        other.update(**{name: x[n // 2 :] for name, x in arrays.items()})
        acc.merge(other)
        return acc.result()

    found: list[Any] = []
    for way in (lambda: ra.reference(form.spec, **arrays), lambda: form.compile("numpy")(**arrays), pieces):
        try:
            found.append(way())
        except ra.RedalgError as error:
            assert "int64" in str(error) and all(str(error).count(part) for part in ("refused", "where", "why", "try"))
            found.append(error)
    return found


@pytest.mark.parametrize("name", sorted(WHOLE))
@given(columns=COLUMNS)
@settings(max_examples=40, deadline=None)
def test_integer_results_are_right_or_raise(name: str, columns: Any) -> None:
    form, exact = FORMS[name], WHOLE[name][1](*columns)
    reference, numpy, merged = every_way(form, arrays_of(form, *columns))
    for found in (reference, numpy):
        if INSIDE[0] <= exact <= INSIDE[1]:
            assert not isinstance(found, Exception) and int(found) == exact and found.dtype == np.int64
        else:
            assert isinstance(found, ra.RedalgError)
    if not isinstance(merged, Exception):  # a part of the stream may be outside where the whole is not
        assert int(merged) == exact


@pytest.mark.parametrize("name", sorted(FLOATS))
@given(columns=COLUMNS)
@settings(max_examples=40, deadline=None)
def test_means_and_variances_are_exact_before_one_rounding(name: str, columns: Any) -> None:
    """The reference to the bit; forms, whose sums carry what rounding took away, to a rounding of what is summed."""
    form, exact = FORMS[name], float(FLOATS[name][1](*columns))
    reference, *others = every_way(form, arrays_of(form, *columns))
    assert float(reference) == exact
    if np.finfo(np.longdouble).nmant < 63:
        return
    spread = [float(covariance(c, c)) ** 0.5 for c in columns]
    condition = {"mean": max(map(abs, columns[0])), "variance": exact, "covariance": spread[0] * spread[1]}[name]
    for found in others:
        assert abs(float(found) - exact) <= 2.0**-51 * abs(exact) + 2.0**-52 * condition, (found, exact)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", ["sum", "squares", "after"])
def test_what_raises_changes_nothing(name: str, deterministic: bool) -> None:
    form = FORMS[name]
    acc = form.accumulator(deterministic=deterministic)
    acc.update(**arrays_of(form, [3, 4], [1, 2]))
    before, state = acc.result(), {k: v.copy() for k, v in acc.state.items()}
    large = arrays_of(form, [2**62, 2**62], [5, 5])
    with pytest.raises(ra.RedalgError, match="int64"):
        acc.update(**large)
    other = form.accumulator(deterministic=deterministic)
    if name == "sum":
        other.update(**arrays_of(form, [2**63 - 1], [5]))
        with pytest.raises(ra.RedalgError, match="int64"):
            acc.merge(other)
    assert acc.count == 2 and acc.result() == before
    assert all(np.array_equal(v, state[k]) for k, v in acc.state.items())


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_])
def test_narrow_columns_are_widened(dtype: Any) -> None:
    top = 1 if dtype is np.bool_ else int(np.iinfo(dtype).max) // (2 if dtype is np.uint64 else 1)
    column = np.array([top, top, 1], dtype)
    for name in ("squares", "sum", "variance"):
        form = FORMS[name]
        found = every_way(form, {"k": column})
        exact = {**WHOLE, **FLOATS}[name][1]([top, top, 1], [0, 0, 0])
        for one in found:
            if name != "variance" and exact > INSIDE[1]:
                assert isinstance(one, ra.RedalgError)
            else:
                assert abs(float(one) - float(exact)) <= 2.0**-50 * float(exact)


def test_uint64_beyond_int64_is_refused() -> None:
    with pytest.raises(ra.RedalgError, match="int64"):
        ra.reference(FORMS["sum"].spec, k=np.array([2**63], np.uint64))


@pytest.mark.parametrize("name", ["squares", "dot"])
def test_kernels_do_not_wrap(name: str) -> None:
    form = FORMS[name]
    run = form.compile("cpu")
    for k in ([3, -4, 5], [2**31, 2**30, 1], [2**31 + 1, -(2**30), 7]):
        exact = WHOLE[name][1](k, k)
        for dtype in (np.int64, np.int32) if max(map(abs, k)) < 2**31 else (np.int64,):
            assert int(run(**arrays_of(form, k, k, dtype))) == exact
    with pytest.raises(ra.RedalgError, match="int64"):
        run(**arrays_of(form, [2**32, 2**32], [2**32, 2**32]))


def test_kernels_do_not_wrap_what_is_made_of_constants_and_lengths() -> None:
    run = ra.derive_incremental(ra.parse("return y = prod[j](where(x[j] > 0, 2, 1))")).compile("cpu")
    assert int(run(x=np.arange(70) < 62)) == 2**62
    with pytest.raises(ra.RedalgError, match="int64"):
        run(x=np.ones(70))


def test_kernels_do_not_round_integers_before_they_are_centred() -> None:
    run = FORMS["variance"].compile("cpu")
    for shift in (0, 2**40, 2**57, 2**62):
        assert abs(float(run(k=np.array([shift, shift + 1, shift + 2]))) - 2 / 3) < 1e-15


def test_monoids_that_multiply_are_not_bounded_as_sums() -> None:
    k = ra.tensors("k[j]", integer=True)
    for combine, identity, sure in ((lambda a, b: a * b, 1, False), (lambda a, b: a + b, 0, True)):
        spec = ra.Spec(y=ra.reduce(k, "j", ra.Monoid("fold", combine, identity, commutative=True)))
        assert Integers(list(spec.outputs.values()), {"k": np.dtype("int8")}).certain({"j": 63}) == sure


def test_contractions_do_not_wrap() -> None:
    spec = ra.parse("tensors a[i,j] integer, b[j,k] integer; return y = sum[j](a[i,j]*b[j,k])")
    rng = np.random.default_rng(0)
    a, b = rng.integers(-(2**31), 2**31, (40, 30)), rng.integers(-(2**28), 2**28, (30, 40))
    assert np.array_equal(ra.reference(spec, a=a, b=b), (a.astype(object) @ b.astype(object)).astype(np.int64))
    with pytest.raises(ra.RedalgError, match="int64"):
        ra.reference(spec, a=np.full((40, 30), 2**40), b=np.full((30, 40), 2**30))


def test_bounds_look_at_data_only_where_dtypes_leave_it_open() -> None:
    spec = ra.parse("return y = sum[j](k[j]**2)")
    nodes, sizes = list(spec.outputs.values()), {"j": 1000}
    narrow, wide = (Integers(nodes, {"k": np.dtype(name)}) for name in ("int16", "int64"))
    assert narrow.fits(sizes, {"k": None})
    assert wide.fits(sizes, {"k": np.array([2**20])})
    assert not wide.fits(sizes, {"k": np.array([2**31])})


@given(st.lists(NUMBERS, min_size=1, max_size=6), st.lists(NUMBERS, min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_integer_arithmetic_is_exact(a: list[int], b: list[int]) -> None:
    x, y = np.array(a[: len(b)], np.int64), np.array(b[: len(a)], np.int64)
    pairs = list(zip(map(int, x), map(int, y), strict=True))
    assert [int(v) for v in integers.add(x, y)] == [p + q for p, q in pairs]
    assert [int(v) for v in integers.multiply(x, y)] == [p * q for p, q in pairs]
    assert int(integers.total(x)) == sum(p for p, _ in pairs)
    assert [int(v) for v in integers.power(x, 3)] == [p**3 for p, _ in pairs]
    found = integers.quotient(x, y)
    assert all(f == p / q for f, (p, q) in zip(found, pairs, strict=True) if q)
