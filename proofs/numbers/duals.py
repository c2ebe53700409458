"""Forward derivatives: numbers with tangents, in the arithmetic of `redalg.proofs.numbers.values`.

A `Dual` is a value and its derivatives with respect to some variables; every other value is a constant. An operation
has a derivative only where it certainly is differentiable: a tie in a maximum, a zero under an absolute value, a
condition that is met with equality or a rounding of a variable is `UNKNOWN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial

from redalg.proofs.document.functions import FUNCTIONS, evaluated
from redalg.proofs.document.work import spend
from redalg.proofs.numbers.value_maps import ONE, UNKNOWN, ZERO, Value, is_finite, is_nan
from redalg.proofs.numbers.values import Numbers

SHORT = 3  # factors, of which the others are multiplied anew for each


class Dual:
    """A value with the derivatives that are not known to be 0."""

    __slots__ = ("value", "tangents")

    def __init__(self, value: Value, tangents: Mapping[int, Value]) -> None:
        self.value, self.tangents = value, tangents


def plain(x: Value) -> Value:
    return x.value if type(x) is Dual else x


def tangents(x: Value) -> Mapping[int, Value]:
    return x.tangents if type(x) is Dual else {}


class Duals(Numbers):
    """Operations on duals. A result without tangents is a plain value."""

    def is_nan(self, x: Value) -> bool:
        return is_nan(plain(x))

    def is_finite(self, x: Value) -> bool:
        return is_finite(plain(x))

    def is_lowest(self, x: Value) -> bool:
        return super().is_lowest(plain(x))

    def _chained(self, value: Value, parts: Sequence[tuple[Value, Callable[[], Value]]]) -> Value:
        """The value with Σ derivative·tangent over the arguments that vary."""
        varying = [(x.tangents, local()) for x, local in parts if type(x) is Dual]
        if not varying:
            return value
        if not is_finite(value):
            return UNKNOWN
        spend(4 * sum(len(t) for t, _ in varying))
        found: dict[int, list[Value]] = {}
        for t, local in varying:
            for i, x in t.items():
                found.setdefault(i, []).append(x if local is ONE else Numbers.mul(self, [local, x]))
        return Dual(value, {i: Numbers.add(self, terms) for i, terms in sorted(found.items())})

    def add(self, values: Iterable[Value]) -> Value:
        items = list(values)
        value = Numbers.add(self, map(plain, items))
        return value if type(value) is float else self._chained(value, [(x, lambda: ONE) for x in items])

    def mul(self, values: Iterable[Value]) -> Value:
        items = list(values)
        bare = [plain(x) for x in items]
        value = Numbers.mul(self, bare)
        if type(value) is float or all(type(x) is not Dual for x in items):
            return value  # an infinity stays one nearby
        if len(items) <= SHORT:
            rest = [partial(Numbers.mul, self, bare[:i] + bare[i + 1 :]) for i in range(len(items))]
            return self._chained(value, list(zip(items, rest, strict=True)))
        left, right = [ONE], [ONE]
        for a, b in zip(bare[:-1], reversed(bare[1:]), strict=True):
            left.append(Numbers.mul(self, [left[-1], a]))
            right.append(Numbers.mul(self, [right[-1], b]))
        others = [Numbers.mul(self, pair) for pair in zip(left, reversed(right), strict=True)]
        parts = [(x, lambda i=i: others[i]) for i, x in enumerate(items)]
        return self._chained(value, parts)

    def power(self, base: Value, exponent: Value) -> Value:
        b, e = plain(base), plain(exponent)
        value = Numbers.power(self, b, e)
        if type(base) is not Dual and type(exponent) is not Dual:
            return value
        less = Numbers.add(self, [e, -ONE])

        def by_base() -> Value:
            return Numbers.mul(self, [e, Numbers.power(self, b, less)])

        def by_exponent() -> Value:
            return Numbers.mul(self, [value, Numbers.map(self, "log", b)])

        return self._chained(value, [(base, by_base), (exponent, by_exponent)])

    def map(self, name: str, x: Value) -> Value:
        value = Numbers.map(self, name, plain(x))
        if type(x) is not Dual:
            return value
        point = x.value
        return self._chained(value, [(x, lambda: _derivative(self, name, point, value))])

    def cast(self, x: Value, name: str) -> Value:
        return UNKNOWN if type(x) is Dual else Numbers.cast(self, x, name)

    # --- order ---

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """A condition on something that varies counts where it holds, or fails, also nearby."""
        truth = Numbers.compare(self, op, plain(a), plain(b))
        if type(a) is not Dual and type(b) is not Dual:
            return truth
        return truth if self.order(plain(a), plain(b)) in (-1, 1) else UNKNOWN

    def extremum(self, kind: str, values: Iterable[Value]) -> Value:
        items = list(values)
        if all(type(x) is not Dual for x in items):
            return Numbers.extremum(self, kind, items)
        best = self._first(items, 1 if kind == "max" else -1)
        return UNKNOWN if best is None else items[best]

    def _first(self, items: Sequence[Value], wanted: int) -> int | None:
        """The place of the extreme value, where it stays the extreme one nearby."""
        bare = [plain(x) for x in items]
        if any(not is_finite(v) and (v is UNKNOWN or is_nan(v)) for v in bare):
            return None
        best = 0
        for i in range(1, len(bare)):
            if self.order(bare[i], bare[best]) == wanted:
                best = i
        for i, v in enumerate(bare):
            moves = type(items[i]) is Dual or type(items[best]) is Dual
            sign = self.order(bare[best], v)
            if i != best and sign != wanted and (moves or sign != 0):
                return None
        return best

    def ranked(self, values: Sequence[Value], k: int, wanted: int = 1) -> list[tuple[Value, Value]]:
        items = list(values)
        if all(type(x) is not Dual for x in items):
            return Numbers.ranked(self, items, k, wanted)
        found: list[tuple[Value, Value]] = []
        left = list(range(len(items)))
        while left and len(found) < k:
            place = self._first([items[i] for i in left], wanted)
            if place is None:
                return found + [(UNKNOWN, UNKNOWN)] * (min(k, len(items)) - len(found))
            best = left.pop(place)
            found.append((Fraction(best), items[best]))
        return found

    # --- truths ---

    def truth(self, x: Value) -> Value:
        """Of a number that varies: it must stay away from 0."""
        if type(x) is not Dual:
            return Numbers.truth(self, x)
        return True if Numbers.truth(self, x.value) is True else UNKNOWN

    def select(self, condition: Value, then: Value, other: Value) -> Value:
        decided = self.truth(condition)
        if decided is UNKNOWN and (type(then) is Dual or type(other) is Dual):
            return UNKNOWN
        return Numbers.select(self, decided, then, other)


class _Plain:
    """Formulas of the table of functions on plain values."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def number(self, value: Fraction) -> Value:
        return value

    def pi(self) -> Value:
        return self.numbers.special("pi")

    def plus(self, a: Value, b: Value) -> Value:
        return Numbers.add(self.numbers, [a, b])

    def times(self, a: Value, b: Value) -> Value:
        return Numbers.mul(self.numbers, [a, b])

    def power(self, base: Value, exponent: Fraction) -> Value:
        return Numbers.power(self.numbers, base, exponent)

    def call(self, name: str, x: Value) -> Value:
        return Numbers.map(self.numbers, name, x)


def _derivative(numbers: Numbers, name: str, x: Value, y: Value) -> Value:
    """The derivative at x, where the value is y; UNKNOWN where there is none, or where that is not decided."""
    row, plain = FUNCTIONS.get(name), _Plain(numbers)
    if row is None or not row.derivative:
        return UNKNOWN
    if row.kinks == "0" and numbers.order(x, ZERO) not in (1, -1):
        return UNKNOWN
    if row.kinks == "integers":
        floors = [plain.call(step, x) for step in ("floor", "ceil")]
        return ZERO if all(type(v) is Fraction for v in floors) and floors[0] != floors[1] else UNKNOWN
    return evaluated(row.derivative, plain, x, y)
