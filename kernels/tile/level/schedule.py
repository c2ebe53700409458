"""Order, waits and roles of tile programs, found by what operations read and write.

`overlapped` lets a block's last product run under what is done with the next block's scores; `waited` puts every wait
as late and every arrival as early as the operations allow; `parted` reads the producer's program off the waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from redalg.kernels.tile.level.cascade import PingPong
from redalg.kernels.tile.level.program import (
    Arrive,
    Clear,
    Convert,
    Exchange,
    For,
    Free,
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

# --- order -----------------------------------------------------------------------------------------------------------


def overlapped(body: Sequence[Op]) -> tuple[Op, ...]:
    """A product that ends a block starts behind the first one of the next block, and behind the loop for the last
    one."""
    found: list[Op] = []
    last: tuple[Op, ...] = ()
    for op in body:
        if isinstance(op, For):
            late, rest = _late(op.body)
            found.append(replace(op, body=rest if op.blocks == "first" else _started(rest, last)))
            last = late
            continue
        if isinstance(op, Store):
            found += last
            last = ()
        found.append(op)
    return tuple(found)


def _late(body: Sequence[Op]) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """The product at the end of a block, with its loads, and the rest."""
    end = body[-1]
    if not isinstance(end, Mma):
        return (), tuple(body)
    own = [op for op in body if isinstance(op, Load) and op.tile == end.right]
    return (*own, end), tuple(op for op in body[:-1] if op not in own)


def cleared_late(body: Sequence[Op]) -> tuple[Op, ...]:
    """A sum takes its registers when they are needed, behind the maps of the first block."""
    cleared = [op for op in body if isinstance(op, Clear)]
    found: list[Op] = []
    for op in (op for op in body if op not in cleared):
        if isinstance(op, For) and op.blocks == "first":
            end = next((k for k, x in enumerate(op.body) if isinstance(x, Convert)), len(op.body))
            op = replace(op, body=(*op.body[:end], *cleared, *op.body[end:]))
        found.append(op)
    return tuple(found)


def _started(body: Sequence[Op], last: Sequence[Op]) -> tuple[Op, ...]:
    """The last block's product behind the first one of this block."""
    first = next(k for k, op in enumerate(body) if isinstance(op, Mma)) + 1 if last else 0
    return (*body[:first], *last, *body[first:])


# --- pipeline --------------------------------------------------------------------------------------------------------


