"""Laws between roles: whoever waits goes on, what others write is waited for, and parts of sums are put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from redalg.graph.node import walk
from redalg.kernels.ir.program import Let
from redalg.kernels.tile.level.cascade import PingPong, Reduce, Rows, Scale
from redalg.kernels.tile.level.grid import DONE, LAST, ONCE, Count, Prepare, Reset, Writer, Written
from redalg.kernels.tile.level.program import (
    Arrive,
    Exchange,
    For,
    Free,
    Load,
    Mma,
    Op,
    Store,
    TileProgram,
    Wait,
    inner,
)


def run(body: tuple[Op, ...], blocks: int, stages: int = 1) -> Iterator[Op]:
    """The operations in the order of so many blocks of every loop, those around it included; `stages` filled ahead."""
    counts = {"every": blocks, "first": 1, "other": blocks - 1, "filled": min(stages, blocks)}
    counts["behind"] = blocks - counts["filled"]
    for op in body:
        if not isinstance(op, For):
            yield op
            continue
        for _ in range(counts[op.blocks]):
            yield from run(op.body, blocks, stages)


class _Rings:
    """Stages of every tile: how often they were asked for, loaded, waited for and given back."""

    def __init__(self, program: TileProgram, once: bool) -> None:
        self.program, self.own = program, program.own
        ops = [op for body in program.bodies.values() for op in inner(body)]
        self.sources: dict[str, set[Load]] = {}
        for op in ops:
            if isinstance(op, Load):
                self.sources.setdefault(op.tile, set()).add(op)
        self.asked = Counter({t: program.tiles[t].stages if once else 0 for t in self.sources})
        self.loaded: Counter[Load] = Counter()
        self.waited: Counter[str] = Counter()
        self.given: Counter[str] = Counter()

    def filled(self, tile: str) -> int:
        return min(self.loaded[op] for op in self.sources[tile])

    def parts(self, op: Wait) -> list[str]:
        """Tiles whose next stage a wait is for."""
        every = [part for t in op.tiles for part in self.own.get(t, (t,)) if part in self.sources]
        return [t for t in every if not op.box or self.waited[t] == self.given[t]]

    def ready(self, op: Op) -> bool:
        if isinstance(op, Free):
            begun = {t: max(self.loaded[x] for x in self.sources[t]) for t in op.tiles if t in self.sources}
            return all(n - self.given[t] < self.program.tiles[t].stages for t, n in begun.items())
        return not isinstance(op, Wait) or op.products or all(self.filled(t) > self.waited[t] for t in self.parts(op))

    def step(self, op: Op) -> Iterator[str]:
        if isinstance(op, Free):
            self.asked.update(op.tiles)
        elif isinstance(op, Arrive):
            self.given.update(op.tiles)
        elif isinstance(op, Wait) and not op.products:
            self.waited.update(self.parts(op))
        elif isinstance(op, Load):
            self.loaded[op] += 1
            if self.loaded[op] > self.asked[op.tile]:
                yield f"{op.tile} is loaded before its stage is free"


def stuck(program: TileProgram) -> Iterator[str]:
    """Roles that wait for each other, and stages that are loaded and not waited for, or before they are free: of two
    tiles of the result, one after the other, or of the only one that a block computes."""
    rings = _Rings(program, program.facts.get("tiles of a block") == 1)
    each = _unrolled(program)
    at, found = _ended(rings, each)
    yield from found
    waits = (op for ops in each.values() for op in ops if isinstance(op, Wait) and not op.products)
    needed = dict.fromkeys(part for op in waits for t in op.tiles for part in rings.own.get(t, (t,)))
    yield from (f"{t} is waited for and never loaded" for t in needed if t not in rings.sources)
    stopped = ((role, ops[at[role]]) for role, ops in each.items() if at[role] < len(ops))
    yield from (f"{role} waits for ever: {next(iter(op.lines()))}" for role, op in stopped)
    for t in rings.sources:
        if rings.filled(t) != rings.waited[t]:
            yield f"{t} is loaded {rings.filled(t)} times and waited for {rings.waited[t]} times"
    yield from _turns([*run(program.bodies.get("consumers", ()), 2)])
    last = inner(program.bodies.get(LAST, ()))
    if program.facts.get("blocks that share a chunk", 1) > 1 and not any(isinstance(op, Free) for op in last):
        yield "a block may end while others arrive at its barriers"


def _unrolled(program: TileProgram) -> dict[str, list[Op]]:
    """What every role does, in more blocks than there are stages, or in the only one."""
    stages = max((t.stages for t in program.tiles.values()), default=1)
    roles = {role: body for role, body in program.bodies.items() if role not in (ONCE, DONE, LAST)}
    loops = [op for op in inner(roles.get("consumers", ())) if isinstance(op, For)]
    blocks = stages + 2 if any(op.blocks != "first" for op in loops) else 1
    tiles = 1 if program.facts.get("tiles of a block") == 1 else 2
    return {role: [*run(body, blocks, stages)] * tiles for role, body in roles.items()}


def _ended(rings: _Rings, each: Mapping[str, list[Op]]) -> tuple[dict[str, int], dict[str, None]]:
    """How far every role gets, and the laws that are broken on the way."""
    at, found, going = dict.fromkeys(each, 0), dict[str, None](), True
    while going:
        going = False
        for role, ops in each.items():
            while at[role] < len(ops) and rings.ready(op := ops[at[role]]):
                found.update(dict.fromkeys(rings.step(op)))
                at[role] += 1
                going = True
    return at, found


def _turns(ops: list[Op]) -> Iterator[str]:
    """Every turn begins and ends."""
    turns = [op.begins for op in ops if isinstance(op, PingPong)]
    if turns != [True, False] * (len(turns) // 2):
        yield "a turn to multiply is not handed on"


# --- arrays in memory ------------------------------------------------------------------------------------------------


def unwritten(program: TileProgram) -> Iterator[str]:
    """Arrays that others write are waited for before they are read; who writes them in this launch counts it, and the
    counters are reset once nobody waits any more."""
    late = program.written
    producer = [*inner(program.bodies.get("producer", ()))]
    consumers = [*inner(program.bodies.get("consumers", ()))]
    yield from _early("producer", producer, {*late})
    kernel = {a for a, by in late.items() if by == Writer.KERNEL}
    yield from _early("consumers", consumers, kernel)
    counted = any(by != Writer.KERNEL for by in late.values())
    if counted != any(isinstance(op, Reset) for op in program.bodies.get(LAST, ())):
        yield "counters of the grid are not as they were when the launch ends"
    prepared = {a for op in program.bodies.get(ONCE, ()) if isinstance(op, Prepare) for a in op.arrays}
    yield from _uncounted(ONCE, program, prepared, {a for a, by in late.items() if by == Writer.PROLOGUE})
    if program.behind is not None:
        stored = {op.result for op in consumers if isinstance(op, Store)}
        met = {a for a, by in program.behind.written.items() if by == Writer.PRODUCT}
        yield from _uncounted(DONE, program, stored, met)


def _early(role: str, ops: list[Op], late: set[str]) -> Iterator[str]:
    """What a role reads before it waits for whoever writes it; its results, too, must not be written before."""
    for op in ops:
        if isinstance(op, Written):
            late = late - {*op.arrays}
        elif isinstance(op, Load):
            yield from (
                f"{role}: {n.attr.name} is loaded before it is written"
                for n in walk(op.source)
                if n.op == "tensor" and n.attr.name in late
            )
        elif isinstance(op, Store) and late:
            yield f"{role}: {op.result} is stored while {', '.join(sorted(late))} may still be written"
    if late and role == "producer":
        yield f"{role}: nobody waits until {', '.join(sorted(late))} is written"


def _uncounted(role: str, program: TileProgram, made: set[str], wanted: set[str]) -> Iterator[str]:
    """What is waited for and never counted, or counted and never written."""
    counted = {a for op in program.bodies.get(role, ()) if isinstance(op, Count) for a in op.arrays}
    for array in sorted(wanted ^ counted):
        yield f"{array} is waited for and not counted" if array in wanted else f"{array} is counted for nobody"
    yield from (f"{array} is counted and not written" for array in sorted(counted - made))


# --- parts of sums ---------------------------------------------------------------------------------------------------


def apart(program: TileProgram, body: tuple[Op, ...]) -> Iterator[str]:
    """Numbers that each consumer, or each block of a cluster, has a part of are exchanged before they are used: maxima
    before elements are compared with them, sums before they are stored."""
    split = program.facts.get("blocks that split the terms", 1) > 1
    side_by_side = program.facts.get("blocks that have parts of rows", 1) > 1
    if not (split or side_by_side or program.own):
        return
    part: set[str] = set()
    for op in run(body, 2):
        if isinstance(op, Exchange):
            part -= {*op.tiles}
        elif isinstance(op, Reduce):
            if not side_by_side:  # a block's own state is of its own maximum
                yield from (f"{t} is used before consumers exchange it" for t in op.reads if t in part)
            part |= {t for t in op.writes if t != op.weights}
        elif isinstance(op, Rows):
            _joined(op, part)
        elif isinstance(op, Mma):
            part |= {op.tile} if split else set()
        elif isinstance(op, Scale | Store):
            yield from (f"{t} is used before its parts are exchanged" for t in op.reads if t in part)


def _joined(op: Rows, part: set[str]) -> None:
    """What rows compute of a part is one, too."""
    for step in op.steps:
        names = (step.name,) if isinstance(step, Let) else step.names
        nodes = (step.node,) if isinstance(step, Let) else (*step.a, *step.b)
        mine = any(n.attr.name in part for n in walk(*nodes) if n.op == "state")
        part.difference_update(names)
        part.update(names if mine else ())
    for name in op.kept:
        part.discard(name)
        part.update({name} if name + op.end in part else ())
