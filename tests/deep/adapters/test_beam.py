"""`form.beam` on Beam's direct runner, in an environment of its own (its pins conflict), which `.cache` keeps and
``REDALG_BEAM=1`` makes: installing it takes as long as a twentieth of the suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

ENVIRONMENT = Path(ROOT) / ".cache" / "beam"
NEEDS = ["apache-beam>=2.60", "sympy>=1.13,<2", "mpmath>=1.3,<1.5"]  # NumPy's version is Beam's choice


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter of an environment with Beam."""
    found = ENVIRONMENT / "bin" / "python"
    done = ENVIRONMENT / "installed"
    if not done.exists() and not os.environ.get("REDALG_BEAM"):
        pytest.skip("REDALG_BEAM=1 installs Apache Beam in .cache/beam")
    if not done.exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True, capture_output=True)
            command = [found, "-m", "pip", "install", "-q", "--timeout", "60", *NEEDS]
            subprocess.run(command, check=True, capture_output=True, timeout=420)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"Apache Beam could not be installed: {error}")
        done.touch()
    return str(found)


def test_pipelines_give_the_definitions_results(python: str) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [python, "-m", "tests.support.beam_pipelines"]
    run = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.strip().endswith("ok")
