"""Time of every derivation and refusal, each in a fresh process, imports excluded: writes `derivation_time.md`/`.json`.

Demanded: median under 0.3 s, worst catalog spec and worst refusal under 3 s. `python -m benchmarks.cpu.derivation_time`
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence

from benchmarks.harness.processes import RECORDS, conditions, fresh, provenance, stamp
from benchmarks.harness.refusals import REFUSED

MEDIAN, WORST = 0.3, 3.0

# every module is imported beforehand (`import redalg` is lazy), and nothing is derived: all caches are cold
CODE = """
import importlib, json, pkgutil, sys, time
import mpmath, numpy, sympy
import redalg as ra
from benchmarks.harness.refusals import REFUSED
for module in pkgutil.walk_packages(ra.__path__, "redalg."):
    if not {"testing", "kernels", "proofs", "__main__"} & set(module.name.split(".")):
        importlib.import_module(module.name)
kind, name = sys.argv[1:]
entry = ra.catalog.entry(name) if kind == "catalog" else None
spec = entry.spec if entry else ra.parse(REFUSED[name])
options = dict(axis=entry.axis, assume=entry.assume) if entry else {}
start = time.perf_counter()
verdict = ra.verdict(spec, **options)
seconds = time.perf_counter() - start
print(json.dumps([type(verdict).__name__, seconds]))
"""


def measure(kind: str, name: str) -> tuple[str, float]:
    """Verdict and seconds of one spec in a process of its own."""
    verdict, seconds = fresh(CODE, kind, name)
    return verdict, seconds


def report(rows: Sequence[tuple[str, str, str, float]]) -> str:
    written = "Each in a fresh process, imports excluded. Written by `python -m benchmarks.cpu.derivation_time`."
    lines = ["# Derivation times", "", written, conditions(), provenance([stamp()] * len(rows)), ""]
    for kind in ("catalog", "refusal"):
        group = [r for r in rows if r[0] == kind]
        worst = max(group, key=lambda r: r[3])
        median = statistics.median(r[3] for r in group)
        lines.append(f"* {kind}: {len(group)} specs, median {median:.3f} s, worst {worst[3]:.3f} s ({worst[1]})")
    everything = [r[3] for r in rows]
    lines.append(f"* all: median {statistics.median(everything):.3f} s (demanded: under {MEDIAN}), ")
    lines[-1] += f"worst {max(everything):.3f} s (demanded: under {WORST})"
    lines += ["", "| kind | spec | verdict | seconds |", "|---|---|---|---|"]
    lines += [f"| {k} | {n} | {v} | {s:.3f} |" for k, n, v, s in sorted(rows, key=lambda r: -r[3])]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    import redalg as ra

    argparse.ArgumentParser(description=__doc__).parse_args(arguments)
    jobs = [("catalog", name) for name in ra.catalog] + [("refusal", name) for name in REFUSED]
    rows = []
    for done, (kind, name) in enumerate(jobs, 1):
        rows.append((kind, name, *measure(kind, name)))
        print(f"\r{done}/{len(jobs)} {name:50}", end="", file=sys.stderr)
    print(file=sys.stderr)
    (RECORDS / "derivation_time.md").write_text(report(rows))
    (RECORDS / "derivation_time.json").write_text(json.dumps({**stamp(), "rows": rows}, indent=1))
    print(report(rows).split("\n| kind")[0])


if __name__ == "__main__":
    main()
