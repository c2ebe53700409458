"""Weights beside exponentials less 1: elements far above the others have a weight of 0, or next to none.

What is centred on the largest element sees the others from there, and sums of e^(u-A) - 1 would be as large as their
weights, times e^(A-D). The bound is a few roundings of what the definition adds up: of w·e^(x-u) and w where elements
are far from u, of w·(x-u) where all of weight are near it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import redalg as ra
from tests.support.forms import Forms
from tests.support.sample import deep
from tests.support.streams import three_ways

PLACES = {
    "max": "u = max[j](z[j])",
    "mean": "u = mean[j](z[j])",
    "own mean": "u = mean[j](x[j])",
    "weighted": "u = sum[j](w[j]*x[j])/sum[j](w[j])",
}
BODIES = {"expm1": "w[j]*expm1(x[j] - u)", "exp": "w[j]*(exp(x[j] - u) - 1)", "less": "w[j]*(1 - exp(x[j] - u))"}
SPECS = {
    f"{kind} {place} {body}": f"{PLACES[place]}; return s = {kind}[j]({BODIES[body]})"
    for kind, place, body in product(("sum", "mean", "var"), PLACES, BODIES)
}
FORMS = Forms(SPECS, "j")
FAST = [name for name in SPECS if "expm1" in name and "weighted" not in name]
Arrays = dict[str, np.ndarray]


def drawn(seed: int, far: float, little: float, spread: float) -> Arrays:
    """Elements about 0, `spread` apart, z about them; at some place one that is `far` above, of `little` weight."""
    rng = np.random.default_rng(seed)
    n = 5 + seed % 7
    x, z, w = spread * rng.normal(size=n), spread * rng.normal(size=n), rng.uniform(0.5, 2, n)
    place = rng.integers(n)
    x[place], w[place] = far, little
    return {"x": x, "z": z, "w": w}


def centre(place: str, x: Any, z: Any, w: Any) -> Any:
    return {"max": z.max(), "mean": z.mean(), "own mean": x.mean(), "weighted": (w * x).sum() / w.sum()}[place]


def bound(name: str, x: Any, z: Any, w: Any) -> float:
    """What rounding may cost, in units of it."""
    kind, rest = name.split(" ", 1)
    u = centre(rest.rsplit(" ", 1)[0], x, z, w)
    held = w > 0
    near = float(np.max(np.abs(x - u), where=held, initial=0.0))
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.where(held, w * np.exp(np.minimum(x - u, 700)) * (1 + abs(x - u)), 0) + w
        size = np.where(held, size * min(1.0, 4 * near), 0)
    if kind == "var":
        return float((size**2).sum() / 2 + (w**2).max())  # squares are written out: docs/limits.md
    return float(size.sum())


@pytest.mark.parametrize("name", [*FAST, *deep([n for n in SPECS if n not in FAST])])
def test_what_has_no_weight_takes_no_digits(name: str) -> None:
    form = FORMS[name]
    used = {t.name for t in form.spec.tensors}
    for seed, (far, little, spread) in enumerate(product((0, 1, 5, 30, 60, 300), (0.0, 1e-30), (1e-6, 1.0, 8.0))):
        if little and far > 60 or "own" in name and far > 60:
            continue  # the element counts as much as it is large, or moves the mean beyond the range
        every = drawn(seed, far, little, spread)
        given = {n: a for n, a in every.items() if n in used}
        true = float(np.asarray(ra.reference(form.spec, exact=True, **given)).item())
        most = 64 * len(every["x"]) * 2.0**-53 * bound(name, **every)
        for where, found in three_ways(form, given, seed):
            assert abs(found - true) <= most, (where, far, little, spread, found, true, most)
            assert "var" not in name or found >= -most


PROVED = [name for name in SPECS if "weighted" not in name]  # (a quotient beside elements is no variable)


@pytest.mark.parametrize("name", [*FAST[::2], *deep([n for n in PROVED if n not in FAST[::2]])])
def test_both_forms_are_proved(name: str) -> None:
    FORMS[name].certificate.verify()
