"""Predicted time of a schedule: memory, instructions or latency, whichever is longest, on a device full or not.

    time = launch + (memory⁴ + instructions⁴ + loads⁴ + latency⁴)^¼

The root is the maximum where one term leads, and counts those that come close. Memory is the longer of the ways from
memory and from L2. Latency is Little's law with waves: a block waits for memory once per tile, and only as many blocks
as fit the multiprocessors wait at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, hypot, log2

from redalg.kernels.ir.layouts import VECTOR_BYTES
from redalg.kernels.ir.schedule import SECTOR, SPLIT_WORDS, Schedule, by_network, partial_sums
from redalg.kernels.schedule.calibration import calibration_of
from redalg.kernels.schedule.case import (
    MOST_REGISTERS,
    Case,
    grid_of_sums,
    power,
    prefetch_bytes,
    registers,
    short_of,
    states_bytes,
)
from redalg.kernels.schedule.cost_terms import Reading
from redalg.kernels.schedule.sampling import together
from redalg.kernels.schedule.target import RESERVED

LINE = 128  # bytes of a line of caches
# Instructions of a bound: 64-bit comparisons of every element take predicates that have to be kept in registers
# (logsumexp of 28 resident elements: 832 instructions, 544 where 7 vectors are compared; sm_90, ptxas 13).
BOUNDS = 6.0
EXCHANGE, SHORT_EXCHANGE = 6, 2.5  # instructions that put two keys of 64 bits, or of 32, in order
STAGED = 3  # instructions per element of an array that passes through shared memory
TURNED = 7  # instructions per element of a result that turns in shared memory
# Elements that a thread of a map holds at no cost, of rows that start anywhere and of others, and how many more take
# twice the time.
MAPPED, MAPPED_ALIGNED, MAPPED_MORE = 40, 64, 64
SEVERAL_ROWS = 1.25  # of maps of rows that start anywhere, by blocks of several rows of more than a warp each
# More time of memory where a warp has several rows that begin at different places of a vector, by vectors of a thread
# beyond a few.
PHASES, FEW_VECTORS = 0.15, 5
SELECTS = 3  # instructions per element of a vector that is put together from two


@dataclass(frozen=True)
class Estimate:
    """What the model says of a schedule. Times in seconds; `moved` and `bytes` without and with what is read again."""

    seconds: float
    moved: int
    bytes: int
    blocks: int
    resident_blocks: int  # per multiprocessor
    occupancy: float
    registers: int
    memory: float
    compute: float
    latency: float

    @property
    def bound(self) -> str:
        terms = {"memory": self.memory, "instructions": self.compute, "latency": self.latency}
        return max(terms, key=lambda k: terms[k])


def estimate(case: Case, s: Schedule) -> Estimate:
    """The predicted cost of a legal schedule."""
    return _Model(case, s).estimate()


class _Model:
    def __init__(self, case: Case, s: Schedule) -> None:
        self.case, self.work, self.target, self.s = case, case.work, case.target, s
        self.known = calibration_of(case.target.name)
        self.registers = min(registers(case, s), self._limit())
        self.spilled = max(0, short_of(case, s))
        self.blocks = -(-max(1, self.work.rows) // s.rows_per_block) * s.blocks_per_row
        self.per_sm = self._occupancy()
        self.all_sms = self.target.multiprocessors * self.reached
        self.sms = min(self.all_sms, self.blocks)
        self.length = max(1, self.work.length)

    @cached_property
    def overlapping(self) -> int:
        """Blocks of clusters on a multiprocessor, which fill each other's gaps."""
        # Of rows at multiples of 16 bytes, blocks that prefetch or walk them are as fast as clusters: softmax of
        # 4096x65536 bfloat16 takes 283 us, LayerNorm 343 (2026-11-21). Others alone were swept anew.
        return self.per_sm if self.case.widest < self.case.widest_peeled else 1

    @property
    def reached(self) -> float:
        """The part of the multiprocessors that clusters fill: what one of them leaves of a group of multiprocessors,
        those beside it fill where several blocks fit one."""
        return 1 - (1 - self.known.blocks.reached[self.s.cluster]) / self.overlapping

    def _limit(self) -> int:
        return min(MOST_REGISTERS, self.target.multiprocessor.registers // max(32, self.s.block))

    def _occupancy(self) -> int:
        """Blocks a multiprocessor holds: registers in units of 8 a thread, threads, blocks, shared memory."""
        own, threads = self.target.multiprocessor, max(32, self.s.block)
        by = [own.registers // (-(-self.registers // 8) * 8 * threads), own.threads // threads, own.blocks]
        shared = states_bytes(self.work, self.s) + prefetch_bytes(self.work, self.s) + self.case.turned_bytes(self.s)
        shared += self.case.staged_bytes(self.s) + self.case.kept_bytes(self.s)
        return max(1, min([*by, own.shared // (shared + RESERVED)]))

    # --- bytes -------------------------------------------------------------------------------------------------------

    @property
    def walks(self) -> int:
        return 1 if self.s.resident or self.s.prefetch or self.s.kept else self.work.walks

    def _reread(self) -> float:
        """The part of a second reading that comes from memory: it begins where the first one ended, and L2 still holds
        what came last of the rows in work."""
        if self.walks == 1:
            return 0.0
        rows = min(
            self.work.rows, self.per_sm * self.target.multiprocessors * self.s.rows_per_block / self.s.blocks_per_row
        )
        live = max(1.0, rows) * self.length * self.work.element_bytes / self.target.l2
        return max(0.0, 1 - self.known.memory.l2_kept / live)

    def _missed(self) -> float:
        """The part of a second walk that L2 sees: it begins where the first one ended, and the end of a row is found in
        the first-level cache."""
        if self.s.column or self.s.split > 1:
            return 1.0
        split = self.length / self.s.cluster * self.s.rows * self.work.reread_bytes
        cache = self.known.first_level.kept * self.target.multiprocessor.shared
        missed = max(0.0, 1 - cache / self.per_sm / max(1, split))
        return missed if self.s.cluster == 1 else ceil(missed)  # measured: a part of a cluster's share gains nothing

    def moved(self) -> tuple[float, float, float]:
        """Bytes from and to memory without and with reading again, and bytes through L2."""
        work, s = self.work, self.s
        once = work.other + sum(size * n for _, size, n in work.writes) + self.partial_sums()
        total, through = float(once), float(once)
        for name, size, n in work.writes:
            more = (self._scatter(name, size, near=False) - 1) * size * n
            merged = self.case.walk.pattern(name) == "stream" and self._held_near(size)  # in L2, before it goes on
            total, through = total + (0.0 if merged else more), through + more
        every = work.rows * self.length
        for r in work.reads:
            times = 1 if s.resident or s.prefetch or s.kept else r.times
            scatter = self._scatter(r.name, r.size)
            shared = min(1.0, self._shared(r))
            once += r.elements * r.size
            lost = 1 + (scatter - 1) * self._refetched(r.name) if self.case.walk.pattern(r.name) != "stream" else 1.0
            second = (times - 1) * self._missed()
            total += r.elements * r.size * lost * (1 + second * self._reread())
            through += max(r.elements, every * r.entries * shared) * r.size * (1 + second) * scatter
        return once, total, through

    def _refetched(self, name: str) -> float:
        """The part of what is read more of an array, because sectors hold other rows' elements, that comes from memory:
        blocks with the rows beside run at the same time and find most of it in L2."""
        return self.known.memory.refetched if self.case.walk.pattern(name) == "rows" else 1.0

    def partial_sums(self) -> int:
        """Bytes of sums over the rows of every block: written, and read by the kernel that adds them up."""
        if not self.work.held.summed:
            return 0
        size = 8 if self.work.double else 4
        groups = partial_sums(self.s, grid_of_sums(self.case, self.s, self.per_sm), size)
        return 2 * groups * self.length * self.work.held.summed * size

    def _shared(self, r: Reading) -> float:
        """The part of the reads of an operand common to rows that reach L2: neighbours in a warp share one load."""
        if r.elements >= self.work.rows * self.length * r.entries:
            return 1.0
        cache = self.known.first_level
        missed = 1 - cache.found if r.elements * r.size <= cache.size else 1.0
        return missed / (min(32, self.s.rows) if self.s.column or self.s.threads == 1 else 1)

    def _places(self) -> float:
        """How much dearer memory is for being read in small portions here and there."""
        s, patterns = self.s, {a.pattern for a in self.case.walk.arrays}
        size = max((a.size for a in self.case.walk.arrays), default=4)
        if self._all_rows or "rows" in patterns and 0 < size * self.work.rows <= SECTOR:
            return 1 + self.known.memory.page / (size * self.work.rows * s.threads * s.tile)
        if "rows" in patterns:
            share = self.known.memory.kept_page if s.kept else 1.0
            found = 1 + share * self.known.memory.page / (size * s.rows_per_block)
            left = max(0.0, 1 - size * s.rows_per_block / (2 * LINE)) if self._cuts_sectors else 0.0
            return found * (1 + self.known.lines.cut * left)
        if s.resident or s.threads * s.tile >= self.length:
            return 1.0
        return 1 + self.known.memory.page / (size * s.tile * (1 if s.column else s.threads))

    @property
    def _cuts_sectors(self) -> bool:
        """Whether blocks walk down columns that begin anywhere in a sector; what blocks beside them read of it, splits
        find in L2."""
        rows = (a for a in self.case.walk.arrays if a.pattern == "rows")
        return self.s.column and self.s.split == 1 and any(a.width * a.size < SECTOR for a in rows)

    @property
    def _all_rows(self) -> bool:
        """Whether a block has all rows side by side, so that what it reads is in one piece."""
        return self.s.column and self.s.rows_per_block >= self.work.rows > 1

    def _run(self, name: str, size: int) -> int:
        """Bytes that lie side by side in one load of a warp."""
        s, pattern = self.s, self.case.walk.pattern(name)
        if s.column and name in self.case.turned:
            return size * min(32, s.threads * s.tile)
        if s.staged and name in self.case.dense:
            return 32 * VECTOR_BYTES
        if pattern == "stream":
            if self._vector(name) < s.vector:  # single elements, a vector apart
                return 32 * size // s.vector
            return size * self._vector(name) * (1 if s.column else min(32, s.threads))
        if pattern == "rows":
            return self._run_of_rows(name, size)
        together = self._together(name)
        if pattern == "packed":
            return size * together * min(32, s.threads * s.rows)
        return 32 * size if pattern == "same" else size * together

    def _run_of_rows(self, name: str, size: int, near: bool = False) -> int:
        """The same, where neighbouring rows are neighbours in memory; `near`: of the warps of a block, for what one of
        them reads lies in the first-level cache when the others do."""
        s, size = self.s, size * self._together(name)
        if near and not s.column and self._near:
            return size * s.rows_per_block
        if self._all_rows and self.work.rows <= 32:
            return size * 32
        rows = min(32, s.rows) if s.column or s.threads == 1 else max(1, min(32, s.block) // s.threads)
        return size * rows * self._rows_together(name)

    @property
    def _near(self) -> bool:
        """Whether the first-level cache holds what the blocks of a processor read of neighbouring rows at a time."""
        s = self.s
        places = self.length if s.resident else min(self.length, s.threads * s.tile)
        lines = places / s.blocks_per_row * 128 * self.per_sm * max(1, len(self.work.reads))
        return lines <= self.known.first_level.kept * self.target.multiprocessor.shared

    def _together(self, name: str) -> int:
        """Neighbours in memory that a thread reads one after the other."""
        array = self.case.walk.by_name.get(name)
        return 1 if array is None else array.together

    def slowed(self) -> float:
        """How much longer memory takes for rows read element by element, and for results that turn."""
        s, blocks = self.s, self.known.blocks
        found = (self.known.memory.single if self.single else 1.0) * self._mapping() * self._phases()
        found *= self._along_columns()
        found *= self.known.memory.astride if s.column and self.walks == 1 and not s.resident and self.shifted else 1.0
        found *= self._turning() if s.column and self.case.turned else 1.0
        if s.column and s.together and s.threads > 1:  # a block reads, reduces and writes one after the other
            waiting = blocks.held_cluster if s.cluster > 1 else 1.0
            return found * waiting * (1 + blocks.held_alone / self.live)
        if s.column and self.walks > 1 and not self.case.turned:
            found *= blocks.walked_twice * (1 + blocks.per_block * (self.live - 1))
        return found

    def _along_columns(self) -> float:
        """The same for warps that lie along the columns that they reduce and write: each of their stores begins and
        ends inside sectors, and several lines of memory are open at a time."""
        writes = any(self.case.walk.pattern(name) == "rows" for name, _, _ in self.work.writes)
        if self.s.column or self.s.threads == 1 or not (writes and self.case.reduces):
            return 1.0
        return self.known.lines.along

    def _phases(self) -> float:
        """The same for threads with many vectors of rows that begin at different places of a vector, several to a warp:
        what all rows share is read between the results, at other places for each of them."""
        # LayerNorm of 44868x466 float32: 64 us by 8 threads, 50 by 16, 46 by 32; of 9580x393 16.0, 12.9 and 11.3; of
        # 1005681x103, with 4 vectors a thread, 223 by 8 and 270 by 16. The choice among 28 cells takes 1.04 times the
        # best, 1.06 without (H200, 2026-11-29).
        s, common = self.s, any(r.held and not r.by_row for r in self.work.reads)
        if not (s.peel and s.resident and common and self.work.writes and self.case.reduces):
            return 1.0
        rows, vectors = 32 // min(32, s.threads), s.tile // s.vector
        return 1 + PHASES * ((rows - 1) * max(0, vectors - FEW_VECTORS)) ** 0.5

    def _mapping(self) -> float:
        """The same for maps, whose threads hold a tile of every array that is read: stores come late, and few threads
        run. 88 schedules of eight maps of rows that start anywhere, of one to three arrays (H200, 2026-11-29): 503 us
        by 56 elements of three arrays, 380 by 28, 202 by 16, 199 by 8; a quarter longer by blocks of several rows."""
        s, work = self.s, self.work
        if self.case.reduces or s.column:
            return 1.0
        held = s.coarsen * s.tile * max(1, work.held.resident if s.resident else work.held.streamed)
        several = SEVERAL_ROWS if s.peel and s.threads > 32 and s.rows > 1 else 1.0
        return several * (1 + max(0.0, held - (MAPPED if s.peel else MAPPED_ALIGNED)) / MAPPED_MORE)

    def _turning(self) -> float:
        """The same for results that turn in shared memory."""
        s, turned = self.s, self.known.turned
        if s.together and s.cluster == 1:
            return turned.held if s.threads > 1 else turned.thread
        if s.resident or s.kept:
            return turned.narrow if s.cluster > 1 and self.work.instructions.narrow else 1.0
        asked = self.live * s.block * s.tile * s.coarsen * self.work.element_bytes
        few = max(1.0, self.known.blocks.asked / max(1.0, asked)) ** 0.5
        line = s.threads * s.turned * min(size for name, size, _ in self.work.writes if name in self.case.turned)
        short = max(1.0, turned.line / line) ** turned.short
        return turned.walked * (1 + turned.alone / self.live) * few * short  # other blocks fill the gaps between tiles

    @property
    def all_reduces(self) -> int:
        """Reductions in which states of threads are merged at once; 0 where by trees."""
        return self.work.reductions.states if self.s.merges_at_once else 0

    @property
    def live(self) -> float:
        """Blocks on a multiprocessor, where there are not more of them than fit."""
        return max(1.0, min(self.per_sm, self.blocks / self.target.multiprocessors))

    @property
    def single(self) -> bool:
        """Whether rows are read element by element, each behind a bound."""
        along = [a for a in self.case.walk.arrays if a.pattern == "stream"]
        return (
            self.s.vector == 1
            and not (self.s.exact or self.s.column or self.s.staged)
            and bool(along)
            and self.length > 32
        )

    @cached_property
    def shifted(self) -> frozenset[str]:
        """Operands of which every vector is put together from two."""
        if not self.s.peel:
            return self.case.walk.layout(self.s.vector, self.s.neighbours).astride
        return self.case.walk.layout(self.s.vector, peel=True, led=not self.case.program.summed).shifted

    def _vector(self, name: str) -> int:
        array, s = self.case.walk.by_name.get(name), self.s
        if array is None:
            return 1
        if s.peel and array.pattern == "stream":
            led = not self.case.program.summed  # else vectors begin with the rows, and stores cannot be shifted
            return s.vector if led or all(name != key for key, _, _ in self.work.writes) else 1
        if s.staged and name in self.case.dense:
            return VECTOR_BYTES // array.size
        if array.pattern == "rows":  # what lies side by side there is of other rows
            return 1
        return s.vector if array.width >= s.vector else 1

    def _scatter(self, name: str, size: int, near: bool = True) -> float:
        """How many times as much is moved as is wanted, in whole sectors; `near`: by the warps of a block together, as
        the first-level cache does for what is read, but not for what is written."""
        pattern = self.case.walk.pattern(name)
        if pattern == "same" or near and pattern == "stream" and self._held_near(size):
            return 1.0
        run = self._run_of_rows(name, size, near) if pattern == "rows" else self._run(name, size)
        scatter = max(1.0, SECTOR / run, self._cut(name, size, near))
        span = self._span(size) if pattern == "stream" else self._span_of_rows(size) if pattern == "rows" else None
        return scatter if span is None else min(scatter, max(1.0, span / self._wanted(name, size)))

    def _held_near(self, size: int) -> bool:
        """Whether the first-level cache holds all rows that the threads of a processor hold: what one of their loads
        leaves of a sector, the next ones find there."""
        # LayerNorm of 291749x6 bfloat16 takes 3.4 us by threads that load 2 elements at a time, 4.6 through shared
        # memory (H200, 2026-11-27).
        s = self.s
        if not s.resident or s.column or s.staged or s.blocks_per_row > 1:
            return False
        rows = s.rows_per_block * self.per_sm
        return rows * self.length * size <= self.known.first_level.kept * self.target.multiprocessor.shared

    def _cut(self, name: str, size: int, near: bool) -> float:
        """How much more is read because pieces of neighbouring rows begin and end inside sectors."""
        array = self.case.walk.by_name[name]
        inside = SECTOR - min(SECTOR, array.width * size)
        if array.pattern != "rows" or self._all_rows:
            return 1.0
        return 1 + inside / self._run_of_rows(name, size, near)

    def _rows_together(self, name: str) -> int:
        """Neighbouring rows a thread loads together."""
        if self.s.coarsen == 1:
            return 1
        array = self.case.walk.by_name.get(name)
        width = array.width if array is not None and array.pattern == "rows" else 1
        return self.s.coarsen if width >= self.s.coarsen or name in self.shifted else 1

    def _wanted(self, name: str, size: int) -> int:
        return 32 * self._vector(name) * self._rows_together(name) * size

    def _span(self, size: int) -> float:
        """Bytes between the first and the last row of a warp, where rows follow each other in memory."""
        s = self.s
        return self.length * size * max(1, min(32, s.rows) if s.column else 32 // min(32, s.threads))

    def _span_of_rows(self, size: int) -> float:
        """Bytes between the first and the last place of a warp, where neighbouring rows are neighbours in memory: of
        few rows, all places that a warp reads at a time lie in a few lines."""
        s = self.s
        places = max(1, 32 // min(32, s.rows)) if s.column or s.threads == 1 else min(32, s.threads) * s.vector
        return places * size * self.work.rows

    # --- instructions ------------------------------------------------------------------------------------------------

    def element(self) -> float:
        """Instructions of a thread for one element."""
        work, s = self.work, self.s
        formula = work.instructions.lifted if s.resident else work.instructions.folded
        if work.double:
            formula /= min(1.0, 2 * self.target.double)
        formula += self.network()[0]
        accesses = sum(r.entries * (1 if s.resident else r.times) for r in work.reads if r.held) + len(work.writes)
        bounds = (
            0.0 if s.exact else (BOUNDS if s.vector * s.neighbours == 1 else 1.5) * self.walks * (len(work.reads) and 1)
        )
        loop = 0.0 if s.resident else 6 * self.walks / s.tile / s.neighbours
        at_once = s.tile * together(s, work.instructions.together)
        joins = 0.0 if s.resident else work.instructions.per_tile / at_once
        bounds += STAGED * len(self.case.dense) if s.staged else 0.0
        bounds += TURNED * len(self.case.turned) if s.column else 0.0
        bounds += SELECTS * s.vector * s.neighbours * len(self.shifted)
        return formula + work.instructions.narrow + (2 * accesses + bounds) / (s.vector * s.neighbours) + loop + joins

    def network(self) -> tuple[float, float]:
        """Instructions of sorting networks: for an element, and for an exchange of lists between two threads."""
        longest = max((part.top or 0 for p in self.case.program.passes for part in p.parts), default=0)
        if not (longest and self.case.keyed and by_network(self.s, longest)):
            return 0.0, 0.0
        n = power(longest)
        rounds = log2(n)
        each = SHORT_EXCHANGE if self.case.short_keys else EXCHANGE
        sort, keep = each * n / 4 * rounds * (rounds + 1), each * n * (2 / 3 + rounds / 2)
        return (sort + keep) / n, 2 * n + keep

    def padded(self) -> float:
        """How many elements' worth of instructions a row takes: tiles are walked whole."""
        s = self.s
        if s.resident:
            vectors = -(-self.length // s.vector)
            group = s.blocks_per_row * s.threads
            return max(1, -(-vectors // group)) * s.vector * group + group * s.peel
        span = s.blocks_per_row * s.threads * s.vector
        return -(-self.length // span) * span

    def meeting(self) -> float:
        """Instructions of a thread beside those for elements: reductions over the group, merges, addresses, results."""
        work, s = self.work, self.s
        steps = log2(s.threads)
        once = 40 + work.instructions.merge / 2
        once += self.network()[1] * steps
        each = 6 * steps + (20 if s.threads > 32 else 0)
        if s.resident:
            return once + work.reductions.resident * each
        merge = work.instructions.merge
        if self.all_reduces:
            once += merge + self.all_reduces * each
            return once + (2 * merge * s.split / s.threads if s.split > 1 else 0)
        return once + steps * (merge + 3 * work.held.state) + (merge * s.split / s.threads if s.split > 1 else 0)

    def instructions(self) -> float:
        per_row = self.padded() * self.element() + self.s.blocks_per_row * self.s.threads * self.meeting()
        # Groups of rows that are staged lose less by what they spill.
        return (
            max(1, self.work.rows) * per_row * (1 + self.spilled / (32 if self.s.staged and self.s.persistent else 8))
        )

    def loads(self) -> float:
        """Cycles a multiprocessor's load unit is busy: one for every 128-byte line a warp's load touches.

        Where the threads of a warp have neighbouring rows, what all rows share is at one place for all of them, and
        loaded once for the rows of a thread.
        """
        work, s, cycles = self.work, self.s, 0.0
        every = work.rows * self.length
        common = {r.name for r in work.reads if not r.by_row}
        common = common if s.column or s.coarsen > 1 and s.early(len(common)) else set()
        arrays = [(r.name, r.size, r.entries * (1 if s.resident else r.times)) for r in work.reads if r.held]
        for name, size, times in [*arrays, *((name, size, 1) for name, size, _ in work.writes)]:
            vector = self._vector(name) * self._rows_together(name)
            wanted = self._wanted(name, size)
            apart = min(32.0, wanted / max(1, self._run(name, size)))
            if self.case.walk.pattern(name) == "stream":
                apart = min(apart, self._span(size) / 128)
            if self.case.walk.pattern(name) == "rows":
                apart = min(apart, self._span_of_rows(size) / 128)
            apart = 1.0 if s.column and name in self.case.turned else apart
            lines = max(1.0, wanted * self._together(name) / 128, apart)
            if name in common:
                vector, lines = vector * s.coarsen, 1.0
            cycles += every / (32 * vector) * times * lines * (2 if name in self.shifted else 1)
        return cycles

    # --- latency -----------------------------------------------------------------------------------------------------

    def rounds(self) -> float:
        """How often a thread waits for memory."""
        s = self.s
        if s.resident:
            return 1.0
        span = s.blocks_per_row * s.threads * s.tile
        return -(-self.length // span) * (1 if s.kept else self.work.walks)  # what is kept is there at once

    def exchange(self) -> float:
        """Seconds from the last element to the result: trees over lanes, warps, blocks and splits; none of a map."""
        if not self.case.reduces:
            return 0.0
        work, s, cycle, waits = self.work, self.s, 1 / self.target.clock, self.known.exchange
        merged = s.resident and s.split > 1 and s.column  # as states
        at_once = s.resident and not merged or self.all_reduces > 0
        joins = 8 if at_once else 3 * work.instructions.merge * s.coarsen
        steps = log2(s.threads) if s.threads <= 32 else 5 + log2(s.threads / 32)
        once = steps * (waits.shuffle * (1 if at_once else max(1, work.held.state)) + joins)
        once += 2 * waits.barrier if s.threads > 32 else 0
        if s.column and s.threads > 1:
            once += 2 * waits.barrier * log2(s.threads)
        met, left = self._cluster_meets()
        once += met + log2(s.cluster) * (waits.shuffle + joins)
        times = work.reductions.resident if s.resident else max(1, self.all_reduces)
        seconds = once * cycle * (1 if merged else times)
        seconds += left * cycle
        return seconds + self._splits_meet() if s.split > 1 else seconds

    def _cluster_meets(self) -> tuple[int, int]:
        """Cycles of an exchange between the blocks of a cluster, and until they may leave."""
        s, waits = self.s, self.known.exchange
        if s.cluster == 1:
            return 0, 0
        if s.column or s.persistent:
            return waits.cluster_barrier + waits.distributed, waits.cluster_barrier
        return waits.sent, 0

    def _splits_meet(self) -> float:
        """Seconds in which splits leave their states in memory, and in which these are read."""
        s, waits, work = self.s, self.known.exchange, self.work
        seconds = waits.atomic + (0.0 if s.prefetch else waits.met)
        if s.column:
            # Of few rows hardly any: logsumexp of a transposed 12x40001 float32 takes 4.6 us by 44 splits, 7.0 by
            # clusters, the variance of 400003x7 bfloat16 down its columns 8.1 and 10.0; the largest of 250x6001 float32
            # 7.9 by 33 splits, 5.8 by none (H200, 2026-11-30).
            last = not s.persistent or self.case.turned  # that block goes on alone, and has every word to bring
            apart = waits.column_split + (waits.column_word * (work.held.state - 1) if last else 0.0)
            few = max(0.0, work.rows / waits.column_rows - 1)
            seconds += apart * (1.0 if self.case.turned else min(1.0, few))
        merge = 2 * work.instructions.merge / self.target.clock
        if self.case.program.columns:
            return seconds + s.split * (self.target.latency + merge)
        per_thread = -(-s.split // s.threads)
        asked = -(
            -per_thread * max(1, work.held.state) // SPLIT_WORDS
        )  # turns, in each of which all loads are under way
        return seconds + asked * self.target.latency + per_thread * merge

    def block_seconds(self) -> float:
        """A block alone: waits for its tiles, computes them, meets the others."""
        s, target = self.s, self.target
        rounds = self.rounds()
        whole = s.resident or s.column  # the last tile of a column is walked as the others are, behind tests of bounds
        held = s.tile if whole else min(s.tile, max(1, -(-self.length // (s.blocks_per_row * s.threads))))
        unbounded = s.exact or s.peel and s.resident
        single = 0.75 if s.vector * s.neighbours == 1 else 1.0
        if self.walks_columns and 1 < s.tile * s.threads <= self.length:  # only a last tile is walked behind bounds
            single = 1.0
        in_flight = 1.0 if unbounded else self.known.memory.bounded * single
        # Logsumexp of a transposed 85x8148 float32 takes 4.7 us by clusters of 16, 8.0 said with 0.5 for columns, and 0
        # to 0.2 choose best among 116 cells (H200, 2026-11-28).
        part = 0.5 * (self.waves() > 1) / self.overlapping + 0.2 * s.column
        together = self.known.blocks.cluster_start * part
        starts = s.cluster > 1 and not self.work.held.summed  # where sums are added, clusters go on with further rows
        start = self.known.blocks.start + (together if starts else 0.0)
        start += self.known.blocks.warp_start * s.block / 32 if self.waves() <= 1 else 0.0
        waits = rounds * self.waits(held) / in_flight + self.common_waits()
        return waits * target.latency + rounds * self.issue(held) + self.exchange() + start

    def common_waits(self) -> float:
        """How often a thread waits for memory for what all rows share, which is read between results that it writes: no
        load passes a store. Where a warp has one row, or its block holds one, others fill these waits."""
        s, common = self.s, sum(1 for r in self.work.reads if r.held and not r.by_row)
        if not (common and self.work.writes) or s.column and not s.together or s.early(common):
            return 0.0
        if not (self.case.reduces or s.resident):  # a map loads all that it reads of a tile before it writes any of it
            return 0.0
        if s.column:
            # LayerNorm of a transposed 154268x21 float32: 8.0 us by a thread for a row, 12.5 said with a wait for every
            # second element, and 10 to 14 by two and four (H200, 2026-11-29).
            return s.tile / 8
        # LayerNorm of 44868 rows of 466 float32: 48 us by 32 threads with 16 elements, 68 by 16 with 32. RMSNorm of 312
        # rows of 2774 float32: 8.0 us by 12 vectors a thread, 5.2 by 6, 4.4 by 3 (H100, 2026-11-26).
        if s.resident:
            return 0.0 if s.staged else 0.4 * ceil(s.tile / s.vector / s.asked(common))
        # LayerNorm of 331 rows of 50961 bfloat16: 56 us by blocks that walk rows twice, 44 by clusters that hold them.
        groups = ceil(s.tile // s.vector / s.asked(common)) * self.rounds() / self.work.walks
        # LayerNorm of 524 rows of 18370 bfloat16 in one wave: 31 us by pairs, 19 by vectors of 8 that are shifted.
        return (2 if self.shifted else 1 if self.waves() <= 1 else 0) * groups

    def issue(self, held: int) -> float:
        """Seconds until so many elements of every thread of a block have been computed."""
        s = self.s
        least = self.known.issue.stalled if s.resident else 1.0  # what is walked has the next tile on its way meanwhile
        return held * s.coarsen * self.element() * max(least, s.block / 128) / self.target.clock

    def waits(self, held: int) -> float:
        """How often a thread waits for one tile: what it folds at once is loaded a few vectors ahead of the sums. So in
        columns (32 registers of ptxas 13 for two tensors in tiles of 32): sums over 4096 rows of 16384 bfloat16 take an
        H100 505 us by tiles of 32, 387 by as many single ones, 287 of 16 and 103 of 8 with more blocks (2026-11-26).
        Where a tile is walked again, it has to be there as a whole."""
        s = self.s
        if s.resident or s.column and self.work.rewalked:
            return 1.0
        own = [r for r in self.work.reads if r.held and r.by_row]
        loads = sum(r.entries * (s.coarsen / self._rows_together(r.name) if s.column else 1) for r in own)
        return max(1.0, loads * held / s.vector / self.known.memory.in_flight)

    def prefetched_seconds(self) -> float:
        """A block with one row after another: it computes them, and waits for what all rows share, for the others, and,
        without a prefetch distance, for the row."""
        s, target = self.s, self.target
        common = sum(1 for r in self.work.reads if r.held and not r.by_row)
        waits: float = (s.prefetch_distance == 0) + (
            ceil(s.tiles * s.tile // s.vector / s.asked(common)) if common else 0
        )
        waits *= 1 + bool(self.shifted)
        if self.work.held.summed:  # rows in registers: all that is read is asked for at once (H200, 2026-11-24)
            waits = 0.5
        # Fewer than 16 warps do not keep a multiprocessor busy: softmax of 5000 rows of 50257 bfloat16 takes 415 us
        # by blocks of 256 threads, 308 by 512.
        idle = max(1.0, 512 / (s.block * self.per_sm)) ** 0.5
        return idle * s.tiles * self.issue(s.tile) + waits * target.latency + self.exchange()

    def prefetched(self) -> tuple[float, float]:
        """Seconds that prefetched rows take to move, and to be computed one after another."""
        s, target = self.s, self.target
        _, total, through = self.moved()
        moved = max(total / target.reachable, total / (self.sms * target.own_bandwidth), through / target.l2_bandwidth)
        if s.blocks_per_row > 1:
            held = self.per_sm * prefetch_bytes(self.work, s) / target.multiprocessor.shared
            known = self.known.cooperative
            moved *= known.copy * (1 + known.unfilled * max(0.0, 1 - held))
        # Softmax of 141x74540 float16 takes 28 us by 132 blocks, of which nine have two rows (H200, 2026-11-29).
        groups, at_once, rounds = self._rounds()
        moved *= (rounds * at_once / groups) ** self.known.kept_splits.idle if rounds > 1 else 1.0
        return moved, self.waves() * self.prefetched_seconds()

    def kept_by_splits(self, memory: float) -> float:
        """Seconds of splits that keep their parts of rows side by side and meet, round after round."""
        s, known = self.s, self.known.kept_splits
        groups, at_once, rounds = self._rounds()
        size = min(self.case.kept)
        # Blocks of a single round that leave others idle read at a rate of their own: softmax of columns 27700x16
        # bfloat16 takes 14 us by 14 splits, 33 said with this, of 20000x64 float32 11.5 by 7, 21 (H200, 2026-11-29).
        idle = (rounds * at_once / groups) ** known.idle if rounds > 1 else 1.0
        memory *= known.copy * (1 + known.narrow / (size * s.rows_per_block)) * idle
        if self.case.turned:
            line = size * min(32, s.threads // s.coarsen)
            memory *= 1 + known.turned * max(0.0, 2 * SECTOR / line - 1)
        return memory + rounds * s.split * known.meeting

    def _rounds(self) -> tuple[int, int, int]:
        """Groups of rows whose splits meet, how many of them at once, and how often."""
        groups = self.blocks // self.s.blocks_per_row
        at_once = max(1, self.per_sm * self.target.multiprocessors // self.s.blocks_per_row)
        return groups, at_once, -(-groups // at_once)

    def staged_seconds(self) -> float:
        """A block with one group of rows after another, of which the next is copied meanwhile: it computes them, and
        meets three times; numbers of a row are asked for early."""
        idle = max(1.0, 512 / (self.s.block * self.per_sm)) ** 0.5
        barriers = 3 * self.known.exchange.barrier / self.target.clock
        return idle * self.issue(self.s.tile) + 0.5 * self.target.latency + self.exchange() + barriers

    def summing(self) -> float:
        """How much longer kernels take that add sums over rows than the same without them: fitted to 86 schedules of
        backward passes of norms (H100, 2026-11-26; clusters of 4 and 8: H200, 2026-11-24)."""
        if self.s.cluster > 1:
            return (0.88 if self.single else 1.0) * (1.13 if self.s.cluster == 2 else 1.9)
        if self.s.staged:
            return 0.95
        return 0.77 if self.single else 0.95 if self.s.prefetch else 1.08

    def waves(self) -> float:
        """How many times the device is filled; the last time, blocks make way for each other only in part."""
        full = self.blocks / (self.per_sm * self.all_sms)
        return 1.0 if full <= 1 else full + (ceil(full) - full) / 2

    def _latency(self) -> float:
        """Seconds until the last block has ended, if nothing but its own waits holds it up."""
        each, issue = self.blocks / self.sms, self.known.issue
        if self.waves() <= 1:
            return max(self.block_seconds() + issue.begun * (each - 1), each * issue.block)
        return max(self.waves() * self.block_seconds(), each * issue.block)

    # --- everything --------------------------------------------------------------------------------------------------

    def _unbuffered(self) -> float:
        """How much longer memory takes where a tile is folded before the next one is asked for."""
        s, known = self.s, self.known
        crowded = self.work.rows >= known.blocks.crowd * self.target.multiprocessors
        whole = not self.case.reduces and s.split * s.threads * s.tile >= self.length > s.threads * s.tile
        if s.resident or s.column or whole or not (s.blocks_per_row == 1 or self.walks > 1 or crowded):
            return 1.0
        return known.memory.unbuffered + known.blocks.tail / max(1.0, self.waves()) * crowded

    def _met_last(self) -> float:
        """Seconds in which the last blocks meet while no others fill their waits; a single wave has them in its
        latency."""
        # Softmax of 3x62380 bfloat16: 4.5 us by clusters of 16 for 9 predicted with it, by one block for each row 11.4
        # for 8.6 (H100, 2026-11-27).
        counted = self.s.cluster > 1 or not self.s.persistent
        if self.s.blocks_per_row == 1 or not self.case.reduces or counted and self.waves() <= 1:
            return 0.0
        return self.exchange()

    def slower(self) -> float:
        """How much longer everything takes where sums over rows are added, where a thread walks several columns, or has
        several rows that start anywhere, and where the last round of splits leaves blocks idle."""
        found = self.summing() if self.work.held.summed else 1.0
        if self.s.peel and self.s.coarsen > 1:
            found *= self.known.lines.several
        if self.walks_columns:
            lines = self.known.lines
            found *= (lines.several if self.s.coarsen > 1 else 1.0) * (lines.kept if self.s.kept else 1.0)
            found *= lines.four if self.s.coarsen > 2 and not self.s.kept else 1.0
        return found * self._last_round()

    def _last_round(self) -> float:
        """How much longer splits take that meet round after round, of which the last leaves blocks idle."""
        # Softmax of a transposed 333x100001 bfloat16 takes 101 us by 12 splits of all 21 groups at once, 144 by 25
        # splits of 10, 10 and one; of columns 459659x515 float16 906 by 52 splits in one round, 1190 by 58 in three.
        # Among 285 schedules of twelve cells of unaligned columns the choice takes 1.12 times the best, 1.16 without
        # (H200, 2026-11-29). LayerNorm of 7x700001 float16 takes 18.6 us by 86 splits that hold rows, six rows and then
        # one, 14.0 by clusters; softmax of 3x1500007 float32 21.5 by 92, 20.3 by 128 that walk them (2026-11-30).
        if not self.s.persistent or self.s.kept or self.s.split == 1 or self.s.prefetch or not self.case.program.keeps:
            return 1.0
        groups, at_once, rounds = self._rounds()
        return 1.0 if rounds == 1 else (rounds * at_once / groups) ** self.known.kept_splits.idle

    @property
    def walks_columns(self) -> bool:
        """Whether threads walk along columns, line by line."""
        return self.s.column and not self.s.resident

    def _terms(self, memory: float, compute: float, loads: float, latency: float) -> tuple[float, ...]:
        """Seconds of what runs at the same time; the first is memory's, with what a block does before or behind it."""
        s = self.s
        if s.kept and s.split > 1:
            return (self.kept_by_splits(memory),)
        if s.prefetch and self.waves() <= 1:  # no row is on its way while a block computes the only one it has
            return (hypot(memory + max(compute, loads), latency),)
        if s.column and s.resident and s.split > 1:
            # All blocks read, meet and write at the same time: softmax of columns 43722x192 float16 takes 36 to 45 us,
            # 22 to 26 said without this (H200, 2026-11-29).
            return memory + latency, compute, loads
        if s.prefetch or s.kept or s.staged and s.persistent:  # a block does one thing at a time
            return hypot(memory, latency), compute, loads
        return memory, compute, loads, latency

    def estimate(self) -> Estimate:
        target, s = self.target, self.s
        once, total, through = self.moved()
        share = self.blocks / target.multiprocessors
        uneven = 1 + 0.15 * (ceil(share) / share - 1) if share > 1 else 1.0
        memory = max(total / target.reachable * self._places(), total / (self.sms * target.own_bandwidth))
        second = max(through / target.l2_bandwidth, through / (self.sms * self.known.memory.l2_alone * target.clock))
        memory = max(memory * self._unbuffered() * self.slowed() * uneven, second)
        busy = max(self.sms * min(1.0, self.per_sm * max(32, s.block) / 256), 1.0) / target.multiprocessors
        compute = self.instructions() / (target.issue * busy)
        loads = self.loads() / (target.clock * self.sms)
        latency = self._latency()
        latency *= self.known.lines.waits if self.walks_columns and not s.kept else 1.0
        if s.prefetch:  # while a row is computed, the next one is on its way
            memory, latency = self.prefetched()
        if s.staged and s.persistent:
            latency = self.waves() * self.staged_seconds()
        terms = self._terms(memory, compute, loads, latency)
        # While blocks wait, others fill the gaps: softmax of 347x26426 bfloat16 takes 16.6 us by one block of 512
        # threads a multiprocessor, said to take 12.2 without, 12.9 by clusters of 128 (H200, 2026-11-30).
        writes = self.case.reduces and self.work.writes  # reads, reduces and writes, one after the other
        idle = s.resident and (s.blocks_per_row > 1 or writes and self.per_sm == 1)
        alone = self.known.blocks.alone / self.per_sm / self.overlapping if idle else 0.0
        terms = (terms[0] * (1 + alone) / self.reached, *terms[1:])
        terms = tuple(x * self.slower() for x in terms)
        seconds = sum(x**4 for x in terms) ** 0.25 + target.launch + self._met_last()
        occupancy = min(1.0, self.per_sm * max(32, s.block) / target.multiprocessor.threads)
        return Estimate(
            seconds,
            round(once),
            round(total),
            self.blocks,
            self.per_sm,
            occupancy,
            self.registers,
            memory,
            max(compute, loads),
            latency,
        )
