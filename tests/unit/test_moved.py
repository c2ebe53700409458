"""Modules of before are found for one minor version, with a warning; completion shows public names alone."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings

import pytest

import redalg as ra
from redalg._moved import FOLDERS, MOVED


@pytest.mark.parametrize("old", sorted(MOVED))
def test_a_module_of_before_is_the_one_of_now(old: str) -> None:
    sys.modules.pop(f"redalg.{old}", None)
    with pytest.warns(DeprecationWarning, match=MOVED[old]) as seen:
        found = importlib.import_module(f"redalg.{old}")
    assert found is importlib.import_module(f"redalg.{MOVED[old]}")
    assert found.__name__ == found.__spec__.name == f"redalg.{MOVED[old]}" and found.__spec__.loader is found.__loader__
    assert {w.filename for w in seen} == {__file__}


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("graph", "Node"),
        ("specs", "catalog"),
        ("kernels.ir", "Program"),
        ("kernels.schedule", "Schedule"),
        ("proofs.smt", "smt_lib"),
    ],
)
def test_a_folder_of_now_has_the_names_of_the_module_it_was(folder: str, name: str) -> None:
    module = importlib.import_module(f"redalg.{folder}")
    with pytest.warns(DeprecationWarning, match=FOLDERS[folder]):
        found = getattr(module, name)
    assert found is getattr(importlib.import_module(f"redalg.{FOLDERS[folder]}"), name)
    with pytest.raises(AttributeError, match="nowhere"):
        getattr(module, "nowhere")  # noqa: B009


def test_names_that_never_were_are_not_found() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("redalg.nowhere", "redalg.kernels.nowhere", "derive"):
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module(name)


def test_completion_shows_public_names_alone() -> None:
    importlib.import_module("redalg.engine.passes")
    packages = {"display", "explore", "kernels", "pictures", "proofs", "testing", "torch"}
    assert set(dir(ra)) == {*ra.__all__, *packages}
    assert all(getattr(ra, name) is not None for name in dir(ra))


def test_the_package_alone_loads_nothing_but_this_table() -> None:
    code = (
        "import redalg, sys; print(sorted({m for m in sys.modules if m.split('.')[0] in ('redalg', 'sympy', 'numpy')}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "['redalg', 'redalg._moved']\n"
