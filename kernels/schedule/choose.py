"""The choice of a schedule: every legal candidate is estimated, the fastest one is taken and explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import log2
from typing import Any, assert_never

from redalg.errors import RedalgError
from redalg.kernels.ir.layouts import VECTOR_BYTES, Walk
from redalg.kernels.ir.program import Program
from redalg.kernels.ir.schedule import FAMILIES, Family, Layout, Schedule
from redalg.kernels.schedule.calibration import calibration_of
from redalg.kernels.schedule.case import MOST_REGISTERS, Case, exact, grid_of_sums, in_pairs, spills
from redalg.kernels.schedule.cost import Estimate, estimate
from redalg.kernels.schedule.families import LONG, candidates_of, streamed
from redalg.kernels.schedule.legality import LARGEST_TILE, refusals, require
from redalg.kernels.schedule.target import H100, Target

CLOSE = 0.03  # candidates within 3 % are equal to a model like this one: the most usual one is taken
# Seconds of a launch in a stream that kernels one after another hide, and that differences are not compared with:
# softmax of columns 4039x89 bfloat16 takes 11.2 us by 23 blocks and 5.3 by clusters, 7.7 predicted for either; the
# choice among 1180 schedules of 81 cells takes 1.051 times as long as the best, 1.057 before (H200, 2026-11-28).
HIDDEN = 1.2e-6
SHORT = 128  # elements of a row that loads of any width bring in a few turns
SPREAD = 4096  # elements of a map's row from which on several blocks may have a tile of it each
LEAST_REGISTERS = 64  # registers of a thread that a limit of ours leaves
LIMITS = (MOST_REGISTERS, 168, 128, 96, 80, LEAST_REGISTERS)  # registers of a thread of 1 to 4 blocks of 256, and more
UNSURE = 24  # registers that a compiler may take beyond what is estimated
WAYS = f"a Schedule, a dict of some of its fields, or one of {', '.join(FAMILIES)}"
Override = Schedule | Mapping[str, Any] | str | None


@dataclass(frozen=True)
class Choice:
    """A schedule, the layout its kernel is printed for, and why. `seconds` and `bytes` are predictions."""

    schedule: Schedule
    layout: Layout
    reasons: tuple[str, ...]
    seconds: float
    bytes: int
    registers: int | None = None  # the limit a compiler must keep for the block to be launched
    blocks: int | None = None  # of the grid, where sums over rows depend on their number
    moved: int = 0  # bytes that any schedule has to move
    slow: str = ""  # what is warned of where it is taken

    def __str__(self) -> str:
        return "\n".join(self.reasons)


def choose(
    program: Program,
    sizes: Mapping[str, int],
    walk: Walk,
    target: Target,
    deterministic: bool = False,
    override: Override = None,
) -> Choice:
    """The schedule of a call: the fastest by the model of `redalg.kernels.schedule.cost`, among all that are legal.

    `sizes`: axis -> length. `override`: a `Schedule`, a dict of some of its fields (the best schedule that has them),
    or one of the words thread, warp, block, cluster, split, column (the best of that family). `deterministic`: the
    schedule follows from lengths of the stream, types and strides alone, never from the number of rows or the device's
    size, so that the order of all additions is the same in every batch.

    Raises: RedalgError for a schedule that breaks a law of the program or a limit of the device.

    >>> import redalg as ra
    >>> from redalg.kernels.ir.layouts import View, walk_of
    >>> from redalg.kernels.programs import lower
    >>> from redalg.kernels.schedule.target import H200
    >>> program = lower(ra.derive_incremental(ra.catalog["softmax"]), {"x": "float32"})
    >>> array = View.contiguous((4096, 4096))
    >>> choice = choose(program, {"i": 4096, "j": 4096}, walk_of(program, {"x": array, "y made": array}), H200)
    >>> choice.schedule.family, choice.schedule.resident, choice.bytes
    ('block', True, 134217728)
    """
    given = tuple(sorted(_fields(override).items())) if isinstance(override, Mapping) else override
    if not isinstance(given, Schedule | tuple | str | None):
        raise RedalgError(f"schedule={override!r}", "form.compile", "it is none of the ways to name one", WAYS)
    lengths = tuple((a, sizes[a]) for a in sorted(sizes))
    return _chosen(_Same(program), lengths, walk, target, deterministic, given)


def _fields(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields of a schedule by name, checked to be some."""
    kinds = {f.name: type(f.default) for f in fields(Schedule)}
    for name, value in given.items():
        if name not in kinds:
            raise RedalgError(f"schedule field {name!r}", "form.compile", "there is none", ", ".join(kinds))
        if type(value) is not kinds[name]:
            raise RedalgError(f"{name}={value!r}", "form.compile", f"its type is {kinds[name].__name__}", "give one")
    return given


