"""The accumulator on plans written by hand: partitions, orders, special values, the promises of the design."""

from __future__ import annotations

import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.engine.lean import lean_plan
from redalg.form import Form
from redalg.streaming import run_numpy
from redalg.streaming.lift import Engine
from tests.support.profiles import examples
from tests.support.streams import assert_close, bits, bound, chunk, fed, hand, placed

INF, NAN = np.inf, np.nan
NAMES = ("variance", "attention", "weighted_mean", "covariance", "argmax", "top2", "ties", "scaled_norm", "masked")


def sample(name: str, n: int, seed: int = 0, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    if name == "attention":
        shapes = {"Q": (4, 3), "K": (n, 3), "V": (n, 2)}
    elif name in ("ties", "scaled_norm", "masked"):
        shapes = {"x": (3, n)}
    else:
        shapes = {"x": (n,)} | ({"w": (n,)} if name == "weighted_mean" else {"y": (n,)} if name == "covariance" else {})
    arrays = {k: rng.integers(-8, 9, s).astype(dtype) / 4 for k, s in shapes.items()}
    if "w" in arrays:
        arrays["w"] = np.abs(arrays["w"])
        arrays["w"][:2] = 0
    if name == "masked":
        arrays["keep"] = rng.random((3, n)) < 0.5
        arrays["keep"][1] = False
    return arrays


@pytest.mark.parametrize("name", NAMES)
@examples(30)
@given(st.data())
def test_any_partition_and_order_gives_the_definition(name: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    arrays = sample(name, n, data.draw(st.integers(0, 5)))
    form = hand(name)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=5))), n]
    order = data.draw(st.permutations(range(len(cuts) - 1)))
    expected = ra.reference(form.spec, **arrays)
    if name == "weighted_mean" and not arrays["w"].any():
        expected = np.array(NAN)
    assert_close(fed(form, arrays, cuts).result(), expected)
    assert_close(placed(form, arrays, cuts, order).result(), expected)
    assert_close(run_numpy(form, arrays), expected)


@pytest.mark.parametrize("name", NAMES)
def test_merging_an_empty_accumulator_changes_no_bit(name: str) -> None:
    form, arrays = hand(name), sample(name, 7)
    acc = fed(form, arrays, [0, 3, 7])
    before, state = bits(acc.result()), {k: v.tobytes() for k, v in acc.state.items()}
    acc.merge(form.accumulator(**bound(form, arrays)))
    acc.update(**chunk(form, arrays, 2, 2))
    assert bits(acc.result()) == before and {k: v.tobytes() for k, v in acc.state.items()} == state
    empty = form.accumulator(**bound(form, arrays))
    empty.merge(acc)
    assert bits(empty.result()) == before and empty.count == acc.count


@pytest.mark.parametrize("name", NAMES)
def test_the_state_has_one_size_and_no_input(name: str) -> None:
    form, arrays = hand(name), sample(name, 300)
    few, many = fed(form, arrays, [0, 10]), fed(form, arrays, range(301))
    assert few.nbytes == many.nbytes > 0
    assert {k: v.shape for k, v in few.state.items()} == {k: v.shape for k, v in many.state.items()}
    for array in many.state.values():
        assert not array.flags.writeable and not any(np.shares_memory(array, x) for x in arrays.values())
    with pytest.raises(TypeError):
        many.state["m"] = 0  # type: ignore[index]


def test_one_element_leaves_nothing_of_the_input_behind() -> None:
    form, data = hand("variance"), np.array([3.0])
    acc = form.accumulator()
    acc.update(x=data)
    data[:] = 7
    assert acc.result() == 0 and acc.state["mu"] == 3


# --- special values --------------------------------------------------------------------------------------------------

ROWS = [[-INF], [-INF, -INF], [-INF, 1.0], [1.0, -INF], [INF, 1.0], [1.0, INF], [INF, -INF], [NAN, 1.0], [-INF, NAN]]


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", ("ties", "masked"))
def test_infinities_and_nan_do_what_the_definition_does(name: str, row: list[float]) -> None:
    form, arrays = hand(name), {"x": np.array([row, [1.0] * len(row)])}
    if name == "masked":
        arrays["keep"] = np.ones(arrays["x"].shape, bool)
    expected = ra.reference(form.spec, **arrays)
    for cuts in (range(len(row) + 1), [0, len(row)]):
        assert_close(fed(form, arrays, cuts).result(), expected, ulps=0)
    for order in ([0, 1], [1, 0])[: len(row)]:
        assert_close(placed(form, arrays, range(len(row) + 1), order[: len(row)]).result(), expected, ulps=0)


