"""Section 4 and 7 of the theory as contracts: emptiness, infinities, NaN, ties, constants, overflow, offsets."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import sampling
from redalg.testing.running import merged, named, streamed
from tests.support.forms import form_of

INF, NAN = np.inf, np.nan


@functools.cache
def catalogued(name: str) -> Any:
    return form_of(name)


@functools.cache
def derived(text: str) -> Any:
    return ra.derive_incremental(ra.parse(text), axis="j")


def feeds(form: Any, arrays: dict[str, Any], seeds: int = 2) -> Iterator[dict[str, np.ndarray]]:
    """Results over every kind of partition: whole, one by one, merged, unequal pieces with an empty one."""
    n = next(np.shape(arrays[d.name])[d.axes.index("j")] for d in form.spec.tensors if "j" in d.axes)
    yield streamed(form, arrays, [0, n])
    yield streamed(form, arrays, list(range(n + 1)))
    yield merged(form, arrays, list(range(n + 1)), list(range(n - 2, -1, -1)))
    for seed in range(seeds):
        rng = Random(seed)
        borders = sampling.cuts(rng, n)
        yield streamed(form, arrays, borders)
        yield merged(form, arrays, borders, sampling.bracketing(rng, len(borders) - 1))


def check(form: Any, arrays: dict[str, Any], wanted: dict[str, Any] | None = None, rtol: float = 1e-12) -> None:
    """Every feed gives `wanted` (default: the definition): the same NaN and infinities, the numbers to `rtol`."""
    wanted = wanted or named(form, ra.reference(form.spec, **arrays))
    for got in feeds(form, arrays):
        assert set(got) == set(wanted)
        for name, value in wanted.items():
            np.testing.assert_allclose(got[name], value, rtol=rtol, atol=1e-300, equal_nan=True, err_msg=name)


# --- emptiness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["variance", "softmax_denominator", "attention", "argmax", "logsumexp", "mean"])
@pytest.mark.filterwarnings("error")
def test_streams_of_length_zero_one_and_two(name: str) -> None:
    entry = ra.catalog.entry(name)
    form = catalogued(name)
    for n in (1, 2):
        check(form, {k: np.asarray(v) for k, v in entry.sample(1, j=n).items()})
    arrays = entry.sample(1, j=0)
    moving, bound = sampling.split(form.spec, "j", arrays)
    acc = form.accumulator(**bound)
    acc.update(**moving)
    assert acc.count == 0


def test_empty_merged_with_empty_is_empty() -> None:
    form = derived("return y = sum[j](x[j])/size[j], m = max[j](x[j])")
    a, b = form.accumulator(), form.accumulator()
    a.update(x=np.zeros(0))
    a.merge(b)
    assert a.count == 0
    a.update(x=np.array([3.0]))
    assert named(form, a.result()) == {"y": 3.0, "m": 3.0}


def test_a_single_minus_infinity_is_not_an_empty_state() -> None:
    form = derived("m = max[j](x[j]); return m = m, i = argmax[j](x[j]), l = sum[j](exp(x[j] - m)), n = size[j]")
    acc = form.accumulator()
    acc.update(x=np.array([-INF]))
    result = acc.result()
    assert acc.count == 1 and result["m"] == -INF and result["i"] == 0 and result["n"] == 1 and result["l"] == 0


@pytest.mark.filterwarnings("error")
def test_zero_length_free_axes() -> None:
    form = catalogued("variance")
    for got in feeds(form, {"x": np.zeros((0, 4))}):
        assert got["var"].shape == (0,)


# --- masks -----------------------------------------------------------------------------------------------------------


def test_masked_rows_give_nan_and_the_other_rows_are_untouched() -> None:
    masked = "s = where(keep[i,j] > 0, x[i,j], -oo)"
    form = derived(f"{masked}; m = max[j](s); p = exp(s - m); return y = sum[j](p*v[j])/sum[j](p)")
    rng = np.random.default_rng(0)
    keep = rng.random((4, 6)) < 0.6
    keep[1] = False
    keep[2] = [False] * 5 + [True]
    check(form, {"keep": keep.astype(float), "x": rng.normal(size=(4, 6)), "v": rng.normal(size=6)})


def test_masked_rows_give_the_value_the_spec_states() -> None:
    x, v = ra.tensors("x[i,j] v[j]")
    keep = ra.tensors("keep[i,j]", bool=True)
    s = ra.where(keep, x, -ra.oo)
    p = ra.exp(s - ra.max(s, "j"))
    form = ra.derive_incremental(ra.Spec(y=ra.sum(p * v, "j") / ra.sum(p, "j"), empty={"y": 0}), axis="j")
    rng = np.random.default_rng(0)
    mask = np.array([[True] * 5, [False] * 5, [False, False, True, False, False]])
    arrays = {"x": rng.normal(size=(3, 5)), "v": rng.normal(size=5), "keep": mask}
    for got in feeds(form, arrays):
        assert got["y"][1] == 0 and np.isclose(got["y"][2], arrays["v"][2], rtol=1e-15)


def test_logsumexp_of_a_fully_masked_row_is_minus_infinity() -> None:
    check(catalogued("logsumexp"), {"x": np.array([[-INF] * 4, [0.0, -INF, 1.0, -INF], [-INF, -INF, -INF, 2.0]])})


# --- infinities and NaN ----------------------------------------------------------------------------------------------

SPECIAL_ROWS = np.array(
    [
        [1.0, 2.0, 3.0, 0.5],
        [-INF, 2.0, 3.0, 0.5],
        [1.0, NAN, 3.0, 0.5],
        [1.0, 2.0, INF, 0.5],
        [INF, 2.0, INF, 0.5],
        [-INF, INF, 0.0, 0.0],
        [NAN, NAN, NAN, NAN],
        [-INF, -INF, -INF, -INF],
        [0.0, -0.0, 0.0, 0.0],
        [5e-324, 0.0, 1e-310, 2e-308],
        [1.0, 1.0, 1.0, 1.0],
    ]
)


@pytest.mark.parametrize(
    "text",
    [
        "return m = max[j](x[i,j]), n = min[j](x[i,j]), i = argmax[j](x[i,j]), k = argmin[j](x[i,j])",
        "return s = sum[j](x[i,j])",
        "m = max[j](x[i,j]); return l = sum[j](exp(x[i,j] - m))",
        "return y = max[j](abs(x[i,j])), a = any[j](x[i,j] > 2), b = all[j](x[i,j] <= 3)",
        "m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = sum[j](p*x[i,j]**2)/sum[j](p)",
        "return p = prod[j](x[i,j])",
    ],
)
@pytest.mark.filterwarnings("error")
def test_special_rows_agree_with_the_definition_and_stay_in_their_row(text: str) -> None:
    form = derived(text)
    check(form, {"x": SPECIAL_ROWS})


@pytest.mark.parametrize("name", ["variance", "skewness", "mean", "standard_deviation"])
@pytest.mark.filterwarnings("error")
def test_moments_of_special_rows_are_nan_where_the_definition_is(name: str) -> None:
    """A non-finite element poisons its row, and only its row; finite rows are finite."""
    form = catalogued(name)
    wanted = named(form, ra.reference(form.spec, x=SPECIAL_ROWS[:9]))
    for got in feeds(form, {"x": SPECIAL_ROWS[:9]}):
        for output, value in wanted.items():
            assert np.array_equal(np.isnan(got[output]), np.isnan(value)), (output, got[output], value)


def test_attention_over_minus_infinite_scores_and_rows() -> None:
    form = derived("m = max[j](s[i,j]); p = exp(s[i,j] - m); return y = sum[j](p*v[j])/sum[j](p)")
    s = np.array([[-INF, 0.0, 1.0], [-INF, -INF, 3.0], [-INF, -INF, -INF], [0.0, NAN, 1.0]])
    check(form, {"s": s, "v": np.array([1.0, -2.0, 4.0])})


def test_argmax_takes_the_first_nan_and_the_lowest_index_among_ties() -> None:
    form = derived("return a = argmax[j](x[i,j]), b = argmin[j](x[i,j])")
    x = np.array([[1.0, 3, 3, 0, 0], [1, NAN, 3, NAN, 0], [2, 2, 2, 2, 2], [-INF, -INF, -INF, -INF, -INF]])
    check(form, {"x": x}, {"a": np.argmax(x, 1), "b": np.argmin(x, 1)})


def test_zero_rows_under_absmax_scaling_give_what_the_definition_gives() -> None:
    form = derived("a = max[j](abs(x[i,j])); return y = sum[j](x[i,j]/a*w[j])")
    check(form, {"x": np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5]]), "w": np.array([1.0, 2.0, 3.0])})


# --- constants, overflow, offsets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.1, 1e15 + 0.125, -3e-200, 1 / 3, 2.0**1000, 5e-324])
@pytest.mark.parametrize("name", ["variance", "covariance", "weighted_variance"])
def test_constant_streams_have_exactly_zero_central_moments(name: str, value: float) -> None:
    form = catalogued(name)
    arrays = {d.name: np.full((1, 7), value) for d in form.spec.tensors}
    if name == "weighted_variance":
        arrays["w"] = np.array([[0.1, 0.7, 1.0, 0.3, 0.1, 2.0, 1e-3]])
    for got in feeds(form, arrays, seeds=6):
        for output in got.values():
            assert (output == 0).all(), (name, value, output)


def test_third_and_fourth_moments_of_constants_are_exactly_zero() -> None:
    form = derived("m = mean[j](x[j]); return a = mean[j]((x[j] - m)**3), b = mean[j]((x[j] - m)**4)")
    for value, seed in itertools.product((0.1, 1e8 + 0.3), range(4)):
        for borders in (sampling.cuts(Random(seed), 9), range(10)):
            got = streamed(form, {"x": np.full(9, value)}, borders)
            assert got["a"] == 0 and got["b"] == 0


@pytest.mark.filterwarnings("error")
def test_finite_variances_are_finite_though_sums_of_squares_overflow() -> None:
    """Mean square 0.8e308: the sum over 64 elements is far beyond the largest float."""
    form = catalogued("variance")
    x = np.where(np.arange(64) % 2, 0.9e154, -0.9e154)[None] * np.linspace(0.5, 1, 64)
    exact = float(ra.reference(form.spec, exact=True, x=x)[0])
    assert np.isfinite(exact)
    for got in feeds(form, {"x": x}):
        np.testing.assert_allclose(got["var"], exact, rtol=1e-14)


@pytest.mark.parametrize("name", ["mean", "logsumexp"])
def test_means_near_the_largest_float(name: str) -> None:
    form = catalogued(name)
    x = np.array([[1.7e308, 1.6e308, 1.7e308, 1.5e308, 1.0e308]])
    exact = float(ra.reference(form.spec, exact=True, x=x)[0])
    for got in feeds(form, {"x": x}):
        np.testing.assert_allclose(next(iter(got.values())), exact, rtol=1e-15)


@pytest.mark.parametrize("offset", [1e8, 1e15, -1e15])
def test_a_large_mean_fed_one_by_one_keeps_full_accuracy(offset: float) -> None:
    form = catalogued("variance")
    x = offset + np.random.default_rng(3).normal(size=(5, 200)) * 4
    exact = np.array(ra.reference(form.spec, exact=True, x=x), dtype=float)
    for got in feeds(form, {"x": x}):
        np.testing.assert_allclose(got["var"], exact, rtol=1e-15)


def test_subnormal_numbers_are_summed_exactly() -> None:
    form = derived("return s = sum[j](x[j]), m = max[j](x[j]), n = mean[j](x[j])")
    x = np.arange(1, 9) * 5e-324
    check(form, {"x": x}, {"s": x.sum(), "m": x.max(), "n": 4.5 * 5e-324}, rtol=0)


@pytest.mark.parametrize("weights", [[0.0, 0.0, 1.0, 2.0], [1.0, -1.0, 2.0, 0.5], [1.0, -1.0, 1.0, -1.0], [0.0] * 4])
def test_zero_negative_and_cancelling_weights(weights: list[float]) -> None:
    """Pieces whose weights sum to zero have no mean of their own; the whole has one, or NaN or an infinity."""
    form = catalogued("weighted_variance")
    arrays = {"x": np.array([[1.0, 4.0, 2.0, -3.0]]), "w": np.array([weights])}
    if np.sum(weights):
        check(form, arrays)
    else:
        for got in feeds(form, arrays):
            assert not np.isfinite(got["var"]).any()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_narrow_input_gives_narrow_results(dtype: str) -> None:
    form = catalogued("attention")
    arrays = {k: np.asarray(v).astype(dtype) for k, v in ra.catalog.entry("attention").sample(2, j=6).items()}
    wanted = ra.reference(form.spec, **arrays)
    for got in feeds(form, arrays):
        assert got["O"].dtype == dtype
        np.testing.assert_allclose(got["O"], wanted, rtol=8 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps)


def test_an_infinite_scale_is_not_a_mask() -> None:
    x, T = ra.tensors("x[j]"), ra.scalar("T")
    m = ra.max(x, "j")
    scaled = ra.derive_incremental(ra.Spec(s=ra.sum(ra.exp((x - m) / T), "j")))
    mean = ra.mean(x, "j")
    deviation = ra.sqrt(ra.mean((x - mean) ** 2, "j"))
    standardised = ra.derive_incremental(ra.Spec(s=ra.sum(ra.exp((x - mean) / deviation), "j")), max_passes=2)
    constant, masked = np.array([-1.0, -1.0]), np.array([-np.inf, -1.0])
    for form, arrays in ((scaled, {"T": 0.0}), (standardised, {})):
        for exact in (False, True):
            assert np.isnan(float(ra.reference(form.spec, exact=exact, x=constant, **arrays)))
        assert np.isnan(form.compile("numpy")(x=constant, **arrays))
    assert scaled.compile("numpy")(x=masked, T=2.0) == ra.reference(scaled.spec, x=masked, T=2.0) == 1


@pytest.mark.parametrize("T", [2.0, 0.0, -1.0, np.inf, np.nan])
def test_a_scale_of_any_sign_over_masked_rows(T: float) -> None:
    x, v = ra.tensors("x[i,j] v[j]")
    kept, scale = ra.tensors("kept[i,j]", bool=True), ra.scalar("T")
    scores = ra.where(kept, x, -ra.oo)
    p = ra.exp((scores - ra.max(scores, "j")) * scale)
    spec = ra.Spec(y=ra.sum(p * v, "j") / ra.sum(p, "j"), empty={"y": 7})
    draw = np.random.default_rng(0)
    arrays = {"x": draw.normal(size=(4, 5)), "v": draw.normal(size=5), "kept": draw.random((4, 5)) > 0.5, "T": T}
    arrays["kept"][0], arrays["kept"][1] = False, True
    expected = ra.reference(spec, **arrays)
    np.testing.assert_allclose(ra.derive_incremental(spec).compile("numpy")(**arrays), expected, rtol=1e-12)
    if T == 2:
        assert expected[0] == 7 and np.isfinite(expected[1])


def _weighted(x: Any, v: Any, kept: Any) -> Any:
    scores = ra.where(kept, x, -ra.oo)
    p = ra.exp(scores - ra.max(scores, "j"))
    return ra.sum(p * v, "j") / ra.sum(p, "j")


BODIES = {
    "attention": _weighted,
    "sum": lambda x, v, kept: ra.sum(ra.where(kept, v, 0), "j"),
    "max": lambda x, v, kept: ra.max(ra.where(kept, v, -ra.oo), "j"),
}


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("limit", ["the mean", "half the maximum"])
def test_empty_where_the_mask_depends_on_another_reduction(limit: str, body: str, deterministic: bool) -> None:
    x, v = ra.tensors("x[i,j] v[j]")
    kept = x > (ra.mean(x, "j") if limit == "the mean" else ra.max(x, "j") / 2)
    form = ra.derive_incremental(ra.Spec(y=BODIES[body](x, v, kept), empty={"y": 5}), max_passes=2)
    rows = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0], [-4.0, -3.0, -3.0, -3.0], [0.0, 0.0, 0.0, 0.0]])
    arrays = {"x": rows, "v": np.array([1.0, 2.0, 4.0, 8.0])}
    expected = ra.reference(form.spec, **arrays)
    np.testing.assert_allclose(form.compile("numpy", deterministic=deterministic)(**arrays), expected, rtol=1e-12)
    assert 5 in expected and expected[1] != 5


def test_an_empty_row_whose_condition_asks_for_the_length_of_another_axis() -> None:
    spec = ra.parse(
        "tensors x[i,j], v[i,e]; u = mean[j](x[i,j]); empty y = 7;"
        "return y = sum[e](v[i,e]) + sum[j](where(x[i,j] > u, x[i,j], 0))"
    )
    run = ra.derive_incremental(spec, axis="j", max_passes=2).compile("numpy")
    for length in (0, 1, 2):
        arrays = {"x": np.array([[1.0, 1, 1], [1, 2, 3]]), "v": np.ones((2, length))}
        np.testing.assert_array_equal(run(**arrays), ra.reference(spec, **arrays))
        assert ra.reference(spec, **arrays).tolist() == [length or 7, length + 3]
