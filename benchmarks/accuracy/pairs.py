"""Sums as pairs (``accuracy="compensated"``) beside plain ones: error and time of the same rows.

`python -m benchmarks.accuracy.pairs [--target cpu|cuda] [--size 65536]` prints a table. Errors are relative to the sum
of what the terms are worth without signs, against `math.fsum`: with that, 2^-24 is half a unit of float32. Rows cancel
to about a thousandth. Times are minima over repeats of calls whose rows fill 16 MiB; on a GPU between two events
around 20 calls.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from math import fsum
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.harness.processes import stamp

TEXTS = {
    "sum": "return y = sum[j](x[i,j])",
    "dot product": "return y = sum[j](x[i,j]*w[i,j])",
    "sum of squares": "return y = sum[j](x[i,j]**2)",
    "logsumexp": "m = max[j](x[i,j]); return y = m + log(sum[j](exp(x[i,j] - m)))",
}
BYTES = 16 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--size", type=int, default=65536, help="elements of a row")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    print(f"{stamp()}\n\n| float32, rows of {options.size} | plain, us | pairs, us | plain, error | pairs, error |")
    print("|---|---|---|---|---|")
    for name, text in TEXTS.items():
        form = ra.derive_incremental(ra.parse(text), axis="j")
        given = arrays(options.size)
        used = {t.name: on(options.target, given[t.name]) for t in form.spec.tensors}
        runs = [form.compile(options.target, accuracy=each) for each in (None, "compensated")]
        times = [clock(options.target, run, used, options.repeats) * 1e6 for run in runs]
        errors = [error(name, np.asarray(host(run(**used))), given) for run in runs]
        print(f"| {name} | {times[0]:.1f} | {times[1]:.1f} | {errors[0]:.1e} | {errors[1]:.1e} |", flush=True)


def arrays(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = max(1, BYTES // 4 // n)
    x = rng.standard_normal((rows, n))
    x[:, n // 2 : n // 2 * 2] = -x[:, : n // 2] * (1 + 1e-3)
    return {"x": x.astype(np.float32), "w": (1 + rng.random((rows, n))).astype(np.float32)}


def error(name: str, found: np.ndarray, given: dict[str, np.ndarray]) -> float:
    """The largest of some rows."""
    worst = 0.0
    for row in range(0, len(found), max(1, len(found) // 8)):
        x, w = (given[k][row].astype(np.float64) for k in "xw")
        terms = {"sum": x, "dot product": x * w, "sum of squares": x * x, "logsumexp": np.exp(x - x.max())}[name]
        exact, whole = fsum(terms), fsum(abs(terms))
        if name == "logsumexp":
            exact, whole = np.log(exact) + x.max(), abs(np.log(exact) + x.max())
        worst = max(worst, abs(float(found[row]) - exact) / whole)
    return worst


def on(target: str, x: np.ndarray) -> Any:
    if target == "cpu":
        return x
    import torch

    return torch.from_numpy(x).cuda()


def host(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else x.cpu()


def clock(target: str, run: Callable[..., Any], used: dict[str, Any], repeats: int) -> float:
    run(**used)
    if target == "cpu":
        return min(_seconds(lambda: run(**used)) for _ in range(repeats))
    import torch

    found = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(20):
            run(**used)
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 20e3)
    return min(found)


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