def test_a_single_minus_infinity_is_not_an_empty_state() -> None:
    form = hand("ties")
    acc = form.accumulator()
    acc.update(x=[[-INF]])
    assert acc.count == 1 and acc.result().tolist() == [1] and acc.state["m"].tolist() == [-INF]
    other = form.accumulator()
    other.update(x=[[-INF]])
    acc.merge(other)
    assert acc.result().tolist() == [2]


def test_nan_stays_in_its_row() -> None:
    form = hand("attention")
    arrays = sample("attention", 6)
    arrays["Q"][1] = NAN
    clean = sample("attention", 6)
    got, expected = fed(form, arrays, [0, 2, 6]).result(), fed(form, clean, [0, 2, 6]).result()
    assert np.isnan(got[1]).all() and np.array_equal(np.delete(got, 1, 0), np.delete(expected, 1, 0))


def test_a_nan_survives_a_correction_that_underflows() -> None:
    form = hand("attention")
    acc = form.accumulator(Q=np.ones((1, 1)))
    acc.update(K=[[0.0]], V=[[NAN]])
    acc.update(K=[[2000.0]], V=[[1.0]])
    assert np.isnan(acc.result()).all()


def test_masked_rows_stay_void_until_something_is_valid() -> None:
    form = hand("masked")
    acc = form.accumulator()
    acc.update(x=np.ones((1, 3)), keep=np.zeros((1, 3), bool))
    assert acc.result() == {"m": [-INF], "l": [0.0]}
    acc.update(x=np.ones((1, 2)), keep=np.ones((1, 2), bool))
    assert acc.result() == {"m": [1.0], "l": [2.0]}


# --- calls that fail leave everything as it was ----------------------------------------------------------------------

BAD = [
    {"K": np.ones((2, 3))},
    {"K": np.ones((2, 3)), "V": np.ones((3, 2))},
    {"K": np.ones((2, 4)), "V": np.ones((2, 2))},
    {"K": np.ones((2, 3)), "V": np.ones((2, 5))},
    {"K": np.ones((2, 3)), "V": np.ones((2, 2)), "Q": np.ones((4, 3))},
    {"K": np.ones((2, 3)), "V": np.ones((2, 2)), "W": 1.0},
    {"K": np.ones((2, 3)), "V": np.ones((2, 2), object)},
    {"K": np.ones((2, 3)), "V": np.ones((2, 2), complex)},
]


@pytest.mark.parametrize("bad", BAD)
def test_bad_chunks_are_refused_whole(bad: dict[str, Any]) -> None:
    form, arrays = hand("attention"), sample("attention", 5)
    acc = fed(form, arrays, [0, 5])
    before = bits(acc.result())
    with pytest.raises(ra.RedalgError) as error:
        acc.update(**bad)
    assert all((error.value.what, error.value.where, error.value.why, error.value.fix))
    assert bits(acc.result()) == before and acc.count == 5


def test_an_interrupted_update_or_merge_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    form, rng = hand("ties"), np.random.default_rng(0)
    acc, other = form.accumulator(), form.accumulator()
    for a in (acc, other):
        a.update(x=rng.normal(size=(1000, 3)))
    before, calls, real = bits(acc.result()), [], Engine.combine

    def interrupted(self: Any, one: Any, two: Any) -> Any:
        calls.append(one)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return real(self, one, two)

    monkeypatch.setattr(Engine, "combine", interrupted)
    with pytest.raises(KeyboardInterrupt):
        acc.update(x=rng.normal(size=(1000, 2000)))
    with pytest.raises(KeyboardInterrupt):
        acc.merge(other)
    monkeypatch.undo()
    assert bits(acc.result()) == before and acc.count == 3


def test_temporaries_do_not_grow_with_the_chunk() -> None:
    form = hand("ties")
    data = np.zeros((4, 1 << 20))

    def peak(n: int) -> int:
        acc = form.accumulator()
        acc.update(x=data[:, :1])
        tracemalloc.start()
        acc.update(x=data[:, :n])
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(1 << 20) < 1.2 * peak(1 << 17) < 0.5 * data.nbytes


# --- dtypes and shapes -----------------------------------------------------------------------------------------------


