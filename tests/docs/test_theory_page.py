"""docs/theory.md maps sections to modules: sections that docstrings cite are there, and so are the modules it names."""

from __future__ import annotations

import re

import pytest

from tests.support.places import ROOT

TEXT = (ROOT / "docs" / "theory.md").read_text()
FOLDERS = {"redalg": "", "kernels": "kernels.", "proofs": "proofs."}
CITED = re.compile(r"theory,\s+sections?\s+([\d.]+(?:(?:,\s+|\s+and\s+|-)[\d.]*\d)*)")


def headings() -> list[str]:
    return re.findall(r"^#{2,3} (\d(?:\.\d)?)\.? ", TEXT, re.M)


def section(number: str) -> str:
    """What stands under a heading, deeper headings included."""
    depth = 3 if "." in number else 2
    start = re.search(rf"^#{{{depth}}} {re.escape(number)}\.? .*$", TEXT, re.M)
    assert start is not None, number
    end = re.search(rf"^#{{2,{depth}}} ", TEXT[start.end() :], re.M)
    return TEXT[start.end() :][: end.start() if end else None]


def named(text: str) -> set[str]:
    """The modules that the *Modules* lines of a text name."""
    blocks = re.findall(r"^\*Modules\*:.*?(?=\n\n|\Z)", text, re.M | re.S)
    return {name for block in blocks for name in re.findall(r"`([a-z_.]+)`", block)}


def citations() -> dict[str, list[str]]:
    """Module (as the page writes it) -> the sections its docstrings and comments cite."""
    found: dict[str, list[str]] = {}
    for folder, prefix in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            module = prefix + ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            for match in CITED.finditer(path.read_text()):
                found.setdefault(module, []).extend(expanded(match[1].rstrip(".")))
    return found


def expanded(text: str) -> list[str]:
    numbers: list[str] = []
    for part in re.split(r",\s+|\s+and\s+", text):
        first, _, last = part.partition("-")
        low, high = (int(x.rpartition(".")[2]) for x in (first, last or first))
        head = first.rpartition(".")[0]
        numbers += [f"{head}.{k}" if head else str(k) for k in range(low, high + 1)]
    return numbers


def test_ranges_and_lists_are_read() -> None:
    assert expanded("3.1-3.3 and 4") == ["3.1", "3.2", "3.3", "4"] and expanded("1-3") == ["1", "2", "3"]
    assert expanded("2.1, 2.2 and 3.4") == ["2.1", "2.2", "3.4"]


def test_sections_are_numbered_in_order() -> None:
    found = headings()
    assert found == sorted(found) and len(set(found)) == len(found) > 15
    assert all(named(section(number)) for number in found), "a section that names no module"


@pytest.mark.parametrize("name", sorted(named(TEXT)))
def test_a_named_module_exists(name: str) -> None:
    head, _, rest = name.partition(".")
    folder, inner = (head, rest) if head in ("kernels", "proofs") and rest else ("redalg", name)
    at = ROOT / folder / inner.replace(".", "/")
    assert at.with_suffix(".py").exists() or (at / "__init__.py").exists(), at


def test_a_module_that_cites_a_section_is_named_there() -> None:
    found = citations()
    assert len(found) > 10
    for module, numbers in found.items():
        for number in numbers:
            assert number in headings(), f"{module} cites section {number}"
        assert any(module in named(section(number)) for number in numbers), f"{module} cites {numbers}"
