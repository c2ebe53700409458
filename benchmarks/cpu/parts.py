"""Specs whose products stand inside of other reductions on the CPU, in parts and as one kernel, beside NumPy.

`python -m benchmarks.cpu.parts [--seconds 3] [--threads 1]`: layers as mathematics writes them, float32. In turns:
`form.compile("cpu")`, which runs in parts where that takes fewer operations, the same with ``schedule="rows"``, which
is one kernel, and `form.compile("numpy")`, whose products are BLAS's. All are checked against the definition first.
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import median
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.harness.processes import stamp

USUAL = {"m": 64, "k": 128, "n": 256, "l": 96, "h": 4, "i": 64, "j": 64, "d": 16, "e": 16, "c": 64, "r": 16, "v": 500}
LARGER = {"m": 256, "k": 256, "n": 512, "l": 256}
LOW_RANK = "return Y = sum[k](X[m,k]*W[n,k]) + sum[r](sum[k](X[m,k]*A[r,k])*B[n,r])"
CHAIN = "return Y = sum[n](relu(sum[k](X[m,k]*B[n,k]))*D[l,n])"
CELLS: dict[str, tuple[str, Any, dict[str, int]]] = {
    "low rank, along k": (LOW_RANK, "k", USUAL),
    "low rank, along r": (LOW_RANK, "r", USUAL),
    "attention, projected": (
        "s = sum[d](Q[h,i,d]*K[h,j,d])/8; p = exp(s - max[j](s)); o = sum[j](p*V[h,j,e])/sum[j](p); "
        "return Y = sum[h,e](o*W[c,h,e])",
        ("h", "e"),
        USUAL,
    ),
    "statistics behind a layer": (
        "y = sum[n](relu(sum[k](A[m,k]*B[n,k]))*D[l,n]); return Y = y, Q = sum[l](y*y)",
        "l",
        USUAL,
    ),
    "projections, attention": (
        "Q = sum[c](X[i,c]*A[h,d,c]); K = sum[c](X[j,c]*B[h,d,c]); V = sum[c](X[j,c]*G[h,e,c]); s = sum[d](Q*K); "
        "p = exp(s - max[j](s)); return O = sum[j](p*V)/sum[j](p)",
        "j",
        USUAL,
    ),
    "logits of a layer": (
        "h = sum[k](X[m,k]*W[n,k]); l = sum[n](h*V[v,n]); return L = log(sum[v](exp(l-max[v](l))))+max[v](l)",
        "v",
        USUAL,
    ),
    "experts": (
        "g = sum[k](X[m,k]*G[e,k]); p = exp(g-max[e](g))/sum[e](exp(g-max[e](g))); "
        "return Y = sum[e](p*sum[n](relu(sum[k](X[m,k]*B[e,n,k]))*D[e,l,n]))",
        "e",
        USUAL,
    ),
    "two layers": (CHAIN, "n", USUAL | LARGER),
}


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--seconds", type=float, default=3.0, help="of every cell")
    asked.add_argument("--threads", type=int, default=1)
    given = asked.parse_args()
    os.environ["REDALG_THREADS"] = str(given.threads)
    print(f"{stamp()}; threads: {given.threads}\n")
    print("| spec | in parts, ms | one kernel, ms | NumPy, ms | kernels |\n|---|--:|--:|--:|---|")
    for name, (text, axis, sizes) in CELLS.items():
        form = ra.derive_incremental(ra.parse(text), axis=axis, max_passes=8)
        arrays = _arrays(form, sizes)
        runs = [form.compile("cpu"), form.compile("cpu", schedule="rows"), form.compile("numpy")]
        for run in runs:
            _check(form, run(**arrays), arrays)
        times = " | ".join(f"{1e3 * t:.2f}" for t in _in_turns(runs, arrays, given.seconds))
        how = runs[0].schedule.partition(";")[0]
        print(
            f"| {name} | {times} | {how.partition(' kernels')[0].removeprefix('in parts: ') if 'parts' in how else 1} |"
        )


def _arrays(form: Any, sizes: dict[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    own = [t for t in form.spec.tensors if not t.array]
    return {t.name: np.float32(rng.standard_normal([sizes[a] for a in t.axes]) / 8) for t in own}


def _check(form: Any, found: Any, arrays: dict[str, Any]) -> None:
    true = ra.reference(form.spec, **arrays)
    for name, x in found.items() if isinstance(found, dict) else [("", found)]:
        wanted = true[name] if name else true
        assert np.abs(x - wanted).max() <= 1e-5 * np.abs(wanted).max(), name


def _in_turns(runs: list[Any], arrays: dict[str, Any], seconds: float) -> list[float]:
    """The median seconds of a call of each."""
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for run, own in zip(runs, times, strict=True):
            begin = time.perf_counter()
            run(**arrays)
            own.append(time.perf_counter() - begin)
    return [median(own) for own in times]


if __name__ == "__main__":
    main()
