"""What a call costs beside its arithmetic: `python -m benchmarks.cpu.call_overhead [--out FILE]`.

Arrays are so small that nearly all time goes into validation, allocation and dispatch: calls of ``compile("cpu")``,
and `update`, `merge` and `result` of accumulators, beside the NumPy expressions. Each figure is the least of many
batches, in microseconds, since others may share the machine; the first result of a process is timed in processes of
their own, with an empty cache on disk and with a filled one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import redalg as ra

STREAMS = {
    "sum": "return y = sum[j](x[j])",
    "mean": "return y = mean[j](x[j])",
    "max": "return y = max[j](x[j])",
    "logsumexp": "m = max[j](x[j]); return y = log(sum[j](exp(x[j] - m))) + m",
    "variance": "u = mean[j](x[j]); return y = mean[j]((x[j] - u)**2)",
    "argmax": "return y = argmax[j](x[j])",
    "top-3": "return y = topk[j:3:top](x[j]).values",
    "weighted sum": "m = max[j](x[j]); p = exp(x[j] - m); return y = sum[j](p*z[j])/sum[j](p)",
    "covariance": "u = mean[j](x[j]); w = mean[j](z[j]); return y = mean[j]((x[j] - u)*(z[j] - w))",
}
FIRST = """
import time
import numpy as np, redalg as ra
run = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu")
x = np.ones((4, 8))
begin = time.perf_counter()
run(x=x)
print(time.perf_counter() - begin)
"""


def microseconds(call: Callable[[], object], batches: int = 30, each: int = 100) -> float:
    """The least time of a call over batches of them."""
    found = []
    for _ in range(batches):
        begin = time.perf_counter()
        for _ in range(each):
            call()
        found.append((time.perf_counter() - begin) / each * 1e6)
    return min(found)


def softmax() -> dict[str, float]:
    x, out = np.random.default_rng(0).normal(size=(4, 8)), np.empty((4, 8))
    run = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu")

    def bare() -> object:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    return {
        "softmax of 4 x 8, NumPy": microseconds(bare),
        'softmax of 4 x 8, compile("cpu")': microseconds(lambda: run(x=x)),
        'softmax of 4 x 8, compile("cpu") with out=': microseconds(lambda: run(x=x, out=out)),
    }


def streams() -> dict[str, float]:
    found = {}
    for name, text in STREAMS.items():
        form = ra.derive_incremental(ra.parse(text))
        for length in (1, 16):
            rng = np.random.default_rng(0)
            chunk = {t.name: rng.normal(size=length) for t in form.spec.tensors}
            acc, other = form.accumulator(), form.accumulator()
            other.update(**chunk)
            label = f"{name}, {length} element{'s' if length > 1 else ''}"
            found[f"{label}: update"] = microseconds(lambda a=acc, c=chunk: a.update(**c))  # type: ignore[misc]
            found[f"{label}: merge"] = microseconds(lambda a=acc, b=other: a.merge(b))  # type: ignore[misc]
            found[f"{label}: result"] = microseconds(acc.result)
    return found


def first_results() -> dict[str, float]:
    """Microseconds up to the first result of a process, of which there are three each."""

    def first(folder: str) -> float:
        environment = {**os.environ, "REDALG_CACHE_DIR": folder}
        done = subprocess.run(
            [sys.executable, "-c", FIRST], capture_output=True, text=True, env=environment, check=True
        )
        return float(done.stdout) * 1e6

    cold, warm = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(first(folder))
            warm.append(first(folder))
    return {"first softmax of a process, compiled": min(cold), "first softmax of a process, from disk": min(warm)}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures to this file as JSON")
    asked = parser.parse_args(words)
    figures = softmax() | streams() | first_results()
    for name, value in figures.items():
        print(f"{name:44s} {value:12.1f} us")
    if asked.out:
        asked.out.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
