"""Integers never wrap: results outside int64 raise and change nothing; means and variances are exact to a rounding."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import redalg as ra
from redalg.numeric import integers
from redalg.numeric.integer_bounds import Integers
from tests.support.forms import Forms
from tests.support.profiles import examples

INSIDE = (-(2**63), 2**63 - 1)
WHOLE = {
    "sum": ("return y = sum[j](k[j])", lambda k, h: sum(k)),
    "squares": ("return y = sum[j](k[j]**2)", lambda k, h: sum(a * a for a in k)),
    "dot": ("return y = sum[j](k[j]*h[j])", lambda k, h: sum(a * b for a, b in zip(k, h, strict=True))),
    "product": ("return y = prod[j](k[j])", lambda k, h: int(np.prod(np.array(k, dtype=object)))),
    "masked": (
        "return y = sum[j](where(k[j] > h[j], k[j], 0))",
        lambda k, h: sum(a for a, b in zip(k, h, strict=True) if a > b),
    ),
    "after": ("return y = max[j](k[j])**3 - sum[j](h[j])", lambda k, h: max(k) ** 3 - sum(h)),
}
FLOATS = {
    "mean": ("return y = mean[j](k[j])", lambda k, h: Fraction(sum(k), len(k))),
    "variance": ("u = mean[j](k[j]); return y = mean[j]((k[j]-u)**2)", lambda k, h: covariance(k, k)),
    "covariance": (
        "u = mean[j](k[j]); w = mean[j](h[j]); return y = mean[j]((k[j]-u)*(h[j]-w))",
        lambda k, h: covariance(k, h),
    ),
}


def covariance(k: list[int], h: list[int]) -> Fraction:
    u, w = Fraction(sum(k), len(k)), Fraction(sum(h), len(h))
    return sum(((a - u) * (b - w) for a, b in zip(k, h, strict=True)), Fraction(0)) / len(k)


FORMS = Forms({name: text for table in (WHOLE, FLOATS) for name, (text, _) in table.items()})
SIZES = st.sampled_from([0, 1, 3, 2**20, 2**31, 2**32 + 1, 2**53 + 1, 2**61, 2**62, 2**63 - 1])
NUMBERS = st.builds(
    lambda size, sign, less: max(INSIDE[0], sign * max(size - less, 0)),
    SIZES,
    st.sampled_from([-1, 1]),
    st.integers(0, 3),
)
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
@example(columns=([0, 0, -3], [0, 0, -(2**62)]))  # between 2^63 and 2^64 NumPy has integers that int64 has not
@examples(40)
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
@examples(40)
def test_means_and_variances_are_exact_before_one_rounding(name: str, columns: Any) -> None:
    form, exact = FORMS[name], float(FLOATS[name][1](*columns))
    for found in every_way(form, arrays_of(form, *columns)):
        assert float(found) == exact


def weighted(k: list[int], h: list[int], power: int) -> Fraction:
    """Σ h·(k - u)^power / Σ h about u = Σ h·k / Σ h."""
    total = sum(h)
    u = Fraction(sum(a * b for a, b in zip(k, h, strict=True)), total)
    return sum((b * (a - u) ** power for a, b in zip(k, h, strict=True)), Fraction(0)) / total


def centred(k: list[int], power: int) -> Fraction:
    return weighted(k, [1] * len(k), power)


def over_one(k: list[int], h: list[int], value: Any) -> Fraction | None:
    """The value where h is above 0, if it is anywhere."""
    kept = [a for a, b in zip(k, h, strict=True) if b > 0]
    return value(kept) if kept else None


MASKED = "u = sum[j](where(h[j]>0,k[j],0))/sum[j](where(h[j]>0,1,0)); return y = "
MOMENTS = {
    "mean": ("return y = mean[j](k[j])", lambda k, h: centred(k, 0) * Fraction(sum(k), len(k))),
    "variance": ("u = mean[j](k[j]); return y = mean[j]((k[j]-u)**2)", lambda k, h: centred(k, 2)),
    "third": ("u = mean[j](k[j]); return y = mean[j]((k[j]-u)**3)", lambda k, h: centred(k, 3)),
    "fourth": ("u = mean[j](k[j]); return y = sum[j]((k[j]-u)**4)", lambda k, h: centred(k, 4) * len(k)),
    "covariance": FLOATS["covariance"],
    "weighted mean": (
        "return y = sum[j](h[j]*k[j])/sum[j](h[j])",
        lambda k, h: Fraction(sum(a * b for a, b in zip(k, h, strict=True)), sum(h)) if sum(h) else None,
    ),
    "weighted variance": (
        "u = sum[j](h[j]*k[j])/sum[j](h[j]); return y = sum[j](h[j]*(k[j]-u)**2)/sum[j](h[j])",
        lambda k, h: weighted(k, h, 2) if sum(h) else None,
    ),
    "masked": (
        MASKED + "sum[j](where(h[j]>0,(k[j]-u)**2,0))/sum[j](where(h[j]>0,1,0))",
        lambda k, h: over_one(k, h, lambda kept: centred(kept, 2)),
    ),
    "half": ("u = mean[j](k[j]/2); return y = mean[j]((k[j]/2-u)**2)", None),
}
MOMENT_FORMS = Forms({name: text for name, (text, _) in MOMENTS.items()})
NEAR = st.builds(
    lambda offset, by: max(INSIDE[0], min(INSIDE[1], offset + by)),
    st.sampled_from([0, 7, 2**31, 2**53, 2**62, -(2**62), INSIDE[1], INSIDE[0]]),
    st.one_of(st.integers(-3, 3), st.integers(-(2**33), 2**33), st.integers(-(2**62), 2**62)),
)
STREAMS = st.integers(1, 7).flatmap(lambda n: st.tuples(*[st.lists(NEAR, min_size=n, max_size=n)] * 2))


def merged_pieces(form: Any, arrays: dict[str, Any], data: Any, deterministic: bool) -> Any:
    """Accumulators of unequal parts of the stream, one of them empty, merged in any order."""
    n = len(arrays["k"])
    cuts = sorted([0, 0, n, *data.draw(st.lists(st.integers(0, n), max_size=3))])
    pieces = []
    for start, stop in zip(cuts, cuts[1:], strict=False):
        piece = form.accumulator(start=start, deterministic=deterministic)
        piece.update(**{name: x[start:stop] for name, x in arrays.items()})
        pieces.append(piece)
    total, *others = data.draw(st.permutations(pieces))
    for other in others:
        total.merge(other)
    return total


@pytest.mark.parametrize("name", sorted(MOMENTS.keys() - {"half"}))
@pytest.mark.parametrize("deterministic", [False, True])
@given(columns=STREAMS, data=st.data())
@examples(15)
def test_moments_of_integers_are_rounded_once(name: str, deterministic: bool, columns: Any, data: Any) -> None:
    """Whatever the parts and the order of merging; a weight of 0 is the definition's NaN or infinity."""
    form, exact = MOMENT_FORMS[name], MOMENTS[name][1](*columns)
    arrays = arrays_of(form, *columns)
    found = merged_pieces(form, arrays, data, deterministic).result()
    if exact is not None:
        assert float(found) == float(exact)
    else:
        np.testing.assert_equal(found, ra.reference(form.spec, **arrays))


