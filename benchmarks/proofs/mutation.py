"""``python -m benchmarks.proofs.mutation [COUNT]``: how many corrupted certificates the checker refuses, and by what.

Each mutant (COUNT per spec) differs from a certificate of the catalog in one place: a coefficient, sign, exponent,
operator, leaf, transport entry, identity, flag, string; something dropped, doubled or exchanged; an assumption more. A
mutant of the spec or of the form states the obligations of what it has become, so that it is consistent and only what
it says can be wrong. Refused by the *reader*: it is no document; by *structure*: it is no form of its spec, leaves a
sum out, or states other obligations than its own; by *proof*: an obligation does not hold, or is not proved. A survivor
is folded on random streams, by code that shares nothing with the checker, and compared with its definition: one that
folds to another value states a falsehood. Writes `mutation.md`.
"""

from __future__ import annotations

import collections
import statistics
import sys
import time

import redalg as ra
from benchmarks.harness.processes import RECORDS, moment
from tests.support.mutations import folded, judged, mutants

OUT = RECORDS / "mutation.md"
BY = ("reader", "structure", "proof", "accepted")
STREAMS = 30


def main(count: int) -> None:
    outcomes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    survivors: list[tuple[str, str, str, bool]] = []
    false: list[str] = []
    times: list[float] = []
    compared: list[int] = []  # streams on which a survivor could be compared
    for name in ra.catalog:
        entry = ra.catalog.entry(name)
        original = ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume).certificate
        begin = time.perf_counter()
        original.verify()
        times.append(time.perf_counter() - begin)
        for m in mutants(original.to_json(), count, name, obligations=False):
            found = judged(m)
            outcomes[m.kind][found.by] += 1
            if found.by == "accepted" and found.document is not None:
                survivors.append((name, m.kind, m.where, found.document.spec_hash == original.spec_hash))
                is_false, streams = folded(found.document, STREAMS, name)
                compared.append(streams)
                if is_false:
                    false.append(f"{name}: {m.kind} in {m.where}")
    OUT.write_text(report(outcomes, survivors, false, times, compared))
    print(OUT.read_text())


def report(
    outcomes: dict[str, collections.Counter[str]],
    survivors: list[tuple[str, str, str, bool]],
    false: list[str],
    times: list[float],
    compared: list[int],
) -> str:
    total: collections.Counter[str] = collections.Counter()
    for found in outcomes.values():
        total.update(found)
    lines = [
        "# Corrupted certificates",
        "",
        f"`python -m benchmarks.proofs.mutation`, {moment()}: "
        f"{sum(total.values())} mutants of {len(times)} certificates, each with the obligations of what it has become. "
        f"{total['proof']} are refused by a proof that fails, {total['structure']} by their structure, "
        f"{total['reader']} by the reader, {total['accepted']} are accepted; of these {len(false)} fold to other "
        f"values than their definitions on {STREAMS} random streams, of which {min(compared, default=0)} to "
        f"{max(compared, default=0)} could be compared. Verifying an intact certificate: median "
        f"{1e3 * statistics.median(times):.1f} ms, worst {1e3 * max(times):.0f} ms (Python {sys.version.split()[0]}).",
        "",
        "| change | mutants | by the reader | by structure | by proof | accepted |",
        "|---|---|---|---|---|---|",
    ]
    for kind, found in sorted(outcomes.items()):
        lines.append(f"| {kind} | {sum(found.values())} | {' | '.join(str(found[by]) for by in BY)} |")
    lines += [
        "",
        "Accepted mutants are proved, and fold to their definitions. *Same spec*: the hash of the spec is "
        "unchanged, the form is another one.",
        "*Another spec*: the mutated definition equals the form too; its hash differs.",
        "",
        "| change | where | same spec | another spec | certificates |",
        "|---|---|---|---|---|",
    ]
    grouped: dict[tuple[str, str], list[tuple[str, bool]]] = collections.defaultdict(list)
    for name, kind, where, same in survivors:
        grouped[kind, where].append((name, same))
    for (kind, where), accepted in sorted(grouped.items()):
        names = ", ".join(sorted({n for n, _ in accepted})[:4])
        own = sum(same for _, same in accepted)
        lines.append(f"| {kind} | {where} | {own} | {len(accepted) - own} | {names} |")
    if false:
        lines += ["", "Falsehoods that are accepted:", "", *(f"* {line}" for line in false)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 25)
