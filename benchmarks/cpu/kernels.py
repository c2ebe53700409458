"""Fused kernels on the CPU beside NumPy, numexpr and PyTorch, 4096 × 4096 float32: writes `cpu.md` and `cpu.json`.

Everyone has the same threads and writes to memory that lies ready: results are given as `out=`, and the process is
started anew with a heap that keeps what is freed, so that temporary arrays cost no page faults either. Results are
checked against float64 before anything is timed; who is wrong is not timed. `python -m benchmarks.cpu [--only PATTERN]`
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.measuring import Contender, Effort, Judge, Record, WallClock, measure, race
from benchmarks.harness.operations import OPERATIONS, Operation, strict_tolerance
from benchmarks.harness.processes import RECORDS, conditions, stamp

CHOSEN = (
    "softmax",
    "log_softmax",
    "logsumexp",
    "layer_norm",
    "rms_norm",
    "variance",
    "var_mean",
    "column_variance",
    "cross_entropy",
    "argmax",
    "entropy",
    "kl_divergence",
    "cosine_similarity",
    "log_relu_broadcast",
    "softmax_top8",
)
# glibc: nothing from mmap, nothing given back, one heap for all threads
HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 36), "MALLOC_ARENA_MAX": "1"}
DTYPE = "float32"
CLOCK = WallClock(settle=8e-3)


def arguments_of(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", default="*", help="operations whose name matches (several: comma)")
    add("--size", type=int, default=4096, help="rows and columns")
    add("--threads", type=int, default=2)
    add("--repeats", type=int, default=9)
    add("--target", default="cpu", help="what our forms are compiled for")
    add("--inductor", action="store_true", help="torch.compile too; it compiles for about ten seconds an operation")
    add("--out", type=Path, default=RECORDS / "cpu.json", help="cpu.md is written beside it")
    return parser.parse_args(words)


def with_warm_heap(threads: int) -> None:
    """Replace this process by one whose heap keeps its memory and whose libraries know the number of threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_MAX_THREADS", "NUMBA_NUM_THREADS")
    wanted = {**HEAP, **dict.fromkeys(names, str(threads))}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **wanted})


# --- arguments, results, judge ---------------------------------------------------------------------------------------


def drawn(op: Operation, sizes: Mapping[str, int], seed: int, dtype: str = DTYPE) -> dict[str, Any]:
    """Random arguments; integers below a length, probabilities with sum 1 along the last axis."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for name, (shape, draw) in op.arguments(sizes).items():
        if not shape:
            found[name] = float(draw)
        elif draw.startswith("below:"):
            found[name] = rng.integers(0, sizes[draw.removeprefix("below:")], shape)
        elif draw == "normal":
            found[name] = (2 * rng.standard_normal(shape, dtype=np.float32) + 0.5).astype(dtype)
        else:
            array = rng.uniform(0.25, 2.0, shape)
            found[name] = (array / array.sum(-1, keepdims=True) if draw == "probability" else array).astype(dtype)
    return found


def results_of(op: Operation, sizes: Mapping[str, int], dtype: str = DTYPE) -> dict[str, np.ndarray]:
    """Memory for the results: poisoned, and written once."""
    shapes = op.results(sizes, dtype)
    return {
        name: np.full(shape, -(1 << 62) if kind == "int64" else np.nan, dtype=kind)
        for name, (shape, kind) in shapes.items()
    }


def judge_of(op: Operation, arguments: Mapping[str, Any], sizes: Mapping[str, int], dtype: str = DTYPE) -> Judge:
    """The distance to the definition in float64, computed pass by pass."""
    from benchmarks.cpu.peers import NUMPY

    wide = {n: a.astype(np.float64) if getattr(a, "dtype", None) == dtype else a for n, a in arguments.items()}
    true = results_of(op, sizes, "float64")
    NUMPY[op.name](true, **wide)
    relative, absolute = strict_tolerance(op.name, dtype)

    def judge(results: Mapping[str, Any], strict: bool) -> float:
        factor = 1 if strict else 50
        return max(worst(results[name], true[name], factor * relative, factor * absolute) for name in true)

    return judge


def worst(out: np.ndarray, true: np.ndarray, relative: float, absolute: float) -> float:
    """max |out - true| / (absolute + relative·|true|); integers must be equal; NaN in out gives NaN."""
    if out.shape != true.shape or (true.dtype.kind == "i") != (out.dtype.kind == "i"):
        raise ValueError(f"a result of shape {out.shape} and dtype {out.dtype} instead of {true.shape}, {true.dtype}")
    if true.dtype.kind == "i":
        return 0.0 if np.array_equal(out, true) else float("inf")
    with np.errstate(invalid="ignore"):
        ratio = np.abs(out - true) / (absolute + relative * np.abs(true))
    ratio[out == true] = 0.0
    return float(ratio.max())


# --- contenders ------------------------------------------------------------------------------------------------------


def contender(
    name: str, compute: Callable[..., Any], op: Operation, sizes: Mapping[str, int], arguments: Mapping[str, Any]
) -> Contender:
    """A function that fills `out`, checked on poisoned memory. `compute.results()`, if there is one, has its own."""
    out = results_of(op, sizes)

    def first() -> Mapping[str, Any]:
        for array in out.values():
            array.fill(-(1 << 62) if array.dtype.kind == "i" else np.nan)
        compute(out, **arguments)
        own = getattr(compute, "results", None)
        return own() if own is not None else out

    def call(n: int) -> None:
        compute(out, **arguments)

    return Contender(name, call, (first,), notes=lambda: {"faults": faults(call)})


def faults(call: Callable[[int], Any]) -> int:
    """Page faults of one more call: 0 where all memory lies ready."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call(0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def ours(op: Operation, target: str, sizes: Mapping[str, int], arguments: Mapping[str, Any]) -> Contender:
    run: Any = None

    def compute(out: Mapping[str, np.ndarray], **given: Any) -> None:
        nonlocal run
        if run is None:
            run = op.form.compile(target)
        run(**given, out=dict(out) if len(out) > 1 else next(iter(out.values())))

    made = contender("redalg", compute, op, sizes, arguments)
    return replace(made, ours=True, notes=lambda: made.notes() | {"schedule": str(run.schedule)})


