"""Settings shared by all tests: a bare checkout works, Hypothesis profiles, the markers `gpu` and `deep`.

What lies in ``tests/deep`` is the deep suite. What lies elsewhere is the fast one, but for tests or parameters marked
as deep (`tests/support/sample.py`). See ``tests/README.md``.
"""

from __future__ import annotations

import gc
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import pytest

import redalg

if find_spec("redalg.kernels") is None:  # a bare checkout: the folders lie beside the package, not in it
    redalg.__path__.append(str(Path(__file__).resolve().parent.parent))

from tests.support import profiles

os.environ.setdefault("MPLBACKEND", "Agg")  # pictures in doctests open no window
gc.disable()  # what is imported and collected stays: it is not to be searched for garbage again and again


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        profiles.load(collector.path)


def pytest_runtest_setup(item: pytest.Item) -> None:
    profiles.load(item.path)


@pytest.hookimpl(tryfirst=True)  # before tests are selected by these marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    part, _, parts = os.environ.get("REDALG_TEST_PART", "0/1").partition("/")
    items[:] = [i for i in items if crc32(i.path.name.encode()) % int(parts) == int(part)]
    for item in items:
        if item.path.is_relative_to(profiles.DEEP):
            item.add_marker(pytest.mark.deep)
        if item.get_closest_marker("gpu") and shutil.which("nvidia-smi") is None:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)  # nodes come and go by the thousand: a tenth of all time went into cycles
    gc.enable()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What a module leaves in caches is looked at once: Hypothesis collects all garbage before many a search, which
    lasts minutes where other modules have compiled for gigabytes."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """What is left ends with the process: to take it apart object by object lasts seconds."""
    gc.freeze()
    gc.disable()
