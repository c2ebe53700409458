"""Assemble the catalog's kernels for mma.sync with ptxas, without a GPU: what Ampere and Ada would run.

    python -m benchmarks.gpu.mma_assembly --out benchmarks/records/mma_assembly.jsonl [--only 'attention 128 tf32 *']
    [--workers 2]

A cell is a spec of the class (`redalg.kernels.tile.match`), the lengths of its contracted and its lane axis, the
types of what is multiplied (`TYPES`: float32 as tf32; float8: keys, values and tables of e4m3 beside bfloat16), and a
compute capability. One JSON line per cell; cells that the file has are skipped. The table goes to the same name with
`.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import redalg as ra
from benchmarks.gpu.assembly import command
from benchmarks.gpu.tensor_assembly import HEADS, LENGTH, MULTIPLIED, form_of, shaped
from benchmarks.harness.measuring import Record
from redalg.errors import RedalgError
from redalg.kernels.ir.program import Module
from redalg.kernels.launch.ptx import assemble
from redalg.kernels.pipeline import mma_tiles
from redalg.kernels.programs import lower
from redalg.kernels.schedule.target import A100, L40S
from redalg.kernels.tile.level.cascade_print import emit_tensor
from redalg.kernels.tile.match import Class, Outside, classified
from redalg.kernels.tile.mma_sync_plan import MmaPlan

TARGETS = {"8.0": A100, "8.9": L40S}
EIGHT = {"K": "float8_e4m3fn", "V": "float8_e4m3fn", "H": "float8_e4m3fn", "Q": "bfloat16", "E": "bfloat16"}
TYPES = {
    "bfloat16": dict.fromkeys(MULTIPLIED, "bfloat16"),
    "float16": dict.fromkeys(MULTIPLIED, "float16"),
    "tf32": dict.fromkeys(MULTIPLIED, "float32"),
    "float8": EIGHT,
}


@dataclass(frozen=True)
class Cell:
    spec: str
    head: str
    types: str
    cc: str

    @property
    def name(self) -> str:
        return f"{self.spec} {self.head} {self.types} {self.cc}"

    @staticmethod
    def named(name: str) -> Cell:
        return Cell(*name.split())


@lru_cache(maxsize=128)
def class_of(spec: str, types: str) -> Class:
    """A spec of the catalog as one of the class. Raises: Outside, RedalgError."""
    entry = ra.catalog.entry(spec)
    dtypes: dict[str, Any] = {}
    for name, value in entry.sample(dtype="float32").items():
        number = isinstance(value, bool | int | float)
        real = TYPES[types].get(name.upper(), "float32")
        dtypes[name] = type(value) if number else real if value.dtype.kind == "f" else value.dtype.name
    return classified(lower(form_of(spec), dtypes), tf32=types == "tf32")


def members(types: str) -> Iterator[tuple[str, Class]]:
    for spec in sorted(ra.catalog):
        try:
            yield spec, class_of(spec, types)
        except (Outside, RedalgError):
            continue


def every_cell() -> Iterator[Cell]:
    for types in TYPES:
        for spec, made in members(types):
            heads = [head for head in ("64", "128", "256") if made.column or HEADS[head][0] == HEADS[head][1]]
            yield from (Cell(spec, head, types, cc) for head in heads for cc in TARGETS)


def planned(cell: Cell) -> tuple[MmaPlan, Module]:
    """The tiles and the kernel of a cell. Raises: Outside."""
    made = class_of(cell.spec, cell.types)
    made, plan = mma_tiles(made, *shaped(made, cell.head), TARGETS[cell.cc])
    return plan, emit_tensor(made, plan)


def judged(cell: Cell) -> Record:
    """The line of a cell: what ptxas says of it, or why there is no such kernel."""
    record: Record = {"cell": cell.name}
    try:
        plan, module = planned(cell)
    except Outside as why:
        return record | {"refused": str(why)}
    try:
        found = assemble(module, TARGETS[cell.cc].cc)
    except Exception as problem:
        return record | {"error": f"{type(problem).__name__}: {problem}"[:400]}
    return record | {
        "tile": f"{plan.rows} × {plan.columns}",
        "threads": plan.threads,
        "registers": found.registers,
        "spilt": found.spill_stores + found.spill_loads,
        "stack": found.stack,
        "shared": plan.shared,
    }


def report(lines: Iterable[Record]) -> str:
    """The text of the tables: one line for all specs of a head, a type and a capability, then those that spill."""
    from benchmarks.harness.processes import moment, versions

    groups: dict[tuple[str, ...], list[tuple[str, Record]]] = {}
    for r in lines:
        spec, *rest = r["cell"].split()
        groups.setdefault(tuple(rest), []).append((spec, r))
    text = [
        "# Assembly of kernels for mma.sync",
        "",
        f"What ptxas reports, {versions('numba-cuda', 'nvidia-nvvm', 'nvidia-cuda-nvcc')}, {moment()}. "
        f"`python -m benchmarks.gpu.mma_assembly` writes this; no GPU is needed. {LENGTH} rows and elements of "
        "the stream.",
        "",
        "| head | types | cc | kernels | refused | failed | worst registers | worst shared bytes | that spill |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    spilt: list[str] = []
    for key, found in sorted(groups.items(), key=lambda g: (int(g[0][0]), g[0][1:])):
        made = [(spec, r) for spec, r in found if "registers" in r]
        bad = [(spec, r) for spec, r in made if r["spilt"]]
        counts = [len(made), *(sum(word in r for _, r in found) for word in ("refused", "error"))]
        worst = [max((r[word] for _, r in made), default=0) for word in ("registers", "shared")]
        text.append(f"| {' | '.join([*key, *map(str, [*counts, *worst, len(bad)])])} |")
        spilt += [
            f"| {spec} | {' | '.join(key)} | {r['tile']} | {r['threads']} | {r['registers']} | {r['spilt']} |"
            for spec, r in sorted(bad, key=lambda b: b[0])
        ]
    head = ["spec", "head", "types", "cc", "tile", "threads", "registers", "bytes spilt"]
    text += ["", "## Spills", "", f"| {' | '.join(head)} |", "|---|---|---|---|---|--:|--:|--:|", *spilt]
    return "\n".join([*text, ""])


def main(words: Sequence[str] | None = None) -> None:
    command(__doc__, every_cell(), judged, report, words)


if __name__ == "__main__":
    main()
