"""The README's count of obligations is that of the catalog as it is."""

from __future__ import annotations

import re
from pathlib import Path

import redalg as ra

ROOT = Path(__file__).parents[3]


def test_the_readme_counts_the_obligations_of_the_catalog() -> None:
    said = re.search(r"all (\d+) of the (\d+) catalog specs", (ROOT / "README.md").read_text())
    assert said is not None
    entries = [ra.catalog.entry(name) for name in ra.catalog]  # some are derived under an assumption
    forms = [ra.derive_incremental(e.spec, axis=e.axis, assume=e.assume) for e in entries]
    counts = [form.certificate.verify().counts for form in forms]
    assert all(set(found) == {"proved"} for found in counts)
    assert (sum(found["proved"] for found in counts), len(counts)) == (int(said.group(1)), int(said.group(2)))
