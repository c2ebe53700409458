"""Between which numbers a value lies, from the intervals that its tensors are declared in: 1 - a·b > 0 for a, b < 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from redalg.graph.intervals import ends
from redalg.graph.node import Node

NEG, ZERO, POS = 1, 2, 4  # as in `redalg.algebra.signs`
MAX_POWER = 64  # of an end that is computed


@dataclass(frozen=True)
class Side:
    """An end: the value, and whether it is itself excluded."""

    at: Fraction
    is_open: bool

    def scaled(self, c: Fraction) -> Side:
        return Side(self.at * c, self.is_open)


Span = tuple[Side | None, Side | None]  # None: unbounded
UNKNOWN: Span = (None, None)


def sign(span: Span) -> int:
    """The signs that values between these ends can have."""
    low, high = span
    found = NEG | ZERO | POS
    if low is not None and low.at >= 0:
        found &= POS if low.at > 0 or low.is_open else ZERO | POS
    if high is not None and high.at <= 0:
        found &= NEG if high.at < 0 or high.is_open else ZERO | NEG
    return found


def span(node: Node, sign_of: Callable[[Node], int]) -> Span:
    """The ends of sums, products of non-negative values and their whole powers; of anything else its sign."""
    if node.op == "const":
        return Side(node.attr, False), Side(node.attr, False)
    if node.op == "add":
        total: Span = (Side(Fraction(0), False), Side(Fraction(0), False))
        for a in node.args:
            other = span(a, sign_of)
            total = _sum(total[0], other[0]), _sum(total[1], other[1])
            if total == UNKNOWN:
                break
        return total
    if node.op == "mul" and node.args[0].op == "const":
        low, high = _product(node.args[1:], sign_of)
        c = node.args[0].attr
        found = (low and low.scaled(c)), (high and high.scaled(c))
        return found if c > 0 else found[::-1]
    if node.op == "mul":
        return _product(node.args, sign_of)
    if node.op == "pow" and node.args[1].op == "const":
        return _power(span(node.args[0], sign_of), node.args[1].attr)
    return _declared(node, sign_of)


def _declared(node: Node, sign_of: Callable[[Node], int]) -> Span:
    if node.op in ("tensor", "state") and "complex" not in node.attr.domain:
        low, high = (None if end is None else Side(end, True) for end in ends(node.attr.domain))
        if low is None and node.attr.domain & {"nonnegative", "bool"}:
            low = Side(Fraction(0), False)
        return low, high
    s = sign_of(node)
    low = None if s & NEG else Side(Fraction(0), not s & ZERO)
    return low, None if s & POS else Side(Fraction(0), not s & ZERO)


def _sum(a: Side | None, b: Side | None) -> Side | None:
    return None if a is None or b is None else Side(a.at + b.at, a.is_open or b.is_open)


def _product(factors: tuple[Node, ...], sign_of: Callable[[Node], int]) -> Span:
    if len(factors) == 1:
        return span(factors[0], sign_of)
    low, high = Side(Fraction(1), False), Side(Fraction(1), False)
    bounded = True
    for f in factors:
        below, above = span(f, sign_of)
        if below is None or below.at < 0:
            return UNKNOWN
        # an open end 0 stays open only beside factors that are not 0 themselves
        low = Side(low.at * below.at, _apart(low) and _apart(below) and (low.is_open or below.is_open))
        if above is None:
            bounded = False
        elif bounded:
            high = Side(high.at * above.at, high.at * above.at > 0 and (high.is_open or above.is_open))
    return low, high if bounded else None


def _apart(side: Side) -> bool:
    """Whether values above this end are not 0."""
    return side.at > 0 or side.is_open


def _power(of: Span, e: Fraction) -> Span:
    low, high = of
    if e.denominator != 1 or not 0 < e <= MAX_POWER or low is None or low.at < 0:
        return UNKNOWN
    n = int(e)
    return Side(low.at**n, low.is_open), None if high is None else Side(high.at**n, high.is_open)
