"""`python -m benchmarks.cpu.engines`: forms beside the engines' own aggregates, in one process.

Dask's var, flox, and variance by group of pandas, Polars, DuckDB, PyArrow and Dask.

Contenders take turns on the threaded scheduler and results are compared before times are kept. Data lies in memory, so
that what is timed is the aggregate. Needs the extra `engines` and flox.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.cpu import grouped
from benchmarks.harness.processes import RECORDS, conditions, versions

ROUNDS = 7
PACKAGES = ("numpy", "dask", "xarray", "flox", "pandas", "polars", "duckdb", "pyarrow")
Call = Callable[[], np.ndarray]


def contenders() -> dict[str, dict[str, Call]]:
    """What is computed -> name -> call; the second one is an engine's own."""
    import dask.array as da
    import flox.xarray
    import xarray as xr

    rng = np.random.default_rng(0)
    long = rng.normal(size=20_000_000)
    wide = rng.normal(size=(4_000, 2_000))
    small = da.from_array(long[:2_000_000], chunks=1_000)
    x, z = da.from_array(long, chunks=1_000_000), da.from_array(wide, chunks=(500, 500))
    var = ra.derive_incremental(ra.parse("return v = var[j](x[j])"))
    rows = ra.derive_incremental(ra.parse("return v = var[j](x[i,j])"))
    labels = xr.DataArray(np.arange(4_000) % 12, dims="time", name="month")
    cube = xr.DataArray(wide, dims=("time", "point"))
    blocks = cube.chunk(time=500)
    by = ra.derive_incremental(ra.parse("return v = var[time](x[time,point])"))

    def flox_var(data: Any) -> np.ndarray:
        found = flox.xarray.xarray_reduce(data, labels, func="var").transpose("month", "point")
        return np.asarray(found.values)

    return {
        "variance of 20 M numbers in 20 blocks": {
            "redalg": lambda: var.dask(x=x).compute(),
            "Dask": lambda: x.var().compute(),
        },
        "variance of 2 M numbers in 2000 blocks": {
            "redalg": lambda: var.dask(x=small).compute(),
            "Dask": lambda: small.var().compute(),
        },
        "variance of 4000 rows of 2000 in 32 blocks": {
            "redalg": lambda: rows.dask(x=z).compute(),
            "Dask": lambda: z.var(axis=1).compute(),
        },
        "variance by 12 groups, 4000 × 2000, in memory": {
            "redalg": lambda: by.xarray(x=cube, by=labels).values,
            "flox": lambda: flox_var(cube),
        },
        "variance by 12 groups, 4000 × 2000, in 8 blocks": {
            "redalg": lambda: by.xarray(x=blocks, by=labels).values,
            "flox": lambda: flox_var(blocks),
        },
    }


def by_group(rows: int = 10_000_000, groups: int = 1_000) -> dict[str, Call]:
    """Variance by group: every engine on the same columns, and Dask on eight partitions of them."""
    import dask.dataframe as dd
    import pandas as pd

    calls = grouped.contenders(rows, groups)["var"]
    found: dict[str, Call] = {n: partial(in_order, call) for n, call in calls.items() if n != "Python"}
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"by": rng.integers(0, groups, rows), "x": rng.normal(size=rows)})
    parts = dd.from_pandas(frame, npartitions=8)
    form = ra.derive_incremental(ra.parse("return v = var[j:1](x[j])"))
    found["redalg in Dask"] = lambda: form.dask(parts, by="by", x="x").compute().to_numpy()
    found["Dask"] = lambda: parts.groupby("by").x.var().compute().sort_index().to_numpy()
    return found


def in_order(call: Callable[[], tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    return grouped.in_order(call())


def main() -> None:
    text = [
        "# Forms beside the engines' own variance",
        "",
        "In memory, in turn; Dask by threads, graphs included; Polars, DuckDB and PyArrow use both cores.",
        "Written by `python -m benchmarks.cpu.engines`.",
        "The machine was busy with other work on both cores: read ratios of the smallest, not seconds.",
        f"{conditions()} {versions(*PACKAGES)}.",
        "",
        "| | | median, s | smallest, s | relative error at most |",
        "|---|---|---|---|---|",
    ]
    for what, calls in (contenders() | {"variance by 1000 groups, 10 M rows": by_group()}).items():
        times: dict[str, list[float]] = {name: [] for name in calls}
        expected, error = [call() for call in calls.values()][1], 0.0
        for _ in range(ROUNDS):
            for name, call in calls.items():
                begin = time.perf_counter()
                value = call()
                times[name].append(time.perf_counter() - begin)
                error = max(error, float(np.max(np.abs(value / expected - 1))))
        assert error < 1e-9, error
        for name, t in times.items():
            text.append(f"| {what} | {name} | {statistics.median(t):.3f} | {min(t):.3f} | {error:.0e} |")
            print(text[-1], flush=True)
    (RECORDS / "engines.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
