"""Contractions on tensor cores beside FlashAttention-2, cuDNN, FlexAttention, Inductor and cuBLAS, in one run.

`python -m benchmarks.gpu.attention --out FILE [--only PATTERN]` writes one JSON line for every cell and skips those the
file has; `--report FILE` writes `gpu_attention.md` from it. Contenders of a cell take turns: in every round each runs
for a quarter of a second on the same inputs, in alternating order, so that all meet the same temperature and power
limit; times are medians over rounds, and so are the clock and the power that the device reports in the middle of each
turn (NVML). Results are checked against float64 (a sample of rows) before anything is timed,
on poisoned outputs; who is wrong is not timed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.attention_cells import CEILINGS, CELLS, Contenders
from benchmarks.gpu.attention_types import CELLS as TYPES
from benchmarks.gpu.gemm_cells import CELLS as PRODUCTS
from benchmarks.harness.processes import stamp

SECONDS, ROUNDS = 0.25, 5
Call = Callable[[], Any]


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--only", default="*", help="cells whose name matches (several: semicolon)")
    parser.add_argument("--contenders", default="*", help="who takes part, as 'ours*'; a line names who did")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(words)
    if options.report:
        from benchmarks.gpu.attention_report import report

        return report(options.report)
    done = (
        {json.loads(line)["cell"] for line in options.out.read_text().splitlines()} if options.out.exists() else set()
    )
    for name, make in (CELLS | TYPES | PRODUCTS).items():
        if name in done or not any(fnmatch.fnmatch(name, one.strip()) for one in options.only.split(";")):
            continue
        begin = time.time()
        for line in _lines(name, make, options):
            with options.out.open("a") as f:
                f.write(json.dumps(line | stamp()) + "\n")
            print(json.dumps(line), f"{time.time() - begin:.0f} s", flush=True)


def _lines(name: str, make: Callable[[], Contenders], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The one line of a cell; a cell that cannot be made says why."""
    import torch

    torch.manual_seed(0)
    try:
        cell = make()
        calls, wrong = {}, {}
        for who, call in cell.calls.items():
            if not fnmatch.fnmatch(who, options.contenders):
                continue
            error = 0.0 if who in CEILINGS else _checked(call, cell)
            (calls if isinstance(error, float) and error <= cell.bound else wrong)[who] = call
            if who in wrong:
                print(f"{name}: {who} is not timed: {error}", flush=True)
        times, states = race(calls, options.seconds, options.rounds)
    except Exception as problem:  # a peer that is not there, memory that is not there
        yield {"cell": name, "failed": repr(problem)[:300], **conditions()}
        return
    finally:
        torch.cuda.empty_cache()
    yield {
        "cell": name,
        "unit": cell.unit,
        "work": cell.work,
        "ms": {w: round(t, 5) for w, t in times.items()},
        "rate": {w: round(cell.work / t / 1e9, 1) for w, t in times.items()},
        "wrong": sorted(wrong),
        "state": states,
        "extra": cell.extra,
        **conditions(),
    }


def _checked(call: Call, cell: Contenders) -> float | str:
    """The largest error over a sample of rows, relative to the largest value there."""
    import torch

    try:
        found = cell.sample(call())
        torch.cuda.synchronize()
    except Exception as problem:
        return repr(problem)[:200]
    if found.shape != cell.truth.shape:
        return f"{tuple(found.shape)} is compared with {tuple(cell.truth.shape)}"
    if not torch.isfinite(found).all():
        return "not finite"
    return float(((found.double() - cell.truth).abs().max() / cell.truth.abs().max()).item())


def race(calls: dict[str, Call], seconds: float, rounds: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Milliseconds a call, and [MHz, W], medians over rounds in which every contender runs for `seconds`."""
    import torch

    state = reader()

    def timed(call: Call, count: int, seen: list[tuple[float, float]] | None = None) -> float:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin = time.perf_counter()
        start.record()
        for _ in range(count):
            call()
        stop.record()
        if seen is not None and state is not None:
            time.sleep(max(0.0, seconds / 2 - (time.perf_counter() - begin)))
            seen.append(state())
        stop.synchronize()
        return float(start.elapsed_time(stop)) / count

    counts = {}
    for who, call in calls.items():
        call()
        each = timed(call, 3)
        counts[who] = max(3, math.ceil(seconds * 1e3 / each))
    found: dict[str, list[float]] = {who: [] for who in calls}
    states: dict[str, list[tuple[float, float]]] = {who: [] for who in calls}
    for turn in range(rounds):
        for who in list(calls)[:: 1 if turn % 2 == 0 else -1]:
            timed(calls[who], max(1, counts[who] // 4))
            found[who].append(timed(calls[who], counts[who], states[who]))
    medians = {who: [statistics.median(x) for x in zip(*seen, strict=True)] for who, seen in states.items() if seen}
    return {who: statistics.median(times) for who, times in found.items()}, medians


def reader() -> Callable[[], tuple[float, float]] | None:
    """What reads the multiprocessors' clock in MHz and the board's power in W; None where NVML is not to be had."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
        device = nvml.nvmlDeviceGetHandleByIndex(0)
        nvml.nvmlDeviceGetPowerUsage(device)
    except Exception:
        return None
    return lambda: (
        float(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)),
        nvml.nvmlDeviceGetPowerUsage(device) / 1e3,
    )


def conditions() -> dict[str, Any]:
    from importlib.metadata import version

    import torch

    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "numba": version("numba"),
        "numba_cuda": version("numba-cuda"),
        "date": time.strftime("%Y-%m-%d"),
        "multiprocessors": torch.cuda.get_device_properties(0).multi_processor_count,
    }


if __name__ == "__main__":
    main()
