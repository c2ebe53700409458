"""The README and the pages of docs/: examples run, commands do what is printed, links lead somewhere.

Blocks of other projects' code (docs/coming_from.md) name the project in their first line; they are parsed, not run.
"""

from __future__ import annotations

import ast
import doctest
import importlib.util
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from redalg.cli.main import main
from tests.support.places import ROOT
from tests.support.sample import deep

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOREIGN = ("# RedFuser", "# FlexAttention", "# Triton", "# Beam")
MODULES = {"arrow": "pyarrow", "beam": "apache_beam", "dask": "dask.dataframe"}  # of pages not called like them
NEEDS = {"torch.md": "torch"} | {
    page.name: MODULES.get(page.stem, page.stem) for page in (ROOT / "docs" / "engines").glob("*.md")
}  # what the examples of a page run with
PROMPT = "$ python -m redalg "


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def commands(text: str) -> list[tuple[str, str]]:
    """The redalg commands of console blocks, each with the output that is printed under it ("" if none is)."""
    found = []
    for block in blocks(text, "console"):
        for part in re.split(r"^(?=\$ )", block, flags=re.M):
            if part.startswith(PROMPT):
                line, _, output = part.removeprefix(PROMPT).partition("\n")
                found.append((line, output.rstrip("\n")))
    return found


def outcome(page: Path) -> doctest.TestResults:
    return doctest.testfile(str(page), module_relative=False, encoding="utf-8")


# What takes long: for torch.md PyTorch compiles for as long as all other pages take.
LONG = [p for p in PAGES if p.name in ("torch.md", "limits.md", "dask.md", "sklearn.md", "coming_from.md")]


@pytest.mark.parametrize("page", [*(p for p in PAGES if p not in LONG), *deep(LONG)], ids=lambda p: p.name)
def test_the_examples_of_a_page_run(page: Path) -> None:
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name], reason=f"the examples of {page.name} run with {NEEDS[page.name]}")
    failed, attempted = outcome(page)
    assert failed == 0 and attempted > 0


def test_a_wrong_example_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n>>> import redalg as ra\n>>> ra.catalog['softmax'].outputs == ()\nTrue\n\n```\n")
    assert outcome(page).failed == 1 and "Expected" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_that_is_not_run_belongs_to_somebody_else(page: Path) -> None:
    text = page.read_text()
    for block in blocks(text, "python"):
        if not block.startswith(">>> "):
            assert block.startswith(FOREIGN), block
            ast.parse(block)
    assert len(blocks(text, r"\w+")) == text.count("```") // 2, "a block without a language"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_commands_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "data.npz", logits=np.random.default_rng(0).normal(size=(3, 17)))
    for line, expected in commands(page.read_text()):
        assert main(shlex.split(line, comments=True)) == 0, line
        got = capsys.readouterr().out
        if expected:
            assert doctest.OutputChecker().check_output(expected + "\n", got, doctest.ELLIPSIS), f"{line}\n{got}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)]+)\)", prose):
        if not target.startswith(("https://", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_named_in_a_page_exist(page: Path) -> None:
    """Paths in code spans, such as `benchmarks/records/gpu.md`; what `make` builds is under build/."""
    for path in re.findall(
        r"`((?:benchmarks|redalg|kernels|proofs|tests|docs|notebooks)/[\w/]+\.\w+)`", page.read_text()
    ):
        assert (ROOT / path).exists(), path


def test_the_picture_shows_what_the_engine_says() -> None:
    spec = importlib.util.spec_from_file_location("draw", ROOT / "docs" / "draw.py")
    assert spec is not None and spec.loader is not None
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    held = re.search(r"<dc:description>(.*?)</dc:description>", draw.PICTURE.read_text(), re.S)
    assert held is not None and held[1] == draw.description(), "python docs/draw.py draws it anew"
    assert f"(docs/{draw.PICTURE.name})" in PAGES[0].read_text()
