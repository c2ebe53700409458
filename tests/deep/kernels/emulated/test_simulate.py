"""Emulation: what it reports, and that it runs the kernels that are printed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.emulate.memory import Pointer
from redalg.kernels.emulate.run import run as emulated
from redalg.kernels.ir.program import Module
from redalg.kernels.ir.schedule import Schedule
from tests.support.forms import form_of
from tests.support.simulated import run

HEAD = """
import numpy as np
from numba import cuda
from redalg.kernels.cuda.intrinsics import *
@cuda.jit
def kernel(x, y):
    t = cuda.threadIdx.x
"""
NAMES = "load_float32 load_float32x4 store_float32 shfl_xor_f32 shfl_down_f32 cluster_sync dsm_load_f32"


def ran(body: str, x: Any = None, threads: int = 32, blocks: int = 1, cluster: int = 1, seed: int | None = 0) -> Any:
    source = HEAD.replace("*", ", ".join(NAMES.split())) + "".join(
        f"    {line}\n" for line in body.strip().splitlines()
    )
    x = np.arange(64, dtype=np.float32) if x is None else x
    y = np.zeros(64, np.float32)
    emulated(Module(source, "kernel", (), threads), [x, y], blocks, cluster=cluster, seed=seed)
    return y


def refused(body: str, **more: Any) -> RedalgError:
    with pytest.raises(RedalgError) as caught:
        ran(body, **more)
    assert all((caught.value.what, caught.value.where, caught.value.why))
    return caught.value


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_thread_that_misses_a_barrier_is_named() -> None:
    error = refused("if t != 5:\n    cuda.syncthreads()")
    assert (
        error.what == "cuda.syncthreads on line 9"
        and "1 threads do not come: thread 5 of block 0 has ended" in error.why
    )


def test_a_lane_that_misses_a_shuffle_is_named() -> None:
    error = refused("if t == 3:\n    return\nstore_float32(y, t, shfl_xor_f32(load_float32(x, t), 1))")
    assert "shfl_xor_f32" in error.what and "thread 3 of block 0 has ended" in error.why


def test_threads_at_different_barriers_are_told_apart() -> None:
    error = refused("if t < 16:\n    cuda.syncthreads()\nelse:\n    cuda.syncthreads()")
    assert error.what == "threads that have come apart" and "line 9" in error.where and "line 11" in error.where


def test_threads_that_wait_for_different_things_are_stuck() -> None:
    error = refused("if t < 16:\n    cuda.syncthreads()\nelse:\n    cuda.syncwarp()")
    assert "do not come" in error.why and "waits on line" in error.why


@pytest.mark.parametrize("body", ["store_float32(y, t, a[31 - t])", "a[31 - t] = np.float32(1)"])
def test_shared_memory_used_without_a_barrier_is_an_error(body: str) -> None:
    start = "a = cuda.shared.array(32, np.float32)\na[t] = load_float32(x, t)\n"
    error = refused(start + body)
    assert "without a barrier between" in error.what and "line 8" in error.what
    for barrier in ("cuda.syncthreads()\n", "cuda.syncwarp()\n"):
        ran(start + barrier + body)


def test_reading_before_the_barrier_that_lets_others_write_is_an_error() -> None:
    start = "a = cuda.shared.array(32, np.float32)\na[t] = load_float32(x, t)\ncuda.syncthreads()\nv = a[31 - t]\n"
    assert "uses without a barrier" in refused(start + "a[t] = v + np.float32(1)").what
    ran(start + "cuda.syncthreads()\na[t] = v + np.float32(1)")


def test_warps_are_not_ordered_by_syncwarp() -> None:
    body = "a = cuda.shared.array(64, np.float32)\na[t] = load_float32(x, t)\ncuda.syncwarp()\n"
    body += "store_float32(y, t, a[63 - t])"
    assert "without a barrier" in refused(body, threads=64).what


def test_atomic_additions_do_not_disturb_each_other() -> None:
    body = """
n = cuda.shared.array(1, np.int32)
if t == 0:
    n[0] = 0