class _Waits:
    """Walks a program and says what has to be waited for before every operation, and what can be given back.

    ``there``: tiles whose stage has been waited for; ``held``: stages of every tile that have not been given back;
    ``flying``: products under way, with the stages they read, counted for every tile.
    """

    def __init__(self, program: TileProgram, together: bool) -> None:
        self.program, self.together, self.ring = program, together, program.ring
        loads = (op.tile for body in program.bodies.values() for op in inner(body) if isinstance(op, Load))
        self.order = tuple(dict.fromkeys(loads))
        self.own = {t: parts for t, parts in program.own.items() if set(parts) & set(self.order)}
        self.loaded = {*self.order, *self.own}
        self.there: set[str] = set()
        self.waited: Counter[str] = Counter()
        self.given: Counter[str] = Counter()
        self.flying: list[tuple[Mma, dict[str, int]]] = []

    @property
    def synchronous(self) -> bool:
        return self.program.facts.get("instruction") == "mma.sync"

    def part(self, tile: str) -> int | None:
        return self.program.tiles[tile].part

    def body(self, ops: Sequence[Op]) -> Iterator[Op]:
        for k, op in enumerate(ops):
            rest = ops[k + 1 :]
            if isinstance(op, For):
                yield from self._stay(ops[k:])
                yield replace(op, body=tuple(self._loop(op)))
                continue
            if isinstance(op, Load):
                self.there -= {op.tile, *(own for own, parts in self.own.items() if op.tile in parts)}
            elif not isinstance(op, Own):
                yield from self._before(op, ops[k:])
            yield op
            if isinstance(op, Mma):
                self.flying.append((op, {t: self.waited[t] for t in (op.left, op.right) if t in self.loaded}))
                yield from self._until(len(self.flying), rest) if self.synchronous else ()
            elif isinstance(op, Convert):
                yield from self._back((op.source,), rest)
            elif isinstance(op, Meet):
                self._arrived(part for own, parts in self.own.items() if own in self.there for part in parts)

    def _loop(self, op: For) -> Iterator[Op]:
        """A body after which as many products are under way as before it, whose stages others may have; none after a
        block of the stream: ptxas serialises products whose accumulators a loop carries."""
        before = len(self.flying)
        yield from self.body(op.body)
        if op.axis == self.program.stream:
            while self.flying:
                yield from self._until(self._of_a_part(), ())
        elif op.blocks != "first" and any(self.ring & {m.left, m.right} for m, _ in self.flying[before:]):
            yield from self._until(len(self.flying) - before, ())

    def _of_a_part(self) -> int:
        """The first products under way that read the same part of a block."""
        parts = [self.part(m.right) for m, _ in self.flying]
        return next((k for k, part in enumerate(parts) if part != parts[0]), len(parts))

    def _stay(self, rest: Sequence[Op]) -> Iterator[Op]:
        """What stays is waited for before the loops that read it."""
        read = dict.fromkeys(t for op in inner(rest) for t in op.reads if t in self.order and t not in self.ring)
        late = tuple(t for t in read if t not in self.there)
        if late:
            yield Wait(late)
            self._arrived(late)

    def _arrived(self, tiles: Iterable[str]) -> None:
        self.there |= set(tiles)
        self.waited.update(tiles)

    def _before(self, op: Op, rest: Sequence[Op]) -> Iterator[Op]:
        yield from self._full(op)
        ends = isinstance(op, Store | Exchange) and not any(isinstance(x, Mma) for x in rest)
        used = self._used(op, ends)
        busy = [k for k, (m, _) in enumerate(self.flying) if m.tile in used or m.left in used - self.loaded]
        if busy:
            yield from self._until(busy[-1] + 1, rest)
        if ends:
            yield from self._back([t for t in self.waited if t in self.there - self.ring - set(self.own)], ())

    def _full(self, op: Op) -> Iterator[Op]:
        """The wait for what an operation reads of loads."""
        late = tuple(t for t in op.reads if t in self.loaded and t not in self.there)
        if isinstance(op, Mma) and op.right in self.own and op.over != self.program.stream:
            yield Wait((op.right,), box=True)
        elif late:
            if self.synchronous or "barriers of a stage" in self.program.facts:  # one says that all of a block is there
                late = tuple(t for t in self.order if t in self.ring)
            yield Wait(late)
        self._arrived(late)

    def _used(self, op: Op, ends: bool) -> set[str]:
        """Tiles of which no product may be under way: those that add to one tile do so one after the other."""
        written = {m.tile for m, _ in self.flying}
        if isinstance(op, Mma):
            return {op.tile} if op.fresh else {op.left} & written
        return {*op.reads, *op.writes, *(written if ends else ())}

    def _until(self, count: int, rest: Sequence[Op]) -> Iterator[Op]:
        """Wait for the first products under way; stages that nobody reads any more go back."""
        ended, self.flying = self.flying[:count], self.flying[count:]
        if not self.synchronous:
            yield Wait(tuple(dict.fromkeys(m.tile for m, _ in ended)), True, len(self.flying))
        yield from self._back((t for m, _ in ended for t in (m.left, m.right) if t in self.ring), rest)

    def _back(self, tiles: Iterable[str], rest: Sequence[Op]) -> Iterator[Op]:
        tiles = dict.fromkeys(t for t in tiles if t in self.loaded)
        if self.together and self.ring & set(tiles):
            parts = {self.part(t) for t in tiles}
            tiles = dict.fromkeys((*(t for t in self.order if t in self.ring and self.part(t) in parts), *tiles))
        free = tuple(t for t in tiles if not self._read(t, rest))
        if free and (len(free) == len(tiles) or not self.together):
            yield Arrive(free)
            self.given.update(free)
            self.there -= {t for t in free if self.given[t] == self.waited[t]}

    def _read(self, tile: str, rest: Sequence[Op]) -> bool:
        """Whether the oldest stage of a tile is still read: by a product under way, or before it is loaded anew."""
        oldest = self.given[tile] + 1
        if any(stages.get(tile) == oldest for _, stages in self.flying):
            return True
        if oldest < self.waited[tile]:
            return False
        for op in inner(rest):
            if isinstance(op, Load) and op.tile == tile:
                return False
            if tile in op.reads:
                return True
        return False


