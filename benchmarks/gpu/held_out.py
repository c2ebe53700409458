"""The cost model on cells that no constant was fitted to: what it predicts, what its choice loses.

`python -m benchmarks.gpu.held_out --seed WORD --count 14 --out FILE` draws cells as the random table does, and times
for each the schedule that the model takes, those that it ranks next, and the best of every other kind (family,
cluster, held or walked, threads of a row), as captured graphs over operands that exceed the caches. `--report FILE`
sums up: the best time over that of the choice, and predicted over measured times. A seed is held out as long as nobody
has looked at its cells when a constant of the model was set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.random_cells import RandomCell, drawn
from benchmarks.gpu.random_table import spread
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.pipeline import situation
from redalg.kernels.schedule.case import Case
from redalg.kernels.schedule.choose import Ranked, rank
from redalg.kernels.schedule.target import Target

CLOSE = 0.15  # predictions that are off by no more are counted as right


def ranked(cell: RandomCell, target: Target) -> Ranked:
    """All candidates of a cell, in the model's order."""
    views, dtypes = dict[str, View](), dict[str, Any]()
    for name, (shape, _) in cell.op.arguments(cell.lengths).items():
        turned = cell.transposed and len(shape) == 2
        if shape:
            views[name] = View(shape, (1, shape[0])) if turned else View.contiguous(shape)
        dtypes[name] = cell.dtype if shape else float
    return rank(Case.of(*situation(cell.op.form, dtypes, views), target))


def sample(every: Ranked, count: int) -> list[tuple[Schedule, float, int]]:
    """The first half of so many by rank, then the best of each kind that is not among them, with their ranks."""
    numbered = [(s, e.seconds * 1e6, i) for i, (s, e) in enumerate(every)]
    first, kinds = numbered[: count // 2], dict[tuple[object, ...], tuple[Schedule, float, int]]()
    for one in numbered[count // 2 :]:
        s = one[0]
        kinds.setdefault((s.family, s.cluster, s.resident, s.persistent, s.coarsen, s.threads), one)
    return first + sorted(kinds.values(), key=lambda x: x[1])[: count - len(first)]


def jobs(options: argparse.Namespace, target: Target) -> Iterator[tuple[RandomCell, list[tuple[Schedule, float, int]]]]:
    for cell in drawn(options.seed, options.count):
        yield cell, sample(ranked(cell, target), options.each)


def compiled(options: argparse.Namespace, lab: Any, target: Target) -> None:
    """Compile a share of all schedules, so that the measuring process finds them on disk."""
    import torch

    every = [(cell, s) for cell, some in jobs(options, target) for s, _, _ in some]
    for cell, s in every[options.share :: options.workers]:
        if time.time() - options.began > options.budget / 2:
            return
        try:
            cell.op.form.compile("cuda", schedule=s)(**lab.sets(cell, 1, count=1)[0])
        except Exception as problem:  # it is told where it is timed
            print(f"{cell} {s}: {problem}"[:200], file=sys.stderr)
        torch.cuda.empty_cache()


def timed(options: argparse.Namespace, lab: Any, target: Target) -> None:
    import torch

    from benchmarks.gpu.chains import _captured, _raced

    for cell, some in jobs(options, target):
        if time.time() - options.began > options.budget:
            print("the time is up")
            return
        sets, found = lab.sets(cell, 1), []
        for s, predicted, number in some:
            try:
                run = cell.op.form.compile("cuda", schedule=s)
                us = _raced({"us": _captured(lambda x, run=run: run(**x), sets)}, len(sets), 3, 0.003)["us"]
            except Exception as problem:
                print(f"{cell} {s}: {problem}"[:200], file=sys.stderr)
                continue
            found.append({"rank": number, "us": us, "predicted": round(predicted, 2), "schedule": repr(s)})
        with options.out.open("a") as f:
            f.write(json.dumps({"cell": cell.name, "bytes": cell.bytes, "schedules": found}) + "\n")
        print(told(cell.name, found), flush=True)
        del sets
        torch.cuda.empty_cache()


def told(name: str, found: Sequence[dict[str, Any]]) -> str:
    own = next((x for x in found if x["rank"] == 0), None)
    if own is None:
        return f"{name}: the choice was not timed"
    best = min(found, key=lambda x: x["us"])
    more = f"; best {best['us']} rank {best['rank']} {best['schedule'][9:-1]}" if best is not own else ""
    return f"{name}: {own['us']} us, predicted {own['predicted']}, {own['schedule'][9:-1]}{more}"


def report(lines: Sequence[dict[str, Any]]) -> str:
    """What the choice loses, and how predictions lie, of the lines of a file.

    >>> timed = [{"rank": 0, "us": 10.0, "predicted": 9.0}, {"rank": 3, "us": 8.0, "predicted": 12.0}]
    >>> print(report([{"cell": "a", "schedules": timed}]))
    1 cells, 2 schedules.
    best time over that of the choice: median 0.80, tenth percentile 0.80, least 0.80, of 1
    predicted over measured: of choices 0.90 in the median, of all 1.20; 50% of all within 15%
    """
    whole = [x["schedules"] for x in lines if any(s["rank"] == 0 for s in x["schedules"])]
    lost = [min(s["us"] for s in some) / next(s["us"] for s in some if s["rank"] == 0) for some in whole]
    own = [s["predicted"] / s["us"] for some in whole for s in some if s["rank"] == 0]
    every = [s["predicted"] / s["us"] for some in whole for s in some]
    close = sum(abs(r - 1) <= CLOSE for r in every) / max(1, len(every))
    return "\n".join(
        [
            f"{len(whole)} cells, {len(every)} schedules.",
            f"best time over that of the choice: {spread(lost)}",
            f"predicted over measured: of choices {median(own):.2f} in the median, of all {median(every):.2f}; "
            f"{close:.0%} of all within {CLOSE:.0%}",
        ]
    )


def main(words: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if words is None else words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--seed", default="held-out")
    parser.add_argument("--count", type=int, default=14)
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--share", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, default=time.time(), help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.report:
        print(report([json.loads(x) for x in options.report.read_text().splitlines()]))
        return
    import torch

    from benchmarks.gpu.random_table import _lab
    from redalg.kernels.launch import driver

    torch.set_grad_enabled(False)
    torch.zeros(1, device="cuda")  # a context, which the driver is asked in
    lab, target = _lab("cuda"), driver.target_of(0)
    if options.share >= 0:
        compiled(options, lab, target)
        return
    command = [sys.executable, "-m", "benchmarks.gpu.held_out", *words, "--began", str(options.began)]
    for worker in [subprocess.Popen([*command, "--share", str(k)]) for k in range(options.workers)]:
        worker.wait()
    print(f"compiled beforehand in {time.time() - options.began:.0f} s", flush=True)
    timed(options, lab, target)


if __name__ == "__main__":
    main()
