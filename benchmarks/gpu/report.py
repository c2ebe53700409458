"""The table of the GPU run: `python -m benchmarks.gpu.report cells.jsonl [--out benchmarks/records/gpu.md]`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.measuring import Lines, Record, best_us
from benchmarks.harness.processes import RECORDS, provenance

GOAL = 0.95
PEERS = ("torch", "inductor", "inductor max-autotune")
MIB = 1 << 20


def figures(record: Record) -> dict[str, str]:
    """What is said of a cell: our time, its share of the limit, and how many times longer others take."""
    results, limit = record.get("results", {}), record.get("limit_us")
    ours = best_us(results.get("redalg", {}))
    found: dict[str, str] = {}
    if "error" in record:
        found["error"] = record["error"][:80]
    if ours is None:
        found["redalg"] = results.get("redalg", {}).get("error", "none")[:80]
    else:
        found["us"] = f"{ours:.1f}"
        found |= {"limit": f"{100 * limit / ours:.0f}%"} if limit else {}
    for name, result in results.items():
        if name != "redalg":
            found[name.removeprefix("redalg ")] = relation(best_us(result), ours, result)
    return found


def relation(theirs: float | None, ours: float | None, result: Mapping[str, Any]) -> str:
    """Their time, and its ratio to ours."""
    if theirs is None:
        return "wrong" if "wrong" in result else "failed" if "error" in result else "-"
    return f"{theirs:.1f} ({theirs / ours:.2f}x)" if ours else f"{theirs:.1f}"


def _length(n: int) -> str:
    return f"{n >> 20} M" if n >= MIB and n % MIB == 0 else str(n)


def _row(record: Record) -> str:
    results, limit = record.get("results", {}), record.get("limit_us")
    mine = results.get("redalg", {})
    ours = best_us(mine)
    sizes = " × ".join(_length(n) for n in record.get("sizes", {}).values())
    share = f"{100 * limit / ours:.0f} %" if ours and limit else "-"
    shown = f"{ours:.1f}" if ours else f"**{relation(None, None, mine)}**"
    shown += "*" if mine.get("bound_by_calls") and "graph_us" not in mine else ""
    peers = [relation(best_us(results.get(p, {})), ours, results.get(p, {})) for p in PEERS]
    moved = (record.get("read", 0) + record.get("written", 0)) / MIB
    cells = (
        record["dtype"],
        sizes,
        f"{moved:.0f}",
        f"{limit:.1f}" if limit else "-",
        shown,
        share,
        *peers,
        _schedule(mine.get("schedule", "")),
    )
    return f"| {' | '.join(cells)} |"


def _schedule(text: str) -> str:
    return re.sub(r"^Schedule\((.*)\)$", r"\1", text).replace("=True", "")


def tables(cells: Iterable[Record]) -> list[str]:
    """One table for every operation, in the order in which operations were begun."""
    groups: dict[str, list[Record]] = {}
    for record in cells:
        if "operation" in record:
            groups.setdefault(record["operation"], []).append(record)
    lines = []
    for operation, group in groups.items():
        group.sort(key=lambda r: (r["length"], r["dtype"] != "float32", r["dtype"]))
        lines += ["", f"## {operation}", ""]
        lines += [
            "| dtype | sizes | MiB moved | limit µs | redalg µs | of the limit | torch µs | Inductor µs | "
            "max-autotune µs | schedule |"
        ]
        lines += ["|---|---|---:|---:|---:|---:|---:|---:|---:|---|", *map(_row, group)]
    return lines


def variants(cells: Iterable[Record]) -> list[str]:
    """Schedules that were asked for, beside the one the library chose."""
    rows = []
    for record in cells:
        results, limit = record.get("results", {}), record.get("limit_us")
        for name, result in results.items():
            if name.startswith("redalg "):
                us, chosen = best_us(result), best_us(results.get("redalg", {}))
                share = f"{100 * limit / us:.0f} %" if us and limit else "-"
                ratio = f"{us / chosen:.2f}" if us and chosen else result.get("error", "-")[:70]
                shown = f"{us:.1f}" if us else "-"
                asked, schedule = name.removeprefix("redalg "), _schedule(result.get("schedule", ""))
                rows.append(f"| {record['cell']} | {asked} | {shown} | {share} | {ratio} | {schedule} |")
    head = ["", "## Other schedules", "", "| cell | asked for | µs | of the limit | / chosen | schedule |"]
    return [*head, "|---|---|---:|---:|---:|---|", *rows] if rows else []


def goals(cells: Iterable[Record], most: int | None = None) -> list[str]:
    """What was reached, what was missed and by how much, and what failed; `most` lines of each kind."""
    timed, near = 0, 0
    low: list[tuple[float, str]] = []
    slow: list[tuple[float, str]] = []
    failed = []
    for record in cells:
        results, limit = record.get("results", {}), record.get("limit_us")
        failed += [f"{record['cell']}: {record['error'][:160]}"] if "error" in record else []
        failed += [f"{record['cell']}: {n}: {r['error'][:160]}" for n, r in results.items() if "error" in r]
        ours = best_us(results.get("redalg", {}))
        if ours is None or not limit:
            continue
        timed, near = timed + 1, near + (limit / ours >= GOAL)
        low += [(limit / ours, record["cell"])] if limit / ours < GOAL else []
        known = {peer: best_us(results.get(peer, {})) or ours for peer in PEERS}
        faster = [
            (us / ours, f"{record['cell']}: {peer}") for peer, us in known.items() if us is not None and us < ours
        ]
        slow += [min(faster)] if faster else []
    lines = [f"{timed} cells timed; {near} reach {GOAL:.0%} of the limit; a peer is faster in {len(slow)}."]
    lines += _listed(f"below {GOAL:.0%}", [f"{name} {share:.0%}" for share, name in sorted(low)], most)
    lines += _listed("a peer is faster", [f"{name}, {ratio:.2f} of our time" for ratio, name in sorted(slow)], most)
    return lines + _listed("failed", failed, most)


def _listed(title: str, texts: list[str], most: int | None) -> list[str]:
    more = len(texts) - most if most is not None else 0
    return [f"* {title}: {text}" for text in texts[:most]] + ([f"* {title}: {more} more"] if more > 0 else [])


def ceilings(lines: Lines) -> list[str]:
    rows = {
        (r["bytes"], r["ceiling"]): f"| {r['bytes'] / MIB:.0f} | {r['ceiling']} | {r['us']:.1f} | "
        f"{r['bytes'] / r['us'] / 1e6:.2f} | {r['by']} |"
        for r in lines.values("ceiling")
    }
    head = ["", "## Ceilings", "", "| MiB moved | kind | µs | TB/s | fastest kernel |", "|---:|---|---:|---:|---|"]
    return [*head, *(rows[key] for key in sorted(rows))] if rows else []


HEAD = """# Kernels on a GPU

