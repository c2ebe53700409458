"""Random shapes on the CPU beside NumPy, PyTorch and JAX: `python -m benchmarks.cpu.random_table --seed 2026-11-24`.

Cells of 256 bytes to 32 MiB, whose rows and lengths are drawn log-uniformly; seeded by the date, so that every day
sees others, and a record can be measured again. Everyone runs on the same processors, makes results of its own, and is
checked against float64 before anything is timed; contenders take turns, and what counts is the least time of each. The
same command goes on where it stopped; `--report` makes a table and a picture of the lines.
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu.kernels import worst
from benchmarks.cpu.random_cells import Cell, cells, jax_version, numpy_version, torch_arrays, torch_version
from benchmarks.harness.measuring import Contender, Effort, Judge, Lines, Record, WallClock, measure
from benchmarks.harness.operations import ROUNDING
from benchmarks.harness.processes import RECORDS, conditions

OURS = "redalg"
SETTLE = 2e-3  # seconds
LARGE = 1 << 16  # elements from which on a ratio is asked for, below it a difference
LEAST, MEDIAN, APART_US = 0.97, 1.5, 12.0
MANY = 100  # cells up to which a report has all of them, else those that are not as fast as they should be


def arguments_of(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--seed", default=str(datetime.date.today()), help="what cells are drawn by: the date")
    add("--cells", type=int, default=24, help="how many of them")
    add("--only", default="", help="cells whose names have this in them")
    add("--threads", type=int, default=2)
    add("--repeats", type=int, default=7)
    add("--spent", action="store_true", help="time that processors spent, for machines that others use: of one thread")
    add("--alone", action="store_true", help="without PyTorch and JAX")
    add("--out", type=Path, default=RECORDS / "cpu_random.jsonl")
    add("--report", action="store_true", help="write the table and the picture of the lines there are")
    return parser.parse_args(words)


def on_processors(count: int) -> None:
    """This process, and the pools its libraries are about to make, on so many processors."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
    for name in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{name}_NUM_THREADS"] = str(count)


# --- one cell --------------------------------------------------------------------------------------------------------


def judge_of(cell: Cell, arrays: Mapping[str, np.ndarray]) -> Judge:
    """The distance to the usual text in float64, in units of what arithmetic in the dtype may cost."""
    true = np.asarray(numpy_version(cell, reference=True)(**arrays))
    epsilon = 2.0**-52 if cell.dtype == "float64" else 2.0**-23
    size = float(np.abs(arrays["x"].astype(np.float64)).max(initial=1.0))
    weights = [float(np.abs(p.astype(np.float64)).max()) for n, p in arrays.items() if n != "x"]
    if cell.dtype == "float16" and true.dtype.kind == "f":
        true = np.where(np.abs(true) < 65520.0, true, np.copysign(np.inf, true))  # as the format has it
    scale = size * max([1.0, *weights]) * (cell.length if cell.operation == "sum" else 1)
    relative = (100 + cell.length**0.5) * epsilon + ROUNDING[cell.dtype]
    absolute = 32 * epsilon * scale + (2.0**-24 if cell.dtype == "float16" else 0.0)

    def judge(results: Mapping[str, Any], strict: bool) -> float:
        factor, y = 1 if strict else 1000, results["y"]
        if true.dtype.kind != "i":
            y = y.astype(np.float64)
        return worst(y, true, factor * relative, factor * absolute)

    return judge


def contenders(cell: Cell, arrays: Mapping[str, np.ndarray], alone: bool) -> list[Contender]:
    made = _ours(cell, arrays), _plain("numpy", numpy_version(cell), arrays, np.asarray)
    return [*made, *([] if alone else _libraries(cell, arrays))]


def _plain(
    name: str, compute: Callable[..., Any], arrays: Mapping[str, Any], back: Callable[[Any], np.ndarray]
) -> Contender:
    return Contender(name, lambda n: compute(**arrays), (lambda: {"y": back(compute(**arrays))},), ours=name == OURS)


def _ours(cell: Cell, arrays: Mapping[str, Any]) -> Contender:
    import redalg as ra

    run = ra.derive_incremental(cell.spec).compile("cpu")
    return _plain(OURS, run, arrays, np.asarray)


def _libraries(cell: Cell, arrays: Mapping[str, np.ndarray]) -> list[Contender]:
    found = []
    try:
        import torch
    except ImportError:
        pass
    else:
        torch.set_grad_enabled(False)

        def numbers(y: Any) -> np.ndarray:
            return y.float().numpy() if y.dtype == torch.bfloat16 else y.numpy()

        found.append(_plain("torch", torch_version(cell, torch), torch_arrays(arrays, torch), numbers))
    try:
        import jax
    except ImportError:
        return found
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    turned = cell.layout == "transposed"
    given = {n: jax.numpy.asarray(x.T if turned and n == "x" else x) for n, x in arrays.items()}
    function = jax_version(cell, jax)

    def compute(**of: Any) -> Any:
        return function(**of).block_until_ready()

    def back(y: Any) -> np.ndarray:
        return np.asarray(y).T if turned else np.asarray(y)

    return [*found, _plain("jax", compute, given, back)]


def measured(cell: Cell, options: argparse.Namespace) -> Record:
    arrays = cell.drawn(seed=cell.elements)
    effort = Effort(repeats=options.repeats, seconds=4e-3, largest=200)
    judge = judge_of(cell, arrays)
    clock = WallClock(SETTLE, time.process_time if options.spent else time.perf_counter)
    results = measure(contenders(cell, arrays, options.alone), judge, clock, sets=1, effort=effort)
    return {
        "cell": f"{options.seed} {cell.name}",
        "elements": cell.elements,
        "threads": options.threads,
        "load": round(os.getloadavg()[0], 2),
        "results": results,
    }


