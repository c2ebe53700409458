"""One callable, called with every dtype of every library in all orders: a heap that is overwritten ends the process."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest


@pytest.mark.parametrize("target", ["numpy", "cpu"])
def test_every_dtype_of_every_library_in_all_orders(target: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tests.mixed_dtypes", target], capture_output=True, text=True)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    calls, libraries = re.fullmatch(r"(\d+) calls of (.*)\n", done.stdout).groups()  # type: ignore[union-attr]
    missing = [name for name in ("torch", "jax") if not find_spec(name)]
    assert int(calls) > 150 and not [name for name in missing if name in libraries]
    if missing:
        pytest.skip(f"{' and '.join(missing)} cannot be imported here; {calls} calls with {libraries} were right")
