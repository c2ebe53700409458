"""Places in the stream, orders of merging, several passes, the fixed tree."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.form import Form
from redalg.graph.node import reduction, tensor
from redalg.graph.operators import Custom
from redalg.graph.plan import Output, PassPlan, Plan, Slot
from redalg.language.spec import Spec
from redalg.streaming import run_numpy
from redalg.streaming.run import Divided
from tests.engine.test_streaming import NAMES, sample
from tests.support.forms import form_of_text
from tests.support.profiles import examples
from tests.support.streams import assert_close, bits, bound, chunk, fed, hand, placed

INF = np.inf


def refused(error: pytest.ExceptionInfo[ra.RedalgError]) -> str:
    """All four parts are there; the whole text."""
    assert all((error.value.what, error.value.where, error.value.why, error.value.fix))
    return str(error.value)


# --- places ----------------------------------------------------------------------------------------------------------


def test_unplaced_pieces_follow_each_other_and_positions_shift() -> None:
    form = hand("argmax")
    a, b = form.accumulator(), form.accumulator()
    a.update(x=[1.0, 5.0, 2.0])
    b.update(x=[5.0, 7.0])
    a.merge(b)
    assert a.result() == 4 and (a.start, a.stop, a.covered) == (0, 5, ((0, 5),))
    assert b.result() == 1 and b.count == 2
    c = form.accumulator()
    c.update(x=[7.0])
    c.merge(a)
    assert c.result() == 0


@given(st.permutations(range(5)), st.lists(st.sampled_from([0.0, 1.0, np.nan]), min_size=10, max_size=10))
def test_ties_go_to_the_lowest_position_in_any_order(order: list[int], row: list[float]) -> None:
    arrays = {"x": np.array(row)}
    for name in ("argmax", "top2"):
        form = hand(name)
        cuts = [0, 2, 3, 3, 7, 10]
        assert np.array_equal(
            placed(form, arrays, cuts, order).result(), ra.reference(form.spec, **arrays), equal_nan=True
        )


def test_placed_pieces_leave_gaps_and_refuse_overlaps() -> None:
    form = hand("argmax")
    a, b, c = (form.accumulator(start=s) for s in (10, 0, 11))
    for acc in (a, b, c):
        acc.update(x=[1.0, 2.0])
    a.merge(b)
    assert a.covered == ((0, 2), (10, 12)) and a.count == 4 and a.result() == 1
    before = bits(a.result())
    with pytest.raises(ra.RedalgError) as error:
        a.merge(c)
    assert "[11, 12)" in refused(error)
    with pytest.raises(ra.RedalgError) as error:
        a.merge(a)
    refused(error)
    assert bits(a.result()) == before
    a.update(x=[9.0])
    assert a.covered == ((0, 2), (10, 13)) and a.result() == 12


@pytest.mark.parametrize("start", (-1, 1.5, True, "0"))
def test_bad_places_are_refused(start: Any) -> None:
    with pytest.raises(ra.RedalgError) as error:
        hand("argmax").accumulator(start=start)
    refused(error)


def test_what_does_not_belong_together_is_not_merged() -> None:
    form, arrays = hand("attention"), sample("attention", 4)
    a = fed(form, arrays, [0, 4])
    other_q = fed(form, {**arrays, "Q": arrays["Q"] + 1}, [0, 4])
    narrow = fed(form, {k: v.astype(np.float32) for k, v in arrays.items()}, [0, 4])
    wider = fed(form, {**arrays, "V": np.ones((4, 9))}, [0, 4])
    others = [hand("argmax").accumulator(), other_q, narrow, wider, 3, fed(form, arrays, [0, 4], start=7)]
    others.append(form.accumulator(**bound(form, arrays), deterministic=True))
    for other in others:
        with pytest.raises(ra.RedalgError) as error:
            a.merge(other)  # type: ignore[arg-type]
        refused(error)
    assert a.count == 4


def causal() -> Form:
    q, k, v = ra.tensors("Q[i,d] K[j,d] V[j,e]")
    s = ra.where(ra.index("j") <= ra.index("i"), ra.sum(q * k, "d"), -ra.oo)
    p = ra.exp(s - ra.max(s, "j"))
    return ra.derive_incremental(ra.Spec(O=ra.sum(p * v, "j") / ra.sum(p, "j")), axis="j")


def test_bodies_that_read_positions_take_placed_pieces_only() -> None:
    form, arrays = causal(), sample("attention", 4)
    acc = form.accumulator(**bound(form, arrays))
    with pytest.raises(ra.RedalgError) as error:
        acc.update(**chunk(form, arrays, 0, 4))
    assert "start=" in refused(error) and acc.count == 0
    assert_close(placed(form, arrays, [0, 1, 3, 4], [2, 0, 1]).result(), ra.reference(form.spec, **arrays))
    assert_close(run_numpy(form, arrays), ra.reference(form.spec, **arrays))


# --- a user's monoid -------------------------------------------------------------------------------------------------


def affine() -> Form:
    """Compositions of maps t -> a·t + b, which do not commute."""
    monoid = ra.Monoid("affine", lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (1, 0))
    lift = (tensor("a", "j"), tensor("b", "j"))
    slot = Slot("f", Custom(monoid), (), lift, ("slope", "offset"))
    names = ("slope", "offset")
    outputs = {name: reduction("monoid", "j", *lift, extra=(monoid, k)) for k, name in enumerate(names)}
    finals = tuple(Output(name, slot.leaf(k), ()) for k, name in enumerate(names))
    return Form(Spec.from_nodes(outputs), Plan(("j",), (PassPlan((), (slot,), ("f",)),), finals))


def test_a_monoid_that_does_not_commute_is_merged_in_stream_order() -> None:
    form, rng = affine(), np.random.default_rng(0)
    arrays = {k: rng.integers(-3, 4, 9).astype(float) for k in "ab"}
    expected = ra.reference(form.spec, **arrays)
    assert_close(fed(form, arrays, [0, 1, 4, 9]).result(), expected)
    pieces = [placed(form, arrays, cuts, [0]) for cuts in ([0, 2], [2, 5], [5, 9])]
    with pytest.raises(ra.RedalgError) as error:
        pieces[0].copy().merge(pieces[2])
    assert "[2, 5)" in refused(error)
    pieces[2].merge(pieces[1])  # the earlier piece is put in front
    pieces[0].merge(pieces[2])
    assert_close(pieces[0].result(), expected)
    first, second = fed(form, arrays, [0, 4]), fed(form, {k: v[4:] for k, v in arrays.items()}, [0, 5])
    first.merge(second)
    assert_close(first.result(), expected)


# --- composite axes, new axes, outputs that keep the axis ------------------------------------------------------------


def test_a_composite_axis_is_fed_by_its_first() -> None:
    x = ra.tensors("x[b,i,j]")
    mean = ra.mean(x, ["i", "j"])
    spec = ra.Spec(v=ra.mean((x - mean) ** 2, ["i", "j"]), at=ra.argmax(x, ["i", "j"]))
    form = ra.derive_incremental(spec)
    arrays = {"x": np.random.default_rng(0).integers(-9, 9, (2, 5, 3)).astype(float)}
    expected = ra.reference(spec, **arrays)
    acc = fed(form, arrays, [0, 1, 3, 5])
    assert acc.count == 15 and acc.stop == 15
    assert_close(acc.result(), expected)
    for deterministic in (False, True):
        late = form.accumulator(start=9, deterministic=deterministic)
        late.update(x=arrays["x"][:, 3:])
        early = form.accumulator(start=0, deterministic=deterministic)
        early.update(x=arrays["x"][:, :3])
        late.merge(early)
        assert_close(late.result(), expected)
    with pytest.raises(ra.RedalgError) as error:
        form.accumulator(start=4).update(x=arrays["x"])
    refused(error)


def test_outputs_that_keep_the_axis_are_applied_in_chunks() -> None:
    form = hand("softmax")
    data = np.random.default_rng(0).normal(size=20)
    acc = fed(form, {"x": data}, [0, 8, 20])
    parts = [acc.apply(x=data[a:b]) for a, b in ((0, 3), (3, 3), (3, 20))]
    assert_close(np.concatenate(parts), ra.reference(form.spec, x=data))
    assert_close(run_numpy(form, {"x": data}), ra.reference(form.spec, x=data))
    out = np.zeros(20)
    assert run_numpy(form, {"x": data}, out=out) is out and out.sum() == pytest.approx(1)
    with pytest.raises(ra.RedalgError) as error:
        acc.result()
    refused(error)
    with pytest.raises(ra.RedalgError) as error:
        run_numpy(form, {"x": data}, out=np.zeros(3))
    refused(error)
    with pytest.raises(ra.RedalgError) as error:
        hand("argmax").accumulator().apply(x=[1.0])
    refused(error)


def test_rows_without_a_valid_element_get_the_empty_value() -> None:
    x, w = ra.tensors("x[i,j] w[i,j]")
    s = ra.where(w > 0, x, -ra.oo)
    p = ra.exp(s - ra.max(s, "j"))
    spec = ra.Spec(y=ra.sum(p * x, "j") / ra.sum(p, "j"), empty={"y": 7})
    form = ra.derive_incremental(spec)
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(3, 6)), "w": rng.normal(size=(3, 6))}
    arrays["w"][1] = -1
    got = fed(form, arrays, [0, 1, 6]).result()
    assert got[1] == 7
    assert_close(got, ra.reference(spec, **arrays))
    assert set(fed(form, arrays, [0, 6]).state) <= {info.name for info in form.slots}


# --- several passes --------------------------------------------------------------------------------------------------


def test_a_plan_of_two_passes_reads_the_stream_twice() -> None:
    form, data = hand("deviation"), np.random.default_rng(0).normal(size=30)
    expected = ra.reference(form.spec, x=data)
    acc = fed(form, {"x": data}, [0, 11, 30])
    with pytest.raises(ra.RedalgError) as error:
        acc.result()
    refused(error)
    acc.next_pass()
    assert acc.count == 0
    acc.update(x=data[:11])
    with pytest.raises(ra.RedalgError) as error:
        acc.result()  # a part of the second reading is no value of any stream
    assert "11" in refused(error) and "30" in str(error.value)
    read = pickle.loads(pickle.dumps(acc))
    for a in (acc, read):
        a.update(x=data[11:])
        assert_close(a.result(), expected)
    with pytest.raises(ra.RedalgError) as error:
        acc.next_pass()
    refused(error)
    assert_close(run_numpy(form, {"x": data}), expected)


def test_the_second_pass_is_shared_by_copies_of_the_first() -> None:
    form, data = hand("deviation"), np.random.default_rng(0).normal(size=30)
    total = placed(form, {"x": data}, [0, 10, 30], [1, 0])
    left, right = total.copy(), total.copy()
    left.next_pass(start=0)
    right.next_pass(start=12)
    left.update(x=data[:12])
    right.update(x=data[12:])
    right.merge(left)
    assert_close(right.result(), ra.reference(form.spec, x=data))
    stranger = fed(form, {"x": data + 1}, [0, 30], start=0)
    stranger.next_pass(start=40)
    with pytest.raises(ra.RedalgError) as error:
        right.merge(stranger)
    refused(error)


# --- the fixed tree --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@examples(20)
@given(st.data())
def test_the_fixed_tree_gives_the_same_bits_for_any_chunking(name: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 40))
    form, arrays = hand(name), sample(name, n, data.draw(st.integers(0, 9)))
    arrays = {k: v if v.dtype == bool else v + np.random.default_rng(n).normal(size=v.shape) for k, v in arrays.items()}
    whole = bits(fed(form, arrays, [0, n], deterministic=True).result())
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=6))), n]
    order = data.draw(st.permutations(range(len(cuts) - 1)))
    assert bits(fed(form, arrays, cuts, deterministic=True).result()) == whole
    assert bits(placed(form, arrays, cuts, order, deterministic=True).result()) == whole
    turned = {k: np.asfortranarray(v) for k, v in arrays.items()}
    assert bits(fed(form, turned, range(n + 1), deterministic=True).result()) == whole


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_the_fixed_tree_on_long_streams(dtype: Any) -> None:
    q, k, v = ra.tensors("Q[i,d] K[j,d] V[j,e]")
    s = ra.sum(q * k, "d")
    p = ra.exp(s - ra.max(s, "j"))
    form = ra.derive_incremental(ra.Spec(O=ra.sum(p * v, "j") / ra.sum(p, "j")))
    rng = np.random.default_rng(1)
    shapes = {"Q": (5, 16), "K": (3000, 16), "V": (3000, 7)}
    arrays = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    whole = fed(form, arrays, [0, 3000], deterministic=True)
    for cuts in ([0, 1, 2, 300, 1111, 3000], [0, 2048, 3000], range(0, 3001, 100)):
        assert bits(fed(form, arrays, cuts, deterministic=True).result()) == bits(whole.result())
    assert_close(whole.result(), ra.reference(form.spec, **arrays), ulps=64)


def test_the_fixed_tree_refuses_what_would_move_its_grid() -> None:
    form, data = hand("variance"), np.random.default_rng(0).normal(size=24)
    a, b = fed(form, {"x": data}, [0, 16], deterministic=True), form.accumulator(deterministic=True)
    b.update(x=data[16:])
    a.merge(b)
    assert bits(a.result()) == bits(fed(form, {"x": data}, [0, 24], deterministic=True).result())
    assert fed(form, {"x": data}, [0, 5], deterministic=True).nbytes == a.nbytes
    odd = fed(form, {"x": data}, [0, 3], deterministic=True)
    with pytest.raises(ra.RedalgError) as error:
        odd.merge(b)
    assert "start=" in refused(error) and odd.count == 3


def test_the_fixed_tree_keeps_its_bits_where_sums_overflow() -> None:
    form = hand("variance")
    data = np.zeros(1000)
    data[0] = 1e155
    whole = fed(form, {"x": data}, [0, 1000], deterministic=True)
    assert np.isclose(float(whole.result()), 9.99e306, rtol=1e-14)
    for cuts in ([0, 1, 2, 1000], [0, 7, 300, 1000], range(1001)):
        assert bits(fed(form, {"x": data}, cuts, deterministic=True).result()) == bits(whole.result())


def test_an_output_that_reads_positions_needs_them_only_when_applied() -> None:
    x = ra.tensors("x[j]")
    spec = ra.Spec(y=x - ra.mean(x, "j") + ra.index("j"))
    form, data = ra.derive_incremental(spec), np.arange(6.0) ** 2
    acc = fed(form, {"x": data}, [0, 2, 6])
    assert_close(acc.apply(start=4, x=data[4:]), ra.reference(spec, x=data)[4:])
    with pytest.raises(ra.RedalgError) as error:
        acc.apply(x=data[4:])
    refused(error)


def test_sympy_functions_reach_the_runtime() -> None:
    x = ra.tensors("x[j]")
    form = ra.derive_incremental(ra.Spec(s=ra.sum(sympy.sin(x), "j")))
    assert_close(fed(form, {"x": np.arange(5.0)}, [0, 2, 5]).result(), np.sin(np.arange(5.0)).sum())


@pytest.mark.parametrize("start", [-1, 1.5, True, "0", (1 << 62) + 1, (1 << 63) - 1, 1 << 63, 1 << 70])
@pytest.mark.parametrize(
    "text", ["return a = argmax[j](x[j])", "return y = sum[j](x[j])", "return y = max[j](index[j]*x[j])"]
)
def test_positions_that_int64_may_not_hold_are_refused(text: str, start: Any) -> None:
    with pytest.raises(ra.RedalgError, match="position") as caught:
        form_of_text(text).accumulator(start=start)
    assert caught.value.fix


@pytest.mark.parametrize("start", [1 << 53, (1 << 53) + 1, 1 << 62])
def test_positions_far_from_the_beginning_are_exact(start: int) -> None:
    form = form_of_text("return a = argmax[j](x[j]), b = argmin[j](x[j])")
    late, early = form.accumulator(start=start), form.accumulator(start=start - 2)
    late.update(x=np.array([1.0, 5.0]))
    early.update(x=np.array([2.0, 0.0]))
    found = form.from_bytes(late.merge(early).to_bytes()).result()
    assert (int(found["a"]), int(found["b"])) == (start + 1, start - 1)


# --- zeros -----------------------------------------------------------------------------------------------------------

UNITS = (
    "y = sqrt(sum[j](x[i,j]**2))",
    "e = mean[j](x[i,j]); y = sqrt(mean[j]((x[i,j] - e)**2))",
    "y = sum[j](x[i,j] * v[i,j]) / sqrt(sum[j](x[i,j]**2) * sum[j](v[i,j]**2))",
    "e = mean[j](x[i,j]); y = mean[j]((x[i,j] - e)**4) / mean[j]((x[i,j] - e)**2)**2",
    "y = sqrt(sum[j](x[i,j]**2 + v[i,j]**2))",
    "y = sqrt(sum[j](where(v[i,j] > 0, x[i,j], 0)**2))",
    "y = sqrt(sum[j](where(v[i,j] > 0, x[i,j], 0)**2) + sum[j](where(v[i,j] < 0, x[i,j], 0)**2) / 3)",
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("text", UNITS)
def test_zeros_before_and_after_other_elements_need_no_wider_floats(text: str, dtype: str) -> None:
    form = form_of_text(f"{text}; return y", axis="j")
    rng, cuts = np.random.default_rng(7), [0, 3, 3, 4, 9, 11]
    arrays = {d.name: rng.normal(size=(4, cuts[-1])).astype(dtype) * 37 for d in form.spec.tensors}
    for x in arrays.values():
        x[0, :4] = x[1, 4:] = x[2, 3:] = 0  # at first, in the end, after one piece; the last row has none
    parts = [{name: x[:, a:b] for name, x in arrays.items()} for a, b in itertools.pairwise(cuts)]
    fed_at_once, merged = form.accumulator(), form.accumulator()
    for part in parts:
        other = form.accumulator()
        for acc in (fed_at_once, other):
            acc.update(**part)
        merged.merge(other)
    backwards = form.accumulator(start=cuts[-2])
    backwards.update(**parts[-1])
    for start, part in reversed([*zip(cuts, parts[:-1], strict=False)]):
        other = form.accumulator(start=start)
        other.update(**part)
        backwards.merge(other)
    wanted = ra.reference(form.spec, **arrays)
    for acc in (fed_at_once, merged, backwards):
        assert_close(acc.result(), wanted)
        if "where" not in text:  # what is not selected may leave the range in the unit of what is
            assert acc._engines and all("wide" not in vars(engine) for engine in acc._engines.values())


# --- one stream in several divisions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_divisions_of_a_stream_give_the_bits_of_merged_accumulators(name: str) -> None:
    form, arrays = hand(name), sample(name, 7, seed=3)
    cuts = ((0, 7), (0, 1, 7), (0, 3, 3, 7), (0, 6, 7))
    if any(o.keeps_axis for o in form.plan.outputs) or len(form.plan.passes) > 1:
        return
    for division, found in zip(cuts, Divided(form, arrays, cuts).values(form), strict=True):
        merged = placed(form, arrays, list(division), range(len(division) - 1)).result()
        assert bits(found if len(found) > 1 else next(iter(found.values()))) == bits(merged), division
