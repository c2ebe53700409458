"""Printed kernels are the files in tests/golden in processes that hash strings differently, too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.golden_sources import FOLDER, HOW


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_text_does_not_depend_on_how_strings_hash(seed: str) -> None:
    """Sets of strings are walked in another order there."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-m", "tests.support.golden_sources", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=FOLDER.parent.parent)
    assert (done.returncode, done.stdout) == (0, ""), f"{done.stdout}{done.stderr}{HOW}"
