"""Chains of two matrix products (feed-forward layers) beside cuBLAS, in one run.

`python -m benchmarks.gpu.chains [--only 'G*'] [--rows 128] [--out FILE] [--compile] [--prepare]`: for every workload
of FlashFuser's tables (G: relu between two products; S: gated by SiLU) our kernels and PyTorch's (cuBLAS and
elementwise kernels; by `--compile` also torch.compile's, by max-autotune), all as captured graphs, in turns: on one set
of operands (warm), and on as many in turn as exceed the L2 (cold). Ours is checked against float64 first. The floor is
the larger of two times: operands and result once at a copy's rate in the same run, and the products at 750 TFLOP/s.
`--prepare` compiles and checks, and times nothing.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redalg as ra
from benchmarks.harness.processes import stamp
from redalg.kernels.cuda.library import name as vendor

RELU = "return E = sum[n](relu(sum[k](A[m,k]*B[n,k]))*D[l,n])"
GATED = "g = sum[k](A[m,k]*B[n,k]); u = sum[k](A[m,k]*C[n,k]); return E = sum[n](silu(g)*u*D[l,n])"
TABLE = """
G1 512 32 256; G2 256 512 64; G3 512 416 256; G4 3072 768 768; G5 16384 4096 4096; G6 4096 1024 1024; G7 768 768 768;
G8 8192 2048 2048; G9 2048 512 512; G10 1536 384 384; S1 8192 3072 3072; S2 5632 2048 2048; S3 11008 4096 4096;
S4 8192 2048 2048; S5 11008 2048 2048; S6 8960 1536 1536; S7 9728 2560 2560; S8 3072 1024 1024
"""  # name, n, k, l
CELLS = {words[0]: tuple(map(int, words[1:])) for words in map(str.split, TABLE.split(";"))}
COLD = 256 << 20  # bytes that pass between two uses of a set of operands
Call = Callable[[], Any]


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    parser.add_argument("--rows", default="128", help="rows of A; several: comma")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile", action="store_true", help="torch.compile, max-autotune, too")
    parser.add_argument("--prepare", action="store_true", help="compile and check, without times")
    options = parser.parse_args(words)
    for rows in map(int, options.rows.split(",")):
        for name, sizes in CELLS.items():
            if fnmatch.fnmatch(name, options.only):
                line = _line(name, rows, sizes, options.compile, options.prepare)
                print(json.dumps(line), flush=True)
                if options.out:
                    with options.out.open("a") as f:
                        f.write(json.dumps(line | stamp()) + "\n")


def _line(name: str, rows: int, sizes: tuple[int, ...], compiled: bool, prepare: bool = False) -> dict[str, Any]:
    import torch

    n, k, width = sizes
    gated, first = name.startswith("S"), operands(name, rows)
    size = sum(x.numel() * x.element_size() for x in first.values())
    sets = [first, *(operands(name, rows) for _ in range(0 if prepare else max(1, COLD // size)))]
    line: dict[str, Any] = {"cell": name, "m": rows, "n": n, "k": k, "l": width, "device": torch.cuda.get_device_name()}
    run = run_of(name)
    try:
        line["error"] = _error(run(**sets[0]), sets[0])
        if prepare:
            return line
        calls: dict[str, Callable[[dict[str, Any]], Any]] = {"ours": lambda x: run(**x), "torch": _torch}
        if compiled:
            from benchmarks.gpu.lab import AUTOTUNE

            torch._dynamo.reset()  # else what was compiled before makes lengths dynamic
            calls["torch.compile"] = torch.compile(_torch, dynamic=False, mode=AUTOTUNE)
        for warmth, used in (("warm", sets[:1]), ("cold", sets)):
            line[warmth] = _raced({who: _captured(call, used) for who, call in calls.items()}, len(used))
        line["kernels"] = _count(run.planned)
        line["left"] = [vendor(p.vendor) if p.vendor else "" for p in (*run.planned.before, run.planned)]
        line["predicted"] = round(run.planned.choice.seconds * 1e6, 2)
    except Exception as problem:
        line["failed"] = repr(problem)[:300]
    line["floor"] = round(
        1e6 * max((size + 2 * rows * width) / _copy_rate(), 2 * rows * n * (k * (1 + gated) + width) / 7.5e14), 2
    )
    torch.cuda.empty_cache()
    return line


def run_of(name: str) -> Any:
    """The workload's kernels."""
    text = GATED if name.startswith("S") else RELU
    return ra.derive_incremental(ra.parse(text), axis="n", max_passes=4).compile("cuda")


def operands(name: str, rows: int) -> dict[str, Any]:
    """Arrays of a workload, drawn anew."""
    n, k, width = CELLS[name]
    gate = {"C": (n, k)} if name.startswith("S") else {}
    return _drawn({"A": (rows, k), "B": (n, k), "D": (width, n)} | gate)


def _drawn(shapes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    import torch

    return {n: (torch.randn(s, device="cuda") / (s[1] ** 0.5 if n != "A" else 1)).bfloat16() for n, s in shapes.items()}


def _torch(x: dict[str, Any]) -> Any:
    import torch.nn.functional as F

    if "C" not in x:
        return F.linear(F.relu(F.linear(x["A"], x["B"])), x["D"])
    return F.linear(F.silu(F.linear(x["A"], x["B"])) * F.linear(x["A"], x["C"]), x["D"])


def _error(found: Any, x: dict[str, Any]) -> float:
    expected = _torch({n: a.double() for n, a in x.items()})
    return float(((found.double() - expected).abs().max() / expected.abs().max()).item())


def _captured(call: Callable[[dict[str, Any]], Any], sets: list[dict[str, Any]]) -> Call:
    import torch

    for x in sets[:2]:
        call(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for x in sets:
            call(x)
    return graph.replay


def _raced(calls: dict[str, Call], each: int, rounds: int = 5, seconds: float = 0.02) -> dict[str, float]:
    """Microseconds of one call, medians of turns."""
    found: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(rounds):
        for who, call in calls.items():
            count = max(3, int(seconds / max(1e-7, _seconds(call, 3))))
            found[who].append(_seconds(call, count) / each * 1e6)
    return {who: round(statistics.median(times), 2) for who, times in found.items()}


def _seconds(call: Call, count: int) -> float:
    import torch

    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        call()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) / count * 1e-3


def _count(planned: Any) -> int:
    return 1 + sum(_count(p) for p in planned.before)


def _copy_rate() -> float:
    """Bytes a second of a large copy, counted both ways."""
    import torch

    if not _RATE:
        x = torch.empty(1 << 28, dtype=torch.float32, device="cuda")
        y = torch.empty_like(x)
        y.copy_(x)
        _RATE.append(2 * x.numel() * 4 / _seconds(lambda: y.copy_(x), 5))
    return _RATE[0]


_RATE: list[float] = []

if __name__ == "__main__":
    main()
