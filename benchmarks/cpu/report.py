"""The table of the CPU run, and which of its goals are met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu.report import relation
from benchmarks.harness.measuring import Record, best_us
from benchmarks.harness.processes import provenance

PEERS = ("numpy", "numpy in place", "numexpr", "torch", "inductor")
FOUR_TIMES = ("softmax", "logsumexp", "layer_norm", "variance")
ARGMAX = 0.8
SHARE = 0.6


def ratio(record: Record, peer: str) -> float | None:
    """A peer's time over ours; None where one of the two was not timed."""
    results = record["results"]
    theirs, ours = best_us(results.get(peer, {})), best_us(results.get("redalg", {}))
    return theirs / ours if theirs is not None and ours is not None else None


def brief(record: Record) -> str:
    ours = best_us(record["results"]["redalg"])
    texts = [f"{p} {r:.2f}x" for p in PEERS if (r := ratio(record, p)) is not None]
    if ours is None:
        return f"{record['operation']:20} {record['results']['redalg']['error']}"
    return f"{record['operation']:20} {ours / 1e3:8.2f} ms {100 * record['limit_us'] / ours:4.0f} %  {', '.join(texts)}"


def goals(records: Sequence[Record]) -> list[str]:
    """What was asked for: 4 times NumPy on four operations, never behind PyTorch, argmax, a share of the ceiling."""
    lines = []
    for record in records:
        name, ours = record["operation"], best_us(record["results"]["redalg"])
        if ours is None:
            lines.append(f"* {name}: failed, {record['results']['redalg']['error'][:160]}")
            continue
        wanted = [("numpy", 4.0)] * (name in FOUR_TIMES) + [("torch", 1.0)] + [("numpy", ARGMAX)] * (name == "argmax")
        for peer, least in wanted:
            found = ratio(record, peer)
            if found is not None and found < least:
                lines.append(f"* {name}: {found:.2f} times {peer}, {least:g} wanted")
        share = record["limit_us"] / ours
        if share < SHARE:
            lines.append(f"* {name}: {share:.0%} of the ceiling, {SHARE:.0%} wanted")
    uneven = [r["operation"] for r in records if disturbed(r)]
    lines = lines or ["every goal is met"]
    return [*lines, f"* disturbed by other processes, measure again: {', '.join(uneven)}"] if uneven else lines


def disturbed(record: Record) -> bool:
    """Whether someone's median is a quarter above the least time: then other processes had the cores."""
    timed = [r for r in record["results"].values() if "us" in r]
    return any(r["us"] > 1.25 * r["low_us"] for r in timed)


def _row(record: Record) -> str:
    results = record["results"]
    ours = best_us(results["redalg"])
    shown = f"{ours / 1e3:.2f}" if ours else f"**{relation(None, None, results['redalg'])}**"
    share = f"{100 * record['limit_us'] / ours:.0f} %" if ours else "-"
    peers = []
    for peer in PEERS:
        us, times = best_us(results.get(peer, {})), ratio(record, peer)
        peers.append("-" if us is None else f"{us / 1e3:.2f}" + (f" ({times:.2f}x)" if times else ""))
    return f"| {record['operation']} | {record['limit_us'] / 1e3:.2f} | {shown} | {share} | {' | '.join(peers)} |"


HEAD = """# Kernels on the CPU

{size} × {size} float32. Written by `python -m benchmarks.cpu`. Milliseconds, medians of interleaved repeats in one
process; in brackets their time over ours. Results were checked against float64 on poisoned memory before anything was
timed. They go to memory that is given (`out=`), temporary arrays come from a heap that keeps them: no page faults.
*Limit*: the fastest copy and read of as many bytes, timed beside every operation; what is read and matched by a write
at the rate of the copy, the rest at that of the read. *NumPy*: the usual text; *in place*: without temporary arrays.
*Inductor*: `torch.compile` in its default mode.
"""


def markdown(whole: Mapping[str, Any]) -> str:
    records = whole["operations"]
    lines = [HEAD.format(size=whole["size"]), whole["conditions"], provenance([whole]), "", *goals(records), ""]
    lines += ["| operation | limit | redalg | of the limit | NumPy | in place | numexpr | PyTorch | Inductor |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|---:|---:|", *map(_row, records), ""]
    for c in whole["ceilings"]:
        ways = ", ".join(f"{name} {ms:.2f} ms" for name, ms in sorted(c["ms"].items(), key=lambda p: p[1]))
        lines.append(f"* {c['ceiling']} of {c['bytes'] >> 20} MiB: {ways}")
    return "\n".join(lines) + "\n"