class _Same:
    """A program as a key: the same object, so that no graph is hashed or compared."""

    __slots__ = ("program",)

    def __init__(self, program: Program) -> None:
        self.program = program

    def __hash__(self) -> int:
        return id(self.program)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.program is self.program


@lru_cache(maxsize=4096)
def _chosen(
    same: _Same, lengths: tuple[tuple[str, int], ...], walk: Walk, target: Target, deterministic: bool, override: Any
) -> Choice:
    case = Case.of(same.program, dict(lengths), walk, target)
    ranked = rank(case, deterministic)
    best, cost = _overridden(case, ranked, override)[0] if override is not None else ranked[0]
    summed = bool(case.program.summed)  # places of threads are then the same in every row
    layout = walk.layout(best.vector, best.neighbours, best.peel, led=not (best.deterministic or summed))
    return Choice(
        best,
        _placed(case, best, layout),
        tuple(_reasons(case, best, cost, ranked, override)),
        cost.seconds,
        cost.bytes,
        _limit(case, best, cost),
        grid_of_sums(case, best, cost.resident_blocks) if summed else None,
        cost.moved,
    )


def _limit(case: Case, s: Schedule, cost: Estimate) -> int:
    """Registers that a compiler may give a thread, so that as many blocks run at once as are estimated to, but few
    values in memory. Few numbers where it would hardly take more by itself, so that few kernels serve all sizes.

    Where ptxas is told nothing it keeps to 32 registers if it can, for blocks that there may not be, and loads the next
    vector into the registers of the one before, when that has been waited for and added: a thread that holds a row then
    waits for memory twice (the largest of 16 float32: 32 registers, and 48 with all of them under way).

    Variance of 695469x305 bfloat16 along columns was estimated at 63 registers and given 87: by 512 threads, one block
    ran on a multiprocessor and not two, 263 us and not 183 (H100, 2026-11-27). Blocks that would run after others, and
    beside them if elements of 16 bits stay in pairs as they were loaded, get the registers for that: RMSNorm of
    29x210773 bfloat16, in two parts or at once, 16.3 us or 12.0.
    """
    target = case.target
    most = target.multiprocessor.registers // max(32, s.block)
    together = s.persistent and s.split > 1 or case.program.summed
    wanted = cost.resident_blocks if together else _at_once(case, s, cost)
    limit = min(most // 8 * 8, max(LEAST_REGISTERS, most // max(1, wanted) // 8 * 8))
    tight = together or most < MOST_REGISTERS or cost.registers > limit - UNSURE
    if tight and limit < MOST_REGISTERS:
        return limit
    return next((n for n in LIMITS if n <= limit), limit)


def _at_once(case: Case, s: Schedule, cost: Estimate) -> int:
    """How many blocks run at once on a multiprocessor: more than estimated where that is all of them, and a compiler
    can hold elements of 16 bits in pairs."""
    pairs = in_pairs(case, s)
    fewer = max(LEAST_REGISTERS, -(-(cost.registers - pairs) // 8) * 8)
    all_of_them = -(-cost.blocks // case.target.multiprocessors)
    fit = pairs and all_of_them * fewer * max(32, s.block) <= case.target.multiprocessor.registers
    return all_of_them if fit else min(cost.resident_blocks, all_of_them)


def _placed(case: Case, s: Schedule, layout: Layout) -> Layout:
    """The layout with what goes through shared memory."""
    if s.staged:
        return replace(layout, staged=case.dense)
    return replace(layout, turned=case.turned) if s.column else layout


Ranked = list[tuple[Schedule, Estimate]]


def rank(case: Case, deterministic: bool = False) -> Ranked:
    """All candidates, the fastest first; those that are close to it the most usual first, and those that read once."""
    judged = reference(case) if deterministic else case
    found = [(s, estimate(judged, s)) for s in candidates_of(judged, deterministic)]
    found = [(s, e) for s, e in found if next(refusals(case, s), None) is None] if deterministic else found
    if not found and case.program.summed:
        why = f"no block or cluster holds {case.work.length} elements of a row and its sums in registers"
        raise RedalgError(f"sums over rows of {case.program.name}", "form.compile", why, "a kernel for the sums")
    least = min(e.seconds for _, e in found)
    found.sort(key=_Place(judged, least + CLOSE * max(0.0, least - HIDDEN)))
    return [(s, estimate(case, s)) for s, _ in found] if deterministic else found


class _Place:
    """Where a schedule stands among all: by its time, and those that take less than `close` by how usual they are; of
    equal ones the one that fills a multiprocessor most (96 cells: 1.048 times the best, 1.053 by the order they are
    made in; H200, 2026-11-28)."""

    def __init__(self, case: Case, close: float) -> None:
        self.case, self.close = case, close
        cache = calibration_of(case.target.name).first_level.kept * case.target.multiprocessor.shared
        self.near = case.work.length * case.work.reread_bytes <= cache
        self.most = 48 if case.work.instructions.narrow else 32
        self.common = any(r.held and not r.by_row for r in case.work.reads)

    def __call__(self, pair: tuple[Schedule, Estimate]) -> tuple[float, float, float, float]:
        s, seconds = pair[0], pair[1].seconds
        far = self.far(s) if seconds < self.close else 0.0
        return max(self.close, seconds), far, seconds if s.coarsen > 1 or s.cluster > 1 else 0.0, -pair[1].occupancy

    def far(self, s: Schedule) -> float:
        """How far a schedule is from the usual ones; a second walk counts, less where it reads from caches."""
        case = self.case
        if not case.reduces and not s.column and case.work.length <= s.blocks_per_row * s.threads * s.tile > SPREAD:
            return _small(case, s) + _narrow(case, s)
        found = unusual(s, self.most) + _slim(case, s) + _long(case, s) + _narrow(case, s)
        if case.work.walks > 1 and not s.resident:
            cached = self.near and s.blocks_per_row == 1 and not (s.peel and self.common)
            found += 0.5 if cached else 1.5
        return found


def lesser(case: Case, refused: Schedule, deterministic: bool = False) -> list[Schedule]:
    """What a device may still run that refused a schedule, the fastest first: smaller blocks, that need no others.

    >>> import redalg as ra
    >>> from redalg.kernels.ir.layouts import View, walk_of
    >>> from redalg.kernels.programs import lower
    >>> from redalg.kernels.schedule.target import H200
    >>> program = lower(ra.derive_incremental(ra.catalog["softmax"]), {"x": "float32"})
    >>> array, sizes = View.contiguous((512, 512)), {"i": 512, "j": 512}
    >>> case = Case.of(program, sizes, walk_of(program, {"x": array, "y made": array}), H200)
    >>> [s.block for s in lesser(case, Schedule(256, 1, 4, 4))]
    [128, 64, 32]
    """
    found: dict[int, Schedule] = {}
    alone = refused.cluster == 1 and not refused.persistent and not refused.prefetch
    for s, _ in rank(case, deterministic):
        if s.cluster == 1 and not s.persistent and not s.prefetch and (s.block < refused.block or not alone):
            found.setdefault(s.block, s)
    return sorted(found.values(), key=lambda s: -s.block)[:MOST_LESSER]


MOST_LESSER = 3  # schedules that are tried after one that a device refused


def unusual(s: Schedule, most: int = 32) -> float:
    """How far a schedule is from what works in most places: 8 to 32 elements a thread (`most`: of 16 bits 48; LayerNorm
    of 8192 rows of 12288 bfloat16 takes an H100 138 us with 48, 163 with 24, RMSNorm of 4001 of 3003 float32 40 with 48
    and 35 with 24; 2026-11-25), 128 to 512 threads a block,
    whole warps, one block for a row, clusters of at most 8.

    >>> unusual(Schedule(256, 1, 4, 16)), unusual(Schedule(256, 1, 4, 64, cluster=2))
    (0.0, 2.0)
    """
    tile = s.tile if s.column else s.tile * s.coarsen
    found = _outside(tile, 8, most if s.neighbours == 1 else 64) + _outside(s.block, 128, 512)
    found += (s.blocks_per_row > 1) + (s.cluster > 8)
    if s.column:  # what is held is brought by small blocks side by side: several of them fill each other's waits
        return found + (0.0 if s.resident and s.threads > 1 else _outside(s.rows, 32, 64))
    return found + _outside(s.threads, 32, 1024) / 2


def _long(case: Case, s: Schedule) -> float:
    """How far a walk over a long row is from 256 threads that ask for 32 elements each at a time. On an H200 these read
    rows of 65536 in 130-133 us where 128 threads and 16 elements take 134-141 (2026-11-21), bfloat16 in 123-134 us with
    64 elements and in 125-138 with 32, and 1024 splits of 8 rows of 16 M float32 in 127 us, where tiles of 8 take 135
    and 528 splits 130 (2026-11-22)."""
    enough = calibration_of(case.target.name).blocks.crowd * case.target.multiprocessors
    if s.split > 1 and not (s.persistent or s.column):
        return _outside(s.tile, 32, 64) / 4 + _outside(case.work.rows * s.split, enough, 1 << 31) / 4
    crowded = case.work.rows >= enough
    if s.resident or s.column or case.work.length < LONG or not crowded or s.prefetch and s.peel:
        return 0.0
    most = 256 if case.work.walks == 1 else 512  # what is walked again is found in the first-level cache by few blocks
    wide = LARGEST_TILE in streamed(case)
    far = 1.25 * _outside(s.tile, 64, 64) if wide else _outside(s.tile, 32, 64) / 4  # more than what is unusual of 64
    return far + _outside(s.threads, most, 2 * most) / 4


def _small(case: Case, s: Schedule) -> float:
    """How far blocks with a row of a map, or a part of one, are from 128 to 256 threads with 64 bytes each. On an H200,
    a gradient of 1603 rows of 15016 float32 takes 50.5 us by blocks of 128 threads, 52.6 by one of 512 for a row; of
    700 of 30000 bfloat16 23.5 and 25.8 (2026-11-28)."""
    size = max((a.size for a in case.walk.arrays if a.pattern != "same"), default=4)
    return _outside(s.tile * size, 64, 64) / 2 + _outside(s.block, 128, 256)


def _slim(case: Case, s: Schedule) -> float:
    """Whether loads across rows have less than 4 bytes, and could have more. On an H200, bfloat16 columns
    read one element at a time reach 54 to 68 % of the bandwidth that float32 ones reach nearly all of (2026-11-21).
    Less than 8 where results turn: softmax of a transposed 4000×8192 float32 takes 174 us with 8, 209 with 4."""
    if s.kept:  # single elements are as good: loads are waited for once
        return 0.0
    sizes = [a.size for a in case.walk.arrays if a.pattern == "rows"]
    least, far = (8, 2.0) if case.turned else (4, 1.0)
    together = s.coarsen if s.column else 1
    return far * (bool(sizes) and together < case.most_coarsening and together * min(sizes) < least)


def _narrow(case: Case, s: Schedule) -> float:
    """How far loads are from the widest there are, in halvings, where rows are long enough to have many of them."""
    if s.column or case.work.length < SHORT:
        return 0.0
    widest = case.widest_peeled
    if case.walk.layout(
        widest, peel=True
    ).shifted:  # halves that are aligned are as good as what is put together from two
        widest = max(1, widest // 2)
    return _outside(s.vector, widest, LARGEST_TILE) / 2


def _outside(value: int, low: int, high: int) -> float:
    """Doublings between a number and a range; none is counted as one, for a call of no rows has a schedule too."""
    value = max(1, value)
    return max(0.0, log2(low / value), log2(value / high))


def reference(case: Case) -> Case:
    """The case a deterministic schedule is chosen for: 64 M elements of such rows on one fixed device."""
    length = max(1, case.work.length)
    rows = min(max(2**26 // length, 8), 2**20)
    reads = tuple(replace(r, elements=(rows if r.by_row else 1) * length * r.inner) for r in case.work.reads)
    writes = tuple((name, size, rows * length) for name, size, _ in case.work.writes)
    work = replace(case.work, rows=rows, other=0, reads=reads, writes=writes)
    arrays = tuple(
        replace(a, width=VECTOR_BYTES, pattern="rows" if a.pattern == "apart" else a.pattern) for a in case.walk.arrays
    )
    clusters = case.target.block
    target = H100.having(cluster=clusters.cluster, cluster_limit=clusters.cluster_limit)
    return replace(case, work=work, walk=Walk(arrays), target=target)


# --- schedule= -------------------------------------------------------------------------------------------------------


def _overridden(case: Case, ranked: Ranked, override: Any) -> Ranked:
    if isinstance(override, Schedule):
        require(case, override)
        return [(override, estimate(case, override))]
    if isinstance(override, str):
        return _of_family(case, ranked, override)
    return _with_fields(case, ranked, dict(override))


def _of_family(case: Case, ranked: Ranked, word: str) -> Ranked:
    if word not in FAMILIES:
        raise RedalgError(f"schedule={word!r}", "form.compile", "it names no family of schedules", WAYS)
    found = [(s, e) for s, e in ranked if s.family == word]
    if not found:
        found = [(s, estimate(case, s)) for s in [_typical(case, Family(word))]]
        require(case, found[0][0])
    return found


def _typical(case: Case, family: Family) -> Schedule:
    """A plain schedule of a family, where the candidates have none."""
    vector = case.widest if not case.ordered else 1
    columns, tile = case.column_count, max(4, vector)
    match family:
        case Family.THREAD:
            return Schedule(1, 128, vector, tile, columns_per_thread=columns)
        case Family.WARP:
            return Schedule(32, 4, vector, tile, columns_per_thread=columns)
        case Family.BLOCK:
            return Schedule(128, 1, vector, tile, columns_per_thread=columns)
        case Family.CLUSTER:
            return Schedule(128, 1, vector, tile, cluster=2, columns_per_thread=columns)
        case Family.SPLIT:
            return Schedule(128, 1, vector, tile, split=2, columns_per_thread=columns)
        case Family.COLUMN:
            return Schedule(4, 32, 1, 4, column=True, columns_per_thread=columns)
    assert_never(family)


def _with_fields(case: Case, ranked: Ranked, wanted: dict[str, Any]) -> Ranked:
    found = [(s, e) for s, e in ranked if all(getattr(s, k) == v for k, v in wanted.items())]
    if found:
        return found
    made = []
    for s, _ in ranked:
        s = _refitted(case, replace(s, **wanted), wanted)
        if next(refusals(case, s), None) is None:
            made.append((s, estimate(case, s)))
    if not made:
        require(case, _refitted(case, replace(ranked[0][0], **wanted), wanted))
    return sorted(made, key=lambda pair: pair[1].seconds)


def _refitted(case: Case, s: Schedule, wanted: dict[str, Any]) -> Schedule:
    """The fields that follow from others, after some were set."""
    if "tile" not in wanted and s.tile % s.vector:
        s = replace(s, tile=-(-s.tile // s.vector) * s.vector)
    if "peel" not in wanted and ("vector" in wanted or s.prefetch) and case.work.length % s.vector == 0:
        s = replace(s, peel=False)
    return s if "exact" in wanted else replace(s, exact=exact(case.work, s) and not case.program.columns)


# --- words -----------------------------------------------------------------------------------------------------------


def _reasons(case: Case, best: Schedule, cost: Estimate, ranked: Ranked, override: Any) -> list[str]:
    work, target = case.work, case.target
    twice = f" ({size(cost.moved)} without reading again)" if cost.bytes > cost.moved else ""
    lines = [
        f"{work.rows} rows of {work.length} along {case.stream}, {case.program.real}, on {target.name}: {words(best)}.",
        f"predicted {micro(cost.seconds)}, bound by {cost.bound}: memory {micro(cost.memory)}, "
        f"instructions {micro(cost.compute)}, latency {micro(cost.latency)}, launch {micro(target.launch)}.",
        f"{size(cost.bytes)} moved{twice}, at {cost.bytes / cost.seconds / 1e12:.2f} "
        f"of {target.reachable / 1e12:.2f} TB/s a copy reaches.",
        f"{cost.blocks} blocks of {best.block} threads, {cost.resident_blocks} on a multiprocessor of "
        f"{target.multiprocessors}: occupancy {cost.occupancy:.0%} at about {cost.registers} registers a thread.",
    ]
    if override is not None:
        lines.insert(1, f"asked for by schedule=; the model's own choice is {ranked[0][0]}.")
        if spills(case, best):
            lines.append("it is estimated to need more registers than its threads have, and to spill.")
    return lines + _others(case, best, ranked)


def _others(case: Case, best: Schedule, ranked: Ranked) -> list[str]:
    """The best of every other family, or the law that excludes it."""
    lines = []
    for family in FAMILIES:
        if family == best.family:
            continue
        other = next(((s, e) for s, e in ranked if s.family == family), None)
        if other:
            lines.append(f"{family}: {micro(other[1].seconds)}, bound by {other[1].bound}, with {other[0]}")
        else:
            why = next(refusals(case, _typical(case, family)), None)
            lines.append(f"{family}: not considered; {why[0] if why else 'it has nothing to gain here'}")
    return lines


def words(s: Schedule) -> str:
    """A schedule in words.

    >>> words(Schedule(128, 1, 4, 32, resident=True))
    '128 threads for a row, the row in registers (32 elements each), loads of 4 elements'
    """
    who = "a thread" if s.threads == 1 else f"{s.threads} threads"
    if s.cluster > 1:
        who = f"a cluster of {s.cluster} blocks of {who}"
    text = f"{who} for a row"
    if s.split > 1:
        text = f"rows in {s.split} splits of {who}, " + (
            "which meet at a grid barrier" if s.persistent else "merged by the last"
        )
    text += _several(s) if s.column or s.rows_per_block > 1 else ""
    text += f", the row in registers ({s.tile} elements each)" if s.resident else f", walked in tiles of {s.tile}"
    text += ", prefetched to shared memory" if s.prefetch else ", kept in shared memory" if s.kept else ""
    text += f" with a prefetch distance of {s.prefetch_distance} tiles" if s.prefetch_distance else ""
    text += ", as many blocks as run at once" if s.persistent else ""
    text += f", loads of {s.vector} elements" if s.vector > 1 else ", loads of single elements"
    text += ", all rows of a block through shared memory in whole vectors" if s.staged else ""
    return text + (", rows that start anywhere" if s.peel else "")


def _several(s: Schedule) -> str:
    which = f", {s.rows_per_block} rows {'side by side' if s.column else 'to a block'}"
    return which + (f", {s.coarsen} to a thread" if s.coarsen > 1 else "")


def micro(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"


def size(count: float) -> str:
    """Bytes in words.

    >>> size(134217728), size(512)
    ('128.0 MiB', '512 bytes')
    """
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} bytes"
