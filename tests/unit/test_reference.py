"""The API reference: every public name has a docstring with an example that runs, and `make docs` writes it out."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from docs import reference
from tests.support.sample import deep

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


OWN = [e for e in ENTRIES if e.namespace == "redalg"]


@pytest.mark.parametrize("entry", [*OWN, *deep(e for e in ENTRIES if e not in OWN)], ids=name)
def test_examples_run_when_pasted_from_the_page(entry: reference.Entry) -> None:
    """In a namespace of their own: the page adds what an example takes from its module."""
    for member in (None, *(value for _, value in reference.members(entry.thing))):
        pasted = entry.markdown(member).replace("```", "\n")
        runner = doctest.DocTestRunner()
        runner.run(PARSER.get_doctest(pasted, {}, name(entry), None, None))
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


def test_what_an_example_takes_from_its_module_is_imported() -> None:
    pages = {entry.name: entry.markdown() for entry in ENTRIES}
    assert ">>> from redalg import tensors\n" in pages["tensors"] and ">>> import sympy\n" in pages["Spec"]
    assert pages["Accumulator"].count(">>> from redalg") == 0  # it imports what it needs itself


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
