"""Saved stage values that their dtype does not hold, of which a gradient would make another number.

A forward pass computes a sum of squares beyond the largest float in wider numbers and shows its root; saved, the sum
is infinite, and x/sqrt(∞) would be 0. So would what is divided by a sum that is 0 as it is saved. Such a call takes the
gradients that read nothing saved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from redalg.algebra.signs import ZERO, Signs
from redalg.gradients.saved import Saved
from redalg.graph import node as g
from redalg.graph.functions import POLES
from redalg.graph.node import Node
from redalg.numeric.array_origin import NARROW_ONLY, origin_of, to_numpy


class Watched(NamedTuple):
    """A saved value by the output of the forward pass that it is; `pole`: whether its being 0 is one of a gradient.

    `filled`: rows without an element are filled by ``empty=`` and pass nothing on, whose values are -oo and 0.
    """

    name: str
    pole: bool
    filled: bool


def watched(
    roots: Iterable[Node], saved: Iterable[Saved], reduced: Collection[str], filled: bool
) -> tuple[Watched, ...]:
    """The saved stage values that gradients read, of real numbers. What keeps a reduced axis is an element: it is what
    it is as its dtype has it, in the forward pass, too."""
    read, poles = set(), set()
    signs = Signs(())
    for n in g.walk(*roots):
        if n.op == "tensor":
            read.add(n)
        base = n.args[0] if n.op == "pow" and not _is_whole(n.args[1]) or n.op in POLES else None
        if base is not None and signs.of(base) & ZERO:
            poles.update(g.leaves(base))
    own = [s for s in saved if s.leaf in read and s.leaf.axes.isdisjoint(reduced)]
    return tuple(
        Watched(s.name, s.leaf in poles and not filled, filled)
        for s in own
        if not s.leaf.attr.domain & {"integer", "bool"}
    )


def is_lost(seen: Iterable[Watched], values: Mapping[str, Any]) -> bool:
    """Whether one of the values, on the host, is infinite or NaN, or next to a pole too small for its dtype.

    Nobody waits for arrays on a device to ask.
    """
    return any(_is_lost(values[w.name], w) for w in seen)


def _is_lost(value: Any, w: Watched) -> bool:
    if not w.pole and hasattr(value, "is_cpu") and (not value.is_cpu or isfinite(value.sum().item())):
        return False  # PyTorch's, in a quarter of the time
    place = origin_of(value)
    if place is not None and place.device != "cpu":
        return False
    array = to_numpy(value)
    if array.dtype.name in NARROW_ONLY:
        array = array.astype(np.float32)
    if array.dtype.kind != "f" or not array.size:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(np.add.reduce(array, None)):
            numbers = array < np.inf if w.filled else np.isfinite(array)
            if not numbers.all():
                return True
    return w.pole and bool(np.abs(array).min() < np.finfo(array.dtype).tiny)


def _is_whole(exponent: Node) -> bool:
    return exponent.op == "const" and exponent.attr >= 0 and exponent.attr.denominator == 1


__all__ = ["Watched", "is_lost", "watched"]
