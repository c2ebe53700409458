"""Names of axes that contractions bind: one inside another, over an axis of the same name, keeps its own."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.graph import node as g
from tests.support.sample import one_in

INSIDE = "sum[d](k[j,d]*q[i,d])"
MAPS = (
    "sigmoid(where(eq(index[i], index[j]), -s, s))",
    "sigmoid(s)",
    "exp(s)",
    "s**2",
    "relu(s)",
    "where(0 < s, s, 1)",
)
BODIES = (
    "sum[j](sum[d](sum[i](where(ne(index[i], index[j]), f*q[i,d]*u[j,d]/size[j], 0))))",
    "sum[j](sum[d](sum[i](f*q[i,d]*u[j,d]*mean[j](u[j,d]))))",
    "sum[j](sum[d](f*q[i,d]*(u[j,d] - mean[j](u[j,d]))))",
    "sum[j](sum[i](f*sum[d](u[j,d]*max[j](u[j,d]*q[i,d]))))",
)


@pytest.mark.parametrize("body", one_in(2, BODIES, first=1))
def test_contractions_with_stage_values_around_others_of_the_same_axis(body: str) -> None:
    """Forms are the definition where a contraction is opened that holds another one, by whatever way it is swapped."""
    rng, compared = np.random.default_rng(len(body)), 0
    for f in MAPS:
        spec = ra.parse(f"tensors k[j,d], q[i,d], u[j,d]; s = {INSIDE}; f = {f}; return y = {body}")
        form = ra.verdict(spec, axis="j")
        if not isinstance(form, ra.Form):
            continue
        for length in (1, 2, 5):
            sizes = {"j": length, "i": 4, "d": 3}
            arrays = {d.name: rng.normal(size=[sizes[a] for a in d.axes]) for d in spec.tensors}
            found = form.compile("numpy")(**arrays)
            np.testing.assert_allclose(found, ra.reference(spec, **arrays), 1e-10, 1e-11, err_msg=str(spec))
            compared += 1
    assert compared


def test_renaming_leaves_bound_axes_alone() -> None:
    """Several names at once, of which reductions inside bind some: these go on reading along what they bind."""
    q, k, u = g.tensor("q", ("i", "d")), g.tensor("k", ("j", "d")), g.tensor("u", ("j", "d"))
    inside = g.reduction("sum", "d", g.mul(q, k))
    best = g.reduction("max", "i", g.mul(q, k))
    for node in (
        g.mul(inside, q, u),
        g.mul(g.reduction("max", "d", g.add(inside, u)), k),
        g.add(g.mul(best, u), inside),
    ):
        for mapping in ({"i": "h", "d": "e"}, {"j": "h", "d": "e", "i": "n"}, {"d": "e"}, {"i": "h"}):
            moved = g.rename_axes(node, mapping)
            assert moved.axes == {mapping.get(a, a) for a in node.axes}
            assert g.rename_axes(moved, {new: old for old, new in mapping.items()}) is node
            for n in g.walk(moved):
                assert n.op != "reduce" or set(n.attr.axes) <= n.args[0].axes, (n, mapping)
