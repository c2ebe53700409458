"""coqc over the theories and over printed text, for the tests that need it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.places import ROOT

THEORIES = ROOT / "proofs" / "theories"
FILES = [name for name in (THEORIES / "_CoqProject").read_text().split() if name.endswith(".v")]

# What the real numbers of the standard library are built on, and equality of functions.
ALLOWED = {
    "ClassicalDedekindReals.sig_forall_dec",
    "ClassicalDedekindReals.sig_not_dec",
    "Classical_Prop.classic",
    "FunctionalExtensionality.functional_extensionality_dep",
}

needs_coqc = pytest.mark.skipif(
    shutil.which("coqc") is None, reason="coqc was not found; on Debian: apt-get install coq"
)


def coqc(name: str, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["coqc", "-Q", ".", "Redalg", name], cwd=place, capture_output=True, text=True, timeout=600)


def compile_theories(place: Path, files: list[str]) -> Path:
    for name in files:
        shutil.copy(THEORIES / name, place)
        done = coqc(name, place)
        assert done.returncode == 0, f"{name}: {done.stderr}"
    return place


def check(text: str, place: Path, name: str) -> subprocess.CompletedProcess[str]:
    (place / f"{name}.v").write_text(text)
    return coqc(f"{name}.v", place)


def axioms(printed: str) -> set[str]:
    """Names of the axioms in what `Print Assumptions` prints: at the start of a line, before a colon."""
    names = re.findall(r"^([A-Za-z_][\w.']*)\s*(?:\n\s+)?:", printed, flags=re.MULTILINE)
    return set(names) - {"Axioms"}
