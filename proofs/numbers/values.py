"""The numbers of the language: what an operation makes of exact values, enclosures, infinities and NaN.

A value is a bool, a `Fraction` (exact), an `Interval` (some real number in it), one of the floats oo, -oo and nan, a
`Complex` or `UNKNOWN`. Rationals stay rational up to a bounded length. IEEE's conventions hold with one zero: oo - oo,
0·oo and a real function outside its domain are NaN, c/0 is oo, max and min propagate NaN, a comparison with NaN is
false. What cannot be decided is `UNKNOWN`, never a guess.

The same operation on the same operands gives the same `Interval` object, so that ties between elements that were
computed alike are ties and not undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

from redalg.proofs.document.rounding import INTEGERS, rounded
from redalg.proofs.document.work import arithmetic, bits, spend, text, transcendental
from redalg.proofs.numbers import complexes
from redalg.proofs.numbers.complexes import Complex
from redalg.proofs.numbers.dyadic import compare as compare_dyadic
from redalg.proofs.numbers.dyadic import greatest, least
from redalg.proofs.numbers.enclosure import BITS, Interval, Reals, Unbounded, Undefined
from redalg.proofs.numbers.value_maps import (
    EXACT,
    INF,
    KNOWN,
    LIMITS,
    NAN,
    NEG_INF,
    ONE,
    UNKNOWN,
    ZERO,
    Value,
    exact_root,
    is_finite,
    is_nan,
)

LONGEST = 8192  # bits of a numerator and a denominator together
_HOLDS: dict[str, tuple[int, ...]] = {"lt": (-1,), "le": (-1, 0), "eq": (0,), "ne": (-1, 1)}


class Numbers:
    """Operations on values at one precision."""

    def __init__(self, precision: int = BITS, longest: int = LONGEST) -> None:
        self.reals, self.longest = Reals(precision), longest
        self.kept: dict[tuple[Any, ...], tuple[Value, Any]] = {}
        self.met: dict[int, tuple[int, Interval]] = {}  # intervals in the order they are met, which keeps their ids

    # --- what a value is ---

    def is_nan(self, x: Value) -> bool:
        return is_nan(x)

    def is_finite(self, x: Value) -> bool:
        return is_finite(x)

    def is_lowest(self, x: Value) -> bool:
        """Whether x is -oo."""
        return type(x) is float and x == NEG_INF

    # --- exact and enclosed ---

    def settled(self, x: Fraction) -> Value:
        """A rational, or an enclosure of one that is too long."""
        length = x.numerator.bit_length() + x.denominator.bit_length()
        arithmetic(length)
        if length <= self.longest:
            return x
        return self.enclosed("of", self.reals.of, x)

    def interval(self, x: Fraction | Interval | bool) -> Interval:
        return x if isinstance(x, Interval) else self.enclosed("of", self.reals.of, Fraction(x))

    def enclosed(self, name: str, f: Callable[..., Interval], *args: Any) -> Value:
        """f of the arguments, or what is known of it; the same object for the same arguments."""
        key = (name, *(id(a) if type(a) is Interval else text(a) if type(a) is Fraction else a for a in args))
        if key not in self.kept:
            transcendental(name, self.reals.bits)
            try:
                value: Value = f(*args)
            except Unbounded:
                value = UNKNOWN
            except Undefined:
                value = NAN
            self.kept[key] = value, args  # the arguments are held so that their ids stay theirs
        return self.kept[key][0]

    def special(self, name: str) -> Value:
        if name == "pi":
            return self.enclosed("pi", self.reals.pi)
        if name == "i":
            return Complex(ZERO, ONE)
        if name == "e":
            return self.map("exp", ONE)
        return {"oo": INF, "-oo": NEG_INF, "nan": NAN}.get(name, UNKNOWN)

    # --- sums and products ---

    def add(self, values: Iterable[Value]) -> Value:
        exact, rest, infinite, unknown = ZERO, [], 0.0, False
        spend(1 + len(items := list(values)))
        for v in items:
            kind = type(v)
            if kind is Fraction or kind is bool:
                exact += v
                arithmetic(exact.denominator.bit_length())
                if exact.denominator.bit_length() > self.longest:
                    rest.append(self.settled(exact))
                    exact = ZERO
            elif kind is Interval:
                rest.append(v)
            elif kind is float:
                infinite += v
            elif kind is Complex:
                return complexes.total(self, items)
            else:
                unknown = True
        if infinite:
            return UNKNOWN if unknown and infinite == infinite else infinite
        return UNKNOWN if unknown else self._folded("plus", self.reals.plus, exact, ZERO, rest)

    def mul(self, values: Iterable[Value]) -> Value:
        exact, rest, infinite, unknown = ONE, [], 1.0, False
        spend(1 + len(items := list(values)))
        for v in items:
            kind = type(v)
            if kind is Fraction or kind is bool:
                exact *= v
                length = exact.denominator.bit_length() + exact.numerator.bit_length()
                arithmetic(length)
                if length > 2 * self.longest:
                    rest.append(self.settled(exact))
                    exact = ONE
            elif kind is Interval:
                rest.append(v)
            elif kind is float:
                infinite *= v
            elif kind is Complex:
                return complexes.product(self, items)
            else:
                unknown = True
        if infinite != 1.0:
            return _infinite_product(infinite, exact, rest, unknown)
        if unknown:
            return UNKNOWN
        return exact if not exact else self._folded("times", self.reals.times, exact, ONE, rest)

    def _folded(self, name: str, f: Callable[..., Interval], exact: Fraction, unit: Fraction, rest: list[Any]) -> Value:
        if not rest:
            return self.settled(exact)
        if exact != unit:
            rest.append(self.interval(exact))
        result, *others = self._ordered(rest)
        for v in others:
            result = self.enclosed(name, f, result, v)
            if type(result) is not Interval:
                return result
        return result

    def _ordered(self, operands: list[Interval]) -> list[Interval]:
        """Operands in one order, however they are written: by their ends, which no address in memory decides.

        Those of the same ends may be other numbers; they are told apart by which was met first.
        """
        for v in operands:
            self.met.setdefault(id(v), (len(self.met), v))
        return sorted(operands, key=lambda v: (v.low, v.high, self.met[id(v)][0]))

    # --- powers ---

    def power(self, base: Value, exponent: Value) -> Value:
        base, exponent = (Fraction(v) if type(v) is bool else v for v in (base, exponent))
        if exponent == 0 or base == 1:
            return ONE
        if is_nan(base) or is_nan(exponent):
            return NAN
        if base is UNKNOWN or exponent is UNKNOWN:
            return UNKNOWN
        if type(base) is Complex or type(exponent) is Complex:
            return complexes.power(self, base, exponent)
        if type(exponent) is float:
            return self._infinite_power(base, exponent > 0)
        if type(exponent) is Interval:
            return self._enclosed_power(base, exponent)
        return self._rational_power(base, exponent)

    def _rational_power(self, base: Value, exponent: Fraction) -> Value:
        """The power of what is neither NaN nor complex, to an exponent other than 0."""
        if type(base) is Interval:
            return self.enclosed("power", self.reals.power, base, exponent)
        if base == 0:
            return ZERO if exponent > 0 else INF
        if base < 0 and exponent.denominator != 1:
            return NAN
        if type(base) is float:
            size = INF if exponent > 0 else ZERO
            return -size if base < 0 and exponent.numerator % 2 else size
        found = self._exact_power(base, exponent)
        return found if found is not None else self.enclosed("power", self.reals.power, self.interval(base), exponent)

    def _exact_power(self, base: Fraction, exponent: Fraction) -> Fraction | None:
        bits = base.numerator.bit_length() + base.denominator.bit_length()
        if abs(exponent) * bits > self.longest or exponent.denominator > 64:
            return None
        found = exact_root(base, exponent.denominator)
        return None if found is None else found**exponent.numerator

    def _enclosed_power(self, base: Value, exponent: Interval) -> Value:
        if type(base) is float or base == 0:
            up = exponent.sign()
            if not up or base == NEG_INF:
                return UNKNOWN
            return INF if (up > 0) == (base != 0) else ZERO
        if type(base) is Fraction and base < 0:
            return UNKNOWN  # the exponent may be an integer
        return self.enclosed("power", self.reals.power, self.interval(base), exponent)

    def _infinite_power(self, base: Value, upwards: bool) -> Value:
        size = self.map("abs", base)
        larger = self.compare("lt", ONE, size)
        if size == 1 or larger is UNKNOWN:
            return ONE if size == 1 else UNKNOWN
        return INF if larger is upwards else ZERO

    # --- functions ---

    def map(self, name: str, x: Value) -> Value:
        if x is UNKNOWN or is_nan(x):
            return x
        if type(x) is Complex:
            return complexes.function(self, name, x)
        x = Fraction(x) if type(x) is bool else x
        if type(x) is float:
            return self._at_infinity(name, x)
        if name in EXACT:
            return EXACT[name](self, x)
        if type(x) is Fraction:
            known = KNOWN.get((name, x))
            if known is not None:
                return known
        return self.enclosed(name, self.reals.call, name, self.interval(x))

    def _at_infinity(self, name: str, x: float) -> Value:
        up = x > 0
        if name == "atan":
            half = self.mul([self.special("pi"), Fraction(1, 2)])
            return half if up else self.mul([half, Fraction(-1)])
        return LIMITS[name][0 if up else 1]

    def cast(self, x: Value, name: str) -> Value:
        """x rounded once to the named format, to nearest, ties to even."""
        if name == "bool":
            return self.compare("ne", x, ZERO)
        if x is UNKNOWN or is_nan(x):
            return x
        if type(x) is Complex:
            return complexes.joined(self.cast(x.re, name), self.cast(x.im, name))
        if type(x) is float:
            if name in INTEGERS:
                return Fraction(INTEGERS[name][x > 0])
            return x if name != "float8_e4m3fn" else rounded(Fraction(10**9 if x > 0 else -(10**9)), name)
        if type(x) is not Interval:
            return rounded(Fraction(x), name)
        try:
            low, high = (rounded(v, name) for v in self.reals.ends(x))
        except OverflowError:
            return UNKNOWN
        if low == high:
            return low
        return self.reals.between(low, high) if type(low) is type(high) is Fraction else UNKNOWN

    # --- order ---

    def order(self, a: Value, b: Value) -> int | None:
        """-1, 0, 1 as a is below, equal to or above b; None where that is not decided. Neither is NaN."""
        if a is UNKNOWN or b is UNKNOWN or type(a) is Complex or type(b) is Complex:
            return None
        if a is b:
            return 0
        if type(a) is not Interval and type(b) is not Interval:
            arithmetic(bits(a) // 2 if type(a) is Fraction else 0)
            return (a > b) - (a < b)
        if type(a) is float or type(b) is float:
            infinite, sign = (a, 1) if type(a) is float else (b, -1)
            return sign if infinite > 0 else -sign
        return _order_of_intervals(self.interval(a), self.interval(b))

    def compare(self, op: str, a: Value, b: Value) -> Value:
        if is_nan(a) or is_nan(b):
            return op == "ne"
        if type(a) is Complex or type(b) is Complex:
            return complexes.equal(self, op, a, b) if op in ("eq", "ne") else UNKNOWN
        sign = self.order(a, b)
        if sign is not None:
            return sign in _HOLDS[op]
        if op in ("le", "lt") and a is not UNKNOWN and b is not UNKNOWN:
            x, y = self.interval(a), self.interval(b)
            if op == "le" and compare_dyadic(x.high, y.low) <= 0:
                return True
            if op == "lt" and compare_dyadic(x.low, y.high) >= 0:
                return False
        return UNKNOWN

    def extremum(self, kind: str, values: Iterable[Value]) -> Value:
        """The largest ("max") or smallest value; NaN if there is one; the identity of nothing."""
        best: Value = None
        unknown = False
        for v in values:
            if is_nan(v):
                return NAN
            v = Fraction(v) if type(v) is bool else v
            unknown = unknown or v is UNKNOWN or type(v) is Complex
            if best is None or unknown:
                best = v
                continue
            sign = self.order(best, v)
            if sign is None:
                pair = self._ordered([self.interval(best), self.interval(v)])
                best = self.enclosed(kind, self._overlapping, *pair, kind)
            elif sign < 0 if kind == "max" else sign > 0:
                best = v
        if unknown:
            return UNKNOWN
        return best if best is not None else NEG_INF if kind == "max" else INF

    def _overlapping(self, a: Interval, b: Interval, kind: str) -> Interval:
        outer = greatest if kind == "max" else least
        return Interval(outer(a.low, b.low), outer(a.high, b.high))

    def position(self, kind: str, values: Sequence[Value]) -> Value:
        """The lowest index of the largest ("argmax") or smallest value; the first NaN; -1 of nothing."""
        return self.ranked(values, 1, 1 if kind == "argmax" else -1)[0][0] if values else Fraction(-1)

    def ranked(self, values: Sequence[Value], k: int, wanted: int = 1) -> list[tuple[Value, Value]]:
        """(index, value) of the k first in descending (ascending) order: NaN first, ties by lowest index."""
        found: list[tuple[Value, Value]] = []
        left = list(range(len(values)))
        while left and len(found) < k:
            best = left[0]
            for i in left:
                if values[i] is UNKNOWN:
                    return found + [(UNKNOWN, UNKNOWN)] * (min(k, len(values)) - len(found))
                sign = self._before(values[i], values[best], wanted)
                if sign is None:
                    return found + [(UNKNOWN, UNKNOWN)] * (min(k, len(values)) - len(found))
                best = i if sign > 0 else best
            left.remove(best)
            found.append((Fraction(best), values[best]))
        return found

    def _before(self, a: Value, b: Value, wanted: int) -> int | None:
        if is_nan(a) or is_nan(b):
            return is_nan(a) - is_nan(b)
        sign = self.order(a, b)
        return None if sign is None else sign * wanted

    # --- truths ---

    def truth(self, x: Value) -> Value:
        if type(x) is bool or x is UNKNOWN:
            return x
        if type(x) is Complex:
            return self.compare("ne", x, ZERO)
        if type(x) is Interval:
            sign = x.sign()
            return UNKNOWN if sign is None else sign != 0
        return x != 0

    def conjunction(self, values: Iterable[Value]) -> Value:
        found = [self.truth(v) for v in values]
        if any(v is False for v in found):
            return False
        return UNKNOWN if any(v is UNKNOWN for v in found) else True

    def disjunction(self, values: Iterable[Value]) -> Value:
        return self.negation(self.conjunction([self.negation(v) for v in values]))

    def negation(self, x: Value) -> Value:
        x = self.truth(x)
        return x if x is UNKNOWN else not x

    def select(self, condition: Value, then: Value, other: Value) -> Value:
        condition = self.truth(condition)
        if condition is not UNKNOWN:
            return then if condition else other
        if then is other or (type(then) is type(other) is Fraction and then == other):
            return then
        numbers = (Fraction, Interval)
        if type(then) in numbers and type(other) in numbers:
            return self.reals.hull(self.interval(then), self.interval(other))
        return UNKNOWN


def _infinite_product(infinite: float, exact: Fraction, rest: Iterable[Interval], unknown: bool) -> Value:
    """The product of infinities (NaN where one factor is), of an exact number, of enclosures and of unknown ones."""
    signs = [(exact > 0) - (exact < 0), *(v.sign() for v in rest)]
    if infinite != infinite or 0 in signs:
        return NAN
    if unknown or None in signs:
        return UNKNOWN
    return -infinite if sum(s == -1 for s in signs) % 2 else infinite


def _order_of_intervals(x: Interval, y: Interval) -> int | None:
    if compare_dyadic(x.high, y.low) < 0:
        return -1
    if compare_dyadic(x.low, y.high) > 0:
        return 1
    points = compare_dyadic(x.low, x.high) == compare_dyadic(y.low, y.high) == 0
    return 0 if points else None
