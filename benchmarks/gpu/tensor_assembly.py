"""Assemble the tensor-core kernels of the catalog with ptxas, without a GPU: registers, spills, stack, shared memory.

    python -m benchmarks.gpu.tensor_assembly --out benchmarks/records/tensor_assembly.jsonl [--only 'attention 128 *']
    [--workers 2]

A cell is a spec of the class (`redalg.kernels.tile.match`), the lengths of its contracted and its lane axis, a dtype,
and how the anchor is kept: "running", "frozen" after the first block, "fallback" for the rows that fail the test.
One JSON line per cell; cells that the file has are skipped. The table goes to the same name with `.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import redalg as ra
from benchmarks.gpu.assembly import command
from benchmarks.harness.measuring import Record
from redalg.errors import RedalgError
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Module
from redalg.kernels.launch.ptx import assemble
from redalg.kernels.pipeline import wgmma_tiles
from redalg.kernels.programs import lower
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.frozen_max import frozen_steps
from redalg.kernels.tile.level.cascade_print import emit_tensor
from redalg.kernels.tile.match import TYPES, Class, Outside, classified
from redalg.kernels.tile.plan import Anchor, Fallback, Frozen, Running, TensorPlan

HEADS = {"128": (128, 128), "64": (64, 64), "192/128": (192, 128), "256": (256, 256), "80": (80, 80), "96": (96, 96)}
ANCHORS: dict[str, Anchor] = {"running": Running(), "frozen": Frozen(), "fallback": Fallback()}
LENGTH, OTHER = 4096, 4  # rows and elements of the stream; every other axis
MULTIPLIED = frozenset("QKVHE")  # tensors of 16 bits; everything else is float32


@dataclass(frozen=True)
class Cell:
    spec: str
    head: str
    dtype: str
    anchor: str

    @property
    def name(self) -> str:
        return f"{self.spec} {self.head} {self.dtype} {self.anchor}"

    @staticmethod
    def named(name: str) -> Cell:
        return Cell(*name.split())


@cache
def form_of(spec: str) -> Any:
    entry = ra.catalog.entry(spec)
    return ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume, max_passes=2)


@lru_cache(maxsize=64)
def class_of(spec: str, dtype: str) -> Class:
    """A spec of the catalog as one of the class. Raises: Outside, RedalgError."""
    entry = ra.catalog.entry(spec)
    dtypes: dict[str, Any] = {}
    for name, value in entry.sample(dtype="float32").items():
        number = isinstance(value, bool | int | float)
        real = dtype if name.upper() in MULTIPLIED else "float32"
        dtypes[name] = type(value) if number else real if value.dtype.kind == "f" else value.dtype.name
    return classified(lower(form_of(spec), dtypes))


def members(dtype: str) -> Iterator[tuple[str, Class]]:
    """Every spec of the class."""
    for spec in sorted(ra.catalog):
        try:
            yield spec, class_of(spec, dtype)
        except (Outside, RedalgError):
            continue


def anchors_of(made: Class) -> tuple[str, ...]:
    try:
        frozen_steps(made)
    except Outside:
        return ("running",)
    return tuple(ANCHORS)


def every_cell() -> Iterator[Cell]:
    every = {dtype: list(members(dtype)) for dtype in TYPES}
    for head, (terms, columns) in HEADS.items():
        for dtype in TYPES:
            for spec, made in every[dtype]:
                if made.column or terms == columns:
                    yield from (Cell(spec, head, dtype, anchor) for anchor in anchors_of(made))


def shaped(made: Class, head: str) -> tuple[dict[str, int], dict[str, View]]:
    """The lengths of all axes, and contiguous operands of these lengths."""
    terms, columns = HEADS[head]
    arrays = (*made.program.operands, *made.program.results)
    sizes = {a: OTHER for array in arrays for a in array.axes} | made.program.lengths
    sizes |= {made.row: LENGTH, made.stream: LENGTH, made.terms: terms} | (
        {made.column: columns} if made.column else {}
    )
    views = {o.name: View.contiguous(tuple(sizes[a] for a in o.axes)) for o in made.program.operands if not o.number}
    return sizes, views


def planned(cell: Cell) -> tuple[TensorPlan, Module]:
    """The tiles and the kernel of a cell. Raises: Outside."""
    made = class_of(cell.spec, cell.dtype)
    made, plan = wgmma_tiles(made, *shaped(made, cell.head), H200)
    plan = replace(plan, anchor=ANCHORS[cell.anchor])
    return plan, emit_tensor(made, plan)


def judged(cell: Cell) -> Record:
    """The line of a cell: what ptxas says of it, or why there is no such kernel."""
    record: Record = {"cell": cell.name}
    try:
        plan, module = planned(cell)
    except Outside as why:
        return record | {"refused": str(why)}
    try:
        found = assemble(module, H200.cc)
    except Exception as problem:
        return record | {"error": f"{type(problem).__name__}: {problem}"[:400]}
    return record | {
        "tile": f"{plan.rows} × {plan.columns}",
        "threads": plan.threads,
        "registers": found.registers,
        "stores": found.spill_stores,
        "loads": found.spill_loads,
        "stack": found.stack,
        "shared": plan.shared,
    }


def report(lines: Iterable[Record]) -> str:
    """The text of the table."""
    from benchmarks.harness.processes import moment, versions

    records = [(Cell.named(r["cell"]), r) for r in lines]
    heads = list(HEADS)
    records.sort(key=lambda found: (found[0].spec, heads.index(found[0].head), found[0].dtype, found[0].anchor))
    compilers = versions("numba-cuda", "nvidia-nvvm", "nvidia-cuda-nvcc")
    made = [r for _, r in records if "registers" in r]
    spilt = [r for r in made if r["stores"] or r["loads"]]
    text = [
        "# Assembly of tensor-core kernels",
        "",
        f"Registers of a thread at launch, bytes of spills and stack as ptxas reports them for sm_90a, {compilers}, "
        f"{moment()}. `python -m benchmarks.gpu.tensor_assembly` (`make bench-tensor-assembly`) writes this; no "
        f"GPU is needed. Head: lengths of the contracted axis and of the columns; {LENGTH} rows and elements of the "
        "stream. Shared: bytes of a block, by plan. Where there are three warpgroups, those that compute "
        "raise their registers to 240 after the launch.",
        "",
        f"{len(made)} kernels, {len(spilt)} of which spill.",
        "",
        "| spec | head | dtype | anchor | tile | threads | registers | spill stores | spill loads | stack | shared |",
        "|---|---|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for cell, r in records:
        words = [cell.spec, cell.head, cell.dtype, cell.anchor]
        if "registers" in r:
            words += [str(r[k]) for k in ("tile", "threads", "registers", "stores", "loads", "stack", "shared")]
        else:
            words += [" ".join((r.get("refused") or r["error"]).split()), *[""] * 6]
        text.append(f"| {' | '.join(words)} |")
    return "\n".join([*text, ""])


def recorded(text: str) -> dict[str, tuple[int, int, int]]:
    """Of every kernel of a table: registers, spilt bytes (stores and loads), stack."""
    found = {}
    for line in text.splitlines():
        words = [w.strip() for w in line.strip("|").split("|")]
        if len(words) == 11 and words[6].isdigit():
            registers, stores, loads, stack = map(int, words[6:10])
            found[" ".join(words[:4])] = registers, stores + loads, stack
    return found


def main(words: Sequence[str] | None = None) -> None:
    command(__doc__, every_cell(), judged, report, words)


if __name__ == "__main__":
    main()