cuda.syncthreads()
at = cuda.atomic.add(n, 0, 1)
store_float32(y, at, load_float32(x, t))
"""
    for seed in (None, 1, 2):
        assert sorted(ran(body, seed=seed)[:32]) == list(range(32))


def test_an_index_outside_an_array_is_an_error() -> None:
    assert "elements 64 to 64 of 64" in refused("store_float32(y, 33 + t, load_float32(x, t))").what
    assert (
        "index 32 of the shared array"
        in refused("a = cuda.shared.array(32, np.float32)\na[t + 1] = np.float32(0)").what
    )


def test_a_misaligned_vector_is_an_error() -> None:
    error = refused("v = load_float32x4(x, t + 1)", threads=1)
    assert "not at a multiple of 16 bytes" in error.what and error.where == "thread 0 of block 0, line 8"


def test_the_wrong_storage_is_an_error() -> None:
    assert "cells of float64 are accessed as float32" in refused("v = load_float32(x, t)", x=np.zeros(64)).what


def test_a_block_of_the_cluster_is_reached_while_it_lives() -> None:
    start = "a = cuda.shared.array(32, np.float32)\na[t] = load_float32(x, t)\n"
    load = "store_float32(y, t, dsm_load_f32(a, t, 1 - cuda.blockIdx.x))\n"
    assert "may not have begun" in refused(start + load, blocks=2, cluster=2).what
    assert "has ended" in refused(start + "cluster_sync()\n" + load, blocks=2, cluster=2, seed=None).what
    ran(start + "cluster_sync()\n" + load + "cluster_sync()", blocks=2, cluster=2)


def test_memory_nobody_wrote_is_poisoned() -> None:
    y = ran(
        "a = cuda.shared.array(32, np.float32)\nb = cuda.local.array(2, np.float32)\nstore_float32(y, t, a[t] + b[0])"
    )
    assert np.all(np.isnan(y[:32]))


def test_a_lane_that_does_not_exist_answers_nothing_useful() -> None:
    y = ran("store_float32(y, t, shfl_down_f32(load_float32(x, t), 4))", threads=8)
    assert list(y[:4]) == [4, 5, 6, 7] and np.all(np.isnan(y[4:8]))


def test_waiting_inside_a_comprehension_is_refused() -> None:
    assert "waits for other threads" in refused("v = [shfl_xor_f32(np.float32(k), 1) for k in range(2)]").why


def test_blocks_make_whole_clusters() -> None:
    assert "whole clusters of 2" in refused("pass", blocks=3, cluster=2).why


def test_what_has_no_twin_cannot_be_imported() -> None:
    with pytest.raises(RedalgError, match="there is no emulation"):
        emulated(Module("import redalg.kernels.launch.driver\ndef kernel(): pass", "kernel", (), 1), [], 1)


def test_pointers_have_offsets_and_count_bytes() -> None:
    x = np.arange(8, dtype=np.uint16)
    source = """
from redalg.kernels.cuda.intrinsics import load_bfloat16x2, store_bfloat16
def kernel(x, y):
    store_bfloat16(y, 0, load_bfloat16x2(x, 0)[1])
"""
    y = np.zeros(1, np.uint16)
    read, written = emulated(Module(source, "kernel", (), 1), [Pointer(x, 4), y], (1, 1))
    assert y[0] == 5 and read is not None and written is not None
    assert (read.loaded, read.stored, written.loaded, written.stored) == (4, 0, 0, 2)


def test_emulation_needs_no_numba() -> None:
    code = "import sys, redalg.kernels.emulate.run; print(sorted({'numba', 'llvmlite', 'cuda'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- printed kernels -------------------------------------------------------------------------------------------------

SCHEDULES = [
    Schedule(threads=8, rows=4),
    Schedule(threads=1, rows=32),
    Schedule(threads=64, rows=1, tile=2),
    Schedule(threads=64, rows=1, tile=8, resident=True),
    Schedule(threads=32, rows=1, split=3),
    Schedule(threads=32, rows=1, cluster=2),
    Schedule(threads=4, rows=8, column=True),
    Schedule(threads=32, rows=2, tile=4, vector=4),
    Schedule(threads=32, rows=1, split=2, persistent=True),
    Schedule(threads=64, rows=1, tile=8, resident=True, persistent=True),
    Schedule(threads=32, rows=1, cluster=2, persistent=True),
    Schedule(threads=16, rows=2, persistent=True),
]


@pytest.mark.parametrize("number", range(len(ra.catalog)), ids=list(ra.catalog).__getitem__)
def test_printed_kernels_compute_the_definition(number: int) -> None:
    """Two or three schedules for each spec, different ones for its neighbours in the catalog."""
    name = list(ra.catalog)[number]
    entry = ra.catalog.entry(name)
    form = form_of(name)
    arrays, legal = entry.sample(dtype="float32"), 0
    wanted = ra.reference(form.spec, **arrays)
    for schedule in (None, *SCHEDULES[number % 4 :: 4]):
        try:
            found, planned, moved = run(form, arrays, schedule, seed=number)
        except RedalgError as refusal:
            assert refusal.where == "schedule="
            continue
        legal += 1
        for output, value in (wanted if isinstance(wanted, dict) else {next(iter(found)): wanted}).items():
            size = np.max(np.abs(value), where=np.isfinite(value), initial=1e-3)
            tolerance = 0.1 if "cast_commutes" in entry.assume else 2e-5  # the form's own deviation, not the kernel's
            np.testing.assert_allclose(found[output], value, rtol=tolerance, atol=tolerance * size)
        assert f"def {planned.module.entry}(" in planned.module.source
        assert sum(m.loaded for m in moved.values()) > 0
    assert legal