@given(columns=STREAMS, data=st.data())
@examples(15)
def test_halves_of_integers_are_right_to_a_rounding_of_what_is_summed(columns: Any, data: Any) -> None:
    """Where a state holds other numbers than integers, accumulators convert them, and carry what rounding took away."""
    form = MOMENT_FORMS["half"]
    found = merged_pieces(form, arrays_of(form, *columns), data, False).result()
    if np.finfo(np.longdouble).nmant >= 63:
        exact = centred(columns[0], 2) / 4
        assert abs(Fraction(float(found)) - exact) <= exact / 2**48


@given(columns=STREAMS, data=st.data())
@examples(15)
def test_rows_of_integers_are_centred_exactly(columns: Any, data: Any) -> None:
    form = ra.derive_incremental(ra.parse("u = mean[j](k[j]); return y = k[j] - u"))
    arrays = arrays_of(form, *columns)
    total = merged_pieces(form, arrays, data, False)
    u = Fraction(sum(columns[0]), len(columns[0]))
    assert total.apply(start=0, **arrays).tolist() == [float(a - u) for a in columns[0]]
    assert total.state["avg_k"].dtype == np.float64


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


MAGNITUDES = {  # int64 has no 2^63, which is the size of its least number
    "maxabs": ("return y = max[j](abs(k[j]))", lambda k, h: max(map(abs, k))),
    "farthest": ("return y = argmax[j](abs(k[j]))", lambda k, h: max(range(len(k)), key=lambda j: abs(k[j]))),
    "apart": ("return y = max[j](abs(k[j] - h[j]))", lambda k, h: max(abs(a - b) for a, b in zip(k, h, strict=True))),
    "counted": (
        "return y = sum[j](where(abs(k[j]) > h[j], 1, 0))",
        lambda k, h: sum(abs(a) > b for a, b in zip(k, h, strict=True)),
    ),
    "after": ("return y = abs(min[j](k[j]))", lambda k, h: abs(min(k))),
}
SIZED = Forms({name: text for name, (text, _) in MAGNITUDES.items()})


@pytest.mark.parametrize("name", sorted(MAGNITUDES))
@given(columns=COLUMNS)
@example(columns=([INSIDE[0], 0, -1], [0, 1, 2]))
@example(columns=([INSIDE[1], INSIDE[0]], [-1, 3]))
@examples(40)
def test_magnitudes_do_not_wrap(name: str, columns: Any) -> None:
    """In kernels, too; where an element leaves int64 a call may raise though its result would not."""
    form, exact = SIZED[name], MAGNITUDES[name][1](*columns)
    arrays = arrays_of(form, *columns)
    for found in [*every_way(form, arrays), *kernel(form, arrays)]:
        if isinstance(found, Exception):
            assert INSIDE[1] < exact or name == "apart"
        else:
            assert int(found) == exact


