"""One NaN or infinity at any place of any tensor of specs drawn at random: a result is what the definition is, or NaN
where the form assumes finite stage values.

Masks read positions, conditions and inequalities; what multiplies them are tensors and stages along either axis.
"""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError

LEAVES = ("x[i,j]", "z[i,j]", "b[j]", "a[i]")
DECLARED = {"x": "x[i,j]", "z": "z[i,j]", "b": "b[j]", "a": "a[i]", "k": "k[i,j] bool"}


def element(r: random.Random, leaves: list[str], depth: int) -> str:
    if depth == 0 or r.random() < 0.2:
        return r.choice(leaves)

    def e() -> str:
        return element(r, leaves, depth - 1)

    mask = r.choice([f"{e()} > {e()}", "k[i,j]", "index[j] <= index[i]", "index[i] < index[j]"])
    return r.choice(
        [
            lambda: f"({e()} + {e()})",
            lambda: f"({e()} - {e()})",
            lambda: f"{e()}*{e()}",
            lambda: f"({e()})**2",
            lambda: f"exp({r.choice(leaves)}/4)",
            lambda: f"abs({e()})",
            lambda: f"maximum({e()}, {e()})",
            lambda: f"where({mask}, {e()}, 0)",
            lambda: f"where({mask}, {e()}, 0)*{e()}",
            lambda: f"where({mask}, {e()}, {e()})",
            lambda: f"{e()}/(({e()})**2 + 1)",
        ]
    )()


def drawn(seed: int) -> tuple[str, str]:
    """A spec, and the axis of its stream."""
    r, stages, values = random.Random(seed), list[str](), list[str]()
    for n in range(r.randint(0, 2)):
        kind, over = r.choice(["sum", "mean", "max", "min"]), r.choice("ij")
        stages.append(f"g{n} = {kind}[{over}]({element(r, [*LEAVES, *values], 1)})")
        values.append(f"g{n}")
    axis, kind = r.choice("iij"), r.choice(["sum", "sum", "mean", "max"])
    body = f"{kind}[{axis}]({element(r, [*LEAVES, *values], 3)})"
    text = "; ".join([*stages, f"return U = {r.choice(['{}', '{}', '({})*b[j]', '({})**2']).format(body)}"])
    return f"tensors {', '.join(d for n, d in DECLARED.items() if f'{n}[' in text)}; {text}", axis


@pytest.mark.parametrize("part", range(6))
def test_results_are_the_definition_or_nan_that_is_assumed(part: int) -> None:
    seen = 0
    for seed in range(100 * part, 100 * part + 22):
        text, axis = drawn(seed)
        try:
            spec = ra.parse(text)
            form = ra.derive_incremental(spec, axis=axis, max_passes=4)
        except RedalgError:
            continue  # a stage that nothing reads, or no form
        rng = np.random.default_rng(seed)
        sizes = {"i": 3, "j": 4}
        given = {
            t.name: rng.random([sizes[a] for a in t.axes]) < 0.5
            if "bool" in t.domain
            else rng.integers(-6, 7, [sizes[a] for a in t.axes]) / 4
            for t in spec.tensors
        }
        run, assumed = form.compile("numpy"), "finite_stage_values" in form.assumptions
        for name, x in given.items():
            for at in np.ndindex(x.shape) if x.dtype.kind == "f" else ():
                for value in (np.nan, np.inf, -np.inf):
                    changed = x.copy()
                    changed[at] = value
                    with warnings.catch_warnings(), np.errstate(all="ignore"):
                        warnings.simplefilter("ignore")
                        wanted = np.asarray(ra.reference(spec, **{**given, name: changed}))
                        found = np.asarray(run(**{**given, name: changed}))
                    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
                    same |= abs(found - wanted) <= 1e-7 * (1 + abs(wanted))
                    assert (same | np.isnan(found)).all(), (seed, text, axis, name, at, value, found, wanted)
                    assert same.all() or assumed, (seed, text, axis, name, at, value)
        seen += 1
    assert seen >= 8
