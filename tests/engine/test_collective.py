"""`form.collective`: parts of ranks against the definition on the whole, both ways; refusals on every rank."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.adapters.ranks.links import GLOO, NCCL, Links
from redalg.adapters.ranks.pieces import zigzag
from redalg.adapters.ranks.states import hindrance, numbers, ordered
from redalg.errors import RedalgError
from redalg.streaming.machine import Machine
from redalg.testing.sampling import arguments
from tests.support.forms import form_of, form_of_text
from tests.support.ranks import in_threads
from tests.support.sample import SAMPLE, by_name
from tests.support.streams import bits, bound, chunk, hand

WAYS = ("reduce", "gather")
MEDIAN_LIKE = "u = mean[j](x[i,j]); return y = mean[j](abs(x[i,j] - u)), z = x[i,j] - u"


def parts(form: Any, arrays: dict[str, Any], cuts: list[int]) -> list[dict[str, Any]]:
    return [bound(form, arrays) | chunk(form, arrays, a, b) for a, b in pairwise(cuts)]


def merged(form: Any, calls: list[dict[str, Any]], monkeypatch: Any, **options: Any) -> list[Any]:
    with np.errstate(all="ignore"):
        return in_threads(len(calls), lambda c: form.collective(**options)(**calls[c.rank]), monkeypatch)


def check(form: Any, arrays: dict[str, Any], cuts: list[int], found: list[Any], ulps: float = 256) -> None:
    """Every rank has the definition's outputs on the whole, and its own part of those that keep the axis."""
    with np.errstate(all="ignore"):
        whole = ra.reference(form.spec, **arrays)
    if "cast_commutes" in form.assumptions:
        ulps = 1e14  # what is assumed: every rounded element may be off by a step
    names = list(form.spec.outputs)
    wanted = whole if isinstance(whole, dict) else {names[0]: whole}
    axes, axis = form.spec.output_axes, form.plan.axis[0]
    for (a, b), got in zip(pairwise(cuts), found, strict=True):
        if isinstance(got, Exception):
            raise got
        named = got if isinstance(got, dict) else {names[0]: got}
        assert list(named) == names
        for name, expected in wanted.items():
            if axis in axes[name]:
                expected = expected[(slice(None),) * axes[name].index(axis) + (slice(a, b),)]
            assert named[name].dtype == expected.dtype
            eps = np.finfo(expected.dtype).eps if expected.dtype.kind == "f" else 0
            scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0))) if expected.size else 1.0
            np.testing.assert_allclose(named[name], expected, rtol=ulps * eps, atol=ulps * eps * scale)


def usable(form: Any, way: str, arrays: dict[str, Any]) -> str | None:
    """`way`, or None (the model's choice) where the states are not of sums and extrema."""
    machine: Machine = form.accumulator(**bound(form, arrays))._machine(
        {d.name: np.asarray(arrays[d.name]).dtype for d in form.spec.tensors if form.plan.axis[0] in d.axes}
    )
    blocked = any(hindrance(machine.program(k)) for k in range(len(form.plan.passes)))
    return None if blocked and way == "reduce" else way


@by_name()
@pytest.mark.parametrize("way", WAYS)
def test_parts_of_ranks_give_the_definition_on_the_whole(name: str, way: str, monkeypatch: Any) -> None:
    form = form_of(name)
    inner = {a: 2 for d in form.spec.tensors for a in d.axes}
    for cuts in ([0, 3, 3, 8], [0, 0, 1], [0, 1, 2])[: 3 if name in SAMPLE else 1]:
        arrays = arguments(form.spec, Random(cuts[-1]), **(inner | {form.plan.axis[0]: cuts[-1]}))
        calls = parts(form, arrays, cuts)
        check(form, arrays, cuts, merged(form, calls, monkeypatch, way=usable(form, way, arrays)))


