"""Every spec of the catalog as a Rocq instance: which lemmas coqc closes, and whether the form as a whole is proved.

`python -m benchmarks.proofs.rocq --out benchmarks/records/rocq.md` writes the table; `--only NAME …` prints some of it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import redalg as ra
from benchmarks.harness.processes import ROOT, moment
from redalg.proofs import Instance, rocq
from redalg.proofs.gallina.instance import header

THEORIES = ROOT / "proofs" / "theories"
LIMIT = 60  # seconds for one lemma


def coqc(place: Path, name: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    command = ["coqc", "-Q", ".", "Redalg", name]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=timeout)


def compile_theories(place: Path) -> None:
    for name in (THEORIES / "_CoqProject").read_text().split():
        if name.endswith(".v") and not name.startswith("Examples"):
            shutil.copy(THEORIES / name, place)
            coqc(place, name).check_returncode()


def attempts(printed: Instance) -> str:
    """A file that compiles in any case and says of each lemma whether its proof closes it."""
    lines = [header()]
    for x in printed.lemmas:
        tried = f"timeout {LIMIT} ({'; '.join(x.proof)})"
        said = f'tryif {tried} then idtac "closed {x.name}" else idtac "open {x.name}"'
        lines.append(f"Goal {x.statement}.\nProof. {said}. Abort.\n")
    return "\n".join(lines)


def row(place: Path, name: str) -> str:
    """One line of the table."""
    entry = ra.catalog.entry(name)
    form = ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume)
    printed = rocq(form.certificate)
    (place / f"{name}.v").write_text(printed.text)
    whole = coqc(place, f"{name}.v").returncode == 0
    still_open: list[str] = []
    if not whole:
        (place / f"{name}_each.v").write_text(attempts(printed))
        said = coqc(place, f"{name}_each.v").stdout
        still_open = [x.name for x in printed.lemmas if f"closed {x.name}\n" not in f"{said}\n"]
    outputs = len(form.certificate.document.spec)
    theorem = "proved" if whole else "not proved"
    if 2 * outputs > len(printed.theorems):
        theorem = (
            f"{theorem} for {len(printed.theorems) // 2} of {outputs} outputs" if printed.theorems else "not printed"
        )
    notes = [f"open: {', '.join(still_open)}"] * bool(still_open)
    notes += [f"not printed: {reason}" for reason in dict.fromkeys(why for _, why in printed.skipped)]
    notes += [f"form: {printed.without}"] * bool(printed.without)
    notes += [f"assumes {', '.join(form.certificate.assumptions)}"] * bool(form.certificate.assumptions)
    closed = len(printed.lemmas) - len(still_open)
    return f"| `{name}` | {closed} / {len(printed.lemmas)} | {len(printed.skipped)} | {theorem} | {'; '.join(notes)} |"


def table(rows: Iterable[str]) -> str:
    version = subprocess.run(["coqc", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    found = list(rows)
    counts = [r.split("|") for r in found]
    closed, lemmas = (sum(int(c[2].split("/")[k]) for c in counts if "/" in c[2]) for k in (0, 1))
    proved = sum(c[4].strip() == "proved" for c in counts)
    head = [
        "# The catalog in Rocq",
        "",
        f"`python -m benchmarks.proofs.rocq`, {moment()}; {version}.",
        "",
        "Every obligation of a certificate is printed as a lemma; *form* says whether the file also proves that the",
        "form, folded over a stream of any length in every bracketing, is the spec's definition. What is not printed",
        "is listed in the file with its reason.",
        "",
        f"{closed} of {lemmas} lemmas closed; {proved} of {len(found)} specs proved as a whole.",
        "",
        "| spec | lemmas closed | obligations not printed | form | |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *found]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    if shutil.which("coqc") is None:
        print("coqc was not found (Debian: apt-get install coq)", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.workers) as pool:
        place = Path(folder)
        compile_theories(place)
        rows = []
        for line in pool.map(lambda name: row(place, name), args.only or list(ra.catalog)):
            print(line, flush=True)
            rows.append(line)
    if args.out:
        args.out.write_text(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
