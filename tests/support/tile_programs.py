"""Tile programs run in NumPy, whole tiles at a time, by roles: the emulator of what passes make.

Loads arrive only when they are waited for, products write only when they are waited for, and a stage that was given
back is poisoned (NaN): a program that lacks a wait, or gives a stage back too early, gives NaN. Consumers that share
rows go step by step together, each with tiles of its own: one sees what another has once they meet. What threads do
with a tile is tested with the printed kernel (`tests.support.level_cases.emulated`, `tests.support.tensor_emulated`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any, Self

import numpy as np

from redalg.graph.node import Node, const, substitute, walk
from redalg.graph.operators import TopK
from redalg.kernels.ir.program import Fold, Join, Let, Program
from redalg.kernels.tile.level.cascade import Mask, PingPong, Reduce, Rows, Scale
from redalg.kernels.tile.level.passes import LevelDraft
from redalg.kernels.tile.level.program import (
    Arrive,
    Clear,
    Convert,
    Exchange,
    For,
    Free,
    Load,
    Map,
    Meet,
    Mma,
    Op,
    Own,
    Store,
    TileProgram,
    Wait,
    inner,
)
from redalg.kernels.tile.top_k import Listed
from redalg.numeric.evaluate import evaluate

JOINED = {"sum": np.add, "max": np.maximum, "min": np.minimum}
IDENTITY = {"sum": 0.0, "max": -np.inf, "min": np.inf}
BOX = 64  # terms


def wide(x: Any) -> Any:
    array = np.asarray(x)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


class Interpreter:
    """One tile program over float64 arrays, scalars by value; a program without waits loads and multiplies at once.
    `backwards`: whether blocks of the stream are visited from the last one on."""

    def __init__(
        self,
        tiles: TileProgram,
        program: Program,
        lengths: Mapping[str, int],
        given: Mapping[str, Any],
        backwards: bool,
    ) -> None:
        self.program, self.results = tiles, program.results
        self.exports = {let.name: let.node for walked in program.passes[:1] for let in walked.exports}
        self.lists = dict(program.lengths)  # axes of lists
        self.lengths = {**lengths, **{a: lengths[b] for a, b in program.inner.items()}}
        self.given = {n: wide(x) for n, x in given.items()}
        every = [op for body in tiles.bodies.values() for op in inner(body)]
        self.late = any(isinstance(op, Wait) for op in every)
        self.loads: dict[str, list[Load]] = {}
        for op in dict.fromkeys(op for op in every if isinstance(op, Load)):
            self.loads.setdefault(op.tile, []).append(op)
        held = sorted(tiles.tiles.values(), key=lambda t: t.part is None)  # of a consumer behind those of a block
        self.size = {a: n for t in held for a, n in zip(t.axes, t.lengths, strict=True)}
        self.size |= self.lists
        self.positions: set[str] = set()
        self.own = tiles.own
        self.teams = max(map(len, self.own.values()), default=1)  # consumers that share rows
        self.span = self.size[tiles.stream] * self.teams
        blocks = range(-(-self.lengths[tiles.stream] // self.span))
        self.blocks = list(reversed(blocks) if backwards else blocks)
        self.found = {r.name: np.full([self.lengths[a] for a in r.axes], np.nan) for r in program.results}

    @classmethod
    def of_draft(cls, draft: LevelDraft, given: Mapping[str, Any]) -> Self:
        parts, tiles, _ = draft.settled
        whole = {n: wide(x) for n, x in given.items()}
        for name, node in parts.firsts.items():
            held = next(o for o in parts.program.operands if o.name == name)
            whole[name] = evaluate([node], whole, orders=[held.axes])[0]
        return cls(tiles, parts.program, draft.lengths, whole, False)

    def run(self) -> dict[str, Any]:
        """Every tile of the result, batch by batch."""
        p = self.program
        every = [op for body in p.bodies.values() for op in inner(body)]
        streamed = any(isinstance(op, For) and op.axis == p.stream for op in every)
        for batch in product(*(range(self.lengths[a]) for a in p.batch)):
            for first, block in product(
                range(0, self.lengths[p.row], self.size[p.row]), self.tiles_of_columns(streamed)
            ):
                self.starts = {**dict(zip(p.batch, batch, strict=True)), p.row: first, p.stream: 0}
                self.team = self.box = 0
                self.block, self.visited = block, self.blocks if streamed else [block]
                shared = {*self.loads, *(part for parts in self.own.values() for part in parts)}
                self.each: list[dict[str, Any]] = [
                    {t: np.full(p.tiles[t].lengths, np.nan) for t in shared} for _ in range(self.teams)
                ]
                self.stages: dict[str, list[Any]] = {t: [] for t in self.loads}
                self.whole: dict[str, Any] = {}
                self.given_back: Counter[str] = Counter()
                self.flights: list[list[tuple[str, Callable[[], Any]]]] = [[] for _ in range(self.teams)]
                self.body(p.bodies.get("consumers", p.bodies.get("all", ())))
        return self.found

    def tiles_of_columns(self, streamed: bool) -> list[int]:
        """Where no loop visits the blocks of the other axis, a program is of one of them."""
        self.streamed = streamed
        return [0] if streamed else self.blocks

    @property
    def tiles(self) -> dict[str, Any]:
        """Of the consumer whose turn it is."""
        return self.each[self.team]

    @property
    def flying(self) -> list[tuple[str, Callable[[], Any]]]:
        """Its products under way."""
        return self.flights[self.team]

    def body(self, ops: tuple[Op, ...]) -> None:
        for op in ops:
            once = isinstance(op, For | Load | Arrive) or isinstance(op, Wait) and not (op.products or op.box)
            for team in range(1 if once else self.teams):
                self.team = team
                self.starts[self.program.stream] = self.block * self.span + team * self.size[self.program.stream]
                STEPS[type(op)](self, op)

    # --- values of nodes ---------------------------------------------------------------------------------------------

    def values(self, node: Node, order: tuple[str, ...]) -> Any:
        """A node over the tile, along these axes."""
        p = self.program
        sizes = {a: self.size[a] if a in (p.row, p.stream, *order) else 1 for a in (*p.batch, p.row, p.stream, *order)}
        sizes |= dict.fromkeys(p.batch, 1) | self.lists
        env: dict[str, Any] = {}
        for leaf in walk(node):
            if leaf.op == "state":
                axes = leaf.attr.axes
                held = self.tiles[leaf.attr.name].reshape([sizes[a] for a in axes])
                beyond = leaf.attr.name in self.positions and held >= self.lengths[p.stream]
                env[leaf.attr.name] = np.where(beyond, -1, held)
            elif leaf.op == "tensor":
                env[leaf.attr.name] = self.part(leaf, sizes)
        wanted = (*p.batch, *order)
        offsets = {a: n for a, n in self.starts.items() if a in sizes}
        node = substitute(node, {n: const(self.lengths[n.attr]) for n in walk(node) if n.op == "size"}, raw=True)
        made = evaluate([node], env, sizes, dtype=np.float64, offsets=offsets, orders=[wanted])
        return np.broadcast_to(made[0], [sizes[a] for a in wanted]).reshape([sizes[a] for a in order])

    def part(self, leaf: Node, sizes: Mapping[str, int]) -> Any:
        whole = self.given[leaf.attr.name]
        if not leaf.attr.axes:
            return whole
        spans = []
        for d, a in enumerate(leaf.attr.axes):
            count = sizes.get(a, whole.shape[d])
            spans.append(np.minimum(self.starts.get(a, 0) + np.arange(count), whole.shape[d] - 1))
        return whole[np.ix_(*spans)]

    def inside(self) -> Any:
        p = self.program
        return self.starts[p.stream] + np.arange(self.size[p.stream]) < self.lengths[p.stream]

    # --- operations --------------------------------------------------------------------------------------------------

    def loaded(self, tile: str, number: int) -> Any:
        """Box `number` of a tensor for this tile of rows, or of the stream's values; zeros beyond the end. Tensors that
        are contracted side by side lie side by side."""
        t, loads = self.program.tiles[tile], self.loads[tile]
        if len(loads) == 1:
            return self.part_of(loads[0], t.axes, t.lengths, number)
        made, at = np.zeros(t.lengths), 0
        for op, terms in zip(loads, t.axes[1].split("+"), strict=True):
            wide = self.lengths[terms]
            made[:, at : at + wide] = self.part_of(op, (t.axes[0], terms), (t.lengths[0], wide), number)
            at += wide
        return made

    def part_of(self, op: Load, tile_axes: tuple[str, ...], lengths: tuple[int, ...], number: int) -> Any:
        tile, p = self.program.tiles[op.tile], self.program
        order = (*p.batch, *tile_axes)
        axes = [a for a in order if a in op.source.axes]
        whole = evaluate([op.source], self.given, self.lengths, orders=[axes])[0]
        whole = whole[tuple(self.starts[a] for a in axes if a in p.batch)]
        chunks = 1
        starts = dict(self.starts)
        for a, n in zip(tile_axes, lengths, strict=True):
            if a not in (p.row, p.stream) and self.lengths[a] > n:
                chunks = -(-self.lengths[a] // n)
                starts[a] = number % chunks * n
        if p.stream in tile_axes:
            starts[p.stream] = self.visited[number // chunks] * self.span + (tile.part or 0) * self.size[p.stream]
        spans = zip(tile_axes, lengths, strict=True)
        part = whole[tuple(slice(starts.get(a, 0), starts.get(a, 0) + n) for a, n in spans)]
        made = np.zeros(lengths)
        made[tuple(slice(0, n) for n in part.shape)] = part
        return made

    def arrived(self, tile: str) -> None:
        stages = self.stages[tile]
        stages.append(self.loaded(tile, len(stages)))
        for tiles in self.each:
            tiles[tile] = stages[-1]

    def load(self, op: Load) -> None:
        if not self.late and op == self.loads[op.tile][0]:
            self.arrived(op.tile)

    def loop(self, op: For) -> None:
        streamed = op.axis == self.program.stream
        boxes = max(t.boxes for t in self.program.tiles.values() if op.axis in t.axes)
        count = boxes if boxes > 1 or streamed else -(-self.lengths[op.axis] // self.size[op.axis])
        numbers = self.blocks if streamed else list(range(count))
        for number in {"every": numbers, "first": numbers[:1], "other": numbers[1:]}[op.blocks]:
            if streamed:
                self.block = number
            else:
                self.box = number
            self.body(op.body)

    def next_box(self, tile: str) -> None:
        """64 columns more of this consumer's part of a block."""
        part = self.own[tile][self.team]
        if self.box == 0 or not self.stages[part]:
            self.whole[part] = self.loaded(part, len(self.stages[part]))
            self.stages[part].append(np.full_like(self.whole[part], np.nan))
        columns = slice(BOX * self.box, BOX * (self.box + 1))
        self.stages[part][-1][:, columns] = self.whole[part][:, columns]
        self.tiles[tile] = self.stages[part][-1]

    def meet(self, op: Meet) -> None:
        """Every consumer's part, for this one."""
        for name, parts in self.own.items():
            self.tiles.update({part: t[name] for part, t in zip(parts, self.each, strict=True) if name in t})

    def wait(self, op: Wait) -> None:
        if op.box:
            for t in op.tiles:
                self.next_box(t)
            return
        if not op.products:
            for t in op.tiles:
                self.arrived(t)
            return
        while len(self.flying) > op.under_way:
            tile, made = self.flying.pop(0)
            self.tiles[tile] = made()
        for tile, _ in self.flying:
            self.tiles[tile] = np.full(self.program.tiles[tile].lengths, np.nan)

    def multiply(self, op: Mma) -> None:
        a, b = self.program.tiles[op.left], self.program.tiles[op.right]
        letters = {axis: chr(97 + k) for k, axis in enumerate(dict.fromkeys((*a.axes, *b.axes)))}
        bare = {x.removesuffix("_inner"): letters[x] for x in letters}
        target = "".join(letters.get(x) or bare.get(x) or letters[b.axes[1]] for x in self.program.tiles[op.tile].axes)
        text = f"{''.join(letters[x] for x in a.axes)},{''.join(letters[x] for x in b.axes)}->{target}"
        left, right = self.operands(op)
        name = op.tile
        held = self.tiles.get(name)
        earlier = [m for t, m in self.flying if t == name]
        before = earlier[-1] if earlier else lambda: held

        @cache
        def made() -> Any:
            """What it adds up to, of what operands are when it ends."""
            return np.einsum(text, left, right) + (0.0 if op.fresh else before())

        if not self.late or self.program.facts.get("instruction") == "mma.sync":
            self.tiles[name] = made()
            return
        self.flying.append((name, made))
        self.tiles[name] = np.full(self.program.tiles[name].lengths, np.nan)

    def operands(self, op: Mma) -> tuple[Any, Any]:
        """What this consumer multiplies: its part, the box that is there; and its columns."""
        left, right = (self.tiles[t if t in self.tiles else self.own[t][self.team]] for t in (op.left, op.right))
        if op.right in self.own and op.over != self.program.stream:
            columns = slice(BOX * self.box, BOX * (self.box + 1))
            return left[:, columns], right[:, columns]
        wide = self.program.tiles[op.tile].lengths[1]
        return left, right[:, self.team * wide : (self.team + 1) * wide] if self.teams > 1 else right

    def map(self, op: Map) -> None:
        p = self.program
        values = [self.values(node, (p.row, p.stream)) for _, node in op.targets]
        if any(np.isnan(self.tiles[v]).any() for v in op.values):
            values = [np.nan * v for v in values]
        for (tile, _), value in zip(op.targets, values, strict=True):
            self.tiles[tile] = np.where(self.inside(), value, 0.0) if tile in op.guarded else value

    def mask(self, op: Mask) -> None:
        p = self.program
        there = np.broadcast_to(self.inside(), [self.size[p.row], self.size[p.stream]])
        if op.condition is not None:
            there = there & (self.values(op.condition, (p.row, p.stream)) != 0)
        missing = evaluate([op.missing], {})[0]
        self.tiles[op.tile] = np.where(there, self.values(op.node, (p.row, p.stream)), missing)

    def reduce(self, op: Reduce) -> None:
        p, made = self.program, {}
        for f, body in zip(op.loop.folds, op.bodies, strict=True):
            value = self.values(body, (p.row, p.stream))
            if isinstance(f.op, Listed):
                made |= self.listed(f, value)
                continue
            if f.names[0] in op.exact:
                value = np.where(self.inside(), value, IDENTITY[f.kind])
            made[op.weights if f.axes else f.names[0]] = value if f.axes else JOINED[f.kind].reduce(value, axis=1)
        self.tiles.update(made)

    def listed(self, f: Fold, value: Any) -> dict[str, Any]:
        """The first elements of all blocks so far: NaN, then the largest (of argmin: the least), the lowest position
        among equals."""
        names = [name.removesuffix("_b") for name in f.names]
        self.positions.add(names[1])
        count = f.op.k if isinstance(f.op, TopK) else 1
        places = np.broadcast_to(self.starts[self.program.stream] + np.arange(value.shape[1]), value.shape)
        if names[0] in self.tiles:
            value, places = (
                np.concatenate([self.tiles[n].reshape(len(x), count), x], axis=1)
                for n, x in zip(names, (value, places), strict=True)
            )
        order = np.lexsort((places, value if f.kind == "argmin" else -value, ~np.isnan(value)))[:, :count]
        return {n: np.take_along_axis(x, order, 1) for n, x in zip(names, (value, places), strict=True)}

    def exchange(self, op: Exchange) -> None:
        """Consumers' numbers of the rows that they share, for all of them at once; here, one block has all terms."""
        if self.team == 0 and op.over == "consumers":
            for t, kind in zip(op.tiles, op.kinds, strict=True):
                joined = JOINED[kind].reduce([tiles[t] for tiles in self.each])
                for tiles in self.each:
                    tiles[t] = joined

    def rows(self, op: Rows) -> None:
        row = (self.program.row,)
        for step in op.steps:
            if isinstance(step, Let):
                self.tiles[step.name] = self.values(step.node, row)
            elif isinstance(step, Join) and not step.axes:
                a, b = (self.values(side[0], row) for side in (step.a, step.b))
                self.tiles[step.names[0]] = JOINED[step.kind](a, b)
        self.tiles.update({name: self.tiles[name + op.end] for name in op.kept})

    def scale(self, op: Scale) -> None:
        self.tiles[op.tile] = self.tiles[op.tile] * self.values(op.by, (self.program.row,))[:, None]

    def convert(self, op: Convert) -> None:
        self.tiles[op.tile] = self.tiles[op.source].copy()
        if op.tile in self.own:  # nobody knows of it before consumers meet
            for tiles in self.each:
                tiles[self.own[op.tile][self.team]] = np.full_like(self.tiles[op.tile], np.nan)

    def clear(self, op: Clear) -> None:
        self.tiles[op.tile] = np.zeros(self.program.tiles[op.tile].lengths)

    def arrive(self, op: Arrive) -> None:
        for t in op.tiles:
            for stage in self.stages[t][self.given_back[t] :][:1]:
                stage[...] = np.nan
            self.given_back[t] += 1

    def exported(self, node: Node) -> Node:
        """A result over the state alone; positions of no element are -1."""
        while True:
            found = {
                n: self.exports[n.attr.name] for n in walk(node) if n.op == "state" and n.attr.name in self.exports
            }
            if not found:
                return node
            node = substitute(node, dict(found), raw=True)

    def store(self, op: Store) -> None:
        result, p = next(r for r in self.results if r.name == op.result), self.program
        order = tuple(a for a in result.axes if a not in p.batch)
        made = self.values(self.exported(op.node), order)
        rows = min(self.size[p.row], self.lengths[p.row] - self.starts[p.row])
        made = made[tuple(slice(rows) if a == p.row else slice(self.lengths[a]) for a in order)]
        first = self.starts[p.row]
        spans = {p.row: slice(first, first + rows)}
        if not self.streamed:
            last = min(self.starts[p.stream] + self.size[p.stream], self.lengths[p.stream])
            spans[p.stream] = slice(self.starts[p.stream], last)
            made = np.moveaxis(made, order.index(p.stream), 0)[: last - self.starts[p.stream]]
            made = np.moveaxis(made, 0, order.index(p.stream))
        if self.teams > 1:  # columns are shared out
            spans |= {a: slice(self.team * n, (self.team + 1) * n) for a in order if a != p.row and (n := self.size[a])}
        at = (spans.get(a, self.starts.get(a, slice(None))) for a in result.axes)
        self.found[op.result][tuple(at)] = made


def nothing(_: Interpreter, __: Op) -> None:
    """What decides who works when, and computes nothing."""


STEPS: dict[type, Callable[[Interpreter, Any], Any]] = {
    Load: Interpreter.load,
    For: Interpreter.loop,
    Wait: Interpreter.wait,
    Mma: Interpreter.multiply,
    Map: Interpreter.map,
    Mask: Interpreter.mask,
    Reduce: Interpreter.reduce,
    Rows: Interpreter.rows,
    Scale: Interpreter.scale,
    Convert: Interpreter.convert,
    Exchange: Interpreter.exchange,
    Meet: Interpreter.meet,
    Clear: Interpreter.clear,
    Arrive: Interpreter.arrive,
    Store: Interpreter.store,
    Free: nothing,
    Own: nothing,
    PingPong: nothing,
}