CASES = {
    "ordinary": [[1.0, -2.0, 0.5, 3.0, 0.25], [2.0, 2.0, 2.0, 2.0, 2.0]],
    "offset": [[1e8, 1e8 + 1, 1e8 - 1, 1e8, 1e8 + 3], [-1e8, -1e8, -1e8, -1e8, -1e8 - 1]],
    "masked": [[-np.inf, -np.inf, 1.0, -np.inf, 0.0], [-np.inf] * 5],
    "infinite": [[np.inf, 1.0, 2.0, -np.inf, 0.0], [1.0, 2.0, 3.0, np.inf, np.inf]],
    "nan": [[0.0, np.nan, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0, np.nan]],
    "zeros": [[0.0, -0.0, 0.0, 0.0, 0.0], [-0.0, -0.0, -0.0, -0.0, 0.0]],
    "large": [[1e308, 1e308, -1e308, -1e308, 1.0], [1e200, -1e200, 1e-200, 0.0, 1.0]],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("text", ["return l = logsumexp[j](x[i,j]), a = min[j](x[i,j])", "return v = mean[j](x[i,j])"])
def test_special_values(text: str, case: str, way: str, monkeypatch: Any) -> None:
    form, cuts = form_of_text(text), [0, 2, 2, 5]
    arrays = {"x": np.array(CASES[case])}
    if case == "large" and "mean" in text:
        arrays["x"] = np.abs(arrays["x"]) / 8  # where the definition's own sum does not overflow
    check(form, arrays, cuts, merged(form, parts(form, arrays, cuts), monkeypatch, way=way))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", ["ordinary", "offset", "infinite", "nan", "zeros"])
def test_variance_of_special_values_is_that_of_an_accumulator(case: str, way: str, monkeypatch: Any) -> None:
    form, x, cuts = form_of_text("return v = var[j](x[i,j])"), np.array(CASES[case]), [0, 2, 2, 5]
    acc = form.accumulator()
    acc.update(x=x)
    for got in merged(form, parts(form, {"x": x}, cuts), monkeypatch, way=way):
        np.testing.assert_allclose(got, acc.result(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.int64, np.bool_])
@pytest.mark.parametrize("way", WAYS)
def test_dtypes_are_those_of_the_whole(dtype: Any, way: str, monkeypatch: Any) -> None:
    form = form_of_text("return s = sum[j](x[i,j]), m = max[j](x[i,j]), a = any[j](x[i,j] > 0), l = all[j](x[i,j] > 0)")
    arrays, cuts = {"x": np.array([[1, 0, 1, 1], [3, 1, 1, 2]]).astype(dtype)}, [0, 1, 1, 4]
    check(form, arrays, cuts, merged(form, parts(form, arrays, cuts), monkeypatch, way=way))


def test_both_passes_of_a_plan_and_an_output_that_keeps_the_axis(monkeypatch: Any) -> None:
    form, cuts = form_of_text(MEDIAN_LIKE, max_passes=2), [0, 0, 5, 6]
    arrays = {"x": np.random.default_rng(0).normal(size=(2, 6))}
    for way in WAYS:
        check(form, arrays, cuts, merged(form, parts(form, arrays, cuts), monkeypatch, way=way))


def test_nothing_anywhere_is_the_definition_of_nothing(monkeypatch: Any) -> None:
    form, arrays = form_of("variance"), {"x": np.zeros((2, 0))}
    found = merged(form, [arrays, arrays], monkeypatch)
    assert all(np.isnan(got).all() and got.shape == (2,) for got in found)


@pytest.mark.parametrize("way", WAYS)
def test_integers_are_exact_beyond_a_float_and_refused_beyond_int64(way: str, monkeypatch: Any) -> None:
    form = form_of_text("tensors x[j] integer; return s = sum[j](x[j])")
    big = 2**62
    found = merged(form, [{"x": np.array(x)} for x in ([big - 1, 7], [big - 6], [-big, -1])], monkeypatch, way=way)
    assert [int(got) for got in found] == [big - 1] * 3
    for got in merged(form, [{"x": np.array([big])}] * 2, monkeypatch, way=way):
        assert isinstance(got, RedalgError) and "int64" in str(got)


def test_positions_are_those_of_the_whole_and_ties_go_to_the_lowest(monkeypatch: Any) -> None:
    form = form_of_text("return p = argmax[j](x[j]), t = topk[j:3](x[j]).indices, f = sum[j](x[j]*index[j])")
    x = np.array([1.0, 5.0, 0.0, 5.0, 5.0, 2.0])
    cuts = [0, 1, 1, 4, 6]
    check(form, {"x": x}, cuts, merged(form, parts(form, {"x": x}, cuts), monkeypatch))
    # parts in another order than that of ranks, at places of their own
    work = [({"x": x[3:]}, 3), ({"x": x[:0]}, 0), ({"x": x[:3]}, 0)]
    found = in_threads(3, lambda c: form.collective()(**work[c.rank][0], start=work[c.rank][1]), monkeypatch)
    for got in found:
        assert int(got["p"]) == 1 and got["t"].tolist() == [1, 3, 4] and got["f"] == ra.reference(form.spec, x=x)["f"]


def test_a_monoid_that_does_not_commute_goes_by_position(monkeypatch: Any) -> None:
    affine = ra.Monoid("affine", lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (1, 0))
    a, b = ra.tensors("a[j] b[j]")
    form = ra.derive_incremental(ra.Spec(y=ra.reduce((a, b), "j", monoid=affine)[1]))
    rng = np.random.default_rng(3)
    arrays, cuts = {"a": rng.integers(1, 3, 7) / 2, "b": rng.integers(-3, 3, 7) / 4}, [0, 2, 2, 3, 7]
    check(form, arrays, cuts, merged(form, parts(form, arrays, cuts), monkeypatch))
    placed = [({k: v[5:] for k, v in arrays.items()}, 5), ({k: v[:5] for k, v in arrays.items()}, 0)]
    found = in_threads(2, lambda c: form.collective()(**placed[c.rank][0], start=placed[c.rank][1]), monkeypatch)
    assert [float(y) for y in found] == [float(ra.reference(form.spec, **arrays))] * 2
    gap = [(placed[0][0], 6), (placed[1][0], 0)]
    for error in in_threads(2, lambda c: form.collective()(**gap[c.rank][0], start=gap[c.rank][1]), monkeypatch):
        assert isinstance(error, RedalgError) and "[5, 6)" in str(error)


def test_a_plan_written_by_hand_whose_anchor_divides_is_gathered(monkeypatch: Any) -> None:
    form, arrays, cuts = hand("scaled_norm"), {"x": np.array([[3.0, 1.0, 4.0], [0.0, 0.0, 0.0]])}, [0, 1, 1, 3]
    check(form, arrays, cuts, merged(form, parts(form, arrays, cuts), monkeypatch))


def test_the_gather_has_equal_bits_in_every_run_and_on_every_rank(monkeypatch: Any) -> None:
    form, cuts = form_of("kurtosis"), [0, 11, 11, 40, 64]
    arrays = {"x": np.random.default_rng(1).normal(size=(2, 64)) + 100}
    runs = [merged(form, parts(form, arrays, cuts), monkeypatch, deterministic=True) for _ in range(3)]
    assert len({str(bits(got)) for run in runs for got in run}) == 1
    acc = form.accumulator(start=0)
    for a, b in pairwise(cuts):
        piece = form.accumulator(start=a)
        piece.update(x=arrays["x"][:, a:b])
        acc.merge(piece)
    assert bits(runs[0][0]) == bits(acc.result())


def test_ranks_agree_under_a_reduction(monkeypatch: Any) -> None:
    form, cuts = form_of("attention"), [0, 3, 3, 9]
    arrays = arguments(form.spec, Random(0), j=9)
    found = merged(form, parts(form, arrays, cuts), monkeypatch, way="reduce")
    assert len({str(bits(got)) for got in found}) == 1


# --- refusals --------------------------------------------------------------------------------------------------------

x3 = np.ones((2, 3))
DIFFERENT = {
    "the dtypes": (form_of_text("return s = sum[j](x[i,j])"), {"x": x3}, {"x": x3.astype(np.float32)}),
    "the lengths of axes": (form_of_text("return s = sum[j](x[i,j])"), {"x": x3}, {"x": np.ones((3, 3))}),
    "the tensors without the axis": (
        form_of_text("return s = sum[j](x[i,j]*w[i])"),
        {"x": x3, "w": np.ones(2)},
        {"x": x3, "w": np.array([1.0, 2.0])},
    ),
}


@pytest.mark.parametrize("topic", DIFFERENT)
def test_different_calls_are_refused_on_every_rank(topic: str, monkeypatch: Any) -> None:
    form, one, other = DIFFERENT[topic]
    for error in merged(form, [one, one, other], monkeypatch):
        assert isinstance(error, RedalgError) and topic in error.what and "rank 2" in error.why, error


def test_different_forms_options_and_places_are_refused_on_every_rank(monkeypatch: Any) -> None:
    total, top = form_of_text("return s = sum[j](x[i,j])"), form_of_text("return s = max[j](x[i,j])")
    works = {
        "the form": lambda c: (top if c.rank else total).collective()(x=x3),
        "the options": lambda c: total.collective(way="gather" if c.rank else None)(x=x3),
        "start=": lambda c: total.collective()(x=x3, start=0 if c.rank else None),
    }
    for topic, work in works.items():
        for error in in_threads(2, work, monkeypatch):
            assert isinstance(error, RedalgError) and topic in error.what, error


def test_a_rank_that_refuses_its_arguments_makes_all_ranks_raise(monkeypatch: Any) -> None:
    form = form_of_text("return s = sum[j](x[i,j])")
    bad: list[Any] = [{"x": np.ones(3)}, {"y": x3}, {"x": np.array([["a"]])}, {}]
    for call in bad:
        own, other = merged(form, [call, {"x": x3}], monkeypatch)
        assert isinstance(own, RedalgError) and isinstance(other, RedalgError)
        assert "rank 0 refused" in other.why


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_fails_while_it_folds_makes_all_ranks_raise(way: str, monkeypatch: Any) -> None:
    form = form_of_text("return s = sum[j](x[i,j])")
    own = merged(form, [{"x": x3}, {"x": Unreadable(x3)}, {"x": x3}], monkeypatch, way=way)
    assert isinstance(own[1], MemoryError)
    assert all(isinstance(own[r], RedalgError) and "rank 1" in own[r].why for r in (0, 2))


class Unreadable:
    """An array that is read once, when it is looked at, and not a second time."""

    def __init__(self, x: np.ndarray) -> None:
        self.x, self.reads, self.dtype = x, 0, x.dtype

    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        self.reads += 1
        if self.reads > 1:
            raise MemoryError
        return self.x


def test_parts_that_overlap_are_refused_on_every_rank(monkeypatch: Any) -> None:
    form = form_of_text("return s = sum[j](x[i,j])")
    for error in in_threads(2, lambda c: form.collective()(x=x3, start=2 * c.rank), monkeypatch):
        assert isinstance(error, RedalgError) and "[2, 3)" in str(error)


CAUSAL = """
S = sum[d](Q[i,d]*K[j,d]); m = max[j](where(index[j] <= index[i], S, -oo));
p = where(index[j] <= index[i], exp(S - m), 0); return O = sum[j](p*V[j,e])/sum[j](p)
"""


@pytest.mark.parametrize("way", WAYS)
def test_pieces_from_both_ends_of_causal_attention(way: str, monkeypatch: Any) -> None:
    rng, n, ranks = np.random.default_rng(8), 24, 3
    form = form_of_text(CAUSAL)
    arrays = {"Q": rng.normal(size=(n, 4)), "K": rng.normal(size=(n, 4)), "V": rng.normal(size=(n, 2))}
    whole = ra.reference(form.spec, **arrays)
    mine = [zigzag(n, r, ranks) for r in range(ranks)]
    calls = [
        {"Q": arrays["Q"], "start": [a for a, _ in p]}
        | {x: np.concatenate([arrays[x][a:b] for a, b in p]) for x in ("K", "V")}
        for p in mine
    ]
    for found in merged(form, calls, monkeypatch, way=way):
        assert not isinstance(found, Exception), found
        np.testing.assert_allclose(found, whole, rtol=1e-12)


def test_pieces_that_cannot_be_are_refused_on_every_rank(monkeypatch: Any) -> None:
    total, first = form_of_text("return s = sum[j](x[j])"), form_of_text("return p = argmax[j](x[j])")
    x = np.arange(4.0)
    for form, calls, words in (
        (total, [{"x": x, "start": [0, 2]}, {"x": x, "start": [3, 5]}], "both cover the positions"),
        (total, [{"x": x, "start": [0, 2]}, {"x": x, "start": 4}], "start="),
        (total, [{"x": x[:3], "start": [0, 2]}] * 2, "pieces of equal length"),
        (first, [{"x": x, "start": [0, 6]}, {"x": x, "start": [2, 4]}], "order of positions"),
    ):
        found = merged(form, calls, monkeypatch)
        assert all(isinstance(e, RedalgError) for e in found), found
        assert any(words in str(e) for e in found)
    with pytest.raises(RedalgError, match="multiple|pieces of equal length"):
        zigzag(10, 0, 2)


def test_pieces_of_two_passes(monkeypatch: Any) -> None:
    form = ra.derive_incremental(ra.parse(MEDIAN_LIKE), max_passes=2)
    x = np.random.default_rng(1).normal(size=(3, 8))
    calls = [{"x": np.concatenate([x[:, a:b] for a, b in zigzag(8, r, 2)], 1)} for r in range(2)]
    for r, c in enumerate(calls):
        c["start"] = [a for a, _ in zigzag(8, r, 2)]
    whole = ra.reference(form.spec, x=x)
    for r, found in enumerate(merged(form, calls, monkeypatch)):
        np.testing.assert_allclose(found["y"], whole["y"], rtol=1e-13)
        own = np.concatenate([whole["z"][:, a:b] for a, b in zigzag(8, r, 2)], 1)
        np.testing.assert_allclose(found["z"], own, rtol=1e-12, atol=1e-14)


def test_what_cannot_be_is_refused_at_once(monkeypatch: Any) -> None:
    form = form_of_text("return s = sum[j](x[i,j])")
    for options, word in (({"way": "ring"}, "ring"), ({"way": "reduce", "deterministic": True}, "deterministic")):
        with pytest.raises(RedalgError, match=word):
            form.collective(**options)
    with pytest.raises(RedalgError, match="without a reduction"):
        form_of_text("return y = exp(x[j])").collective()
    squares = form_of_text("return g = sum[j](X[j,a] * X[j,b])")
    arrays, cuts = {"X": np.arange(10.0).reshape(5, 2)}, [0, 2, 2, 5]
    calls = [{"X": arrays["X"][a:b]} for a, b in pairwise(cuts)]
    for got in merged(squares, calls, monkeypatch):
        np.testing.assert_array_equal(got, arrays["X"].T @ arrays["X"])
    for error in merged(form_of("argmax"), [{"x": x3}] * 2, monkeypatch, way="reduce"):
        assert isinstance(error, RedalgError) and "neither a sum nor an extremum" in error.why


# --- the model -------------------------------------------------------------------------------------------------------


def test_the_choice_follows_the_constants(monkeypatch: Any) -> None:
    slow = Links("slow merges", 1e-6, 1e-6, 1e12, 1.0, 1e12, 1e-6)
    far = Links("long latencies", 1.0, 1.0, 1e12, 1e-6, 1e12, 1e-6)
    form, call = form_of("softmax_denominator"), {"x": np.ones((2, 3))}
    for links, way in ((slow, "reduce"), (far, "gather")):

        def explained(c: Any, links: Links = links) -> str:
            made = form.collective(links=links)
            assert "nothing was called yet" in made.explain()
            made(**call)
            return made.explain()

        for text in in_threads(2, explained, monkeypatch):
            assert f"pass 1: {way}: the faster by the model {links.name!r}" in text and "predicted" in text


def test_costs_grow_with_bytes_and_ranks() -> None:
    for links in (GLOO, NCCL):
        assert links.all_reduce(1 << 20, 4) > links.all_reduce(1 << 10, 4)
        times = [links.gather_seconds(1 << 12, ranks) for ranks in (2, 8, 64, 1024)]
        assert times == sorted(times)
        assert links.choose(32, 1 << 12, 1 << 12, 1024) == "reduce"


@pytest.mark.parametrize("lowest", [False, True])
def test_keys_are_ordered_like_numbers(lowest: bool) -> None:
    values = np.array([-np.inf, -1e308, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1e308, np.inf])
    keys = ordered(values, lowest)
    assert (np.diff(keys[::-1] if lowest else keys) > 0).all()
    np.testing.assert_array_equal(numbers(keys, lowest, values.dtype), values)
    assert ordered(np.array([np.nan]), lowest)[0] > keys.max() > np.iinfo(np.int64).min
    assert np.isnan(numbers(ordered(-np.array([np.nan]), lowest), lowest, values.dtype))[0]
    whole = np.array([-5, 0, 3, 2**62])
    np.testing.assert_array_equal(numbers(ordered(whole, lowest), lowest, whole.dtype), whole)
