"""Printed kernels, held against the files in tests/golden: exactly."""

from __future__ import annotations

import ast
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.support import golden_sources
from tests.support.golden_sources import CASES, FOLDER, HOW, Golden, differing, expected, main


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.name}-{c.dtype}")
def test_a_kernel_is_printed_as_its_file_says(case: Golden) -> None:
    for path, printed in case.files():
        kept = path.read_text() if path.exists() else ""
        lines = unified_diff(kept.splitlines(), printed.splitlines(), str(path.name), "printed now", lineterm="")
        if kept != printed:
            pytest.fail("\n".join([*lines, HOW]), pytrace=False)


def test_every_file_is_printed_by_a_case() -> None:
    assert {p.name for p in FOLDER.iterdir() if p.suffix == ".py"} == {p.name for p in expected()}
    assert len(expected()) == 2 * len(CASES)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda p: p.stem)
def test_a_file_is_short_and_compiles(path: Path) -> None:
    text = path.read_text()
    assert max(map(len, text.splitlines()[1:])) <= 110 and len(text.splitlines()) < 400
    assert isinstance(ast.parse(text).body[-1], ast.FunctionDef)


# --- the comparison itself, on files of its own ----------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], list[str]]:
    monkeypatch.setattr(golden_sources, "CASES", CASES[-1:])
    monkeypatch.setattr(golden_sources, "FOLDER", tmp_path)
    return lambda: [path.name for path in differing()]


def test_what_differs_is_named_and_written(few: Callable[[], list[str]], tmp_path: Path) -> None:
    name = CASES[-1].name
    both = [f"{name}_float32_cpu.py", f"{name}_float32_cuda.py"]
    assert few() == both and main(["--check"]) == 1
    assert main([]) == 0 and few() == [] and main(["--check"]) == 0
    (tmp_path / both[0]).write_text((tmp_path / both[0]).read_text() + "\n")
    (tmp_path / "left_over.py").write_text("")
    assert few() == [both[0], "left_over.py"]
    assert main([]) == 0 and few() == [] and not (tmp_path / "left_over.py").exists()
