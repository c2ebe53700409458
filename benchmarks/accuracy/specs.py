"""Accuracy of forms for which nobody published an update, against 50 digits and beside their definition.

Part of `accuracy.md`: moments of functions of the elements, groups far apart, softmax behind a contraction. The bound
is what rounding of the values themselves costs: 8 ulp times how far they lie from 0 in units of their spread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.accuracy.feeding import FEEDS, balanced, cuts

LENGTH = 64
Arrays = dict[str, np.ndarray]
Draw = Callable[[np.random.Generator, float], Arrays]


@dataclass(frozen=True)
class Spec:
    """A spec as text over the axis j, and its streams at some offsets, each with a bound on the relative error."""

    name: str
    text: str
    draw: Draw
    offsets: tuple[float, ...]
    bound: Callable[[float], float]


@dataclass(frozen=True)
class Line:
    """One row of the table: our error, the bound on it, and the error of the definition in floating point."""

    spec: str
    offset: float
    feed: str
    ours: float
    bound: float
    definition: float

    def __str__(self) -> str:
        errors = (f"{e:.1e}" for e in (self.ours, self.bound, self.definition))
        return f"| {self.spec} | {self.offset:g} | {self.feed} | {' | '.join(errors)} |"


def _variance(value: str, tensors: str = "x[j]") -> str:
    return f"tensors {tensors}; u = mean[j]({value}); return y = mean[j](({value} - u)**2)"


def _around(rng: np.random.Generator, offset: float) -> Arrays:
    return {"x": offset + rng.standard_normal(LENGTH)}


def _single(rng: np.random.Generator, offset: float) -> Arrays:
    return {"x": (offset + rng.standard_normal(LENGTH)).astype(np.float32)}


def _small(rng: np.random.Generator, offset: float) -> Arrays:
    return {"x": offset * rng.standard_normal(LENGTH)}


def _pair(rng: np.random.Generator, offset: float) -> Arrays:
    return {"x": offset + rng.standard_normal(LENGTH), "z": offset + rng.standard_normal(LENGTH)}


def _groups(rng: np.random.Generator, offset: float) -> Arrays:
    member = np.arange(LENGTH) % 3
    x = offset * member + rng.standard_normal(LENGTH)
    return {"x": x, "g": member - 0.5, "G": 1.0 * (member[:, None] == np.arange(3))}


def _keys(rng: np.random.Generator, size: float) -> Arrays:
    k, v = rng.standard_normal((LENGTH, 4)), rng.standard_normal(LENGTH) + 3
    return {name: a.astype(np.float32) for name, a in {"q": size * rng.standard_normal(4), "k": k, "v": v}.items()}


TWO = (
    "tensors x[j], g[j]; a = sum[j](where(g[j] > 0, x[j], 0))/sum[j](where(g[j] > 0, 1, 0)); "
    "b = sum[j](where(g[j] > 0, 0, x[j]))/sum[j](where(g[j] > 0, 0, 1)); "
    "return v = sum[j](where(g[j] > 0, 0, (x[j] - b)**2)), w = sum[j](where(g[j] > 0, (x[j] - a)**2, 0))"
)
WITHIN = "tensors x[j], G[j,g]; a = sum[j](G[j,g]*x[j])/sum[j](G[j,g]); return v = sum[j](sum[g](G[j,g]*(x[j] - a)**2))"
MASKED = (
    "tensors x[j], G[j,g]; a = max[j](where(G[j,g] > 0, x[j], -oo)); "
    "return y = sum[j](sum[g](where(G[j,g] > 0, exp(x[j] - a), 0)))"
)
SOFTMAX = (
    "tensors q[d], k[j,d], v[j]; s = sum[d](q[d]*(k[j,d] - mean[j](k[j,d]))); p = exp(s - max[j](s)); "
    "return y = sum[j](p*v[j])/sum[j](p)"
)
ULP, SINGLE = 2.0**-52, 2.0**-23
SPECS = (
    Spec("variance of x²", _variance("x[j]**2"), _around, (0.0, 1e4, 1e7), lambda o: 8 * ULP * (8 + o)),
    Spec("variance of x³", _variance("x[j]**3"), _around, (0.0, 1e4, 1e7), lambda o: 8 * ULP * (8 + o)),
    Spec("variance of x·z", _variance("x[j]*z[j]", "x[j], z[j]"), _pair, (0.0, 1e4, 1e7), lambda o: 8 * ULP * (8 + o)),
    Spec("variance of √x, float32", _variance("sqrt(x[j])"), _single, (1e3, 1e5), lambda o: 8 * SINGLE * o),
    Spec("variance of log x", _variance("log(x[j])"), _around, (1e3, 1e6), lambda o: 8 * ULP * o * np.log(o)),
    Spec("variance of cos x", _variance("cos(x[j])"), _small, (1.0, 1e-3), lambda o: 8 * ULP * (8 + 2 / o**2)),
    Spec("variance of sin x", _variance("sin(x[j])"), _small, (1.0, 1e-8), lambda o: 64 * ULP),
    Spec("variance of exp x", _variance("exp(x[j])"), _around, (0.0, 20.0), lambda o: 8 * ULP * (16 + o)),
    Spec("variance of 1/x", _variance("1/x[j]"), _around, (1e3, 1e6), lambda o: 8 * ULP * (8 + o)),
    Spec("variances of two groups", TWO, _groups, (0.0, 1e6, 1e8), lambda o: 64 * ULP),
    Spec("variance within groups", WITHIN, _groups, (0.0, 1e6, 1e8), lambda o: 64 * ULP),
    Spec("masked exponentials", MASKED, _groups, (1.0, 1e3), lambda o: 16 * ULP * (1 + o)),
    Spec("softmax of centred scores, float32", SOFTMAX, _keys, (1.0, 1e2, 1e3), lambda o: 4 * SINGLE * (8 + 16 * o)),
)


def error(got: Any, true: Any) -> float:
    """Relative to the true value, for one number."""
    t, g = np.asarray(true, dtype=object)[()], np.asarray(got).tolist()
    return float(abs(g - t) / abs(t)) if np.isfinite(g) else np.inf


def fed(form: Any, arrays: Arrays, feed: str) -> dict[str, Any]:
    axes = {d.name: d.axes for d in form.spec.tensors}
    along = {n for n in arrays if "j" in axes[n]}
    parts = []
    length = next(arrays[n].shape[axes[n].index("j")] for n in along)
    for low, high in itertools.pairwise(cuts(length, feed)):
        parts.append(form.accumulator(**{n: a for n, a in arrays.items() if n not in along}))
        parts[-1].update(**{n: arrays[n].take(range(low, high), axes[n].index("j")) for n in along})

    def merge(a: Any, b: Any) -> Any:
        a.merge(b)
        return a

    if feed == "merge tree":
        total = balanced(parts, merge)
    else:
        total = parts[0]
        for part in parts[1:]:
            total.merge(part)
    return named(form, total.apply(**arrays) if any(o.keeps_axis for o in form.plan.outputs) else total.result())


def named(form: Any, result: Any) -> dict[str, Any]:
    return result if isinstance(result, dict) else {next(iter(form.spec.outputs)): result}


def measure(spec: Spec, offset: float, draws: int, seed: int = 1) -> list[Line]:
    """The largest error of any output over the draws, for every way of feeding."""
    form = ra.derive_incremental(ra.parse(spec.text), axis="j")
    rng = np.random.default_rng([seed, draws])
    names = {d.name for d in form.spec.tensors}
    worst, plain = dict.fromkeys(FEEDS, 0.0), 0.0
    for _ in range(draws):
        arrays = {n: a for n, a in spec.draw(rng, offset).items() if n in names}
        true = named(form, ra.reference(form.spec, exact=True, **arrays))
        written = named(form, ra.reference(form.spec, **arrays))
        plain = max(plain, *(error(written[o], t) for o, t in true.items()))
        for feed in FEEDS:
            got = fed(form, arrays, feed)
            worst[feed] = max(worst[feed], *(error(got[o], t) for o, t in true.items()))
    return [Line(spec.name, offset, feed, worst[feed], spec.bound(offset), plain) for feed in FEEDS]


def table(lines: Sequence[Line], draws: int) -> str:
    """The second table of `accuracy.md`."""
    head = [
        "",
        "## Specs without a published update",
        "",
        f"Largest relative error over {draws} draws of {LENGTH} elements; *bound* is what rounding of the values costs",
        "that are averaged; *definition* is the spec as written, in float64. The offset is that of x, the scale of x",
        "(cosine, sine), how far groups lie apart, or the size of scores.",
        "",
        "| spec | offset | fed | redalg | bound | definition |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *map(str, lines)]) + "\n"
