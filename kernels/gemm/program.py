"""A matrix product as a tile program: chunks of both operands come, are multiplied, and sums become results.

The loop is over chunks of the terms; a block computes tile after tile of rows and columns. By mma.sync all threads load
and multiply, and there are no roles. Several right operands of one left operand are several products of a chunk.
`promoted` sums leave the tensor cores after every chunk. Waits, arrivals and the producer's program are found by the
passes of `redalg.kernels.tile.level.schedule`, and held to the same laws as those of cascades
(`redalg.kernels.tile.level.check`). `on_grid` says who waits for what others write to memory: rows that all warpgroups
prepare first, the kernel before, the first product of a chain. While that is under way stages are filled with right
operands, which wait for nobody (a prefetch).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from redalg.graph.node import Node, add, state, substitute, tensor, walk
from redalg.kernels.gemm.match import sums_of
from redalg.kernels.ir.program import First, Let, Loop
from redalg.kernels.tile.level.cascade import Reduce, Rows
from redalg.kernels.tile.level.check import check
from redalg.kernels.tile.level.grid import DONE, LAST, ONCE, Count, Follow, Prepare, Reset, Writer, Written
from redalg.kernels.tile.level.program import (
    Clear,
    Exchange,
    For,
    Free,
    Home,
    Load,
    Map,
    Mma,
    Op,
    Store,
    Tile,
    TileProgram,
)
from redalg.kernels.tile.level.schedule import parted, waited
from redalg.source.names import COUNTS

if TYPE_CHECKING:
    from redalg.kernels.gemm.kernel import Gemm
    from redalg.kernels.gemm.row_states import RowStates
    from redalg.kernels.gemm.tiles import GemmPlan

TOTALS = "T"  # sums that have left the tensor cores


def sums_named(plan_products: int) -> list[str]:
    """The tiles of sums, of every product."""
    return [f"S{k + 1}" if k else "S" for k in range(plan_products)]


def derived(made: Gemm) -> TileProgram:
    """The program in plain order, with homes and lengths."""
    p, row = made.plan, " ".join(made.rows)
    tiles, loads = _operands(made, row)
    left, *rights = tiles
    sums = sums_named(p.products)
    products = [Mma(s, left, right, made.stream, True) for s, right in zip(sums, rights, strict=True)]
    whole = Tile("", (row, made.column), "float32", Home.ACCUMULATOR, (p.rows, p.columns))
    named = [*sums, *([TOTALS] if p.promoted else [])]
    tiles |= {s: Tile(s, whole.axes, whole.dtype, whole.home, whole.lengths) for s in named}
    body: tuple[Op, ...] = tuple(_chunks(made, loads, products, row))
    if p.split > 1:
        pushed = tuple(f"{s} of peers" for s in sums)  # of every block its own columns, for all blocks of the split
        tiles |= {name: Tile(name, whole.axes, whole.dtype, Home.PEER, whole.lengths) for name in pushed}
        over = "blocks of the cluster, columns shared out"
        body = (*body, Exchange(tuple(sums), ("sum",) * len(sums), over, pushed))
    if made.states is not None:
        reduced = tuple(_reduced(made, made.states, row))
        tiles |= _states(reduced, tiles, row, p)
        body = (*body, *reduced)
    body = (*body, *(Store(r.name, _result(made, r.node, row)) for r in made.program.results))
    facts = {
        "consumers": p.consumers,
        "registers for tiles": p.sums,
        "shared bytes": p.size,
        "barriers of a stage": "one full, one free",
    }
    facts |= {"instruction": p.instruction} if p.instruction != "wgmma" else {}
    facts |= {"blocks that split the terms": p.split} if p.split > 1 else {}
    facts |= {"blocks that share a chunk": p.sharing.blocks} if p.sharing.blocks > 1 else {}
    facts |= {"blocks that have parts of rows": p.meeting} if p.meeting > 1 else {}
    axes, results = (row, made.column, made.batch), tuple(r.name for r in made.program.results)
    return TileProgram(made.program.title, *axes, tiles, {"all": body}, None, facts, results=results)


def _operands(made: Gemm, row: str) -> tuple[dict[str, Tile], tuple[Load, ...]]:
    """Tiles of a chunk of the left operand and of the right ones, and what loads them."""
    p, tiles, loads = made.plan, dict[str, Tile](), []
    held = {o.name: o.axes for o in made.program.operands}
    for k, m in enumerate(made.maps[: p.products + 1]):
        name = m.operand
        while name in tiles or name in (TOTALS, *sums_named(p.products)):
            name += "_"
        axis, length = (made.column, p.columns) if k else (row, p.left_rows)
        axes, lengths = (axis, made.stream), (length, p.chunk)
        if p.flat if k else p.left_flat:
            axes, lengths = axes[::-1], lengths[::-1]
        tiles[name] = Tile(name, axes, p.kinds[min(k, 1)], Home.SHARED, lengths, p.stages)
        loads.append(Load(name, tensor(m.operand, held.get(m.operand, (*made.batch, *axes)))))
    return tiles, tuple(loads)


def _chunks(made: Gemm, loads: tuple[Load, ...], products: list[Mma], row: str) -> list[Op]:
    """The loop over chunks of terms: the first one overwrites sums, or every one is added to what begins with 0."""
    p, axes = made.plan, (row, made.column)
    if p.promoted:
        total = Map(((TOTALS, add(state(TOTALS, axes), state(products[0].tile, axes))),))
        return [Clear(TOTALS), For(made.stream, (*loads, *products, total))]
    more = tuple(Mma(m.tile, m.left, m.right, m.over, False) for m in products)
    if p.instruction == "mma.sync":
        return [*(Clear(m.tile) for m in products), For(made.stream, (*loads, *more))]
    first = For(made.stream, (*loads, *products), "", "first")
    return [first, For(made.stream, (*loads, *more), "", "other")] if p.own_chunks > 1 else [first]


def _result(made: Gemm, node: Node, row: str) -> Node:
    """A result over the tiles of sums."""
    names = [TOTALS] if made.plan.promoted else sums_named(made.plan.products)
    tiles = {sums_of(k): state(name, (row, made.column)) for k, name in enumerate(names)}
    leaves = {n: tiles[n.attr.name] for n in walk(node) if n.op == "state" and n.attr.name in tiles}
    return _counted(substitute(node, dict(leaves), raw=True), made.column)


# --- rows that are reduced -------------------------------------------------------------------------------------------


def _reduced(made: Gemm, states: RowStates, row: str) -> Iterator[Op]:
    """What rows are reduced to, of the values in the place of the sums: the state of a block's columns, and, where rows
    lie in several, that of all."""
    (sums,), value = sums_named(1), states.value
    assert value is not None
    if value.op != "state":
        yield Map(((sums, _result(made, value, row)),))
    for step in states.steps(states.walk.lift):
        if isinstance(step, Loop):
            bodies = tuple(_result(made, b, row) for f in step.folds for b in f.bodies)
            yield Reduce(sums, step, bodies, (), "", True)
        elif isinstance(step, Let | First):
            yield Rows((Let(step.name, _result(made, step.node, row)),), (), "")
    parts = tuple(p.name for p in states.walk.parts)
    own = tuple(f"{name}_b" for name in parts)
    if made.plan.meeting > 1:
        over, through = "blocks of the cluster, by the form's combine", tuple(f"{name} of peers" for name in parts)
        yield Exchange(own, ("merge",) * len(own), over, through)
    yield Rows((), parts, "_b")


def _counted(node: Node, column: str) -> Node:
    """A node with the number of elements as the length of the columns."""
    counts = [n for n in walk(node) if n.op == "state" and n.attr.name in COUNTS]
    return substitute(node, dict.fromkeys(counts, Node("size", (), column)), raw=True)


def _states(ops: Sequence[Op], tiles: Mapping[str, Tile], row: str, plan: GemmPlan) -> dict[str, Tile]:
    """Numbers of rows as tiles, and where those of peers arrive."""
    names = dict.fromkeys(name for op in ops for name in op.writes if name not in tiles)
    pushed = {name for op in ops if isinstance(op, Exchange) for name in op.through}
    own = Tile("", (row,), "float32", Home.ROW, (plan.rows,))
    peers = replace(own, axes=("blocks", row), home=Home.PEER, lengths=(plan.meeting, plan.rows), stages=2)
    return {name: replace(peers if name in pushed else own, name=name) for name in names}


# --- across the grid -------------------------------------------------------------------------------------------------


def on_grid(program: TileProgram, made: Gemm) -> TileProgram:
    """Waits for what others write to memory, what is loaded meanwhile, and what is counted for others."""
    roles = {ONCE: _once(made), **program.bodies, DONE: _done(made), LAST: _last(made, program)}
    if made.late:
        wait, early = Written(tuple(made.late), next(iter(made.late.values()))), made.plan.early
        roles["producer"] = _prefill(roles["producer"], wait) if early else (wait, *roles["producer"])
        if wait.by is Writer.KERNEL:
            roles["consumers"] = (wait, *roles["consumers"])
            program = program.knows(**{"tiles of a block": 1})
    return replace(program, bodies={role: ops for role, ops in roles.items() if ops}, written=made.late)


def _once(made: Gemm) -> tuple[Op, ...]:
    """What every warpgroup does before its first tile."""
    rows = tuple(a for a, by in made.late.items() if by is Writer.PROLOGUE)
    first: tuple[Op, ...] = (Follow(),) if made.plan.followed else ()
    return (*first, Prepare(rows), Count(rows)) if rows else first


def _done(made: Gemm) -> tuple[Op, ...]:
    """What consumers do when they have no more tiles."""
    return (Count(made.counted),) if made.counted else ()


def _last(made: Gemm, program: TileProgram) -> tuple[Op, ...]:
    """What the producer does when it has no more tiles. Consumers of other blocks arrive at barriers of this one, which
    have to outlive that."""
    counted = any(by is not Writer.KERNEL for by in made.late.values())
    ring = tuple(t for t in program.tiles if t in program.ring)
    drained = (For(made.stream, (Free(ring),), "", "filled"),) if made.plan.sharing.blocks > 1 else ()
    return (*((Reset(),) if counted else ()), *drained)


def _prefill(body: tuple[Op, ...], wait: Written) -> tuple[Op, ...]:
    """Stages filled with what waits for nobody; then the rest of them, and the others. Where a block waits for the
    kernel before it computes one tile, and all stages are free."""
    (loop,) = body
    assert isinstance(loop, For)
    left, *rights = (op for op in loop.body if isinstance(op, Load))
    free = [op for op in loop.body if isinstance(op, Free)] if wait.by is Writer.PRODUCT else []
    stages = replace(loop, body=(*free, *rights), blocks="filled")
    return (stages, wait, replace(stages, body=(left,)), replace(loop, blocks="behind"))


def scheduled(made: Gemm) -> TileProgram:
    """The program after all passes, each of which keeps its laws."""
    program = derived(made)
    last = (lambda x: x) if made.plan.instruction == "mma.sync" else lambda x: on_grid(parted(x, False, True), made)
    for change in (lambda x: x, lambda x: waited(x, True), last):
        program = change(program)
        check(program)
    return program


def chained(first: Gemm, second: Gemm) -> TileProgram:
    """Two products, one after the other: all blocks meet between them."""
    program = replace(scheduled(first), behind=scheduled(second))
    check(program)
    return program
