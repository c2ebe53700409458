"""The k largest elements of a row that lies in the registers of its threads.

The threads are cut into at least k groups. Each group has an element that is as large as the smallest of the groups'
maxima, so no element below that bound can be among the k largest. The few that are not below it (about k·H_k of random
ones) are gathered in shared memory as keys (`redalg.kernels.lower.packed_keys`), where each counts how many are larger:
that is its rank. Where too many pass (ties, rows shorter than the groups), k rounds pick the largest key below the last
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redalg.graph.node import Node
from redalg.kernels.ir.program import Fold
from redalg.kernels.rows.access import tensor_leaves
from redalg.kernels.rows.element import shared_row
from redalg.source.names import local

if TYPE_CHECKING:
    from redalg.kernels.code.scalars import Scalars
    from redalg.kernels.rows.group import Group

SPARSE = 8  # threads for each of the k largest from which on candidates are sparse


class Selection:
    def __init__(self, group: Group, fold: Fold, k: int, scope: Scalars) -> None:
        self.group, self.kernel, self.schedule, self.scope = group, group.kernel, group.schedule, scope
        self.out, self.name, self.k, self.body = group.kernel.out, local(fold.names[0]), k, fold.bodies[0]
        self.fold, self.length = fold, "K"

    @property
    def warps(self) -> int:
        """Of a row."""
        return max(1, self.schedule.threads // 32)

    @property
    def lanes(self) -> int:
        """Of a warp, that have the same row."""
        return min(32, self.schedule.threads)

    @property
    def row(self) -> str:
        """The number of the row in its block."""
        return "r" if self.schedule.rows > 1 else "0"

    @property
    def capacity(self) -> int:
        """How many candidates of a row shared memory holds."""
        return self.schedule.threads

    @property
    def few(self) -> int:
        """Candidates that are ranked without a loop."""
        return min(32, self.capacity)

    def print(self) -> None:
        s, out = self.schedule, self.out
        if s.threads == 1:
            return
        constants = self.kernel.constants
        self.length = "K" if constants.setdefault("K", self.k) == self.k else f"K{self.k}"
        constants[self.length] = self.k
        self.group.shared_lists[self.fold.names[0]] = f"{self.name}_top", self.length
        self.kernel.comment(
            f"The {self.k} largest: no element below the smallest of {self.k} groups' maxima is one of them; the "
            "others are "
            "gathered in shared memory as keys, where each counts how many are larger: its rank."
        )
        out(f"{self.name}_top = cuda.shared.array({s.rows * self.k}, np.uint64)")
        out(f"candidates = cuda.shared.array({s.rows * self.capacity}, np.uint64)")
        out(f"counts = cuda.shared.array({s.rows}, np.int32)")
        with out.block("if t == 0:"):
            out(f"counts[{self.row}] = 0")
        with out.block(f"if t < {self.few}:" if self.few < s.threads else None):
            out(f"candidates[{self._candidate('t')}] = NONE")
        with out.block(f"for i in range(t, {self.length}, {s.threads}):"):
            out(f"{self.name}_top[{shared_row(self.kernel, self.length)}i] = NONE")
        self._bound()
        self._sync()
        self._gather()
        self._sync()
        out(f"count = counts[{self.row}]")
        with out.block(f"if count <= {self.capacity}:"):
            self._ranks()
        with out.block("else:"):
            self._rounds()
        self._sync()

    @property
    def sparse(self) -> bool:
        """Whether most threads have no candidate: there are about k·H_k of them."""
        return self.schedule.threads >= SPARSE * self.k

    def _gather(self) -> None:
        """Every element that is not below the bound, as a key. Where they are sparse, each thread first notes which of
        its tile they are, without a branch, and then reads them once more: a warp waits for its longest list alone."""
        out, s, elements = self.out, self.schedule, self.kernel.elements
        if not self.sparse:
            with self._elements() as value, out.block(f"if not {value} < {self.name}:  # NaN comes first"):
                self._add(value)
            return
        out("mask = u64(0)" if s.tile > 32 else "mask = u32(0)")
        with self._elements() as value, out.block(f"if not {value} < {self.name}:  # NaN comes first"):
            out("mask |= u64(1) << u64(k)" if s.tile > 32 else "mask = u32(mask | (1 << k))")
        with out.block("while mask != 0:"):
            out("k = cuda.ffs(mask) - 1", "mask &= mask - u64(1)" if s.tile > 32 else "mask = u32(mask & (mask - 1))")
            at = f"k * {elements.stride}" if s.vector == 1 else f"k // VECTOR * {elements.stride} + k % VECTOR"
            out(f"at = first + {at}")
            self._add(self._value_at())

    def _add(self, value: str) -> None:
        out = self.out
        out(f"place = cuda.atomic.add(counts, {self.row}, 1)")
        with out.block(f"if place < {self.capacity}:"):
            out(f"candidates[{self._candidate('place')}] = key_of({value}, at)")

    @contextmanager
    def _every(self) -> Iterator[str]:
        """A loop over the elements of the thread, read once more where that happens seldom: they need no registers."""
        if not self.sparse:
            with self._elements() as value:
                yield value
            return
        with self.out.block("for at in range(t, length, THREADS):"):
            yield self._value_at()

    def _value_at(self) -> str:
        """The value of the element at `at`, read once more."""
        elements = self.kernel.elements
        elements.places_along({a for n in tensor_leaves([self.body]) for a in n.axes})
        inner = self.kernel.folding.element_scope(self.scope)
        inner.leaf = self._reread
        inner.known = {n: name for n, name in inner.known.items() if n not in elements.tiles_of}
        value = inner.atom(self.body, "f")
        self.kernel.flush(inner)
        return value

    def _reread(self, node: Node) -> str:
        elements = self.kernel.elements
        return (
            elements.read(node, "at")
            if node.op == "tensor" and node.axes & elements.stream
            else elements.row_leaf(node)
        )

    @contextmanager
    def _elements(self) -> Iterator[str]:
        """A loop over the elements of the thread; the name of their value, and `at`."""
        kernel, elements = self.kernel, self.kernel.elements
        _, axes = elements.needs([self.body])
        with elements.each(True, axes):
            inner = kernel.folding.element_scope(self.scope)
            inner.announce([self.body])
            value = inner.atom(self.body, "f")
            kernel.flush(inner)
            yield value

    def _candidate(self, at: str) -> str:
        return f"r * {self.capacity} + {at}" if self.schedule.rows > 1 else at

    def _sync(self) -> None:
        self.out("cuda.syncthreads()" if self.schedule.threads > 32 else "cuda.syncwarp()")

    def _bound(self) -> None:
        """The smallest of the maxima of at least k disjoint groups of threads; NaN only where all are."""
        s, out, name = self.schedule, self.out, self.name
        if s.threads < self.k:
            out(f"{name} = -INF")
            return
        groups = 1 << (self.k - 1).bit_length()
        inner = max(1, min(self.lanes, s.threads // groups))  # lanes that share a maximum
        steps, joins = inner.bit_length() - 1, (self.lanes // inner).bit_length() - 1
        if steps:
            with out.block(f"for step in range({steps}):"):
                out(f"{name} = max({name}, shfl_xor_f32({name}, 1 << step))")
        if joins:
            with out.block(f"for step in range({joins}):"):
                out(f"{name} = min({name}, shfl_xor_f32({name}, {inner} << step))")
        if self.warps > 1:
            out(f"bounds = cuda.shared.array({self.warps * s.rows}, np.float32)")
            at = f"r * {self.warps} + " if s.rows > 1 else ""
            with out.block("if t % 32 == 0:"):
                out(f"bounds[{at}t // 32] = {name}")
            out("cuda.syncthreads()", f"{name} = bounds[{at}t % {self.warps}]")
            with out.block(f"for step in range({self.warps.bit_length() - 1}):"):
                out(f"{name} = min({name}, shfl_xor_f32({name}, 1 << step))")

    def _ranks(self) -> None:
        """Every candidate counts the larger ones; keys are all different."""
        out = self.out
        with out.block("if t < count:"):
            out(f"key = candidates[{self._candidate('t')}]", "rank = 0")
            with out.block(f"for i in range({self.few}):"):
                out(f"rank += 1 if candidates[{self._candidate('i')}] > key else 0")
            if self.few < self.capacity:
                with out.block(f"for i in range({self.few}, count):"):
                    out(f"rank += 1 if candidates[{self._candidate('i')}] > key else 0")
            with out.block(f"if rank < {self.length}:"):
                out(f"{self.name}_top[{shared_row(self.kernel, self.length)}rank] = key")

    def _rounds(self) -> None:
        """k times the largest key below the last one. All threads of the row take part."""
        s, out = self.schedule, self.out
        if self.warps > 1:
            out(f"best = cuda.shared.array({self.warps * s.rows}, np.uint64)")
        out("last = u64(2**64 - 1)")
        with out.block(f"for i in range({self.length}):"):
            out("largest = NONE")
            with self._every() as value:
                out(f"key = key_of({value}, at)")
                with out.block("if key < last:"):
                    out("largest = max(largest, key)")
            with out.block(f"for step in range({self.lanes.bit_length() - 1}):"):
                out(f"largest = max(largest, shfl_xor_some_u64(largest, 1 << step, {self.lanes}))")
            if self.warps > 1:
                at = f"r * {self.warps} + " if s.rows > 1 else ""
                with out.block("if t % 32 == 0:"):
                    out(f"best[{at}t // 32] = largest")
                out("cuda.syncthreads()")
                with out.block(f"for w in range({self.warps}):"):
                    out(f"largest = max(largest, best[{at}w])")
                out("cuda.syncthreads()")
            with out.block("if t == 0:"):
                out(f"{self.name}_top[{shared_row(self.kernel, self.length)}i] = largest")
            out("last = largest")
