"""How many obligations of the catalog another judge proves: ``python -m benchmarks.proofs.smt [RLIMIT]``.

Every obligation of every certificate is judged by Z3 through `redalg.proofs.solve` (work is bounded by Z3's own count,
so the verdicts do not depend on the machine), which reads the texts of `redalg.proofs.smt_lib` as any solver would.
Some of Z3's arithmetic is not in its count, so that a question is also given up after a time, which is then said.
Writes `smt.md`.
"""

from __future__ import annotations

import collections
import multiprocessing
import re
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import z3

import redalg as ra
from benchmarks.harness.processes import RECORDS, moment
from redalg.proofs.checker.check import Finding
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.smt.smt import RLIMIT, judged

OUT = RECORDS / "smt.md"
SECONDS = 10  # for one question, whatever is counted
LATE = f"no answer within {SECONDS} seconds"


def main(rlimit: int) -> None:
    found: dict[str, tuple[Finding, ...]] = {}
    seconds: list[float] = []
    for name in ra.catalog:
        entry = ra.catalog.entry(name)
        certificate = ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume).certificate
        begin = time.perf_counter()
        doc = certificate.document
        answers = within([partial(verdict, o, doc, rlimit) for o in doc.obligations], ("unknown", LATE))
        found[name] = tuple(Finding(o, *said) for o, said in zip(doc.obligations, answers, strict=True))
        seconds.append(time.perf_counter() - begin)
        print(f"{name}: {collections.Counter(f.status for f in found[name])}", flush=True)
    OUT.write_text(report(found, seconds, rlimit))
    print(OUT.read_text())


def verdict(o: Obligation, doc: Document, rlimit: int) -> tuple[str, str]:
    f = judged(z3, o, doc, rlimit)
    return f.status, str(f.detail)


def within(questions: list[Callable[[], Any]], late: Any) -> list[Any]:
    """The answers, in order, from a process that is ended when one takes too long (and begun again after it)."""
    fork = multiprocessing.get_context("fork")
    found: list[Any] = []
    while len(found) < len(questions):
        here, there = fork.Pipe(duplex=False)
        worker = fork.Process(target=_answer_all, args=(there, questions[len(found) :]), daemon=True)
        worker.start()
        there.close()
        while len(found) < len(questions) and here.poll(SECONDS):
            found.append(here.recv())
        if len(found) < len(questions):
            found.append(late)
            worker.kill()
        worker.join()
        here.close()
    return found


def _answer_all(there: Connection, questions: list[Callable[[], Any]]) -> None:
    for q in questions:
        there.send(q())


def reason(f: Finding) -> str:
    """The detail without its numbers."""
    return re.sub(r", \d+ units of work$", "", str(f.detail)) if f.status == "unknown" else f.status


def report(found: dict[str, tuple[Finding, ...]], seconds: list[float], rlimit: int) -> str:
    every = [f for findings in found.values() for f in findings]
    laws: dict[str, list[Finding]] = {}
    for f in every:
        laws.setdefault(f.obligation.law, []).append(f)
    lines = [
        "# Certificates judged by Z3",
        "",
        f"`python -m benchmarks.proofs.smt`, {moment()}, Z3 {z3.get_full_version()}, "
        f"Python {sys.version.split()[0]}, at most {rlimit} units of work and {SECONDS} seconds per obligation.",
        "",
        f"{_proved(every)} of {len(every)} obligations of {len(found)} certificates proved, "
        f"{sum(f.status == 'refuted' for f in every)} refuted. "
        f"Seconds per certificate: median {statistics.median(seconds):.2f}, worst {max(seconds):.1f}.",
        "",
        "| law | obligations | proved |",
        "|---|---|---|",
        *(f"| {law} | {len(fs)} | {_proved(fs)} |" for law, fs in sorted(laws.items())),
        "",
        "Not proved:",
        "",
        "| reason | obligations |",
        "|---|---|",
    ]
    rest: dict[str, list[str]] = {}
    for name, findings in found.items():
        for f in findings:
            if f.status != "proved":
                rest.setdefault(reason(f), []).append(f"{name} {f.obligation.law} {f.obligation.subject}")
    lines += [f"| {why} | {', '.join(where)} |" for why, where in sorted(rest.items())]
    return "\n".join([*lines, ""])


def _proved(findings: list[Any]) -> int:
    return sum(f.status == "proved" for f in findings)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RLIMIT)
