"""More families of `tests.support.audit_operators`: pairs, matrices, dicts, arrays, integers; some of them not
commutative.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np

from tests.support.audit_operators import AFTER_IDENTITY, INF, Drawn, State, family

BOTH = frozenset({"left identity", "right identity"})


@family
def affine(rng: Random) -> list[Drawn]:
    """x ↦ p·x + q, composed; or the recurrence of a linear scan."""
    forward = rng.random() < 0.5

    def compose(a: State, b: State) -> State:
        (p, q), (r, s) = (a, b) if forward else (b, a)
        return (p * r, q * r + s)

    def crossed(a: State, b: State) -> State:
        return (a[0] * b[0], a[1] * b[0] + b[1] * a[0])

    return [
        Drawn(f"affine, forward {forward}", compose, (1.0, 0.0), {"domain": "finite"}),
        Drawn("claimed commutative", compose, (1.0, 0.0), {"domain": "finite", "commutative": True}, "commutativity"),
        Drawn(
            "identity (0, 0)",
            compose,
            (0.0, 0.0),
            {"domain": "finite"},
            "left identity",
            AFTER_IDENTITY | {"right identity"},
        ),
        Drawn(
            "adds before it scales",
            lambda a, b: (a[0] * b[0], (a[1] + b[1]) * b[0]),
            (1.0, 0.0),
            {"domain": "finite"},
            "associativity",
            frozenset({"left identity"}),
        ),
        Drawn(
            "derivatives without identity 1",
            crossed,
            (1.0, 1.0),
            {"domain": "finite"},
            "left identity",
            AFTER_IDENTITY | {"right identity"},
        ),
    ]


@family
def matrices(rng: Random) -> list[Drawn]:
    """Products of 2×2 matrices, as arrays."""
    own = {"domain": "finite"}
    eye = np.eye(2)
    return [
        Drawn("matrix product", lambda a, b: a @ b, eye, own),
        Drawn("claimed commutative", lambda a, b: a @ b, eye, own | {"commutative": True}, "commutativity"),
        Drawn("product of a transpose", lambda a, b: a @ b.T, eye, own, "associativity", frozenset({"left identity"})),
        Drawn(
            "ones for an identity",
            lambda a, b: a @ b,
            np.ones((2, 2)),
            own,
            "left identity",
            AFTER_IDENTITY | {"right identity"},
        ),
        Drawn("Jordan product", lambda a, b: (a @ b + b @ a) / 2, eye, own | {"commutative": True}, "associativity"),
    ]


@family
def position(rng: Random) -> list[Drawn]:
    """(value, position) of the largest value, ties to the lowest position."""

    def first(a: State, b: State) -> State:
        return a if (a[0], -a[1]) >= (b[0], -b[1]) else b

    def left_wins(a: State, b: State) -> State:
        return a if a[0] >= b[0] else b

    def shorter(a: State, b: State) -> State:
        return (max(a[0], b[0]), a[1] if a[0] >= b[0] else b[1] + 1)

    own = {"domain": ("finite", "count"), "commutative": True}
    return [
        Drawn("argmax", first, (-INF, 9), own),
        Drawn("ties to the left", left_wins, (-INF, 9), own, "commutativity"),
        Drawn(
            "moves positions by one",
            shorter,
            (-INF, 9),
            own | {"commutative": False},
            "associativity",
            frozenset({"left identity", "empty merge"}),
        ),
        Drawn("identity 0", first, (0.0, 9), own, "left identity", AFTER_IDENTITY | {"right identity"}),
    ]


@family
def window(rng: Random) -> list[Drawn]:
    """Lowest, highest and number of elements, by name."""

    def merge(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return {"low": min(a["low"], b["low"]), "high": max(a["high"], b["high"]), "n": a["n"] + b["n"]}

    def narrow(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return merge(a, b) | {"high": max(a["high"], b["low"])}

    def counted(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return merge(a, b) | {"n": a["n"] + b["n"] + (1 if a["n"] and b["n"] and a["high"] == b["low"] else 0)}

    empty = {"low": INF, "high": -INF, "n": 0}
    own = {"domain": {"low": "finite", "high": "finite", "n": "count"}, "commutative": True}
    return [
        Drawn("window", merge, empty, own),
        Drawn(
            "high of low",
            narrow,
            empty,
            own | {"commutative": False},
            "left identity",
            AFTER_IDENTITY | {"associativity", "right identity"},
        ),
        Drawn("counts what touches", counted, empty, own, "commutativity", frozenset({"associativity"})),
        Drawn(
            "zeros for nothing",
            merge,
            {"low": 0.0, "high": 0.0, "n": 0},
            own,
            "left identity",
            AFTER_IDENTITY | {"right identity"},
        ),
    ]


@family
def brackets(rng: Random) -> list[Drawn]:
    """(unmatched closing, unmatched opening) brackets: the bicyclic monoid."""

    def merge(a: State, b: State) -> State:
        matched = min(a[1], b[0])
        return (a[0] + b[0] - matched, a[1] + b[1] - matched)

    def twice(a: State, b: State) -> State:
        matched = min(a[1], b[0])
        return (a[0] + b[0] - matched, a[1] + b[1] - 2 * matched)

    own = {"domain": "count"}
    return [
        Drawn("brackets", merge, (0, 0), own),
        Drawn("claimed commutative", merge, (0, 0), own | {"commutative": True}, "commutativity"),
        Drawn("matches twice", twice, (0, 0), own, "associativity"),
        Drawn("identity (1, 0)", merge, (1, 0), own, "left identity", AFTER_IDENTITY | {"right identity"}),
    ]


@family
def integers(rng: Random) -> list[Drawn]:
    """gcd, sum modulo m, bits."""
    m = rng.randint(3, 9)
    kind = rng.choice(("gcd", "modulo", "or"))
    merge, domain = {
        "gcd": (math.gcd, "count"),
        "modulo": (lambda a, b: (a + b) % m, range(m)),
        "or": (lambda a, b: a | b, "count"),
    }[kind]
    own = {"domain": domain, "commutative": True}
    return [
        Drawn(kind, merge, 0, own),
        Drawn("identity 1", merge, 1, own, "left identity", AFTER_IDENTITY | {"right identity"}),
        Drawn(
            "absolute difference", lambda a, b: abs(a - b), 0, {"domain": "count", "commutative": True}, "associativity"
        ),
        Drawn(
            "remainder",
            lambda a, b: b if a == 0 else a if b == 0 else a % b,
            0,
            {"domain": "count", "commutative": True},
            "commutativity",
            frozenset({"associativity"}),
        ),
    ]


@family
def ends(rng: Random) -> list[Drawn]:
    """(seen, first, last) value of a stream."""

    def merge(a: State, b: State) -> State:
        return b if not a[0] else a if not b[0] else (True, a[1], b[2])

    def no_flag(a: State, b: State) -> State:
        return (a[0] or b[0], a[1], b[2])

    def either(a: State, b: State) -> State:
        return b if not a[0] else a if not b[0] else (a[0] != b[0], a[1], b[2])

    own = {"valid": lambda s: s[0] or s[1] == s[2] == 0}
    return [
        Drawn("first and last", merge, (False, 0.0, 0.0), own),
        Drawn("flag not asked", no_flag, (False, 0.0, 0.0), own, "left identity", AFTER_IDENTITY | {"right identity"}),
        Drawn("flag lost", either, (False, 0.0, 0.0), {"domain": ({True, False}, None, None), **own}, "associativity"),
        Drawn("claimed commutative", merge, (False, 0.0, 0.0), own | {"commutative": True}, "commutativity"),
    ]


@family
def weighted_sums(rng: Random) -> list[Drawn]:
    """Arrays of sums, in float32 too."""
    dtype = rng.choice((np.float32, np.float64))
    n = rng.randint(1, 4)
    zero = np.zeros(n, dtype)
    own = {"commutative": True}

    def shifted(a: Any, b: Any) -> Any:
        return a + np.roll(b, 1) if n > 1 else a + b * b

    return [
        Drawn(f"{n} sums of {dtype.__name__}", lambda a, b: a + b, zero, own),
        Drawn(
            "root of squares",
            lambda a, b: np.sqrt(a * a + b * b),
            zero,
            {"domain": "finite nonnegative"},
            "huge",
            frozenset({"empty merge", "subnormals"}),
        ),
        Drawn("rolled", shifted, zero, {"domain": "finite"}, "left identity", frozenset({"associativity"})),
        Drawn("mean of two", lambda a, b: (a + b) / 2, zero, own, "associativity", AFTER_IDENTITY | BOTH),
    ]
