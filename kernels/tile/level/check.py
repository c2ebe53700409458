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


def _waits(program: TileProgram, body: tuple[Op, ...]) -> Iterator[str]:
    """A wait before every use: of what is loaded, and of what products write or read."""
    loaded = {op.tile for b in program.bodies.values() for op in inner(b) if isinstance(op, Load)}
    stay = {t for t in loaded if program.tiles[t].stages == 1}
    arrived: set[tuple[str, int]] = set()
    flying: list[Mma] = []
    for op, block in _run(body):
        if isinstance(op, Wait):
            if op.products:
                flying = flying[len(flying) - op.under_way :] if op.under_way else []
            else:
                arrived |= {(t, 0 if t in stay else block) for t in op.tiles}
            continue
        if isinstance(op, Load | Arrive | Free):
            continue
        needed = (op.left, op.right) if isinstance(op, Mma) else op.reads
        late = [t for t in needed if t in loaded and (t, 0 if t in stay else block) not in arrived]
        if late:
            yield f"{late[0]} is read before it is waited for"
        busy = {m.tile for m in flying} | {m.left for m in flying if m.left not in loaded}
        if isinstance(op, Mma):
            busy -= {op.tile} if not op.fresh else set()
            needed = needed if op.fresh else (op.left,)
            busy -= {m.left for m in flying}
        used = [t for t in (*needed, *op.writes) if t in busy]
        if used:
            yield f"{used[0]} is used while a product of it is under way"
        if isinstance(op, Mma):
            flying.append(op)
        elif isinstance(op, Store) and flying:
            yield "results are stored while products are under way"


def _arrivals(program: TileProgram, body: tuple[Op, ...]) -> Iterator[str]:
    """An arrival after the last use: one for every block, when nothing that is under way, or to come, reads its
    stage."""
    loads = {op.tile for b in program.bodies.values() for op in inner(b) if isinstance(op, Load)}
    ring = {t for t in loads if program.tiles[t].stages > 1}
    given = 0
    flying: list[tuple[Mma, int]] = []
    for op, block in _run(body):
        if isinstance(op, Mma):
            if block <= given and op.right in ring:
                yield f"{op.right} is multiplied after its stage was given back"
            flying.append((op, block))
        elif isinstance(op, Wait) and op.products:
            flying = flying[len(flying) - op.under_way :] if op.under_way else []
        elif isinstance(op, Map) and block <= given:
            yield "a map reads a stage that was given back"
        elif isinstance(op, Arrive) and set(op.tiles) & ring:
            given += 1
            if set(op.tiles) != ring:
                yield "an arrival gives back a part of a stage"
            if any(other <= given and m.right in ring for m, other in flying):
                yield "a stage is given back while a product reads it"
    if given != 2:
        yield f"{given} arrivals for 2 blocks"


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
