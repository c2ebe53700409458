"""Sums as pairs: a number and what rounding it left out (Knuth 1969, Dekker 1971; ``accuracy="compensated"``).

A sum is held as (s, low) with s + low the sum of the terms up to roundings of low alone. Of two pairs::

    (a, a_low) + (b, b_low) = (fl(a + b), a_low + b_low + ((a + b) - fl(a + b)))

where the last term is a number of the format, computed by six additions (TwoSum). A product of two numbers is such a
pair as well: fl(x·y) and x·y - fl(x·y), one fused multiplication (TwoProduct). The four functions below stand in graphs
as calls, so that no algebra takes the error for the 0 that it is over the reals, and are printed as functions whose
instructions a compiler does not reorder. Low parts are added by them as well: LLVM takes an addition that may be
contracted and the error of a product for two fused multiplications, in which the error is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redalg.algebra.join import call
from redalg.graph.node import ZERO, Node, is_const
from redalg.graph.operators import Custom

SUM, SUM_ERROR, PRODUCT, PRODUCT_ERROR = FUNCTIONS = ("exact_sum", "sum_error", "exact_product", "product_error")
LOW = "~low"  # what the name of the second number of a pair ends in
Pair = tuple[Node, Node]


@dataclass(unsafe_hash=True)
class TwoSum:
    """Addition of pairs, as the operator of folds and joins (`redalg.graph.operators.UserMonoid`)."""

    name: str = "compensated sum"
    digest: str = "compensated sum"
    width: int = 2
    commutative: bool = True
    combined: tuple[Node, ...] = ()
    identity_nodes: tuple[Node, ...] = (ZERO, ZERO)
    acted: tuple[tuple[str, tuple[Node, ...]], ...] = ()

    def combine_nodes(self, a: Sequence[Node], b: Sequence[Node]) -> tuple[Node, ...]:
        return sum_of((a[0], a[1]), (b[0], b[1]))


COMPENSATED = Custom(TwoSum())


def sum_of(a: Pair, b: Pair) -> Pair:
    """The sum of two pairs; a number beside 0 is no rounding."""
    if _zero(b):
        return a
    if _zero(a):
        return b
    error = call(SUM_ERROR, a[0], b[0])
    for low in (a[1], b[1]):
        error = error if low is ZERO else call(SUM, low, error)
    return call(SUM, a[0], b[0]), error


def product_of(a: Pair, b: Pair) -> Pair:
    """The product of two pairs, but for that of their low parts."""
    error = call(PRODUCT_ERROR, a[0], b[0])
    for high, low in ((a[0], b[1]), (b[0], a[1])):
        error = error if low is ZERO else call(SUM, call(PRODUCT, high, low), error)
    return call(PRODUCT, a[0], b[0]), error


def rounded(pair: Pair) -> Node:
    """A pair as one number; no sum of low parts is reordered with it."""
    return call(SUM, *pair)


def _zero(pair: Pair) -> bool:
    return is_const(pair[0]) and pair[0].attr == 0 and pair[1] is ZERO
