"""Processor time of derivations and refusals, each in a fresh process, imports excluded: writes `derivation_time.md`.

Both what the first one of a process takes, which pays for every first call, and the least of some more. Demanded of the
latter: median 15 ms and worst 100 ms over the catalog, and 3 s for 100 variances. `python -m
benchmarks.cpu.derivation_time`
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.harness.processes import RECORDS, conditions, fresh, provenance, stamp
from benchmarks.harness.refusals import REFUSED

MEDIAN, WORST, MANY = 0.015, 0.1, 3.0
AGAIN = 4
VARIANCES = "100 variances"

# what derives is imported beforehand (`import redalg` is lazy), and nothing is derived: all caches are cold
CODE = """
import json, sys, time
import mpmath, numpy, sympy
import redalg as ra
import redalg.api, redalg.specs, redalg.streaming.accumulator
from benchmarks.harness.refusals import REFUSED
kind, name, again = sys.argv[1:]
entry = ra.catalog.entry(name) if kind == "catalog" else None
options = dict(axis=entry.axis, assume=entry.assume) if entry else {}
if kind == "many":
    outputs = ", ".join(f"v{k} = mean[j]((x{k}[j] - mean[j](x{k}[j]))**2)" for k in range(100))
    spec = ra.parse(f"return {outputs}")
else:
    spec = entry.spec if entry else ra.parse(REFUSED[name])
seconds = []
for _ in range(1 + int(again)):
    start = time.process_time()
    verdict = ra.verdict(spec, **options)
    seconds.append(time.process_time() - start)
print(json.dumps([type(verdict).__name__, seconds[0], min(seconds)]))
"""
PATIENCE = 1800.0  # seconds that a process may take on a machine that others use too: processor time is measured
Row = tuple[str, str, str, float, float]  # kind, spec, verdict, seconds of the first derivation, least of all


def measure(kind: str, name: str) -> Row:
    """Verdict and seconds of one spec in a process of its own."""
    verdict, first, least = fresh(CODE, kind, name, str(AGAIN if kind != "many" else 1), timeout=PATIENCE)
    return kind, name, verdict, first, least


def report(rows: Sequence[Row], workers: int) -> str:
    written = (
        f"Processor time, imports excluded, {workers} processes at once. `python -m benchmarks.cpu.derivation_time`."
    )
    lines = ["# Derivation times", "", written, conditions(), provenance([stamp()] * len(rows)), ""]
    for kind in ("catalog", "refusal"):
        group = [r for r in rows if r[0] == kind]
        for what, at in (("first of a process", 3), (f"least of {1 + AGAIN}", 4)):
            worst = max(group, key=lambda r: r[at])
            median = statistics.median(r[at] for r in group)
            lines.append(
                f"* {kind}, {what}: {len(group)} specs, median {median:.3f} s, worst {worst[at]:.3f} s ({worst[1]})"
            )
    many = next(r for r in rows if r[0] == "many")
    lines += [f"* {VARIANCES}: first {many[3]:.2f} s, again {many[4]:.2f} s", ""]
    lines += [f"Demanded of the least: median {MEDIAN} s, worst {WORST} s; of {VARIANCES} {MANY} s.", ""]
    lines += ["| kind | spec | verdict | first | least |", "|---|---|---|---|---|"]
    lines += [f"| {k} | {n} | {v} | {s:.3f} | {t:.3f} |" for k, n, v, s, t in sorted(rows, key=lambda r: -r[4])]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    import redalg as ra

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1, help="processes at once")
    workers = parser.parse_args(arguments).workers
    jobs = [("catalog", name) for name in ra.catalog] + [("refusal", name) for name in REFUSED]
    jobs.append(("many", VARIANCES))
    rows = []
    with ThreadPoolExecutor(workers) as pool:
        for row in pool.map(measure, *zip(*jobs, strict=True)):
            rows.append(row)
            print(f"\r{len(rows)}/{len(jobs)} {row[1]:50}", end="", file=sys.stderr)
    print(file=sys.stderr)
    (RECORDS / "derivation_time.md").write_text(report(rows, workers))
    (RECORDS / "derivation_time.json").write_text(json.dumps({**stamp(), "rows": rows}, indent=1))
    print(report(rows, workers).split("\n| kind")[0])


if __name__ == "__main__":
    main()
