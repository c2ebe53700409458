"""The laws that tile programs keep, tested after every pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from redalg.errors import RedalgError
from redalg.kernels.tile.level.program import (
    Arrive,
    For,
    Free,
    Home,
    Load,
    Map,
    Mma,
    Op,
    Store,
    TileProgram,
    Wait,
    inner,
)

MOST_REGISTERS, MOST_SHARED = 240, 227 << 10
WHERE = "redalg.kernels.tile.level.check"


def check(program: TileProgram) -> None:
    """Raises: RedalgError for the first law that a tile program breaks."""
    for why in broken(program):
        raise RedalgError(f"the tile program {program.title[:60]}", WHERE, why, "report this: a pass is wrong")


def broken(program: TileProgram) -> Iterator[str]:
    """Every law that is broken, in words."""
    yield from _names(program)
    yield from _homes(program)
    if any(isinstance(op, Wait) for body in program.bodies.values() for op in inner(body)):
        body = program.bodies.get("consumers", program.bodies.get("all", ()))
        yield from _waits(program, body)
        yield from _arrivals(program, body)
    if "producer" in program.bodies:
        yield from _frees(program)


def _names(program: TileProgram) -> Iterator[str]:
    """Every tile that is read is written by somebody."""
    ops = [op for body in program.bodies.values() for op in inner(body)]
    written = {t for op in ops for t in op.writes}
    for op in ops:
        for t in (*op.reads, *op.writes):
            if t not in program.tiles:
                yield f"{t} is no tile"
        missing = [t for t in op.reads if t not in written]
        if missing:
            yield f"{missing[0]} is read and never written"


def _homes(program: TileProgram) -> Iterator[str]:
    """A home fits what it lies in; products take operands from where they can."""
    tiles = program.tiles
    if all(t.home is Home.UNPLACED for t in tiles.values()):
        return
    for t in tiles.values():
        if t.home in (Home.UNPLACED, Home.TENSOR) or len(t.lengths) != len(t.axes):
            yield f"{t.name} has no home that can be lowered"
    registers, shared = program.facts.get("registers for tiles", 0), program.facts.get("shared bytes", 0)
    if registers > MOST_REGISTERS or shared > MOST_SHARED:
        yield f"{registers} registers and {shared} bytes are more than a consumer and a block have"
    for op in (op for body in program.bodies.values() for op in inner(body) if isinstance(op, Mma)):
        if tiles[op.tile].home is not Home.ACCUMULATOR or tiles[op.right].home is not Home.SHARED:
            yield f"{op.tile} = {op.left} · {op.right} is not into an accumulator, from shared memory"
        if tiles[op.left].home not in (Home.LEFT, Home.SHARED):
            yield f"{op.left} is no left operand"


def _run(body: tuple[Op, ...], blocks: int = 2) -> Iterator[tuple[Op, int]]:
    """The operations of so many blocks and those around them, each with the block that it belongs to."""
    for op in body:
        if not isinstance(op, For):
            yield op, blocks
            continue
        for block in range(1, blocks + 1):
            yield from ((x, block) for x in op.body)


class _Running:
    """What has arrived and what is under way, operation by operation."""

    def __init__(self, program: TileProgram) -> None:
        self.loaded = {op.tile for b in program.bodies.values() for op in inner(b) if isinstance(op, Load)}
        self.ring = {t for t in self.loaded if program.tiles[t].stages > 1}
        self.arrived: set[tuple[str, int]] = set()
        self.flying: list[tuple[Mma, int]] = []
        self.given = 0

    def step(self, op: Op, block: int) -> None:
        if isinstance(op, Mma):
            self.flying.append((op, block))
        elif isinstance(op, Wait) and op.products:
            self.flying = self.flying[len(self.flying) - op.under_way :] if op.under_way else []
        elif isinstance(op, Wait):
            self.arrived |= {self.of(t, block) for t in op.tiles}
        elif isinstance(op, Arrive) and set(op.tiles) & self.ring:
            self.given += 1

    def of(self, tile: str, block: int) -> tuple[str, int]:
        return tile, block if tile in self.ring else 0

    def late(self, tiles: Iterable[str], block: int) -> list[str]:
        return [t for t in tiles if t in self.loaded and self.of(t, block) not in self.arrived]

    @property
    def busy(self) -> set[str]:
        """Tiles that products under way write, or read in registers."""
        return {m.tile for m, _ in self.flying} | {m.left for m, _ in self.flying if m.left not in self.loaded}


def _waits(program: TileProgram, body: tuple[Op, ...]) -> Iterator[str]:
    """A wait before every use: of what is loaded, and of what products write or read."""
    running = _Running(program)
    for op, block in _run(body):
        if not isinstance(op, Load | Arrive | Free | Wait):
            yield from (f"{t} is read before it is waited for" for t in running.late(op.reads, block))
            used = _used(op, running)
            yield from (f"{t} is used while a product of it is under way" for t in sorted(used & running.busy))
        if isinstance(op, Store) and running.flying:
            yield "results are stored while products are under way"
        running.step(op, block)


def _used(op: Op, running: _Running) -> set[str]:
    """What an operation may not find busy: products add to one tile one after the other."""
    if not isinstance(op, Mma):
        return {*op.reads, *op.writes}
    written = {m.tile for m, _ in running.flying}
    return {op.tile} if op.fresh else {op.left} & written


def _arrivals(program: TileProgram, body: tuple[Op, ...]) -> Iterator[str]:
    """An arrival after the last use: one for every block, when nothing that is under way, or to come, reads its
    stage."""
    running = _Running(program)
    for op, block in _run(body):
        before = running.given
        running.step(op, block)
        if running.given > before:
            yield from _given_back(op, running)
        elif isinstance(op, Mma | Map) and block <= running.given and set(op.reads) & running.ring:
            yield f"{', '.join(op.writes)} reads a stage that was given back"
    if running.given != 2:
        yield f"{running.given} arrivals for 2 blocks"


def _given_back(op: Op, running: _Running) -> Iterator[str]:
    if isinstance(op, Arrive) and set(op.tiles) != running.ring:
        yield "an arrival gives back a part of a stage"
    if any(block <= running.given and m.right in running.ring for m, block in running.flying):
        yield "a stage is given back while a product reads it"


def _frees(program: TileProgram) -> Iterator[str]:
    """A producer loads into a stage only after it was free."""
    for role, body in program.bodies.items():
        if role == "consumers":
            continue
        free: set[str] = set()
        for op in inner(body):
            if isinstance(op, Free):
                free |= set(op.tiles)
            elif isinstance(op, Load) and op.tile not in free:
                yield f"{role} loads {op.tile} before its stage is free"
