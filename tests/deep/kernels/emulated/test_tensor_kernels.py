"""What printed tensor-core kernels compute beside the definition, run by emulation (`tensor_emulated`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given

import redalg as ra
from redalg.errors import RedalgError
from redalg.graph.node import Node, add, neg, walk
from redalg.kernels.ir.program import Let, Loop, Module, step_nodes
from redalg.kernels.pipeline import wgmma_tiles
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.match import Class, Outside
from redalg.kernels.tile.plan import Fallback, Frozen, TensorPlan, fitted
from redalg.kernels.tile.scalars import exponents, floored, guarded_top, only_shrinks, risen
from tests.deep.kernels.print.test_tensor_class import INSIDE, rests, values
from tests.support.profiles import examples
from tests.support.tensor_cases import ANCHORS, CLASS, OPTIMISTIC, class_of, form_of, module_of, text_of, views_of
from tests.support.tensor_emulated import Emulated

BATCH = 2
PLACES = [(0, 0, 0), (0, 3, 5), (1, 0, 0)]  # quads: rows 0 and 8, 53 and 61, 64 and 72 of a tile


def drawn(made: Class, sizes: Mapping[str, int], seed: int, spread: float = 1.0) -> dict[str, Any]:
    """Arrays and numbers for every operand."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for o in made.program.operands:
        shape = tuple(sizes[a] for a in o.axes)
        if o.dtype == "bool":
            value: Any = rng.random(shape) < 0.6
        elif "int" in o.dtype:
            value = rng.integers(1, 40, shape)
        else:
            value = (spread * rng.standard_normal(shape)).astype(np.float32)
        found[o.name] = value if o.axes else value.item()
    return found


def prepared(
    text: str, i: int = 70, j: int = 150, d: int = 16, e: int = 16, kind: str = "bfloat16"
) -> tuple[Class, TensorPlan, dict[str, int]]:
    made = class_of(text, kind)
    sizes = dict.fromkeys((a for o in made.program.operands for a in o.axes), BATCH)
    sizes |= ({made.column: e} if made.column else {}) | {made.row: i, made.stream: j}
    sizes |= {made.program.inner.get(p.terms, p.terms): d for p in made.products}
    if len(made.products) > 1:
        made, plan = wgmma_tiles(made, sizes, views_of(made.program, sizes), H200, deterministic=True)
    else:
        made, plan = fitted(made, sizes, d, sizes[made.column] if made.column else 0)
    return made, replace(plan, staged=False), sizes


def bound(made: Class, arrays: Mapping[str, Any]) -> float:
    """A sum of n terms in float32, each off by what its exponent is off by, three roundings of numbers up to
    |u| log2 e: relative to the largest sum of weights times values there may be, and to the factors of results."""
    reals = {n: float(np.max(np.abs(a), initial=0)) for n, a in arrays.items() if np.asarray(a).dtype.kind == "f"}
    a, b = (np.asarray(arrays[leaf.attr.name], float) for leaf in (made.left, made.right))
    score = float(np.linalg.norm(a, axis=-1).max(initial=0) * np.linalg.norm(b, axis=-1).max(initial=0))
    others = 1.0
    for name, size in reals.items():
        if name not in (made.left.attr.name, made.right.attr.name) and np.isfinite(size):
            others *= max(1.0, size)
    n = b.shape[-2]
    return 2.0**-24 * (n + 32 + 6 * score * others) * others * (1 if "max" in made.program.title else score)


def judge(
    text: str,
    seed: int = 1,
    anchor: str = "running",
    given: Mapping[str, Any] | None = None,
    slack: float = 1.0,
    spread: float = 1.0,
    splits: int = 1,
    **sizes: Any,
) -> dict[str, np.ndarray]:
    """Run some rows of every tile; compare them with the definition."""
    made, plan, lengths = prepared(text, **sizes)
    blocks = -(-lengths[made.stream] // plan.span)
    plan = replace(plan, splits=splits if plan.uneven else min(splits, blocks))  # as `best_splits` has it
    arrays = drawn(made, lengths, seed, spread) | (given or {})
    quads = Emulated(made, replace(plan, anchor=ANCHORS[anchor]), arrays, blocks=2)
    if anchor == "fallback":
        quads.flags[:] = 1
    places = PLACES[: plan.consumers + 1]
    found = quads.run(places)
    compare(made, plan, found, arrays, form_of(text).spec, slack * bound(made, arrays))
    return found | {"notes": quads.flags}


def compare(
    made: Class, plan: TensorPlan, found: Mapping[str, np.ndarray], arrays: Mapping[str, Any], spec: Any, most: float
) -> None:
    true = ra.reference(
        spec, **{n: a.astype(float) if np.asarray(a).dtype.kind == "f" and np.ndim(a) else a for n, a in arrays.items()}
    )
    true = true if isinstance(true, dict) else {next(iter(spec.outputs)): true}
    for r in made.program.results:
        at = r.axes.index(made.row)
        rows = [
            t + 64 * team + 16 * warp + row + half
            for t in range(0, found[r.name].shape[at], plan.rows)
            for team, warp, row in PLACES[: plan.consumers + 1]
            for half in (0, 8)
        ]
        rows = [x for x in rows if x < found[r.name].shape[at]]
        ours, theirs = (np.take(np.asarray(x, float), rows, at) for x in (found[r.name], true[r.name]))
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs), err_msg=r.name)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=most, err_msg=r.name)