def kernel(form: Any, arrays: dict[str, Any]) -> list[Any]:
    try:
        return [form.compile("cpu")(**arrays)]
    except ra.RedalgError as error:
        assert "int64" in str(error)
        return [error]


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
@examples(100)
def test_integer_arithmetic_is_exact(a: list[int], b: list[int]) -> None:
    x, y = np.array(a[: len(b)], np.int64), np.array(b[: len(a)], np.int64)
    pairs = list(zip(map(int, x), map(int, y), strict=True))
    assert [int(v) for v in integers.add(x, y)] == [p + q for p, q in pairs]
    assert [int(v) for v in integers.multiply(x, y)] == [p * q for p, q in pairs]
    assert int(integers.total(x)) == sum(p for p, _ in pairs)
    assert [int(v) for v in integers.power(x, 3)] == [p**3 for p, _ in pairs]
    found = integers.quotient(x, y)
    assert all(f == p / q for f, (p, q) in zip(found, pairs, strict=True) if q)


@pytest.mark.parametrize("target", ("numpy", "cpu"))
@pytest.mark.parametrize("dtype", ("int64", "int32", "float32"))
def test_maps_without_a_stream_count_nothing(target: str, dtype: str) -> None:
    """Positions, lengths and whole tensors beside each other, and no reduction at all."""
    spec = ra.parse("tensors x[i,j], y[i] integer; return z = x[i,j]*2 + where(index[j] + 3 == y[i], 1, 0) + size[j]")
    x, y = np.arange(6).reshape(2, 3).astype(dtype), np.array([3, 5])
    found = ra.derive_incremental(spec).compile(target)(x=x, y=y)
    np.testing.assert_array_equal(found, ra.reference(spec, x=x, y=y))


@pytest.mark.parametrize("beside", ["", ", z = sum[j](x[j])"])
@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32"])
def test_a_guard_makes_no_float_of_an_integer(dtype: str, beside: str) -> None:
    """max((k - min k)²) is guarded by NaN where min k is infinite, which no integer is."""
    spec = ra.parse(f"m = min[j](k[j]); return y = max[j]((k[j] - m)**2){beside}")
    form = ra.derive_incremental(spec)
    assert form.plan.outputs[0].guard is not None
    data: dict[str, Any] = {"k": np.array([1, 2**31 - 1, 7], dtype)}
    if beside:
        data["x"] = np.array([0.5, 1.5, 2.0])
    wanted = np.array((2**31 - 2) ** 2).astype(dtype)
    acc = form.accumulator()
    for part in (slice(1), slice(1, 1), slice(1, 3)):
        acc.update(**{name: x[part] for name, x in data.items()})
    for found in (acc.result(), form.compile("numpy")(**data), form.compile("cpu")(**data)):
        got = found["y"] if beside else found
        assert got == wanted and got.dtype == dtype


@pytest.mark.parametrize("target", ["cpu", "numpy"])
@pytest.mark.parametrize(
    ("body", "exact"),
    [("k[j] - 7*floor(k[j]/7)", lambda k: k % 7), ("4*ceil(k[j]/4) - k[j]", lambda k: -k % 4)],
)
def test_what_is_rounded_of_large_integers_is_right(target, body, exact):
    """Kernels of floats would round k before they round the quotient, which is then off by one."""
    form = ra.derive_incremental(ra.parse(f"tensors k[j] integer; return y = sum[j]({body}), m = max[j]({body})"))
    for k in ([3, 8, -5], [2**53 + 1, 2**60 + 5, 1_700_000_000_000_000_003, -(2**61) - 3]):
        found = form.compile(target)(k=np.array(k))
        assert found["y"] == sum(map(exact, k)) and found["m"] == max(map(exact, k))


@pytest.mark.parametrize("body", ["prod[j](k[j])", "sum[j](k[j]**{e})", "prod[j](k[j]**2)", "max[j](k[j]**{e})"])
@pytest.mark.parametrize("length", [1, 2, 3, 100, 230, 300, 1000])
def test_refusals_of_integers_of_any_length_are_short(body: str, length: int) -> None:
    """Python writes no integer of more than 4300 digits."""
    form = ra.derive_incremental(ra.parse(f"tensors k[j] integer; return y = {body.format(e=length)}"))
    k = np.full(length, 2**62 + 1)

    def accumulated() -> object:
        parts = form.accumulator()
        for chunk in (k[:0], k[: length // 2], k[length // 2 :]):
            parts.update(k=chunk)
        return parts.result()

    def grouped() -> object:
        groups = form.grouped()
        groups.update(by=np.zeros(length), k=k)
        return groups.result()

    ways = [lambda: ra.reference(form.spec, k=k), lambda: form.compile("numpy")(k=k), accumulated, grouped]
    for way in ways:
        try:
            way()
            assert length == 1
        except ra.RedalgError as refused:
            assert "int64" in str(refused) and len(str(refused)) < 400