@dataclass(frozen=True)
class Peers:
    """Functions by contender and operation."""

    found: Mapping[str, Mapping[str, Callable[..., Any]]]

    @classmethod
    def here(cls, size: int, threads: int, inductor: bool) -> Peers:
        from benchmarks.cpu.peers import NUMPY, in_place, numexpr_versions, torch_versions

        found = {"numpy": NUMPY, "numpy in place": in_place((size, size), DTYPE), "numexpr": numexpr_versions(threads)}
        found["torch"] = torch_versions(threads)
        return cls({**found, "inductor": torch_versions(threads, compiled=True)} if inductor else found)


class Ceilings:
    """The fastest copies and reads of x's bytes; two of each run again beside every operation, the faster counts."""

    def __init__(self, size: int, threads: int, effort: Effort) -> None:
        from benchmarks.cpu.peers import copies, reads

        self.pool = ThreadPoolExecutor(threads)
        source = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
        kinds = {
            "copy": copies(source, np.ones_like(source), threads, self.pool),
            "read": reads(source, threads, self.pool),
        }
        self.bytes = {"copy": 2 * source.nbytes, "read": source.nbytes}
        self.best: dict[str, dict[str, Callable[[int], Any]]] = {}
        self.records: list[Record] = []
        for kind, ways in kinds.items():
            calls = {name: _numbered(way) for name, way in ways.items()}
            times = race(calls, CLOCK, 1, effort)
            order = sorted(times, key=lambda n: times[n].median)
            self.best[kind] = {name: calls[name] for name in order[:2]}
            ms = {n: round(1e3 * times[n].median, 3) for n in order}
            self.records.append({"ceiling": kind, "bytes": self.bytes[kind], "by": order[0], "ms": ms})

    def contenders(self) -> list[Contender]:
        return [Contender(name, call, ()) for ways in self.best.values() for name, call in ways.items()]

    def rates(self, results: dict[str, Record]) -> dict[str, float]:
        """Bytes per microsecond of "copy" and "read"; takes the ceilings out of the results."""
        return {kind: self.bytes[kind] / min(results.pop(n)["us"] for n in ways) for kind, ways in self.best.items()}


def _numbered(way: Callable[[], Any]) -> Callable[[int], Any]:
    return lambda n: way()


def measure_operation(op: Operation, options: argparse.Namespace, peers: Peers, ceilings: Ceilings) -> Record:
    from benchmarks.gpu.cells import limit_us

    sizes = {"i": options.size, "j": options.size}
    arguments = drawn(op, sizes, seed=len(op.name))
    everyone = [ours(op, options.target, sizes, arguments)]
    for name, functions in peers.found.items():
        if op.name in functions:
            everyone.append(contender(name, functions[op.name], op, sizes, arguments))
    effort = Effort(repeats=options.repeats, seconds=20e-3)
    results = measure([*everyone, *ceilings.contenders()], judge_of(op, arguments, sizes), CLOCK, sets=1, effort=effort)
    rates = ceilings.rates(results)
    read, written = op.traffic(sizes, DTYPE)
    return {
        "operation": op.name,
        "read": read,
        "written": written,
        "limit_us": round(limit_us(read, written, rates), 1),
        "rates_gb_s": {kind: round(r / 1e3, 1) for kind, r in rates.items()},
        "results": results,
    }


def main(words: Sequence[str] | None = None) -> None:
    options = arguments_of(words)
    with_warm_heap(options.threads)
    from benchmarks.cpu.report import brief, goals, markdown

    effort = Effort(repeats=options.repeats, seconds=20e-3)
    ceilings = Ceilings(options.size, options.threads, effort)
    peers = Peers.here(options.size, options.threads, options.inductor)
    load = os.getloadavg()[0]
    about = f"{conditions().rstrip('.')}, {_versions()}; {options.threads} threads, load {load:.1f} at the start."
    records = []
    patterns = [p.strip() for p in options.only.split(",")]
    for name in CHOSEN:
        if any(fnmatch.fnmatch(name, p) for p in patterns):
            records.append(measure_operation(OPERATIONS[name], options, peers, ceilings))
            print(brief(records[-1]), flush=True)
    whole = {"conditions": about, **stamp(), "size": options.size, "ceilings": ceilings.records, "operations": records}
    options.out.write_text(json.dumps(whole, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(markdown(whole))
    print("\n".join(goals(records)))


def _versions() -> str:
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in ("numba", "numexpr", "torch"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)
