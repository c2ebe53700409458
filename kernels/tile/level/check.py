"""The laws that tile programs keep, tested after every pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod

from redalg.errors import RedalgError
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.tile.level.program import (
    Arrive,
    Convert,
    Exchange,
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
from redalg.kernels.tile.level.progress import apart, run, stuck, unwritten

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
    body = program.bodies.get("consumers", program.bodies.get("all", ()))
    yield from _empty(program, body)
    yield from apart(program, body)
    if "producer" in program.bodies:
        yield from stuck(program)
        yield from unwritten(program)
    if program.behind is not None:
        yield from broken(program.behind)


def _names(program: TileProgram) -> Iterator[str]:
    """Every tile that is read is written by somebody, and every result is stored once."""
    ops = [op for body in program.bodies.values() for op in inner(body)]
    stored = Counter(op.result for op in ops if isinstance(op, Store))
    yield from (f"{r} is stored {stored[r]} times" for r in {*stored, *program.results} if stored[r] != 1)
    written = {t for op in ops for t in op.writes}
    for op in ops:
        for t in (*op.reads, *op.writes):
            if t not in program.tiles:
                yield f"{t} is no tile"
        missing = [t for t in op.reads if t not in written]
        if missing:
            yield f"{missing[0]} is read and never written"


def _empty(program: TileProgram, body: tuple[Op, ...]) -> Iterator[str]:
    """A tile is written before it is read, block after block, and after others have taken its place."""
    ops = [op for role in program.bodies.values() for op in inner(role)]
    there = {op.tile for op in ops if isinstance(op, Load)}
    there |= {t for t, parts in program.own.items() if there & {*parts}}
    for op in run(body, 2):
        yield from (f"{t} is read before anything is in it" for t in op.reads if t not in there)
        there.difference_update(op.replaces)
        there.update(() if isinstance(op, Own) else program.own.get(op.tile, ()) if isinstance(op, Meet) else op.writes)


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
    products = [op for body in program.bodies.values() for op in inner(body) if isinstance(op, Mma)]
    yield from _capacities(program, {op.tile for op in products}, registers, shared)
    yield from _operands(program, products)
    yield from _pushed(program)


def _operands(program: TileProgram, products: Iterable[Mma]) -> Iterator[str]:
    """Where products read and write."""
    tiles = program.tiles
    for op in products:
        if tiles[op.tile].home is not Home.ACCUMULATOR or tiles[op.right].home is not Home.SHARED:
            yield f"{op.tile} = {op.left} · {op.right} is not into an accumulator, from shared memory"
        if tiles[op.left].home not in (Home.LEFT, Home.SHARED):
            yield f"{op.left} is no left operand"


def _pushed(program: TileProgram) -> Iterator[str]:
    """What peers push into shared memory arrives by an exchange, and is read by nothing else."""
    ops = [op for body in program.bodies.values() for op in inner(body)]
    arriving = {t for op in ops if isinstance(op, Exchange) for t in op.through}
    peers = {t.name for t in program.tiles.values() if t.home is Home.PEER}
    yield from (f"{t} is exchanged through, and lies in no peer's reach" for t in sorted(arriving - peers))
    yield from (f"{t} is pushed by peers, and no exchange waits for it" for t in sorted(peers - arriving))
    yield from (f"{t} is read where no exchange waits for it" for op in ops for t in op.reads if t in peers)


def _capacities(program: TileProgram, sums: set[str], registers: int, shared: int) -> Iterator[str]:
    """Accumulators of products, and what is loaded, take no more than the program says. Other tiles may lie where one
    of these is not needed any more."""
    tiles = program.tiles
    threads = 128 * program.facts.get("consumers", 0) // max(map(len, program.own.values()), default=1)
    threads = threads or 32 * program.facts.get("warps", 0)
    need = sum(prod(tiles[t].lengths) // threads for t in sums) if threads else 0
    if need > registers:
        yield f"accumulators take {need} registers of a thread, and {registers} are for tiles"
    loaded = {op.tile for body in program.bodies.values() for op in inner(body) if isinstance(op, Load)}
    held = (t for t in tiles.values() if t.home is Home.PEER or t.home is Home.SHARED and t.name in loaded)
    size = sum(prod(t.lengths) * t.stages * STORAGE[t.dtype] for t in held)
    if size > shared:
        yield f"tiles take {size} bytes of shared memory, and the block has {shared}"


class _Shared:
    """What consumers have of each other. ``own``: names of what each has a part of; ``written``: those that are written
    and that consumers have not met for; ``read``: those whose parts are read, and whether they were given back since;
    ``boxes`` that have arrived and are not multiplied yet."""

    def __init__(self, program: TileProgram, loaded: set[str]) -> None:
        self.tiles, self.own = program.tiles, program.own
        self.stored = {t for t, parts in self.own.items() if not loaded & set(parts)}
        self.boxes: Counter[str] = Counter()
        self.written: set[str] = set()
        self.read: dict[str, str] = {}

    def step(self, op: Op, busy: set[str]) -> None:
        """`busy`: left operands of products under way."""
        if isinstance(op, Convert):
            self.written |= self.stored & {op.tile}
        elif isinstance(op, Meet):
            self.written.discard(op.tile)
        elif isinstance(op, Mma):
            self.boxes[op.right] -= 1
            self.read |= {t: "read" for t in self.stored if op.left in self.own[t]}
        elif isinstance(op, Arrive):
            self._given(op, busy)
        elif isinstance(op, Wait) and not op.products:
            self._filled(op)

    def _given(self, op: Arrive, busy: set[str]) -> None:
        parts = {self.tiles[t].part for t in op.tiles}
        of_it = {t: {p for p in self.own[t] if self.tiles[p].part in parts} for t in self.read}
        self.read |= {t: "given back" for t in of_it if not of_it[t] & busy}

    def _filled(self, op: Wait) -> None:
        self.boxes.update(op.tiles)
        if set(op.tiles) & set(self.own):
            self.read = {t: how for t, how in self.read.items() if how == "read"}

    def there(self) -> Iterator[tuple[str, str]]:
        """Where consumers meet: the names of what each has of its own, with every part of it."""
        yield from ((t, p) for t, parts in self.own.items() if t not in self.written for p in parts)

    def broken(self, op: Op) -> Iterator[str]:
        """Consumers meet between what one writes and another reads; boxes are waited for one by one; what a peer may
        still read is not written."""
        if isinstance(op, Mma):
            late = [t for t in self.written if op.left in self.own[t]]
            yield from (f"{op.left} is read before its consumer has written it" for _ in late)
            if op.right in self.own and self.boxes[op.right] < 1:
                yield f"a box of {op.right} is read before it is waited for"
        elif isinstance(op, Convert) and op.tile in self.read:
            yield f"{op.tile} is written while another consumer may read it"


class _Running:
    """What has arrived and what is under way, operation by operation. Stages of a tile are filled, read and given back
    in turns: ``waited`` and ``given`` count them. ``block``: of which block a tile is, by how many of them there were
    of what it was computed from. ``shared``: what consumers have of each other."""

    def __init__(self, program: TileProgram) -> None:
        loaded = {op.tile for b in program.bodies.values() for op in inner(b) if isinstance(op, Load)}
        self.shared = _Shared(program, loaded)
        mine = set(program.own) - self.shared.stored
        self.loaded, self.ring = loaded | mine, program.ring | mine
        self.synchronous = program.facts.get("instruction") == "mma.sync"
        self.waited: Counter[str] = Counter()
        self.given: Counter[str] = Counter()
        self.flying: list[tuple[Mma, dict[str, int]]] = []
        self.block: dict[str, int] = {}

    def parts(self, tile: str) -> tuple[str, ...]:
        return self.shared.own.get(tile, (tile,))

    def step(self, op: Op) -> None:
        if isinstance(op, Mma) and not self.synchronous:
            whole = {x: self.waited[t] for t in (op.left, op.right) for x in (t, *self.parts(t))}
            self.flying.append((op, {t: n for t, n in whole.items() if t in self.loaded}))
        elif isinstance(op, Wait) and op.products:
            self.flying = self.flying[len(self.flying) - op.under_way :] if op.under_way else []
        elif isinstance(op, Wait):
            self.waited.update(t for t in op.tiles if not op.box or self.waited[t] == self.back(t))
        elif isinstance(op, Arrive):
            self.given.update(op.tiles)
        self.shared.step(op, {m.left for m, _ in self.flying})
        self._known(op)

    def _known(self, op: Op) -> None:
        """Of which block an operation's results are."""
        for own, part in self.shared.there() if isinstance(op, Meet) else ():
            self.block[part], self.waited[part] = self.block.get(own, 0), max(self.waited[part], self.waited[own])
        if not isinstance(op, Wait | Arrive | Free | Own):
            read = [self.waited[t] if t in self.ring else self.block.get(t, 0) for t in op.reads]
            self.block |= dict.fromkeys(op.writes, max(read, default=0))

    def back(self, tile: str) -> int:
        """How many stages of a tile have been given back, of all its parts."""
        return min(self.given[t] for t in self.parts(tile))

    def late(self, tiles: Iterable[str]) -> list[str]:
        return [t for t in tiles if t in self.loaded and self.waited[t] == 0]

    def gone(self, tiles: Iterable[str]) -> list[str]:
        return [t for t in tiles if t in self.loaded and 0 < self.waited[t] <= self.back(t)]

    @property
    def busy(self) -> set[str]:
        """Tiles that products under way write, or read in registers."""
        products = [m for m, _ in self.flying]
        return {m.tile for m in products} | {m.left for m in products if m.left not in self.loaded}


