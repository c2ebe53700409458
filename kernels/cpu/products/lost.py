"""Sums that lie between parts and fell below the range of float32, where what reads them would have told.

The square root of a distance near 1e-25 is 0 if its square is; so is the position of the least of them 0, and a product
by 1e30. A kernel of rows sees that in its state, or holds it in units of its largest element. A sum of its own is
rounded to 0 as it should be, and what is lost only shows where it is read (`tells`): so sums that are far below any
number in use are looked at once more, in float64. Those that are 0 there, too (a point that is met, a row of zeros),
stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import COMPARISONS, Node, factors, fresh, leaves, substitute, tensor, walk
from redalg.language.spec import Spec
from redalg.numeric.definition import reference

NEAR = 2.0**-100  # above it, what terms lost (2^-150 each) is less than a rounding of the sum, of up to 2^24 terms
BELOW = 2.0**-90  # of true values, those that are no rest of larger terms
CHUNK = 1 << 20  # terms that are looked at together


HIDING = frozenset(n for n, f in FUNCTIONS.items() if dict(f.at).get("0", "0") not in ("0", "inf", "-inf"))  # 1 at 0
BOUNDED = frozenset(
    n for n, f in FUNCTIONS.items() if f.direction and {f.low, f.high}.isdisjoint(("inf", "-inf", "nan"))
)
STEPS = frozenset(n for n, f in FUNCTIONS.items() if f.derivative == "0")
LARGE = 2.0**20  # a constant that makes a tiny number one in use


def tells(name: str, outputs: Iterable[Node]) -> bool:
    """Whether outputs tell a tiny number of this name from 0: they take its root, its logarithm, its sign or its place
    among others, compare it, divide it, or multiply it by what may be large.

    >>> import redalg as ra
    >>> def told(text):
    ...     return tells("d", ra.parse(f"return y = {text}").outputs.values())
    >>> told("sqrt(d[i,k])"), told("argmin[k](d[i,k])"), told("d[i,k]*s[k]"), told("d[i,k]*1e30"), told("sign(d[i,k])")
    (True, True, True, True, True)
    >>> told("exp(-d[i,k])*s[k]"), told("d[i,k] + b[k]"), told("d[i,k]*sigmoid(d[i,k])/2"), told("max[k](d[i,k])")
    (False, False, False, False)
    >>> told("d[i,k]*(d[i,k] + 1)"), told("d[i,k]*(d[i,k] + s[k])")
    (False, True)
    """
    carries = dict[Node, bool]()
    for n in walk(*outputs):
        of_it = [a for a in n.args if carries[a]]
        carries[n] = n.op == "tensor" and n.attr.name == name or n.op not in HIDING and bool(of_it)
        if of_it and _tells(n, of_it, name):
            return True
    return False


def _tells(node: Node, of_it: list[Node], name: str) -> bool:
    """Whether a node tells one of its arguments that are tiny from 0."""
    if node.op == "mul":
        first, *more = of_it
        others = [a for a in node.args if a is not first]
        return any(
            not _is_bounded(a) and not (a in more and _is_alone(a, name) and _is_alone(first, name)) for a in others
        )
    if node.op == "pow":
        exponent = node.args[1]
        return exponent.op != "const" or float(exponent.attr) not in (1, 2, 3, 4)
    if node.op == "reduce":
        return node.attr.kind not in ("sum", "max", "min")
    return node.op in COMPARISONS or node.op in STEPS or node.op.startswith("log")


def _is_bounded(node: Node) -> bool:
    """Whether it is no large number, whatever it is of: 1 + tanh(z)."""
    if node.op in ("add", "mul"):
        return all(map(_is_bounded, node.args))
    return node.op in BOUNDED or node.op == "const" and abs(node.attr) < LARGE


def _is_alone(node: Node, name: str) -> bool:
    """Whether it is made of nothing but this, and constants that are not large."""
    read = leaves(node, "tensor", "const")
    return all(n.attr.name == name if n.op == "tensor" else abs(n.attr) < LARGE for n in read)


class Lost:
    """Which sums of a node, over these axes, lost what they are; None where it is no plain sum."""

    def __init__(self, node: Node, axes: tuple[str, ...]) -> None:
        self.axes, self.tensors = axes, leaves(node, "tensor")
        self.product = all(f.op in ("tensor", "const") for f in factors(node))
        flat = fresh("sums", {*axes, *(a for t in self.tensors for a in t.axes)})
        read = {}
        for k, t in enumerate(self.tensors):
            one = [flat] if not t.axes.isdisjoint(axes) else []
            read[t] = tensor(f"t{k}", [*one, *self._inner(t)])
        self.spec = Spec.from_nodes({"s": substitute(node, read)})

    @staticmethod
    def of(node: Node, axes: tuple[str, ...], real: str) -> Lost | None:
        """What looks at a node that parts write; None for what is no sum of tensors, or not of float32."""
        summed = node.op == "reduce" and node.attr.kind == "sum" and real == "float32" and {*axes} == node.axes
        plain = all(len(t.attr.axes) == len(t.axes) and "bool" not in t.attr.domain for t in leaves(node, "tensor"))
        return Lost(node, axes) if summed and plain and not leaves(node, "index", "size", "state") else None

    def __call__(self, found: np.ndarray, given: Mapping[str, Any], wide: Callable[[Any], Any]) -> np.ndarray | None:
        """Where sums were lost; None where nowhere. `given`: tensors by name; `wide`: floats of 16 bits as float32."""
        if found.size == 0 or float(found.min()) >= NEAR:
            return None
        low = np.abs(found) < NEAR
        if not low.any():
            return None
        arrays = [np.asarray(wide(given[t.attr.name])) for t in self.tensors]
        places = self._alive(arrays, np.nonzero(low)) if self.product else np.nonzero(low)
        lost = np.zeros(found.shape, bool)
        lengths = {
            a: n for t, x in zip(self.tensors, arrays, strict=True) for a, n in zip(t.attr.axes, x.shape, strict=True)
        }
        step = max(1, CHUNK // prod(n for a, n in lengths.items() if a not in self.axes))
        for begin in range(0, len(places[0]), step):
            some = tuple(p[begin : begin + step] for p in places)
            true = np.abs(self._true(arrays, dict(zip(self.axes, some, strict=True))))
            lost[some] = (0 < true) & (true < BELOW)
        return lost if lost.any() else None

    def _alive(self, arrays: list[np.ndarray], places: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Those where no factor is a row of zeros."""
        alive = np.ones(len(places[0]), bool)
        for t, x in zip(self.tensors, arrays, strict=True):
            some = np.asarray(x.any(axis=tuple(d for d, a in enumerate(t.attr.axes) if a not in self.axes)))
            own = [places[self.axes.index(a)] for a in t.attr.axes if a in self.axes]
            alive &= some[tuple(own)]
        return tuple(p[alive] for p in places)

    def _inner(self, t: Node) -> list[str]:
        return [a for a in t.attr.axes if a not in self.axes]

    def _true(self, arrays: list[np.ndarray], places: Mapping[str, np.ndarray]) -> np.ndarray:
        """The sums at these places, in float64."""
        taken: dict[str, Any] = {}
        for k, (t, x) in enumerate(zip(self.tensors, arrays, strict=True)):
            own = [a for a in t.attr.axes if a in places]
            order = [t.attr.axes.index(a) for a in (*own, *self._inner(t))]
            x = x.transpose(order)
            taken[f"t{k}"] = (x[tuple(places[a] for a in own)] if own else x).astype(np.float64)
        with np.errstate(all="ignore"):
            return np.asarray(reference(self.spec, **taken), np.float64)


__all__ = ["Lost", "tells"]
