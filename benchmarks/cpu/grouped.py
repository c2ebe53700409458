"""`python -m benchmarks.cpu.grouped`: variance and covariance by group beside other engines, over 10 million rows.

Contenders take turns in one process and every one computes the same from the same arrays; results are compared before
times are kept. "Python" is a function of a programmer's own, called once per group (`groupby.agg`); it runs once.
Polars, DuckDB and PyArrow use all cores, pandas one, redalg all. Needs the extra `engines`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.harness.processes import RECORDS, conditions, versions

ROWS, GROUPS, ROUNDS = 10_000_000, (1_000, 1_000_000), 5
Call = Callable[[], tuple[np.ndarray, np.ndarray]]


def contenders(rows: int, groups: int) -> dict[str, dict[str, Call]]:
    """Statistic -> name -> call, which gives keys and values in an order of its own."""
    import duckdb
    import pandas
    import polars as pl
    import pyarrow as pa

    x, y = ra.tensors("x[j] y[j]")
    var = ra.derive_incremental(ra.Spec(v=ra.var(x, "j", ddof=1)))
    cov = ra.derive_incremental(ra.Spec(c=ra.cov(x, y, "j", ddof=1)))
    rng = np.random.default_rng(0)
    by, xs, ys = rng.integers(0, groups, rows), rng.normal(size=rows), rng.normal(size=rows)
    frame = pandas.DataFrame({"by": by, "x": xs, "y": ys})
    columns, table = pl.DataFrame({"by": by, "x": xs, "y": ys}), pa.table({"by": by, "x": xs, "y": ys})
    connection = duckdb.connect()
    connection.register("rows", table)

    def ours(form: Any, **arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        held = form.grouped()
        held.update(by=by, **arrays)
        keys, values = held.result()
        return keys, np.asarray(values)

    def grouped() -> Any:  # made anew in every call: pandas keeps the keys it has factorised
        return frame.groupby("by", sort=False)

    def of_series(found: Any) -> tuple[np.ndarray, np.ndarray]:
        return found.index.to_numpy(), found.to_numpy()

    def of_polars(expression: Any) -> tuple[np.ndarray, np.ndarray]:
        found = columns.group_by("by").agg(expression.alias("v"))
        return found["by"].to_numpy(), found["v"].to_numpy()

    def of_duckdb(expression: str) -> tuple[np.ndarray, np.ndarray]:
        found = connection.sql(f'SELECT "by" AS k, {expression} AS v FROM rows GROUP BY k').fetchnumpy()
        return found["k"], np.ma.filled(found["v"], np.nan)

    def of_arrow() -> tuple[np.ndarray, np.ndarray]:
        import pyarrow.compute as pc

        found = table.group_by("by").aggregate([("x", "variance", pc.VarianceOptions(ddof=1))])
        return found["by"].to_numpy(), found["x_variance"].to_numpy()

    def by_hand(v: Any) -> float:
        return float(np.var(v.to_numpy(), ddof=1)) if len(v) > 1 else np.nan

    def of_pandas_cov() -> tuple[np.ndarray, np.ndarray]:
        found = grouped()[["x", "y"]].cov()["y"]
        return found.index.get_level_values(0).to_numpy()[::2], found.to_numpy()[::2]

    found: dict[str, dict[str, Call]] = {
        "var": {
            "redalg": lambda: ours(var, x=xs),
            "pandas": lambda: of_series(grouped()["x"].var()),
            "Polars": lambda: of_polars(pl.col("x").var()),
            "DuckDB": lambda: of_duckdb("var_samp(x)"),
            "PyArrow": of_arrow,
            "Python": lambda: of_series(grouped()["x"].agg(by_hand)),
        },
        "cov": {
            "redalg": lambda: ours(cov, x=xs, y=ys),
            "Polars": lambda: of_polars(pl.cov("x", "y")),
            "DuckDB": lambda: of_duckdb("covar_samp(x, y)"),
        },
    }
    if groups <= 10_000:  # pandas takes milliseconds for each group
        found["cov"]["pandas"] = of_pandas_cov
    return found


def in_order(found: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return np.asarray(found[1])[np.argsort(found[0])]


def measured(rows: int, groups: int, rounds: int) -> list[tuple[str, str, float, float, int]]:
    """Statistic, name, median and smallest seconds, calls."""
    lines = []
    for statistic, calls in contenders(rows, groups).items():
        expected = in_order(calls["DuckDB"]())
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(rounds):
            for name in [*calls][number % len(calls) :] + [*calls][: number % len(calls)]:
                if name == "Python" and times[name]:
                    continue
                begin = time.perf_counter()
                value = calls[name]()
                times[name].append(time.perf_counter() - begin)
                np.testing.assert_allclose(in_order(value), expected, rtol=1e-7, atol=1e-9)
        lines += [(statistic, name, statistics.median(t), min(t), len(t)) for name, t in times.items()]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    about = versions("numpy", "pandas", "polars", "duckdb", "pyarrow")
    text = [
        "# Variance and covariance by group",
        "",
        f"{options.rows} rows, one chunk, keys included, in turn. Written by `python -m benchmarks.cpu.grouped`.",
        "The machine was busy with other work on both cores: read ratios, not seconds.",
        f"{conditions()} {about}.",
        "",
        "| statistic | groups | | median, s | smallest, s | calls |",
        "|---|---|---|---|---|---|",
    ]
    for groups in GROUPS:
        for statistic, name, median, smallest, calls in measured(options.rows, groups, options.rounds):
            text.append(f"| {statistic} | {groups} | {name} | {median:.3f} | {smallest:.3f} | {calls} |")
            print(text[-1], flush=True)
    (RECORDS / "grouped.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
