"""Settings shared by all tests: a bare checkout works, Hypothesis profiles, the `gpu` marker."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import redalg

if find_spec("redalg.kernels") is None:  # a bare checkout: the folders lie beside the package, not in it
    redalg.__path__.append(str(Path(__file__).resolve().parent.parent))

os.environ.setdefault("MPLBACKEND", "Agg")  # pictures in doctests open no window

settings.register_profile(
    "default", deadline=None, print_blob=True, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=1000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if shutil.which("nvidia-smi") is None:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))


@pytest.fixture(scope="session")
def theories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The theories of `proofs/theories`, compiled in a place of their own; only for tests that need coqc."""
    from tests.rocq_tools import FILES, compile_theories

    return compile_theories(tmp_path_factory.mktemp("theories"), FILES)
