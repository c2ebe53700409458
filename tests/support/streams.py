"""Feeding streams in pieces: what the tests of the streaming runtime share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from redalg.form import Form
from redalg.graph.node import (
    MINUS_ONE,
    NEG_INF,
    ONE,
    ZERO,
    Node,
    compare,
    div,
    fn,
    mul,
    power,
    reduction,
    sub,
    tensor,
    where,
)
from redalg.graph.operators import Extremum, Sum
from redalg.graph.plan import Anchor, ExtremumAnchor, Move, Output, PassPlan, Plan, ScaleAnchor, Slot, shift
from redalg.language.spec import Spec
from redalg.streaming import Accumulator
from redalg.testing import running
from tests.support import handwritten

Arrays = Mapping[str, np.ndarray]
x = tensor("x", "ij")


def hand(name: str) -> Form:
    """A form from a plan written by hand: the runtime is tested without the engine."""
    outputs, plan = (handwritten.ALL | OWN)[name]()
    # without an order, axes follow the declarations of whatever ran before in this process
    return Form(Spec.from_nodes(outputs, order={o.name: o.axes for o in plan.outputs}), plan)


def maximum() -> tuple[Slot, Anchor]:
    slot = Slot("m", Extremum("max"), ("i",), (x,), ("m",))
    return slot, ExtremumAnchor("M", ("i",), x, slot.leaf())


def ties() -> tuple[dict[str, Node], Plan]:
    """How often the maximum occurs: a 1×1 transport that forgets what an anchor leaves behind."""
    m, anchor = maximum()
    stays = where(compare("eq", shift("M", ("i",)), ZERO), ONE, ZERO)
    body = where(compare("eq", x, anchor.leaf), ONE, ZERO)
    count = Slot("t", Sum(), ("i",), (body,), ("t",), anchors=("M",), moves=(Move(stays, "t"),))
    plan = PassPlan((anchor,), (m, count), ("m", "M", "t"))
    top = reduction("max", "j", x)
    out = Output("t", count.leaf(), ("i",))
    return {"t": reduction("sum", "j", where(compare("eq", x, top), ONE, ZERO))}, Plan(("j",), (plan,), (out,))


def scaled_norm() -> tuple[dict[str, Node], Plan]:
    """sqrt(Σ(x/A)²)·A with A the largest magnitude: an anchor of kind "mul"."""
    size = fn("abs", x)
    m = Slot("m", Extremum("max"), ("i",), (size,), ("m",))
    one = where(compare("eq", m.leaf(), ZERO), ONE, m.leaf())
    anchor = ScaleAnchor("A", ("i",), x, one)
    h = shift("A", ("i",))
    squares = Slot(
        "q", Sum(), ("i",), (power(div(x, anchor.leaf), 2),), ("q",), anchors=("A",), moves=(Move(power(h, 2), "q"),)
    )
    plan = PassPlan((anchor,), (m, squares), ("m", "A", "q"))
    norm = mul(anchor.leaf, power(squares.leaf(), ONE.attr / 2))
    definition = power(reduction("sum", "j", power(x, 2)), ONE.attr / 2)
    return {"norm": definition}, Plan(("j",), (plan,), (Output("norm", norm, ("i",)),))


def masked() -> tuple[dict[str, Node], Plan]:
    """logsumexp of the scores that a mask leaves."""
    keep = tensor("keep", "ij", ("bool",))
    u = where(keep, x, NEG_INF)
    m = Slot("m", Extremum("max"), ("i",), (u,), ("m",))
    anchor = ExtremumAnchor("M", ("i",), u, m.leaf())
    factor = fn("exp", mul(MINUS_ONE, shift("M", ("i",))))
    total = Slot(
        "l", Sum(), ("i",), (fn("exp", sub(u, anchor.leaf)),), ("l",), anchors=("M",), moves=(Move(factor, "l"),)
    )
    plan = PassPlan((anchor,), (m, total), ("m", "M", "l"))
    top = reduction("max", "j", u)
    s = reduction("sum", "j", fn("exp", sub(u, top)))
    outputs = {"m": top, "l": s}
    return outputs, Plan(("j",), (plan,), (Output("m", m.leaf(), ("i",)), Output("l", total.leaf(), ("i",))))


OWN = {f.__name__: f for f in (ties, scaled_norm, masked)}


# --- feeding ---------------------------------------------------------------------------------------------------------


def chunk(form: Form, arrays: Arrays, low: int, high: int) -> dict[str, Any]:
    """The tensors with the streamed axis, cut to the indices [low, high) of it."""
    axis = form.plan.axis[0]
    found = {}
    for d in form.spec.tensors:
        if axis in d.axes:
            found[d.name] = arrays[d.name][(slice(None),) * d.axes.index(axis) + (slice(low, high),)]
    return found


def bound(form: Form, arrays: Arrays) -> dict[str, Any]:
    return {d.name: arrays[d.name] for d in form.spec.tensors if form.plan.axis[0] not in d.axes}


def length(form: Form, arrays: Arrays) -> int:
    return len(next(iter(_along(form, arrays).values())))


def _along(form: Form, arrays: Arrays) -> dict[str, range]:
    axis = form.plan.axis[0]
    named = {d.name: d.axes for d in form.spec.tensors if axis in d.axes}
    return {name: range(arrays[name].shape[axes.index(axis)]) for name, axes in named.items()}


def fed(form: Form, arrays: Arrays, cuts: Iterable[int], **options: Any) -> Accumulator:
    """One accumulator, fed the chunks between the cuts."""
    acc = form.accumulator(**bound(form, arrays), **options)
    for low, high in pairwise(cuts):
        acc.update(**chunk(form, arrays, low, high))
    return acc


def placed(form: Form, arrays: Arrays, cuts: Iterable[int], order: Sequence[int], **options: Any) -> Accumulator:
    """One placed accumulator per piece, merged in the given order."""
    pieces = []
    for low, high in pairwise(cuts):
        piece = form.accumulator(**bound(form, arrays), start=low, **options)
        piece.update(**chunk(form, arrays, low, high))
        pieces.append(piece)
    total = pieces[order[0]]
    for k in order[1:]:
        total.merge(pieces[k])
    return total


def bits(result: Any) -> list[bytes]:
    """The exact content of a result."""
    values = result.values() if isinstance(result, dict) else [result]
    return [np.ascontiguousarray(v).tobytes() for v in values]


def assert_close(got: Any, expected: Any, ulps: float = 64) -> None:
    """Equal where not finite, and within some units in the last place elsewhere."""
    pairs = zip(got.values(), expected.values(), strict=True) if isinstance(got, dict) else [(got, expected)]
    for a, b in pairs:
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape and a.dtype == b.dtype
        if a.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=ulps * np.finfo(a.dtype).eps, atol=ulps * np.finfo(a.dtype).eps)
        else:
            np.testing.assert_array_equal(a, b)


def three_ways(form: Form, given: Mapping[str, np.ndarray], seed: int) -> list[tuple[str, float]]:
    """The one result at once, from a stream in unequal pieces of which one is empty, and from those merged."""
    n = len(next(iter(given.values())))
    first, second = sorted(np.random.default_rng(seed).integers(0, n + 1, 2))
    borders = [0, first, first, second, n]
    whole = form.accumulator()
    for start, end in pairwise(borders):
        whole.update(**{k: a[start:end] for k, a in given.items()})
    (merged,) = running.merged(form, given, borders, [2, 1, 0]).values()
    found = ("numpy", form.compile("numpy")(**given)), ("streamed", whole.result()), ("merged", merged)
    return [(where, float(np.asarray(value).item())) for where, value in found]
