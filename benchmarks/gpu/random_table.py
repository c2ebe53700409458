"""The random table of the GPU: rows of any shape beside PyTorch, torch.compile and what the memory allows.

`python -m benchmarks.gpu.random_table --out table.jsonl` draws 60 cells of today's date and writes one JSON line for
each; cells that the file has are skipped, so that the same command goes on where it stopped. `--cells known` are the
shapes that were slow once, `--peers none` runs ours alone, `--peers 10` lets every tenth cell have peers.
``--measured`` runs ours with ``schedule="measure"`` as well, which times schedules once as max-autotune does.
`--report table.jsonl` writes the table and a histogram beside it (`.md`, `.png`).

Results are checked against float64 on poisoned memory before anything is timed. Device time is that of replayed CUDA
graphs over arguments that rotate through more than the caches hold; the time of a call is told apart. The limit is the
time a copy takes, in the same run, to move the bytes that the plan must move (`random_cells.RandomCell.bytes`).
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import subprocess
import sys
import time
from bisect import bisect
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.gpu.cells import Cell
from benchmarks.gpu.random_cells import RandomCell, drawn, known
from benchmarks.harness.measuring import Effort, Lines, Record, best_us, check, measure
from benchmarks.harness.processes import ROOT

SIZES = tuple(4**k << 16 for k in range(8))  # bytes a copy moves where its rate is measured: 64 KiB to 1 GiB
LARGE = 64 * 10**6  # bytes from which on a cell is judged by the limit
NOISE = 0.03  # two runs of the same cell differ by so much
OURS, MEASURED = "redalg", "redalg measured"
PEERS = ("torch", "inductor", "inductor max-autotune")
SHARES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)


def arguments_of(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, help="file of JSON lines, continued where it exists")
    add("--report", type=Path, help="write the table of such a file, and stop")
    add("--cells", default="drawn", choices=("drawn", "known", "both"))
    add("--seed", default=datetime.date.today().isoformat(), help="what cells are drawn from")
    add("--count", type=int, default=60, help="cells that are drawn")
    add("--only", default="", help="cells whose name holds this")
    add("--peers", default="all", help="all, none, or a number: every so manieth cell has peers")
    add("--modes", default="default,max-autotune", help="modes of torch.compile")
    add("--measured", action="store_true", help="ours with schedules that are timed once, too")
    add("--budget", type=float, default=540.0, help="seconds after which no cell is begun")
    add("--workers", type=int, default=min(14, max(1, (os.cpu_count() or 2) - 1)), help="processes that compile")
    add("--repeats", type=int, default=5)
    add("--target", default="cuda", help="what our forms are compiled for")
    add("--share", type=int, default=-1, help=argparse.SUPPRESS)
    add("--began", type=float, default=time.time(), help=argparse.SUPPRESS)
    return parser.parse_args(words)


def chosen(options: argparse.Namespace) -> list[RandomCell]:
    """The cells of a run that the file lacks."""
    cells = list(known()) if options.cells != "drawn" else []
    cells += drawn(options.seed, options.count) if options.cells != "known" else []
    done = Lines(options.out).cells()
    return [c for c in cells if options.only in c.name and c.name not in done]


def with_peers(options: argparse.Namespace, number: int) -> bool:
    return bool(options.peers == "all" or options.peers.isdigit() and number % int(options.peers) == 0)


# --- measuring -------------------------------------------------------------------------------------------------------


def _lab(target: str) -> Any:
    from benchmarks.gpu.lab import Lab

    class Turning(Lab):
        """Arguments that lie transposed in memory where the cell says so."""

        def sets(self, cell: Cell, seed: int, count: int | None = None) -> list[dict[str, Any]]:
            made = super().sets(cell, seed, count)
            if getattr(cell, "transposed", False):
                for one in made:
                    wide = {n: a for n, a in one.items() if getattr(a, "ndim", 0) == 2}
                    one |= {n: a.T.contiguous().T for n, a in wide.items()}
            return made

    return Turning.here(target)


def contenders(options: argparse.Namespace, lab: Any, cell: RandomCell, sets: list[Any], peers: bool) -> list[Any]:
    from benchmarks.gpu.lab import AUTOTUNE

    found = [lab.ours(cell, name, sets) for name in (OURS, *([MEASURED] if options.measured else []))]
    if peers:
        found.append(lab.eager(cell, sets))
        modes = {"default": "default", "max-autotune": AUTOTUNE}
        found += [lab.inductor(cell, sets, modes[m]) for m in options.modes.split(",") if m]
    return found


class Copies:
    """Microseconds that the fastest copy takes to move bytes, between sizes at which it was measured in this run."""

    def __init__(self, lines: Lines, lab: Any) -> None:
        from benchmarks.gpu.ceilings import Ceilings
        from benchmarks.gpu.lab import ROTATE

        made = Ceilings(lines, lab.device, lab.clocks, rotate=ROTATE if lab.on_gpu else 0)
        sizes = SIZES if lab.on_gpu else SIZES[:2]
        self.times = [(size, size / made.rate("copy", size, True)) for size in sizes]

    def us(self, size: int) -> float:
        return between(self.times, size)


def between(times: Sequence[tuple[int, float]], size: int) -> float:
    """The time of a size: along straight lines between measured ones, in proportion beyond the largest.

    >>> between([(100, 2.0), (200, 4.0)], 150), between([(100, 2.0), (200, 4.0)], 400), between([(100, 2.0)], 50)
    (3.0, 8.0, 2.0)
    """
    at = bisect([s for s, _ in times], size)
    if at == 0:
        return times[0][1]
    if at == len(times):
        return times[-1][1] * size / times[-1][0]
    (a, first), (b, second) = times[at - 1], times[at]
    return first + (second - first) * (size - a) / (b - a)


def measure_cells(options: argparse.Namespace) -> None:
    import torch

    torch.set_grad_enabled(False)
    lines, lab = Lines(options.out), _lab(options.target)
    lines.add({"conditions": lab.describe(), "seed": options.seed, "command": " ".join(sys.argv[1:])})
    copies = Copies(lines, lab)
    for number, cell in enumerate(chosen(options)):
        if time.time() - options.began > options.budget:
            print("the time is up; the same command goes on")
            return
        record: Record = {
            "cell": cell.name,
            "bytes": cell.bytes,
            "limit_us": round(copies.us(cell.bytes), 3),
            "when": time.time(),
        }
        try:
            record["results"] = measured(options, lab, cell, with_peers(options, number))
        except Exception as problem:
            record["error"] = f"{type(problem).__name__}: {problem}"[:600]
        lines.add(record)
        print(brief(record), flush=True)
        if lab.on_gpu:
            torch.cuda.empty_cache()


def measured(options: argparse.Namespace, lab: Any, cell: RandomCell, peers: bool) -> dict[str, Record]:
    sets = lab.sets(cell, 1)
    clock, graph = lab.clocks()
    effort = Effort(repeats=options.repeats, seconds=2e-3, largest=64)
    every = contenders(options, lab, cell, sets, peers)
    return measure(every, lab.judge(cell, sets[0]), clock, sets=len(sets), effort=effort, graph=graph)


def prepare_share(options: argparse.Namespace) -> None:
    """Compile for a share of the cells, so that the measuring process finds everything in the caches."""
    import torch

    torch.set_grad_enabled(False)
    lab = _lab(options.target)
    for number, cell in list(enumerate(chosen(options)))[options.share :: options.workers]:
        if time.time() - options.began > options.budget / 2:
            return
        try:
            sets = lab.sets(cell, 1, count=1)
            for one in contenders(options, lab, cell, sets, with_peers(options, number)):
                if one.name == MEASURED:  # several processes would disturb each other's times, which are kept
                    compile_candidates(options.target, cell, sets[0])
                else:
                    check(one, lambda results, strict: 0.0)
            torch.cuda.empty_cache()
        except Exception as problem:  # it is told when the cell is measured
            print(f"{cell}: {problem}"[:300], file=sys.stderr)


def compile_candidates(target: str, cell: RandomCell, arguments: dict[str, Any]) -> None:
    """Every schedule that `MEASURED` times, run once."""
    from redalg.kernels.cuda.admit import admitted
    from redalg.kernels.cuda.measure import ways_of
    from redalg.kernels.launch import driver

    run = cell.op.form.compile(target)
    run(**arguments)
    ready = run._last
    _, dtypes = admitted(run.spec, arguments)
    for way in ways_of(cell.op.form, dtypes, ready.views, driver.target_of(ready.device))[0]:
        cell.op.form.compile(target, schedule=way)(**arguments)


def prepare(options: argparse.Namespace, words: Sequence[str]) -> None:
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "benchmarks.gpu.random_table", *words, "--began", str(options.began)]
    workers = [subprocess.Popen([*command, "--share", str(k)], env=environment) for k in range(options.workers)]
    for worker in workers:
        try:
            worker.wait(timeout=max(1.0, options.budget / 2 + 10 - (time.time() - options.began)))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    forget_choices()
    print(f"compiled beforehand in {time.time() - options.began:.0f} s", flush=True)


def forget_choices() -> None:
    """Inductor's choices among configurations, which processes side by side have timed: each is made again, alone."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    for file in Path(cache_dir()).rglob("*.best_config"):
        file.unlink(missing_ok=True)


