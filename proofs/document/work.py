"""Bounded work: every step of the checker is counted, and one budget holds for a whole certificate.

A step takes one to two microseconds and keeps at most some hundred bytes. Reading, walks of terms, products of
monomials, inequalities and evaluations are all counted, whichever object does them; past the budget each raises
`Exhausted`.
Steps are never timed, so that what is decided does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction

from redalg.proofs.document.functions import FUNCTIONS

STEPS = 600_000  # per certificate; the largest of the catalog takes 15,000
SHARE = 150_000  # of them, for the proof of one obligation


class Exhausted(Exception):
    """The budget of work is used up, or a number grows past its bound; the message says of what."""


class _Meter:
    __slots__ = ("left", "steps")

    def __init__(self, steps: int) -> None:
        self.left = self.steps = steps


_METER: ContextVar[_Meter | None] = ContextVar("meter", default=None)


@contextmanager
def metered(steps: int = STEPS) -> Iterator[None]:
    """Count what is done inside; inside another meter, that one counts on."""
    if _METER.get() is not None:
        yield
        return
    token = _METER.set(_Meter(steps))
    try:
        yield
    finally:
        _METER.reset(token)


@contextmanager
def share(steps: int = SHARE) -> Iterator[None]:
    """At most so many of the steps that are left for what is done inside."""
    meter = _METER.get()
    if meter is None or meter.left <= steps:
        yield
        return
    kept, meter.left = meter.left - steps, steps
    try:
        yield
    finally:
        meter.left += kept


def spend(amount: int = 1) -> None:
    """Count steps; without a meter (documents that the library builds itself) nothing is counted."""
    meter = _METER.get()
    if meter is not None:
        meter.left -= amount
        if meter.left < 0:
            raise Exhausted(f"more than the {meter.steps} steps of work that a certificate may take")


def spent() -> int:
    """The steps counted so far."""
    meter = _METER.get()
    return 0 if meter is None else meter.steps - meter.left


def bits(value: int | Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def text(value: Fraction) -> str:
    """A number as a key of a table: numbers can be made to have one hash, which Python does not salt, texts cannot."""
    return f"{value.numerator:x}/{value.denominator:x}"


def arithmetic(length: int) -> None:
    """Count one operation on fractions of so many bits: the greatest common divisor takes their square."""
    if length > 256:
        spend(length * length >> 17)


def transcendental(name: str, precision: int) -> None:
    """Count one value of a function at so many bits; what it takes grows like their power 2.2 (measured)."""
    spend(int(_WEIGHTS.get(name, 60) * (precision / 224) ** 2.2))


_WEIGHTS = {name: row.weight for name, row in FUNCTIONS.items()}
_WEIGHTS |= {"of": 2, "plus": 1, "times": 2, "max": 2, "min": 2, "pi": 5, "sqrt": 10}
