"""Merging states over ranks: gloo among processes of this machine, and what a model of links predicts beyond it.

Measured: `form.collective` over gloo by 2, 3 and 4 processes, both ways, for states of several sizes. Predicted: the
same calls by `redalg.adapters.ranks.links` for 8, 64 and 1024 ranks. Writes `collective.md`.
`OPENBLAS_NUM_THREADS=1 python -m benchmarks.cpu.collective`
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.harness.processes import RECORDS, conditions
from redalg.adapters.ranks.links import GLOO, NCCL, Links

ROWS = {"attention of 1 row": 1, "attention of 64 rows": 64, "attention of 4096 rows": 4096}
COLUMNS = 64
MEASURED, PREDICTED = (2, 3, 4), (8, 64, 1024)
KEYS = 8  # of each rank: few, so that the merge is what is timed


def arguments(rows: int) -> dict[str, np.ndarray]:
    """Attention of one head."""
    rng = np.random.default_rng(0)
    shapes = {"Q": (1, rows, 8), "K": (1, KEYS, 8), "V": (1, KEYS, COLUMNS)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def timed(rank: int, ranks: int, path: str, calls: int, queue: Any) -> None:
    """Seconds of a call by case and way, and the same fold without the others."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=ranks)
    form, found = ra.derive_incremental(ra.catalog["attention"]), {}
    alone = form.compile("numpy")
    for case, rows in ROWS.items():
        arrays = arguments(rows)
        for way in ("reduce", "gather"):
            made = form.collective(way=way)
            found[case, way] = _median(partial(made, **arrays), calls, dist.barrier)
        found[case, "alone"] = _median(partial(alone, **arrays), calls, dist.barrier)
        choice = made.choices[0]
        found[case, "bytes"] = (choice.reduce_bytes, choice.state_bytes)
    if rank == 0:
        queue.put(found)
    dist.barrier()
    dist.destroy_process_group()


def _median(call: Any, calls: int, barrier: Any) -> float:
    seconds = []
    for k in range(calls + 2):
        barrier()
        start = time.perf_counter()
        call()
        if k > 1:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def measured(ranks: int, calls: int) -> dict[Any, Any]:
    context = get_context("spawn")
    queue = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        args = [(r, ranks, f"{folder}/meet", calls, queue) for r in range(ranks)]
        processes = [context.Process(target=timed, args=a) for a in args]
        for p in processes:
            p.start()
        found: dict[Any, Any] = queue.get(timeout=600)
        for p in processes:
            p.join()
    return found


def predicted(links: Links, sent: tuple[tuple[int, int], int], ranks: int) -> str:
    (first, second), gathered = sent
    reduce, gather = links.reduce_seconds(first, second, ranks), links.gather_seconds(gathered, ranks)
    return f"{reduce * 1e3:.3g} / {gather * 1e3:.3g}, {links.choose(first, second, gathered, ranks)}"


def main(arguments_: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=30)
    calls = parser.parse_args(arguments_).calls
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    found = {ranks: measured(ranks, calls) for ranks in MEASURED}
    lines = ["# Merging states over ranks", "", "Written by `python -m benchmarks.cpu.collective`.", conditions(), ""]
    lines += ["## Measured: gloo, processes of this machine", ""]
    lines += [f"Milliseconds of a whole call on rank 0 (median of {calls}): arguments checked, {KEYS} keys folded, the"]
    lines += [
        "exchange of lengths, the merge, the result. `alone`: the same fold without other ranks. Processes share the"
    ]
    lines += [
        f"machine's {os.cpu_count()} cores (load average while measuring: {os.getloadavg()[0]:.1f}). The last column is"
    ]
    lines += ["what the model says of the merge alone, with every rank on cores of its own.", ""]
    lines += [
        "| state | bytes all-reduced | bytes of a state | ranks | alone | reduce | gather | predicted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in ROWS:
        for ranks, times in found.items():
            (first, second), gathered = times[case, "bytes"]
            cells = [f"{times[case, way] * 1e3:.2f}" for way in ("alone", "reduce", "gather")]
            cells.append(predicted(GLOO, times[case, "bytes"], ranks))
            lines.append(f"| {case} | {first} + {second} | {gathered} | {ranks} | {' | '.join(cells)} |")
    for links in (GLOO, NCCL):
        lines += ["", f"## Predicted, not measured: {links.name}", ""]
        lines += [
            "Milliseconds of the merge alone by the model (reduce / gather), and its choice. Constants: ",
            f"`{links}`.",
            "",
        ]
        lines += [f"| state | {' | '.join(f'{ranks} ranks' for ranks in PREDICTED)} |", "|---|---|---|---|"]
        for case in ROWS:
            sent = found[MEASURED[0]][case, "bytes"]
            lines.append(f"| {case} | {' | '.join(predicted(links, sent, ranks) for ranks in PREDICTED)} |")
    text = "\n".join(lines) + "\n"
    (RECORDS / "collective.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
