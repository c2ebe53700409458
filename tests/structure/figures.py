"""Figures of the structure: ``python -m tests.structure.figures [--suites]`` prints them.

Folders with their files and lines, cycles, imports inside functions, functions that are too complex, classes of
too many attributes; with ``--suites`` also the seconds that both test suites take on this machine.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter

from tests.structure.folders import against_the_order, cycles, folder_of, late
from tests.support.modules import SOURCES, crowded_classes, too_complex
from tests.support.places import ROOT


def lines(pattern: str) -> int:
    return sum(len(p.read_text().splitlines()) for p in ROOT.glob(pattern))


def main(arguments: list[str]) -> None:
    files, sizes = Counter(map(folder_of, SOURCES)), Counter[str]()
    for module, path in SOURCES.items():
        sizes[folder_of(module)] += len(path.read_text().splitlines())
    print("| folder | files | lines |\n|---|---:|---:|")
    for folder, count in sorted(files.items()):
        print(f"| `{folder}` | {count} | {sizes[folder]} |")
    complex_ones = too_complex()
    print(f"\nmodules: {len(SOURCES)}, lines: {sum(sizes.values())}, of tests: {lines('tests/**/*.py')}")
    print(f"imports of later folders: {len(against_the_order())}, modules in import cycles: {len(cycles())}")
    print(f"imports inside functions, outside the hooks: {len(late())}")
    print(f"functions of complexity over 15: {len(complex_ones)}", *complex_ones.items(), sep="\n  ")
    wide = crowded_classes()
    print(f"classes of more than 12 attributes: {len(wide)}", *wide.items(), sep="\n  ")
    for target in ("test", "test-deep") if "--suites" in arguments else ():
        begin = time.perf_counter()
        code = subprocess.run(["make", target], cwd=ROOT, stdout=subprocess.DEVNULL).returncode
        print(f"make {target}: {time.perf_counter() - begin:.0f} s, exit status {code}")


if __name__ == "__main__":
    main(sys.argv[1:])
