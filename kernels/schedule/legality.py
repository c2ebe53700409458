"""When a schedule computes what the program says: a table of laws and limits, each with the way out if it is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from redalg.errors import RedalgError
from redalg.kernels.ir.layouts import VECTOR_BYTES, Placed, kept_arrays, prefetched_arrays
from redalg.kernels.ir.schedule import COPIED, MOST_DISTANCE, Schedule, by_network
from redalg.kernels.schedule.case import Case, exact, power, prefetch_bytes, states_bytes

COPIES = (8, 0)  # the compute capability from which on there are asynchronous copies (PTX ISA 9.0, "cp.async")
MOST_BLOCKS = 2**31 - 1  # of a grid along x; the same source
LARGEST_TILE = 64  # elements of a thread that stay in registers, whatever else it holds

Text = str | Callable[[Case, Schedule], str]


@dataclass(frozen=True)
class Law:
    """One law or limit: when a schedule breaks it, why that is not legal, and what to try instead.

    Laws are tried in the order of their table; one may rely on those before it only where its own condition says so.
    """

    name: str
    broken: Callable[[Case, Schedule], object]
    why: Text
    fix: Text


def refusals(case: Case, s: Schedule) -> Iterator[tuple[str, str]]:
    """Why a schedule is not legal, and what to try instead, for every law or limit it breaks."""
    for law in LAWS:
        if law.broken(case, s):
            yield _said(law.why, case, s), _said(law.fix, case, s)


def require(case: Case, s: Schedule) -> None:
    """Refuse an illegal schedule, naming the first law or limit it breaks."""
    for why, fix in refusals(case, s):
        raise RedalgError(f"{s} for {case.program.name}", "schedule=", why, fix)


def _said(text: Text, case: Case, s: Schedule) -> str:
    return text if isinstance(text, str) else text(case, s)


# --- what several laws ask -------------------------------------------------------------------------------------------


def _split_states(case: Case, s: Schedule) -> bool:
    """Whether blocks merge the states of their splits through memory."""
    return s.split > 1 and case.reduces


def _waits(case: Case, s: Schedule) -> bool:
    """Whether blocks would have to meet at a grid barrier: results keep the axis that is split."""
    return _split_states(case, s) and case.program.keeps


def _longest(case: Case) -> int:
    """Entries of the longest list of largest elements."""
    return max((part.top or 0 for p in case.program.passes for part in p.parts), default=0)


def _by_network(case: Case, s: Schedule) -> bool:
    """Whether sorting networks select the largest (`redalg.kernels.rows.network`), which needs no bound."""
    return case.keyed and by_network(s, _longest(case))


def _neighbours(case: Case, s: Schedule) -> bool:
    """Whether a thread may have several rows at all."""
    if case.program.columns:
        return False
    held = s.together and s.cluster == 1 and s.threads <= 32
    alone = not (s.persistent or s.prefetch or s.staged or case.program.summed or _longest(case))
    return s.vector <= 1 if s.column else held and alone


def _together(case: Case, s: Schedule) -> bool:
    """Whether neighbouring rows are loaded together, and the last ones are where the others begin, or may be those of
    two threads."""
    astride = any(a.astride(s.neighbours) for a in case.walk.arrays)
    return s.neighbours <= case.most_coarsening and (astride or case.work.rows % s.neighbours == 0)


def _brings(s: Schedule) -> bool:
    """Whether rows are prefetched to shared memory of their turn."""
    return bool(s.prefetch or s.prefetch_distance)


def _in_turns(case: Case, s: Schedule) -> bool:
    """Whether threads read vectors of a row in turns, as they would copy them."""
    return not (s.column or s.coarsen > 1 or case.program.columns or case.ordered)


def _copied(case: Case, s: Schedule) -> bool:
    """Whether rows are prefetched by threads that can copy them."""
    return _brings(s) and _in_turns(case, s)


def _uncopied(case: Case, s: Schedule) -> list[str]:
    """Why arrays of a row cannot be copied vector by vector, one reason for each."""
    unit = {a.name for a in case.walk.arrays if a.pattern == "stream" and a.width >= s.vector}
    unit = {*case.walk.layout(s.vector, peel=True).unit} if s.peel else unit
    own = [name for name, _ in prefetched_arrays(case.program)]
    found = []
    for r in (r for r in case.work.reads if r.by_row):
        if not r.held or own.count(r.name) != 1 or r.name not in unit:
            found.append(f"{r.name} is not read in vectors of {s.vector} that every row has for itself")
        elif s.vector * r.size not in COPIED:
            found.append(f"copies have 4, 8 or 16 bytes, and {s.vector} elements of {r.name} {s.vector * r.size}")
    return found


def _whole_tiles(case: Case, s: Schedule) -> int:
    """Elements of a row that shared memory has to hold: what threads walk of one, in whole tiles."""
    span = s.threads * s.tile
    return span if s.resident else -(-case.work.length // (s.blocks_per_row * span)) * span


def _holds_row(case: Case, s: Schedule) -> bool:
    span = s.threads * s.tile
    return (
        s.prefetch == span
        if s.resident
        else s.prefetch % span == 0 and s.prefetch * s.blocks_per_row >= case.work.length
    )


def _even(case: Case, s: Schedule) -> bool:
    """Whether all threads have as many tiles."""
    if s.peel:
        return _holds_row(case, s)
    return s.exact and s.prefetch * s.blocks_per_row == case.work.length


def _one_warp(s: Schedule) -> bool:
    """Whether a warp walks a row, as it has to where it shares out columns."""
    return s.threads == 32 and not (s.resident or s.column or s.cluster > 1 or s.vector > 1 or s.exact or s.peel)


def _peeled(case: Case, s: Schedule) -> str:
    """Why rows that start anywhere cannot be read in such vectors; empty where they can."""
    sizes = [a.size for a in case.walk.peelable]
    if s.vector > case.widest_peeled or s.vector < 2:
        return f"rows are read in vectors of 2 to {case.widest_peeled} elements, and not in those of {s.vector}"
    if s.vector * min(sizes) < 4:
        return f"{s.vector} elements of {min(sizes)} bytes are less than a word"
    if s.threads < 2 * (s.vector - 1):
        return f"{s.threads} threads for up to {2 * (s.vector - 1)} elements beside vectors of {s.vector}"
    if case.work.length < 2 * s.vector - 1:
        return f"a row of {case.work.length} elements may hold no whole vector of {s.vector}"
    if s.column or _longest(case):
        return "columns and lists of the largest have no place for single elements beside vectors"
    if _brings(s) and (s.rows > 1 or s.resident or not s.prefetch_distance):
        return "prefetched rows that start anywhere are brought tile by tile, one to a block, with a prefetch distance"
    return ""


def _keeping(case: Case, s: Schedule) -> bool:
    """Whether threads walk rows side by side so that they may keep them in shared memory."""
    alone = s.cluster == 1 and s.persistent == (s.split > 1)
    alone = alone and not (s.prefetch or s.prefetch_distance or s.peel or s.staged)
    return alone and s.column and not (s.resident or case.ordered or case.program.columns or s.coarsen > s.threads)


def _staging(s: Schedule) -> bool:
    """Whether threads of one block hold rows, element by element: several, or, in a persistent grid, at least one."""
    alone = s.blocks_per_row == 1 and not (s.prefetch or s.prefetch_distance)
    enough = s.block >= VECTOR_BYTES if s.persistent else s.rows > 1
    return s.resident and s.vector == 1 and enough and alone and not (s.column or s.peel)


def _narrowest(case: Case) -> int:
    """Bytes of an element of the narrowest array that is staged."""
    return min(a.size for a in case.walk.arrays if a.name in case.dense)


def _wide(case: Case, s: Schedule) -> list[Placed]:
    """Arrays whose vectors would be longer than any load."""
    unit = case.walk.layout(s.vector).unit if s.vector > 1 and not s.peel else ()
    return [a for a in case.walk.arrays if a.name in unit and s.vector * a.size > VECTOR_BYTES]


def _held(s: Schedule) -> int:
    """Elements that all threads of a row hold."""
    return s.blocks_per_row * s.threads * s.tile


def _blocks(case: Case, s: Schedule) -> int:
    return -(-case.work.rows // s.rows_per_block) * s.blocks_per_row


def _kept_there(case: Case, s: Schedule) -> object:
    """Whether rows lie in shared memory."""
    return prefetch_bytes(case.work, s) or s.staged or s.kept


def _shared(case: Case, s: Schedule) -> int:
    """Bytes of shared memory of states and of prefetched rows, and of those that are staged in turn."""
    tables = case.turned_bytes(s) if s.kept else 0
    return states_bytes(case.work, s) + prefetch_bytes(case.work, s) + _in_turn(case, s) + case.kept_bytes(s) + tables


def _in_turn(case: Case, s: Schedule) -> int:
    return case.staged_bytes(s) if s.persistent else 0


def _tables(case: Case, s: Schedule) -> int:
    """Bytes of static shared memory: of states, and of results that turn."""
    return states_bytes(case.work, s) + case.turned_bytes(s) + case.staged_bytes(s) - _in_turn(case, s)


# --- texts of several parts ------------------------------------------------------------------------------------------


def _clusters(case: Case, s: Schedule) -> str:
    limit, name = case.target.block.cluster_limit, case.target.name
    return f"{name} has clusters of at most {limit} blocks" if limit > 1 else f"{name} has no clusters"


def _kept(case: Case, s: Schedule) -> str:
    kept = ", ".join(r.name for r in case.program.results if r.keeps)
    return (
        f"{kept} keeps the axis {case.stream}: every split needs the state of the whole row before it writes, and "
        "blocks can meet at a grid barrier only if all of them are running"
    )


def _too_short(case: Case, s: Schedule) -> str:
    factors = f"split·threads·tile = {s.split}" if s.split > 1 else f"cluster·threads·tile = {s.cluster}"
    length = case.work.length
    return f"{factors}·{s.threads}·{s.tile} = {_held(s)} is less than the length {length} of {case.stream}"


# --- the laws --------------------------------------------------------------------------------------------------------


def _power_of_two(name: str) -> Law:
    def broken(case: Case, s: Schedule) -> bool:
        value = getattr(s, name)
        return value < 1 or value & (value - 1) != 0

    return Law(
        f"{name}: a power of two",
        broken,
        lambda case, s: f"{name}={getattr(s, name)} is not a power of two: threads exchange values in a tree",
        lambda case, s: f"{name}={power(getattr(s, name))}",
    )


SHAPE = (
    *(_power_of_two(name) for name in ("threads", "rows", "vector", "cluster", "coarsen")),
    Law(
        "counts are positive",
        lambda case, s: min(s.tile, s.split, s.columns_per_thread) < 1,
        "tile, split and columns_per_thread count from 1",
        "tile=1, split=1, columns_per_thread=1",
    ),
    Law(
        "threads of a block",
        lambda case, s: min(s.tile, s.split, s.columns_per_thread) >= 1 and s.block > case.target.block.threads,
        lambda case, s: (
            f"threads·rows = {s.threads}·{s.rows} = {s.block}, and a block has at most "
            f"{case.target.block.threads} threads"
        ),
        lambda case, s: f"rows={max(1, case.target.block.threads // s.threads)}",
    ),
    Law(
        "blocks of a cluster",
        lambda case, s: s.cluster > case.target.block.cluster_limit,
        _clusters,
        lambda case, s: (
            f"cluster={case.target.block.cluster_limit}"
            + ("" if case.target.block.cluster_limit > 1 else ', or schedule="split"')
        ),
    ),
    Law(
        "a tile holds whole vectors",
        lambda case, s: s.vector > 0 and s.tile % s.vector,
        lambda case, s: f"tile={s.tile} is not a multiple of vector={s.vector}",
        lambda case, s: f"tile={-(-s.tile // s.vector) * s.vector}",
    ),
)

PIECES = (
    Law(
        "one way to merge splits",
        lambda case, s: s.cluster > 1 and s.split > 1,
        "splits are merged in distributed shared memory or in global memory, not both",
        "cluster=1 or split=1",
    ),
    Law(
        "a persistent grid has no columns",
        lambda case, s: s.persistent and case.program.columns,
        "a warp that shares out columns walks one row",
        "persistent=False",
    ),
    Law(
        "blocks that wait all run",
        lambda case, s: _waits(case, s) and not s.persistent,
        _kept,
        'schedule="cluster" or "block", which keep the row on chip or read it twice, or persistent=True',
    ),
    Law(
        "blocks that wait have one row, or columns",
        lambda case, s: _waits(case, s) and not s.column and s.rows > 1,
        "blocks that meet at a grid barrier have one row, or rows side by side",
        "rows=1, or column=True",
    ),
    Law(
        "no more blocks wait than run at once",
        lambda case, s: _waits(case, s) and s.split > case.target.multiprocessors,
        lambda case, s: (
            f"{s.split} blocks that meet at a grid barrier, on {case.target.multiprocessors} multiprocessors"
        ),
        lambda case, s: f"split={case.target.multiprocessors}",
    ),
    Law(
        "the last block goes on alone",
        lambda case, s: _split_states(case, s) and s.persistent and not case.program.keeps,
        "the block that comes last goes on and the others end: they walk no further rows",
        "persistent=False",
    ),
    Law(
        "split rows have one pass",
        lambda case, s: _split_states(case, s) and len(case.program.passes) > 1,
        lambda case, s: (
            f"pass 2 of {len(case.program.passes)} needs the whole row's state of pass 1, which only the last split "
            "of a split row knows"
        ),
        'schedule="cluster" or "block", or derive with max_passes=1',
    ),
    Law(
        "split rows are held for other blocks",
        lambda case, s: s.split > 1 and s.resident and not (s.persistent and case.reduces),
        "what a split holds is read once anyway where the blocks meet at no grid barrier",
        "resident=False",
    ),
    Law(
        "clusters exchange states",
        lambda case, s: s.cluster > 1 and not case.reduces,
        "a map has no states for the blocks of a cluster to exchange",
        'schedule="split"',
    ),
)

ORDER = (
    Law(
        "one block selects the largest of a resident row",
        lambda case, s: s.resident and s.blocks_per_row > 1 and _longest(case),
        "the blocks of a row select the largest of their own part only",
        "one block, or resident=False",
    ),
    Law(
        "threads bound the largest",
        lambda case, s: s.resident and 1 < s.threads < _longest(case) and not _by_network(case, s),
        lambda case, s: f"{s.threads} threads give no bound for the {_longest(case)} largest",
        lambda case, s: f"threads={power(2 * _longest(case) - 1)} or 1",
    ),
    Law(
        "ordered elements are folded in turn",
        lambda case, s: s.resident and s.threads * s.cluster > 1 and case.ordered,
        "the monoid is not commutative: elements must be combined in the order of the stream, and a resident row "
        "is dealt out to threads in turns",
        "resident=False, where every thread folds consecutive elements",
    ),
    Law(
        "ordered elements are loaded one by one",
        lambda case, s: s.vector > 1 and s.threads > 1 and case.ordered,
        "consecutive elements of a thread need not start at a multiple of the vector",
        "vector=1",
    ),
)

SHARING = (
    Law(
        "threads have several rows in registers, or neighbours",
        lambda case, s: s.coarsen > 1 and not _neighbours(case, s),
        "only a column schedule gives a thread neighbouring rows, and loads nothing else together; threads of one warp "
        "that hold a row may hold several, of a grid that has all blocks, without lists, sums over rows and staging",
        "coarsen=1",
    ),
    Law(
        "neighbouring rows are loaded together",
        lambda case, s: s.coarsen > 1 and _neighbours(case, s) and not _together(case, s),
        lambda case, s: f"no array has {s.coarsen} neighbouring rows that can be loaded together everywhere",
        lambda case, s: f"coarsen={case.most_coarsening}",
    ),
    Law(
        "clusters of columns hold their rows",
        lambda case, s: s.column and s.cluster > 1 and not s.resident,
        "the threads of a column schedule are not whole warps of one row, whose states a cluster exchanges",
        'cluster=1 or resident=True, or schedule="split"',
    ),
    Law(
        "clusters of columns have threads for all blocks",
        lambda case, s: s.column and s.resident and s.threads < s.cluster > 1,
        lambda case, s: f"the threads of a row read the values of {s.cluster} blocks, one each",
        lambda case, s: f"threads={s.cluster}",
    ),
    Law(
        "threads of a column select no lists",
        lambda case, s: s.column and s.together and s.threads * s.cluster > 1 and _longest(case),
        "threads of one row lie in different warps there and fold their own elements into lists",
        "resident=False",
    ),
    Law(
        "clusters exchange whole warps",
        lambda case, s: s.cluster > 1 and not s.column and (s.threads < 32 or s.rows > 1),
        "a cluster exchanges the states of whole warps, one row to a block",
        "threads=32 or more, rows=1",
    ),
    Law(
        "a warp shares out columns",
        lambda case, s: case.program.columns and not _one_warp(s),
        lambda case, s: (
            f"the state holds arrays along {','.join(case.program.columns)}: a warp walks the row and shares them out"
        ),
        'schedule="warp"',
    ),
    Law(
        "splits of columns have one warp, and no lists",
        lambda case, s: case.program.columns and s.split > 1 and (s.rows > 1 or _longest(case)),
        "a split of a row whose state holds arrays is walked by a block of one warp; lists are not merged there",
        "rows=1, or split=1",
    ),
    Law(
        "a warp holds all columns",
        lambda case, s: case.program.columns and _one_warp(s) and s.columns_per_thread * 32 < case.work.columns,
        lambda case, s: f"{case.work.columns} columns along {','.join(case.program.columns)} on 32 threads",
        lambda case, s: f"columns_per_thread={case.column_count}",
    ),
)

STAGED = (
    Law(
        "staged rows are held by threads of one block",
        lambda case, s: s.staged and not _staging(s),
        "all rows of a block pass through shared memory at once, and threads take single elements from there",
        "resident=True, vector=1, no column, cluster, split, prefetch and peel; 16 threads where persistent=True",
    ),
    Law(
        "there is something to stage",
        lambda case, s: s.staged and (case.program.columns or _longest(case) or not case.dense),
        "no array has rows of its own that follow each other without gaps, from a multiple of 16 bytes on, or the rows "
        "have arrays or lists",
        "staged=False",
    ),
    Law(
        "staged rows of a block begin at whole vectors",
        lambda case, s: s.staged and not s.persistent and case.dense and s.rows * _narrowest(case) % VECTOR_BYTES,
        lambda case, s: f"{s.rows} rows of {_narrowest(case)} bytes an element begin at no multiple of {VECTOR_BYTES}",
        lambda case, s: f"rows={VECTOR_BYTES // _narrowest(case)}",
    ),
    Law(
        "the device copies staged rows",
        lambda case, s: s.staged and case.target.cc < COPIES,
        lambda case, s: f"{case.target.name} has no asynchronous copies",
        "staged=False",
    ),
)

KEPT = (
    Law(
        "rows side by side are kept by blocks that walk them",
        lambda case, s: s.kept and not _keeping(case, s),
        "rows are kept by threads that walk them side by side, in turns, for themselves: those of one block, or of "
        "splits in a persistent grid",
        "column=True, persistent=True where split > 1, and no resident, cluster, prefetch, peel and staged",
    ),
    Law(
        "the device brings what splits keep",
        lambda case, s: s.kept and s.persistent and case.target.cc < COPIES,
        lambda case, s: f"{case.target.name} has no asynchronous copies",
        "kept=0",
    ),
    Law(
        "there is something to keep",
        lambda case, s: s.kept and not (kept_arrays(case.program) and case.work.walks > 1),
        "no row of floating-point numbers is walked twice",
        "kept=0",
    ),
    Law(
        "a kept row in whole tiles",
        lambda case, s: s.kept and _keeping(case, s) and s.kept != _whole_tiles(case, s),
        lambda case, s: f"kept={s.kept} is not what {s.threads} threads with tiles of {s.tile} walk of a row",
        lambda case, s: f"kept={_whole_tiles(case, s)}",
    ),
)

AHEAD = (
    Law(
        "a block has a next row to bring",
        lambda case, s: _brings(s) and not s.persistent,
        "a block that has one row brings no other one",
        "persistent=True",
    ),
    Law(
        "the device copies behind",
        lambda case, s: _brings(s) and case.target.cc < COPIES,
        lambda case, s: f"{case.target.name} has no asynchronous copies",
        "prefetch=0",
    ),
    Law(
        "threads copy what they read",
        lambda case, s: _brings(s) and not _in_turns(case, s),
        "threads copy the elements they read themselves, a vector at a time in turns",
        "prefetch=0",
    ),
    Law(
        "arrays are copied in vectors",
        lambda case, s: _copied(case, s) and _uncopied(case, s),
        lambda case, s: _uncopied(case, s)[0],
        "prefetch=0",
    ),
    Law(
        "there is something to bring",
        lambda case, s: _copied(case, s) and not prefetched_arrays(case.program),
        "no row has elements of its own",
        "prefetch=0",
    ),
    Law(
        "a prefetched row in whole tiles",
        lambda case, s: _copied(case, s) and not _holds_row(case, s),
        lambda case, s: f"prefetch={s.prefetch} is not what {s.threads} threads with tiles of {s.tile} walk of a row",
        lambda case, s: f"prefetch={_whole_tiles(case, s)}",
    ),
    Law(
        "threads count the same copies",
        lambda case, s: _copied(case, s) and _holds_row(case, s) and s.prefetch_distance and not _even(case, s),
        "threads that have fewer tiles than others would lose count of their copies",
        "prefetch_distance=0",
    ),
    Law(
        "copies under way",
        lambda case, s: (
            _copied(case, s)
            and _holds_row(case, s)
            and (_even(case, s) or not s.prefetch_distance)
            and not 0 <= s.prefetch_distance <= MOST_DISTANCE
        ),
        lambda case, s: (
            f"prefetch_distance={s.prefetch_distance}, and at most {MOST_DISTANCE} tiles are left under way"
        ),
        f"prefetch_distance={MOST_DISTANCE}",
    ),
)

FIT = (
    Law(
        "blocks of a grid",
        lambda case, s: _blocks(case, s) > MOST_BLOCKS,
        lambda case, s: f"{_blocks(case, s)} blocks, and a grid has at most 2**31 - 1",
        "more rows to a block",
    ),
    Law(
        "vectors divide the length",
        lambda case, s: case.work.length % s.vector and not s.peel,
        lambda case, s: f"vector={s.vector} does not divide the length {case.work.length} of {case.stream}",
        lambda case, s: f"vector={case.widest}",
    ),
    Law(
        "rows that start anywhere",
        lambda case, s: s.peel and _peeled(case, s),
        _peeled,
        "peel=False",
    ),
    Law(
        "vectors of one load",
        _wide,
        lambda case, s: f"{s.vector} elements of {_wide(case, s)[0].name} are more than 16 bytes",
        lambda case, s: f"vector={VECTOR_BYTES // _wide(case, s)[0].size}",
    ),
    Law(
        "a resident row fits its threads",
        lambda case, s: s.resident and case.work.length - s.peel * (case.work.length % s.vector) > _held(s),
        _too_short,
        "resident=False, or more threads",
    ),
    Law(
        "a tile stays in registers",
        lambda case, s: s.tile > LARGEST_TILE,
        lambda case, s: f"tile={s.tile}: a thread keeps at most {LARGEST_TILE} elements in registers",
        f"tile={LARGEST_TILE}",
    ),
    Law(
        "exact schedules meet no end of a row",
        lambda case, s: s.exact and not exact(case.work, s),
        lambda case, s: f"exact, and the length {case.work.length} of {case.stream} is not what the threads hold",
        "exact=False",
    ),
    Law(
        "states fit shared memory",
        lambda case, s: _tables(case, s) > case.target.block.shared,
        lambda case, s: (
            f"states and results take {_tables(case, s)} bytes of shared memory, a block has {case.target.block.shared}"
        ),
        "fewer threads or rows",
    ),
    Law(
        "prefetched rows fit shared memory",
        lambda case, s: _kept_there(case, s) and _shared(case, s) > case.target.most_shared,
        lambda case, s: (
            f"rows and states take {_shared(case, s)} bytes of shared memory, a block has {case.target.most_shared}"
        ),
        "prefetch=0, or more blocks to a row",
    ),
)

SUMS = (
    Law(
        "sums over rows stay in registers",
        lambda case, s: case.program.summed and not (s.persistent and s.together and not s.column),
        lambda case, s: (
            f"{', '.join(r.name for r in case.program.summed)} are added over rows in the registers of threads that "
            "have the same places of every row"
        ),
        "persistent=True, resident=True, split=1, column=False",
    ),
)

LAWS = (*SHAPE, *PIECES, *ORDER, *SHARING, *STAGED, *KEPT, *AHEAD, *FIT, *SUMS)
