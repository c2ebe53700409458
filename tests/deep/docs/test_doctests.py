"""Every example in a docstring runs (those of the README and of docs/: `test_documents`)."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest


def _modules() -> list[str]:
    names = ["redalg"]
    for package in ("redalg", "redalg.kernels", "redalg.proofs"):
        path = importlib.import_module(package).__path__
        names += [m.name for m in pkgutil.walk_packages(list(path), package + ".") if not m.name.endswith("__main__")]
    return sorted(set(names))


@pytest.mark.parametrize("name", _modules())
def test_the_examples_of_a_module_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
