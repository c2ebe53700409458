"""How the suites are cut (tests/README.md): by folder, with one sample of the catalog and one place for examples."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import profiles
from tests.support.places import ROOT

TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("test_*.py"))
README = (TESTS / "README.md").read_text()


def area(module: Path) -> str:
    inside = module.parent.relative_to(profiles.DEEP if module.is_relative_to(profiles.DEEP) else TESTS)
    return inside.as_posix()


def test_modules_are_named_apart() -> None:
    """Without packages pytest imports a module by its name alone."""
    assert not [name for name, count in Counter(m.name for m in MODULES).items() if count > 1]


def test_every_area_is_described() -> None:
    assert not {area(m) for m in MODULES} - set(re.findall(r"^\| `([\w/]+)` \|", README, re.MULTILINE))


def test_the_configuration_names_no_module() -> None:
    assert not re.findall(r"\btest_\w+", (TESTS / "conftest.py").read_text())


@pytest.mark.parametrize(("folder", "profile"), [("unit", "fast"), ("deep/unit", "deep")])
def test_the_folder_chooses_how_many_examples_are_drawn(
    folder: str, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = profiles.EXAMPLES[profile]
    try:
        monkeypatch.delenv("HYPOTHESIS_PROFILE", raising=False)
        profiles.load(TESTS / folder / "test_any.py")
        assert settings().max_examples == count and settings().derandomize and settings().deadline is None
        assert profiles.examples(40).max_examples == 40 * count // profiles.EXAMPLES["deep"]
        monkeypatch.setenv("HYPOTHESIS_PROFILE", "thorough")
        profiles.load(TESTS / folder / "test_any.py")
        assert settings().max_examples == profiles.EXAMPLES["thorough"] and not settings().derandomize
    finally:
        monkeypatch.undo()
        profiles.load(Path(__file__))


def test_properties_leave_the_number_of_examples_to_the_profile() -> None:
    """`@examples(n)` scales with it; a search for one example (`find`) and pasted tests have numbers of their own."""
    fixed = re.compile(r"^@settings\(.*max_examples", re.MULTILINE)
    assert not [m.name for m in MODULES if fixed.search(m.read_text())]
