"""Operators for auditing: families of lawful ones with drawn parameters, and for each ways to break one law.

`draw(seed)` gives a lawful operator for even seeds and a broken one for odd seeds. What is broken is known because it
was changed on purpose; `follows` lists the laws that need not hold either once that one is broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
from hypothesis import settings

INF = math.inf


@dataclass(frozen=True)
class Drawn:
    """An operator with the options of its audit; `breaks` is "" for a lawful one."""

    name: str
    combine: Callable[[Any, Any], Any]
    identity: Any
    options: dict[str, Any] = field(default_factory=dict)
    breaks: str = ""
    follows: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.name}{f', broken: {self.breaks}' if self.breaks else ''}"


FAMILIES: list[Callable[[Random], list[Drawn]]] = []
AFTER_IDENTITY = frozenset({"empty merge", "definition"})
AFTER_EMPTY = frozenset({"associativity", "commutativity", "left identity", "right identity", "homomorphism"})


def family(f: Callable[[Random], list[Drawn]]) -> Callable[[Random], list[Drawn]]:
    """A family draws its parameters and gives the lawful operator first, then one broken operator per mutation."""
    FAMILIES.append(f)
    return f


def draw(seed: int) -> Drawn:
    rng = Random(f"operator:{seed // 2}")
    lawful, *broken = FAMILIES[seed // 2 % len(FAMILIES)](rng)
    return rng.choice(broken) if seed % 2 else lawful


def small(rng: Random, *among: float) -> Any:
    return Fraction(rng.choice(among or (1, 2, 3, -1, -2))) / rng.choice((1, 2))


# --- scalars ----------------------------------------------------------------------------------------------------------


@family
def shifted_sum(rng: Random) -> list[Drawn]:
    """a + b + c: the sum, moved by a bijection."""
    c = float(small(rng))
    own = {"commutative": True}
    return [
        Drawn(f"a + b + {c}", lambda a, b: a + b + c, -c, own),
        Drawn("identity 0", lambda a, b: a + b + c, 0.0, own, "left identity", AFTER_IDENTITY | {"right identity"}),
        Drawn("difference", lambda a, b: a - b, 0.0, {}, "associativity", frozenset({"left identity"})),
        Drawn(
            "weighted",
            lambda a, b: a + 2 * b + c,
            -c,
            own,
            "commutativity",
            AFTER_IDENTITY | {"left identity", "right identity", "associativity"},
        ),
    ]


@family
def deformed_sum(rng: Random) -> list[Drawn]:
    """a + b + k·a·b, that is (1 + ka)(1 + kb) seen from 0."""
    k, s = float(small(rng)), float(small(rng, 1, 2))
    own = {"commutative": True, "domain": "finite"}
    return [
        Drawn(f"a + b + {k}ab", lambda a, b: a + b + k * (a * b), 0.0, own),
        Drawn("squares", lambda a, b: a + b + k * (a * b) ** 2, 0.0, own, "associativity"),
        Drawn(
            "distance",
            lambda a, b: a + b + k * (a * b) * abs(a - b),
            0.0,
            own,
            "associativity",
            frozenset({"empty merge", "huge"}),
        ),
        Drawn(
            "larger one",
            lambda a, b: a + b + (a * b * s if a > b else 0),
            0.0,
            own,
            "commutativity",
            frozenset({"associativity"}),
        ),
    ]


def _larger(a: float, b: float) -> float:
    return a if a != a or a >= b else b


@family
def extremum(rng: Random) -> list[Drawn]:
    """max or min that keep NaN."""
    sign = rng.choice((1, -1))
    own = {"commutative": True}
    bound = float(rng.randint(-3, 3))
    return [
        Drawn(f"extremum {sign}", lambda a, b: sign * _larger(sign * a, sign * b), -sign * INF, own),
        Drawn("built in", max if sign > 0 else min, -sign * INF, own, "nan"),
        Drawn(
            "finite identity",
            lambda a, b: sign * _larger(sign * a, sign * b),
            sign * bound,
            own,
            "left identity",
            AFTER_IDENTITY | {"right identity"},
        ),
        Drawn(
            "if of floats", lambda a, b: sign * (sign * a if sign * a > sign * b else sign * b), -sign * INF, own, "nan"
        ),
    ]


@family
def log_sum_exp(rng: Random) -> list[Drawn]:
    """log of a sum of powers of one base, without a guard only where it needs none."""
    base = rng.choice((2.0, math.e, 10.0))
    other = rng.choice([b for b in (2.0, math.e, 10.0) if b != base])

    def merge(a: float, b: float, down: float, up: float) -> float:
        m = max(a, b)
        return m if m == -INF else m + math.log(down ** (a - m) + down ** (b - m)) / math.log(up)

    def naive(a: float, b: float) -> float:
        return math.log(base**a + base**b) / math.log(base) if max(a, b) > -INF else -INF

    def unguarded(a: float, b: float) -> float:
        m = np.maximum(a, b)
        return m + np.log(base ** (a - m) + base ** (b - m)) / math.log(base)

    own = {"commutative": True, "domain": "finite"}
    return [
        Drawn(f"log base {base}", lambda a, b: merge(a, b, base, base), -INF, own),
        Drawn(f"bases {base} and {other}", lambda a, b: merge(a, b, base, other), -INF, own, "associativity"),
        Drawn("overflows", naive, -INF, own, "huge", frozenset({"empty merge", "magnitudes"})),
        Drawn("no guard", unguarded, -INF, own, "empty merge", AFTER_EMPTY),
    ]


# --- streams of numbers -----------------------------------------------------------------------------------------------

State = tuple[Any, ...]


def _size(xs: Any) -> Any:
    return Fraction(len(xs))


@family
def mean(rng: Random) -> list[Drawn]:
    """(count, mean) of a stream."""

    def merge(a: State, b: State) -> State:
        n = a[0] + b[0]
        return (n, a[1] + (b[1] - a[1]) * (b[0] / n)) if n else a

    def unguarded(a: State, b: State) -> State:
        return (a[0] + b[0], (a[0] * a[1] + b[0] * b[1]) / (a[0] + b[0]))

    def unweighted(a: State, b: State) -> State:
        return (a[0] + b[0], (a[1] + b[1]) / 2) if a[0] and b[0] else a if a[0] else b

    def one_guard(a: State, b: State) -> State:
        return a if not b[0] else (a[0] + b[0], (a[0] * a[1] + b[0] * b[1]) / (a[0] + b[0]))

    lift = lambda xs: (_size(xs), sum(xs) / _size(xs) if len(xs) else 0)  # noqa: E731
    nan_of_nothing = lambda xs: (float(len(xs)), sum(xs) / len(xs) if len(xs) else math.nan)  # noqa: E731
    own = {"lift": lift, "domain": "finite", "commutative": True}
    return [
        Drawn("mean", merge, (0, 0), own),
        Drawn("zero counts", unguarded, (0, 0), own, "empty merge", AFTER_EMPTY),
        Drawn("unweighted", unweighted, (0, 0), own, "associativity", AFTER_EMPTY),
        Drawn("empty lifts to NaN", one_guard, (0.0, 0.0), own | {"lift": nan_of_nothing}, "empty merge", AFTER_EMPTY),
    ]


def _moments(xs: Any) -> State:
    n = _size(xs)
    m = sum(xs) / n if n else Fraction(0)
    return (n, m, sum((x - m) ** 2 for x in xs))


@family
def welford(rng: Random) -> list[Drawn]:
    """(count, mean, sum of squared deviations): Chan, Golub and LeVeque (1979)."""
    ddof = rng.choice((0, 1))

    def merge(a: State, b: State) -> State:
        if not a[0] or not b[0]:
            return b if not a[0] else a
        n, d = a[0] + b[0], b[1] - a[1]
        return (n, a[1] + d * b[0] / n, a[2] + b[2] + d * d * a[0] * b[0] / n)

    def new_weight_only(a: State, b: State) -> State:
        n, d = a[0] + b[0], b[1] - a[1]
        w = b[0] / n if n else 0
        return (n, a[1] + d * w, a[2] + b[2] + d * d * a[0] * w)

    def one_sided(a: State, b: State) -> State:
        n, d = a[0] + b[0], b[1] - a[1]
        return (n, a[1] + d * b[0] / n, a[2] + b[2] + d * d * b[0] / n) if n else a

    variance = lambda s: s[2] / (s[0] - ddof) if s[0] > ddof else 0  # noqa: E731
    two_pass = lambda xs: _moments(xs)[2] / (len(xs) - ddof) if len(xs) > ddof else 0  # noqa: E731
    other = lambda xs: _moments(xs)[2] / (len(xs) - 1 + ddof) if len(xs) > 1 else 0  # noqa: E731
    own = {"lift": _moments, "domain": "finite", "commutative": True}
    return [
        Drawn("welford", merge, (0, 0, 0), own | {"finalize": variance, "definition": two_pass}),
        Drawn("guards its new weight", new_weight_only, (0, 0, 0), own, "empty merge", frozenset({"huge"})),
        Drawn(
            "forgets a count",
            one_sided,
            (0, 0, 0),
            own,
            "homomorphism",
            frozenset({"associativity", "commutativity", "left identity", "empty merge"}),
        ),
        Drawn("other denominator", merge, (0, 0, 0), own | {"finalize": variance, "definition": other}, "definition"),
    ]


@family
def online_softmax(rng: Random) -> list[Drawn]:
    """(maximum, sum of exponentials relative to it): Milakov and Gimelshein (2018)."""
    base = rng.choice((2.0, math.e))
    other = math.e if base == 2.0 else 2.0

    def merge(a: State, b: State, left: float = base, right: float = base) -> State:
        m = max(a[0], b[0])
        return (m, a[1] * left ** (a[0] - m) + b[1] * right ** (b[0] - m)) if m > -INF else (m, 0.0)

    def unguarded(a: State, b: State) -> State:
        m = max(a[0], b[0])
        return (m, a[1] * base ** (a[0] - m) + b[1] * base ** (b[0] - m))

    def lift(xs: Any, base: float = base) -> State:
        m = max(xs, default=-INF)
        return (m, math.fsum(base ** (x - m) for x in xs))

    own = {"lift": lift, "domain": "finite", "commutative": True}
    broken = frozenset({"associativity", "commutativity", "homomorphism"})
    return [
        Drawn(f"softmax base {base}", merge, (-INF, 0.0), own),
        Drawn("mixed bases", lambda a, b: merge(a, b, base, other), (-INF, 0.0), own, "associativity", broken),
        Drawn("empty ⊕ empty", unguarded, (-INF, 0.0), own, "empty merge", AFTER_EMPTY),
        Drawn("lifted in another base", merge, (-INF, 0.0), own | {"lift": lambda xs: lift(xs, other)}, "homomorphism"),
    ]


@family
def best_segment(rng: Random) -> list[Drawn]:
    """(sum, best prefix, best suffix, best segment): Bentley (1984)."""

    def merge(a: State, b: State) -> State:
        return (a[0] + b[0], max(a[1], a[0] + b[1]), max(b[2], b[0] + a[2]), max(a[3], b[3], a[2] + b[1]))

    def no_suffix(a: State, b: State) -> State:
        return (a[0] + b[0], max(a[1], a[0] + b[1]), b[2], max(a[3], b[3], a[2] + b[1]))

    def lift(xs: Any) -> State:
        state: State = (0, 0, 0, 0)
        for x in xs:
            state = merge(state, (x, max(x, 0), max(x, 0), max(x, 0)))
        return state

    def brute(xs: Any) -> Any:
        return max((sum(xs[i:j]) for i in range(len(xs)) for j in range(i, len(xs) + 1)), default=0)

    own = {"lift": lift, "domain": "finite"}
    last = lambda s: s[3]  # noqa: E731
    return [
        Drawn("best segment", merge, (0, 0, 0, 0), own | {"finalize": last, "definition": brute}),
        Drawn(
            "suffix not grown",
            no_suffix,
            (0, 0, 0, 0),
            own,
            "homomorphism",
            frozenset({"associativity", "right identity", "empty merge"}),
        ),
        Drawn("claimed commutative", merge, (0, 0, 0, 0), own | {"commutative": True}, "commutativity"),
    ]


# --- pasted tests ----------------------------------------------------------------------------------------------------


def texts_fail(report: Any, law: str | None = None, **options: Any) -> list[bool]:
    """Run a report's tests; whether each of them fails."""
    found: dict[str, Any] = {}
    text = report.hypothesis_test(law, **options)
    settings.register_profile("before", parent=settings())
    settings.register_profile("few", parent=settings(), max_examples=20, database=None)
    settings.load_profile("few")
    try:
        exec(compile(text, "<pasted>", "exec"), found)
        return [_fails(f) for name, f in list(found.items()) if name.startswith("test_")]
    finally:
        settings.load_profile("before")


def _fails(test: Callable[[], None]) -> bool:
    try:
        test()
    except AssertionError:
        return True
    return False
