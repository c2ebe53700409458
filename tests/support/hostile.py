"""Certificates written to exhaust the checker, by name: `EXPLOSIONS` are well formed, with obligations that explode.

Each is a spec of one output y and a form that states another way to compute it, so that checking must compare the two.
Used by a test and a benchmark.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from redalg.proofs.checker.required import required
from redalg.proofs.document.document import Document, Output
from redalg.proofs.document.terms import Term, Terms
from redalg.proofs.document.writing import as_json

HUGE = 10**599
Sides = tuple[Term, Term]
EXPLOSIONS: dict[str, Callable[[Terms], Sides]] = {}


def explosion(f: Callable[[Terms], Sides]) -> Callable[[Terms], Sides]:
    EXPLOSIONS[f.__name__.replace("_", " ")] = f
    return f


def written(name: str) -> str:
    """The certificate of an explosion as JSON."""
    t = Terms()
    left, right = EXPLOSIONS[name](t)
    return text(pure(t, left, right))


def pure(t: Terms, left: Term, right: Term) -> Document:
    """A form without a state: y is `right` by definition and `left` as computed."""
    axes = tuple(sorted(right.axes))
    empty = {"y": left}  # so that the spec has every tensor
    doc = Document(t, ("j",), {"y": right}, empty, (), (Output("y", left, axes, "j" in right.axes),))
    return replace(doc, obligations=required(doc))


def text(doc: Document) -> str:
    return json.dumps(as_json(doc), separators=(",", ":"))


def reals(t: Terms, count: int, name: str = "x", axes: tuple[str, ...] = ()) -> list[Term]:
    return [t("tensor", attr=_leaf(f"{name}{i}", axes)) for i in range(count)]


def _leaf(name: str, axes: tuple[str, ...] = (), domain: Iterable[str] = ()) -> Any:
    return Terms().state(name, axes, domain).attr


def both(t: Terms, value: Term) -> Sides:
    """Twice the same value, once as the sum of its halves: the two have one normal form, if it can be reached."""
    half = t.mul(t.const(Fraction(1, 2)), value)
    return t.add(half, half, t.mul(t.const(0), t.special("pi"))), value


# --- numbers and powers ----------------------------------------------------------------------------------------------


@explosion
def power_of_a_number(t: Terms) -> Sides:
    return both(t, t("pow", t.const(3), t.const(HUGE)))


@explosion
def root_of_a_square(t: Terms) -> Sides:
    return both(t, t("pow", t.const(4), t.const(Fraction(HUGE + 1, 2))))


@explosion
def root_of_a_huge_degree(t: Terms) -> Sides:
    return both(t, t("pow", t.const(2), t.const(Fraction(1, HUGE + 1))))


@explosion
def tower_of_powers(t: Terms) -> Sides:
    x = t.add(t.const(2), *reals(t, 1))
    for _ in range(400):
        x = t("pow", x, t.const(HUGE))
    return both(t, x)


@explosion
def power_of_a_sum(t: Terms) -> Sides:
    return both(t, t("pow", t.add(*reals(t, 12)), t.const(63)))


@explosion
def squares_of_squares(t: Terms) -> Sides:
    x = t.add(*reals(t, 2))
    for _ in range(300):
        x = t.add(t.mul(x, x), t.const(1))
    return both(t, x)


@explosion
def numbers_that_double_in_length(t: Terms) -> Sides:
    x = t.const(Fraction(HUGE - 1, HUGE + 1))
    for _ in range(2000):
        x = t.mul(x, x)
    return both(t, x)


@explosion
def sum_of_unlike_fractions(t: Terms) -> Sides:
    total = t.add(*(t.const(Fraction(1, HUGE + 2 * i + 1)) for i in range(1500)))
    return both(t, total)


@explosion
def content_of_unlike_fractions(t: Terms) -> Sides:
    terms = [t.mul(t.const(Fraction(1, HUGE + 2 * i + 1)), x) for i, x in enumerate(reals(t, 1000))]
    return both(t, t("log", t.add(*terms)))


@explosion
def logarithm_of_a_long_number(t: Terms) -> Sides:
    return both(t, t.add(*(t("log", t.const(2**1800 * 3**i)) for i in range(100))))


@explosion
def exponents_of_generators(t: Terms) -> Sides:
    x = reals(t, 1)[0]
    for i in range(300):
        x = t("pow", t("pow", x, t.const(Fraction(HUGE + i, 7))), t.const(Fraction(7, HUGE - i)))
    return both(t, x)


def _alike(count: int) -> list[Fraction]:
    """Numbers that Python hashes alike: each is 5 modulo the prime of its hashes."""
    return [Fraction(5 + i * sys.hash_info.modulus) for i in range(1, count)]


@explosion
def constants_of_one_hash(t: Terms) -> Sides:
    return both(t, t.add(*(t.const(c) for c in _alike(19_000))))


@explosion
def exponents_of_one_hash(t: Terms) -> Sides:
    x = reals(t, 1)[0]
    return both(t, t.add(*(t("pow", x, t.const(c)) for c in _alike(9000))))


@explosion
def exponentials_of_one_hash(t: Terms) -> Sides:
    x = reals(t, 1)[0]
    return both(t, t.add(*(t("exp", t.mul(t.const(c), x)) for c in _alike(6000))))


@explosion
def values_of_one_hash(t: Terms) -> Sides:
    numbers = [t.const(c) for c in _alike(4000)]
    total = t.add(*(t("pow", c, t.const(Fraction(1, 3))) for c in numbers), t("exp", reals(t, 1)[0]))
    return t.add(total, t("tanh", t.const(5))), total


# --- products of sums, shared ----------------------------------------------------------------------------------------


@explosion
def product_of_sums(t: Terms) -> Sides:
    pairs = zip(reals(t, 60), reals(t, 60, "y"), strict=True)
    return both(t, t.mul(*(t.add(x, y) for x, y in pairs)))


@explosion
def sum_of_many_terms_under_maps(t: Terms) -> Sides:
    x = t.add(*reals(t, 1500))
    casts = [t("cast", t.mul(t.const(i + 1), x), attr="float16") for i in range(1500)]
    return both(t, t.add(*casts))


@explosion
def common_factors_of_long_sums(t: Terms) -> Sides:
    xs = reals(t, 400)
    products = [t.mul(a, b) for a, b in zip(xs, xs[1:], strict=False)]
    return both(t, t.add(*(t("pow", t.add(*products, t.const(i)), t.const(-1)) for i in range(400))))


@explosion
def shared_trees(t: Terms) -> Sides:
    a, b = reals(t, 2)
    for _ in range(1500):
        a, b = t("tanh", t.add(a, b)), t("erf", t.add(a, t.mul(t.const(2), b)))
    return both(t, t.add(a, b))


@explosion
def deep_chain(t: Terms) -> Sides:
    x = reals(t, 1)[0]
    for _ in range(9000):
        x = t("tanh", x)
    return both(t, x)


@explosion
def deep_exponentials(t: Terms) -> Sides:
    x = reals(t, 1)[0]
    for _ in range(5000):
        x = t("exp", x)
    return both(t, x)


@explosion
def sine_of_a_long_sum(t: Terms) -> Sides:
    return both(t, t("sin", t.add(*reals(t, 60))))


@explosion
def power_of_a_cosine(t: Terms) -> Sides:
    x = reals(t, 1)[0]
    return both(t, t.add(t("sin", x), t("pow", t("cos", x), t.const(10**9))))


# --- cases -----------------------------------------------------------------------------------------------------------


@explosion
def sum_of_maxima(t: Terms) -> Sides:
    pairs = zip(reals(t, 40), reals(t, 40, "y"), strict=True)
    value = t.add(*(t("maximum", x, y) for x, y in pairs))
    return t.add(value, t("abs", t.add(*reals(t, 3, "z")))), value


@explosion
def maximum_of_many(t: Terms) -> Sides:
    return both(t, t("maximum", *(t.mul(*pair) for pair in zip(reals(t, 900), reals(t, 900, "y"), strict=True))))


@explosion
def absolute_values(t: Terms) -> Sides:
    xs = reals(t, 40)
    value = t.add(*(t("abs", t.add(x, y)) for x, y in zip(xs, xs[1:], strict=False)))
    return value, t.add(value, t.mul(t("abs", xs[0]), t("relu", xs[1])), t.mul(t.const(-1), t("abs", xs[3])))


@explosion
def nested_choices(t: Terms) -> Sides:
    value = reals(t, 1, "z")[0]
    for x in reals(t, 400):
        value = t("where", t("lt", t.const(0), x), t.add(value, x), t.mul(value, x))
    return both(t, value)


@explosion
def nested_infinities(t: Terms) -> Sides:
    value = reals(t, 1, "z")[0]
    for i, x in enumerate(reals(t, 300)):
        value = t("where", t("lt", t.const(0), x), t.special(("oo", "-oo", "nan")[i % 3]), value)
    return both(t, t.add(value, t("exp", value)))


@explosion
def independent_infinities(t: Terms) -> Sides:
    oo = t.special("oo")
    terms = [t("where", t("lt", t.const(0), x), oo, x) for x in reals(t, 200)]
    return both(t, t.mul(*(t.add(x, y) for x, y in zip(terms, terms[1:], strict=False))))


@explosion
def inequalities_of_many_variables(t: Terms) -> Sides:
    xs = reals(t, 25)
    signs = [
        t("lt", t.const(0), t.add(*(t.mul(t.const((i * j) % 17 - 8), x) for j, x in enumerate(xs)))) for i in range(25)
    ]
    value = t("where", t("and", *signs), xs[0], t.const(0))
    return t("where", t("or", *signs), value, t.const(0)), value


@explosion
def ties_of_products(t: Terms) -> Sides:
    xs = reals(t, 30)
    value = t("where", t("eq", t.mul(*xs), t.const(0)), t.const(1), t.const(0))
    return t.add(value, t("where", t("lt", t.const(0), t.mul(*xs[:6])), t.const(1), t.const(0))), value


# --- axes, sums, reductions ------------------------------------------------------------------------------------------


@explosion
def nested_sums(t: Terms) -> Sides:
    value = reals(t, 1, "x", ("a0",))[0]
    for i in range(300):
        inner = t.mul(value, reals(t, 1, f"y{i}_", (f"a{i}", f"a{i + 1}"))[0])
        value = t.reduce("sum", (f"a{i}",), t("pow", inner, t.const(2)))
    return both(t, t.reduce("sum", ("a300",), value))


@explosion
def powers_of_sums_in_sums(t: Terms) -> Sides:
    value = t.reduce("sum", ("a",), t.add(*reals(t, 6, "x", ("a", "b"))))
    for axis in ("b", "c", "d"):
        value = t.reduce("sum", (axis,), t.mul(t("pow", value, t.const(4)), *reals(t, 1, "y", (axis, "d")[:1])))
    return both(t, value)


@explosion
def terms_along_many_axes(t: Terms) -> Sides:
    axes = tuple(f"a{i}" for i in range(60))
    x, y = reals(t, 2, "x", axes)
    return t.reduce("sum", axes, t("exp", t.mul(x, y))), t.reduce("sum", axes, t("exp", t("sinh", t.mul(x, y))))


@explosion
def leaves_along_different_axes(t: Terms) -> Sides:
    leaves = [reals(t, 1, f"x{i}_", tuple(f"a{i}_{k}" for k in range(3)))[0] for i in range(500)]
    sums = [t.reduce("sum", x.attr.axes, t("cosh", x)) for x in leaves]
    return t.add(*sums), t.add(*reversed(sums), t.const(1))


@explosion
def lists_of_a_trillion(t: Terms) -> Sides:
    x = reals(t, 1, "x", ("i",))[0]
    first = t.reduce("topk_values", ("i",), x, extra=(10**12, "k"))
    return t.reduce("sum", ("k",), t.add(first, t.const(1))), t.reduce("sum", ("k",), first)


@explosion
def two_long_lists(t: Terms) -> Sides:
    x = reals(t, 1, "x", ("i",))[0]
    lists = [t.reduce("topk_values", ("i",), x, extra=(90_000, k)) for k in ("k", "l")]
    return t("tanh", t.mul(*lists)), t.mul(*lists)


@explosion
def quantifiers(t: Terms) -> Sides:
    conditions = [t("lt", t.const(i), x) for i, x in enumerate(reals(t, 60, "x", ("a",)))]
    value = t.reduce("any", ("a",), t("or", *conditions))
    return t("where", value, t.const(1), t.const(0)), t(
        "where", t.reduce("any", ("a",), conditions[0]), t.const(1), t.const(0)
    )


# --- evaluation ------------------------------------------------------------------------------------------------------


@explosion
def many_functions_at_points(t: Terms) -> Sides:
    names = "erfc erf asinh log1p atan sin tanh sigmoid".split()
    values = [t(names[i % 8], t.add(x, t.const(Fraction(i, 7)))) for i, x in enumerate(reals(t, 600))]
    return t.add(*values, t.const(Fraction(1, 10**30))), t.add(*values)


@explosion
def long_rationals_at_points(t: Terms) -> Sides:
    value = reals(t, 1)[0]
    for i in range(800):
        value = t.add(t.const(Fraction(1, HUGE + 2 * i + 1)), t.mul(value, t.const(Fraction(HUGE + i, HUGE - i - 1))))
    return t("tanh", value), value


@explosion
def cube_roots_at_points(t: Terms) -> Sides:
    terms = [
        t("pow", t.add(x, t.const(Fraction(HUGE + i, HUGE - 1))), t.const(Fraction(1, 3)))
        for i, x in enumerate(reals(t, 400))
    ]
    return t.add(*terms, t.const(1)), t.add(*terms)


@explosion
def exponentials_of_infinities(t: Terms) -> Sides:
    xs = reals(t, 12, "x", ("i",))
    tops = [t.reduce("max", ("i",), x) for x in xs]
    sums = [t.add(x, t.mul(t.const(-1), top), t.special("-oo")) for x, top in zip(xs, tops, strict=True)]
    return t("exp", t.mul(*sums)), t("exp", t.mul(*sums[1:]))
