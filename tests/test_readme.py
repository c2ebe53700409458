"""The README cannot rot: its table is what the engine says, its commands exist."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import readme_table

from redalg.cli import parser

README = readme_table.README.read_text()
FIGURES = {  # benchmark -> what the README quotes from it, as it stands in both
    "accuracy.md": ["207", "202", "4.4e-16", "3.0e-09"],
    "accumulator_update.md": ["0.80", "1.34"],
    "gpu.md": ["189", "115", "35", "19.8", "236.3", "229.9"],
    "gpu_attention.md": [
        *("617", "693", "564", "537", "575", "490", "1.34", "2.59", "4.61", "4.25", "0.78", "0.83", "0.93", "131072"),
        *("0.95", "0.2", "0.1382", "0.1388", "0.1490", "0.2855", "160", "51"),
    ],
    "gpu_counters.md": [],
    "cpu.md": ["5.08", "5.46", "9.53", "7.04", "0.97", "1.11", "1.51"],
    "mutation.md": ["2350", "922", "1256", "56", "116"],
    "smt.md": ["2087", "2098"],
    "rocq.md": ["1880", "1883", "78"],
}


def test_the_table_is_what_the_engine_says() -> None:
    assert readme_table.written(README) == readme_table.table()


def test_the_table_shows_both_verdicts() -> None:
    lines = readme_table.written(README).splitlines()[2:]
    derived, refused = len(readme_table.DERIVED) + len(readme_table.NEAR_MISSES), len(readme_table.REFUSED)
    assert [" read" in line for line in lines] == [True] * derived + [False] * refused
    assert all("refused: a " in line for line in lines[derived:])


@pytest.mark.parametrize("source", FIGURES)
def test_the_figures_are_those_of_the_benchmarks(source: str) -> None:
    written = (readme_table.README.parent / "benchmarks" / source).read_text()
    assert f"benchmarks/{source}" in README
    for figure in FIGURES[source]:
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d]|\.\d)", README), f"{figure} is not in the README"
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d]|\.\d)", written), f"{figure} is not in {source}"


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


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(("target", "runs"), [("demo", "-m redalg demo"), ("test", "-m pytest -n")])
def test_the_two_commands_run_what_they_say(target: str, runs: str) -> None:
    assert f"$ make {target} " in README
    root = readme_table.README.parent
    shown = subprocess.run(["make", "-n", target], cwd=root, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and runs in shown.stdout, shown.stderr
