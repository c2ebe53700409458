"""The README cannot rot: its table is what the engine says, its commands exist."""

from __future__ import annotations

import re

import readme_table

from redalg.cli import parser

README = readme_table.README.read_text()


def test_the_table_is_what_the_engine_says() -> None:
    assert readme_table.written(README) == readme_table.table()


def test_the_table_shows_both_verdicts() -> None:
    lines = readme_table.written(README).splitlines()[2:]
    derived, refused = len(readme_table.DERIVED) + len(readme_table.NEAR_MISSES), len(readme_table.REFUSED)
    assert [" read" in line for line in lines] == [True] * derived + [False] * refused
    assert all("refused: a " in line for line in lines[derived:])


def test_the_commands_exist() -> None:
    commands = re.findall(r"^\$ python -m redalg (.*)$", README, re.M)
    assert commands
    for line in commands:
        parser().parse_args([part.strip('"') for part in re.findall(r'"[^"]*"|\S+', line)])
    targets = {
        line.split(":")[0] for line in (readme_table.README.parent / "Makefile").read_text().splitlines() if ":" in line
    }
    assert {"demo", "test", "bench", "readme"} <= targets
    assert set(re.findall(r"make (\w+)", README)) <= targets
