"""Every example in a docstring, and the README's, runs."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import redalg

ROOT = Path(redalg.__file__).resolve().parent.parent


def _modules() -> list[str]:
    names = ["redalg"]
    for package in ("redalg", "redalg.kernels", "redalg.proofs"):
        path = importlib.import_module(package).__path__
        names += [m.name for m in pkgutil.walk_packages(list(path), package + ".") if not m.name.endswith("__main__")]
    return sorted({n for n in names if n.count(".") < 2 or not n.startswith(("redalg.redalg", "redalg.tests"))})


@pytest.mark.parametrize("name", _modules())
def test_the_examples_of_a_module_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_examples_of_the_readme_run() -> None:
    failed, attempted = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert attempted > 0 and failed == 0