def _waits(program: TileProgram, body: tuple[Op, ...]) -> Iterator[str]:
    """A wait before every use: of what is loaded, and of what products write or read. Operands are of one block."""
    running = _Running(program)
    for op in run(body, 3):
        if not isinstance(op, Load | Arrive | Free | Wait | Own):
            yield from (f"{t} is read before it is waited for" for t in running.late(op.reads))
            yield from (
                f"{', '.join(op.writes)} reads {t}, a stage that was given back" for t in running.gone(op.reads)
            )
            used = _used(op, running)
            yield from (f"{t} is used while a product of it is under way" for t in sorted(used & running.busy))
        yield from running.shared.broken(op)
        if isinstance(op, Mma) and {op.left, op.right} & running.ring:
            mine = [running.waited[t] if t in running.ring else running.block.get(t, 0) for t in (op.left, op.right)]
            if mine[0] and mine[0] != mine[1]:
                yield f"{op.tile} multiplies {op.left} and {op.right} of different blocks"
        if isinstance(op, Store) and running.flying:
            yield "results are stored while products are under way"
        running.step(op)


def _used(op: Op, running: _Running) -> set[str]:
    """What an operation may not find busy: products add to one tile one after the other."""
    if not isinstance(op, Mma):
        return {*op.reads, *op.writes}
    written = {m.tile for m, _ in running.flying}
    return {op.tile} if op.fresh else {op.left} & written


def _arrivals(program: TileProgram, body: tuple[Op, ...]) -> Iterator[str]:
    """An arrival after the last use: one for every stage, when nothing that is under way, or to come, reads it; tiles
    that are given back together are so always."""
    running = _Running(program)
    together: dict[str, tuple[str, ...]] = {}
    for op in run(body, 3):
        running.step(op)
        if not isinstance(op, Arrive):
            continue
        for t in op.tiles:
            if together.setdefault(t, op.tiles) != op.tiles:
                yield f"an arrival gives back a part of a stage, {t}"
            if running.given[t] > running.waited[t]:
                yield f"{t} is given back before it was filled"
            if any(stages.get(t, running.given[t] + 1) <= running.given[t] for _, stages in running.flying):
                yield f"a stage of {t} is given back while a product reads it"
    for t in sorted(set(running.waited) - set(running.shared.own)):
        if running.given[t] != running.waited[t]:
            yield f"{running.given[t]} arrivals for {running.waited[t]} stages of {t}"
