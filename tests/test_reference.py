"""The API reference: every public name has a docstring with an example that runs, and `make docs` writes it out."""

from __future__ import annotations

import doctest
import importlib
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from docs import reference

PARSER = doctest.DocTestParser()
ENTRIES = [entry for namespace in reference.NAMESPACES for entry in reference.entries(namespace)]


def name(entry: reference.Entry) -> str:
    return f"{entry.namespace}.{entry.name}"


@pytest.mark.parametrize("entry", ENTRIES, ids=name)
def test_a_public_name_has_a_docstring_with_an_example(entry: reference.Entry) -> None:
    assert entry.doc.strip() and PARSER.get_examples(entry.doc)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if isinstance(e.thing, type)], ids=name)
def test_methods_and_properties_are_described_and_used_in_an_example(entry: reference.Entry) -> None:
    shown = "".join(example.source for example in PARSER.get_examples(entry.doc))
    for member, value in reference.members(entry.thing):
        doc = reference.described(value)
        assert doc, f"{entry.name}.{member} has no docstring"
        assert f".{member}" in shown or PARSER.get_examples(doc), f"{entry.name}.{member} is in no example"


def _unseen() -> list[tuple[str, Any]]:
    """What doctest does not look at by itself on every Python: cached properties, and words of the reference's own."""
    held = [(f"{name(e)}.{m}", v) for e in ENTRIES for m, v in reference.members(e.thing)]
    return [(n, v) for n, v in held if isinstance(v, cached_property)] + [(n, n) for n in reference.OWN]


@pytest.mark.parametrize(("where", "thing"), _unseen(), ids=lambda x: x if isinstance(x, str) else "")
def test_examples_that_doctest_does_not_find(where: str, thing: Any) -> None:
    doc = reference.OWN[thing] if isinstance(thing, str) else reference.described(thing)
    runner = doctest.DocTestRunner()
    runner.run(PARSER.get_doctest(doc, {}, where, None, None))
    assert runner.summarize(verbose=False).failed == 0


def test_namespaces_list_what_they_have() -> None:
    for namespace in reference.NAMESPACES:
        module = importlib.import_module(namespace)
        assert module.__all__ and all(hasattr(module, n) for n in module.__all__)


def test_the_pages_hold_every_name_and_member(tmp_path: Path) -> None:
    reference.main(tmp_path)
    listing = (tmp_path / "README.md").read_text()
    for entry in ENTRIES:
        page = (tmp_path / f"{entry.namespace}.md").read_text()
        assert f"\n## {entry.name}\n" in page and f"`{entry.name}`" in listing
        for member, _ in reference.members(entry.thing):
            assert re.search(rf"^### \.{member}\b", page, re.M)
    for page in tmp_path.glob("*.md"):
        assert page.read_text().count("```") % 2 == 0


def test_a_name_without_an_example_is_noticed() -> None:
    def bare() -> None:
        """Says nothing that runs."""

    with pytest.raises(AssertionError):
        test_a_public_name_has_a_docstring_with_an_example(reference.Entry("redalg", "bare", bare))


def test_a_member_without_a_docstring_is_noticed() -> None:
    class Bare:
        """
        >>> Bare().method()
        """

        def method(self) -> None: ...

    Bare.__module__ = "redalg.bare"
    with pytest.raises(AssertionError, match="method has no docstring"):
        test_methods_and_properties_are_described_and_used_in_an_example(reference.Entry("redalg", "Bare", Bare))
