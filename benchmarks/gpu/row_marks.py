"""What marks of rows out of range cost on a GPU: `python -m benchmarks.gpu.row_marks` (needs a GPU and PyTorch).

Norms, means and variances with marks and without, from one checkout: CUDA graphs of a call for every set of arrays (as
many as fill 256 MB, so that nothing comes from the cache), replayed in turns. A line for every cell: the least time of
each, and their ratio; then a call's time on the host.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import redalg as ra
from redalg.kernels import pipeline

CELLS = [
    ("layer_norm", "float32", 4096, 4096),
    ("layer_norm", "float32", 65536, 256),
    ("layer_norm", "float32", 128, 1024),
    ("layer_norm", "float32", 100_000, 33),
    ("layer_norm", "float32", 64, 256),
    ("layer_norm", "bfloat16", 4096, 4096),
    ("layer_norm", "bfloat16", 16384, 1000),
    ("layer_norm", "bfloat16", 16, 131_072),
    ("rms_norm", "float32", 4096, 8192),
    ("rms_norm", "float32", 1, 262_144),
    ("rms_norm", "bfloat16", 65536, 256),
    ("rms_norm", "bfloat16", 2048, 5120),
    ("mean", "float32", 16384, 512),
    ("mean", "float32", 64, 1 << 20),
    ("variance", "float32", 8192, 2048),
    ("variance", "bfloat16", 8192, 2048),
    ("kurtosis", "float32", 4096, 4096),
]
BYTES, TURNS = 256 << 20, 15


def compiled(name: str, watches: bool, arrays: dict[str, Any]) -> Any:
    """A run whose kernel marks rows, or does not."""
    pipeline.WATCHES = watches
    try:
        run = ra.derive_incremental(ra.catalog[name]).compile("cuda")
        run(**arrays)
    finally:
        pipeline.WATCHES = True
    return run


def drawn(name: str, dtype: str, rows: int, length: int) -> list[dict[str, Any]]:
    import torch

    kind, lengths = getattr(torch, dtype), {"i": rows, "j": length}
    tensors = ra.catalog[name].tensors
    count = max(1, min(64, BYTES // (rows * length * kind.itemsize)))

    def one(axes: tuple[str, ...]) -> Any:
        return torch.randn([lengths[a] for a in axes], device="cuda").to(kind) if axes else 1e-5

    return [{t.name: one(t.axes) for t in tensors} for _ in range(count)]


def captured(run: Any, sets: list[dict[str, Any]]) -> Callable[[], float]:
    """The time of a call in microseconds, by a graph of all sets."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for arrays in sets:
            run(**arrays)
    repeats = max(1, 20 // len(sets))

    def clock() -> float:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            graph.replay()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e3 / (repeats * len(sets))

    clock()
    return clock


def host(run: Any, arrays: dict[str, Any]) -> float:
    """The time of a call on the host in microseconds."""
    import torch

    found = []
    for _ in range(7):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(300):
            run(**arrays)
        found.append((time.perf_counter() - begin) / 300 * 1e6)
    torch.cuda.synchronize()
    return statistics.median(found)


def main() -> None:
    import torch

    torch.set_grad_enabled(False)
    for name, dtype, rows, length in CELLS:
        sets = drawn(name, dtype, rows, length)
        runs = [compiled(name, watches, sets[0]) for watches in (False, True)]
        clocks = [captured(run, sets) for run in runs]
        turns = [[clock() for clock in (clocks if turn % 2 else clocks[::-1])] for turn in range(TURNS)]
        pairs = [t if n % 2 else t[::-1] for n, t in enumerate(turns)]
        off, on = (min(t[k] for t in pairs) for k in (0, 1))
        ratio = statistics.median(b / a for a, b in pairs)
        told = " ".join(f"{host(run, sets[0]):.2f}" for run in runs) if rows * length < 1 << 18 else "-"
        print(f"{name} {dtype} {rows}x{length}: {off:.2f} {on:.2f} us, ratio {ratio:.4f}; host {told} us", flush=True)


if __name__ == "__main__":
    main()
