"""How a printed kernel of rows introduces itself: who computes which rows, its loop nest, shared memory and barriers.

The schedule says who; tables in shared memory and barriers are counted in the kernel as it is.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from redalg.kernels.ir.program import STORAGE, Program
from redalg.kernels.ir.schedule import Schedule
from redalg.source.names import axis_name
from redalg.source.render import text
from redalg.source.statements import Block, Table, expressions, walk

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel

BARRIERS = {
    "cuda.syncthreads": "__syncthreads",
    "cuda.syncwarp": "__syncwarp",
    "syncwarp": "__syncwarp",
    "cluster_sync": "barrier of the cluster",
    "cluster_wait": "wait for the other blocks of the cluster",
    "tx_wait": "mbarrier of an exchange",
    "splits_sync": "grid barrier of a row's blocks",
    "named_barrier_sync": "named barrier of the warpgroup",
}


def header(kernel: Kernel, body: Block) -> Iterator[str]:
    s, program = kernel.schedule, kernel.program
    yield f"Grid: {_grid(s, program)}."
    yield f"Block: {_block(s, program)}."
    yield f"Loop nest: {'; '.join(_nest(kernel))}."
    yield from memory(body, kernel.shared_bytes, "kept" if kernel.schedule.kept else "prefetched")


def _axes(axes: tuple[str, ...]) -> str:
    return ", ".join(map(axis_name, axes))


def _grid(s: Schedule, program: Program) -> str:
    n, rows = s.rows_per_block, _axes(program.rows)
    own = f"{n} rows" if n > 1 else "a row"
    own = f"{own} (indices {rows})" if rows else own
    if s.persistent:
        who = f"{s.blocks_per_row} blocks together take" if s.blocks_per_row > 1 else "a block takes"
        found = f"persistent; {who} {own.replace('a row', 'one row') if n == 1 else f'a group of {own}'} after another"
    elif s.blocks_per_row > 1:
        found = f"{s.blocks_per_row} consecutive blocks share {own}"
    else:
        found = f"block b computes {own}" + (f", from {n} * b on" if n > 1 else ", number b")
    stream = _axes(program.stream)
    if s.cluster > 1:
        found += f"; they are a cluster, each with a part of {stream}, and trade states by distributed shared memory"
    if s.split > 1:
        merged = "all of them merge" if program.keeps else "the last to finish merges"
        states = f", leaves its state in scratch, and {merged}" if program.passes else ""
        found += f"; each has a split of {stream}{states}"
    return found


def _block(s: Schedule, program: Program) -> str:
    share = f"{s.threads} threads share a row" if s.threads > 1 else "a thread has a row of its own"
    found = f"{s.block} threads; {share}"
    if s.rows > 1:
        found += f", {s.rows} rows side by side"
    if s.column:
        found += "; neighbouring threads have neighbouring rows, so that loads across rows are coalesced"
    if s.coarsen > 1:
        which = f"{s.coarsen} neighbouring rows" if s.column else f"{s.coarsen} rows, {s.rows} apart,"
        found += f"; a thread walks {which} at once"
    if program.columns:
        found += (
            f"; columns ({_axes(program.columns)}) are shared out among the threads, {s.columns_per_thread} to each"
        )
    return found


def _staged(s: Schedule) -> Iterator[str]:
    if s.staged and s.persistent:
        yield "the block copies rows to shared memory, the next ones while these are computed, and results from there"
    elif s.staged:
        yield "the block copies its rows to shared memory, and results from there"


def _nest(kernel: Kernel) -> Iterator[str]:
    s, program = kernel.schedule, kernel.program
    vectors = f", in loads of {s.vector}" if s.vector > 1 else ""
    span = s.threads * s.tile
    yield from _staged(s)
    if s.resident:
        yield f"a thread loads its {s.tile} elements once{vectors}, and keeps them in registers"
    tile = f"tiles of {span} elements, {s.tile} of a thread{vectors}"
    for number, p in enumerate(program.passes):
        which = f"pass {number + 1} of {len(program.passes)}: " if len(program.passes) > 1 else ""
        names = ", ".join(x.name for x in p.parts)
        if s.together:
            yield f"{which}every reduction over the whole row, one after the other"
        elif s.resident:
            yield f"{which}each thread folds what it holds; then the states are merged"
        else:
            yield f"{which}for {tile}: fold into the thread's state ({names}); then the states are merged"
    if program.keeps and not s.resident:
        yield f"then for {tile}: results of every element" if program.passes else f"for {tile}: every element by itself"
    elif program.keeps:
        yield "then results of every element"
    yield from _through_shared_memory(kernel)


def _through_shared_memory(kernel: Kernel) -> Iterator[str]:
    s = kernel.schedule
    if kernel.kept.prefetches:
        yield "these walks read shared memory, to which cp.async brings the next rows when the last walk has read these"
    elif s.kept:
        yield "the first of these walks leaves what it loads in shared memory for those after it"
    if s.prefetch:
        distance = f" and {s.prefetch_distance} tiles beyond it" if s.prefetch_distance else ""
        yield f"meanwhile cp.async brings the next row{distance} to shared memory"


def memory(body: Block, ring: int, what: str = "prefetched") -> Iterator[str]:
    """Tables in shared memory with their bytes, and barriers, as they stand in the kernel."""
    tables = [(s.name, size) for s in walk(body) if isinstance(s, Table) and (size := shared_bytes(s))]
    total = ring + sum(size for _, size in tables)
    parts = [f"{ring} of {what} rows"] * bool(ring) + [f"{name} {size}" for name, size in tables]
    listed = ", ".join(parts)
    yield f"Shared memory: {f'{total} bytes ({listed})' if parts else 'none'}."
    calls = (n for s in walk(body) for e in expressions(s) for n in ast.walk(e) if isinstance(n, ast.Call))
    found = Counter(BARRIERS[name] for n in calls if (name := text(n.func)) in BARRIERS)
    if found:
        places = (f"{name} at {n} places" if n > 1 else f"{name} once" for name, n in found.items())
        yield f"Barriers: {', '.join(places)}."


def shared_bytes(table: Table) -> int:
    """Bytes of shared memory that a table takes."""
    return STORAGE[table.dtype] * table.entries if table.shared else 0
