"""`python -m benchmarks.cpu.grouped`: variance and covariance by group beside pandas, over 10 million rows.

Contenders take turns in one process and every one computes the same from the same arrays; results are compared before
times are kept. "Python" is a function of a programmer's own, called once per group (`groupby.agg`); it runs once.
Needs pandas (the extra `engines`).
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
Call = Callable[[], np.ndarray]


def contenders(rows: int, groups: int) -> dict[str, dict[str, Call]]:
    """Statistic -> name -> call; values in order of first appearance."""
    import pandas

    x, y = ra.tensors("x[j] y[j]")
    var = ra.derive_incremental(ra.Spec(v=ra.var(x, "j", ddof=1)))
    cov = ra.derive_incremental(ra.Spec(c=ra.cov(x, y, "j", ddof=1)))
    rng = np.random.default_rng(0)
    by, xs, ys = rng.integers(0, groups, rows), rng.normal(size=rows), rng.normal(size=rows)
    frame = pandas.DataFrame({"by": by, "x": xs, "y": ys})

    def ours(form: Any, **arrays: np.ndarray) -> np.ndarray:
        held = form.grouped()
        held.update(by=by, **arrays)
        return np.asarray(held.result()[1])

    def grouped() -> Any:  # made anew in every call: pandas keeps the keys it has factorised
        return frame.groupby("by", sort=False)

    found: dict[str, dict[str, Call]] = {
        "var": {
            "redalg": lambda: ours(var, x=xs),
            "pandas": lambda: grouped()["x"].var().to_numpy(),
            "Python": lambda: (
                grouped()["x"].agg(lambda v: np.var(v.to_numpy(), ddof=1) if len(v) > 1 else np.nan).to_numpy()
            ),
        },
        "cov": {"redalg": lambda: ours(cov, x=xs, y=ys)},
    }
    if groups <= 10_000:  # pandas takes milliseconds for each group
        found["cov"]["pandas"] = lambda: grouped()[["x", "y"]].cov()["y"].to_numpy()[::2]
    return found


def measured(rows: int, groups: int, rounds: int) -> list[tuple[str, str, float, float, int]]:
    """Statistic, name, median and smallest seconds, calls."""
    lines = []
    for statistic, calls in contenders(rows, groups).items():
        expected = calls["pandas" if "pandas" in calls else "redalg"]()
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(rounds):
            for name in [*calls][number % len(calls) :] + [*calls][: number % len(calls)]:
                if name == "Python" and times[name]:
                    continue
                begin = time.perf_counter()
                value = calls[name]()
                times[name].append(time.perf_counter() - begin)
                np.testing.assert_allclose(value, expected, rtol=1e-7, atol=1e-9)
        lines += [(statistic, name, statistics.median(t), min(t), len(t)) for name, t in times.items()]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    about = versions("numpy", "pandas")
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
            text.append(f"| {statistic} | {groups} | {name} | {median:.2f} | {smallest:.2f} | {calls} |")
            print(text[-1], flush=True)
    (RECORDS / "grouped.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
