"""How many corrupted certificates the checker refuses: ``python -m benchmarks.mutation [COUNT per spec]``.

Each mutant differs from a certificate of the catalog in one place (a coefficient, sign, exponent, operator, leaf,
transport entry, identity, flag, string; something dropped, doubled or exchanged; an assumption more), with its hash
sealed again. A survivor is *sound* when it is about the same spec (same hash) and every obligation that spec and form
require is proved: then it states a true theorem. Writes `mutation.md`.
"""

from __future__ import annotations

import collections
import statistics
import sys
import time
from pathlib import Path

import redalg as ra
from redalg.proofs.certificate import Certificate
from redalg.proofs.refusals import CertificateError
from tests.mutations import Mutant, mutants

OUT = Path(__file__).parent / "mutation.md"


def main(count: int) -> None:
    tried: collections.Counter[str] = collections.Counter()
    refused: collections.Counter[str] = collections.Counter()
    survivors: list[tuple[str, Mutant, bool]] = []
    times: list[float] = []
    for name in ra.catalog:
        entry = ra.catalog.entry(name)
        original = ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume).certificate
        begin = time.perf_counter()
        original.verify()
        times.append(time.perf_counter() - begin)
        for m in mutants(original.to_json(), count, name):
            tried[m.kind] += 1
            try:
                mutated = Certificate.from_json(m.text)
                mutated.verify()
            except CertificateError:
                refused[m.kind] += 1
                continue
            survivors.append((name, m, mutated.spec_hash == original.spec_hash))
    OUT.write_text(report(tried, refused, survivors, times))
    print(OUT.read_text())


def report(
    tried: dict[str, int], refused: dict[str, int], survivors: list[tuple[str, Mutant, bool]], times: list[float]
) -> str:
    lines = [
        "# Corrupted certificates",
        "",
        f"`python -m benchmarks.mutation`: {sum(tried.values())} mutants of {len(times)} certificates, "
        f"{sum(refused.values())} refused, {len(survivors)} accepted. "
        f"Verifying an intact certificate: median {1e3 * statistics.median(times):.1f} ms, "
        f"worst {1e3 * max(times):.0f} ms (Python {sys.version.split()[0]}).",
        "",
        "| change | mutants | refused |",
        "|---|---|---|",
        *(f"| {kind} | {n} | {refused.get(kind, 0)} |" for kind, n in sorted(tried.items())),
        "",
        "Accepted mutants. *Same spec*: the hash of the spec is unchanged and every obligation was proved anew, so the",
        "document is a true theorem about it. *Another spec*: the mutated definition equals the form too; its hash",
        "differs.",
        "",
        "| change | where | same spec | another spec | certificates |",
        "|---|---|---|---|---|",
    ]
    grouped: dict[tuple[str, str], list[tuple[str, bool]]] = collections.defaultdict(list)
    for name, m, same in survivors:
        grouped[m.kind, m.where].append((name, same))
    for (kind, where), found in sorted(grouped.items()):
        names = ", ".join(sorted({n for n, _ in found})[:4])
        own = sum(same for _, same in found)
        lines.append(f"| {kind} | {where} | {own} | {len(found) - own} | {names} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 25)
