"""The README and its pages cannot rot: verdicts are the engine's, figures those of the records, commands exist."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from redalg.cli.main import parser
from tests.support import readme_table
from tests.support.places import ROOT

README = (ROOT / "README.md").read_text()
CATALOG = readme_table.PAGE.read_text()
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text()
SHORT = {  # rows of the README's table -> of the catalog's page
    "causal attention": "attention_causal",
    "layer normalisation": "layer_norm`",
    "Pearson's correlation": "pearson_correlation",
    "sum of distances from the maximum": "sum of distances from the maximum",
    "sum of distances from the mean": "mean absolute deviation",
    "count of elements above the mean": "count of x > mean",
}
FIGURES = {  # benchmark -> what docs/performance.md quotes from it, as it stands in both
    "accuracy.md": ["207", "202", "4.4e-16", "3.0e-09"],
    "accumulator_update.md": ["0.76", "1.04"],
    "gpu.md": ["189", "104", "58", "19.8", "236.9", "229.8", "222.7"],
    "gpu_attention.md": [
        *("640", "711", "577", "542", "583", "500", "1.36", "1.50", "4.50", "4.27", "0.77", "0.80", "0.94", "131072"),
        *("0.93", "0.2", "0.1412", "0.1388", "0.1489", "0.1425", "0.2840", "159", "51"),
    ],
    "gpu_counters.md": [],
    "cpu.md": ["5.08", "5.46", "9.53", "7.04", "0.97", "1.11", "1.51"],
    "mutation.md": ["2400", "949", "1273", "57", "121"],
    "smt.md": ["2379", "2421"],
    "rocq.md": ["2106", "2110", "79"],
}


def test_the_table_is_what_the_engine_says() -> None:
    assert readme_table.written(CATALOG) == readme_table.table()


def test_the_table_shows_both_verdicts() -> None:
    lines = readme_table.written(CATALOG).splitlines()[2:]
    derived, refused = len(readme_table.DERIVED) + len(readme_table.NEAR_MISSES), len(readme_table.REFUSED)
    assert [" pass" in line for line in lines] == [True] * derived + [False] * refused
    assert all("refused: a " in line for line in lines[derived:])


@pytest.mark.parametrize("source", FIGURES)
def test_the_figures_are_those_of_the_benchmarks(source: str) -> None:
    written = (ROOT / "benchmarks" / "records" / source).read_text()
    assert f"benchmarks/records/{source}" in PERFORMANCE
    for figure in FIGURES[source]:
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d]|\.\d)", PERFORMANCE), f"{figure} is not in the page"
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d]|\.\d)", written), f"{figure} is not in {source}"


@pytest.mark.parametrize(("row", "name"), SHORT.items())
def test_the_short_table_says_what_the_long_one_does(row: str, name: str) -> None:
    verdict = re.search(rf"^\| {row} \| (.*?) \|$", README, re.M)
    whole = re.search(rf"^\| .*{re.escape(name)}.* \| ([^|]*) \|$", CATALOG, re.M)
    assert verdict is not None and whole is not None
    assert verdict[1].partition(" over")[0].partition(" (")[0] == whole[1]


def test_the_figures_of_the_readme_are_in_the_page_of_measurements() -> None:
    short = README.partition("## Measured")[2].partition("\n## ")[0]
    for figure in re.findall(r"(?<![\w.])\d+(?:\.\d+)?×?(?!\w)", short):
        assert figure in PERFORMANCE, figure


def test_the_readme_is_read_in_five_minutes() -> None:
    prose = re.sub(r"^```.*?^```", "", README, flags=re.M | re.S)
    assert len(prose.split()) < 5 * 250


def test_the_commands_exist() -> None:
    commands = re.findall(r"^\$ python -m redalg (.*)$", README, re.M)
    assert commands
    for line in commands:
        parser().parse_args([part.strip('"') for part in re.findall(r'"[^"]*"|\S+', line)])
    targets = {line.split(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ":" in line}
    assert {"demo", "test", "bench", "readme"} <= targets
    assert set(re.findall(r"make (\w+)", README)) <= targets


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(("target", "runs"), [("demo", "-m redalg demo"), ("test", "-m pytest -n")])
def test_the_two_commands_run_what_they_say(target: str, runs: str) -> None:
    assert f"$ make {target} " in README
    shown = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and runs in shown.stdout, shown.stderr
