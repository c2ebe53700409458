"""Schedules worth considering, family by family; `redalg.kernels.schedule.legality` has the last word on each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from redalg.kernels.ir.schedule import COPIED, MOST_DISTANCE, Schedule
from redalg.kernels.schedule.case import Case, exact, power, prefetch_bytes, short_of, spills, states_bytes
from redalg.kernels.schedule.legality import COPIES, LARGEST_TILE, refusals
from redalg.kernels.schedule.target import RESERVED

VECTORS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)  # a thread may hold of a row
THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
BLOCKS = (128, 256)  # threads of a block that holds several rows
# Multiprocessors for every row, from which on rows are few: softmax of 8 rows of 16 M float32 takes an H200 507 us by
# clusters of 16, of which 7 run at once, and 408 by blocks of a cooperative launch; 450 and 400 for 32 rows of 4 M
# (2026-11-21).
FEW = 4
LONG = 1 << 15  # elements of a row from which on blocks of a cooperative launch may share it
STREAMED = (4, 8, 16, 32)  # elements of a tile that is walked
MOST_COARSENING = 8  # rows of a thread: more states than that do not fit its registers


def candidates_of(case: Case, deterministic: bool = False) -> list[Schedule]:
    """Every legal schedule worth an estimate, in a fixed order, the simpler ones first."""
    widest = case.widest_by_type if deterministic else case.widest
    found: dict[Schedule, None] = {}
    for s in _all(case, widest, deterministic):
        whole = exact(case.work, s) and not case.program.columns
        if (s.deterministic, s.exact) != (deterministic, whole):
            s = replace(s, deterministic=deterministic, exact=whole)
        if s not in found and next(refusals(case, s), None) is None:
            found[s] = None
    return _fitting(case, list(found))


def _fitting(case: Case, found: list[Schedule]) -> list[Schedule]:
    """Those whose rows fit registers, if there are any."""
    fitting = [s for s in found if not spills(case, s)]
    if case.program.summed:
        # LayerNorm's backward pass of 13338 rows of 9799 bfloat16 takes an H100 594 us by 1024 threads that hold 10
        # elements each of a staged row, and spill some; 776 by clusters that do not (2026-11-26).
        near = [s for s in found if (s.staged or s.exact and s.vector > 1) and short_of(case, s) <= SPILLED]
        taken = {*fitting, *near}
        return _of_few_elements([s for s in found if s in taken])
    fitting = fitting or found
    if case.work.length < SHORT or not any(s.peel for s in fitting):
        return fitting
    # Single elements behind bounds take two to four times what the model says of them: LayerNorm of 331 rows of 50961
    # bfloat16 in clusters 98 us instead of 42, variance of 9333 of 8659 float16 299 instead of 75 (H200, 2026-11-24).
    return [s for s in fitting if s.peel or s.column or s.vector > 1]


def _of_few_elements(found: list[Schedule]) -> list[Schedule]:
    """Those where a thread has few single elements, if there are any."""
    return [s for s in found if s.vector > 1 or s.tile <= SINGLE or s.staged] or found


SHORT = 64  # elements of a row that is read in few turns, whatever the loads
# Single elements of a thread where sums over rows are added: with 20 and more they took 1.3 to 2.9 times as long as
# with 3 to 16 in each of five cells (H100, 2026-11-25, `benchmarks/records/gpu_row_gradients.md`), against the model.
SINGLE = 16


def _all(case: Case, widest: int, deterministic: bool) -> Iterator[Schedule]:
    if case.program.columns:
        yield from _by_columns(case, deterministic)
        return
    if case.program.summed:
        yield from _summing(case, widest)
        return
    for vector in _vectors(case, widest, deterministic):
        yield from _groups(case, vector, deterministic)
        if not deterministic or not may_split(case):  # splits through memory need no particular device
            yield from _clusters(case, vector)
        yield from _splits(case, vector, deterministic)
        yield from _shared_maps(case, vector, False)
    if not deterministic:
        yield from _peeled(case)
        yield from (s for vector in peeled_vectors(case) for s in _shared_maps(case, vector, True))
        yield from _staged(case)
    if not deterministic and FEW * case.work.rows <= case.target.multiprocessors:
        yield from (s for s in waiting(case) if not s.resident or _waits_alone(case, s))
    if not deterministic:
        yield from prefetched(case)
    yield from _columns(case, deterministic)


def _waits_alone(case: Case, s: Schedule) -> bool:
    """Whether splits that hold their rows while they meet have a multiprocessor each, and registers to spare: where
    several are on one, those that walk theirs fill each other's waits."""
    # log_softmax of 1x517184 float32 takes 5.8 us so, 7.1 by splits that walk it and 9.0 by clusters, LayerNorm of
    # 2x1000000 float32 13.2, 19.5 and 24.7; of 7x700001 float16, by several on a multiprocessor, 18.6, 14.8 and 14.0;
    # softmax of 3x1000000 bfloat16, by 93 blocks of 32768 elements, 10.1, 9.0 and 12.5 (H200, 2026-11-30).
    rows = max(1, case.work.rows)
    return s.split * rows <= case.target.multiprocessors and (rows == 1 or s.threads * s.tile <= LONG // 2)


def _summing(case: Case, widest: int) -> Iterator[Schedule]:
    """Rows in registers, a persistent block for one after another, so that its threads add the same places of them:
    read where they are, or prefetched to shared memory. Whole vectors of rows that start anywhere are legal, and left
    out: results cannot be shifted as operands are (20000 rows of 3001 bfloat16: 255 to 424 us, 218 by single elements;
    H200, 2026-11-24)."""
    for s in (*_groups(case, widest, False), *_clusters(case, widest)):
        if s.resident:
            s = replace(s, persistent=True)
            yield s
            if s.vector > 1:  # copies of single elements take a third more registers than they leave (ptxas 13, sm_90)
                yield replace(s, prefetch=s.threads * s.tile)
    yield from _staged_in_turn(case)


def _staged_in_turn(case: Case) -> Iterator[Schedule]:
    """Rows that do not begin at multiples of 16 bytes, through shared memory in whole vectors, in a persistent grid."""
    sizes = [a.size for a in case.walk.arrays if a.name in case.dense]
    if not sizes or case.widest * min(sizes) >= WIDE:
        return
    for threads in THREADS:
        tile = tile_for(case.work.length, threads, 1)
        if tile is not None and tile <= STAGED_TILE and (threads == 1 or threads < 2 * case.work.length):
            for rows in dict.fromkeys(max(1, block // threads) for block in BLOCKS):
                yield Schedule(threads, rows, 1, tile, resident=True, persistent=True, staged=True)


def _peeled(case: Case) -> Iterator[Schedule]:
    """Whole vectors of rows that start anywhere."""
    for vector in peeled_vectors(case):
        for s in (*_groups(case, vector, False, peel=True), *_clusters(case, vector), *_splits(case, vector, False)):
            yield replace(s, peel=True)


def peeled_vectors(case: Case) -> list[int]:
    """The widest vector of rows that start anywhere, and narrower ones for short rows; none where all are aligned."""
    most = case.widest_peeled
    if case.widest >= most:
        return []
    least = most if case.work.length > 4096 else max(2, most // 2) if case.work.length > 512 else 2
    return [v for v in (16, 8, 4, 2) if least <= v <= most]


def _staged(case: Case) -> Iterator[Schedule]:
    """Short rows through shared memory, where they do not begin at multiples of 16 bytes themselves."""
    sizes = [a.size for a in case.walk.arrays if a.name in case.dense]
    if not sizes or case.widest * min(sizes) >= WIDE or case.work.length > LONGEST_STAGED:
        return
    for threads in (1, 2, 4, 8):
        tile = tile_for(case.work.length, threads, 1)
        if tile is not None and (threads == 1 or threads * tile < 2 * case.work.length):
            for block in BLOCKS:
                yield Schedule(threads, block // threads, 1, tile, resident=True, staged=True)


SPILLED = 32  # registers that a thread of staged rows may lack, or of rows in whole vectors and tiles
STAGED_TILE = 24  # elements of a thread of a staged row, at most
WIDE = 16  # bytes of the vectors that rows are better read in where they lie
LONGEST_STAGED = 256  # elements of a row that passes through shared memory with those of its block


def may_split(case: Case) -> bool:
    return not case.reduces or not (case.program.keeps or len(case.program.passes) > 1)


def _vectors(case: Case, widest: int, deterministic: bool) -> list[int]:
    """The widest vector; half of it for short rows; the widest by type, if one array alone does not allow it."""
    found = [widest]
    if case.work.length <= 4096:
        found.append(max(1, widest // 2))
    by_type = case.widest_by_type
    if not deterministic and case.walk.layout(by_type).unit:
        found.append(by_type)
    return list(dict.fromkeys([*found, *([1] if case.ordered else [])]))


def _by_columns(case: Case, deterministic: bool) -> Iterator[Schedule]:
    for rows in (4,) if deterministic else (4, 8, 2, 1):
        for tile in (1, 2, 4):
            yield Schedule(32, rows, 1, tile, columns_per_thread=case.column_count)
    if not deterministic:
        for tile in (1, 2, 4):
            for count in split_counts(case, 1, 32 * tile, False):
                yield Schedule(32, 1, 1, tile, columns_per_thread=case.column_count, split=count)


def _rows(case: Case, threads: int, deterministic: bool) -> list[int]:
    """Rows side by side in a block: as many as fill one, or fewer where rows are few."""
    if threads >= 256:
        return [1]
    options = [max(1, block // threads) for block in BLOCKS]
    if not deterministic:
        options = [min(o, power(max(1, case.work.rows))) for o in options]
        if case.work.rows < 4 * case.target.multiprocessors * options[0]:
            options.append(max(1, 64 // threads))
            options.append(max(1, 32 // threads))
    if threads >= 64:
        options.append(1)
    return list(dict.fromkeys(options))


def tile_for(length: int, threads: int, vector: int) -> int | None:
    """The least tile with which the threads hold a row: exactly, or in one of a few sizes.

    >>> tile_for(768, 64, 4), tile_for(1000, 32, 4), tile_for(10**6, 32, 4)
    (12, 32, None)
    """
    needed = max(1, -(-length // (threads * vector)))
    if needed * threads * vector != length:
        needed = next((v for v in VECTORS if v >= needed), LARGEST_TILE + 1)
    return needed * vector if needed * vector <= LARGEST_TILE else None


def _groups(case: Case, vector: int, deterministic: bool, peel: bool = False) -> Iterator[Schedule]:
    """Threads of one block for a row: the row in registers, or walked in tiles."""
    length = case.work.length // vector * vector if peel else case.work.length
    for threads in THREADS[1:] if case.walk.column else THREADS:
        for rows in _rows(case, threads, deterministic):
            tile = tile_for(length, threads, vector)
            if tile is not None and (threads == 1 or threads * vector < 2 * case.work.length):
                yield Schedule(threads, rows, vector, tile, resident=True)
                yield from () if deterministic else _several(case, Schedule(threads, rows, vector, tile, resident=True))
            for elements in streamed(case):
                if elements >= vector and (elements == STREAMED[0] or threads * elements < 2 * case.work.length):
                    yield Schedule(threads, rows, vector, elements)


def _several(case: Case, s: Schedule) -> Iterator[Schedule]:
    """Several rows of a thread at once, where rows are short and many: more of them are on their way, and what they
    share is loaded once."""
    for coarsen in (2, 4):
        many = case.work.rows >= 8 * case.target.multiprocessors * s.rows * coarsen
        if many and s.threads <= 32 and s.tile * coarsen <= SEVERAL:
            yield replace(s, coarsen=coarsen)


SEVERAL = 32  # elements that a thread holds of several rows


def streamed(case: Case) -> tuple[int, ...]:
    """Tiles that are walked: of long rows of 16 bits, of one tensor and read once, as many bytes at a time as of 32."""
    work = case.work
    long = work.instructions.narrow and work.walks == 1 and work.held.streamed == 1 and work.length >= LONG
    return (*STREAMED, LARGEST_TILE) if long else STREAMED


def _clusters(case: Case, vector: int) -> Iterator[Schedule]:
    """Blocks that share a row; a block of them has some work of its own."""
    size = 2
    while size <= case.target.block.cluster_limit:
        for threads in (128, 256, 512, 1024):
            if case.work.length < 2 * size * threads:
                continue
            tile = tile_for(-(-case.work.length // size), threads, vector)
            if tile is not None:
                yield Schedule(threads, 1, vector, tile, resident=True, cluster=size)
            for elements in STREAMED:
                if elements >= vector:
                    yield Schedule(threads, 1, vector, elements, cluster=size)
        size *= 2


def split_counts(case: Case, rows: int, least: int, deterministic: bool) -> list[int]:
    """Into how many splits to cut rows: by powers of two, or to fill the device a whole number of times."""
    most = case.work.length // max(1, least)
    if deterministic:
        return [k for k in (2, 4, 8, 16, 32, 64, 128, 256, 512) if k <= most]
    groups = -(-max(1, case.work.rows) // rows)
    sms = case.target.multiprocessors
    filled = [k * sms // groups for k in (1, 2, 3, 4, 6, 8)]
    powers = [2**k for k in range(1, 14) if sms // 2 <= 2**k * groups <= 16 * sms]
    return list(dict.fromkeys(k for k in (*powers, *filled) if 1 < k <= most))


def _splits(case: Case, vector: int, deterministic: bool) -> Iterator[Schedule]:
    """Splits of rows on different blocks, merged by the last of them."""
    for threads in (128, 256, 512):
        for elements in (8, 16, 32):
            if elements < vector:
                continue
            for count in split_counts(case, 1, threads * vector, deterministic):
                yield Schedule(threads, 1, vector, elements, split=count)


def _shared_maps(case: Case, vector: int, peel: bool) -> Iterator[Schedule]:
    """Long rows without a reduction on as many blocks as have one tile each: many small ones leave no tail."""
    for threads, elements in product((128, 256), (8, 16, 32)):
        if not case.reduces and elements >= vector and threads * elements < case.work.length:
            count = -(-case.work.length // (threads * elements))
            yield Schedule(threads, 1, vector, elements, split=count, peel=peel)


def waiting(case: Case) -> list[Schedule]:
    """Splits of long rows on blocks of a cooperative launch: in registers, or few rows at a time, so that the second
    walk over them finds some of them in L2. Whether that pays is left to measuring, unless there are too few rows for
    clusters to fill the device."""
    found, most = list[Schedule](), case.target.multiprocessors
    peel = bool(peeled_vectors(case))
    vector = case.widest_peeled if peel else case.widest
    if not case.reduces or not case.program.keeps or case.work.length < LONG:
        return []
    counts = dict.fromkeys((8, 16, 32, 64, power(most + 1) // 2, most))
    for threads, elements in product((256, 512, 1024), (16, 32, 64)):
        whole = -(-case.work.length // (threads * elements))
        for count, resident in ((whole, True), *((n, False) for n in counts if n <= whole)):
            s = Schedule(threads, 1, vector, elements, resident, split=count, persistent=True, peel=peel)
            s = replace(s, exact=exact(case.work, s))
            if count > 1 and next(refusals(case, s), None) is None:
                found.append(s)
    return [s for s in found if not spills(case, s)]


def prefetched(case: Case) -> list[Schedule]:
    """Long rows that are read for their states and again for results, prefetched to shared memory one after another: a
    row to a block, or splits to blocks of a cooperative launch, two of them on a multiprocessor. Where elements of 16
    bits would be behind tests of bounds, that takes as long as reading rows twice (measured with 40000 to 300000
    elements, H200, 2026-11-22)."""
    peel = bool(peeled_vectors(case))
    vector = case.widest_peeled if peel else case.widest
    if not (case.reduces and case.program.keeps and case.work.reread_bytes):
        return []
    if case.work.length < LONG or case.target.cc < COPIES:
        return []
    aligned = ((512, 32), (512, 16), (1024, 32))
    # A longer distance for more tiles: softmax of 5000 rows of 50257 bfloat16 takes 338 us with tiles of 32, 309 of 16.
    shapes = ((512, 16), (512, 8), *aligned, (256, 16)) if peel else aligned
    made = [Schedule(n, 1, vector, e, persistent=True, peel=peel) for n, e in shapes if e >= vector]
    found = [_with_prefetch(case, s, 1) for s in made]
    s = Schedule(256, 1, vector, 32 if case.work.instructions.narrow else 16, persistent=True, peel=peel)
    found += [_with_prefetch(case, replace(s, split=count), 2) for count in _shares(case, s.threads * s.tile)]
    return [s for s in dict.fromkeys(found) if _whole(case, s) and next(refusals(case, s), None) is None]


def _whole(case: Case, s: Schedule) -> bool:
    """Whether elements of 16 bits are read in whole vectors."""
    return s.exact or s.peel or not case.work.instructions.narrow


def _shares(case: Case, span: int) -> list[int]:
    """Into how many splits rows are cut so that two of them fit a multiprocessor: as few as possible, and as few whole
    ones as leave shared memory for half of another."""
    length, most = case.work.length, case.target.multiprocessor.shared // 2 // max(1, case.work.own_bytes)
    fitting = [k for k in range(2, case.target.multiprocessors + 1) if -(-length // (k * span)) * span <= most]
    whole = [k for k in fitting if length % (k * span) == 0 and 3 * length <= 2 * k * most]
    return [*whole[:1], *fitting[:1]]


def _with_prefetch(case: Case, s: Schedule, blocks: int) -> Schedule:
    """The schedule that prefetches its part of a row, at the longest distance at which as many blocks fit."""
    span = s.threads * s.tile
    s = replace(s, exact=exact(case.work, s), prefetch=-(-case.work.length // (s.blocks_per_row * span)) * span)
    taken = RESERVED + states_bytes(case.work, s) + prefetch_bytes(case.work, s)
    left = case.target.multiprocessor.shared // blocks - taken
    return replace(
        s,
        prefetch_distance=min(MOST_DISTANCE, left // (span * case.work.own_bytes))
        if (s.exact or s.peel) and left > 0
        else 0,
    )


def _columns(case: Case, deterministic: bool) -> Iterator[Schedule]:
    """Rows side by side, several threads down the stream of each."""
    work = case.work
    if not any(a.pattern == "rows" for a in case.walk.arrays):
        if not deterministic or all(a.pattern == "stream" for a in case.walk.arrays):
            return
    widths = (32,) if deterministic else tuple(w for w in (32, 64, 128, 16, 8, 4, 2) if w < 2 * power(work.rows))
    for coarsen in _coarsenings(case, deterministic):
        for rows in widths:
            yield from _coarsened(case, rows, coarsen, deterministic)


def _coarsenings(case: Case, deterministic: bool) -> list[int]:
    """Neighbouring rows of a thread: as many as there are in 4, 8 or 16 bytes."""
    most = 1 if deterministic or case.program.columns else min(MOST_COARSENING, case.most_coarsening)
    return [w for w in (1, 2, 4, 8, 16) if w <= most]


def _coarsened(case: Case, rows: int, coarsen: int, deterministic: bool) -> Iterator[Schedule]:
    """Column schedules with so many threads, and rows of a thread, side by side."""
    length = case.work.length
    if rows * coarsen >= 2 * power(case.work.rows) and coarsen > 1:
        return
    whole, part = _column_tiles(case, coarsen)
    for threads in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        if not 64 <= threads * rows <= 1024 or threads > max(1, length):
            continue
        for elements in whole:
            yield Schedule(threads, rows, 1, elements, column=True, coarsen=coarsen)
        if not deterministic:
            yield from _held_columns(case, threads, rows, coarsen)
            yield from _kept_columns(case, threads, rows, coarsen)
            yield from _waiting_columns(case, threads, rows, coarsen)
            yield from _kept_splits(case, threads, rows, coarsen)
        if threads == 1 and length <= LARGEST_TILE:
            tile = tile_for(length, 1, 1) or 32
            yield Schedule(1, rows, 1, tile, resident=True, column=True, coarsen=coarsen)
        counts = split_counts(case, rows * coarsen, threads * 4, deterministic) if threads * rows >= 256 else []
        for count, elements in product(counts, part):
            yield Schedule(threads, rows, 1, elements, column=True, coarsen=coarsen, split=count)


def _kept_columns(case: Case, threads: int, rows: int, coarsen: int) -> Iterator[Schedule]:
    """Rows side by side in shared memory, as they were loaded, where they would be read again."""
    # Few threads of a row write its results for long: softmax of a transposed 40000x700 bfloat16 takes 66 us by 32
    # threads, 132 by 8 (H100, 2026-11-27).
    if case.work.walks == 1 or coarsen > threads or threads < 16 or threads * rows < 256:
        return
    if rows * coarsen * min(case.kept, default=0) < HALF:
        return
    for tile in (4, 8, 16) if case.turned else (4, 8):
        span = threads * tile
        kept = -(-case.work.length // span) * span
        if span < 2 * case.work.length and tile * coarsen <= LARGEST_TILE // 2:
            yield Schedule(threads, rows, 1, tile, column=True, coarsen=coarsen, kept=kept)


def _kept_splits(case: Case, threads: int, rows: int, coarsen: int) -> Iterator[Schedule]:
    """The same, cut into splits whose blocks meet at a grid barrier: one or two of them fill a multiprocessor."""
    size = coarsen * min(case.kept, default=0)
    if case.work.walks == 1 or not max(8, coarsen) <= threads <= 1024 // rows or not case.reduces:
        return
    # What copies cannot bring ahead was no faster than rows that are read twice (H200, 2026-11-27).
    if not case.program.keeps or rows * size < 2 * HALF or size < COPIED[0] or case.walk.layout(1, coarsen).astride:
        return
    own, sms = case.target.multiprocessor, case.target.multiprocessors
    for tile, blocks in product((8, 16, 32), (2, 1)):
        span = threads * tile
        running = blocks * threads * rows
        if tile * coarsen > LARGEST_TILE // 2 or running < BUSY or running > own.threads // 2 and tile > 16:
            continue
        s = Schedule(threads, rows, 1, tile, column=True, coarsen=coarsen, split=2, persistent=True, kept=span)
        left = own.shared // blocks - RESERVED - states_bytes(case.work, s) - case.turned_bytes(s)
        tiles, whole = left // case.kept_bytes(s), -(-case.work.length // span)
        count = max(2, -(-whole // tiles)) if tiles > 0 else sms * blocks + 1
        if count <= sms * blocks:
            yield replace(s, split=count, kept=-(-whole // count) * span)


def _held_columns(case: Case, threads: int, rows: int, coarsen: int) -> Iterator[Schedule]:
    """Rows side by side in registers of their threads, or of those of a cluster, where they would be walked again."""
    if threads == 1 or case.work.walks == 1 and not case.work.rewalked:
        return
    for cluster in (1, 2, 4, 8, 16):
        if cluster > case.target.block.cluster_limit:
            return
        tile = tile_for(-(-case.work.length // cluster), threads, 1)
        if tile is not None and tile * coarsen <= LARGEST_TILE and (cluster == 1 or tile * coarsen >= HELD):
            s = Schedule(threads, rows, 1, tile, resident=True, column=True, coarsen=coarsen, cluster=cluster)
            yield s
            if cluster * threads * tile > case.work.length and tile % 4:
                yield replace(s, tile=-(-tile // 4) * 4)


def _waiting_columns(case: Case, threads: int, rows: int, coarsen: int) -> Iterator[Schedule]:
    """Splits of rows side by side, on blocks that meet at a grid barrier before they write: up to four of them on a
    multiprocessor, which fill each other's waits."""
    groups, sms = -(-max(1, case.work.rows) // (rows * coarsen)), case.target.multiprocessors
    if not (case.reduces and case.program.keeps) or case.work.length < MEETING or threads * rows < 256:
        return
    counts = (sms // groups, power(sms // groups + 1) // 2, *(k * sms // groups for k in (2, 3, 4)))
    for count in dict.fromkeys(n for n in counts if n > 1):
        # What threads hold while they meet, and where it goes to, spills: softmax of columns 80001x25 float16 takes
        # 34 us so and 17 by walking twice; of ten cells, one was faster (17.4 us for 19.9; H200, 2026-11-30).
        for tile in (8, 16, 32):
            if tile * coarsen <= (LARGEST_TILE if coarsen == 1 else LARGEST_TILE // 2):
                yield Schedule(threads, rows, 1, tile, column=True, split=count, persistent=True, coarsen=coarsen)


# Elements of a column from which on splits of it may meet: softmax of columns 27700x16 float16 takes 5.9 us so, 6.8 by
# clusters, of 25521x33 float32 10.5 and 14.6 (H200, 2026-11-30).
MEETING = 1 << 11
BUSY = 512  # threads of a multiprocessor that keep rows in splits, at least
HALF = 16  # bytes at a place that a block keeps, at least: half of what memory brings
HELD = 4  # elements that a thread of a cluster has at least


def _column_tiles(case: Case, coarsen: int) -> tuple[list[int], list[int]]:
    """Elements of each of a thread's rows at a time: of whole streams, and of splits of them."""
    # What is read again is held; more blocks beside each other are better than larger tiles: argmax of a transposed
    # 3000x5000 float32 takes 21 us with 32 elements in hand, 27 to 36 with 64, and softmax of columns 9094x19886
    # bfloat16 697 and 1118 us (H200, 2026-11-24).
    # Of several rows, ptxas spills what is more: variance of columns 673x340632 bfloat16 takes 124 us by 8 elements of
    # 4 rows, 334 by 32 (H200, 2026-11-27).
    most = LARGEST_TILE // 2 if coarsen > 1 else LARGEST_TILE
    whole = (1,) if case.work.length == 1 else STREAMED
    part = (4, 8, 16, 32) if coarsen > 1 else (4, 8, 16)
    return [n for n in whole if n * coarsen <= most], [n for n in part if n * coarsen <= most]
