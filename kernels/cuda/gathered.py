"""Sums of rows of a matrix that an index names, one for each run of entries: y[b] = Σ w[e]·A[rows[e]], e of run b.

A block has a run (and, of long rows, a part of their columns), and adds its entries in their order: the same call gives
the same bits. Entries of weight 0 are not read. What reads rows of one position again and again finds them in L2.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from redalg.kernels.ir.program import STORAGE, Module, Param
from redalg.kernels.launch import driver
from redalg.kernels.launch.arrays import alignment, dtype_name, framework_of
from redalg.kernels.launch.driver import Geometry, Launch

WIDEST = 16  # bytes of a load
THREADS, CHUNKS = 256, 4  # of a block, and vectors of a thread, at most
AHEAD = 4  # entries whose weights and places are read together


@lru_cache(maxsize=256)
def gathering(dtype: str, result: str, length: int, vector: int) -> tuple[Module, int]:
    """The kernel for rows of `length` elements in vectors of `vector`, and the blocks that share a run's columns.

    >>> module, parts = gathering("bfloat16", "float32", 768, 8)
    >>> parts, module.threads, "load_bfloat16x8(A, r0 * LENGTH + j)" in module.source
    (1, 96, True)
    """
    vectors = length // vector
    threads = min(THREADS, -(-vectors // 32) * 32)
    chunks = min(CHUNKS, -(-vectors // threads))
    parts = -(-vectors // (threads * chunks))
    real = "float64" if dtype == "float64" else "float32"
    short = {"float32": "f32", "float64": "f64"}[real]
    wide = f"x{vector}" if vector > 1 else ""
    stored = vector if vector * STORAGE[result] <= WIDEST else WIDEST // STORAGE[result]
    into = f"x{stored}" if stored > 1 else ""
    loads = {f"load_{dtype}{wide}", f"load_{real}", "load_int32", f"store_{result}{into}"}

    steps = [k * threads * vector for k in range(chunks)]

    def added(u: int) -> list[str]:
        return _added(u, short, f"load_{dtype}{wide}", vector, steps)

    lines = [
        "import numpy as np",
        "from numba import cuda",
        "",
        f"from redalg.kernels.cuda.intrinsics import {', '.join(sorted(loads))}",
        "",
        f"{short}, i64 = np.{real}, np.int64",
        f"LENGTH, VECTOR = {length}, {vector}",
        "",
        "",
        "@cuda.jit",
        "def gathered_sums(A, rows, weights, starts, stops, y):",
        '    """y[b] is the sum over entries e from starts[b] to stops[b] of weights[e] * A[rows[e]]."""',
        "    t = cuda.threadIdx.x",
        f"    run, part = i64(cuda.blockIdx.x) // {parts}, i64(cuda.blockIdx.x) % {parts}",
        f"    first = (part * {threads * chunks} + t) * VECTOR",
        "    e = load_int32(starts, run)",
        "    stop = load_int32(stops, run)",
        f"    total = cuda.local.array({chunks * vector}, np.{real})",
        f"    for k in range({chunks * vector}):",
        f"        total[k] = {short}(0)",
        "    # What entries say is under way for several of them before the first row is waited for.",
        f"    while e + {AHEAD} <= stop:",
        *(f"        w{u} = load_{real}(weights, e + {u})" for u in range(AHEAD)),
        *(f"        r{u} = load_int32(rows, e + {u})" for u in range(AHEAD)),
        *(line for u in range(AHEAD) for line in added(u)),
        f"        e += {AHEAD}",
        "    while e < stop:",
        f"        w0 = load_{real}(weights, e)",
        "        r0 = load_int32(rows, e)",
        *added(0),
        "        e += 1",
        *_written(f"store_{result}{into}", stored, vector, steps),
    ]
    params = [("operand", "A", dtype), ("operand", "rows", "int32"), ("operand", "weights", real)]
    params += [("operand", "starts", "int32"), ("operand", "stops", "int32"), ("result", "y", result)]
    return Module("\n".join(lines) + "\n", "gathered_sums", tuple(Param(*p) for p in params), threads), parts


def _added(u: int, short: str, load: str, vector: int, steps: list[int]) -> list[str]:
    """Lines that add the row of an entry, where its weight is not 0."""
    held = [f"x{c}" for c in range(vector)]
    found = [f"        if w{u} != {short}(0):"]
    for k, step in enumerate(steps):
        found += [f"            j = first{f' + {step}' if k else ''}", "            if j < LENGTH:"]
        found += [f"                {', '.join(held)} = {load}(A, r{u} * LENGTH + j)"]
        found += [f"                total[{k * vector + c}] += w{u} * {x}" for c, x in enumerate(held)]
    return found


def _written(store: str, stored: int, vector: int, steps: list[int]) -> list[str]:
    """Lines that write a run's sums, so many at a time."""
    found = []
    for k, step in enumerate(steps):
        found += [f"    j = first{f' + {step}' if k else ''}", "    if j < LENGTH:"]
        for c in range(0, vector, stored):
            values = ", ".join(f"total[{k * vector + c + i}]" for i in range(stored))
            values = f"({values})" if stored > 1 else values
            found.append(f"        {store}(y, run * LENGTH + j{f' + {c}' if c else ''}, {values})")
    return found


def gathered_sums(A: Any, rows: Any, weights: Any, starts: Any, stops: Any, y: Any) -> Any:
    """Fill y[runs, length] from A[n, length], rows, starts and stops of int32 and weights of float32 (float64
    beside such an A), contiguous tensors on one device; on the caller's current stream. Gives `y`."""
    runs, length = y.shape
    if not runs or not length:
        return y
    framework = framework_of(A)
    assert framework is not None
    where = min(alignment(framework.pointer(x)) for x in (A, y))
    item = STORAGE[dtype_name(A)]
    vector = next(v for v in (16, 8, 4, 2, 1) if v * item <= min(WIDEST, where) and length % v == 0)
    device = framework.device(A)
    driver.activate(device)
    cc = driver.target_of(device).cc
    launch = _launch(dtype_name(A), dtype_name(y), length, vector, runs, cc, device)
    launch([framework.pointer(x) for x in (A, rows, weights, starts, stops, y)], framework.stream(device))
    return y


@lru_cache(maxsize=256)
def _launch(dtype: str, result: str, length: int, vector: int, runs: int, cc: driver.CC, device: int) -> Launch:
    module, parts = gathering(dtype, result, length, vector)
    with driver.relaxed():
        return Launch(module, cc, None, Geometry(runs * parts, module.threads), {})


__all__ = ["gathered_sums", "gathering"]