def test_half_precision_accumulates_in_float32_and_rounds_once() -> None:
    form, data = hand("variance"), np.random.default_rng(0).normal(size=5000).astype(np.float16)
    acc = fed(form, {"x": data}, [0, 1, 77, 5000])
    assert acc.state["v"].dtype == np.float32 and acc.result().dtype == np.float16
    assert acc.result() == np.float16(np.var(data.astype(float)))


def test_integers_are_exact() -> None:
    form = ra.derive_incremental(ra.Spec(s=ra.sum(ra.tensors("x[j]", integer=True), "j")))
    data = np.full(10, 2**59 + 1)
    got = fed(form, {"x": data}, [0, 1, 5, 10]).result()
    assert got.dtype == np.int64 and int(got) == 10 * (2**59 + 1)
    narrow = fed(form, {"x": np.full(1000, 127, np.int8)}, [0, 1, 1000]).result()
    assert narrow.dtype == np.int64 and int(narrow) == 127000


def test_booleans_and_complex_numbers_are_summed() -> None:
    z = ra.tensors("z[j]", complex=True)
    data = np.array([1 + 2j, 3 - 1j, 0.5j])
    got = fed(ra.derive_incremental(ra.Spec(s=ra.sum(z, "j"))), {"z": data}, [0, 1, 3]).result()
    assert got == data.sum() and got.dtype == np.complex128
    b = ra.tensors("b[j]", bool=True)
    flags = np.array([True, False, True])
    assert int(fed(ra.derive_incremental(ra.Spec(s=ra.sum(b, "j"))), {"b": flags}, [0, 1, 3]).result()) == 2
    any_all = ra.derive_incremental(ra.Spec(a=ra.any(b, "j"), e=ra.all(b, "j")))
    result = fed(any_all, {"b": flags}, [0, 1, 3]).result()
    assert result["a"].dtype == bool and result["a"] and not result["e"]


def test_strided_and_swapped_input() -> None:
    form, rng = hand("ties"), np.random.default_rng(0)
    data = rng.integers(0, 3, (3, 40)).astype(float)
    expected = fed(form, {"x": data}, [0, 40]).result()
    for view in (
        np.asfortranarray(data),
        np.repeat(data, 2, axis=1)[:, ::2],
        data.astype(">f8"),
        data[:, ::-1][:, ::-1],
    ):
        assert np.array_equal(fed(form, {"x": view}, [0, 7, 40]).result(), expected)


def test_free_axes_of_length_zero() -> None:
    form = hand("ties")
    acc = form.accumulator()
    acc.update(x=np.zeros((0, 5)))
    acc.update(x=np.zeros((0, 2)))
    assert acc.result().shape == (0,) and acc.count == 7
    with pytest.raises(ra.RedalgError, match="length"):
        acc.update(x=np.zeros((1, 2)))


def test_bound_tensors_are_copied_and_validated() -> None:
    form, arrays = hand("attention"), sample("attention", 5)
    q = arrays["Q"].copy()
    acc = form.accumulator(Q=q)
    q[:] = 0
    acc.update(**chunk(form, arrays, 0, 5))
    assert_close(acc.result(), ra.reference(form.spec, **arrays))
    for wrong in ({}, {"Q": np.ones(3)}, {"Q": arrays["Q"], "K": arrays["K"]}, {"q": arrays["Q"]}):
        with pytest.raises(ra.RedalgError) as error:
            form.accumulator(**wrong)
        assert all((error.value.what, error.value.where, error.value.why, error.value.fix))


def test_pickles_copies_and_merging_with_itself() -> None:
    form, arrays = hand("attention"), sample("attention", 6)
    acc = fed(form, arrays, [0, 2, 3])
    twin, read = acc.copy(), pickle.loads(pickle.dumps(acc))
    for a in (acc, twin, read):
        a.update(**chunk(form, arrays, 3, 6))
    assert bits(acc.result()) == bits(twin.result()) == bits(read.result())
    acc.merge(read)
    assert acc.count == 12
    before = acc.count
    acc.merge(acc)
    assert acc.count == 2 * before
    assert_close(acc.result(), twin.result())


def test_results_of_nothing_are_the_definition_of_nothing() -> None:
    assert np.isnan(hand("variance").accumulator().result())
    assert hand("argmax").accumulator().result() == -1
    with pytest.raises(ra.RedalgError, match="not known"):
        hand("ties").accumulator().result()
    acc = hand("ties").accumulator()
    acc.update(x=np.zeros((3, 0)))
    assert acc.result().tolist() == [0, 0, 0] and acc.count == 0 and not acc.state


