"""Registers, spills and shared memory of the whole catalog's kernels, as ptxas counts them for sm_90a; needs no GPU.

`python -m benchmarks.gpu.assembly --out benchmarks/records/assembly.jsonl [--only PATTERN]` compiles every spec of the
catalog, by every family of schedules that is legal for it, with rows prefetched to shared memory (whole, and in
splits of a cooperative launch) and by the schedule the library chooses, in float32 and bfloat16. One
JSON line per cell; cells that the file has are skipped. The table goes to the same name with `.md`.
"""

from __future__ import annotations

import argparse
import fnmatch
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import redalg as ra
from benchmarks.gpu.assembly_report import report
from benchmarks.harness.measuring import Lines, Record
from redalg.errors import RedalgError
from redalg.kernels.ir.layouts import View, walk_of
from redalg.kernels.ir.one_hot import gathered
from redalg.kernels.ir.program import Module, Program
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.launch.ptx import Assembled, assemble
from redalg.kernels.lower.packed_keys import packed
from redalg.kernels.programs import lower
from redalg.kernels.rows.kernel import emit
from redalg.kernels.schedule.choose import Choice, choose
from redalg.kernels.schedule.target import H200

CHOSEN = "chosen"
DTYPES = ("float32", "bfloat16")
LENGTHS = {  # of the stream: where each family is at home, with and without a remainder, and where the library chooses
    "thread": (32,),
    "warp": (500,),
    "block": (4000,),
    "cluster": (1 << 16,),
    "split": (10**6,),
    "column": (4096,),
    CHOSEN: (256, 4096, 50_000),
    "prefetch": (1 << 14,),
    "cooperative": (1 << 16,),
}
ROWS, OTHER = 1024, 64  # lengths of the first axis of rows and of all further axes


@dataclass(frozen=True)
class Cell:
    """One kernel: a spec of the catalog, a family of schedules (or `CHOSEN`), a dtype, the length of the stream."""

    spec: str
    family: str
    dtype: str
    length: int

    @property
    def name(self) -> str:
        return f"{self.spec} {self.family} {self.dtype} {self.length}"

    @staticmethod
    def named(name: str) -> Cell:
        spec, family, dtype, length = name.split()
        return Cell(spec, family, dtype, int(length))


def every_cell() -> Iterator[Cell]:
    for spec in sorted(ra.catalog):
        for dtype in DTYPES:
            for family, lengths in LENGTHS.items():
                yield from (Cell(spec, family, dtype, length) for length in lengths)


@lru_cache(maxsize=256)
def program_of(spec: str, dtype: str) -> Program:
    """The program of a spec: floats of this dtype, whole numbers int64, conditions bool, scalars by value."""
    entry = ra.catalog.entry(spec)
    form = ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume, max_passes=2)
    dtypes: dict[str, Any] = {}
    for name, value in entry.sample(dtype="float32").items():
        number = isinstance(value, bool | int | float)
        dtypes[name] = type(value) if number else dtype if value.dtype.kind == "f" else value.dtype.name
    return gathered(lower(form, dtypes))


def planned(cell: Cell) -> tuple[Choice, Module]:
    """The schedule and the kernel of a cell. Raises: RedalgError where the family is not legal for the spec."""
    program = program_of(cell.spec, cell.dtype)
    sizes = {a: OTHER for array in (*program.operands, *program.results) for a in array.axes}
    sizes |= dict.fromkeys(program.rows[:1], ROWS) | dict.fromkeys(program.stream[:-1], 2)
    sizes |= dict.fromkeys(program.stream[-1:], cell.length) | program.lengths
    arrays = [(o.name, o.axes) for o in program.operands if not o.number] + [(r.key, r.axes) for r in program.results]
    views = {name: _view(tuple(sizes[a] for a in axes), cell.family == "column") for name, axes in arrays}
    vector = 4 if cell.dtype == "float32" else 8
    prefetch = Schedule(256, 1, vector, 2 * vector, exact=True, persistent=True, prefetch=1 << 14, prefetch_distance=1)
    given = {CHOSEN: None, "prefetch": prefetch, "cooperative": replace(prefetch, split=4)}
    override: Any = given.get(cell.family, cell.family)
    choice = choose(program, sizes, walk_of(program, views), H200, override=override)
    return choice, emit(packed(program), choice.schedule, choice.layout)


def _view(shape: tuple[int, ...], turned: bool) -> View:
    """Row-major, or with the first axis, which numbers rows, innermost."""
    return View(shape, tuple(prod(shape[:d]) for d in range(len(shape)))) if turned else View.contiguous(shape)


def assembled(cell: Cell) -> tuple[Choice, Assembled]:
    choice, module = planned(cell)
    return choice, assemble(module, H200.cc, choice.registers)


def judged(cell: Cell) -> Record:
    """The line of a cell: what ptxas says of it, or why there is no such kernel."""
    record: Record = {"cell": cell.name}
    try:
        choice, module = planned(cell)
    except RedalgError as refused:
        return record | {"refused": refused.why}
    record["schedule"] = repr(choice.schedule)
    try:
        found = assemble(module, H200.cc, choice.registers)
    except Exception as problem:
        return record | {"error": f"{type(problem).__name__}: {problem}"[:400]}
    return record | {
        "registers": found.registers,
        "limit": choice.registers or 255,
        "shared": found.shared,
        "stack": found.stack,
        "spill_stores": found.spill_stores,
        "spill_loads": found.spill_loads,
    }


def run(cells: Sequence[Any], lines: Lines, workers: int, judge: Callable[[Any], Record]) -> None:
    """Every cell that is not in the file yet, in a few processes, each for at most 100 kernels: they take memory."""
    known = lines.cells()
    pending = [c for c in cells if c.name not in known]
    begin = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=100) as pool:
        for done, record in enumerate(pool.imap_unordered(judge, pending), 1):
            lines.add(record)
            if done % 20 == 0 or "error" in record:
                print(f"{done}/{len(pending)} after {time.perf_counter() - begin:.0f} s: {record}", flush=True)


def command(
    about: str | None,
    cells: Iterable[Any],
    judge: Callable[[Any], Record],
    text: Callable[[list[Record]], str],
    words: Sequence[str] | None,
) -> None:
    """The command line of a table of assembly."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines, continued where it exists")
    parser.add_argument("--only", default="*", help="cells whose name matches, as 'softmax *bfloat16*'")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(words)
    lines = Lines(options.out)
    run([c for c in cells if fnmatch.fnmatch(c.name, options.only)], lines, options.workers, judge)
    options.out.with_suffix(".md").write_text(text(list(lines.cells().values())))


def main(words: Sequence[str] | None = None) -> None:
    command(__doc__, every_cell(), judged, report, words)


if __name__ == "__main__":
    main()
