"""Tile programs run in NumPy, whole tiles at a time, by roles: the emulator of what passes make.

Loads arrive only when they are waited for, products write only when they are waited for, and a stage that was given
back is poisoned (NaN): a program that lacks a wait, or gives a stage back too early, gives NaN. What threads do with a
tile is tested with the printed kernel (`tests.support.level_cases.emulated`, `tests.support.tensor_emulated`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any, Self

import numpy as np

from redalg.graph.node import Node, const, substitute, walk
from redalg.kernels.ir.program import Join, Let, Program
from redalg.kernels.tile.level.cascade import Mask, PingPong, Reduce, Rows, Scale
from redalg.kernels.tile.level.passes import LevelDraft
from redalg.kernels.tile.level.program import (
    Arrive,
    Clear,
    Convert,
    For,
    Free,
    Load,
    Map,
    Mma,
    Op,
    Store,
    TileProgram,
    Wait,
    inner,
)
from redalg.numeric.evaluate import evaluate

JOINED = {"sum": np.add, "max": np.maximum, "min": np.minimum}
IDENTITY = {"sum": 0.0, "max": -np.inf, "min": np.inf}


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
        self.lengths = {**lengths, **{a: lengths[b] for a, b in program.inner.items()}}
        self.given = {n: wide(x) for n, x in given.items()}
        every = [op for body in tiles.bodies.values() for op in inner(body)]
        self.late = any(isinstance(op, Wait) for op in every)
        self.loads = {op.tile: op for op in every if isinstance(op, Load)}
        self.size = {a: n for t in tiles.tiles.values() for a, n in zip(t.axes, t.lengths, strict=True)}
        blocks = range(-(-self.lengths[tiles.stream] // self.size[tiles.stream]))
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
        for batch in product(*(range(self.lengths[a]) for a in p.batch)):
            for first in range(0, self.lengths[p.row], self.size[p.row]):
                self.starts = {**dict(zip(p.batch, batch, strict=True)), p.row: first, p.stream: 0}
                self.tiles: dict[str, Any] = {t: np.full(p.tiles[t].lengths, np.nan) for t in self.loads}
                self.stages: dict[str, list[Any]] = {t: [] for t in self.loads}
                self.given_back: Counter[str] = Counter()
                self.flying: list[tuple[str, Callable[[], Any]]] = []
                self.body(p.bodies.get("consumers", p.bodies.get("all", ())))
        return self.found

    def body(self, ops: tuple[Op, ...]) -> None:
        for op in ops:
            STEPS[type(op)](self, op)

    # --- values of nodes ---------------------------------------------------------------------------------------------

    def values(self, node: Node, order: tuple[str, ...]) -> Any:
        """A node over the tile, along these axes."""
        p = self.program
        sizes = {a: self.size[a] if a in (p.row, p.stream, *order) else 1 for a in (*p.batch, p.row, p.stream, *order)}
        sizes |= dict.fromkeys(p.batch, 1)
        env: dict[str, Any] = {}
        for leaf in walk(node):
            if leaf.op == "state":
                axes = leaf.attr.axes
                env[leaf.attr.name] = self.tiles[leaf.attr.name].reshape([sizes[a] for a in axes])
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

    def loaded(self, op: Load, number: int) -> Any:
        """Box `number` of a tensor for this tile of rows, or of the stream's values; zeros beyond the end."""
        tile, p = self.program.tiles[op.tile], self.program
        order = (*p.batch, *tile.axes)
        axes = [a for a in order if a in op.source.axes]
        whole = evaluate([op.source], self.given, self.lengths, orders=[axes])[0]
        whole = whole[tuple(self.starts[a] for a in axes if a in p.batch)]
        chunks = 1
        starts = dict(self.starts)
        for a, n in zip(tile.axes, tile.lengths, strict=True):
            if a not in (p.row, p.stream) and self.lengths[a] > n:
                chunks = -(-self.lengths[a] // n)
                starts[a] = number % chunks * n
        if p.stream in tile.axes:
            starts[p.stream] = self.blocks[number // chunks] * self.size[p.stream]
        spans = zip(tile.axes, tile.lengths, strict=True)
        part = whole[tuple(slice(starts.get(a, 0), starts.get(a, 0) + n) for a, n in spans)]
        made = np.zeros(tile.lengths)
        made[tuple(slice(0, n) for n in part.shape)] = part
        return made

    def arrived(self, tile: str) -> None:
        stages = self.stages[tile]
        stages.append(self.loaded(self.loads[tile], len(stages)))
        self.tiles[tile] = stages[-1]

    def load(self, op: Load) -> None:
        if not self.late:
            self.arrived(op.tile)

    def loop(self, op: For) -> None:
        streamed = op.axis == self.program.stream
        tile = next(t for t in self.program.tiles.values() if op.axis in t.axes)
        numbers = list(range(-(-self.lengths[op.axis] // self.size[op.axis]))) if not streamed else self.blocks
        assert tile.lengths
        for number in {"every": numbers, "first": numbers[:1], "other": numbers[1:]}[op.blocks]:
            if streamed:
                self.starts[op.axis] = number * self.size[op.axis]
            self.body(op.body)

    def wait(self, op: Wait) -> None:
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
        target = "".join(letters.get(x) or bare[x] for x in self.program.tiles[op.tile].axes)
        text = f"{''.join(letters[x] for x in a.axes)},{''.join(letters[x] for x in b.axes)}->{target}"
        left, right, name = self.tiles[op.left], self.tiles[op.right], op.tile

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
            if f.names[0] in op.exact:
                value = np.where(self.inside(), value, IDENTITY[f.kind])
            made[op.weights if f.axes else f.names[0]] = value if f.axes else JOINED[f.kind].reduce(value, axis=1)
        self.tiles |= made

    def rows(self, op: Rows) -> None:
        row = (self.program.row,)
        for step in op.steps:
            if isinstance(step, Let):
                self.tiles[step.name] = self.values(step.node, row)
            elif isinstance(step, Join) and not step.axes:
                a, b = (self.values(side[0], row) for side in (step.a, step.b))
                self.tiles[step.names[0]] = JOINED[step.kind](a, b)
        self.tiles |= {name: self.tiles[name + op.end] for name in op.kept}

    def scale(self, op: Scale) -> None:
        self.tiles[op.tile] = self.tiles[op.tile] * self.values(op.by, (self.program.row,))[:, None]

    def convert(self, op: Convert) -> None:
        self.tiles[op.tile] = self.tiles[op.source].copy()

    def clear(self, op: Clear) -> None:
        self.tiles[op.tile] = np.zeros(self.program.tiles[op.tile].lengths)

    def arrive(self, op: Arrive) -> None:
        for t in op.tiles:
            for stage in self.stages[t][self.given_back[t] :][:1]:
                stage[...] = np.nan
            self.given_back[t] += 1

    def store(self, op: Store) -> None:
        result, p = next(r for r in self.results if r.name == op.result), self.program
        order = tuple(a for a in result.axes if a not in p.batch)
        made = self.values(op.node, order)
        rows = min(self.size[p.row], self.lengths[p.row] - self.starts[p.row])
        made = made[tuple(slice(rows) if a == p.row else slice(self.lengths[a]) for a in order)]
        first = self.starts[p.row]
        at = (slice(first, first + rows) if a == p.row else self.starts.get(a, slice(None)) for a in result.axes)
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
    Clear: Interpreter.clear,
    Arrive: Interpreter.arrive,
    Store: Interpreter.store,
    Free: nothing,
    PingPong: nothing,
}
