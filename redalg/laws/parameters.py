"""Parameters at which a spec divides by 0, leaves a domain, or decides otherwise: x/(q - 2) at q = 2.

The data on which forms are run with infinities (`redalg.laws.drawn`) depend on no spec, and their numbers meet 0 and
infinities. Where what a spec computes of parameters alone is 0 is found here, at a root of what is linear in a
parameter, or among small multiples of 1/2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from redalg.graph import node as g
from redalg.graph.domains import conditions
from redalg.graph.intervals import admits, is_interval
from redalg.graph.node import Decl, Node
from redalg.numeric.exact import exact_value

MOST = 12  # points of a spec
COLUMNS = 24  # of the data, evenly, with parameters at each of them
GRID = tuple(Fraction(k, 2) for k in range(-8, 9))
BESIDE = tuple(Fraction(k, 4) for k in (3, 5, 7, 9))  # other parameters
NEAR = (0, 1, -1)  # a condition is another one on either side
EXACT = {"bool", "integer", "complex"}
Point = Mapping[str, float]


def points(outputs: Iterable[Node], axes: Collection[str]) -> list[Point]:
    """Values of parameters, which have none of these axes, at which one of what is computed of them is 0, or near.

    >>> from redalg.graph.node import add, const, power, tensor
    >>> points([power(add(tensor("q"), const(-2)), -1)], ["j"])
    [{'q': 2.0}, {'q': 3.0}, {'q': 1.0}]
    """
    found = (point for u in _deciding(outputs, {*axes}) for point in _near_zero(u))
    distinct = {tuple(point.items()): point for point in found}
    return list(distinct.values())[:MOST]


def at_points(arrays: Mapping[str, np.ndarray], found: Iterable[Point]) -> dict[str, np.ndarray]:
    """The arrays, cases along the last axis, with some of the cases once more at every point."""
    number = max(x.shape[-1] for x in arrays.values())
    some = np.unique(np.linspace(0, number - 1, COLUMNS).astype(int))
    parts = [dict(arrays)]
    for point in found:
        parts.append({name: _filled(x[..., some], point.get(name)) for name, x in arrays.items()})
    return {name: np.concatenate([part[name] for part in parts], axis=-1) for name in arrays}


def _filled(x: np.ndarray, value: float | None) -> np.ndarray:
    return x if value is None else np.full_like(x, value)


def _deciding(outputs: Iterable[Node], along: set[str]) -> dict[Node, None]:
    """What is computed of parameters and is 0 at an end of a domain, or where a condition on parameters is another."""
    found: dict[Node, None] = {}
    for n in g.walk(*outputs):
        needed = [n] if n.op in g.COMPARISONS and not any(a.is_boolean for a in n.args) else conditions(n)
        for c in needed:
            u = g.sub(*reversed(c.args))
            if u.args and u.axes.isdisjoint(along) and _is_of_numbers(u):
                found[u] = None
    return found


def _is_of_numbers(u: Node) -> bool:
    below = list(g.walk(u))
    plain = all(n.op not in ("reduce", "index", "size", "state", "special") for n in below)
    return plain and not any(n.op == "tensor" and n.attr.domain & EXACT for n in below)


def _near_zero(u: Node) -> Iterator[Point]:
    leaves = g.leaves(u)
    for leaf in leaves:
        others = {n.attr.name: float(BESIDE[k % len(BESIDE)]) for k, n in enumerate(leaves) if n is not leaf}
        for root in _roots(u, leaf.attr, others):
            values = (float(root + step) for step in NEAR)
            yield from ({**others, leaf.attr.name: v} for v in values if _admitted(leaf.attr, v))


def _roots(u: Node, leaf: Decl, others: Point) -> Iterator[Fraction]:
    def value(at: Fraction) -> Any:
        numbers = {**others, leaf.name: at}
        given = {name: lambda *places, v=v: v for name, v in numbers.items()}
        return exact_value(u, given, at=dict.fromkeys(u.axes, 0))

    first, second, third = (value(Fraction(k)) for k in range(3))
    if all(isinstance(v, Fraction) for v in (first, second, third)) and second - first == third - second:
        if second != first:
            yield first / (first - second)
        return
    yield from (at for at in GRID if value(at) == 0)


def _admitted(leaf: Decl, value: float) -> bool:
    if value <= 0 and ("positive" in leaf.domain or value < 0 and "nonnegative" in leaf.domain):
        return False
    return not is_interval(leaf.domain) or admits(leaf.domain, value)


__all__ = ["at_points", "points"]
