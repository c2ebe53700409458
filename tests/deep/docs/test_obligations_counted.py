"""The README's count of obligations is that of the catalog as it is."""

from __future__ import annotations

import re
from pathlib import Path

import redalg as ra

ROOT = Path(__file__).parents[3]


def test_the_readme_counts_the_obligations_of_the_catalog() -> None:
    said = re.search(r"all (\d+) of the (\d+) catalog specs", (ROOT / "README.md").read_text())
    assert said is not None
    reports = [ra.verdict(ra.catalog[name]).certificate.verify() for name in ra.catalog]
    proved = sum(int(n) for r in reports for n in re.findall(r"(\d+) proved", str(r)))
    assert (proved, len(reports)) == (int(said.group(1)), int(said.group(2)))