# --- what is told ----------------------------------------------------------------------------------------------------


def brief(record: Record) -> str:
    results = record.get("results", {})
    ours = best_us(results.get(OURS, {}))
    if ours is None:
        why = record.get("error") or results.get(OURS, {}).get("error", "none")
        return f"{record['cell']:48} {why[:160]}"
    peers = {n: t / ours for n in results if n != OURS and (t := best_us(results[n]))}
    told = " ".join(f"{n} {r:.2f}x" for n, r in peers.items())
    call = results[OURS].get("us", math.nan)
    schedule = results[OURS].get("schedule", "").removeprefix("Schedule")
    return f"{record['cell']:48} {ours:8.1f} us {record['limit_us'] / ours:5.0%} call {call:.1f} {told} {schedule}"


def figures(cells: Sequence[Record], name: str = OURS) -> tuple[list[float], list[float]]:
    """Shares of the limit where much is moved, and ratios of the best peer's time to ours."""
    shares, ratios = [], []
    for record in cells:
        results = record.get("results", {})
        ours = best_us(results.get(name, {}))
        if not ours:
            continue
        shares += [record["limit_us"] / ours] if record["bytes"] >= LARGE else []
        times = [t for n in PEERS if n in results and (t := best_us(results[n]))]
        ratios += [min(times) / ours] if times else []
    return shares, ratios


