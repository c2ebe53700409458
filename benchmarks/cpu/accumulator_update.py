"""`python -m benchmarks.cpu.accumulator_update`: time of `Accumulator.update` beside the NumPy expressions it needs.

Each pair does the same work on the same arrays: one chunk of (64, n) float32, n from 1 to 65536, into a state that
already exists, and the expressions a careful programmer would write for that chunk alone. The contract is a ratio of at
most 2 for the longest. Beside it: the price of `deterministic=True`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.harness.measuring import Lines, Record
from benchmarks.harness.processes import RECORDS, conditions, provenance, stamp

ROWS, LENGTH = 64, 65536
LIMIT = 2.0


@dataclass(frozen=True)
class Case:
    """A spec, its arrays (`bound` lack the axis), and the bare expressions for one chunk."""

    name: str
    spec: Any
    bound: dict[str, np.ndarray]
    chunk: dict[str, np.ndarray]
    needs: Callable[..., Any]

    def bare(self) -> Any:
        return self.needs(**self.chunk)


def softmax_statistics(rng: np.random.Generator) -> Case:
    x = ra.tensors("x[i,j]")
    m = ra.max(x, "j")
    data = rng.normal(size=(ROWS, LENGTH)).astype(np.float32)

    def bare(x: np.ndarray) -> Any:
        top = x.max(axis=1, keepdims=True)
        return top, np.exp(x - top).sum(axis=1)

    return Case("softmax statistics", ra.Spec(m=m, l=ra.sum(ra.exp(x - m), "j")), {}, {"x": data}, bare)


def variance(rng: np.random.Generator) -> Case:
    x = ra.tensors("x[i,j]")
    data = (rng.normal(size=(ROWS, LENGTH)) + 3).astype(np.float32)

    def bare(x: np.ndarray) -> Any:
        mean = x.mean(axis=1, keepdims=True)
        centred = x - mean
        return mean, centred.sum(axis=1), (centred * centred).sum(axis=1)

    return Case("variance", ra.Spec(v=ra.mean((x - ra.mean(x, "j")) ** 2, "j")), {}, {"x": data}, bare)


def attention(rng: np.random.Generator) -> Case:
    spec = ra.catalog["attention"]
    q, k, v = (rng.normal(size=s).astype(np.float32) for s in ((1, ROWS, 64), (1, LENGTH, 64), (1, LENGTH, 64)))

    def bare(K: np.ndarray, V: np.ndarray) -> Any:  # noqa: N803
        scores = np.matmul(q, K.transpose(0, 2, 1))
        top = scores.max(axis=2, keepdims=True)
        p = np.exp(scores - top)
        return top, p.sum(axis=2), np.matmul(p, V)

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


def _first(case: Case, low: int, high: int) -> dict[str, np.ndarray]:
    return {name: x[..., low:high] if name == "x" else x[:, low:high] for name, x in case.chunk.items()}


CHUNKS = (1, 16, 256, 4096, LENGTH)  # elements along the stream of an update


def shortened(case: Case, length: int) -> Case:
    """The case with chunks of so many elements, the bare expressions on the same."""
    chunk = {name: np.ascontiguousarray(x) for name, x in _first(case, 0, length).items()}
    return replace(case, chunk=chunk)


def row(case: Case, repeats: int) -> Record:
    """The times of one case: of updates by chunk length, and of a deterministic one."""
    times: Record = {"case": case.name, "bare_us": {}, "update_us": {}}
    for length in CHUNKS:
        short = shortened(case, length)
        count = repeats if length > 256 else 50 * repeats
        times["bare_us"][length] = round(1e6 * best(short.bare, count), 2)
        times["update_us"][length] = round(1e6 * updated(short, count), 2)
    fixed = updated(case, 1, deterministic=True)
    return times | {"deterministic": round(1e6 * fixed / times["update_us"][LENGTH], 1)} | stamp()


def table(rows: Sequence[Record]) -> str:
    """The Markdown file."""
    lines = [HEAD.format(rows=ROWS), conditions(), provenance(rows), ""]
    for r in rows:
        lines += [f"## {r['case']}", ""]
        lines += ["| elements in a chunk | bare µs | update µs | ratio |", "|---:|---:|---:|---:|"]
        for n, bare in r["bare_us"].items():
            update = r["update_us"][n]
            lines.append(f"| {n} | {bare:.1f} | {update:.1f} | {update / bare:.2f} |")
        fixed = f"`deterministic=True` takes {r['deterministic']:.1f} times a plain update of {LENGTH} elements."
        lines += ["", fixed, ""]
    return "\n".join(lines)


HEAD = """# Accumulator updates beside the NumPy expressions they need

Chunks of ({rows}, elements) of float32; written by `OPENBLAS_NUM_THREADS=1 python -m
benchmarks.cpu.accumulator_update`, as are the lines of `accumulator_update.jsonl`. Whatever its length, an update takes
some hundred microseconds of Python: short chunks take many times the bare expressions, long ones about as long.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit status is 1 if a ratio is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args(arguments).repeats
    rows = [row(build(np.random.default_rng(0)), repeats) for build in CASES]
    place = RECORDS / "accumulator_update.md"
    place.write_text(table(rows))
    lines = Lines(place.with_suffix(".jsonl"))
    for r in rows:
        lines.add(r)
    print(table(rows))
    worst = max(r["update_us"][LENGTH] / r["bare_us"][LENGTH] for r in rows)
    print(f"largest ratio of chunks of {LENGTH}: {worst:.2f}, limit {LIMIT:g}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
