"""Saved stage values that their dtype does not hold, of which a gradient would make another number.

A forward pass computes a sum of squares beyond the largest float in wider numbers and shows its root; saved, the sum
is infinite, and x/sqrt(∞) would be 0. So would what is divided by a sum that is 0 as it is saved. Such a call takes the
gradients that read nothing saved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from redalg.algebra.signs import ZERO, Signs
from redalg.gradients.saved import Saved
from redalg.graph import node as g
from redalg.graph.functions import FUNCTIONS, POLES
from redalg.graph.node import Node
from redalg.numeric.array_origin import NARROW_ONLY, origin_of, to_numpy


class Watched(NamedTuple):
    """A saved value by the output of the forward pass that it is; `pole`: whether its being 0 is one of a gradient.

    `filled`: rows without an element are filled by ``empty=`` and pass nothing on, whose values are -oo and 0. `power`:
    to which at most saved values are multiplied, or divide, in one product: kernels compute it in their dtype.
    """

    name: str
    pole: bool
    filled: bool
    power: float = 1.0


def watched(
    roots: Collection[Node], saved: Iterable[Saved], reduced: Collection[str], filled: bool
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
    power = _power(roots, {s.leaf for s in own})
    return tuple(
        Watched(s.name, s.leaf in poles and not filled, filled, power)
        for s in own
        if not s.leaf.attr.domain & {"integer", "bool"}
    )


def _power(roots: Collection[Node], saved: Collection[Node]) -> float:
    """The largest power of saved values in products: of those that multiply, or those that divide. What functions make
    of them is of any size."""
    found: dict[Node, tuple[float, float]] = {}
    for n in g.walk(*roots):
        found[n] = (1.0, 0.0) if n in saved else _raised(n, [found[a] for a in n.args])
    return max((1.0, *(x for n in roots for x in found[n])))


def _raised(n: Node, below: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The powers that multiply and that divide, of an operation on what has those `below`."""
    if n.op == "mul":
        return sum(up for up, _ in below), sum(down for _, down in below)
    if n.op == "pow" and n.args[1].op == "const":
        e, (up, down) = float(n.args[1].attr), below[0]
        return (up * e, down * e) if e > 0 else (-down * e, -up * e)
    if n.op in FUNCTIONS or n.op == "pow":
        return 0.0, 0.0
    return max((up for up, _ in below), default=0.0), max((down for _, down in below), default=0.0)


def is_rounded(root: Node, saved: Collection[Node]) -> bool:
    """Whether an exponent takes a saved value away from what is computed of elements: in wider floats than those of
    the forward pass that is another number, by the rounding of a large one, and weights do not add up to 1."""
    for n in g.walk(root):
        if n.op not in ("exp", "expm1"):
            continue
        for part in g.walk(n.args[0]):
            terms = part.args if part.op == "add" else ()
            taken = [t for t in terms if any(leaf in saved for leaf in g.leaves(t))]
            if taken and any(t.op != "tensor" and t not in taken for t in terms):
                return True
    return False


def is_hidden(root: Node, outputs: Mapping[Node, Node]) -> bool:
    """Whether a gradient may be 0·∞ because of an output (leaf -> node) that it reads in the place of stage values: at
    an end of a tanh, a sigmoid or an exponential its slope is 0, whatever infinity of elements stands beside it."""
    read = {leaf for leaf in g.leaves(root) if leaf in outputs and _flattens(outputs[leaf])}
    return bool(read) and any(_outgrows(n) and not read.issuperset(g.leaves(n)) for n in g.walk(root))


def _flattens(node: Node) -> bool:
    """Whether a function's slope is computed of its value, and 0 where that is the limit at an infinity."""
    row = FUNCTIONS.get(node.op)
    return row is not None and "y" in row.derivative and any(map(isfinite, row.limits))


def _outgrows(n: Node) -> bool:
    """Whether numbers are taken to others far larger: by an exponential, or a power."""
    if n.op == "pow":
        return n.args[1].op != "const" or abs(n.args[1].attr) > 1
    row = FUNCTIONS.get(n.op)
    return n.op == "exp" or row is not None and bool(row.exponential) and not all(map(isfinite, row.limits))


def any_nan(values: Iterable[Any]) -> bool:
    """Whether one of the arrays, on the host, has a NaN."""
    return any(_has_nan(value) for value in values)


def _has_nan(value: Any) -> bool:
    array = _on_host(value)
    return array is not None and bool(np.isnan(array).any())


def is_lost(seen: Iterable[Watched], values: Mapping[str, Any]) -> bool:
    """Whether one of the values, on the host, is infinite or NaN, or next to a pole too small for its dtype.

    Nobody waits for arrays on a device to ask.
    """
    return any(_is_lost(values[w.name], w) for w in seen)


def _is_lost(value: Any, w: Watched) -> bool:
    plain = not w.pole and w.power <= 1
    if plain and hasattr(value, "is_cpu") and (not value.is_cpu or isfinite(value.sum().item())):
        return False  # PyTorch's, in a quarter of the time
    array = _on_host(value)
    if array is None or not array.size:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(np.add.reduce(array, None)):
            numbers = array < np.inf if w.filled else np.isfinite(array)
            if not numbers.all():
                return True
    return not plain and _leaves_range(np.abs(array), w)


def _on_host(value: Any) -> np.ndarray | None:
    """The floats of an array on the host; None of other numbers, and of arrays on a device, which nobody waits for."""
    place = origin_of(value)
    if place is not None and place.device != "cpu":
        return None
    array = to_numpy(value)
    if array.dtype.name in NARROW_ONLY:
        array = array.astype(np.float32)
    return array if array.dtype.kind == "f" else None


def _leaves_range(size: np.ndarray, w: Watched) -> bool:
    """Whether a power of some values is beyond their dtype, or as good as 0 beside a pole."""
    held, root = np.finfo(size.dtype), 1 / w.power
    if w.power > 1 and bool((size[size < np.inf] > float(held.max) ** root).any()):
        return True
    return w.pole and bool(size.min() < float(held.tiny) ** root)


def _is_whole(exponent: Node) -> bool:
    return exponent.op == "const" and exponent.attr >= 0 and exponent.attr.denominator == 1


__all__ = ["Watched", "any_nan", "is_hidden", "is_lost", "is_rounded", "watched"]