def test_a_form_is_shared_by_threads() -> None:
    form = hand("attention")
    arrays = sample("attention", 50)
    expected = ra.reference(form.spec, **arrays)

    def work(seed: int) -> Any:
        cuts = sorted(np.random.default_rng(seed).integers(0, 51, 9))
        return fed(form, arrays, [0, *cuts, 50]).result()

    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(work, range(32)):
            assert_close(got, expected)


@pytest.mark.parametrize("name", ("variance", "covariance"))
def test_lean_plans_drop_what_vanishes_and_stay_right(name: str) -> None:
    accurate, arrays = hand(name), sample(name, 60, seed=3)
    plan = lean_plan(accurate.plan)
    assert plan is not None
    lean = Form(accurate.spec, plan)
    acc = fed(lean, arrays, [0, 1, 5, 6, 40, 60])
    assert len(acc.state) < len(fed(accurate, arrays, [0, 60]).state)
    assert_close(acc.result(), ra.reference(lean.spec, **arrays))
    assert_close(placed(lean, arrays, [0, 9, 10, 60], [2, 0, 1]).result(), ra.reference(lean.spec, **arrays))
    assert_close(fed(lean, arrays, [0, 9, 60], deterministic=True).result(), ra.reference(lean.spec, **arrays))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tensors x[j]; return y = sum[j](index[j]**2)", "read no tensor along the axes of their reductions"),
        ("tensors x[j]; return y = max[j](w[i] - index[j])", "read no tensor along the axes of their reductions"),
        ("return y = w[i]**2", "maps without a reduction"),
    ],
)
@pytest.mark.parametrize("way", ["accumulator", "grouped"])
def test_forms_without_a_stream_say_why(way: str, text: str, why: str) -> None:
    with pytest.raises(ra.RedalgError, match=why):
        getattr(ra.derive_incremental(ra.parse(text)), way)()


@pytest.mark.skipif(np.finfo(np.longdouble).maxexp <= np.finfo(np.float64).maxexp, reason="there is no larger range")
@given(
    st.sampled_from(
        ["exp(x[j])", "w[j]*exp(x[j])", "exp(x[j])*exp(w[j])", "where(w[j] < 2, exp(x[j]), w[j])", "2**x[j]"]
    ),
    st.sampled_from(["argmax[j]({})", "argmin[j](-({}))", "topk[j:3:t]({}).indices"]),
    st.sampled_from([(np.float32, 90), (np.float64, 720)]),
    st.data(),
)
@examples(60)
def test_exponentials_that_overflow_are_told_apart(element: str, taken: str, kind: Any, data: st.DataObject) -> None:
    """By positions and lists, however the stream is cut, and by group."""
    dtype, end = kind
    drawn = st.lists(st.integers(-3, 40), min_size=3, max_size=7, unique=True)
    x = np.array([2 * end + n if "2**" in element else end + n for n in data.draw(drawn)], dtype)
    w = data.draw(st.permutations([1.0, 1.5, 1.25, 1.125, 1.75, 1.875, 1.625][: len(x)]))
    form = ra.derive_incremental(ra.parse("return y = " + taken.format(element)))
    every = {"x": x, "w": np.array(w, dtype)}
    arrays = {t.name: every[t.name] for t in form.spec.tensors}
    wide = {name: a.astype(np.longdouble) for name, a in every.items()}
    sizes = {"exp(x[j])": np.exp(wide["x"]), "w[j]*exp(x[j])": wide["w"] * np.exp(wide["x"])}
    sizes |= {"exp(x[j])*exp(w[j])": np.exp(wide["x"] + wide["w"]), "2**x[j]": np.exp2(wide["x"])}
    right = np.argsort(-sizes.get(element, np.exp(wide["x"])), kind="stable")
    expected = right[:3] if "topk" in taken else right[0]
    cut = data.draw(st.integers(0, len(x)))
    parts, grouped = form.accumulator(), form.grouped()
    for low, high in ((0, cut), (cut, cut), (cut, len(x))):
        parts.update(**{name: a[low:high] for name, a in arrays.items()})
    grouped.update(by=np.zeros(len(x), np.int64), **arrays)
    for found in (form.compile("numpy")(**arrays), parts.result(), grouped.result()[1][0]):
        np.testing.assert_array_equal(found, expected)
