"""Cascades as tile programs: whole tiles at a time they are the definition, before and after every pass; no wait, no
arrival can be left out. Printed kernels of them are run thread by thread in `test_tensor_lanes` and the deep suite."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.pipeline import mma_tiles, wgmma_tiles
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.level.cascade import PingPong, Scale
from redalg.kernels.tile.level.cascade_print import in_order, is_together, operations, scheduled
from redalg.kernels.tile.level.check import broken
from redalg.kernels.tile.level.program import (
    Arrive,
    Convert,
    Exchange,
    For,
    Home,
    Meet,
    Mma,
    Op,
    TileProgram,
    Wait,
    inner,
)
from redalg.kernels.tile.level.schedule import waited
from redalg.kernels.tile.match import Class
from redalg.kernels.tile.plan import Frozen, TensorPlan
from tests.support.sample import deep
from tests.support.tensor_cases import class_of, form_of, text_of, views_of
from tests.support.tensor_wide_cases import LATENT, PLAIN, ROPE
from tests.support.tile_programs import Interpreter

SIGNED = text_of("scale*s", declared="tensors Q[h,i,d], K[h,j,d], V[h,j,e], scale; ")
LOGITS = "s = sum[d](Q[h,i,d]*K[h,j,d]); m = max[j](s); return l = m + log(sum[j](exp(s - m)))"
LINEAR = "s = sum[d](Q[h,i,d]*K[h,j,d]); O = sum[j](tanh(s)*V[h,j,e]); return O"
SPECS = (
    *("attention", "attention_alibi", "attention_bias", "attention_causal", "attention_grouped_query"),
    *("attention_masked", "attention_relu", "attention_sigmoid", "attention_sink", "attention_softcap"),
    *("attention_window", "attention_with_lse", SIGNED, LOGITS, LINEAR),
)
LENGTHS = {"h": 2, "i": 141, "j": 300, "d": 80, "e": 64, "b": 1, "g": 2, "r": 2}
WIDE = {
    LATENT: {"h": 80, "c": 384, "r": 40},
    PLAIN: {"h": 20, "d": 72, "e": 384},
    ROPE: {"h": 300, "r": 24, "e": 320 + 64},
}
TWO = {ROPE: {"h": 150, "r": 24}, LATENT: {"h": 70, "c": 64, "r": 24}}  # contractions that one warpgroup's rows have
CHOSEN = "s = sum[d](Q[i,d]*K[j,d]); "
LISTS = (
    *(
        "return x = argmax[j](s)",
        "return x = argmin[j](s), m = min[j](s)",
        "m = max[j](s); return x = topk[j:3:c](s).indices, m",
    ),
    "m = max[j](s); p = exp(s - m)/sum[j](exp(s - m)); v = topk[j:4:c](p).values; return g = v/sum[c](v), l = m",
    "u = where(index[j] <= index[i], s, -oo); return x = topk[j:2:c](u).indices, v = topk[j:2:c](u).values",
)


@cache
def case(spec: str, way: str, **lengths: int) -> tuple[Class, TensorPlan, dict[str, int], dict[str, Any]]:
    """A class with its tiles, and arrays for it: rows that see nothing, a window, negative factors among them."""
    made, rng = class_of(spec, Qr="bfloat16", Kr="bfloat16"), np.random.default_rng(len(spec))
    arrays = (*made.program.operands, *made.program.results)
    every = LENGTHS | lengths
    sizes = {a: every.get(a, 3) for array in arrays for a in array.axes} | made.program.lengths
    if "causal" in spec or "window" in spec:
        sizes["i"] = sizes["j"]
    tiles = wgmma_tiles if way == "wgmma" else mma_tiles
    made, plan = tiles(made, sizes, views_of(made.program, sizes), H200)
    given: dict[str, Any] = {}
    for o in made.program.operands:
        shape = [sizes[a] for a in o.axes]
        given[o.name] = rng.random(shape) < 0.4 if o.dtype == "bool" else rng.standard_normal(shape)
        if o.number:
            given[o.name] = 37 if o.dtype == "int64" else -0.3
    return made, plan, sizes, given


def runs(program: TileProgram, made: Class, sizes: dict[str, int], given: dict[str, Any]) -> dict[str, Any]:
    return Interpreter(program, made.program, sizes, given, True).run()


def definition(spec: str, given: dict[str, Any]) -> dict[str, Any]:
    form = form_of(spec)
    found = ra.reference(form.spec, **{t.name: given[t.name] for t in form.spec.tensors})
    return found if isinstance(found, dict) else {next(iter(form.spec.outputs)): found}


WAYS = ("wgmma", "mma.sync")
EACH = [(spec, WAYS[k % 2]) for k, spec in enumerate(SPECS[::2])]  # once; the other way and other specs are deep


@pytest.mark.parametrize(("spec", "way"), [*EACH, *deep((s, w) for s in SPECS for w in WAYS if (s, w) not in EACH)])
def test_a_cascade_is_its_definition_after_every_pass(spec: str, way: str) -> None:
    judged(spec, way)


def judged(spec: str, way: str, **lengths: int) -> TileProgram:
    """The program after every pass, each of which is the definition; positions and what depends on them exactly so."""
    made, plan, sizes, given = case(spec, way, **lengths)
    if spec.startswith(CHOSEN):  # whole numbers, so that there are ties
        given = {n: np.round(x) for n, x in given.items()}
    want, plain = definition(spec, given), operations(made, plan)
    ordered = in_order(plain, plan)
    for program in (plain, ordered, waited(ordered, is_together(plan)), scheduled(made, plan)):
        assert not [*broken(program)]
        for name, x in runs(program, made, sizes, given).items():
            np.testing.assert_allclose(x, want[name], rtol=1e-9, atol=1e-9, err_msg=program.text())
    return program


@pytest.mark.parametrize(
    ("spec", "more"),
    [(LATENT, {}), (PLAIN, {}), (PLAIN, {"d": 40}), (ROPE, {})],
    ids=["latent", "plain", "one box", "rope"],
)
def test_two_consumers_share_the_rows_of_wide_heads(spec: str, more: dict[str, int]) -> None:
    """They meet between weights that one writes and the other reads, and tell each other what rows need."""
    program = judged(spec, "wgmma", **WIDE[spec] | more)
    ops = list(inner(program.bodies["consumers"]))
    assert [type(op) for op in ops].count(Meet) == 2 and any(isinstance(op, Exchange) for op in ops)


@pytest.mark.parametrize("way", ["wgmma", "mma.sync"])
@pytest.mark.parametrize("spec", TWO, ids=["rope", "latent"])
def test_an_element_has_several_contractions(spec: str, way: str) -> None:
    assert any("+" in t for t in judged(spec, way, **TWO[spec]).tiles)


@pytest.mark.parametrize("way", ["wgmma", "mma.sync"])
@pytest.mark.parametrize("rest", LISTS)
def test_lists_hold_the_first_elements_of_all_blocks(rest: str, way: str) -> None:
    program = judged(CHOSEN + rest, way)
    assert any(t.home is Home.ROW for t in program.tiles.values())
    assert judged(CHOSEN + rest, way, i=5, j=1 if "topk" not in rest else 4)


def test_a_frozen_maximum_is_a_program_without_scale() -> None:
    made, plan, sizes, given = case("attention_causal", "wgmma")
    program = scheduled(made, replace(plan, anchor=Frozen()))
    assert not [op for body in program.bodies.values() for op in inner(body) if isinstance(op, Scale)]
    found, want = runs(program, made, sizes, given), definition("attention_causal", given)
    np.testing.assert_allclose(found["O"], want["O"], rtol=1e-9, atol=1e-9)


def changed(program: TileProgram, change: Any) -> TileProgram:
    """The program with every body changed."""

    def body(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        inside = tuple(replace(op, body=body(op.body)) if isinstance(op, For) else op for op in ops)
        return tuple(change(inside))

    return replace(program, bodies={role: body(ops) for role, ops in program.bodies.items()})


@pytest.mark.parametrize("spec", ["attention_causal", LOGITS, PLAIN], ids=["causal", "logits", "wide"])
def test_each_wait_and_each_arrival_is_needed(spec: str) -> None:
    """A law names what is left out; without a wait, or where consumers do not meet, the interpreter gives NaN."""
    made, plan, sizes, given = case(spec, "wgmma", **WIDE.get(spec, {}))
    program = scheduled(made, plan)
    ops = list(inner(program.bodies["consumers"]))
    waits = [op for op in ops if isinstance(op, Wait | Meet)]
    arrivals = [op for op in ops if isinstance(op, Arrive)]
    assert len(waits) > 5 and len(arrivals) > 3
    for left_out in (*waits, *arrivals):
        less = changed(program, lambda ops, one=left_out: [op for op in ops if op is not one])
        assert [*broken(less)], left_out
        if not isinstance(left_out, Arrive):
            assert any(np.isnan(x).any() for x in runs(less, made, sizes, given).values()), left_out


def test_what_consumers_have_of_each_other() -> None:
    """Without an exchange rows have another maximum; weights are not written while the other consumer reads them."""
    made, plan, sizes, given = case(PLAIN, "wgmma", **WIDE[PLAIN])
    program = scheduled(made, plan)
    apart = changed(program, lambda ops: [op for op in ops if not isinstance(op, Exchange)])
    found, want = runs(apart, made, sizes, given)["O"], definition(PLAIN, given)["O"]
    assert np.abs(found - want).max() > 1e-3

    def early(ops: tuple[Op, ...]) -> list[Op]:
        """Weights are written again before the block goes back."""
        at = next((k for k, op in enumerate(ops) if isinstance(op, Wait) and op.under_way), None)
        again = [op for op in ops if isinstance(op, Convert)]
        return [*ops] if at is None else [*ops[:at], *again, *ops[at:]]

    assert any("another consumer may read" in why for why in broken(changed(program, early)))


def test_operands_of_a_product_are_of_one_block() -> None:
    """The sum of a block's weights with the next block's values is refused, though every wait is there."""
    made, plan, _, _ = case("attention_causal", "wgmma")
    program = scheduled(made, plan)

    def late(ops: tuple[Op, ...]) -> list[Op]:
        """Weights are converted before the last block's are multiplied."""
        at = next((k for k, op in enumerate(ops) if isinstance(op, Mma) and not op.fresh), None)
        return [*ops, ops[at], replace(ops[at])] if at is not None and len(ops) > 8 else [*ops]  # type: ignore[list-item]

    assert any("different blocks" in why or "given back" in why for why in broken(changed(program, late)))


