"""Accuracy of derived forms and of published updates against 50 digits: writes `accuracy.md` and `accuracy.json`.

For every statistic, offset, scale and way of feeding: the largest relative error over 100 draws of streams of 64
elements, not counted below 2 ulp (4.4e-16). `python -m benchmarks.accuracy [--draws N]`
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.accuracy import specs as accuracy_specs
from benchmarks.accuracy import truth
from benchmarks.accuracy.feeding import FEEDS, run_form, run_peer
from benchmarks.accuracy.peers import MOMENTS, PAIRS, SHARES, SOFTMAX, Peer
from benchmarks.harness.processes import RECORDS, conditions, provenance, stamp

FLOOR = 2 * 2.0**-52
LENGTH = 64
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Setting:
    """Streams are offset + scale·noise."""

    name: str
    offset: float = 0.0
    scale: float = 1.0


OFFSETS = tuple(Setting(f"offset {o:g}", offset=o) for o in (0.0, 1e4, 1e8, 1e15))
SECOND = (*OFFSETS, Setting("scale 1e+150", scale=1e150), Setting("scale 1e-150", scale=1e-150))
HIGHER = (*OFFSETS, Setting("scale 1e+70", scale=1e70), Setting("scale 1e-70", scale=1e-70))
WIDE = tuple(Setting(f"scale {s:g}", scale=s) for s in (1.0, 1e-170, 1e170, 1e-290, 1e290))


@dataclass(frozen=True)
class Case:
    """Statistics measured together: the spec, how its arguments come from the streams, truth and competitors."""

    spec: str  # of the catalog, or of `WRITTEN`
    outputs: dict[str, str]  # our output -> name of the statistic
    draw: Callable[[np.random.Generator, Setting, int], Arrays]
    truth: Callable[[Arrays], dict[str, list[Any]]]
    peers: tuple[Peer, ...]
    settings: tuple[Setting, ...] = SECOND
    bound: Callable[[Arrays], Arrays] = lambda a: {}  # arguments without the streamed axis
    streamed: Callable[[Arrays], Arrays] = lambda a: a


def one_stream(rng: np.random.Generator, s: Setting, draws: int) -> Arrays:
    """Skewed noise (exponential), so that the third moment is not an accident of rounding."""
    return {"x": s.offset + s.scale * (rng.exponential(size=(draws, LENGTH)) * 4 - 4)}


def positive_stream(rng: np.random.Generator, s: Setting, draws: int) -> Arrays:
    return {"x": s.scale * (rng.exponential(size=(draws, LENGTH)) + 0.25)}


def two_streams(rng: np.random.Generator, s: Setting, draws: int) -> Arrays:
    x, e = rng.standard_normal((2, draws, LENGTH)) * 4
    return {"x": s.offset + s.scale * x, "y": s.offset + s.scale * (0.5 * x + 0.25 * e + 3)}


def scores(rng: np.random.Generator, s: Setting, draws: int) -> Arrays:
    x, v = rng.standard_normal((2, draws, LENGTH))
    return {"x": s.offset + s.scale * 4 * x, "v": v + 3}


def _moments_truth(a: Arrays) -> dict[str, list[Any]]:
    return truth.every_draw(truth.moments, a["x"])


def _pairs_truth(a: Arrays) -> dict[str, list[Any]]:
    return truth.every_draw(truth.pairs, a["x"], a["y"])


def _shares_truth(a: Arrays) -> dict[str, list[Any]]:
    return truth.every_draw(truth.shares, a["x"])


def _softmax_truth(a: Arrays) -> dict[str, list[Any]]:
    return truth.every_draw(truth.softmax, a["x"], a["v"])


def kurtosis_ratio() -> ra.Spec:
    """m4/m2²: the excess of the catalog's kurtosis over 3 may be anything near 0, where relative error means little."""
    x = ra.tensors("x[i,j]")
    d = x - ra.mean(x, "j")
    return ra.Spec(b2=ra.mean(d**4, "j") / ra.mean(d**2, "j") ** 2)


def shares() -> ra.Spec:
    """What is of lower degree than its sums of squares: 2-norm, Herfindahl index, coefficient of variation."""
    x = ra.tensors("x[i,j]")
    mean, share = ra.mean(x, "j"), x / ra.sum(x, "j")
    deviation = ra.sqrt(ra.mean((x - mean) ** 2, "j"))
    return ra.Spec(norm=ra.sqrt(ra.sum(x**2, "j")), share=ra.sum(share**2, "j"), variation=deviation / mean)


