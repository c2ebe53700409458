"""What the memory allows: the fastest copy and the fastest read of so many bytes, each the best of several kernels.

Each is measured once per size and run. How a cell's limit follows from the two rates: `gpu_cells.limit_us`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu.cells import rounded
from benchmarks.harness.measuring import Call, Clock, Effort, Lines, Record, race

Clocks = Callable[[], tuple[Clock, Clock | None]]  # new ones: a clock keeps what it has captured
Made = tuple[dict[str, Call], int]  # kernels by name, number of sets


def copies(size: int, device: Any, rotate: int) -> Made:
    """Kernels that read size/2 bytes and write as many."""
    n = size // 8
    pairs = [(torch.randn(n, device=device), torch.empty(n, device=device)) for _ in range(1 + rotate // size)]
    found: dict[str, Call] = {
        "torch copy_": lambda k: pairs[k][1].copy_(pairs[k][0]),
        "torch neg": lambda k: torch.neg(pairs[k][0], out=pairs[k][1]),
    }
    kernels = _triton()
    if kernels is not None and device.type == "cuda":
        for block, warps in ((1024, 4), (4096, 8), (8192, 8)):
            found[f"triton copy {block}"] = _bound(lambda k, b, w: kernels.copy(*pairs[k], b, w), block, warps)
    return found, len(pairs)


def reads(size: int, device: Any, rotate: int) -> Made:
    """Kernels that read size bytes and write next to nothing."""
    arrays = [torch.randn(size // 4, device=device) for _ in range(1 + rotate // size)]
    rows = [a.view(-1, 8192) for a in arrays]
    found: dict[str, Call] = {
        "torch sum": lambda k: arrays[k].sum(),
        "torch sum of rows": lambda k: rows[k].sum(1),
        "torch amax of rows": lambda k: rows[k].amax(1),
    }
    kernels = _triton()
    if kernels is not None and device.type == "cuda":
        for block, steps, warps in ((4096, 1, 4), (8192, 1, 8), (4096, 4, 8), (8192, 4, 8), (8192, 8, 8)):
            run = _bound(lambda k, b, s, w: kernels.read(arrays[k], b, s, w), block, steps, warps)
            found[f"triton read {block}x{steps}"] = run
    return found, len(arrays)


def _bound(run: Callable[..., Any], *arguments: int) -> Call:
    return lambda k: run(k, *arguments)


def _triton() -> Any:
    try:
        from benchmarks.gpu import triton_kernels as gpu_triton
    except ImportError:
        return None
    return gpu_triton


class Ceilings:
    """Rates by kind and size; each is measured once and kept in the file of lines."""

    def __init__(self, lines: Lines, device: Any, clocks: Clocks, rotate: int) -> None:
        self.lines, self.device, self.clocks, self.rotate = lines, device, clocks, rotate
        self.known = {(r["ceiling"], r["bytes"]): r for r in lines.values("ceiling")}

    def rates(self, size: int, small: bool) -> dict[str, float]:
        """Bytes per microsecond of "read" and "copy" for `size` bytes moved. `small`: without the caller's time."""
        return {kind: self.rate(kind, rounded(size), small) for kind in ("read", "copy")}

    def rate(self, kind: str, size: int, small: bool) -> float:
        record = self.known.get((kind, size))
        if record is None:
            record = self.known[kind, size] = self._measured(kind, size, small)
            self.lines.add(record)
        return float(record["bytes"]) / float(record["us"])

    def _measured(self, kind: str, size: int, small: bool) -> Record:
        kernels, sets = (copies if kind == "copy" else reads)(size, self.device, self.rotate)
        usual, graph = self.clocks()
        clock = graph if small and graph is not None else usual
        works = {}
        for name, call in kernels.items():
            try:
                clock.batch(call, sets, sets)
                works[name] = call
            except Exception:  # a kernel that cannot run here is no ceiling
                continue
        times = race(works, clock, sets, Effort(repeats=9))
        best = min(times, key=lambda name: times[name].median)
        us = {name: round(1e6 * t.median, 3) for name, t in sorted(times.items(), key=lambda p: p[1].median)}
        return {"ceiling": kind, "bytes": size, "us": us[best], "by": best, "all_us": us}
