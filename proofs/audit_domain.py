"""Domains of audited numbers: which ones to draw, which special ones, and which are simpler than a given one.

Words, alone or together: real (default of floats), positive, nonnegative, integer (default of ints), count (0, 1, 2
and so on), unit (from 0 to 1), bool, finite (neither infinities nor NaN). A set or a range lists what to draw.
Numbers are dyadic and small, so that every float type holds them exactly and sums and products of a few do not round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from random import Random
from typing import Any

from redalg.proofs.audit_values import LARGEST, PRECISION, SUBNORMAL, Array, Layout, Number, Scalar, Several, is_finite

WORDS = ("real", "positive", "nonnegative", "integer", "count", "unit", "bool", "finite", "complex")
KINDS = ("infinities", "nan", "zeros", "subnormals", "huge")
LARGE = tuple(Fraction(2**e + d) for e in (7, 8, 10, 15, 16, 20, 24, 31, 32, 36, 40) for d in (-1, 0, 1))
SMALL = tuple(Fraction(n, d) for n, d in ((0, 1), (1, 1), (-1, 1), (2, 1), (1, 2), (3, 1), (-2, 1), (-1, 2)))


@dataclass(frozen=True)
class Domain:
    """What one leaf may hold. `dtype` names the float type whose largest and least numbers are special."""

    words: frozenset[str]
    dtype: str = "float64"
    choices: tuple[Number, ...] = ()
    most: Number = LARGE[-1]  # of an integer: what the type holds, and sums of a few of

    @cached_property
    def pool(self) -> list[Fraction]:
        return [x for x in SMALL if x in self]

    @property
    def integral(self) -> bool:
        return bool({"integer", "count"} & self.words)

    def draw(self, rng: Random, small: bool) -> Number:
        """An ordinary number; `small` ones make ties and zeros likely."""
        if self.choices:
            return rng.choice(self.choices)
        if "bool" in self.words:
            return rng.random() < 0.5
        if "complex" in self.words:
            return complex(rng.randint(-4, 4), rng.randint(-4, 4)) / 2
        if small or rng.random() < 0.25:
            return rng.choice(self.pool)
        return self._larger(rng)

    def _larger(self, rng: Random) -> Fraction:
        if self.integral:
            low = 1 if "positive" in self.words else 0 if {"count", "nonnegative"} & self.words else -9
            return Fraction(rng.randint(low, 9))
        if "unit" in self.words:
            return Fraction(rng.randint(0, 8), 8)
        low = 1 if "positive" in self.words else 0 if "nonnegative" in self.words else -64
        return Fraction(rng.randint(low, 64), 8)

    def __contains__(self, x: Number) -> bool:
        if self.choices:
            return x in self.choices
        if isinstance(x, bool) or "bool" in self.words:
            return isinstance(x, bool) and "bool" in self.words
        if isinstance(x, complex) or "complex" in self.words:
            return "complex" in self.words
        if not is_finite(x):
            return not (self.words & {"finite", "unit"} or self.integral) and (x != x or x > 0 or not self._one_sided)
        rational = Fraction(x)
        if self.integral and rational.denominator != 1:
            return False
        if "unit" in self.words and not 0 <= rational <= 1:
            return False
        return rational > 0 if "positive" in self.words else rational >= 0 or not self._one_sided

    @property
    def _one_sided(self) -> bool:
        return bool({"positive", "nonnegative", "count", "unit"} & self.words)

    def special(self, kind: str) -> tuple[Number, ...]:
        """The special numbers of one kind that the domain has; large ones are integers."""
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
        least, top = SUBNORMAL.get(self.dtype, 5e-324), LARGEST.get(self.dtype, 1.7976931348623157e308)
        if kind == "subnormals":
            return tuple(Fraction(x) for x in (least, -least, 64 * least, -64 * least))
        exponents = (math.floor(math.log10(top)) * k // 8 for k in (5, 6, 7, 8))
        powers = [held(10.0**e, self.dtype) for e in exponents]
        return tuple(Fraction(s * x) for x in (*powers, top) for s in (1, -1))


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
        return tuple(d for h, part in zip(_hints(hint, layout), layout.parts, strict=True)
                     for d in domains(h, part, dtype))  # fmt: skip
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

        return min(LARGE[-1], Fraction(int(numpy.iinfo(leaf.cast).max) // 4))
    return min(LARGE[-1], Fraction(2 ** (PRECISION[dtype] - 2))) if leaf.kind == "float" else LARGE[-1]


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


# --- simpler numbers --------------------------------------------------------------------------------------------------


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


def simpler(x: Number, domain: Domain) -> list[Number]:
    """Numbers of the domain that are easier to read than x, the easiest first."""
    if domain.choices:
        found: list[Number] = list(domain.choices)
    elif isinstance(x, bool):
        found = [False]
    elif isinstance(x, complex):
        found = [0j, 1 + 0j, -1 + 0j, 1j, complex(x.real), complex(0, x.imag), complex(round(x.real), round(x.imag))]
    elif not is_finite(x):
        found = [*SMALL, math.inf] if x == x else [*SMALL]
    else:
        found = _simpler_rational(Fraction(x), domain.dtype)
    mine = cost(x)
    return sorted({y: None for y in found if y in domain and cost(y) < mine}, key=cost)


def _simpler_rational(q: Fraction, dtype: str) -> list[Number]:
    near = math.trunc(q)
    found: list[Number] = [*SMALL, -q, Fraction(near), Fraction(round(2 * q), 2), q / 2]
    if abs(q) > 16:
        e = math.floor(math.log10(abs(q)))
        sign = 1 if q > 0 else -1
        found += [Fraction(sign * held(10.0**k, dtype)) for k in {e // 4, e // 2, 3 * e // 4, e - 8, e - 1, e} if k > 0]
    else:
        found += [Fraction(near + (1 if q > 0 else -1)), Fraction(near - (1 if q > 0 else -1))]
    return found
