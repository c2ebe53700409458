"""Work budgets: what a verdict may cost, counted in operations and never in seconds.

A verdict depends on the spec alone. Whoever does work that grows with a spec calls `spend`; whoever starts it says with
`allowance` how much there is. Without an allowance nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

DERIVATION = 160_000  # products and sums of terms in the normal forms of one derivation
SLOTS = 400  # slots of one pass
MOVES = 12_000  # terms in the moves of one pass's slots
NESTING = 220  # operations in one another without a stage between: what recursion can follow
CONSTANT = 1 << 16  # bits of a constant in a normal form
SEARCH = 3_000_000  # operations on exact numbers in the search for one refusal's witness
INVARIANCE = 20_000  # products in showing that something does not depend on one stage value
LAWS = 4_500_000  # operations in stating the laws of one form and testing them at points
NODE = 15  # of those for a node that is rebuilt,
TERM = 60  # for one that is multiplied out and collected with others,
VALUE = 5  # and for a value of a node at a point
INFINITIES = 1_000_000  # operations in running forms of one spec on streams with infinities
SLOT = 500  # of those for the code of a slot,
MOVE = 50  # for that of a term in a move,
PLANNED = 5  # and for a product of terms in a plan with more guards


class Exhausted(Exception):
    """A budget is spent. `what` says what was counted, and up to where."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"a budget of {limit} {what}")
        self.what = f"a budget of {limit} {what}"


@dataclass
class _Meter:
    what: str
    limit: int
    spent: int = 0


_meter: ContextVar[_Meter | None] = ContextVar("meter", default=None)


@contextmanager
def allowance(limit: int, what: str) -> Iterator[None]:
    """Work inside may cost up to `limit`; more raises `Exhausted`."""
    token = _meter.set(_Meter(what, limit))
    try:
        yield
    finally:
        _meter.reset(token)


def spend(amount: int) -> None:
    meter = _meter.get()
    if meter is not None:
        meter.spent += amount
        if meter.spent > meter.limit:
            raise Exhausted(meter.what, meter.limit)


def within(count: int, limit: int, what: str) -> None:
    """Raises `Exhausted` where there are more than `limit` of something."""
    if count > limit:
        raise Exhausted(what, limit)


def spent() -> int:
    """What has been spent of the allowance in force."""
    meter = _meter.get()
    return 0 if meter is None else meter.spent


__all__ = [
    "CONSTANT",
    "DERIVATION",
    "INFINITIES",
    "INVARIANCE",
    "LAWS",
    "MOVE",
    "MOVES",
    "NESTING",
    "NODE",
    "SEARCH",
    "PLANNED",
    "SLOT",
    "SLOTS",
    "TERM",
    "VALUE",
    "Exhausted",
    "allowance",
    "spend",
    "spent",
    "within",
]
