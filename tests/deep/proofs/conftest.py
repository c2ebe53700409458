"""The theories of `proofs/theories`, compiled once, whatever the number of workers."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.support.rocq_tools import FILES, compile_theories


@pytest.fixture(scope="session")
def theories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a place of this worker's own; only for tests that need coqc."""
    place = tmp_path_factory.mktemp("theories")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return compile_theories(place, FILES)
    return shutil.copytree(_of_all_workers(tmp_path_factory.getbasetemp().parent), place, dirs_exist_ok=True)


def _of_all_workers(root: Path, patience: float = 300) -> Path:
    """The first worker that comes compiles, the others wait for it; if it fails they fail, too."""
    made, done = root / "theories", root / "theories compiled"
    try:
        made.mkdir()
    except FileExistsError:
        end = time.monotonic() + patience
        while not done.exists():
            assert time.monotonic() < end, "another worker has not compiled the theories"
            time.sleep(0.2)
        return made
    compile_theories(made, FILES)
    done.touch()
    return made
