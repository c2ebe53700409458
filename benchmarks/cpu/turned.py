"""Short rows in blocks that are turned, beside rows as they are, by length: what the limits of `kernels.cpu.blocks` are
chosen by. Ratios of least times on one thread, above 1 where turning is faster: `python -m benchmarks.cpu.turned`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

LENGTHS = (8, 16, 24, 32, 40, 48, 56, 64, 72, 84, 96, 112, 128, 160, 192)
ROWS, TURNS, CALLS = 3000, 5, 30
SPECS = {
    "layer norm": "return y = (x[i,j] - mean[j](x[i,j]))/sqrt(var[j](x[i,j]) + 1e-5)",
    "RMS norm": "return y = x[i,j]/sqrt(mean[j](x[i,j]**2) + 1e-5)",
    "softmax": "return y = softmax[j](x[i,j])",
    "log softmax": "return y = log_softmax[j](x[i,j])",
    "logsumexp": "return y = logsumexp[j](x[i,j])",
    "variance": "return y = var[j](x[i,j])",
    "sum": "return y = sum[j](x[i,j])",
    "absmax": "return y = max[j](abs(x[i,j]))",
    "argmax": "return y = argmax[j](x[i,j])",
}


def least(call: Callable[[], Any]) -> float:
    """Seconds of the fastest call."""
    found = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return min(found)


def ratios(text: str, dtype: str) -> tuple[list[float], float]:
    """Time as rows over time turned, for every length, and the length up to which rows are turned."""
    import redalg as ra
    from redalg.kernels.cpu import blocks
    from redalg.kernels.programs import lower

    form, found = ra.derive_incremental(ra.parse(text)), []
    for length in LENGTHS:
        x = np.random.default_rng(0).standard_normal((ROWS, length)).astype(dtype)
        runs = []
        for longest in (max(LENGTHS), 0):
            with mock.patch.object(blocks, "_longest", lambda program, longest=longest: longest):
                runs.append(form.compile("cpu"))
                runs[-1](x=x)
        times = [[least(partial(run, x=x)) for run in runs] for _ in range(TURNS)]
        turned, rows = (min(t) for t in zip(*times, strict=True))
        found.append(rows / turned)
    return found, blocks._longest(lower(form, {"x": dtype}))


def main() -> None:
    os.environ["REDALG_THREADS"] = "1"
    print("| spec | dtype | limit | " + " | ".join(map(str, LENGTHS)) + " |")
    print("|---" * (3 + len(LENGTHS)) + "|")
    for dtype in ("float32", "float16", "float64"):
        for name, text in SPECS.items():
            found, limit = ratios(text, dtype)
            print(f"| {name} | {dtype} | {limit:g} | " + " | ".join(f"{r:.2f}" for r in found) + " |", flush=True)


if __name__ == "__main__":
    main()
