"""The numerical contract of streams (theory, sections 3.2, 3.3 and 7), against exact arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.form import Form
from redalg.streaming.tapes import join
from tests.support.profiles import examples
from tests.support.streams import bits, fed, hand, placed

X = ra.tensors("x[j]")
MU = ra.mean(X, "j")


def moment(k: int) -> Any:
    return ra.mean((X - MU) ** k, "j")


@pytest.fixture(scope="module")
def moments() -> Form:
    return ra.derive_incremental(ra.Spec(mean=MU, m2=moment(2), m3=moment(3), m4=moment(4)))


def exact_moments(data: Iterable[float]) -> dict[str, Fraction]:
    values = [Fraction(float(v)) for v in data]
    mean = sum(values, Fraction(0)) / len(values)
    powers = {f"m{k}": sum(((v - mean) ** k for v in values), Fraction(0)) / len(values) for k in (2, 3, 4)}
    return {"mean": mean} | powers


def ulps(got: Any, exact: Fraction) -> float:
    return abs(float((Fraction(float(got)) - exact) / exact)) / 2.0**-52


CUTS = {"one by one": range(401), "chunks": [0, 1, 3, 7, 50, 51, 200, 400], "whole": [0, 400]}


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (1e4, 1), (1e8, 1), (1e15, 1), (0, 1e70), (0, 1e-70)])
def test_moments_to_a_few_ulp_at_any_offset(moments: Form, cuts: Any, offset: float, scale: float) -> None:
    for seed in range(2):
        data = offset + scale * np.random.default_rng(seed).exponential(size=400)
        exact, got = exact_moments(data), fed(moments, {"x": data}, cuts).result()
        worst = {name: ulps(got[name], exact[name]) for name in exact}
        assert max(worst.values()) <= 4, worst


def test_moments_merged_in_a_tree_of_pieces(moments: Form) -> None:
    data = 1e8 + np.random.default_rng(0).exponential(size=400)
    order = np.random.default_rng(1).permutation(80)
    got = placed(moments, {"x": data}, range(0, 401, 5), list(order)).result()
    exact = exact_moments(data)
    assert max(ulps(got[name], exact[name]) for name in exact) <= 4


def test_a_float32_stream_is_as_good_as_float32_can_be() -> None:
    form = ra.derive_incremental(ra.Spec(mean=MU, m2=moment(2)))
    data = (1e4 + np.random.default_rng(0).normal(size=1500)).astype(np.float32)
    exact, got = exact_moments(data), fed(form, {"x": data}, range(1501)).result()
    for name in ("mean", "m2"):
        assert got[name].dtype == np.float32 and ulps(got[name], exact[name]) * 2.0**-29 <= 2


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(1, 30),
    st.lists(st.integers(0, 30), max_size=4),
)
@examples(60)
def test_constant_streams_have_exactly_zero_central_moments(value: float, n: int, cuts: list[int]) -> None:
    form = FORM4
    borders = [0, *sorted(min(c, n) for c in cuts), n]
    data = np.full(n, value)
    for acc in (fed(form, {"x": data}, borders), fed(form, {"x": data}, borders, deterministic=True)):
        assert [float(v) for v in acc.result().values()] == [0, 0, 0]
    merged = placed(form, {"x": data}, borders, list(range(len(borders) - 1))[::-1])
    assert [float(v) for v in merged.result().values()] == [0, 0, 0]


BESIDE = ra.derive_incremental(ra.Spec(e=ra.sum(ra.exp(X), "j"), top=ra.max(X, "j") - MU, m2=moment(2)))
FORM4 = ra.derive_incremental(ra.Spec(m2=moment(2), m3=moment(3), m4=moment(4)))


# --- range -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", (0, 1, 500, 999))
@pytest.mark.parametrize("cuts", ([0, 1000], [0, 1, 1000], [0, 500, 1000], range(1001)))
def test_a_finite_variance_is_finite_though_squares_overflow(at: int, cuts: Any) -> None:
    data = np.zeros(1000)
    data[at] = 1e155
    acc = fed(hand("variance"), {"x": data}, cuts)
    exact = Fraction(float(data[at])) ** 2 * Fraction(999, 10**6)
    assert ulps(acc.result(), exact) <= 2
    assert {v.dtype for v in acc.state.values()} == {np.dtype(float)}


@examples(60)
@given(st.data())
def test_what_is_held_about_a_mean_keeps_its_digits_beside_a_sum_that_overflows(data: st.DataObject) -> None:
    """Such pieces are lifted in wider floats and may come back, their anchors rounded or not."""
    dtype = data.draw(st.sampled_from((np.float32, np.float64)), label="dtype")
    offset = data.draw(st.sampled_from((80.0, 700.0, 12000.0, 1e6, 1e8)), label="offset")
    n = data.draw(st.integers(2, 9), label="n")
    noise = np.random.default_rng(data.draw(st.integers(0, 99), label="seed")).uniform(-1, 1, n)
    x = (offset * (1 + np.where(noise < 0, -1, 1) * (np.abs(noise) + 0.1) * 2**-12)).astype(dtype)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), min_size=1, max_size=4), label="cuts"))
    order = data.draw(st.permutations(range(len(cuts) + 1)), label="order")
    got = placed(BESIDE, {"x": x}, [0, *cuts, n], order).result()
    values = [Fraction(float(v)) for v in x]
    mean = sum(values, Fraction(0)) / n
    exact = {"top": max(values) - mean, "m2": sum(((v - mean) ** 2 for v in values), Fraction(0)) / n}
    for one in (got, BESIDE.compile("numpy")(x=x)):
        for name, true in exact.items():
            assert abs(Fraction(float(one[name])) - true) <= 16 * Fraction(float(np.finfo(dtype).eps)) * true, name


def test_range_in_float32_and_for_results_of_smaller_degree() -> None:
    data = np.zeros(10**5, np.float32)
    data[0] = 1e20
    assert np.isclose(fed(hand("variance"), {"x": data}, [0, 1, 10**5]).result(), 1e35, rtol=1e-4)
    spread = ra.derive_incremental(ra.Spec(s=ra.sqrt(moment(2)), k=moment(4) / moment(2) ** 2))
    for scale in (1e200, 1e-70, 1.0):
        got = fed(spread, {"x": scale * np.array([1.0, 2.0, 3.0, 10.0])}, range(5)).result()
        assert np.isclose(got["s"], scale * np.sqrt(12.5), rtol=1e-15) and np.isclose(got["k"], 2.2304, rtol=1e-14)


def test_a_variance_beyond_the_range_is_infinite_until_it_comes_back() -> None:
    acc = hand("variance").accumulator()
    acc.update(x=[1e155, 0.0])
    assert acc.result() == np.inf
    acc.update(x=np.zeros(998))
    assert np.isclose(float(acc.result()), 9.99e306, rtol=1e-15)


@pytest.mark.parametrize("bad", (np.inf, -np.inf, np.nan))
def test_no_number_comes_out_of_what_is_not_a_number(bad: float) -> None:
    for at in range(3):
        data = np.array([1.0, 2.0, 3.0])
        data[at] = bad
        for cuts in ([0, 3], range(4), [0, 1, 3]):
            assert np.isnan(fed(hand("variance"), {"x": data}, cuts).result())


# --- anchors ---------------------------------------------------------------------------------------------------------


def test_a_weighted_mean_survives_pieces_without_weight() -> None:
    form = hand("weighted_mean")
    arrays = {"x": np.array([5.0, 7.0, 1e8, 1e8 + 3]), "w": np.array([0.0, 0.0, 1.0, 2.0])}
    for cuts in ([0, 4], range(5), [0, 2, 4], [0, 3, 4]):
        assert fed(form, arrays, cuts).result() == 1e8 + 2
    reverse = placed(form, arrays, range(5), [1, 3, 0, 2])
    assert reverse.result() == 1e8 + 2
    void = fed(form, {"x": arrays["x"], "w": np.zeros(4)}, [0, 1, 4])
    assert np.isnan(void.result()) and np.isfinite(void.state["mu"])


def test_weights_that_cancel_do_not_carry_the_anchor_away() -> None:
    form = hand("weighted_mean")
    arrays = {"x": np.array([1.0, 2.0, 3.0, 4.0]), "w": np.array([1.0, -1.0 + 2.0**-50, 2.0, 2.0])}
    for cuts in ([0, 2, 4], range(5), [0, 4]):
        acc = fed(form, arrays, cuts)
        weights = [Fraction(float(w)) for w in arrays["w"]]
        exact = sum(w * Fraction(float(v)) for w, v in zip(weights, arrays["x"], strict=True)) / sum(weights)
        assert 1 <= acc.state["mu"] <= 4 and ulps(acc.result(), exact) <= 4


def test_an_anchor_that_stays_moves_nothing_bit_for_bit() -> None:
    form = hand("attention")
    acc = form.accumulator(Q=np.ones((1, 1)))
    acc.update(K=[[3.0]], V=[[0.1, -0.0]])
    before = {k: v.tobytes() for k, v in acc.state.items()}
    acc.update(K=[[-np.inf]], V=[[5.0, 5.0]])
    assert {k: v.tobytes() for k, v in acc.state.items()} == before


def test_increasing_scores_one_at_a_time() -> None:
    x = ra.tensors("x[j]")
    m = ra.max(x, "j")
    form = ra.derive_incremental(ra.Spec(l=ra.sum(ra.exp(x - m), "j")))
    data = np.arange(20000) * 1e-6
    got = fed(form, {"x": data}, range(0, 20001, 4)).result()
    expected = np.exp(data - data[-1]).astype(np.longdouble).sum()
    assert abs(got - expected) / expected <= 8 * 2.0**-52


# --- compensated arithmetic ------------------------------------------------------------------------------------------

NUMBERS = st.floats(min_value=-1e300, max_value=1e300, allow_subnormal=False)


@given(NUMBERS, NUMBERS)
def test_two_sum_is_exact(a: float, b: float) -> None:
    s, e = join.two_sum(np.float64(a), np.float64(b))
    assert Fraction(float(s)) + Fraction(float(e)) == Fraction(a) + Fraction(b)


def test_long_sums_and_means_of_awkward_numbers() -> None:
    x = ra.tensors("x[j]")
    form = ra.derive_incremental(ra.Spec(s=ra.sum(x, "j"), m=ra.mean(x, "j")))
    data = np.full(4000, 0.1)
    got = fed(form, {"x": data}, range(4001)).result()
    assert got["s"] == float(Fraction(0.1) * 4000) and got["m"] == 0.1


def test_pieces_of_one_partition_agree_with_their_bits_when_fed_twice() -> None:
    data = np.random.default_rng(0).normal(size=100)
    first, second = (fed(FORM4, {"x": data}, [0, 3, 50, 100]) for _ in range(2))
    assert bits(first.result()) == bits(second.result())
    assert [b - a for a, b in pairwise([0, 3, 50, 100])] == [3, 47, 50]