# --- every kernel ----------------------------------------------------------------------------------------------------


SUM = """tensors Q[h,i,d], A[h,i,r], K[h,j,d], B[h,j,r], V[h,j,e], bias[h,j];
s = sum[d](Q[h,i,d] * K[h,j,d]) + bias[h,j] + sum[r](A[h,i,r] * B[h,j,r]);
p = exp(s - max[j](s));
return O = sum[j](p * V[h,j,e]) / sum[j](p)"""
APART = {"a fold without scores", "a constant for every element"}  # `bound` knows neither of them
APART |= {
    n for n, text in INSIDE.items() if "argm" in text or "topk" in text
}  # tests/deep/kernels/print/test_tensor_logits.py
KNOWN = {name: text for name, text in INSIDE.items() if name not in APART}


@pytest.mark.parametrize("text", [*CLASS, *KNOWN.values()], ids=[*CLASS, *KNOWN])
def test_every_kernel_of_the_class(text: str) -> None:
    judge(text)


@pytest.mark.parametrize("i, j", [(1, 1), (1, 300), (9, 17), (64, 63), (65, 128), (130, 129), (200, 333)])
@pytest.mark.parametrize("name", ["attention_causal", "attention_window", "attention_masked", "attention_bias"])
def test_lengths_that_divide_nothing(name: str, i: int, j: int) -> None:
    judge(name, i=i, j=j, seed=i)


@pytest.mark.parametrize("heads", [(256, 256), (192, 128), (80, 80), (24, 40), (8, 8)], ids=str)
def test_lengths_of_heads(heads: tuple[int, int]) -> None:
    d, e = heads
    judge("attention_causal", d=d, e=e, j=260, spread=0.5, given={"scale": -0.3})
    judge("attention_alibi", d=d, e=e, j=260, spread=0.5)
    judge(INSIDE["scaled lanes"], d=d, e=e, j=130, spread=0.5)


@pytest.mark.parametrize("splits, j", [(2, 150), (3, 700), (5, 129), (7, 260)])
@pytest.mark.parametrize(
    "name",
    [
        "attention_scaled",
        "attention_causal",
        "attention_window",
        "attention_masked",
        "attention_with_lse",
        "attention_sink",
        "attention_sigmoid",
    ],
)
def test_splits_of_the_stream(name: str, splits: int, j: int) -> None:
    """Unequal ones; where a condition leaves fewer blocks than splits, some are empty."""
    judge(name, splits=splits, i=9, j=j)


def test_splits_of_rows_without_any_element() -> None:
    judge("attention_masked", splits=3, i=9, j=700, given={"mask": np.zeros((700,), bool)})


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("i, j", [(9, 17), (65, 300)])
def test_sums_of_contractions(i: int, j: int, splits: int) -> None:
    judge(SUM, splits=splits, i=i, j=j)
    judge(SUM.replace(", bias[h,j]", "").replace("+ bias[h,j] ", ""), splits=splits, i=i, j=j)


@pytest.mark.parametrize("window", [-3, 0, 1, 5, 127, 128, 1000])
def test_windows(window: int) -> None:
    judge("attention_window", given={"window": window}, i=300, j=300)
    judge(INSIDE["or within"], given={"w": window}, i=200, j=300)


@pytest.mark.parametrize("g", [-2.0, 0.0, -0.0, 0.5])
@pytest.mark.parametrize("name", ["condition on scores", "scale of head and of all", "output and lse", "or", "maximum"])
def test_scales_of_either_sign(name: str, g: float) -> None:
    judge(INSIDE[name], given={"g": g})


def test_rows_without_any_element_and_infinite_scores() -> None:
    judge("attention_masked", given={"mask": np.zeros((150,), bool)})
    judge("attention_bias", given={"bias": np.full((BATCH, 70, 150), -np.inf, np.float32)})
    bias = np.zeros((BATCH, 70, 150), np.float32)
    bias[:, 0], bias[:, 8, 3], bias[:, 53, :149], bias[1, 61, 0] = -np.inf, np.inf, -np.inf, np.nan
    judge("attention_bias", given={"bias": bias})
    judge("attention_bias", given={"bias": bias}, anchor="fallback")


