"""Tile programs as data: what is computed on tiles of matrices, between an `ir.Program` and statements.

A tile has axes, a dtype and a *home*. Operations read and write whole tiles; who computes them, and how far ahead, is
added by passes (`redalg.kernels.tile.level.passes`): waits, arrivals, stages, roles. Nodes of the graph stand for what
is done with elements; a tile is a leaf ``state(name, axes)`` in them.

>>> from redalg.graph.node import state, fn
>>> scores = state("S", ("i", "j"))
>>> print("\\n".join(Map((("P", fn("exp", scores)),)).lines()))
P <- map(exp(S[i,j]))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from redalg.graph.node import Node
from redalg.text.nodes import short


class Home(StrEnum):
    """Where a tile lies. `TENSOR` (compute capability 10.0) has its place here and no lowering."""

    UNPLACED = "unplaced"
    ACCUMULATOR = "accumulator"
    LEFT = "left operand"
    ROW = "registers of a row's threads"
    SHARED = "shared memory"
    PEER = "shared memory, pushed there by peers of the cluster"
    TENSOR = "tensor memory"
    MEMORY = "memory"


@dataclass(frozen=True)
class Tile:
    """`axes` in order, the contiguous one last; `lengths` of them, once tiles have sizes; `stages` it is held in.
    `boxes` of 64 columns that arrive one by one; `part` of a block: each consumer has one, parts come and go alone."""

    name: str
    axes: tuple[str, ...]
    dtype: str
    home: Home = Home.UNPLACED
    lengths: tuple[int, ...] = ()
    stages: int = 1
    boxes: int = 1
    part: int | None = None

    def text(self) -> str:
        sides = self.lengths or ("",) * len(self.axes)
        shape = ", ".join(f"{a}:{n}" if n else a for a, n in zip(self.axes, sides, strict=True))
        where = f" in {self.home.value}" if self.home is not Home.UNPLACED else ""
        counts = ((self.stages, "stages"), (self.boxes, "boxes"))
        return f"{self.name}[{shape}] {self.dtype}{where}" + "".join(f", {n} {what}" for n, what in counts if n > 1)


class Op:
    """An operation of a tile program."""

    def lines(self) -> Iterator[str]:
        raise NotImplementedError

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    @property
    def writes(self) -> tuple[str, ...]:
        return ()

    @property
    def replaces(self) -> tuple[str, ...]:
        """Tiles in whose registers it writes others, so that they are there no more."""
        return ()


def _tiles(*nodes: Node) -> tuple[str, ...]:
    from_leaves = [n.attr.name for node in nodes for n in _leaves(node)]
    return tuple(dict.fromkeys(from_leaves))


def _leaves(node: Node) -> Iterator[Node]:
    seen: set[Node] = set()
    stack = [node]
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            stack += n.args
            if n.op == "state":
                yield n


@dataclass(frozen=True)
class Load(Op):
    """``tile <- source``: a box of a tensor by the copy engine, or, where the source is no tensor of 16 bits, values
    that threads compute from memory."""

    tile: str
    source: Node
    box: bool = True

    def lines(self) -> Iterator[str]:
        yield f"{self.tile} <- {'load' if self.box else 'values'} {short(self.source)}"

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.tile,)


@dataclass(frozen=True)
class Mma(Op):
    """``tile (+)= left · right``, contracted over an axis; asynchronous once programs are pipelined."""

    tile: str
    left: str
    right: str
    over: str
    fresh: bool

    def lines(self) -> Iterator[str]:
        yield f"{self.tile} {'=' if self.fresh else '+='} {self.left} · {self.right} over {self.over}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.left, self.right) if self.fresh else (self.left, self.right, self.tile)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.tile,)


@dataclass(frozen=True)
class Map(Op):
    """Elements of tiles from those of others, all at once: a target may be one that is read. `guarded`: targets that
    are 0 where there is no element. `values`: tiles of the stream's values that are parts of its nodes."""

    targets: tuple[tuple[str, Node], ...]
    guarded: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        for tile, node in self.targets:
            guard = "; 0 beyond the end" if tile in self.guarded else ""
            yield f"{tile} <- map({short(node)}){guard}"
        if self.values:
            yield f"  with {', '.join(self.values)}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (*_tiles(*(node for _, node in self.targets)), *self.values)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(tile for tile, _ in self.targets)


@dataclass(frozen=True)
class Clear(Op):
    tile: str

    def lines(self) -> Iterator[str]:
        yield f"{self.tile} <- 0"

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.tile,)


@dataclass(frozen=True)
class Convert(Op):
    """``tile <- source`` in another home or dtype, rounded once."""

    tile: str
    source: str

    def lines(self) -> Iterator[str]:
        yield f"{self.tile} <- convert {self.source}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.tile,)


@dataclass(frozen=True)
class Store(Op):
    """``result <- node`` over tiles that are complete."""

    result: str
    node: Node

    def lines(self) -> Iterator[str]:
        yield f"store {self.result} <- {short(self.node)}"

    @property
    def reads(self) -> tuple[str, ...]:
        return _tiles(self.node)