def spread(values: Sequence[float]) -> str:
    """Median, tenth percentile and least of some ratios.

    >>> spread([0.5, 1.0, 1.5])
    'median 1.00, tenth percentile 0.50, least 0.50, of 3'
    """
    if not values:
        return "none"
    low = quantiles(values, n=10, method="inclusive")[0] if len(values) > 9 else min(values)
    return f"median {median(values):.2f}, tenth percentile {low:.2f}, least {min(values):.2f}, of {len(values)}"


def report(lines: Lines) -> str:
    cells = list(lines.cells().values())
    shares, ratios = figures(cells)
    timed = figures(cells, MEASURED)
    own = [
        f'* with `schedule="measure"`, share of the limit: {spread(timed[0])}; the best peer\'s time over ours: '
        f"{spread(timed[1])}."
    ]
    columns = (*([MEASURED] if timed[1] else []), *PEERS)
    text = [
        "# Rows of any shape on a GPU\n",
        "Written by `python -m benchmarks.gpu.random_table`, which says how cells are drawn, checked and timed.",
        f"Two runs of the same cell differ by up to {NOISE:.0%}. *limit*: the time a copy takes to move the bytes that",
        "the plan must move. Ratios are the peers' times over ours; *call*: microseconds of a call, enqueued one after",
        "another.\n",
        *(f"* {r['conditions']} `{r['command']}`" for r in lines.values("conditions")[-1:]),
        f"* share of the limit where {LARGE // 10**6} MB or more move: {spread(shares)}.",
        f"* the best peer's time over ours: {spread(ratios)}.",
        *(own if timed[1] else []),
        "",
        f"| cell | MB | µs | of the limit | call | {' | '.join(columns)} | schedule |",
        f"|---|---|---|---|---|{'---|' * len(columns)}---|",
        *(_row(record, columns) for record in cells),
    ]
    return "\n".join(text) + "\n"


def _row(record: Record, columns: Sequence[str]) -> str:
    results = record.get("results", {})
    mine = results.get(OURS, {})
    ours = best_us(mine)
    if not ours:
        why = record.get("error") or mine.get("error", "not run")
        return f"| {record['cell']} | {record['bytes'] / 1e6:.1f} | {why[:80]} |" + " |" * (4 + len(columns) - 1)
    peers = [f"{t / ours:.2f}" if (t := best_us(results.get(p, {}))) else "-" for p in columns]
    schedule = mine.get("schedule", "").removeprefix("Schedule(").removesuffix(")").replace("=True", "")
    cells = f"{record['bytes'] / 1e6:.1f} | {ours:.1f} | {record['limit_us'] / ours:.0%} | {mine.get('us', 0):.1f}"
    return f"| {record['cell']} | {cells} | {' | '.join(peers)} | {schedule} |"


def histogram(lines: Lines, file: Path) -> None:
    """Shares of the limit, and ratios to the best peer, as a picture."""
    import matplotlib.pyplot as plt

    shares, ratios = figures(list(lines.cells().values()))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
    left.hist([min(1.0, s) for s in shares], bins=list(SHARES), edgecolor="white")
    left.set(xlabel="share of the limit", ylabel="cells", title=f"{LARGE // 10**6} MB or more move")
    right.hist([min(4.0, max(0.25, r)) for r in ratios], bins=[2 ** (k / 4) for k in range(-8, 9)], edgecolor="white")
    right.set(xlabel="best peer's time over ours", xscale="log", title="all cells")
    right.axvline(1.0, color="black", linewidth=1)
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main(words: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if words is None else words)
    options = arguments_of(words)
    if options.report:
        lines = Lines(options.report)
        options.report.with_suffix(".md").write_text(report(lines))
        histogram(lines, options.report.with_suffix(".png"))
    elif options.share >= 0:
        prepare_share(options)
    else:
        if options.target == "cuda" and options.workers > 1:
            prepare(options, words)
        measure_cells(options)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []
    main()
