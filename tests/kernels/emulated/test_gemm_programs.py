"""Matrix products as tile programs: whole tiles at a time they are the definition, and every wait is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.gemm import passes
from redalg.kernels.gemm.kernel import Gemm, GemmKernel
from redalg.kernels.gemm.program import derived, scheduled
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.level.check import broken
from redalg.kernels.tile.level.program import Arrive, For, Free, Load, Op, TileProgram, Wait, inner
from redalg.kernels.tile.level.schedule import waited
from tests.support.gemm_cases import BATCHED, BIASED, PLAIN, form_of, planned
from tests.support.tile_programs import Interpreter

GATE = "g = sum[j](x[i,j]*w[j,k]); u = sum[j](x[i,j]*v[j,k]); return y = relu(g)*u"
E4M3 = "float8_e4m3fn"
SIZES = {"i": 140, "j": 208, "k": 72, "b": 2}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (PLAIN, {}),
    "transposed": (PLAIN, {"major": ("w",)}),
    "batched": (BATCHED, {}),
    "two results": (BIASED, {}),
    "gate": (GATE, {}),
    "promoted": (PLAIN, {"kind": E4M3, "major": ("w",)}),
}


def made_of(name: str, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int] = SIZES) -> tuple[Gemm, dict[str, int]]:
    """What is printed for a case, in tiles as for many rows."""
    text, options = CASES[name]
    found: list[Gemm] = []

    class Seen(GemmKernel):
        def __init__(self, made: Gemm, tiles: TileProgram) -> None:
            found.append(made)
            super().__init__(made, tiles)

    monkeypatch.setattr(passes, "narrow", lambda made: None)
    monkeypatch.setattr(passes, "GemmKernel", Seen)
    sizes = dict(planned(text, sizes, target=replace(H200, multiprocessors=4), **options).sizes)
    return found[-1], sizes


def run(program: TileProgram, made: Gemm, sizes: dict[str, int], given: dict[str, Any]) -> dict[str, Any]:
    return Interpreter(program, made.program, sizes, given, False).run()


def drawn(made: Gemm, sizes: dict[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {o.name: rng.standard_normal([sizes[a] for a in o.axes]) for o in made.program.operands}


def truth(name: str, given: dict[str, Any]) -> dict[str, Any]:
    spec = form_of(CASES[name][0]).spec
    found = ra.reference(spec, **given)
    return found if isinstance(found, dict) else {next(iter(spec.outputs)): found}


@pytest.mark.parametrize("name", CASES)
def test_a_product_is_its_definition_after_every_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, sizes = made_of(name, monkeypatch)
    given = drawn(made, sizes)
    want, plain = truth(name, given), derived(made)
    assert made.plan.promoted == (name == "promoted")
    for program in (plain, waited(plain, True), scheduled(made)):
        assert not [*broken(program)]
        for result, x in run(program, made, sizes, given).items():
            np.testing.assert_allclose(x, want[result], rtol=1e-9, atol=1e-9, err_msg=program.text())


@pytest.mark.parametrize("name", ["plain", "gate", "promoted"])
def test_each_wait_and_each_arrival_of_a_product_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, sizes = made_of(name, monkeypatch)
    program, given = scheduled(made), drawn(made, sizes)
    ops = [op for op in inner(program.bodies["consumers"]) if isinstance(op, Wait | Arrive)]
    assert len(ops) >= 3
    for left_out in ops:
        less = without(program, left_out)
        assert [*broken(less)], left_out
        if isinstance(left_out, Wait):
            assert any(np.isnan(x).any() for x in run(less, made, sizes, given).values()), left_out


def without(program: TileProgram, op: Op) -> TileProgram:
    def body(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        return tuple(replace(x, body=body(x.body)) if isinstance(x, For) else x for x in ops if x is not op)

    return replace(program, bodies={role: body(ops) for role, ops in program.bodies.items()})


def test_a_chunk_goes_back_while_the_next_one_is_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """One group stays under way, both products of a gate; the producer has one wait a chunk."""
    for name, count in (("plain", 1), ("gate", 2)):
        program = scheduled(made_of(name, monkeypatch)[0])
        others = next(op for op in program.bodies["consumers"] if isinstance(op, For) and op.blocks == "other")
        assert [op.under_way for op in others.body if isinstance(op, Wait) and op.products] == [count]
        (loop,) = program.bodies["producer"]
        assert isinstance(loop, For) and [type(op) for op in loop.body] == [Free, *(count + 1) * [Load]]
