"""The deterministic accumulator: a binary tree over absolute positions, fixed whatever the chunks were.

Node (level, index) holds the state of the indices [index·2^level, (index+1)·2^level) of the streamed axis, made from
its two halves by one combine; a leaf is the state of one index. An interval of positions is held as the fewest such
nodes, at most two per level, and finishing combines them in order. All of that depends on the positions covered and on
nothing else, so results have the same bits for every chunking, every split over accumulators and every merge order.
No element is kept: a leaf is a state. The price is a combine per element (done for many at once), measured in
`benchmarks/cpu/accumulator_update.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from redalg.errors import RedalgError
from redalg.streaming.lift import BLOCK_ELEMENTS, Engine, Stretch
from redalg.streaming.pieces import Pieces, nbytes, reach, shifted
from redalg.streaming.span import Span
from redalg.streaming.state import State
from redalg.streaming.tapes.join import Overflow
from redalg.streaming.tapes.tape import length_of

LEVELS = 63  # positions are int64
Key = tuple[int, int]  # level, index


@dataclass(frozen=True)
class Tree:
    """Nodes by (level, index); no two of them are halves of one node."""

    nodes: tuple[tuple[Key, State], ...] = ()
    inner: int = 1  # positions per index of the first streamed axis

    @property
    def empty(self) -> bool:
        return not self.nodes

    @property
    def nbytes(self) -> int:
        """What the tree may come to hold: a state per level, whatever the number of elements."""
        held = sum(nbytes(state) for _, state in self.nodes)
        return max(held, LEVELS * nbytes(self.nodes[0][1])) if self.nodes else 0

    @property
    def reach(self) -> int:
        return reach(*(state for _, state in self.nodes))

    def extended(self, engine: Engine, stretch: Stretch) -> Tree:
        nodes = dict(self.nodes)
        for block in _aligned(stretch, _rows_at_once(engine, stretch)):
            try:
                fresh = _subtrees(engine, block)
            except Overflow:  # item by item, so that nobody's bits depend on a neighbour's range
                fresh = [((0, one.start), engine.lift(one)) for one in block.blocks(1)]
            for key, state in fresh:
                _insert(engine, nodes, key, state)
        return Tree(_in_order(nodes), stretch.inner)

    def joined(self, engine: Engine, other: Pieces, mine: Span, theirs: Span) -> Tree:
        assert isinstance(other, Tree)
        inner = other.inner
        by = 0 if mine.placed else mine.count
        nodes = dict(self.nodes)
        for (level, index), state in other.nodes:
            place = (index << level) + by // inner
            if place % (1 << level):
                why = f"a piece of {1 << level} elements would begin at position {place}, off the tree's grid"
                fix = "place the pieces with start=, or merge where the first stream's length is a multiple"
                raise RedalgError("this accumulator", "Accumulator.merge with deterministic=True", why, fix)
            moved = shifted(engine, state, by)
            assert moved is not None
            _insert(engine, nodes, (level, place >> level), moved)
        return Tree(_in_order(nodes), inner)

    def total(self, engine: Engine) -> State:
        state: State | None = None
        for _, node in self.nodes:
            state = engine.combine(state, node)
        assert state is not None
        return state

    def cleared(self) -> Tree:
        return Tree()


def _rows_at_once(engine: Engine, stretch: Stretch) -> int:
    """A power of two that keeps temporaries bounded."""
    state = sum(_volume(axes, stretch) for axes in engine.program.part_axes)
    per_row = max(1, engine.program.rows.extent(stretch.sizes, stretch.axis[0]), state)
    return 1 << max(0, (2 * BLOCK_ELEMENTS // per_row).bit_length() - 1)


def _volume(axes: tuple[str, ...], stretch: Stretch) -> int:
    volume = 1
    for axis in axes:
        volume *= length_of(axis, stretch.sizes)
    return volume


def _aligned(stretch: Stretch, length: int) -> list[Stretch]:
    """The stretch cut at multiples of `length`, a power of two."""
    begin, end = stretch.start, stretch.start + stretch.length
    cuts = [begin, *range((begin // length + 1) * length, end, length), end]
    return [stretch.cut(stretch.axis[0], a - begin, b - begin) for a, b in zip(cuts, cuts[1:], strict=False)]


def _subtrees(engine: Engine, block: Stretch) -> list[tuple[Key, State]]:
    """The fewest tree nodes that cover a block, all nodes of a level combined at once."""
    batch, level, index = engine.lift_rows(block), 0, block.start
    length = block.length
    found: list[tuple[Key, State]] = []
    while length:
        if index % 2:
            found.append(((level, index), batch.at(slice(0, 1))))
            batch, index, length = batch.at(slice(1, None)), index + 1, length - 1
        if length % 2:
            found.append(((level, index + length - 1), batch.at(slice(length - 1, None))))
            length -= 1
        if length:
            batch = engine.paired(batch.at(slice(0, length, 2)), batch.at(slice(1, length, 2)))
            level, index, length = level + 1, index // 2, length // 2
    return [(key, state.map(lambda x: x.copy())) for key, state in found]


def _insert(engine: Engine, nodes: dict[Key, State], key: Key, state: State) -> None:
    """Add a node; two halves become the node above them."""
    level, index = key
    while (sibling := (level, index ^ 1)) in nodes:
        other = nodes.pop(sibling)
        state = engine.joined(other, state) if index & 1 else engine.joined(state, other)
        level, index = level + 1, index >> 1
    nodes[level, index] = state


def _in_order(nodes: dict[Key, State]) -> tuple[tuple[Key, State], ...]:
    return tuple(sorted(nodes.items(), key=lambda item: item[0][1] << item[0][0]))
