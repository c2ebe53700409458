"""Time of `Accumulator.update` against the bare NumPy expressions it needs: `python -m benchmarks.accumulator_update`.

Each pair does the same work on the same arrays: one chunk of (64, 65536) float32 into a state that already exists, and
the expressions a careful programmer would write for that chunk alone. The contract is a ratio of at most 2. Beside it:
the time of an update by one element, and the price of `deterministic=True`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.processes import conditions

ROWS, LENGTH = 64, 65536
LIMIT = 2.0


@dataclass(frozen=True)
class Case:
    """A spec, its arrays (`bound` lack the axis), and the bare expressions for one chunk."""

    name: str
    spec: Any
    bound: dict[str, np.ndarray]
    chunk: dict[str, np.ndarray]
    bare: Callable[[], Any]


def softmax_statistics(rng: np.random.Generator) -> Case:
    x = ra.tensors("x[i,j]")
    m = ra.max(x, "j")
    data = rng.normal(size=(ROWS, LENGTH)).astype(np.float32)

    def bare() -> Any:
        top = data.max(axis=1, keepdims=True)
        return top, np.exp(data - top).sum(axis=1)

    return Case("softmax statistics", ra.Spec(m=m, l=ra.sum(ra.exp(x - m), "j")), {}, {"x": data}, bare)


def variance(rng: np.random.Generator) -> Case:
    x = ra.tensors("x[i,j]")
    data = (rng.normal(size=(ROWS, LENGTH)) + 3).astype(np.float32)

    def bare() -> Any:
        mean = data.mean(axis=1, keepdims=True)
        centred = data - mean
        return mean, centred.sum(axis=1), (centred * centred).sum(axis=1)

    return Case("variance", ra.Spec(v=ra.mean((x - ra.mean(x, "j")) ** 2, "j")), {}, {"x": data}, bare)


def attention(rng: np.random.Generator) -> Case:
    spec = ra.catalog["attention"]
    q, k, v = (rng.normal(size=s).astype(np.float32) for s in ((1, ROWS, 64), (1, LENGTH, 64), (1, LENGTH, 64)))

    def bare() -> Any:
        scores = np.matmul(q, k.transpose(0, 2, 1))
        top = scores.max(axis=2, keepdims=True)
        p = np.exp(scores - top)
        return top, p.sum(axis=2), np.matmul(p, v)

    return Case("attention", spec, {"Q": q}, {"K": k, "V": v}, bare)


CASES = (softmax_statistics, variance, attention)


def best(call: Callable[[], Any], repeats: int) -> float:
    """The shortest time of a call, in seconds: what is least disturbed by other processes."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def updated(case: Case, repeats: int, deterministic: bool = False) -> float:
    """The shortest time of an update with the whole chunk, into a state that holds a few elements."""
    form = ra.derive_incremental(case.spec)
    acc = form.accumulator(deterministic=deterministic, **case.bound)
    acc.update(**_first(case, 0, 8))
    return best(lambda: acc.copy().update(**case.chunk), repeats)


def one_element(case: Case, repeats: int) -> float:
    form = ra.derive_incremental(case.spec)
    acc = form.accumulator(**case.bound)
    acc.update(**_first(case, 0, 1))
    return best(lambda: acc.update(**_first(case, 7, 8)), repeats)


def _first(case: Case, low: int, high: int) -> dict[str, np.ndarray]:
    return {name: x[..., low:high] if name == "x" else x[:, low:high] for name, x in case.chunk.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit status is 1 if a ratio is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args(arguments).repeats
    print(conditions())
    print(f"{'case':20} {'bare ms':>9} {'update ms':>10} {'ratio':>6} {'1 element us':>13} {'deterministic':>14}")
    worst = 0.0
    for build in CASES:
        case = build(np.random.default_rng(0))
        bare, update = best(case.bare, repeats), updated(case, repeats)
        fixed = updated(case, 1, deterministic=True)
        single = one_element(case, 200)
        worst = max(worst, update / bare)
        print(
            f"{case.name:20} {1e3 * bare:9.2f} {1e3 * update:10.2f} {update / bare:6.2f} "
            f"{1e6 * single:13.0f} {fixed / update:13.1f}x"
        )
    print(f"largest ratio {worst:.2f}, limit {LIMIT:g}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
