"""Kernels for tensor cores run by emulation (`redalg.kernels.emulate.run`), by a sample of the threads that share rows.

Four threads share 2·tall rows of a tile. Numbers are not rounded, unless a test asks for it, so that what a kernel
computes is compared with the definition to a few units of float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from redalg.kernels.emulate.arguments import Arguments
from redalg.kernels.emulate.memory import Numbers
from redalg.kernels.emulate.run import run
from redalg.kernels.emulate.tiles import TensorMap, TensorMaps
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Module, Param
from redalg.kernels.launch.planned import Map
from redalg.kernels.tile.level.cascade_print import emit_merge, emit_tensor
from redalg.kernels.tile.match import Class
from redalg.kernels.tile.mma_sync_plan import MmaPlan
from redalg.kernels.tile.plan import TensorPlan, WidePlan, fixed_of, maps_of

Places = Iterable[tuple[int, int, int]]


class Emulated:
    """One kernel over arrays of float32, `{name: array}`; scalars by value. `blocks`: of the grid, for wgmma."""

    def __init__(
        self, made: Class, plan: TensorPlan, given: Mapping[str, Any], blocks: int = 1, rounds: bool = False
    ) -> None:
        self.made, self.plan, self.given, self.rounds = made, plan, given, rounds
        self.module = emit_tensor(made, plan)
        self.sizes: dict[str, int] = dict(made.program.lengths)
        for o in made.program.operands:
            self.sizes |= zip(o.axes, np.shape(given[o.name]), strict=True)
        self.fixed = fixed_of(made, plan, self.sizes)
        mma = isinstance(plan, MmaPlan)
        self.blocks = self.fixed["tiles"] if mma else blocks
        # whole warps where they vote on columns, or store weights together
        together = isinstance(plan, WidePlan) or "bits[word]" in self.module.source
        self.size = 32 if together or mma and plan.long else 4
        shapes = {r.name: [self.sizes[a] for a in r.axes] for r in made.program.results}
        self.results = {name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()}
        self.flags = np.full(4 * plan.consumers * self.fixed["tiles"], -1)

    def run(self, places: Places, seed: int = 0) -> dict[str, np.ndarray]:
        """Quads (team, warp, row within the warp's eight) of every block; rows of others stay NaN."""
        given = self.arguments()
        run(self.module, given, self.blocks, seed=seed, sample=self.sample(places), rounds=self.rounds)
        if self.plan.splits > 1:
            rows = int(np.prod([self.sizes[a] for a in self.made.program.rows])) * max(1, self.plan.value_columns)
            run(emit_merge(self.made, self.plan), given, -(-rows // 32), 32, rounds=self.rounds)
        return self.results

    def sample(self, places: Places) -> set[int]:
        """The threads of some quads, those of the first quads of their warps, and some of every warpgroup."""
        chosen = set(places)
        if not isinstance(self.plan, MmaPlan):
            chosen |= {(team, 0, 0) for team in range(self.plan.consumers) if team not in {t for t, _, _ in chosen}}
        firsts = {128 * (team + 1) + 32 * warp + 4 * r for team, warp, row in chosen for r in (0, row)}
        return {first + k for first in firsts for k in range(self.size)}

    def arguments(self) -> Arguments:
        made = self.made
        arrays = {o.name: np.ascontiguousarray(self.given[o.name]) for o in made.program.operands if o.axes}
        operands = {o.name: Numbers(arrays[o.name], o.dtype) for o in made.program.operands if o.axes}
        rows = int(np.prod([self.sizes[a] for a in made.program.rows]))
        maps = () if isinstance(self.plan, MmaPlan) else maps_of(made, self.plan)
        return Arguments(
            {**self.given, **operands},
            {r.name: Numbers(self.results[r.name], r.dtype, once=True) for r in made.program.results},
            {p.name: self.scratch(p, rows) for p in self.params() if p.role == "scratch"},
            self.sizes,
            self.fixed,
            {name: View.contiguous(a.shape).strides for name, a in arrays.items()},
            {name: View.contiguous(a.shape).strides for name, a in self.results.items()},
            TensorMaps(tuple(self.map(m) for m in maps)),
        )

    def params(self) -> list[Param]:
        modules: list[Module] = [self.module]
        if self.plan.splits > 1:
            modules.append(emit_merge(self.made, self.plan))
        return [p for m in modules for p in m.params]

    def scratch(self, p: Param, rows: int) -> Numbers:
        if not p.name.endswith("_splits"):
            return Numbers(np.zeros(1, np.uint32) if p.name == "counter" else self.flags, p.dtype)
        kind = np.float32 if "float" in p.dtype else np.int64
        return Numbers(np.full(p.size * rows, np.nan if kind is np.float32 else 0x5A5A5A5A, kind), p.dtype)

    def map(self, m: Map) -> TensorMap:
        operand = next(o for o in self.made.program.operands if o.name == m.operand)
        array = np.asarray(self.given[m.operand], np.float32)
        turned = np.transpose(array, [operand.axes.index(a) for a in reversed(m.axes)])
        return TensorMap(turned, operand.dtype, m.rows)
