"""The k largest keys of a row whose elements lie in the registers of its threads.

The threads are cut into at least k groups. Each group has an element that is as large as the smallest of the groups'
maxima, so no element below that bound can be among the k largest. The few that are not below it (about k·H_k of random
ones) are gathered in shared memory, where each counts how many are larger: that is its rank. Where too many pass (ties,
rows shorter than the groups), k rounds pick the best of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.kernels.cuda_element import shared_row
from redalg.kernels.cuda_text import local
from redalg.kernels.ir import Fold

if TYPE_CHECKING:
    from redalg.kernels.cuda_group import Group


class Selection:
    def __init__(self, group: Group, fold: Fold) -> None:
        self.group, self.kernel, self.schedule = group, group.kernel, group.schedule
        self.out, self.keys, self.k = group.kernel.out, local(fold.names[0]), fold.extra[0]
        self.warps = max(1, self.schedule.threads // 32)
        self.lanes = min(32, self.schedule.threads)
        self.row = "r" if self.schedule.rows > 1 else "0"
        group.shared_lists[fold.names[0]] = f"{self.keys}_top"
        group.kernel.constants["K"] = self.k

    def print(self) -> None:
        s, out, keys = self.schedule, self.out, self.keys
        if s.threads == 1:
            return
        room = max(32, s.threads) if s.threads >= 32 else s.threads
        out(f"{keys}_top = cuda.shared.array({s.rows * self.k}, np.uint64)")
        out(f"candidates = cuda.shared.array({s.rows * room}, np.uint64)")
        out(f"counts = cuda.shared.array({s.rows}, np.int32)")
        self._clear()
        with out.block("if t == 0:"):
            out(f"counts[{self.row}] = 0")
        self._bound()
        self._sync()
        with out.block("for k in range(TILE):"):
            with out.block(f"if {keys}[k] >= bound and {keys}[k] != NONE:"):
                out(f"at = cuda.atomic.add(counts, {self.row}, 1)")
                with out.block(f"if at < {room}:"):
                    out(f"candidates[{self._candidate('at', room)}] = {keys}[k]")
        with out.block("if t < K:"):
            out(f"{keys}_top[{shared_row(self.kernel)}t] = NONE")
        if s.threads < self.k:
            with out.block("if t == 0:"), out.block("for i in range(K):"):
                out(f"{keys}_top[{shared_row(self.kernel)}i] = NONE")
        self._sync()
        out(f"count = counts[{self.row}]")
        with out.block(f"if count <= {room}:"):
            self._ranks(room)
        with out.block("else:"):
            self._rounds()
        self._sync()

    def _candidate(self, at: str, room: int) -> str:
        return f"r * {room} + {at}" if self.schedule.rows > 1 else at

    def _sync(self) -> None:
        self.out("cuda.syncthreads()" if self.schedule.threads > 32 else "cuda.syncwarp()")

    def _clear(self) -> None:
        """Elements beyond the row have no key."""
        if self.schedule.exact:
            return
        elements, out = self.kernel.elements, self.out
        width = self.schedule.vector
        with out.block("for k in range(TILE):"):
            out(f"at = first + k // {width} * {elements.stride} + k % {width}")
            with out.block(f"if at >= {elements.stop}:"):
                out(f"{self.keys}[k] = NONE")

    def _bound(self) -> None:
        """The smallest of the maxima of at least k disjoint groups of threads."""
        s, out = self.schedule, self.out
        out("bound = NONE")
        with out.block("for k in range(TILE):"):
            out(f"bound = max(bound, {self.keys}[k])")
        if s.threads < self.k:
            out("bound = NONE")
            return
        groups = 1 << (self.k - 1).bit_length()
        inner = max(1, min(self.lanes, s.threads // groups))  # lanes that share a maximum
        steps, joins = inner.bit_length() - 1, (self.lanes // inner).bit_length() - 1
        if steps:
            with out.block(f"for step in range({steps}):"):
                out("bound = max(bound, shfl_xor_u64(bound, 1 << step))")
        if joins:
            with out.block(f"for step in range({joins}):"):
                out(f"bound = min(bound, shfl_xor_u64(bound, {inner} << step))")
        if self.warps > 1:
            out(f"bounds = cuda.shared.array({self.warps * s.rows}, np.uint64)")
            at = f"r * {self.warps} + " if s.rows > 1 else ""
            with out.block("if t % 32 == 0:"):
                out(f"bounds[{at}t // 32] = bound")
            out("cuda.syncthreads()", f"bound = bounds[{at}t % {self.warps}]")
            with out.block(f"for step in range({self.warps.bit_length() - 1}):"):
                out("bound = min(bound, shfl_xor_u64(bound, 1 << step))")

    def _ranks(self, room: int) -> None:
        """Every candidate counts the larger ones; keys are all different."""
        out = self.out
        with out.block("if t < count:"):
            out(f"key = candidates[{self._candidate('t', room)}]", "rank = 0")
            with out.block("for i in range(count):"):
                out(f"rank += i64(candidates[{self._candidate('i', room)}] > key)")
            with out.block("if rank < K:"):
                out(f"{self.keys}_top[{shared_row(self.kernel)}rank] = key")

    def _rounds(self) -> None:
        """k times the largest key of all, which then leaves. All threads of the row take part."""
        s, out = self.schedule, self.out
        with out.block("for i in range(K):"):
            out("key = NONE")
            with out.block("for k in range(TILE):"):
                out(f"key = max(key, {self.keys}[k])")
            with out.block(f"for step in range({self.lanes.bit_length() - 1}):"):
                out(self._member_max("1 << step"))
            if self.warps > 1:
                at = f"r * {self.warps} + " if s.rows > 1 else ""
                with out.block("if t % 32 == 0:"):
                    out(f"bounds[{at}t // 32] = key")
                out("cuda.syncthreads()")
                with out.block(f"for w in range({self.warps}):"):
                    out(f"key = max(key, bounds[{at}w])")
                out("cuda.syncthreads()")
            with out.block("if t == 0:"):
                out(f"{self.keys}_top[{shared_row(self.kernel)}i] = key")
            with out.block("for k in range(TILE):"), out.block(f"if {self.keys}[k] == key:"):
                out(f"{self.keys}[k] = NONE")

    def _member_max(self, mask: str) -> str:
        """Rows of one warp may come here apart from each other: only the lanes of this row take part."""
        if self.lanes == 32:
            return f"key = max(key, shfl_xor_u64(key, {mask}))"
        return f"key = max(key, shfl_xor_some_u64(key, {mask}, THREADS))"
