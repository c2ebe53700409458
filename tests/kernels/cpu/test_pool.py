"""Threads of native code: every row is computed once, whoever is awake; callers, forks and ends of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cpu import build, pool
from redalg.kernels.cpu import walk as cpu_walk
from redalg.kernels.ir.program import Param

pytestmark = pytest.mark.skipif(not pool.available(), reason="there are no POSIX threads")
PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
COUNT = """
from numba import njit
from redalg.kernels.cpu.memory import load_int64, pointer_int64, store_int64
@njit(nogil=True)
def count(y, step, low, high):
    y = pointer_int64(y)
    for i in range(low, high):
        store_int64(y, i, load_int64(y, i) * 3 + step)
"""


def counts() -> Any:
    return build.functions(COUNT, ["count"], [Param("result", "y", "int64"), Param("size", "step", "int64")])["count"]


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_rows_are_computed_once(workers: int) -> None:
    """Parked or awake, with fewer rows than workers and many more."""
    found = pool.Pool(workers)
    function = counts()
    job = pool.Job([(function.address, 1)], False)
    for rows in (0, 1, 2, workers - 1, workers + 1, 97, 1000):
        for rest in (0.0, 0.0, 0.002):
            time.sleep(rest)
            y = np.zeros(max(rows, 1), np.int64)
            assert found.share(job, function.pack(y.ctypes.data, 1), rows) == 0
            assert y[:rows].tolist() == [1] * rows and y.sum() == rows
    found.stop()
    y = np.zeros(9, np.int64)
    assert found.share(job, function.pack(y.ctypes.data, 1), 9) == 0 and y.tolist() == [1] * 9


@pytest.mark.skipif(PROCESSORS < 2, reason="there is one processor, or threads are not told where to run")
def test_workers_run_where_the_caller_does_not() -> None:
    """A system that is busy wakes a thread on the processor of the caller, who is in its way."""
    before, all_of = {*os.listdir("/proc/self/task")}, os.sched_getaffinity(0)
    found, function, y = pool.Pool(2), counts(), np.zeros(9, np.int64)
    (worker,) = {*os.listdir("/proc/self/task")} - before
    job, kept_off = pool.Job([(function.address, 1)], False), set[int]()
    try:
        for processor in sorted(all_of)[:2] * 50:
            os.sched_setaffinity(0, {processor})  # the caller moves there, and stays as a rule
            os.sched_setaffinity(0, all_of)
            found.share(job, function.pack(y.ctypes.data, 1), 9)
            (off,) = all_of - os.sched_getaffinity(int(worker))
            kept_off.add(off)
            if kept_off >= {*sorted(all_of)[:2]}:
                break
        assert kept_off >= {*sorted(all_of)[:2]}
        os.sched_setaffinity(0, {min(all_of)})  # nowhere else is left: a worker may run where the caller does
        found.share(job, function.pack(y.ctypes.data, 1), 9)
        assert os.sched_getaffinity(int(worker))
    finally:
        os.sched_setaffinity(0, all_of)
        found.stop()


@pytest.mark.parametrize("each", [False, True])
def test_stages_come_one_after_the_other(each: bool) -> None:
    """The second function reads what the first wrote, of the same row."""
    found, function = pool.Pool(3), counts()
    job = pool.Job([(function.address, 2), (function.address, 2)], each)
    y = np.zeros(200, np.int64)
    found.share(job, function.pack(y.ctypes.data, 5), 100)
    assert y.tolist() == [20] * 200
    found.stop()


def test_jobs_come_one_after_the_other() -> None:
    """Each has a total of its own; one that fails is the last, and what it left half done is read by none."""
    fails = """
from numba import njit
from redalg.kernels.cpu.memory import heap_float64, missing
@njit(nogil=True)
def fails(y, step, low, high):
    for i in range(low, high):
        if i == step:
            raise MemoryError
"""
    params = [Param("result", "y", "int64"), Param("size", "step", "int64")]
    failing = pool.Job([(build.functions(fails, ["fails"], params)["fails"].address, 1)], False)
    found, function = pool.Pool(3), counts()
    job = pool.Job([(function.address, 1)], False)
    for most in (1, 2, 3):
        y = np.zeros(64, np.int64)
        every = pool.Jobs(found, [(job, 60, most), (job, 7, 1), (job, 0, most), (failing, 5, most), (job, 64, most)])
        assert every.run(function.pack(y.ctypes.data, 5)) == 0 and y[0] == 65 and y[7] == 20 and y[60] == 5
        y[...] = 0
        assert every.run(function.pack(y.ctypes.data, 4)) == 1 and y[0] == 16 and y[7] == 4 and y[60] == 0
    found.stop()
    assert every.run(function.pack(y.ctypes.data, 5)) == 0  # by the caller alone


def test_several_callers_at_once() -> None:
    found, function, wrong = pool.Pool(3), counts(), list[int]()
    job = pool.Job([(function.address, 1)], False)

    def work(step: int) -> None:
        for _ in range(300):
            y = np.zeros(50, np.int64)
            found.share(job, function.pack(y.ctypes.data, step), 50)
            if y.tolist() != [step] * 50:
                wrong.append(step)

    callers = [threading.Thread(target=work, args=(step,)) for step in range(4)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    assert not wrong
    found.stop()


def test_status_is_told_whoever_met_it() -> None:
    """Without memory for the state of a row a function gives 1, in any thread."""
    fails = """
from numba import njit
from redalg.kernels.cpu.memory import heap_float64, missing
@njit(nogil=True)
def fails(step, low, high):
    for i in range(low, high):
        if i == step:
            raise MemoryError
"""
    function = build.functions(fails, ["fails"], [Param("size", "step", "int64")])["fails"]
    found, job = pool.Pool(2), pool.Job([(function.address, 1)], False)
    for row in (0, 7, 99):
        assert found.share(job, function.pack(row), 100) == 1
    assert found.share(job, function.pack(100), 100) == 0
    with pytest.raises(MemoryError):
        function(3, 0, 9)
    found.stop()


def test_bits_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu")
    monkeypatch.setattr(cpu_walk, "SHARE", 1.0)
    rng = np.random.default_rng(0)
    for shape in ((7, 33), (64, 1000), (3, 150_000)):
        x = rng.normal(size=shape).astype(np.float32)
        found = []
        for workers in ("1", "2", "5"):
            monkeypatch.setenv("REDALG_THREADS", workers)
            found.append(run(x=x).tobytes())
        assert found[0] == found[1] == found[2]
    monkeypatch.setenv("REDALG_THREADS", "none")
    with pytest.raises(RedalgError):
        run(x=x)


PROCESS = """
import os, numpy as np, redalg as ra
run = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu")
x = np.ones((500, 500), np.float32)
for _ in range(3):
    run(x=x)
child = os.fork()
if not child:
    assert np.allclose(run(x=x), 0.002)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
run(x=x)
print("ended")
"""


@pytest.mark.deep
@pytest.mark.parametrize("times", [1, 5])
def test_forks_and_ends_of_processes(times: int) -> None:
    """A child has no workers but its own, and a process ends while workers look for the next job."""
    environment = {**os.environ, "REDALG_THREADS": "3"}
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROCESS], capture_output=True, text=True, env=environment, timeout=60
        )
        assert done.returncode == 0 and done.stdout == "ended\n", done.stderr
