"""Domains that are intervals: the words ``above LOW`` and ``below HIGH`` beside the other words of a declaration.

Ends are open and rational. ``positive`` is the interval above 0, and an interval above a number >= 0 is ``positive``
too, so that every reader of that word is right about it without knowing of intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError

if TYPE_CHECKING:
    import numpy as np

Ends = tuple[Fraction | None, Fraction | None]  # None: no end on that side


def words_between(between: Any, where: str) -> frozenset[str]:
    """The domain words of ``between=(low, high)``.

    >>> sorted(words_between((0, 1), "here")), sorted(words_between((float("-inf"), 0.5), "here"))
    (['below 1', 'positive'], ['below 1/2'])
    """
    if not isinstance(between, (tuple, list)) or len(between) != 2:
        raise RedalgError(f"between={between!r}", where, "an interval has two ends", "write between=(0, 1)")
    low, high = (_end(e, side, between, where) for e, side in zip(between, (-math.inf, math.inf), strict=True))
    if low is not None and high is not None and low >= high:
        why = f"no number lies strictly between {low} and {high}"
        raise RedalgError(f"between={between!r}", where, why, "give the lower end first; both ends are open")
    found = {f"below {high}"} if high is not None else set()
    if low is not None and low >= 0:
        found.add("positive")
    return frozenset(found | ({f"above {low}"} if low else set()))


def _end(value: Any, side: float, between: Any, where: str) -> Fraction | None:
    """An end as a rational, None for the infinity of its side."""
    why = "an end is a rational or a float, or an infinity on its own side"
    refused = RedalgError(f"between={between!r}", where, why, "write between=(0, 1), or ra.oo for no upper end")
    if isinstance(value, (bool, str)):
        raise refused
    try:
        if value == side:
            return None
        if getattr(value, "is_Rational", False):
            return Fraction(int(value.p), int(value.q))
        return Fraction(value)
    except (TypeError, ValueError, OverflowError):
        raise refused from None


def ends(domain: Iterable[str]) -> Ends:
    """The open ends that the words of a domain state; 0 below ``positive`` is one, ``nonnegative`` has none.

    >>> ends({"positive", "below 1"}), ends({"integer"})
    ((Fraction(0, 1), Fraction(1, 1)), (None, None))
    """
    known = dict(w.split(" ") for w in domain if " " in w)
    low, high = (Fraction(known[side]) if side in known else None for side in ("above", "below"))
    return Fraction(0) if low is None and "positive" in domain else low, high


def is_interval(domain: Iterable[str]) -> bool:
    """Whether a finite end other than that of ``positive`` is declared."""
    return any(" " in word for word in domain)


def domain_text(domain: frozenset[str]) -> str:
    """The domain as the text grammar writes it: ``between(0, 1)`` for ``positive below 1``."""
    if not is_interval(domain):
        return " ".join(sorted(domain))
    low, high = ends(domain)
    interval = f"between({'-oo' if low is None else low}, {'oo' if high is None else high})"
    return " ".join([*sorted(w for w in domain if " " not in w and w != "positive"), interval])


def check_not_empty(domain: frozenset[str], where: str) -> None:
    """Some number of the domain lies in its interval, or a four-part error."""
    low, high = ends(domain)
    if not is_interval(domain) or high is None:
        return
    none = "nonnegative" in domain and high <= 0 or low is not None and low >= high
    if "integer" in domain and low is not None:
        none = none or math.floor(low) + 1 >= high
    if none:
        raise RedalgError(f"the domain {domain_text(domain)}", where, "it is empty", "widen the interval")


def admits(domain: Iterable[str], value: Any) -> bool:
    """Whether a number lies strictly between the declared ends.

    >>> admits({"positive", "below 1"}, Fraction(1, 2)), admits({"positive", "below 1"}, 1)
    (True, False)
    """
    low, high = ends(domain)
    return (low is None or value > low) and (high is None or value < high)


def moved(domain: frozenset[str], value: Fraction) -> Fraction:
    """A drawn number, moved into a declared interval by a map that keeps unequal numbers unequal where it can."""
    if not is_interval(domain):
        return value
    low, high = ends(domain)
    if low is None and "nonnegative" in domain:
        low = Fraction(-1, 2) if "integer" in domain else Fraction(0)
    if low is not None and high is not None:
        found = low + (high - low) * (1 + value / (1 + abs(value))) / 2
    elif low is not None:
        found = low + (abs(value) or 1)
    else:
        assert high is not None
        found = high - (abs(value) or 1)
    if "integer" not in domain:
        return found
    return _whole(Fraction(round(found)), low, high)


def _whole(found: Fraction, low: Fraction | None, high: Fraction | None) -> Fraction:
    """The number, or the integer nearest to it that lies inside."""
    if low is not None and found <= low:
        return Fraction(math.floor(low) + 1)
    return Fraction(math.ceil(high) - 1) if high is not None and found >= high else found


def moved_array(domain: frozenset[str], array: np.ndarray) -> np.ndarray:
    """The drawn numbers of an array, each moved into a declared interval; rounded to few digits of it."""
    if not is_interval(domain):
        return array
    found = array.astype(float)
    for place, v in enumerate(array.flat):
        found.flat[place] = float(moved(domain, Fraction(round(float(v) * 64), 64)))
    return found.astype(array.dtype)