def test_the_schedule_of_attention() -> None:
    """A block's weights are multiplied under the next block's maps, consumers multiply in turns, and the producer
    loads in the order of waits."""
    made, plan, _, _ = case("attention_causal", "wgmma")
    program = scheduled(made, plan)
    other = next(op for op in program.bodies["consumers"] if isinstance(op, For) and op.blocks == "other")
    kinds = [type(op) for op in other.body]
    products = [op for op in other.body if isinstance(op, Mma)]
    assert [p.fresh for p in products] == [True, False] and kinds.count(PingPong) == 2
    assert next(op.under_way for op in other.body if isinstance(op, Wait) and op.products) == 1
    loops = [op for op in program.bodies["producer"] if isinstance(op, For)]
    assert [[x.tile for x in loop.body if hasattr(x, "source")] for loop in loops] == [["K"], ["K", "V"]]
    assert program.tiles["P'"].home is Home.LEFT and program.tiles["max_u"].home is Home.ROW


def test_terms_in_chunks_are_loaded_by_one_loop() -> None:
    """Without columns both operands are streamed, a stage goes back while the next product runs."""
    made, plan, _, _ = case(LOGITS, "wgmma")
    assert plan.long
    producer = scheduled(made, plan).bodies["producer"]
    assert [op.blocks for op in inner(producer) if isinstance(op, For)] == ["every", "every"]