Written by `python -m benchmarks.gpu.report` from lines of `python -m benchmarks.gpu`; a cell that is run again, with
its peers, replaces its line. Every result was checked against float64 on fresh random arguments and poisoned memory
before it was timed, and ours again afterwards; arguments rotate through more than 256 MB. Times are medians of
interleaved repeats between CUDA events; where less than 128 MiB is moved, of replayed CUDA graphs, for all alike.
*MiB moved*: every argument read and every result written once. *Limit*: the time of the fastest copy and read of as
many bytes (`benchmarks/gpu/ceilings.py`). Ratios are their time over ours. *Inductor* is `torch.compile` in its default
mode with static shapes; *max-autotune* the same with `mode="max-autotune-no-cudagraphs"` (a dash: not measured).
"""


def markdown(lines: Lines) -> str:
    cells = lines.cells()
    about = list(dict.fromkeys(str(r["conditions"]) for r in lines.values("conditions")))
    body = [HEAD, *about, "", provenance(cells.values()), "", *goals(cells.values()), *tables(cells.values())]
    return "\n".join([*body, *variants(cells.values()), *ceilings(lines)]) + "\n"


def summary(lines: Lines) -> str:
    """A compact table for the end of a run: length, share of the limit, and how long torch and Inductor take."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in lines.cells().values():
        if "operation" in record:
            groups.setdefault((record["operation"], record["dtype"]), []).append(record)
    rows = []
    for (operation, dtype), group in groups.items():
        texts = [_short(r) for r in sorted(group, key=lambda r: r["length"])]
        rows.append(f"{operation} {dtype}: {', '.join(texts)}")
    head = "length share-of-limit torch/ours Inductor/ours"
    return "\n".join([head, *rows, *goals(lines.cells().values(), most=15)])


def _short(record: Record) -> str:
    results, limit = record.get("results", {}), record.get("limit_us")
    ours = best_us(results.get("redalg", {}))
    if ours is None:
        return f"{record['length']} {relation(None, None, results.get('redalg', {}))}"
    peers = [best_us(results.get(p, {})) for p in ("torch", "inductor")]
    ratios = "/".join("-" if p is None else f"{p / ours:.2f}" for p in peers)
    return f"{record['length']} {100 * limit / ours:.0f}% {ratios}" if limit else f"{record['length']} {ratios}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--out", type=Path, default=RECORDS / "gpu.md")
    options = parser.parse_args(words)
    options.out.write_text(markdown(Lines(options.lines)))
    print("\n".join(goals(Lines(options.lines).cells().values(), most=20)))


if __name__ == "__main__":
    main()
