"""Tile programs run in NumPy, whole tiles at a time, by roles: the emulator of what passes make.

Loads arrive only when they are waited for, products write only when they are waited for, and a stage that was given
back is poisoned (NaN): a program that lacks a wait, or gives a stage back too early, gives NaN. What threads do with a
tile is tested with the printed kernel (`tests.support.level_cases.emulated`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np

from redalg.graph.node import Node, walk
from redalg.kernels.tile.level.passes import LevelDraft
from redalg.kernels.tile.level.program import Arrive, Clear, Convert, For, Free, Load, Map, Mma, Op, Store, Wait, inner
from redalg.numeric.evaluate import evaluate


class Interpreter:
    """One tile program over float64 arrays, scalars by value; `late`: whether anything arrives only when waited for."""

    def __init__(self, draft: LevelDraft, given: Mapping[str, Any]) -> None:
        parts, program, sizes = draft.settled
        self.parts, self.program, self.sizes = parts, program, sizes
        self.lengths = {**draft.lengths, **{a: draft.lengths[b] for a, b in parts.program.inner.items()}}
        self.given = {n: np.asarray(x, np.float64) for n, x in given.items()}
        for name, node in parts.firsts.items():
            held = next(o for o in parts.program.operands if o.name == name)
            self.given[name] = evaluate([node], self.given, orders=[held.axes])[0]
        self.late = any(isinstance(op, Wait) for body in program.bodies.values() for op in inner(body))
        self.results = {r.name: np.full([self.lengths[a] for a in r.axes], np.nan) for r in parts.program.results}

    def run(self) -> dict[str, Any]:
        """Every tile of the result, batch by batch."""
        rows, p = self.sizes.rows, self.parts
        for batch in product(*(range(self.lengths[a]) for a in p.batch)):
            for first in range(0, self.lengths[p.row], rows):
                self.batch = dict(zip(p.batch, batch, strict=True))
                self.first, self.block, self.at = first, 0, slice(0, 0)
                self.tiles: dict[str, Any] = {}
                self.coming: dict[str, Any] = {}
                self.flying: list[tuple[str, Any]] = []
                body = self.program.bodies.get("consumers", self.program.bodies.get("all", ()))
                self.loads = [op for b in self.program.bodies.values() for op in inner(b) if isinstance(op, Load)]
                if "producer" in self.program.bodies:
                    self.fill([op for op in self.program.bodies["producer"] if isinstance(op, Load)])
                self.body(body)
        return self.results

    def body(self, ops: tuple[Op, ...]) -> None:
        for op in ops:
            STEPS[type(op)](self, op)

    # --- operations --------------------------------------------------------------------------------------------------

    def fill(self, loads: list[Load]) -> None:
        for op in loads:
            value = self.loaded(op)
            self.tiles[op.tile] = np.full_like(value, np.nan) if self.late else value
            self.coming[op.tile] = value

    def loaded(self, op: Load) -> Any:
        """A box, zeros beyond the tensor; values of the stream, zeros beyond its end."""
        tile = self.program.tiles[op.tile]
        order = (*self.parts.batch, *tile.axes)
        axes = [a for a in order if a in op.source.axes]
        whole = evaluate([op.source], self.given, self.lengths, orders=[axes])[0]
        whole = whole[tuple(self.batch[a] for a in axes if a in self.batch)]
        starts = {self.parts.row: self.first, self.parts.stream: self.block * self.sizes.columns}
        part = whole[
            tuple(slice(starts.get(a, 0), starts.get(a, 0) + n) for a, n in zip(tile.axes, tile.lengths, strict=True))
        ]
        made = np.zeros(tile.lengths)
        made[tuple(slice(0, n) for n in part.shape)] = part
        return made

    def load(self, op: Load) -> None:
        self.fill([op])

    def loop(self, op: For) -> None:
        columns = self.sizes.columns
        inside = {x.tile for x in self.loads} - {x.tile for x in self.loads if self.program.tiles[x.tile].stages == 1}
        for block in range(-(-self.lengths[self.parts.stream] // columns)):
            self.block = block
            if "producer" in self.program.bodies:
                self.fill([x for x in self.loads if x.tile in inside])
            self.body(op.body)

    def wait(self, op: Wait) -> None:
        if not op.products:
            self.tiles |= {t: self.coming[t] for t in op.tiles}
            return
        while len(self.flying) > op.under_way:
            tile, made = self.flying.pop(0)
            self.tiles[tile] = made()

    def multiply(self, op: Mma) -> None:
        a, b = self.program.tiles[op.left], self.program.tiles[op.right]
        letters = {axis: chr(97 + k) for k, axis in enumerate(dict.fromkeys((*a.axes, *b.axes)))}
        out = self.program.tiles[op.tile].axes
        bare = {self.parts.program.inner.get(x, x): x for x in letters}
        target = "".join(letters.get(x) or letters[bare[x]] for x in out)
        text = f"{''.join(letters[x] for x in a.axes)},{''.join(letters[x] for x in b.axes)}->{target}"
        left, before = self.tiles[op.left], 0.0 if op.fresh else self.tiles[op.tile]

        def made() -> Any:
            return before + np.einsum(text, left, self.tiles[op.right])

        if self.late:
            self.flying.append((op.tile, made))
            self.tiles[op.tile] = np.full(self.program.tiles[op.tile].lengths, np.nan)
        else:
            self.tiles[op.tile] = made()

    def map(self, op: Map) -> None:
        values = [self.mapped(node) for _, node in op.targets]
        if any(np.isnan(self.tiles[v]).any() for v in op.values):
            values = [np.nan * v for v in values]
        at = self.block * self.sizes.columns + np.arange(self.sizes.columns)
        for (tile, _), value in zip(op.targets, values, strict=True):
            value = np.broadcast_to(value, self.program.tiles[tile].lengths)
            self.tiles[tile] = (
                np.where(at < self.lengths[self.parts.stream], value, 0.0) if tile in op.guarded else value
            )

    def mapped(self, node: Node) -> Any:
        p = self.parts
        starts = {p.row: self.first, p.stream: self.block * self.sizes.columns}
        lengths = {p.row: self.sizes.rows, p.stream: self.sizes.columns}
        env: dict[str, Any] = {}
        for leaf in walk(node):
            if leaf.op == "state":
                env[leaf.attr.name] = self.tiles[leaf.attr.name]
            elif leaf.op == "tensor":
                whole = self.given[leaf.attr.name]
                index = []
                for d, a in enumerate(leaf.attr.axes):
                    own = np.minimum(starts[a] + np.arange(lengths[a]), whole.shape[d] - 1) if a in starts else None
                    index.append([self.batch[a]] if own is None else own)
                env[leaf.attr.name] = whole[np.ix_(*index)] if index else whole
        offsets = {**starts, **self.batch}
        sizes = {**lengths, **dict.fromkeys(self.batch, 1)}
        order = [*self.batch, p.row, p.stream]
        made = evaluate([node], env, sizes, dtype=np.float64, offsets=offsets, orders=[order])[0]
        return np.broadcast_to(made, [sizes[a] for a in order]).reshape(self.sizes.rows, self.sizes.columns)

    def convert(self, op: Convert) -> None:
        self.tiles[op.tile] = self.tiles[op.source]

    def clear(self, op: Clear) -> None:
        self.tiles[op.tile] = np.zeros(self.program.tiles[op.tile].lengths)

    def arrive(self, op: Arrive) -> None:
        for t in op.tiles:
            self.tiles[t] = np.full_like(self.tiles[t], np.nan)

    def store(self, op: Store) -> None:
        result = next(r for r in self.parts.program.results if r.name == op.result)
        p, rows = self.parts, self.sizes.rows
        tile = next(n.attr.name for n in walk(op.node) if n.op == "state")
        column = self.program.tiles[tile].axes[1]
        there = min(rows, self.lengths[p.row] - self.first)
        env: dict[str, Any] = {tile: self.tiles[tile][:there]}
        for leaf in walk(op.node):
            if leaf.op == "tensor":
                index = [
                    self.first + np.arange(there) if a == p.row else [self.batch[a]] if a in self.batch else slice(None)
                    for a in leaf.attr.axes
                ]
                whole = self.given[leaf.attr.name]
                env[leaf.attr.name] = (
                    whole
                    if not index
                    else whole[
                        np.ix_(*(i if not isinstance(i, slice) else range(whole.shape[d]) for d, i in enumerate(index)))
                    ]
                )
        order = [*self.batch, p.row, column]
        made = evaluate([op.node], env, dict.fromkeys(self.batch, 1), dtype=np.float64, orders=[order])[0]
        made = np.asarray(made).reshape(there, -1)
        place = tuple(
            slice(self.first, self.first + there) if a == p.row else slice(None) if a == column else self.batch[a]
            for a in result.axes
        )
        rowwise = result.axes.index(p.row) < result.axes.index(column)
        self.results[op.result][place] = made if rowwise else made.T


STEPS: dict[type, Callable[[Interpreter, Any], None]] = {
    Load: Interpreter.load,
    For: Interpreter.loop,
    Wait: Interpreter.wait,
    Mma: Interpreter.multiply,
    Map: Interpreter.map,
    Convert: Interpreter.convert,
    Clear: Interpreter.clear,
    Arrive: Interpreter.arrive,
    Store: Interpreter.store,
    Free: lambda self, op: None,
}
