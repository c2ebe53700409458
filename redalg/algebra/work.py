"""The work budget of a verdict: what it may cost, counted in steps and never in seconds.

A verdict depends on the spec alone. Whoever does work that grows with a spec calls `spend`, in units of its own;
whoever starts it says with `allowance` how much of them there may be, and what one costs in steps. Allowances inside
one another share the steps of the outermost one, which for `ra.verdict` is that of the whole verdict. Without an
allowance nothing is counted.

>>> with allowance(1000, "steps", doing="in all"):
...     with allowance(100, "products", price=30, doing="multiplying out"):
...         spend(20)
...     print(left())
400
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

VERDICT = 10_000_000  # steps of one verdict; a step is about a microsecond of a slow core
SPEC = 100  # of them for a node of the spec, which every pass walks

DERIVATION = 160_000  # products and sums of terms in the normal forms of one derivation
PRODUCT = 20  # steps for each
SLOTS = 400  # slots of one pass
MOVES = 12_000  # terms in the moves of one pass's slots
NESTING = 220  # operations in one another without a stage between: what recursion can follow
CONSTANT = 1 << 16  # bits of a constant in a normal form
SEARCH = 3_000_000  # operations on exact numbers in the search for one refusal's witness
INVARIANCE = 20_000  # products in showing that something does not depend on one stage value
STAGES = 30_000  # of those for all stage values, in each half of a gradient
ADJOINT = 256  # parts of an adjoint that count where different conditions hold
PROOF = 1  # steps for one of the checker's
LAWS = 9_000_000  # operations in stating the laws of one form and testing them at points
NODE = 18  # of those for a node that is rebuilt,
TERM = 75  # for one that is multiplied out and collected with others,
VALUE = 8  # and for a value of a node at a point
INFINITIES = 1_000_000  # operations in running forms of one spec on streams with infinities
INFINITE = 6  # steps for each
SLOT = 500  # of those for the code of a slot,
MOVE = 50  # and for that of a term in a move


class Exhausted(Exception):
    """A budget is spent. `what` says what was counted, up to where, and what was being done."""

    def __init__(self, what: str, limit: int, doing: str = "") -> None:
        self.what = f"a budget of {limit} {what}" + (f", in {doing}" if doing else "")
        super().__init__(self.what)


@dataclass
class _Meter:
    """`limit` units of `price` steps each; `named`: the budget that ends it, which may be one around it."""

    limit: int
    price: int
    named: tuple[str, int, str]
    spent: int = 0
    parts: dict[str, int] = field(default_factory=dict)  # what was done inside -> steps


_meter: ContextVar[_Meter | None] = ContextVar("meter", default=None)


@contextmanager
def allowance(limit: int, what: str, price: int = 1, doing: str = "", kept: int = 0) -> Iterator[None]:
    """Work inside may cost up to `limit` units, and no more steps than the allowance around it has left.

    `what`: the units, `price`: the steps of one; `doing`: what they are spent in; `kept`: steps that stay for what
    comes after it. More raises `Exhausted`, which names the budget that was spent.
    """
    outer, named = _meter.get(), (what, limit, "" if price == 1 else doing)
    if outer is not None:
        there = max(0, left() - kept) // price
        if there < limit:
            limit, named = there, (outer.named[0], outer.named[1], doing or outer.named[2])
    meter = _Meter(limit, price, named)
    token = _meter.set(meter)
    try:
        yield
    finally:
        _meter.reset(token)
        if outer is not None:
            steps = meter.spent * price
            outer.spent += -(-steps // outer.price)
            outer.parts[doing] = outer.parts.get(doing, 0) + steps


def spend(amount: int) -> None:
    meter = _meter.get()
    if meter is not None:
        meter.spent += amount
        if meter.spent > meter.limit:
            meter.spent = meter.limit  # what is asked for beyond it is not done
            raise Exhausted(*meter.named)


def within(count: int, limit: int, what: str) -> None:
    """Raises `Exhausted` where there are more than `limit` of something."""
    if count > limit:
        raise Exhausted(what, limit)


def spent() -> int:
    """What has been spent of the allowance in force, in its units."""
    meter = _meter.get()
    return 0 if meter is None else meter.spent


def left() -> int:
    """The steps that the allowance in force has left."""
    meter = _meter.get()
    return VERDICT if meter is None else max(0, meter.limit - meter.spent) * meter.price


def parts() -> dict[str, int]:
    """The steps that allowances inside the one in force have taken, by what they were spent in."""
    meter = _meter.get()
    return {} if meter is None else dict(meter.parts)


__all__ = [
    "ADJOINT",
    "CONSTANT",
    "DERIVATION",
    "INFINITE",
    "INFINITIES",
    "INVARIANCE",
    "LAWS",
    "MOVE",
    "MOVES",
    "NESTING",
    "NODE",
    "PRODUCT",
    "PROOF",
    "SEARCH",
    "SLOT",
    "SLOTS",
    "SPEC",
    "STAGES",
    "TERM",
    "VALUE",
    "VERDICT",
    "Exhausted",
    "allowance",
    "left",
    "parts",
    "spend",
    "spent",
    "within",
]
