"""Domains that are intervals: the words ``above LOW`` and ``below HIGH``, rational ends that are not attained."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction

NUMBER = "-?(0|[1-9][0-9]{0,599})(/[1-9][0-9]{0,599})?"
WORD = re.compile(f"(above|below) ({NUMBER})")
Ends = tuple[Fraction | None, Fraction | None]


def is_end(word: str) -> bool:
    return WORD.fullmatch(word) is not None


def ends(domain: Iterable[str]) -> Ends:
    """The open ends that the words state; 0 is that of ``positive``, where no other is stated."""
    found: dict[str, Fraction] = {}
    for word in domain:
        side, _, number = word.partition(" ")
        if number:
            found[side] = Fraction(number)
    low = found.get("above")
    return Fraction(0) if low is None and "positive" in domain else low, found.get("below")


def is_sound(domain: frozenset[str]) -> bool:
    """Whether the words of a domain name one interval that is not empty, of real numbers."""
    words = [w.partition(" ")[0] for w in domain if is_end(w)]
    if not words:
        return True
    low, high = ends(domain)
    if len(set(words)) < len(words) or domain & {"bool", "complex"}:
        return False
    if "positive" in domain and low is not None and low < 0:
        return False
    return high is None or not ((low is not None and low >= high) or ("nonnegative" in domain and high <= 0))


def admits(domain: frozenset[str], value: Fraction) -> bool:
    """Whether a number lies in the interval, or on the right side of 0."""
    low, high = ends(domain)
    if "nonnegative" in domain and value < 0:
        return False
    return (low is None or value > low) and (high is None or value < high)


def moved(domain: frozenset[str], value: Fraction) -> Fraction:
    """A drawn number, moved into the interval; numbers that differ still do, but for integers."""
    if not any(map(is_end, domain)):
        return value
    low, high = ends(domain)
    if low is None and "nonnegative" in domain:
        low = Fraction(0)
    if low is not None and high is not None:
        found = low + (high - low) * (1 + value / (1 + abs(value))) / 2
    elif low is not None:
        found = low + (abs(value) or 1)
    else:
        assert high is not None
        found = high - (abs(value) or 1)
    if "integer" in domain:
        found = next((k for k in _near(found) if admits(domain, k)), found)
    return found


def _near(value: Fraction) -> Iterator[Fraction]:
    """The integers around a number, the nearest first."""
    k = round(value)
    for step in (0, 1, -1, 2, -2):
        yield Fraction(k + step)


def facts(domain: frozenset[str]) -> Iterator[tuple[Fraction, bool]]:
    """(end, whether values lie above it), for every end that no word on signs states."""
    for value, above in zip(ends(domain), (True, False), strict=True):
        if value is not None and not (above and value == 0):
            yield value, above
