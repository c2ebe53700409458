"""A guard asks for what it must: an infinity that only a condition reads leaves the number."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import redalg as ra
from redalg.engine.passes import Planner, derive_plan
from redalg.graph import node as g
from redalg.testing import running

# indicator · value, which is NaN where the value is infinite and not selected: the values that have to be finite
PRODUCTS = {
    "sum[n](where(0 < a[v] + m[n,v], 1, 0)*c[n,v])": {"c"},
    "sum[n](where(m[n,v] > 0, 1, 0)*c[n,v]*a[v])": {"c", "a"},
    "mean[n](where(m[n,v] < c[n,v], 1, 0)*h[n])": {"h"},
    "sum[n](where(abs(m[n,v]) > a[v], 0, 1)*exp(c[n,v]))": {"c"},
}
ENDS = ("return y = {}", "s = {}; return y = 2*s, z = max[n](m[n,v])")


@pytest.mark.parametrize("body", PRODUCTS)
def test_a_condition_reads_what_no_guard_asks_for(body: str) -> None:
    end = ENDS[list(PRODUCTS).index(body) % 2]
    form = ra.derive_incremental(ra.parse(end.format(body)), axis="n")
    guard = form.plan.outputs[0].guard
    assert guard is not None
    asked = {part for s in form.plan.passes[-1].slots if s.kind == "all" for x in s.lift for part in names(x)}
    assert asked | (names(guard.finite) - {"n"}) >= PRODUCTS[body] and "m" not in asked
    rng, run = np.random.default_rng(len(body)), form.compile("numpy")
    for name, value in product([d.name for d in form.spec.tensors], (np.inf, -np.inf)):
        for _ in range(6):
            sizes = {"n": 4, "v": 2}
            arrays = {d.name: rng.uniform(-2, 2, [sizes[x] for x in d.axes]) for d in form.spec.tensors}
            arrays[name][tuple(rng.integers(k) for k in arrays[name].shape)] = value
            with np.errstate(all="ignore"):
                wanted = running.named(form, ra.reference(form.spec, **arrays))
                found = [running.named(form, run(**arrays)), running.merged(form, arrays, [0, 1, 1, 4], [1, 0])]
            for got, (key, true) in product(found, wanted.items()):
                void = np.isnan(got[key]) & (name in PRODUCTS[body])
                assert (void | np.isclose(got[key], true, 1e-12, 1e-12, equal_nan=True)).all(), (key, got, true, arrays)


def names(node: g.Node) -> set[str]:
    return {leaf.attr.name for leaf in g.leaves(node) if leaf.op == "tensor"}


@pytest.mark.parametrize("name", sorted(ra.catalog))
def test_a_guard_is_planned_alike_whatever_was_planned_before(name: str) -> None:
    entry = ra.catalog.entry(name)
    planner = Planner(entry.spec, entry.axis, 1, entry.assume, None)
    for level in (0, 1, 2, 3, 4, 1):
        guards = dict.fromkeys(entry.spec.outputs, level) if level else {}
        assert planner(guards) == derive_plan(entry.spec, entry.axis, 1, entry.assume, guards), level
