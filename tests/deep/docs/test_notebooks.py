"""The executed copies of the notebooks are of the texts as they stand, without errors, and from one run each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT

FOLDER = ROOT / "notebooks"
TEXTS = sorted(p for p in FOLDER.glob("*.md") if p.stem[0].isdigit())


def copy_of(text: Path) -> Any:
    return json.loads((FOLDER / "executed" / f"{text.stem}.ipynb").read_text(encoding="utf-8"))


def code_of(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_are_nine() -> None:
    assert [p.stem[0] for p in TEXTS] == list("123456789")
    assert {p.stem for p in TEXTS} == {p.stem for p in (FOLDER / "executed").glob("*.ipynb")}


@pytest.mark.parametrize("text", TEXTS, ids=lambda p: p.stem)
def test_the_copy_holds_the_cells_of_the_text(text: Path) -> None:
    """`make notebooks` writes it anew."""
    words = text.read_text(encoding="utf-8")
    cells = [c.strip() for c in re.findall(r"^```python\n(.*?)^```$", words, re.M | re.S)]
    assert cells == ["".join(c["source"]).strip() for c in code_of(copy_of(text))]
    prose = ["".join(c["source"]) for c in copy_of(text)["cells"] if c["cell_type"] == "markdown"]
    assert prose and all(p.strip() in words for p in prose)


@pytest.mark.parametrize("text", TEXTS, ids=lambda p: p.stem)
def test_the_copy_was_executed_from_a_clean_kernel_without_errors(text: Path) -> None:
    cells = code_of(copy_of(text))
    assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
    kinds = [o["output_type"] for c in cells for o in c["outputs"]]
    assert "error" not in kinds and len(kinds) >= 8
    streams = [o for c in cells for o in c["outputs"] if o["output_type"] == "stream"]
    assert not [o for o in streams if o["name"] == "stderr"]


@pytest.mark.parametrize("text", TEXTS, ids=lambda p: p.stem)
def test_prose_comes_before_code_and_copies_stay_small(text: Path) -> None:
    words = text.read_text(encoding="utf-8").split("---\n", 2)[2].strip()
    assert words.startswith("# ") and len(words.partition("```")[0]) > 200
    assert (FOLDER / "executed" / f"{text.stem}.ipynb").stat().st_size < 1_000_000


@pytest.mark.parametrize("text", TEXTS, ids=lambda p: p.stem)
def test_links_lead_somewhere(text: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+\.(?:ipynb|md))\)", text.read_text(encoding="utf-8")):
        assert (FOLDER / "executed" / link).exists()


def test_a_notebook_whose_library_is_missing_is_skipped_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import execute

    monkeypatch.setattr(execute, "NEEDS", {"8_training": "no_such_library"})
    assert execute.main(["8", "--check"]) == 1  # nothing was left to run
    assert "8_training: skipped, no_such_library is not installed" in capsys.readouterr().out
    assert execute.installed("1_from_definition_to_merge")
