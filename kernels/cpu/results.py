"""Results of CPU kernels: large ones go to memory past the caches, by way of a buffer in the first of them, and so do
those of rows that lie in one another, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.graph.node import Node
from redalg.kernels.ir.program import Result
from redalg.kernels.rows.results import Results

if TYPE_CHECKING:
    from redalg.kernels.cpu.kernel import CpuKernel


class CpuResults(Results):
    kernel: CpuKernel

    def __init__(self, kernel: CpuKernel) -> None:
        super().__init__(kernel)
        self.streamed: set[str] = set()  # results that go past the caches

    def _elements(self, results: list[Result], nodes: list[Node], names: dict[str, str]) -> None:
        """Stripe by stripe, where a result has an element for every element of all rows."""
        elements, out = self.kernel.elements, self.kernel.out
        streamed = [r for r in results if self._streams(r)]
        if not streamed:
            return super()._elements(results, nodes, names)
        self.streamed |= {r.name for r in streamed}
        for r in streamed:
            out(f"{self._stripe(r)} = cuda.local.array(STRIPE, {r.dtype})")
        position, axes = elements.needs(nodes)
        if len(streamed) < len(results):
            position, axes = True, axes | {*self.program.stream}
        with out.block("for stripe in range(0, count, STRIPE):"):
            out("edge = min(stripe + STRIPE, count)")
            with elements.each(position, axes, "stripe, edge"):
                self._compute(results, nodes, names, [])
            for r in streamed:
                step = self.access.step(r.name, r.axes, True) or "1"
                terms = elements.result_base(r), f"(first + stripe) * {step}"
                place, name = " + ".join(x for x in terms if x), self.access.result_names[r.name]
                out(f"stream_{r.dtype}({name}, {place}, {step}, {self._stripe(r)}, edge - stripe)")
        return None

    def _store_one(self, r: Result, value: str) -> None:
        if r.name not in self.streamed:
            return super()._store_one(r, value)
        self.kernel.out(f"store_{r.dtype}({self._stripe(r)}, k - stripe, {value})")
        return None

    def _streams(self, r: Result) -> bool:
        """Those past the caches; and those with gaps between elements, which would keep their loop from vectors."""
        everywhere = {*self.program.rows, *self.program.stream} == set(r.axes)  # one number each
        gathered = self.kernel.cpu.past or self.kernel.cpu.interleaved
        return gathered and everywhere and self.access.walks_flat(r.axes)

    def _stripe(self, r: Result) -> str:
        return f"{self.access.result_names[r.name]}_stripe"
