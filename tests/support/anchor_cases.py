"""What the tests of anchors share: specs whose values stand far from 0 or from each other, and how they are fed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import redalg as ra

EPS = 2.0**-52
Arrays = dict[str, np.ndarray]


# --- feeding --------------------------------------------------------------------------------------------------------


def folded(form: Any, arrays: Arrays, cuts: Sequence[int], rng: np.random.Generator) -> dict[str, Any]:
    """Accumulators over unequal pieces (empty ones included), merged by a random tree."""
    axes = {d.name: d.axes for d in form.spec.tensors}
    along = {name for name in arrays if "j" in axes[name]}
    length = next(arrays[name].shape[axes[name].index("j")] for name in along)
    places = [0, *sorted(min(c, length) for c in cuts), length]
    pieces = []
    for low, high in zip(places, places[1:], strict=False):
        pieces.append(form.accumulator(**{n: a for n, a in arrays.items() if n not in along}))
        part = {n: arrays[n].take(range(low, high), axis=axes[n].index("j")) for n in along}
        pieces[-1].update(**part)
    while len(pieces) > 1:
        k = int(rng.integers(len(pieces) - 1))
        pieces[k].merge(pieces.pop(k + 1))
    return by_name(form, pieces[0].result())


def by_name(form: Any, result: Any) -> dict[str, Any]:
    return result if isinstance(result, dict) else {next(iter(form.spec.outputs)): result}


def error(got: Any, true: Any) -> float:
    """The largest error relative to the largest true value."""
    size = max(abs(t) for t in np.ravel(np.asarray(true, dtype=object)))
    apart = [abs(a - b) for a, b in zip(np.ravel(got).tolist(), np.ravel(np.asarray(true, dtype=object)), strict=True)]
    return float(max(apart) / size) if size else float(max(apart))


@cache
def derived(text: str) -> Any:
    return ra.derive_incremental(ra.parse(text), axis="j")


# --- moments of generated values ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """u as text over x (and z), the streams it is evaluated on, and u in floating point."""

    text: str
    draw: Callable[[np.random.Generator, int, float], Arrays]
    tensors: str = "{x}[j]"


def near(centre: float, spread: float = 1.0) -> Callable[[np.random.Generator, int, float], Arrays]:
    """centre·(1 + noise/ratio): values near a centre, that many times their spread away from 0."""
    return lambda rng, n, ratio: {"x": centre * (1 + spread * rng.standard_normal(n) / ratio)}


def two(rng: np.random.Generator, n: int, ratio: float) -> Arrays:
    return {name: 3 * (1 + rng.standard_normal(n) / ratio) for name in ("x", "z")}


VALUES = {
    "square": Value("{x}[j]**2", near(-7.0)),
    "cube": Value("{x}[j]**3", near(5.0)),
    "seventh": Value("{x}[j]**7", near(1.5)),
    "root": Value("sqrt({x}[j])", near(1000.0)),
    "reciprocal": Value("1/{x}[j]", near(0.25)),
    "power": Value("{x}[j]**(3/2)", near(9.0)),
    "logarithm": Value("log({x}[j])", near(1e6)),
    "cosine": Value("cos({x}[j])", near(1.0)),
    "sine": Value("sin({x}[j])", near(2.0)),
    "tanh": Value("tanh({x}[j])", near(0.5)),
    "size": Value("abs({x}[j])", near(-4.0)),
    "product": Value("{x}[j]*{z}[j]", two, "{x}[j], {z}[j]"),
    "of squares": Value("{x}[j]**2*{z}[j]", two, "{x}[j], {z}[j]"),
    "sum": Value("({x}[j] + {z}[j]**2)", two, "{x}[j], {z}[j]"),
    "scaled": Value("3*{x}[j]**2", near(2.0)),
    "selected": Value("where({x}[j] > {z}[j], {x}[j], 2*{z}[j])", two, "{x}[j], {z}[j]"),
    "exponential": Value("exp({x}[j])", near(1.0)),
    "decay": Value("exp(-{x}[j]/2)", near(3.0)),
    "plain": Value("{x}[j]", near(1.0)),
}
WEIGHTS = {
    "none": ("", "mean[j]({u})", "mean[j]({t})"),
    "weighted": ("{w}[j]", "sum[j]({w}[j]*({u}))/sum[j]({w}[j])", "sum[j]({w}[j]*({t}))/sum[j]({w}[j])"),
    "masked": (
        "{w}[j]",
        "sum[j](where({w}[j] > 1, {u}, 0))/sum[j](where({w}[j] > 1, 1, 0))",
        "sum[j](where({w}[j] > 1, {t}, 0))/sum[j](where({w}[j] > 1, 1, 0))",
    ),
    "not masked": (
        "{w}[j]",
        "sum[j](where({w}[j] > 1, 0, {u}))/sum[j](where({w}[j] > 1, 0, 1))",
        "sum[j](where({w}[j] > 1, 0, {t}))/sum[j](where({w}[j] > 1, 0, 1))",
    ),
}


def moment(value: str, weight: str, power: int, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    x, z, w = names
    known = {"x": x, "z": z, "w": w}
    u = VALUES[value].text.format(**known)
    held, mean, whole = WEIGHTS[weight]
    tensors = ", ".join(t for t in (VALUES[value].tensors.format(**known), held and f"{w}[j]") if t)
    m = mean.format(u=u, **known)
    y = whole.format(t=f"({u} - centre)**{power}", **known)
    return f"tensors {tensors}; centre = {m}; return y = {y}", known


# --- one anchor per target ------------------------------------------------------------------------------------------

TWO = (
    "tensors x[j], g[j]; a = sum[j](where(g[j] > 0, x[j], 0))/sum[j](where(g[j] > 0, 1, 0)); "
    "b = sum[j](where(g[j] > 0, 0, x[j]))/sum[j](where(g[j] > 0, 0, 1)); "
)
GROUPS = {
    "two outputs": TWO
    + "return v = sum[j](where(g[j] > 0, (x[j] - a)**2, 0)), w = sum[j](where(g[j] > 0, 0, (x[j] - b)**2))",
    "one sum": TWO + "return v = sum[j](where(g[j] > 0, (x[j] - a)**2, (x[j] - b)**2))",
    "skew": TWO + "return v = sum[j](where(g[j] > 0, (x[j] - a)**3, 0)), w = sum[j](where(g[j] > 0, 0, (x[j] - b)**3))",
    "means beside": TWO + "return a = a, b = b, v = sum[j](where(g[j] > 0, (x[j] - a)**2, 0))",
    "two weights": (
        "tensors x[j], p[j], q[j]; a = sum[j](p[j]*x[j])/sum[j](p[j]); b = sum[j](q[j]*x[j])/sum[j](q[j]); "
        "return v = sum[j](p[j]*(x[j] - a)**2), w = sum[j](q[j]*(x[j] - b)**2)"
    ),
    "weights of one sum": (
        "tensors x[j], p[j], q[j]; a = sum[j](p[j]*x[j])/sum[j](p[j]); b = sum[j](q[j]*x[j])/sum[j](q[j]); "
        "return v = sum[j](p[j]*(x[j] - a)**2 + q[j]*(x[j] - b)**2)"
    ),
    "between": (  # both locations in one term: each factor about its own
        "tensors x[j], p[j]; a = sum[j](p[j]*x[j])/sum[j](p[j]); b = mean[j](x[j]); "
        "return v = sum[j](p[j]*(x[j] - a)*(x[j] - b)**2)"
    ),
    "groups": (
        "tensors x[j], G[j,g]; a = sum[j](G[j,g]*x[j])/sum[j](G[j,g]); return v = sum[j](sum[g](G[j,g]*(x[j] - a)**2))"
    ),
    "groups by a mask": (
        "tensors x[j], G[j,g]; a = sum[j](where(G[j,g] > 0, x[j], 0))/sum[j](where(G[j,g] > 0, 1, 0)); "
        "return v = sum[j](sum[g](where(G[j,g] > 0, (x[j] - a)**2, 0)))"
    ),
    "groups summed last": (
        "tensors x[j], G[j,g]; a = sum[j](G[j,g]*x[j])/sum[j](G[j,g]); return v = sum[g](sum[j](G[j,g]*(x[j] - a)**2))"
    ),
    "every group": (
        "tensors x[j], G[j,g]; a = sum[j](G[j,g]*x[j])/sum[j](G[j,g]); return v = sum[j](G[j,g]*(x[j] - a)**2), a = a"
    ),
    "groups of squares": (
        "tensors x[j], G[j,g]; a = sum[j](G[j,g]*x[j]**2)/sum[j](G[j,g]); "
        "return v = sum[j](sum[g](G[j,g]*(x[j]**2 - a)**2))"
    ),
}


def grouped(text: str, apart: float, rng: np.random.Generator, n: int = 40) -> Arrays:
    """Groups whose means are `apart` standard deviations from each other."""
    member = rng.integers(0, 3, n)
    found = {"g": np.where(member > 0, 1.0, -1.0), "p": (member > 0) * rng.uniform(0.5, 1.5, n)}
    found |= {"q": (member == 0) * rng.uniform(0.5, 1.5, n), "G": 1.0 * (member[:, None] == np.arange(3))}
    at = member if "G[" in text else member > 0
    found["x"] = rng.standard_normal(n) + apart * at
    return {name: a for name, a in found.items() if f"{name}[" in text}


# --- softmax --------------------------------------------------------------------------------------------------------

SCORES = {
    "centred keys": "s = sum[d](q[d]*(k[j,d] - mean[j](k[j,d])))",
    "weighted centre": "s = sum[d](q[d]*(k[j,d] - sum[j](w[j]*k[j,d])/sum[j](w[j])))",
    "two contractions": "s = sum[d](q[d]*(k[j,d] - mean[j](k[j,d]))) + sum[e](r[e]*(l[j,e] - mean[j](l[j,e])))",
    "another's mean": "s = sum[d](q[d]*(k[j,d] - mean[j](h[j,d])))",
    "bias": "s = sum[d](q[d]*(k[j,d] - mean[j](k[j,d]))) + b[j]",
    "queries": "s = sum[d](q[i,d]*(k[j,d] - mean[j](k[j,d])))",
    "scaled": "s = 3*sum[d](q[d]*(k[j,d] - mean[j](k[j,d])))",
    "sum of keys": "s = sum[d](q[d]*(k[j,d] + h[j,d] - mean[j](k[j,d])))",
}
TENSORS = {
    "q[d]": 5,
    "q[i,d]": 5,
    "k[j,d]": 5,
    "h[j,d]": 5,
    "r[e]": 2,
    "l[j,e]": 2,
    "w[j]": None,
    "b[j]": None,
    "v[j]": None,
}
WAYS = {
    "softmax": "m = max[j](s); p = exp(s - m); return y = sum[j](p*v[j])/sum[j](p), t = m + log(sum[j](p))",
    "without its maximum": "return y = sum[j](exp(s)*v[j])/sum[j](exp(s))",
}


def scored(name: str, way: str) -> str:
    body = f"{SCORES[name]}; {WAYS[way]}"
    return f"tensors {', '.join(t for t in TENSORS if t in body)}; {body}"


def scores(text: str, size: float, rng: np.random.Generator, n: int = 40, dtype: Any = np.float32) -> Arrays:
    found = {}
    for t in TENSORS:
        if t in text:
            name, axes = t.rstrip("]").split("[")
            lengths = {"j": n, "d": 5, "e": 2, "i": 3}
            a = rng.standard_normal([lengths[x] for x in axes.split(",")])
            found[name] = (a * (size if name in "qrb" else 1)).astype(dtype)
    return found


MASKED = {
    "elements first": "tensors G[j,g], x[j]; a = max[j](where(G[j,g] > 0, x[j], -oo)); "
    "return y = sum[j](sum[g](where(G[j,g] > 0, exp(x[j] - a), 0)))",
    "groups first": "tensors G[j,g], x[j]; a = max[j](where(G[j,g] > 0, x[j], -oo)); "
    "return y = sum[g](sum[j](where(G[j,g] > 0, exp(x[j] - a), 0)))",
    "with values": "tensors G[j,g], x[j], v[j]; a = max[j](where(G[j,g] > 0, x[j], -oo)); "
    "return y = sum[j](sum[g](where(G[j,g] > 0, exp(x[j] - a)*v[j], 0)))",
    "every group": "tensors G[j,g], x[j]; a = max[j](where(G[j,g] > 0, x[j], -oo)); "
    "l = sum[j](where(G[j,g] > 0, exp(x[j] - a), 0)); return y = a + log(l)",
    "two masks": "tensors h[j], x[j]; a = max[j](where(h[j] > 0, x[j], -oo)); b = max[j](where(h[j] > 0, -oo, x[j])); "
    "l = sum[j](where(h[j] > 0, exp(x[j] - a), 0)); k = sum[j](where(h[j] > 0, 0, exp(x[j] - b))); "
    "return y = a + log(l) - b - log(k)",
}
