"""One callable, called with every dtype of every library in all orders: a heap that is overwritten ends the process."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest


@pytest.mark.parametrize("target", ["numpy", "cpu"])
def test_every_dtype_of_every_library_in_all_orders(target: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tests.support.mixed_dtypes", target], capture_output=True, text=True)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    calls, libraries = re.fullmatch(r"(\d+) calls of (.*)\n", done.stdout).groups()  # type: ignore[union-attr]
    missing = [name for name in ("torch", "jax") if not find_spec(name)]
    assert int(calls) > 150 and not [name for name in missing if name in libraries]
    if missing:
        pytest.skip(f"{' and '.join(missing)} cannot be imported here; {calls} calls with {libraries} were right")


def test_jax_keeps_the_bits_of_results_whatever_its_default() -> None:
    """Sums of int32 are int64 and their means float64, also where JAX would cut them to 32 bits."""
    pytest.importorskip("jax")
    script = """
import jax, numpy as np
jax.config.update("jax_platforms", "cpu")
import tests.conftest, redalg as ra
x = ra.tensors("x[j]")
form = ra.derive_incremental(ra.Spec(s=ra.sum(x, "j"), k=ra.argmax(x, "j"), m=ra.mean(x, "j")))
top = 2**31 - 1
given = jax.numpy.asarray(np.array([top, top, 5], dtype=np.int32))
acc = form.accumulator()
acc.update(x=given)
runs = [form.compile(target)(x=given) for target in ("numpy", "cpu")]
for found in (*runs, acc.result(), ra.reference(form.spec, x=given)):
    assert all(isinstance(v, jax.Array) for v in found.values())
    assert [str(v.dtype) for v in found.values()] == ["int64", "int64", "float64"], found
    assert int(np.asarray(found["s"])) == 2 * top + 5 and float(np.asarray(found["m"])) == (2 * top + 5) / 3
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
