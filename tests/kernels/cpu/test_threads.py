"""One callable, called by several threads with arrays of different dtypes and shapes at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import redalg as ra

THREADS, CALLS = 4, 100


@pytest.fixture
def often() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("target", ["numpy", "cpu"])
def test_threads_with_dtypes_and_shapes_of_their_own(target: str, often: None) -> None:
    spec = ra.parse("m = max[j](x[i,j]); s = sum[j](x[i,j]); return y = m - x[i,j], s")
    run = ra.derive_incremental(spec).compile(target)
    dtypes = ("f4", "f8", "f2", "i8")
    given = [np.arange(6 * (k + 2)).reshape(k + 2, 6).astype(d) % 5 for k, d in enumerate(dtypes)]
    wrong: list[Any] = []
    for x in given:
        run(x=x)
    ready = threading.Barrier(THREADS)

    def work(number: int) -> None:
        x = given[number]
        y, s = x.max(1, keepdims=True) - x, x.sum(1)
        ready.wait()
        for _ in range(CALLS if target == "cpu" else CALLS // 10):
            found = run(x=x)
            if not (np.array_equal(found["y"], y) and np.array_equal(found["s"], s)):
                wrong.append((number, found))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


CALLED = """
import threading
import numpy as np
import redalg as ra
run = ra.derive_incremental(ra.parse("return y = softmax[j](x[i,j])")).compile("cpu")
xs = [np.ones((n, m), d) for n, m in ((100, 1), (33, 8), (8, 100), (3000, 200)) for d in ("f4", "f8")]
gate = threading.Barrier(6)
def work(k):
    gate.wait()
    for it in range(50):
        x = xs[(k + it) % len(xs)]
        assert np.allclose(run(x=x), 1 / x.shape[1]), x.shape
threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
print("done")
"""


def test_first_calls_of_a_process_from_several_threads() -> None:
    """What functions borrow that one thread made and another replaced in a cache stays where it is: else calls read
    memory that is somebody else's, in every other process."""
    for _ in range(3):
        found = subprocess.run([sys.executable, "-c", CALLED], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout, found.stderr) == (0, "done\n", "")
