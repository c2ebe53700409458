"""Every record says when and at which commit it was measured, and by which command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "benchmarks" / "records"
COMMIT = r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{7,12}\b"


@pytest.mark.parametrize("name", sorted(p.name for p in RECORDS.glob("*.md")))
def test_a_table_names_its_commit_its_day_and_its_command(name: str) -> None:
    text = (RECORDS / name).read_text()
    assert re.search(COMMIT, text) and re.search(r"\b20\d\d-\d\d-\d\d\b", text), "no commit or no day"
    assert re.search(r"python -m\s+benchmarks|`make [a-z]", text), "no command"
    for module in re.findall(r"python -m\s+benchmarks((?:\.[a-z_]+)*)", text):
        parts = ROOT.joinpath("benchmarks", *module.split(".")[1:])
        assert parts.with_suffix(".py").exists() or (parts / "__main__.py").exists(), f"no module benchmarks{module}"


@pytest.mark.parametrize("name", sorted(p.name for p in RECORDS.glob("*.jsonl")))
def test_a_line_names_its_commit_and_its_time(name: str) -> None:
    """Lines older than that are all of one record, whose table says before which commit they were measured."""
    lines = [json.loads(line) for line in (RECORDS / name).read_text().splitlines() if line.strip()]
    dated = [{"commit", "time"} <= line.keys() or "commit" in str(line) for line in lines]
    table = (RECORDS / name).with_suffix(".md").read_text()
    assert lines and (all(dated) or not any(dated) and re.search(rf"before {COMMIT}", table))