# --- anchors ---------------------------------------------------------------------------------------------------------


def test_only_a_maximum_of_what_is_exponentiated_has_a_floor() -> None:
    made = class_of("attention")
    bodies = [b for step in made.walk.update if isinstance(step, Loop) for f in step.folds for b in f.bodies]
    (rest,) = [r for r in exponents(bodies, made.value) if r.axes]
    top = guarded_top(rest, {"max_u"})
    assert top is not None and top.attr.name == "max_u_new"
    assert guarded_top(rest, {"max_w"}) is None and guarded_top(rest.args[1], {"max_u"}) is None
    assert guarded_top(neg(top), {"max_u"}) is None  # not guarded: it is never -oo


def test_what_a_maximum_rises_by_is_an_exponent_of_2_where_nothing_else_reads_it() -> None:
    made = class_of("attention")
    (node,) = [s.node for s in made.walk.update if isinstance(s, Let) and s.name == "move~A_u"]
    pair = risen(node, {"max_u"})
    assert pair is not None and [x.attr.name for x in pair] == ["max_u", "max_u_new"]
    assert risen(node, {"max_w"}) is None and risen(node.args[2], {"max_u"}) is None
    backwards = Node("where", (node.args[0], node.args[1], neg(node.args[2])))
    assert risen(backwards, {"max_u"}) is None
    nodes = [n for step in made.walk.update for n in step_nodes(step)]
    shrunk = only_shrinks(nodes, "move~A_u")
    assert shrunk is not None and shrunk.op == "exp"
    move = next(n for n in walk(shrunk) if n.op == "state")
    for more in (move, neg(move), Node("exp", (move,)), Node("abs", (neg(move),))):
        assert only_shrinks([*nodes, more], "move~A_u") is None
    assert only_shrinks(nodes, "max_u") is None
    text = "move_A_u[r] = LOG2E * (max_nan_f32(max_u[r], LOWEST) - "
    assert text in module_of(made).source and text not in module_of(made, anchor="frozen").source


def test_a_floor_of_what_a_maximum_rises_by_is_one_of_all_elements() -> None:
    """Anchors of -1.8e38 and -1.75e38 are one by their floor: elements that take the maximum itself would lose it."""
    made = class_of("attention")
    nodes = [n for step in made.walk.update for n in step_nodes(step)]
    (rest,) = [r for r in exponents(nodes, made.value) if r.axes]
    top = guarded_top(rest, {"max_u"})
    assert top is not None and floored(nodes, made.value, top, {"max_u"})
    bare = Node("exp", (add(made.value, neg(top)),))
    assert exponents([bare], made.value) == [neg(top)]
    assert not floored([bare], made.value, top, {"max_u"})
    assert not floored([*nodes, bare], made.value, top, {"max_u"}) and not floored([], made.value, top, {"max_u"})


GUARD = "m = max[j](where(s > c, s, -oo)); p = exp(s - where(m == -oo, 0, m)); "
GUARD += "O = sum[j](p*V[h,j,e])/sum[j](p); return O"


def test_a_guarded_maximum_of_other_elements() -> None:
    """Rows of which no element counts for the maximum have elements all the same, and 0 is no number like any other."""
    text = text_of("s", rest=GUARD, declared="tensors c; ").replace("u = s; ", "")
    for c in (-1e9, 3.0, 1e9):
        found = judge(text, given={"c": c}, spread=0.3, slack=4.0)["O"]
        assert np.isfinite(found[~np.isnan(found)]).all() and (~np.isnan(found)).any()


@pytest.mark.parametrize("name", OPTIMISTIC)
def test_anchors_that_stay_and_rows_computed_again(name: str) -> None:
    assert not judge(name, anchor="frozen", spread=0.5, slack=4)["notes"].max() > 0
    judge(name, anchor="fallback", j=300, i=130)


def test_rows_that_fail_the_test_are_noted() -> None:
    """Later blocks (the first ones of the stream) overflow, or the first block is lost beside them."""
    for kind, power in (("bfloat16", 64), ("float16", 15)):
        made, plan, sizes = prepared("attention", kind=kind)
        for excess, noted in ((0.5, 0), (1.5, 1)):
            arrays = drawn(made, sizes, 3)
            arrays["Q"][:], arrays["K"][:] = 0, 0
            arrays["Q"][:, :, 0], arrays["K"][:, 3, 0] = 1, (power - 1 + excess) * np.log(2)
            quads = Emulated(made, replace(plan, anchor=Frozen()), arrays)
            quads.run([(0, 0, 0)])
            assert quads.flags.max() == noted, (kind, excess)
    low = np.zeros((BATCH, 70, 150), np.float32)
    low[:, :, 128:] = -np.inf
    made, plan, sizes = prepared("attention_bias")
    quads = Emulated(made, replace(plan, anchor=Frozen()), drawn(made, sizes, 3) | {"bias": low})
    quads.run([(0, 0, 0)])
    assert quads.flags.max() == 1  # the first block has no finite maximum