@dataclass(frozen=True)
class Wait(Op):
    """Until loads of these tiles have arrived, or the next box of them; or, of products, all but the last `under_way`
    have ended."""

    tiles: tuple[str, ...]
    products: bool = False
    under_way: int = 0
    box: bool = False

    def lines(self) -> Iterator[str]:
        more = f", {self.under_way} under way" if self.under_way else ", its next box" if self.box else ""
        yield f"wait {'products' if self.products else 'full'} {', '.join(self.tiles)}{more}"


@dataclass(frozen=True)
class Arrive(Op):
    """The stage that these tiles lie in may be filled again."""

    tiles: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield f"arrive free {', '.join(self.tiles)}"


@dataclass(frozen=True)
class Free(Op):
    """Until the stage of these tiles may be filled (the producer's wait)."""

    tiles: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield f"wait free {', '.join(self.tiles)}"


@dataclass(frozen=True)
class Own(Op):
    """`tile` is one of `parts`, by consumer: consumers that share rows differ in nothing else."""

    tile: str
    parts: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield f"{self.tile} is this consumer's of {', '.join(self.parts)}"

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.tile, *self.parts)


@dataclass(frozen=True)
class Meet(Op):
    """Until all consumers are here: what each has written to its part of `tile`, or waited for, is there for all."""

    tile: str

    def lines(self) -> Iterator[str]:
        yield f"meet, {self.tile} of every consumer is there"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.tile,)


@dataclass(frozen=True)
class Exchange(Op):
    """Numbers of rows, or sums, joined with those of the others that have a part of the rows, or of the terms;
    ``through``: where those of other blocks arrive, of each tile (`Home.PEER`)."""

    tiles: tuple[str, ...]
    kinds: tuple[str, ...]
    over: str = "consumers"
    through: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        places = [f", through {place}" for place in self.through] or [""] * len(self.tiles)
        for tile, kind, place in zip(self.tiles, self.kinds, places, strict=True):
            yield f"{tile} <- {kind} of {tile} over {self.over}{place}"

    @property
    def reads(self) -> tuple[str, ...]:
        return self.tiles

    @property
    def writes(self) -> tuple[str, ...]:
        return (*self.tiles, *self.through)


WHICH = {
    "every": "",
    "first": "first block of ",
    "other": "others of ",
    "filled": "as many as stages of ",
    "behind": "those behind the stages of ",
}


@dataclass(frozen=True)
class For(Op):
    """Blocks of the stream, those left out that a condition empties: every one, the first alone, or the others; or as
    many as there are stages, filled ahead, and those behind them."""

    axis: str
    body: tuple[Op, ...]
    skips: str = ""
    blocks: Literal["every", "first", "other", "filled", "behind"] = "every"

    def lines(self) -> Iterator[str]:
        skip = f", skip {self.skips}" if self.skips else ""
        yield f"for {self.axis} in {WHICH[self.blocks]}stream({self.axis}{skip}) {{"
        yield from (f"  {line}" for op in self.body for line in op.lines())
        yield "}"


@dataclass(frozen=True)
class TileProgram:
    """A body for every role: one ("all") before the pass "roles", a producer's and the consumers' after it. `written`:
    arrays in memory that somebody writes before, and who does; `results`: each is stored once; `behind`: what the same
    blocks compute after it."""

    title: str
    row: str
    stream: str
    batch: tuple[str, ...]
    tiles: Mapping[str, Tile]
    bodies: Mapping[str, tuple[Op, ...]]
    condition: Node | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    behind: TileProgram | None = None

    def text(self) -> str:
        """As `dump_after` prints it."""
        lines = [self.title, *(f"tile {t.text()}" for t in self.tiles.values())]
        lines += [f"{key}: {value}" for key, value in self.facts.items()]
        more = [] if self.behind is None else ["then", self.behind.text()]
        return "\n".join([*lines, *self.roles(), *more])

    def roles(self) -> Iterator[str]:
        """What every role does."""
        for role, body in self.bodies.items():
            yield f"{role} {{"
            yield from (f"  {line}" for op in body for line in op.lines())
            yield "}"

    @property
    def ring(self) -> set[str]:
        """Tiles that are loaded for every block, or for every part of one."""
        loops = (op for body in self.bodies.values() for op in body if isinstance(op, For))
        return {op.tile for loop in loops for op in inner(loop.body) if isinstance(op, Load)}

    @property
    def own(self) -> dict[str, tuple[str, ...]]:
        """The parts of which each consumer has one, by the name it has for its own."""
        return {op.tile: op.parts for body in self.bodies.values() for op in body if isinstance(op, Own)}

    def with_body(self, body: tuple[Op, ...]) -> TileProgram:
        return replace(self, bodies={"all": body})

    def knows(self, **facts: Any) -> TileProgram:
        return replace(self, facts={**self.facts, **facts})


def loop_of(body: tuple[Op, ...]) -> For:
    """The loop over the stream."""
    return next(op for op in body if isinstance(op, For))


def inner(body: Iterable[Op]) -> Iterator[Op]:
    """Every operation, those of blocks included."""
    for op in body:
        yield op
        if isinstance(op, For):
            yield from inner(op.body)
