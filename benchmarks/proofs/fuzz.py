"""Damaged and hostile certificates by the hundred thousand: ``python -m benchmarks.proofs.fuzz [COUNT] [--seed S]``.

Input n is a function of the seed and n (`tests.support.fuzzing`); each of W processes (``--workers``) takes every
W-th. It writes what it has counted every thousand inputs, and a run that was stopped goes on from there. The attacks of
`tests.support.hostile` and `tests.support.hostile_documents`, each in a process of its own, are measured for time and
memory. Writes `fuzz.md`.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import platform
import resource
import time
from pathlib import Path
from typing import Any

import redalg as ra
from benchmarks.harness.processes import RECORDS, moment
from benchmarks.harness.refusals import REFUSED
from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import check
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.refusals.document import Refusal
from tests.support import hostile, hostile_documents
from tests.support.fuzzing import Original, damaged, judged, originals

OUT = RECORDS / "fuzz.md"
EVERY = 1000
State = dict[str, Any]


def intact() -> list[Original]:
    """The certificates of the catalog, and those of refused specs."""
    texts = []
    for name in ra.catalog:
        entry = ra.catalog.entry(name)
        form = ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume)
        texts.append((name, form.certificate.to_json()))
    for name, spec in sorted(REFUSED.items()):
        verdict = ra.verdict(ra.parse(spec))
        if isinstance(verdict, ra.NotDecomposable) and verdict.witness is not None:
            texts.append((name, verdict.certificate.to_json()))
    return originals(texts)


def worker(base: list[Original], count: int, seed: int, number: int, step: int, file: Path) -> None:
    """Every input of one process, from where its file says it stands."""
    state: State = {"next": number, "counts": {}, "crashes": [], "worst": [0.0, 0, ""], "seconds": 0.0}
    if file.exists():
        state = json.loads(file.read_text())
    while state["next"] < count:
        _one(base, seed, state)
        state["next"] += step
        if state["next"] // step % EVERY == 0 or state["next"] >= count:
            state["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            file.write_text(json.dumps(state))


def _one(base: list[Original], seed: int, state: State) -> None:
    n = state["next"]
    original, kind, text = damaged(base, seed, n)
    begin = time.process_time()
    outcome = judged(original, text)
    seconds = time.process_time() - begin
    key = f"{'refusal' if original.refusal else 'form'}|{kind}|{outcome.kind}"
    state["counts"][key] = state["counts"].get(key, 0) + 1
    state["seconds"] += seconds
    if seconds > state["worst"][0]:
        state["worst"] = [seconds, n, original.name]
    if outcome.kind in ("crashed", "false"):
        state["crashes"].append([n, original.name, outcome.detail])


# --- attacks ---------------------------------------------------------------------------------------------------------


def attacks() -> list[list[Any]]:
    """[name, kilobytes, what became of it, seconds, megabytes] of every attack."""
    texts: list[tuple[str, str | bytes]] = [(name, hostile.written(name)) for name in hostile.EXPLOSIONS]
    texts += [(name, hostile.text(form())) for name, form in hostile_documents.FORMS.items()]
    texts += [
        *hostile_documents.TEXTS.items(),
        *((name, attack()) for name, attack in hostile_documents.REFUSALS.items()),
    ]
    context = multiprocessing.get_context("spawn")
    rows = []
    for name, text in texts:
        with context.Pool(1) as pool:
            rows.append([name, len(text) / 1e3, *pool.apply(measured, (text, name in hostile_documents.REFUSALS))])
    return rows


def measured(text: str | bytes, refusal: bool) -> tuple[str, float, int]:
    """What became of a text, with the time and the memory of this process."""
    begin = time.process_time()
    try:
        if refusal:
            found = str(Refusal.from_json(text).verify())
        else:
            report = check(Certificate.from_json(text).document)
            found = ", ".join(f"{n} {status}" for status, n in sorted(report.counts.items()))
    except CertificateError as e:
        found = f"refused: {e.why}"
    seconds = time.process_time() - begin
    return found[:90], seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


# --- report ----------------------------------------------------------------------------------------------------------


def report(count: int, seed: int, base: list[Original], states: list[State], rows: list[list[Any]]) -> str:
    counts: collections.Counter[str] = collections.Counter()
    for s in states:
        counts.update(s["counts"])
    crashes = [c for s in states for c in s["crashes"]]
    worst = max(s["worst"] for s in states)
    kinds = sorted({k.rsplit("|", 1)[0] for k in counts})
    outcomes = sorted({k.rsplit("|", 1)[1] for k in counts} | {"crashed", "false"})
    lines = [
        "# Damaged certificates",
        "",
        f"`python -m benchmarks.proofs.fuzz {count} --seed {seed}` on {moment()}, Python "
        f"{platform.python_version()}, redalg {ra.__version__}: {sum(counts.values())} inputs made of {len(base)} "
        f"certificates ({sum(o.refusal for o in base)} of refusals). Crashed: "
        f"{sum(v for k, v in counts.items() if k.endswith('|crashed'))}; false theorems proved: "
        f"{sum(v for k, v in counts.items() if k.endswith('|false'))}.",
        "",
        f"Time: {1e3 * sum(s['seconds'] for s in states) / sum(counts.values()):.1f} ms on average, at most "
        f"{worst[0]:.2f} s (input {worst[1]}, {worst[2]}). Peak memory of a process: "
        f"{max(s['memory'] for s in states)} MB, with every input before and what makes them.",
        "",
        "What becomes of an input: *refused when read* or *when checked*, with the four parts of an error; *not",
        "proved*: read, and the report says which obligation is not; *proved, of the same spec*: the spec hash is that",
        "of the intact certificate, so that the theorem is the same (damage to a name, or undone by stating the",
        "obligations anew); *proved, of the changed spec*: sealed under another hash; no point refutes its outputs.",
        "",
        "| damage | " + " | ".join(outcomes) + " |",
        "|---" * (len(outcomes) + 1) + "|",
    ]
    for kind in kinds:
        lines.append(
            f"| {kind.replace('|', ', ')} | " + " | ".join(str(counts[f"{kind}|{o}"]) for o in outcomes) + " |"
        )
    for n, name, detail in crashes[:20]:
        original, _, text = damaged(base, seed, n)
        again = judged(original, text).kind  # a run that goes on may have begun with an earlier version
        short = detail[:60].replace("|", "/")
        lines += ["", f"Input {n} ({name}): {short} …; judged again when this was written: {again}."]
    lines += ["", "## Attacks", "", "Each in a process of its own; the memory includes Python and redalg itself.", ""]
    lines += ["| attack | kB | outcome | s | MB |", "|---|---|---|---|---|"]
    for name, size, found, seconds, memory in rows:
        lines.append(f"| {name} | {size:.0f} | {found.replace('|', '/')} | {seconds:.2f} | {memory} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--state", type=Path, default=Path("build/fuzz"), help="where counts are kept")
    options = parser.parse_args()
    options.state.mkdir(parents=True, exist_ok=True)
    base, workers = intact(), options.workers
    files = [options.state / f"{options.seed}-{options.count}-{i}of{workers}.json" for i in range(workers)]
    context = multiprocessing.get_context("spawn")
    given = (base, options.count, options.seed)
    jobs = [context.Process(target=worker, args=(*given, i, workers, f)) for i, f in enumerate(files)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    states = [json.loads(f.read_text()) for f in files]
    OUT.write_text(report(options.count, options.seed, base, states, attacks()))
    print(OUT.read_text())


if __name__ == "__main__":
    main()
