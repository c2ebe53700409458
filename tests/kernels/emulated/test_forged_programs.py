"""Laws of tile programs refuse forgeries: of every kind of program every operation that orders others is left out,
moved or changed, and a law names it; what a block has room for is counted from its tiles, not believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from redalg.graph.node import state
from redalg.kernels.gemm import passes
from redalg.kernels.gemm.chain import ChainKernel
from redalg.kernels.gemm.kernel import GemmKernel
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.level.cascade import PingPong
from redalg.kernels.tile.level.cascade_print import scheduled
from redalg.kernels.tile.level.check import broken
from redalg.kernels.tile.level.grid import Count, Prepare, Reset, Writer, Written
from redalg.kernels.tile.level.program import (
    Arrive,
    Clear,
    Convert,
    Exchange,
    For,
    Free,
    Home,
    Load,
    Meet,
    Mma,
    Op,
    Own,
    Store,
    TileProgram,
    Wait,
    inner,
)
from tests.support import chain_cases, gemm_cases
from tests.support.level_cases import drafted
from tests.support.tensor_cases import class_of, planned
from tests.support.tensor_wide_cases import PLAIN

LOGITS = "s = sum[d](Q[h,i,d]*K[h,j,d]); m = max[j](s); return l = m + log(sum[j](exp(s - m)))"
LISTED = "s = sum[d](Q[h,i,d]*K[h,j,d]); return x = topk[j:3:c](s).indices"
CASCADES = {"attention": "attention_causal", "logits": LOGITS, "list": LISTED, "wide": PLAIN}
GEMMS: dict[str, tuple[Any, ...]] = {  # text, lengths, options
    "pairs": (gemm_cases.PLAIN, {"i": 4096, "j": 512, "k": 4096}, {}),
    "split": (gemm_cases.PLAIN, {"i": 16, "j": 8192, "k": 512}, {}),
    "prologue": ("rms_norm_gemm", {"i": 512, "j": 256, "k": 256}, {"schedule": "fused_prologue"}),
    "kernel before": ("rms_norm_gemm", {"i": 16, "j": 4096, "k": 2048}, {}),
}
CHAIN = {"m": 16, "k": 1024, "n": 2048, "l": 1024}
GRADIENT = {"h": 2, "i": 512, "j": 512, "d": 64, "e": 64}
PROGRAMS = (*CASCADES, *GEMMS, "chain", "dK dV", "dK dV by mma.sync")
ORDERING = (Wait, Arrive, Free, Meet, Own, Exchange, PingPong, Written, Count, Prepare, Reset)
MEANT = (Load, Clear, Convert, Store)  # that compute, and that something needs


@cache
def program(name: str) -> TileProgram:
    if name in CASCADES:
        made = class_of(CASCADES[name], Qr="bfloat16", Kr="bfloat16")
        return scheduled(*planned(made, *((64, 384) if name == "wide" else (128,))))
    if name.startswith("dK dV"):
        tiles = drafted("dK dV", GRADIENT, schedule="mma" if "mma.sync" in name else "tensor").tiles
        assert tiles is not None
        return tiles
    found: list[TileProgram] = []
    with pytest.MonkeyPatch.context() as patch:
        for kernel in (GemmKernel, ChainKernel):
            seen = type("Seen", (kernel,), {"__init__": _noted(kernel, found)})
            patch.setattr(passes, kernel.__name__, seen)
        if name == "chain":
            chain_cases.planned("relu", CHAIN, schedule="fused_prologue")
        else:
            text, sizes, options = GEMMS[name]
            gemm_cases.planned(text, sizes, target=H200, **options)
    return found[-1]


def _noted(kernel: type, found: list[TileProgram]) -> Callable[..., None]:
    def init(self: Any, made: Any, tiles: TileProgram) -> None:
        found.append(tiles)
        kernel.__init__(self, made, tiles)  # type: ignore[misc]

    return init


def without(made: TileProgram, op: Op) -> TileProgram:
    """The program without one operation, wherever that stands."""

    def body(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        return tuple(replace(x, body=body(x.body)) if isinstance(x, For) else x for x in ops if x is not op)

    behind = None if made.behind is None else without(made.behind, op)
    return replace(made, bodies={role: body(ops) for role, ops in made.bodies.items()}, behind=behind)


def operations(made: TileProgram, *kinds: type) -> Iterator[Op]:
    for ops in made.bodies.values():
        yield from (op for op in inner(ops) if isinstance(op, kinds))
    yield from () if made.behind is None else operations(made.behind, *kinds)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_that_orders_or_moves_can_be_left_out(name: str) -> None:
    made = program(name)
    assert not [*broken(made)]
    seen = [*operations(made, *ORDERING, *MEANT)]
    assert len(seen) >= 8
    passed = [next(iter(op.lines())) for op in seen if not [*broken(without(made, op))]]
    assert not passed


def test_every_kind_of_operation_is_left_out_of_a_program() -> None:
    seen = {type(op) for name in PROGRAMS for op in operations(program(name), Op)}
    assert seen >= {*ORDERING, *MEANT}


@pytest.mark.parametrize("name", PROGRAMS)
def test_registers_and_shared_memory_are_counted(name: str) -> None:
    """Tiles twice as large are refused by what they take, whatever the program says of it."""
    made = program(name)
    sums = [op.tile for op in operations(replace(made, behind=None), Mma) if isinstance(op, Mma)]
    boxes = [op.tile for op in operations(replace(made, behind=None), Load) if isinstance(op, Load) and op.box]
    for tile, word in ((sums[-1], "registers of a thread"), (boxes[-1], "bytes of shared memory")):
        t = made.tiles[tile]
        forged = replace(t, lengths=tuple(8 * n for n in t.lengths))
        assert any(word in why for why in broken(replace(made, tiles={**made.tiles, tile: forged}))), tile
    assert any("more than" in why for why in broken(made.knows(**{"registers for tiles": 300})))
    assert any("more than" in why for why in broken(made.knows(**{"shared bytes": 240 << 10})))
    nowhere = {**made.tiles, sums[0]: replace(made.tiles[sums[0]], home=Home.TENSOR)}
    assert any("no home" in why for why in broken(replace(made, tiles=nowhere)))


def test_what_peers_push_lies_in_their_reach_and_arrives_by_an_exchange() -> None:
    made = program("split")
    (found,) = operations(made, Exchange)
    assert isinstance(found, Exchange)
    place = made.tiles[found.through[0]]
    assert place.home is Home.PEER

    def forged(**changes: Any) -> list[str]:
        return [*broken(replace(made, tiles={**made.tiles, place.name: replace(place, **changes)}))]

    assert any("in no peer's reach" in why for why in forged(home=Home.SHARED))
    assert any("bytes of shared memory" in why for why in forged(lengths=tuple(64 * n for n in place.lengths)))
    apart = replace(found, through=())
    bodies = {r: tuple(apart if op is found else op for op in ops) for r, ops in made.bodies.items()}
    assert any("no exchange waits" in why for why in broken(replace(made, bodies=bodies)))
    read = Store("y", state(place.name, place.axes))
    bodies = {
        r: tuple(x for op in ops for x in ((op, read) if op is found else (op,))) for r, ops in made.bodies.items()
    }
    assert any("read where no exchange" in why for why in broken(replace(made, bodies=bodies)))


@pytest.mark.parametrize("name", ["kernel before", "chain"])
def test_a_stage_is_filled_ahead_with_what_waits_for_nobody(name: str) -> None:
    """The other operand is loaded behind the wait for who writes it; before it a law refuses that."""
    made = program(name)
    late = made if made.behind is None else made.behind
    first, wait, second, rest = late.bodies["producer"]
    assert isinstance(first, For) and isinstance(second, For) and (first.blocks, second.blocks) == ("filled", "filled")
    assert isinstance(wait, Written) and {*late.written.values()} == {wait.by}
    early = replace(late, bodies={**late.bodies, "producer": (first, second, wait, rest)})
    assert any("before it is written" in why for why in broken(early))


def test_a_prefetch_into_stages_that_are_not_free_is_refused() -> None:
    """All stages are free at first, and only then: a block that computes several tiles has to wait for them."""
    made = program("kernel before")
    several = replace(made, facts={k: x for k, x in made.facts.items() if k != "tiles of a block"})
    assert any("before its stage is free" in why for why in broken(several))


def test_roles_that_wait_for_each_other_are_seen() -> None:
    """A producer that loads in another order than consumers wait, with one stage less than that takes."""
    made = program("dK dV")
    tiles = {n: replace(t, stages=1) if n in made.ring else t for n, t in made.tiles.items()}
    less = replace(made, tiles=tiles)
    loop = next(op for op in made.bodies["consumers"] if isinstance(op, For))
    late = [op for op in loop.body if not isinstance(op, Arrive)]
    gives = [op for op in loop.body if isinstance(op, Arrive)]
    bodies = {
        role: tuple(replace(op, body=(*late[:1], *late[1:], *gives)) if op is loop else op for op in ops)
        for role, ops in less.bodies.items()
    }
    assert not any("waits for ever" in why for why in broken(replace(less, bodies=bodies)))
    twice = {
        role: tuple(replace(op, body=(*late[:1], *late)) if op is loop else op for op in ops)
        for role, ops in less.bodies.items()
    }
    assert any("waits for ever" in why for why in broken(replace(less, bodies=twice)))


def test_what_is_counted_is_written_and_waited_for() -> None:
    made = program("prologue")
    assert {*made.written.values()} == {Writer.PROLOGUE}
    other = replace(made, written={"nobody": Writer.PROLOGUE})
    assert any("waited for and not counted" in why for why in broken(other))
    assert any("counted for nobody" in why for why in broken(other))