WRITTEN = {"kurtosis ratio": kurtosis_ratio, "shares": shares}
CASES = (
    Case("variance", {"var": "variance"}, one_stream, _moments_truth, MOMENTS),
    Case("skewness", {"g1": "skewness"}, one_stream, _moments_truth, MOMENTS, HIGHER),
    Case("kurtosis ratio", {"b2": "kurtosis"}, one_stream, _moments_truth, MOMENTS, HIGHER),
    Case(
        "shares",
        {"norm": "2-norm", "share": "Herfindahl index", "variation": "coefficient of variation"},
        positive_stream,
        _shares_truth,
        SHARES,
        WIDE,
    ),
    Case("covariance", {"cov": "covariance"}, two_streams, _pairs_truth, PAIRS),
    Case("linear_regression", {k: k for k in ("slope", "intercept", "rss")}, two_streams, _pairs_truth, PAIRS),
    Case("logsumexp", {"y": "logsumexp"}, scores, _softmax_truth, SOFTMAX, streamed=lambda a: {"x": a["x"]}),
    Case(
        "attention",
        {"O": "attention"},
        scores,
        _softmax_truth,
        SOFTMAX,
        bound=lambda a: {"Q": np.ones((len(a["x"]), 1, 1))},
        streamed=lambda a: {"K": a["x"][:, :, None], "V": a["v"][:, :, None]},
    ),
)


@dataclass(frozen=True)
class Cell:
    """One entry of the table. `best` is the smallest error of the published updates, `by` whose it is."""

    statistic: str
    setting: str
    feed: str
    ours: float
    best: float
    by: str
    peers: dict[str, float]

    @property
    def at_least_as_good(self) -> bool:
        return self.ours <= self.best

    def __str__(self) -> str:
        gain = self.best / self.ours if np.isfinite(self.best) else np.inf
        mark = "" if self.at_least_as_good else " **worse**"
        best = f"{self.best:.1e} ({self.by})" if np.isfinite(self.best) else "none finite"
        return f"| {self.statistic} | {self.setting} | {self.feed} | {self.ours:.1e}{mark} | {best} | {gain:.1e} |"


def floored(errors: np.ndarray) -> float:
    return max(float(errors.max()), FLOOR)


def measure(case: Case, setting: Setting, draws: int, seed: int = 1) -> list[Cell]:
    """All cells of one case at one offset or scale."""
    arrays = case.draw(np.random.default_rng([seed, draws]), setting, draws)
    true = case.truth(arrays)
    spec = WRITTEN[case.spec]() if case.spec in WRITTEN else ra.catalog[case.spec]
    form = ra.derive_incremental(spec, axis="j")
    cells = []
    for feed in FEEDS:
        ours = run_form(form, case.streamed(arrays), feed, case.bound(arrays))
        others = {peer.name: run_peer(peer, arrays, feed) for peer in case.peers}
        for output, statistic in case.outputs.items():
            errors = {
                name: floored(truth.relative_errors(result[statistic], true[statistic]))
                for name, result in others.items()
                if result is not None and statistic in result
            }
            by = min((p.name for p in case.peers if p.update and p.name in errors), key=lambda name: errors[name])
            mine = floored(truth.relative_errors(ours[output], true[statistic]))
            cells.append(Cell(statistic, setting.name, feed, mine, errors[by], by, errors))
    return cells


def table(cells: Sequence[Cell], draws: int) -> str:
    """The Markdown file."""
    worse = [c for c in cells if not c.at_least_as_good]
    head = [
        "# Accuracy against 50 digits",
        "",
        f"Largest relative error over {draws} draws of {LENGTH} elements, floor 2 ulp = {FLOOR:.1e}. Written by",
        "`python -m benchmarks.accuracy`. *Best published* is the smallest of the errors of the published updates of",
        "`benchmarks/accuracy/peers.py` fed the same pieces (all of them, and the textbook sums: `accuracy.json`).",
        "",
        conditions(),
        provenance([stamp()] * len(cells)),
        "",
        f"Of {len(cells)} cells {len(cells) - len(worse)} are at least as accurate as the best published update,",
        f"{len(worse)} are worse.",
        "",
        "| statistic | input | fed | redalg | best published | published / redalg |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *map(str, cells)]) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    draws = parser.parse_args(arguments).draws
    cells: list[Cell] = []
    start = time.perf_counter()
    for case in CASES:
        for setting in case.settings:
            cells += measure(case, setting, draws)
            print(f"\r{time.perf_counter() - start:6.1f} s  {case.spec}: {setting.name}    ", end="", file=sys.stderr)
    few = -(-draws // 5)  # exact references take their time
    lines = [x for spec in accuracy_specs.SPECS for o in spec.offsets for x in accuracy_specs.measure(spec, o, few)]
    print(file=sys.stderr)
    (RECORDS / "accuracy.md").write_text(table(cells, draws) + accuracy_specs.table(lines, few))
    (RECORDS / "accuracy.json").write_text(json.dumps([asdict(c) | stamp() for c in (*cells, *lines)], indent=1))
    print("\n".join(str(c) for c in cells if not c.at_least_as_good) or "no cell is worse than the best published")
