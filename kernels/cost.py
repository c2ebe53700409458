"""Predicted time of a schedule: memory, instructions or latency, whichever is longest, on a device full or not.

    time = launch + (memory⁴ + instructions⁴ + loads⁴ + latency⁴)^¼

The root is the maximum where one term leads, and counts those that come close. Memory is the longer of the ways from
memory and from L2. Latency is Little's law with waves: a block waits for memory once per tile, and only as many blocks
as fit the multiprocessors wait at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, hypot, log2

from redalg.kernels.legality import MOST_REGISTERS, RESERVED, Case, registers, room_bytes, states_bytes
from redalg.kernels.schedule import Schedule
from redalg.kernels.work import Reading

SECTOR = 32  # bytes memory is read in
SHUFFLE, BARRIER, CLUSTER_BARRIER, DISTRIBUTED = 30, 40, 600, 200  # cycles; `shared/gpu.md` of 2026-11-20 for the last
ATOMIC = 1.2e-6  # seconds: a fence, an atomic on one counter, and reading the states of the other pieces
START = 0.3e-6  # seconds to start a block and to find its place
TOGETHER = 3e-6  # seconds more until all blocks of a cluster run, and until the last may leave
# The part of the multiprocessors that clusters of a size reach: they lie in groups of up to 18, some of 16 or fewer.
REACHED = {1: 1.0, 2: 1.0, 4: 0.97, 8: 0.94, 16: 0.7}
BOUNDS = 0.8  # of the loads in flight, where every one of them is behind a test of bounds
ALONE = 0.5  # measured: softmax of 65536 float32 takes 236 us with one block of 512 a processor, 157 with three of 256
UNBUFFERED = 1.08  # measured: variance of 8192 float32 takes 74 us in tiles, 63 us resident (H200, 2026-11-21)
CROWD = 4  # rows for every multiprocessor, from which on a block for each fills the device
TAIL = 0.06  # measured: rows of 65536 whose blocks all begin at once end 4 to 15 % later than in four waves and more
PAGE = 8  # bytes' worth of time to open a place in memory: what is read there in one go is 1 + 8/bytes as dear
FIRST_LEVEL = 64 << 10  # bytes that all rows read are found in the first-level cache, at
FOUND = 0.7  # of the reads
HELD = 0.8  # of the first-level cache, which is one memory with the shared one, for the end of the rows in work
# Measured with rows of 65536 bfloat16 and 1 M float32 and bfloat16 that are brought to shared memory ahead (H200,
# 2026-11-22): blocks that wait for each other take a fifth longer than the copy, and more where they leave room.
JOINT, UNFILLED = 1.2, 0.3
FLYING = 8  # measured: two tensors of 128 rows of 1 M float32 are read in 414 us with 16 loads of 16 bytes a thread and
# about 256 threads a multiprocessor (cosine similarity), in 250 with 8 loads and 1024 (KL divergence; H200, 2026-11-21)
AGAIN = 2.4  # measured: of 35 MB of rows in work, a third is read again past the 60 MiB of L2 of an H200


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
        self.registers = min(registers(case.work, s), self._limit())
        self.spilled = max(0, registers(case.work, s) - self._limit())
        self.blocks = -(-max(1, self.work.rows) // s.abreast) * s.pieces
        self.per_sm = self._occupancy()
        self.all_sms = self.target.multiprocessors * REACHED[s.cluster]
        self.sms = min(self.all_sms, self.blocks)
        self.length = max(1, self.work.length)

    def _limit(self) -> int:
        return min(MOST_REGISTERS, self.target.registers // max(32, self.s.block))

    def _occupancy(self) -> int:
        """Blocks a multiprocessor holds: registers in units of 8 a thread, threads, blocks, shared memory."""
        t, threads = self.target, max(32, self.s.block)
        by = [t.registers // (-(-self.registers // 8) * 8 * threads), t.threads // threads, t.blocks]
        shared = states_bytes(self.work, self.s) + room_bytes(self.work, self.s)
        return max(1, min([*by, t.shared // (shared + RESERVED)]))

    # --- bytes -------------------------------------------------------------------------------------------------------

    @property
    def walks(self) -> int:
        return 1 if self.s.resident or self.s.room else self.work.walks

    def _again(self) -> float:
        """The part of a second reading that comes from memory: none if the rows in work fit the smaller part of L2."""
        if self.walks == 1:
            return 0.0
        rows = min(self.work.rows, self.per_sm * self.target.multiprocessors * self.s.abreast / self.s.pieces)
        live = max(1.0, rows) * self.length * self.work.element_bytes / self.target.l2
        return min(1.0, max(0.0, AGAIN * live - 1))

    def _missed(self) -> float:
        """The part of a second walk that L2 sees: it begins where the first one ended, and the end of a row is found in
        the first-level cache."""
        if self.s.column or self.s.split > 1:
            return 1.0
        piece = self.length / self.s.cluster * self.s.rows * self.work.again_bytes
        missed = max(0.0, 1 - HELD * self.target.shared / self.per_sm / max(1, piece))
        return missed if self.s.cluster == 1 else ceil(missed)  # measured: a part of a cluster's piece gains nothing

    def moved(self) -> tuple[float, float, float]:
        """Bytes from and to memory without and with reading again, and bytes through L2."""
        work, s = self.work, self.s
        once = work.other + sum(size * n for _, size, n in work.writes)
        total, through = float(once), float(once)
        for name, size, n in work.writes:
            more = (self._scatter(name, size) - 1) * size * n
            total, through = total + more, through + more
        every = work.rows * self.length
        for r in work.reads:
            times = 1 if s.resident or s.room else r.times
            scatter = self._scatter(r.name, r.size)
            shared = min(1.0, self._shared(r))
            once += r.elements * r.size
            lost = scatter if self.case.walk.pattern(r.name) != "stream" else 1.0
            second = (times - 1) * self._missed()
            total += r.elements * r.size * lost * (1 + second * self._again())
            through += max(r.elements, every * shared) * r.size * (1 + second) * scatter
        return once, total, through

    def _shared(self, r: Reading) -> float:
        """The part of the reads of an operand common to rows that reach L2: neighbours in a warp share one load."""
        if r.elements >= self.work.rows * self.length:
            return 1.0
        missed = 1 - FOUND if r.elements * r.size <= FIRST_LEVEL else 1.0
        return missed / (min(32, self.s.rows) if self.s.column or self.s.threads == 1 else 1)

    def _places(self) -> float:
        """How much dearer memory is for being read in small portions here and there."""
        s, patterns = self.s, {a.pattern for a in self.case.walk.arrays}
        size = max((a.size for a in self.case.walk.arrays), default=4)
        if "rows" in patterns:
            return 1 + PAGE / (size * (s.abreast if s.column or s.threads == 1 else 1))
        if s.resident or s.threads * s.tile >= self.length:
            return 1.0
        return 1 + PAGE / (size * s.tile * (1 if s.column else s.threads))

    def _run(self, name: str, size: int) -> int:
        """Bytes that lie side by side in one load of a warp."""
        s, pattern = self.s, self.case.walk.pattern(name)
        if pattern == "stream" and self._vector(name) < s.vector:  # single elements, a vector apart
            return 32 * size // s.vector
        if pattern == "stream":
            return size * self._vector(name) * (1 if s.column else min(32, s.threads))
        if pattern == "rows":
            together = s.column or s.threads == 1
            abreast = min(32, s.rows) if together else max(1, min(32, s.block) // s.threads)
            return size * abreast * self._beside(name)
        return 32 * size if pattern == "same" else size

    def _vector(self, name: str) -> int:
        width = next((a.width for a in self.case.walk.arrays if a.name == name), 1)
        return self.s.vector if width >= self.s.vector else 1

    def _scatter(self, name: str, size: int) -> float:
        pattern = self.case.walk.pattern(name)
        if pattern == "same":
            return 1.0
        scatter = max(1.0, SECTOR / self._run(name, size))
        return min(scatter, max(1.0, self._span(size) / self._wanted(name, size))) if pattern == "stream" else scatter

    def _beside(self, name: str) -> int:
        """Neighbouring rows a thread loads together."""
        width = next((a.width for a in self.case.walk.arrays if a.name == name and a.pattern == "rows"), 1)
        return self.s.beside if width >= self.s.beside else 1

    def _wanted(self, name: str, size: int) -> int:
        return 32 * self._vector(name) * self._beside(name) * size

    def _span(self, size: int) -> float:
        """Bytes between the first and the last row of a warp, where rows follow each other in memory."""
        s = self.s
        return self.length * size * max(1, min(32, s.rows) if s.column else 32 // min(32, s.threads))

    # --- instructions ------------------------------------------------------------------------------------------------

    def element(self) -> float:
        """Instructions of a thread for one element."""
        work, s = self.work, self.s
        formula = work.lifted if s.resident else work.folded
        if work.double:
            formula /= min(1.0, 2 * self.target.double)
        accesses = sum(1 if s.resident else r.times for r in work.reads if r.held) + len(work.writes)
        bounds = 0.0 if s.exact else 1.5 * self.walks * (len(work.reads) and 1)
        loop = 0.0 if s.resident else 6 * self.walks / s.tile / s.beside
        joins = 0.0 if s.resident else work.per_tile / s.tile
        return formula + work.narrow + (2 * accesses + bounds) / (s.vector * s.beside) + loop + joins

    def lanes(self) -> float:
        """How many elements' worth of instructions a row takes: tiles are walked whole."""
        s = self.s
        if s.resident:
            vectors = -(-self.length // s.vector)
            group = s.pieces * s.threads
            return max(1, -(-vectors // group)) * s.vector * group
        span = s.pieces * s.threads * s.vector
        return -(-self.length // span) * span

    def meeting(self) -> float:
        """Instructions of a thread beside those for elements: reductions over the group, merges, addresses, results."""
        work, s = self.work, self.s
        steps = log2(s.threads)
        once = 40 + work.merge / 2
        if s.resident:
            return once + work.reductions * (6 * steps + (20 if s.threads > 32 else 0))
        return (
            once + steps * (work.merge + 3 * work.state) + (self.work.merge * s.split / s.threads if s.split > 1 else 0)
        )

    def instructions(self) -> float:
        per_row = self.lanes() * self.element() + self.s.pieces * self.s.threads * self.meeting()
        return max(1, self.work.rows) * per_row * (1 + self.spilled / 8)

    def loads(self) -> float:
        """Cycles a multiprocessor's load unit is busy: one for every 128-byte line a warp's load touches."""
        work, s, cycles = self.work, self.s, 0.0
        every = work.rows * self.length
        arrays = [(r.name, r.size, 1 if s.resident else r.times) for r in work.reads if r.held]
        for name, size, times in [*arrays, *((name, size, 1) for name, size, _ in work.writes)]:
            vector = self._vector(name) * self._beside(name)
            wanted = self._wanted(name, size)
            apart = min(32.0, wanted / max(1, self._run(name, size)))
            if self.case.walk.pattern(name) == "stream":
                apart = min(apart, self._span(size) / 128)
            lines = max(1.0, wanted / 128, apart)
            cycles += every / (32 * vector) * times * lines
        return cycles

    # --- latency -----------------------------------------------------------------------------------------------------

    def rounds(self) -> float:
        """How often a thread waits for memory."""
        s = self.s
        if s.resident:
            return 1.0
        span = s.pieces * s.threads * s.tile
        return -(-self.length // span) * self.work.walks

    def exchange(self) -> float:
        """Seconds from the last element to the result: trees over lanes, warps, blocks and pieces."""
        work, s, cycle = self.work, self.s, 1 / self.target.clock
        joins = 2 * work.merge * s.beside if not s.resident else 8
        steps = log2(s.threads) if s.threads <= 32 else 5 + log2(s.threads / 32)
        once = steps * (SHUFFLE * (1 if s.resident else max(1, work.state)) + joins)
        once += 2 * BARRIER if s.threads > 32 else 0
        if s.column and s.threads > 1:
            once += 2 * BARRIER * log2(s.threads)
        if s.cluster > 1:
            once += CLUSTER_BARRIER + DISTRIBUTED + log2(s.cluster) * (SHUFFLE + joins)
        seconds = once * cycle * (work.reductions if s.resident else 1)
        if s.cluster > 1:
            seconds += CLUSTER_BARRIER * cycle
        if s.split > 1:
            per_thread = -(-s.split // s.threads)
            seconds += ATOMIC + per_thread * (self.target.latency + 2 * work.merge * cycle)
        return seconds

    def block_seconds(self) -> float:
        """A block alone: waits for its tiles, computes them, meets the others."""
        s, target = self.s, self.target
        rounds = self.rounds()
        held = s.tile if s.resident else min(s.tile, max(1, -(-self.length // (s.pieces * s.threads))))
        in_flight = 1.0 if s.exact else BOUNDS
        start = START + (TOGETHER if s.cluster > 1 else 0.0)
        return rounds * (self.waits(held) * target.latency / in_flight + self.issue(held)) + self.exchange() + start

    def issue(self, held: int) -> float:
        """Seconds until so many elements of every thread of a block have been computed."""
        s = self.s
        return held * s.beside * self.element() * max(1.0, s.block / 128) / self.target.clock

    def waits(self, held: int) -> float:
        """How often a thread waits for one tile: what it folds at once is loaded a few vectors ahead of the sums."""
        loads = sum(1 for r in self.work.reads if r.held and r.by_row) * held / self.s.vector
        return 1.0 if self.s.resident or self.s.column else max(1.0, loads / FLYING)

    def brought_seconds(self) -> float:
        """A block with one row after another: it computes them, and waits for what all rows share, for the others, and,
        without a lead, for the row."""
        s, target = self.s, self.target
        common = sum(1 for r in self.work.reads if r.held and not r.by_row)
        waits = (s.lead == 0) + (s.tiles * s.tile // s.vector // s.asked(common) if common else 0)
        return s.tiles * self.issue(s.tile) + waits * target.latency + self.exchange()

    def brought(self) -> tuple[float, float]:
        """Seconds that rows brought ahead take to move, and to be computed one after another."""
        s, target = self.s, self.target
        _, total, through = self.moved()
        moved = max(total / target.reachable, total / (self.sms * target.own_bandwidth), through / target.l2_bandwidth)
        if s.pieces > 1:
            held = self.per_sm * room_bytes(self.work, s) / target.shared
            moved *= JOINT * (1 + UNFILLED * max(0.0, 1 - held))
        return moved, self.waves() * self.brought_seconds()

    def waves(self) -> float:
        """How many times the device is filled; the last time, blocks leave room for each other only in part."""
        full = self.blocks / (self.per_sm * self.all_sms)
        return 1.0 if full <= 1 else full + (ceil(full) - full) / 2

    # --- everything --------------------------------------------------------------------------------------------------

    def estimate(self) -> Estimate:
        target, s = self.target, self.s
        once, total, through = self.moved()
        share = self.blocks / target.multiprocessors
        uneven = 1 + 0.15 * (ceil(share) / share - 1) if share > 1 else 1.0
        memory = max(total / target.reachable * self._places(), total / (self.sms * target.own_bandwidth))
        crowded, l2 = self.work.rows >= CROWD * target.multiprocessors, through / target.l2_bandwidth
        # A tile is folded before the next one is asked for.
        if not s.resident and not s.column and (s.pieces == 1 or self.walks > 1 or crowded):
            memory *= UNBUFFERED + TAIL / max(1.0, self.waves()) * crowded
        memory = max(memory * uneven, l2)
        busy = max(self.sms * min(1.0, self.per_sm * max(32, s.block) / 256), 1.0) / target.multiprocessors
        compute = self.instructions() / (target.issue * busy)
        loads = self.loads() / (target.clock * self.sms)
        latency = self.waves() * self.block_seconds()
        terms: tuple[float, ...] = (memory, compute, loads, latency)
        if s.room:  # while a row is computed, the next one is on its way, but a block does one thing at a time
            memory, latency = self.brought()
            terms = (hypot(memory, latency), compute, loads)
        alone = ALONE / self.per_sm if s.resident and s.pieces > 1 else 0.0  # while blocks wait, others fill the gaps
        terms = (terms[0] * (1 + alone) / REACHED[s.cluster], *terms[1:])
        seconds = sum(x**4 for x in terms) ** 0.25 + target.launch + (self.exchange() if s.pieces > 1 else 0)
        occupancy = min(1.0, self.per_sm * max(32, s.block) / target.threads)
        return Estimate(
            seconds, round(once), round(total), self.blocks, self.per_sm, occupancy, self.registers, memory,
            max(compute, loads), latency,
        )  # fmt: skip
