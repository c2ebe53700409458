"""Accuracy of results of lower degree than their sums, at scales whose squares leave the range: `accuracy_scales.md`.

Shares, kurtosis, chi-squares, norms, products of quotients and ratios of float32 and float64, in accumulators (fed in
three ways), by NumPy and by CPU kernels, against exact values. `python -m benchmarks.accuracy.scales [--draws N]`
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import redalg as ra
from benchmarks.accuracy.feeding import FEEDS
from benchmarks.accuracy.specs import Arrays, error, fed, named
from benchmarks.harness.processes import RECORDS, conditions

SHORT, LONG = 64, 400


@dataclass(frozen=True)
class Spec:
    """A spec as text over the axis j, streams of scale 1, and how many units of roundoff a result may be off."""

    name: str
    text: str
    draw: Callable[[np.random.Generator], Arrays]
    units: float
    narrow: tuple[float, ...]  # scales of float32
    wide: tuple[float, ...]  # and of float64


@dataclass(frozen=True)
class Line:
    """One row of the table: the error of every way to compute it, the bound, the definition in float64."""

    spec: str
    dtype: str
    scale: float
    errors: dict[str, float]
    bound: float
    definition: float

    def __str__(self) -> str:
        errors = (f"{e:.1e}" for e in (*self.errors.values(), self.bound, self.definition))
        return f"| {self.spec} | {self.dtype} | {self.scale:g} | {' | '.join(errors)} |"


def _positive(rng: np.random.Generator) -> Arrays:
    return {name: rng.exponential(size=SHORT) + 0.25 for name in ("x", "z")}


def _signed(rng: np.random.Generator) -> Arrays:
    x, e = rng.standard_normal((2, SHORT))
    return {"x": x, "z": 2 * x + e}


def _alike(rng: np.random.Generator) -> Arrays:
    return {"x": 1 + 0.01 * rng.standard_normal(LONG)}


CENTRED = "a = mean[j](x[j]); b = mean[j](z[j]); "
NARROW, WIDE = (1e-25, 1.0, 1e25), (1e-170, 1.0, 1e170)
SPECS = (
    Spec("Herfindahl index", "return y = sum[j]((x[j]/sum[j](x[j]))**2)", _positive, 16, (1e-40, *NARROW), WIDE),
    Spec(
        "kurtosis",
        "m = mean[j](x[j]); return y = mean[j]((x[j] - m)**4)/mean[j]((x[j] - m)**2)**2",
        _signed,
        16,
        (1e-30, 1e-12, 1.0, 1e25),
        (1e-225, 1e-90, 1.0, 1e90),
    ),
    Spec(
        "chi-square about the mean",
        "e = mean[j](x[j]); return y = sum[j]((x[j] - e)**2/e)",
        _positive,
        16,
        NARROW,
        WIDE,
    ),
    Spec(
        "chi-square of expected counts",
        "n = sum[j](x[j]); e = n*z[j]/sum[j](z[j]); return y = sum[j]((x[j] - e)**2/e)",
        _positive,
        64,
        NARROW,
        WIDE,
    ),
    Spec("x/√Σx²", "return y = x[j]/sqrt(sum[j](x[j]**2))", _signed, 8, (1e-25, 1.0, 1e37), WIDE),
    Spec("Π x/mean x, 400", "return y = prod[j](x[j]/mean[j](x[j]))", _alike, 8 * LONG, (1e3, 1e-25), (1e3, 1e-170)),
    Spec(
        "Π x/√mean x², 400",
        "return y = prod[j](x[j]/sqrt(mean[j](x[j]**2)))",
        _alike,
        8 * LONG,
        (1e3, 1e-25),
        (1e3, 1e-170),
    ),
    Spec("Σxz/Σz²", "return y = sum[j](x[j]*z[j])/sum[j](z[j]**2)", _positive, 16, NARROW, WIDE),
    Spec("(Σx/Σz)²", "return y = (sum[j](x[j])/sum[j](z[j]))**2", _positive, 16, NARROW, WIDE),
    Spec(
        "coefficient of variation",
        "m = mean[j](x[j]); return y = sqrt(mean[j]((x[j] - m)**2))/m",
        _positive,
        16,
        NARROW,
        WIDE,
    ),
    Spec(
        "slope", CENTRED + "return y = sum[j]((x[j] - a)*(z[j] - b))/sum[j]((x[j] - a)**2)", _signed, 32, NARROW, WIDE
    ),
    Spec(
        "correlation",
        CENTRED + "return y = sum[j]((x[j] - a)*(z[j] - b))/sqrt(sum[j]((x[j] - a)**2)*sum[j]((z[j] - b)**2))",
        _signed,
        32,
        NARROW,
        WIDE,
    ),
)


@cache
def form_of(text: str) -> Any:
    return ra.derive_incremental(ra.parse(text), axis="j")


@cache
def compiled_for(text: str, target: str) -> Any:
    return form_of(text).compile(target)


def measure(spec: Spec, dtype: str, scale: float, draws: int, targets: Sequence[str] = ("numpy", "cpu")) -> Line:
    """The largest error of any element of any output over the draws, for every way to compute it."""
    form = form_of(spec.text)
    compiled = {target: compiled_for(spec.text, target) for target in targets}
    names = {d.name for d in form.spec.tensors}
    rng = np.random.default_rng([1, draws])
    errors, plain = dict.fromkeys((*FEEDS, *targets), 0.0), 0.0
    for _ in range(draws):
        arrays = {n: (scale * a).astype(dtype) for n, a in spec.draw(rng).items() if n in names}
        true = ra.reference(form.spec, exact=True, **arrays)
        with np.errstate(all="ignore"):
            plain = max(plain, worst(ra.reference(form.spec, **arrays), true))
            found = {feed: named(form, fed(form, arrays, feed))["y"] for feed in FEEDS}
            found |= {target: run(**arrays) for target, run in compiled.items()}
        errors = {way: max(e, worst(found[way], true)) for way, e in errors.items()}
    return Line(spec.name, dtype, scale, errors, spec.units * float(np.finfo(dtype).eps), plain)


def worst(got: Any, true: Any) -> float:
    """The largest relative error of an element."""
    pairs = zip(np.asarray(got).ravel(), np.asarray(true, dtype=object).ravel(), strict=True)
    return max(error(g, t) for g, t in pairs)


def cases() -> list[tuple[Spec, str, float]]:
    return [(s, d, x) for s in SPECS for d, scales in (("float32", s.narrow), ("float64", s.wide)) for x in scales]


def table(lines: Sequence[Line], draws: int) -> str:
    """The Markdown file."""
    beyond = sum(e > line.bound for line in lines for e in line.errors.values())
    total = sum(len(line.errors) for line in lines)
    head = [
        "# Accuracy at the ends of the range",
        "",
        f"Largest relative error over {draws} draws of {SHORT} elements (products: {LONG}) of the size of *scale*,",
        "against exact values of the arrays as they are. *One by one*, *chunks* and *merge tree* are accumulators: of",
        "single elements and of pieces, merged in order, and of pieces in a balanced tree. *Definition* is the spec as",
        "written, in float64 also for float32. *Bound*: some units of roundoff of the dtype (products: 8 a factor);",
        f"{total - beyond} of {total} errors are within.",
        "",
        f"`python -m benchmarks.accuracy.scales --draws {draws}`, {conditions()}",
        "",
        f"| spec | dtype | scale | {' | '.join(lines[0].errors)} | bound | definition |",
        "|---" * (5 + len(lines[0].errors)) + "|",
    ]
    return "\n".join([*head, *map(str, lines)]) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10)
    draws = parser.parse_args(arguments).draws
    lines = []
    for case in cases():
        lines.append(measure(*case, draws))
        print(lines[-1], flush=True)
    (RECORDS / "accuracy_scales.md").write_text(table(lines, draws))


if __name__ == "__main__":
    main()
