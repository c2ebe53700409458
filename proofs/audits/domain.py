"""Domains of audited numbers: which ones to draw, the simplest first, and which special ones.

Words, alone or together: real (default of floats), positive, nonnegative, integer (default of ints), count (0, 1, 2
and so on), unit (from 0 to 1), bool, finite (neither infinities nor NaN). A set or a range lists what to draw.
Numbers are dyadic and small, so that every float type holds them exactly and sums and products of a few do not round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from redalg.proofs.audits.values import LARGEST, PRECISION, SUBNORMAL, Array, Layout, Number, Scalar, Several, is_finite

WORDS = ("real", "positive", "nonnegative", "integer", "count", "unit", "bool", "finite", "complex")
Below = Callable[[int], int]  # below(n) draws from 0, 1, …, n - 1; 0 is the simplest
KINDS = ("infinities", "nan", "zeros", "subnormals", "huge")
LARGE = tuple(Fraction(2**e) for e in range(4, 41))
LARGE += tuple(Fraction(2**e + d) for e in (7, 8, 15, 16, 24, 31, 32) for d in (-1, 1))
HIGHEST = Fraction(2**40)
SMALL = tuple(Fraction(n, d) for n, d in ((0, 1), (1, 1), (-1, 1), (2, 1), (1, 2), (3, 1), (-2, 1), (-1, 2)))


@dataclass(frozen=True)
class Domain:
    """What one leaf may hold. `dtype` names the float type whose largest and least numbers are special."""

    words: frozenset[str]
    dtype: str = "float64"
    choices: tuple[Number, ...] = ()
    most: Number = HIGHEST  # of an integer: what the type holds, and sums of a few of

    @cached_property
    def pool(self) -> list[Number]:
        """The simplest numbers, which make ties and zeros likely."""
        whole = self.choices or "complex" in self.words
        return self.ordinary if whole else [x for x in self.ordinary if x in SMALL]

    @cached_property
    def ordinary(self) -> list[Number]:
        """Every ordinary number, the easiest to read first."""
        if self.choices:
            found: list[Number] = list(self.choices)
        elif "bool" in self.words:
            found = [False, True]
        elif "complex" in self.words:
            found = [complex(re, im) / 2 for re in range(-4, 5) for im in range(-4, 5)]
        elif self.integral:
            found = [Fraction(k) for k in range(-9, 10)]
        else:
            found = [Fraction(k, 8) for k in range(-64, 65)]
        return sorted((x for x in found if x in self), key=cost)

    @cached_property
    def _weighted(self) -> list[Number]:
        """The same, with those of the pool so often that they are a quarter of the list."""
        others = [x for x in self.ordinary if x not in self.pool]
        times = max(1, len(others) // (3 * len(self.pool)))
        return [x for x in self.pool for _ in range(times)] + others

    @property
    def integral(self) -> bool:
        return bool({"integer", "count"} & self.words)

    def draw(self, below: Below, small: bool) -> Number:
        """An ordinary number; a small one is of the pool."""
        numbers = self.pool if small else self._weighted
        return numbers[below(len(numbers))]

    def __contains__(self, x: Number) -> bool:
        if self.choices:
            return x in self.choices
        if isinstance(x, bool) or "bool" in self.words:
            return isinstance(x, bool) and "bool" in self.words
        if isinstance(x, complex) or "complex" in self.words:
            return "complex" in self.words
        return self._has_rational(Fraction(x)) if is_finite(x) else self._has_special(x)

    def _has_special(self, x: Number) -> bool:
        """Whether an infinity or NaN is of the domain."""
        bounded = bool(self.words & {"finite", "unit"}) or self.integral
        return not bounded and (x != x or x > 0 or not self._one_sided)

    def _has_rational(self, x: Fraction) -> bool:
        if self.integral and x.denominator != 1:
            return False
        if "unit" in self.words and not 0 <= x <= 1:
            return False
        return x > 0 if "positive" in self.words else x >= 0 or not self._one_sided

    @property
    def _one_sided(self) -> bool:
        return bool({"positive", "nonnegative", "count", "unit"} & self.words)

    def special(self, kind: str) -> tuple[Number, ...]:
        """The special numbers of one kind that the domain has; large ones are integers, magnitudes are not."""
        if kind == "large":
            return tuple(x for x in LARGE if x <= self.most and x in self) if self.integral and not self.choices else ()
        if self.choices or self.integral or {"bool", "complex"} & self.words:
            return ()
        return tuple(x for x in self._all(kind) if x in self)

    def _all(self, kind: str) -> tuple[Number, ...]:
        if kind == "infinities":
            return (math.inf, -math.inf)
        if kind == "nan":
            return (math.nan,)
        if kind == "zeros":
            return (Fraction(0), -0.0)
        if kind == "magnitudes":
            reach = 2 * PRECISION[self.dtype] // 5  # so that the smallest is not lost beside the largest
            powers = [*(e for e in range(-reach, reach + 1) if abs(e) > 3), *(-reach, reach - 1, reach) * 4]
            return tuple(s * Fraction(2) ** e for e in powers for s in (1, -1))
        least, top = SUBNORMAL.get(self.dtype, 5e-324), LARGEST.get(self.dtype, 1.7976931348623157e308)
        if kind == "subnormals":
            return tuple(Fraction(x) for x in (least, -least, 64 * least, -64 * least))
        exponents = (math.floor(math.log10(top)) * k // 8 for k in (5, 6, 7, 8))
        tens = [held(10.0**e, self.dtype) for e in exponents]
        return tuple(Fraction(s * x) for x in (*tens, top) for s in (1, -1))


def held(x: float, dtype: str) -> float:
    """The number of the float type nearest to x."""
    if dtype == "float64":
        return x
    import numpy

    if dtype == "bfloat16":
        return float((numpy.float32(x).view(numpy.uint32) & numpy.uint32(0xFFFF0000)).view(numpy.float32))
    return float(numpy.dtype(dtype).type(x))


class BadHint(Exception):
    """A domain hint that cannot be read; the text says why."""


def domains(hint: Any, layout: Layout, dtype: str) -> tuple[Domain, ...]:
    """One domain per leaf of the layout."""
    if isinstance(layout, Several) and isinstance(hint, tuple | list | Mapping):
        return tuple(
            d for h, part in zip(_hints(hint, layout), layout.parts, strict=True) for d in domains(h, part, dtype)
        )
    if isinstance(layout, Array) and layout.shape:
        return (_domain(hint, layout.element, dtype),) * math.prod(layout.shape)
    if isinstance(layout, Several):
        return tuple(d for part in layout.parts for d in domains(hint, part, dtype))
    return (_domain(hint, layout if isinstance(layout, Scalar) else layout.element, dtype),)


def _hints(hint: Any, layout: Several) -> list[Any]:
    if isinstance(hint, Mapping):
        unknown = [k for k in hint if k not in layout.keys]
        if unknown:
            raise BadHint(f"{unknown[0]!r} is none of the parts {list(layout.keys)}")
        return [hint.get(k) for k in layout.keys]
    if len(hint) != len(layout.parts):
        raise BadHint(f"{len(hint)} hints for {len(layout.parts)} parts")
    return list(hint)


def _domain(hint: Any, leaf: Scalar, dtype: str) -> Domain:
    own = {"int": "integer", "bool": "bool", "complex": "complex"}.get(leaf.kind, "real")
    name = leaf.dtype if leaf.kind == "float" else dtype
    if hint is None or hint == "finite":
        return Domain(frozenset({own, *([hint] if hint else [])}), name, most=_most(leaf, name))
    if isinstance(hint, range | set | frozenset):
        if not hint:
            raise BadHint(f"{hint!r} holds no number")
        return Domain(frozenset({own}), name, tuple(sorted(x if isinstance(x, bool) else Fraction(x) for x in hint)))
    if not isinstance(hint, str) or not hint.split() or set(hint.split()) - set(WORDS):
        raise BadHint(f"{hint!r} is none of the words {', '.join(WORDS)}, no set and no range")
    words = set(hint.split())
    if own == "bool" or own == "complex":
        words = {own}
    return Domain(frozenset(words | ({"integer"} if own == "integer" else set())), name, most=_most(leaf, name))


def _most(leaf: Scalar, dtype: str) -> Fraction:
    """A quarter of the largest integer of the type, so that the sum of three is one."""
    if leaf.kind == "int" and leaf.cast is not None:
        import numpy

        return min(HIGHEST, Fraction(int(numpy.iinfo(leaf.cast).max) // 4))
    return min(HIGHEST, Fraction(2 ** (PRECISION[dtype] - 2))) if leaf.kind == "float" else HIGHEST


def element_layout(hint: Any, cast: Any) -> Layout:
    """The layout of stream elements of a domain: one number, or as many as the hint has parts."""
    if isinstance(hint, tuple | list):
        return Several(tuple, tuple(element_layout(h, cast) for h in hint))
    if isinstance(hint, Mapping):
        return Several(dict, tuple(element_layout(h, cast) for h in hint.values()), tuple(hint))
    words = set(hint.split()) if isinstance(hint, str) else set()
    kind = "bool" if "bool" in words else "int" if {"integer", "count"} & words else "float"
    if isinstance(hint, range | set | frozenset):
        kind = "bool" if all(isinstance(x, bool) for x in hint) else kind
        kind = "int" if kind != "bool" and all(isinstance(x, int) for x in hint) else kind
    return Scalar(kind, cast if kind == "float" else None)


# --- simple numbers ---------------------------------------------------------------------------------------------------


def cost(x: Number) -> tuple[int, int, float]:
    """How hard a number is to read: 0, 1, -1, 2, small integers, halves, …, powers of ten, infinities, NaN."""
    if isinstance(x, bool):
        return (int(x), 0, 0.0)
    if isinstance(x, complex):
        return (cost(_plain(x.real))[0] + 2 * cost(_plain(x.imag))[0], 0, abs(x))
    if not is_finite(x):
        return (4000 + (x != x) * 10 + (x < 0), 0, 0.0)
    if x == 0:
        return (5 if math.copysign(1, x) < 0 else 0, 0, 0.0)
    q = Fraction(x)
    bits = 2 * abs(q.numerator).bit_length() + 3 * (q.denominator.bit_length() - 1) + (q < 0)
    return (bits, len(repr(float(q))), abs(float(q)))


def _plain(x: float) -> Number:
    return Fraction(x) if math.isfinite(x) else x
