"""Affine values: sums c·u + d of one element value u, with c and d stage values (theory, section 3.1).

``u - m`` and ``n·u - Σu`` deviate from the same location, -d/c: the anchor of u in both is the value of u at which they
are 0.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from redalg.algebra.scope import Scope
from redalg.graph import node as g
from redalg.graph.node import Node


class Affine(NamedTuple):
    """A sum as Σ slope·value + fixed."""

    terms: tuple[tuple[Node, Node], ...]  # (value of elements, slope over stage values), no slope twice
    fixed: tuple[Node, ...]  # what does not vary, as it is written

    @property
    def single(self) -> tuple[Node, Node] | None:
        """(value, slope) where there is one value."""
        return self.terms[0] if len(self.terms) == 1 else None


def affine(scope: Scope, node: Node) -> Affine | None:
    """A sum of elements and stage values in terms of element values; None where a factor is of both, or nothing varies.

    Elements of one slope are one value, x + z in n·x + n·z - d. Exponentials that stage values multiply keep the anchor
    they have by themselves.

    >>> from redalg.graph.node import add, mul, reduction, tensor
    >>> x, z = tensor("x", "j"), tensor("z", "j")
    >>> s = reduction("sum", "j", x)
    >>> found = affine(Scope(("j",)), add(mul(s, x, z), s))
    >>> found.single == (mul(x, z), s), found.fixed == (s,)
    (True, True)
    """
    fixed = tuple(a for a in node.args if not scope.varies(a))
    varying = [a for a in node.args if scope.varies(a)]
    if not any(map(scope.mixed, varying)):
        return Affine(((g.add(*varying), g.ONE),), fixed) if varying else None
    parts = [_parts(scope, a) for a in varying]
    slopes: dict[Node, list[Node]] = {}
    values: dict[Node, list[Node]] = {}
    for part in parts:
        if part is None or _is_exponential(part[0]):
            return None
        slopes.setdefault(part[1], []).append(part[0])
        values.setdefault(part[0], []).append(part[1])
    if len(values) == 1:
        return Affine(tuple((value, g.add(*of)) for value, of in values.items()), fixed)
    return Affine(tuple((g.add(*of), slope) for slope, of in slopes.items()), fixed)


def _parts(scope: Scope, term: Node) -> tuple[Node, Node] | None:
    """A term as (element value, slope), constants and parameters being of the value; None where a factor is of both."""
    factors = term.args if term.op == "mul" else (term,)
    if any(map(scope.mixed, factors)):
        return None
    return g.mul(*(f for f in factors if not scope.uses(f))), g.mul(*(f for f in factors if scope.uses(f)))


def without_constant(value: Node) -> tuple[Fraction, Node]:
    """(c, u) of a value c·u: -u has the anchor of u."""
    constants = [f for f in value.args if f.op == "const"] if value.op == "mul" else []
    if not constants:
        return Fraction(1), value
    return constants[0].attr, g.mul(*(f for f in value.args if f not in constants))


def _is_exponential(value: Node) -> bool:
    return any(f.op == "exp" for f in (value.args if value.op == "mul" else (value,)))


__all__ = ["Affine", "affine", "without_constant"]
