"""The table of `benchmarks.gpu.assembly`: registers and spills by family, every kernel that spills, what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
FAMILIES = ("chosen", "thread", "warp", "block", "cluster", "split", "column", "prefetch", "cooperative")


def report(lines: Iterable[Record]) -> str:
    """The text of the table. `lines`: those of `benchmarks.gpu.assembly.judged`."""
    from benchmarks.gpu.assembly import H200, OTHER, ROWS, Cell
    from benchmarks.harness.processes import moment, versions

    records = [{**r, **vars(Cell.named(r["cell"]))} for r in lines]
    compilers = f"{versions('numba-cuda', 'nvidia-nvvm', 'nvidia-cuda-nvcc')}, {moment()}"
    head = [
        "# Assembly of the catalog's kernels",
        "",
        f"Registers, shared memory, stack and spills as ptxas reports them for sm_90a, {compilers}. `python -m "
        f"benchmarks.gpu.assembly` writes this; no GPU is needed. Schedules are the best of their family by the model, "
        f"or those the library chooses, for an {H200.name} at {ROWS} rows and {OTHER} for every other axis. `limit`: "
        "the registers a thread may have if the block is to be launched.",
        "",
    ]
    return "\n".join(
        [*head, *_summary(records), *_spills(records), *_local(records), *_failed(records), *_refused(records)]
    )


def _summary(records: Sequence[Record]) -> list[str]:
    lines = [
        "| family | dtype | kernels | refused | failed | worst registers | worst shared bytes | worst stack bytes "
        "| that spill | spilt at worst |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for family in FAMILIES:
        for dtype in sorted({r["dtype"] for r in records}, reverse=True):
            group = [r for r in records if (r["family"], r["dtype"]) == (family, dtype)]
            made = [r for r in group if "registers" in r]
            refused, failed = (sum(word in r for r in group) for word in ("refused", "error"))
            worst = [max((r[k] for r in made), default=0) for k in ("registers", "shared", "stack")]
            spilt = [spill(r) for r in made if spill(r)]
            row = [family, dtype, len(made), refused, failed, *worst, len(spilt), max(spilt, default=0)]
            lines.append(f"| {' | '.join(map(str, row))} |")
    return [*lines, ""]


def spill(r: Record) -> int:
    """Bytes a thread stores and loads beyond its registers."""
    return int(r.get("spill_stores", 0) + r.get("spill_loads", 0))


def _spills(records: Iterable[Record]) -> list[str]:
    found = sorted((r for r in records if spill(r)), key=lambda r: (r["family"] != "chosen", -spill(r), r["cell"]))
    if not found:
        return ["## Spills", "", "None.", ""]
    head = ["## Spills", "", "| spec | family | dtype | stores | loads | registers | limit | schedule | length |"]
    lines = [*head, "|---|---|---|--:|--:|--:|--:|---|--:|"]
    for r in found:
        row = [r[k] for k in ("spec", "family", "dtype", "spill_stores", "spill_loads", "registers", "limit")]
        lines.append(f"| {' | '.join(map(str, [*row, r['schedule'], r['length']]))} |")
    return [*lines, ""]


def _local(records: Iterable[Record]) -> list[str]:
    """Kernels that keep arrays in local memory although nothing is spilt: loops over them were not unrolled."""
    found = sorted((r for r in records if r.get("stack") and not spill(r)), key=lambda r: (-r["stack"], r["cell"]))
    if not found:
        return []
    head = ["## Arrays in local memory", "", "| spec | family | dtype | stack | registers | schedule | length |"]
    lines = [*head, "|---|---|---|--:|--:|---|--:|"]
    for r in found:
        row = [r[k] for k in ("spec", "family", "dtype", "stack", "registers", "schedule", "length")]
        lines.append(f"| {' | '.join(map(str, row))} |")
    return [*lines, ""]


def _failed(records: Iterable[Record]) -> list[str]:
    found = [r for r in records if "error" in r]
    if not found:
        return []
    return ["## Failed", "", *(f"* {r['cell']}: {' '.join(r['error'].split())}" for r in found), ""]


def _refused(records: Iterable[Record]) -> list[str]:
    """Every reason once, with the specs it holds for."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for r in sorted(records, key=lambda r: str(r["cell"])):
        if "refused" in r:
            groups.setdefault((r["family"], r["refused"]), {})[r["spec"]] = None
    lines = ["## Refused", "", "| family | why | specs |", "|---|---|---|"]
    for (family, why), specs in sorted(groups.items(), key=lambda g: (FAMILIES.index(g[0][0]), g[0][1])):
        lines.append(f"| {family} | {why} | {', '.join(specs)} |")
    return [*lines, ""] if groups else []