# --- what they say ---------------------------------------------------------------------------------------------------


def times(record: Record) -> dict[str, float]:
    """Contender -> least microseconds; those that were wrong are left out."""
    return {n: r["low_us"] for n, r in record["results"].items() if "low_us" in r and "error" not in r}


def compared(record: Record) -> tuple[str, float, float] | None:
    """The fastest of the others, its time over ours, and microseconds by which ours is later; None where one lacks."""
    found = times(record)
    ours = found.pop(OURS, None)
    if ours is None or not found:
        return None
    best = min(found, key=lambda n: found[n])
    return best, found[best] / ours, ours - found[best]


def met(record: Record) -> bool:
    """Whether a cell is as fast as it should be."""
    found = compared(record)
    return found is not None and (
        found[1] >= LEAST if record["elements"] >= LARGE else found[1] >= LEAST or found[2] <= APART_US
    )


def summary(records: Sequence[Record]) -> list[str]:
    lines = []
    for word, large in ((f"from {LARGE // 1024} Ki elements", True), (f"below {LARGE // 1024} Ki elements", False)):
        some = [r for r in records if (r["elements"] >= LARGE) is large]
        ratios = sorted(c[1] for r in some if (c := compared(r)) is not None)
        if ratios:
            goal = f"at least {LEAST}" if large else f"at least {LEAST}, or within {APART_US:g} us of the best"
            lines.append(
                f"{word}: {len(ratios)} cells, ratio to the best {statistics.median(ratios):.2f} in the median,"
                f" {ratios[len(ratios) // 10]:.2f} at the tenth percentile, {ratios[0]:.2f} at worst;"
                f" {sum(map(met, some))} of {len(some)} are {goal}"
            )
    wrong = [r["cell"] for r in records if "error" in r["results"].get(OURS, {})]
    return [*lines, *([f"wrong: {', '.join(wrong)}"] if wrong else [])]


def line(record: Record) -> str:
    found, text = compared(record), ", ".join(f"{n} {t:.1f}" for n, t in times(record).items())
    if found is None:
        return f"{record['cell']}: {record['results'].get(OURS, {}).get('error', 'nobody to compare with')[:200]}"
    return f"{record['cell']:62} {found[1]:6.2f} {'   ' if met(record) else '***'} {text}"


def medians(records: Sequence[Record], word: str, at: int) -> list[str]:
    """A table of large cells by one word of their names."""
    found: dict[str, list[float]] = {}
    for r in records:
        known = compared(r)
        if known is not None and r["elements"] >= LARGE:
            found.setdefault(r["cell"].split()[at], []).append(known[1])
    head = [f"| {word} | cells | median | at worst | below {LEAST} |", "|---|---:|---:|---:|---:|"]
    lines = [
        f"| {name} | {len(x)} | {statistics.median(x):.2f} | {min(x):.2f} | {sum(v < LEAST for v in x)} |"
        for name, x in sorted(found.items())
    ]
    return [*head, *lines, ""]


def report(records: Sequence[Record], path: Path) -> None:
    """Tables beside the lines, of operations and of cells, and the ratios over the sizes as a picture."""
    names = (OURS, "numpy", "torch", "jax")
    head = f"| cell | {' | '.join(names)} | best of the others / ours |"
    rows = [head, f"|---|{'---:|' * (len(names) + 1)}"]
    shown = records if len(records) <= MANY else [r for r in records if not met(r)]
    for r in sorted(shown, key=lambda r: r["elements"]):
        found, known = times(r), compared(r)
        cells_ = " | ".join(f"{found[n]:.1f}" if n in found else "-" for n in names)
        rows.append(f"| {r['cell']} | {cells_} | {f'{known[1]:.2f}' if known else '-'} |")
    seeds = sorted({r["cell"].split()[0] for r in records})
    about = (
        "# Random shapes on the CPU\n\nLeast microseconds of calls that make their own results, contenders in turn, on"
        f" the same processors. Seeds {', '.join(seeds)}.\n"
        "Written by `python -m benchmarks.cpu.random_table --report`.\n"
    )
    of = [("operation", 1), ("dtype", 3), ("layout", 4)]
    parts = [line for word, at in of for line in medians(records, word, at)]
    text = "\n".join([about, *(f"* {s}" for s in summary(records)), "", conditions(), "", *parts, *rows])
    path.with_suffix(".md").write_text(text + "\n")
    picture(records, path.with_suffix(".svg"))


def picture(records: Sequence[Record], path: Path) -> None:
    """Ratios over elements, both logarithmic; without matplotlib there is none."""
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasSVG(figure)
    ax = figure.add_subplot()
    for best in ("numpy", "torch", "jax"):
        some = [(r["elements"], c[1]) for r in records if (c := compared(r)) is not None and c[0] == best]
        ax.scatter([n for n, _ in some], [r for _, r in some], s=14, label=f"{best} is the fastest other")
    ax.axhline(1.0, color="black", linewidth=0.8)
    ax.axvline(LARGE, color="grey", linewidth=0.8, linestyle=":")
    ax.set(xscale="log", yscale="log", xlabel="elements", ylabel="time of the fastest other over ours")
    ax.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main(words: Sequence[str] | None = None) -> int:
    options = arguments_of(words)
    lines = Lines(options.out)
    if options.report:
        records = list(lines.cells().values())
        report(records, options.out)
        print("\n".join(summary(records)))
        return 0
    on_processors(options.threads)
    done, found = lines.cells(), []
    for cell in islice(cells(options.seed), options.cells):
        if options.only not in cell.name:
            continue
        record = done.get(f"{options.seed} {cell.name}")
        if record is None:
            record = measured(cell, options)
            lines.add(record)
        found.append(record)
        print(line(record), flush=True)
    print("\n".join(summary(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