def test_tiles_without_a_note_are_left_alone() -> None:
    made, plan, sizes = prepared("attention", i=200)
    quads = Emulated(made, replace(plan, anchor=Fallback()), drawn(made, sizes, 3))
    quads.flags[:] = 0
    quads.flags[4 * plan.consumers + 3] = 1  # the second tile of the first head
    found = quads.run(PLACES)["O"]
    assert np.isnan(found[0, :128]).all() and not np.isnan(found[0, [128, 136, 192]]).any() and np.isnan(found[1]).all()


# --- specs nobody wrote ----------------------------------------------------------------------------------------------


@examples(30)
@given(values, rests)
def test_made_specs(value: str, rest: str) -> None:
    text = text_of(value, rest=rest, declared="tensors w integer; " if " w" in value else "")
    try:
        made, _, sizes = prepared(text)
    except (RedalgError, Outside):
        assume(False)
    arrays = drawn(made, sizes, 5, 0.3)
    true = ra.reference(form_of(text).spec, **arrays)
    largest = max(np.abs(x).max() for x in (true.values() if isinstance(true, dict) else [true]))
    assume(largest < 1e3)  # exponentials of exponentials leave float32
    judge(text, seed=5, spread=0.3, slack=50 * (1 + largest))


# --- that it can fail ------------------------------------------------------------------------------------------------

WRONG = [
    ("attention_bias", "clamped_i = min(i_i, size_i - 1)", "clamped_i = i_i"),
    ("attention_bias", "clamped_j = min(i_j, size_j - 1)", "clamped_j = i_j"),
    ("attention_causal", "i_j <= i_i", "i_j < i_i"),
    ("attention_causal", "j_last <= i_first", "j_last <= i_last"),
    ("attention_window", "low = min(max(", "low = 1 + min(max("),
    ("attention_scaled", "^ sign_bits", ""),
    ("attention", "S[s] if in_bounds else -INF", "S[s]"),
    ("attention", "sums[k] * rescale[(k >> 1) & 1]", "sums[k] * rescale[0]"),
    ("attention", "1 << step", "1"),
]


@pytest.mark.parametrize("case", WRONG, ids=[f"{name}: {new or 'without'}" for name, _, new in WRONG])
def test_a_kernel_with_a_mistake_is_noticed(case: tuple[str, str, str]) -> None:
    name, old, new = case
    made, plan, sizes = prepared(name, i=200, j=300)
    arrays = drawn(made, sizes, 1) | ({"scale": -0.7} if name == "attention_scaled" else {})
    arrays |= {"window": 40} if name == "attention_window" else {}
    quads = Emulated(made, plan, arrays)
    assert old in quads.module.source
    text = quads.module.source.replace(old, new)
    quads.module = Module(text, *[getattr(quads.module, f) for f in ("entry", "params", "threads", "shared")])
    with pytest.raises((AssertionError, RedalgError)):
        compare(made, plan, quads.run(PLACES), arrays, form_of(name).spec, bound(made, arrays))


UNEVEN = (
    "index[j] <= index[i]",
    "index[j] >= index[i]",
    "index[i] - index[j] < 40 and index[j] <= index[i]",
    "index[j] <= index[i] and index[j] < n[h]",
    "index[j] > index[i] - n[h]",
)


@pytest.mark.parametrize("anchor", ["running", "frozen"])
@pytest.mark.parametrize("condition", UNEVEN)
def test_tiles_that_blocks_draw_are_those_that_they_take_in_turns(condition: str, anchor: str) -> None:
    """Each tile once, whoever draws it, by any number of blocks: the same bits, and the definition's."""
    text = text_of(f"where({condition}, s, -oo)", declared="tensors n[h] integer; " if "n[h]" in condition else "")
    made, plan, sizes = prepared(text, i=300, j=150, e=64)
    assert plan.uneven
    plan, arrays = replace(plan, anchor=ANCHORS[anchor]), drawn(made, sizes, 1)
    in_turns = Emulated(made, plan, arrays, blocks=2)
    want = in_turns.run(PLACES)
    for blocks in (1, 3):
        quads = Emulated(made, replace(plan, drawn=True), arrays, blocks=blocks)
        assert "atomic_inc_acq_rel(counter" in quads.module.source
        found = quads.run(PLACES, seed=blocks)
        assert all(np.array_equal(found[n], want[n], equal_nan=True) for n in want)
        assert (quads.flags == in_turns.flags).all()
    if anchor == "running":
        compare(made, plan, want, arrays, form_of(text).spec, bound(made, arrays))