def waited(program: TileProgram, together: bool = False) -> TileProgram:
    """The program with waits and arrivals in its one body. `together`: stages of all tiles of the stream go back with
    one arrival."""
    return program.with_body(tuple(_Waits(program, together).body(program.bodies["all"])))


# --- roles -----------------------------------------------------------------------------------------------------------


def parted(program: TileProgram, turns: bool, together: bool = False) -> TileProgram:
    """Producers that load whatever consumers wait for, in that order: boxes, and values that threads compute; and
    consumers, in `turns` where there are two. `together`: stages of the stream's tiles are free at once."""
    whole = program.bodies["all"]
    loads = [op for op in inner(whole) if isinstance(op, Load)]
    boxes, values = ([op for op in loads if op.box is box] for box in (True, False))
    bodies = {
        "producer": merged(_loading(whole, boxes, program, together)),
        "values": merged(_loading(whole, values, program, together)),
        "consumers": in_turns(_without_loads(whole)) if turns else _without_loads(whole),
    }
    return replace(program, bodies={role: body for role, body in bodies.items() if body})


def _without_loads(body: Sequence[Op]) -> tuple[Op, ...]:
    kept = (op for op in body if not isinstance(op, Load))
    return tuple(replace(op, body=_without_loads(op.body)) if isinstance(op, For) else op for op in kept)


def _loading(body: Sequence[Op], loads: Sequence[Load], program: TileProgram, together: bool) -> tuple[Op, ...]:
    """Waits for tiles turned into what fills them, once their stage is free. `together`: the tiles of a part are."""
    found: list[Op] = []
    for op in body:
        if isinstance(op, For):
            inside = _loading(op.body, loads, program, together)
            if program.own and op.axis != program.stream:  # boxes of a tile, which is asked for at once
                found += [x for x in inside if x not in found]
            else:
                found += [replace(op, body=inside)] if inside else []
        elif isinstance(op, Wait) and not op.products:
            for group in _groups(op, loads, program, together):
                own = list(dict.fromkeys(x for t in group for x in loads if x.tile == t and x not in found))
                found += [Free(group), *own] if own else []
    return tuple(found)


def _groups(op: Wait, loads: Sequence[Load], program: TileProgram, together: bool) -> Iterator[tuple[str, ...]]:
    """What is filled for a wait: its tiles, or, `together`, all of the parts that they belong to."""
    tiles = tuple(part for t in op.tiles for part in program.own.get(t, (t,)))
    if not together or not set(tiles) <= program.ring:
        yield tiles
        return
    ring = dict.fromkeys(x.tile for x in loads if x.tile in program.ring)
    for part in dict.fromkeys(program.tiles[t].part for t in tiles):
        yield tuple(t for t in ring if program.tiles[t].part == part)


def merged(body: Sequence[Op]) -> tuple[Op, ...]:
    """Loops over the first block and over the others as one, where they load the same."""
    found: list[Op] = []
    for op in body:
        if isinstance(op, For):
            op = replace(op, body=merged(op.body))
            before = found[-1] if found else None
            if isinstance(before, For) and (before.blocks, op.blocks) == ("first", "other") and before.body == op.body:
                found[-1] = replace(op, blocks="every")
                continue
        found.append(op)
    return tuple(found)


def in_turns(body: Sequence[Op]) -> tuple[Op, ...]:
    """Products of a block that begin with scores, in a warpgroup's turn: the other one maps meanwhile."""
    return tuple(_in_turns(op) if isinstance(op, For) else op for op in body)


def _in_turns(op: For) -> For:
    body = op.body
    first = next((k for k, x in enumerate(body) if isinstance(x, Mma) and x.fresh), None)
    if first is None:
        return op
    end = first + 1
    while end < len(body) and (isinstance(x := body[end], Mma) or isinstance(x, Wait) and not x.products):
        end += 1
    return replace(op, body=(*body[:first], PingPong(True), *body[first:end], PingPong(False), *body[end:]))
