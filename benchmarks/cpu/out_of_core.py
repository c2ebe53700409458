"""`python -m benchmarks.cpu.out_of_core --gigabytes 10`: a folder of `.npy` larger than what is held, through Dask.

Writes the folder (deleted afterwards), reads it plainly for the disk's rate, then runs three forms over it on the
threaded scheduler: variance and logsumexp in one pass, the mean absolute deviation in two with ``reread=True``, and the
same without. The resident memory is sampled all the while; `docs/engines/out_of_core.svg` shows it. Before each reading
the files are dropped from the cache (`posix_fadvise`). Needs the extra `engines` and Matplotlib.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.harness.processes import RECORDS, conditions, versions

BLOCK = 4_000_000  # numbers of a file: 32 MB
PICTURE = RECORDS.parent.parent / "docs" / "engines" / "out_of_core.svg"
PAGE = os.sysconf("SC_PAGE_SIZE")
Curve = list[tuple[float, float]]


def written(folder: Path, gigabytes: float) -> list[Path]:
    rng, paths = np.random.default_rng(0), []
    block = rng.normal(size=BLOCK)
    for k in range(round(gigabytes * 1e9 / block.nbytes)):
        paths.append(folder / f"{k:05}.npy")
        with open(paths[-1], "wb") as file:
            np.save(file, block + k % 7)
            file.flush()
            os.fsync(file.fileno())
    return paths


def forget(paths: list[Path]) -> None:
    """Drop the files from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def resident() -> float:
    """Megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


def sampled(call: Callable[[], Any]) -> tuple[Any, float, Curve]:
    """What a call gives, its seconds, and resident memory over time."""
    curve: Curve = []
    done = threading.Event()
    begin = time.perf_counter()

    def sample() -> None:
        while not done.wait(0.05):
            curve.append((time.perf_counter() - begin, resident()))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        found = call()
    finally:
        seconds = time.perf_counter() - begin
        done.set()
        thread.join()
    return found, seconds, curve


def load(path: Path) -> Any:
    return np.load(path)


def array(paths: list[Path]) -> Any:
    import dask
    import dask.array as da

    blocks = [da.from_delayed(dask.delayed(load)(p), (BLOCK,), np.float64) for p in paths]
    return da.concatenate(blocks)


def plainly(paths: list[Path]) -> int:
    buffer, total = bytearray(1 << 23), 0
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    var = ra.derive_incremental(ra.parse("return v = var[j](x[j])"))
    one = ra.derive_incremental(ra.parse("return v = var[j](x[j]), s = logsumexp[j](x[j])"))
    two = ra.derive_incremental(ra.parse("u = mean[j](x[j]); return y = mean[j](abs(x[j] - u))"), max_passes=2)
    rows, curves, rates = [], {}, {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        paths = written(Path(folder), options.gigabytes)
        size = sum(p.stat().st_size for p in paths) / 1e9
        x = array(paths)
        calls: dict[str, tuple[int, Callable[[], Any]]] = {
            "reading the files": (1, lambda: plainly(paths)),
            "Dask's var": (1, lambda: float(x.var().compute())),
            "variance": (1, lambda: float(var.dask(x=x).compute())),
            "variance and logsumexp, one pass": (1, lambda: _computed(one.dask(x=x))),
            "mean absolute deviation, reread=True": (2, lambda: float(two.dask(x=x, reread=True).compute())),
        }
        for name, (reads, call) in calls.items():
            forget(paths)
            before = resident()
            found, seconds, curve = sampled(call)
            peak = max(m for _, m in curve) - before
            curves[name] = [(t, m) for t, m in curve]
            rates[name] = seconds / size
            rows.append(f"| {name} | {reads} | {seconds:.1f} | {reads * size / seconds * 1e3:.0f} | {peak:.0f} |")
            print(rows[-1], found, flush=True)
        count = len(paths)
    text = [
        "# Out of core: a folder of .npy through Dask",
        "",
        f"{size:.1f} GB in {count} files of {BLOCK * 8 / 1e6:.0f} MB, float64, Dask's threaded scheduler, 2 cores.",
        f"Written by `python -m benchmarks.cpu.out_of_core --gigabytes {options.gigabytes:g}`.",
        "The machine was busy with other work: read ratios, not seconds.",
        "`docs/engines/out_of_core.svg` shows the memory over time.",
        f"{conditions()} {versions('numpy', 'dask')}.",
        "",
        "| | reads | seconds | MB/s | memory above the start at most, MB |",
        "|---|---|---|---|---|",
        *rows,
        *on_paper(rates, one),
    ]
    (RECORDS / "out_of_core.md").write_text("\n".join(text) + "\n")
    drawn(curves, size)


def on_paper(rates: dict[str, float], form: ra.Form) -> list[str]:
    """What 10 TB would take at these rates, which rest on nothing but the number of blocks."""
    acc = form.accumulator()
    acc.update(x=np.ones(1000))
    blocks = round(1e13 / (BLOCK * 8))
    state = len(acc.to_bytes())
    found = ["", "## 10 TB, on paper", ""]
    found += [f"{blocks} such blocks. A state has {state} bytes, so all of them have {blocks * state / 1e6:.0f} MB if"]
    found += [
        "none were merged before the last came; merged by eights as they come, some dozens are held. Time is that"
    ]
    found += ["that of reading and folding, here on 2 busy cores, in hours (and on 64 machines like this one):", ""]
    found += ["| | hours | 64 machines |", "|---|---|---|"]
    return [*found, *(f"| {n} | {r * 1e4 / 3600:.1f} | {r * 1e4 / 3600 / 64:.2f} |" for n, r in rates.items())]


def _computed(lazy: dict[str, Any]) -> Any:
    import dask

    return dask.compute(lazy)[0]


def drawn(curves: dict[str, Curve], size: float) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "redalg"
    figure, axes = plt.subplots(figsize=(7, 3))
    for name, curve in curves.items():
        axes.plot([t for t, _ in curve], [m for _, m in curve], label=name, linewidth=1)
    axes.set(xlabel="seconds", ylabel="resident memory, MB", ylim=(0, None), title=f"{size:.0f} GB on disk")
    axes.legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
