"""Bodies whose separation rank is known by construction, because they are built from their separation.

A `Body` is written twice: as an expression, disguised as people write it ((x-μ)³, e^{a(x-m)}, p/P·log(p/P)), and as
its *terms*, a map {(element monomial, context monomial): coefficient} over algebraically independent generators

    element:  x, y, p, e^{x/2}, e^{y/2}, log p, p^{1/2}, sin x, |x|, [x>0], …      (functions of x_j alone)
    context:  μ, M, ν, P, L, …, e^{μ/2}, log L, 1/P, …                             (functions of D alone)

The rank is that of the coefficient matrix, taken by exact elimination here, never asked of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

import sympy

import redalg as ra

Monomial = tuple[tuple[str, Fraction], ...]
Terms = dict[tuple[Monomial, Monomial], Fraction]
ONE: Monomial = ()


def monomial(*powers: tuple[str, int | Fraction]) -> Monomial:
    """Generators with exponents, merged and sorted. ``monomial(("x", 1), ("x", 1)) -> (("x", 2),)``."""
    total: dict[str, Fraction] = {}
    for name, exponent in powers:
        total[name] = total.get(name, Fraction(0)) + exponent
    return tuple(sorted((n, e) for n, e in total.items() if e))


@dataclass(frozen=True)
class Body:
    """An expression and its terms. `kinks`: tensors whose sign occurs (a mask on it would make terms dependent)."""

    expr: Any
    terms: Mapping[tuple[Monomial, Monomial], Fraction]
    kinks: frozenset[str] = frozenset()

    @property
    def rank(self) -> int:
        return matrix_rank(self.terms)

    def __add__(self, other: Body) -> Body:
        return Body(self.expr + other.expr, _sum(self.terms, other.terms), self.kinks | other.kinks)

    def __mul__(self, other: Body) -> Body:
        return Body(self.expr * other.expr, _product(self.terms, other.terms), self.kinks | other.kinks)

    def expanded(self) -> Body:
        return Body(sympy.expand(self.expr), self.terms, self.kinks)


def _sum(a: Mapping[Any, Fraction], b: Mapping[Any, Fraction]) -> Terms:
    total = dict(a)
    for key, c in b.items():
        total[key] = total.get(key, Fraction(0)) + c
    return {k: c for k, c in total.items() if c}


def _product(a: Mapping[Any, Fraction], b: Mapping[Any, Fraction]) -> Terms:
    total: Terms = {}
    for (ga, ha), ca in a.items():
        for (gb, hb), cb in b.items():
            total = _sum(total, {(monomial(*ga, *gb), monomial(*ha, *hb)): ca * cb})
    return total


def matrix_rank(terms: Mapping[tuple[Any, Any], Fraction]) -> int:
    """Rank of the matrix [element monomial × context monomial], by elimination over the rationals."""
    rows: dict[Any, dict[Any, Fraction]] = {}
    for (g, h), c in terms.items():
        rows.setdefault(g, {})[h] = c
    left, rank = list(rows.values()), 0
    while left:
        row = left.pop()
        pivot = next((h for h, c in row.items() if c), None)
        if pivot is None:
            continue
        rank += 1
        for other in left:
            if other.get(pivot):
                factor = other[pivot] / row[pivot]
                for h, c in row.items():
                    other[h] = other.get(h, Fraction(0)) - factor * c
    return rank


def element(expr: Any, *powers: tuple[str, int | Fraction], kinks: str = "") -> Body:
    return Body(expr, {(monomial(*powers), ONE): Fraction(1)}, frozenset(kinks))


def constant(value: int | Fraction) -> Body:
    return Body(sympy.Rational(value), {(ONE, ONE): Fraction(value)} if value else {})


@dataclass(frozen=True)
class Context:
    """A stage value D: its expression, its generator name and its sign ("positive", "nonnegative" or "")."""

    expr: Any
    name: str
    sign: str = ""
    of: str = ""  # the tensor it is a mean or extremum of, if it has the tensor's unit

    def body(self, exponent: int | Fraction = 1) -> Body:
        power = sympy.Rational(exponent)
        return Body(self.expr**power, {(ONE, monomial((self.name, exponent))): Fraction(1)})

    def exp(self, rate: Fraction) -> Body:
        key = monomial((f"e^{self.name}", rate))
        return Body(ra.exp(sympy.Rational(rate) * self.expr), {(ONE, key): Fraction(1)})


@dataclass(frozen=True)
class World:
    """The tensors a generated spec reads, and the stages its bodies may refer to."""

    x: Any
    y: Any
    p: Any
    axis: str = "j"
    contexts: tuple[Context, ...] = field(default=())

    @property
    def at_x(self) -> tuple[Context, ...]:
        return tuple(c for c in self.contexts if c.of == "x")


def make_world(rng: Random) -> World:
    """x, y real and p positive along j; x sometimes with a free axis i. Contexts in stage order."""
    x = ra.tensors("x[i,j]" if rng.random() < 0.3 else "x[j]")
    y, p = ra.tensors("y[j]"), ra.tensors("p[j]", positive=True)
    mean, top = ra.mean(x, "j"), ra.max(x, "j")
    mass = ra.sum(ra.exp(x - top), "j")
    contexts = (
        Context(mean, "mu", of="x"),
        Context(top, "M", of="x"),
        Context(ra.mean(y, "j"), "nu", of="y"),
        Context(ra.min(y, "j"), "lo", of="y"),
        Context(ra.sum(p, "j"), "P", "positive", of="p"),
        Context(mass, "L", "positive"),
        Context(ra.sum(x * ra.exp(x - top), "j") / mass, "B", of="x"),
        Context(ra.mean((x - mean) ** 2, "j"), "V", "nonnegative"),
    )
    return World(x, y, p, contexts=contexts)


def rational(rng: Random, pool: str = "1 -1 2 -2 3 1/2 -1/2 3/2 1/4") -> Fraction:
    return Fraction(rng.choice(pool.split()))


# --- families: name -> function of (random, world) that returns a body ------------------------------------------------

FAMILIES: dict[str, Callable[[Random, World], Body]] = {}


def family(f: Callable[[Random, World], Body]) -> Callable[[Random, World], Body]:
    FAMILIES[f.__name__] = f
    return f


def _difference(rng: Random, w: World) -> tuple[Body, Context]:
    """a·x - b·D with D in the unit of x."""
    d = rng.choice(w.at_x)
    a, b = rational(rng, "1 1 2 1/2"), rational(rng, "1 1 1 2 -1 1/2")
    return constant(a) * element(w.x, ("x", 1)) + constant(-b) * d.body(), d


@family
def power(rng: Random, w: World) -> Body:
    """(a·x - b·D)^k, rank k+1."""
    base, _ = _difference(rng, w)
    k = rng.choice((1, 2, 2, 3))
    terms: Mapping[Any, Fraction] = constant(1).terms
    for _ in range(k):
        terms = _product(terms, base.terms)
    return Body(base.expr**k, terms)


@family
def exponential(rng: Random, w: World) -> Body:
    """e^{a(x-D)}, rank 1, times a power of x or y."""
    d, a = rng.choice(w.at_x), rational(rng, "1 1 2 1/2 -1 -1/2")
    terms = {(monomial(("e^x", a)), monomial((f"e^{d.name}", -a))): Fraction(1)}
    body = Body(ra.exp(sympy.Rational(a) * (w.x - d.expr)), terms)
    return body * rng.choice((constant(1), constant(2), element(w.x, ("x", 1)), element(w.y, ("y", 1))))


@family
def tilted(rng: Random, w: World) -> Body:
    """(x-D)·e^{a(x-D')}, rank 2."""
    base, _ = _difference(rng, w)
    return base * exponential(rng, w)


@family
def bilinear(rng: Random, w: World) -> Body:
    """(x-a)(y-b), rank 4."""
    base, _ = _difference(rng, w)
    e = rng.choice([c for c in w.contexts if c.of == "y"])
    return base * (element(w.y, ("y", 1)) + constant(-rational(rng, "1 1 2")) * e.body())


@family
def wave(rng: Random, w: World) -> Body:
    """sin or cos of a·(x-D), rank 2 (addition theorem)."""
    d, a, f = rng.choice(w.at_x), rational(rng, "1 1 2 1/2"), rng.choice((sympy.sin, sympy.cos))
    s, c, S, C = (monomial((n, 1)) for n in ("sin x", "cos x", "sin D", "cos D"))
    one = Fraction(1)
    terms = {(s, C): one, (c, S): -one} if f is sympy.sin else {(c, C): one, (s, S): one}
    return Body(f(sympy.Rational(a) * (w.x - d.expr)), terms)


@family
def entropy(rng: Random, w: World) -> Body:
    """q·log q with q = p/P, or log q: rank 2."""
    P = w.contexts[4]
    q = w.p / P.expr
    inner = {(monomial(("log p", 1)), ONE): Fraction(1), (ONE, monomial(("log P", 1))): Fraction(-1)}
    if rng.random() < 0.5:
        return Body(ra.log(q), inner)
    ratio = {(monomial(("p", 1)), monomial(("P", -1))): Fraction(1)}
    return Body(q * ra.log(q), _product(ratio, inner))


@family
def root(rng: Random, w: World) -> Body:
    """(p/D)^α with D > 0, rank 1, times y."""
    d = rng.choice([c for c in w.contexts if c.sign == "positive"])
    alpha = rational(rng, "1/2 3/2 -1 2 1/3")
    terms = {(monomial(("p", alpha)), monomial((d.name, -alpha))): Fraction(1)}
    return Body((w.p / d.expr) ** sympy.Rational(alpha), terms) * element(w.y, ("y", 1))


@family
def sign(rng: Random, w: World) -> Body:
    """[x·D > 0] = [x>0][D>0] + [x<0][D<0], rank 2."""
    d = rng.choice((w.contexts[0], w.contexts[2]))
    up, down = (monomial((f"[x{s}0]", 1)) for s in "><")
    terms = {(g, monomial((f"[{d.name}{s}0]", 1))): Fraction(1) for g, s in ((up, ">"), (down, "<"))}
    return Body(ra.where(w.x * d.expr > 0, 1, 0), terms, frozenset("x"))


@family
def absolute(rng: Random, w: World) -> Body:
    """|x·D| = |x|·|D| and relu(x·P) = relu(x)·P with P > 0: rank 1."""
    if rng.random() < 0.5:
        terms = {(monomial(("|x|", 1)), monomial(("|mu|", 1))): Fraction(1)}
        return Body(ra.abs(w.x * w.contexts[0].expr), terms, frozenset("x"))
    P = w.contexts[4]
    terms = {(monomial(("relu x", 1)), monomial(("P", 1))): Fraction(1)}
    return Body(ra.relu(w.x * P.expr), terms, frozenset("x"))


@family
def factored(rng: Random, w: World) -> Body:
    """(e^x - e^D)(e^x + e^D) = e^{2x} - e^{2D}, rank 2."""
    d, k = rng.choice(w.at_x), 2
    e, f = ra.exp(w.x), ra.exp(d.expr)
    terms = {(monomial(("e^x", k)), ONE): Fraction(1), (ONE, monomial((f"e^{d.name}", k))): Fraction(-1)}
    return Body((e - f) * (e + f), terms)


@family
def hyperbolic(rng: Random, w: World) -> Body:
    """cosh(x-D) = (e^x e^{-D} + e^{-x} e^D)/2, rank 2."""
    d, half = rng.choice(w.at_x), Fraction(1, 2)
    terms = {(monomial(("e^x", s)), monomial((f"e^{d.name}", -s))): half for s in (1, -1)}
    return Body(sympy.cosh(w.x - d.expr), terms)


@family
def quotient(rng: Random, w: World) -> Body:
    """(x-z)/s with s = 1 + D², rank 2."""
    base, _ = _difference(rng, w)
    d = rng.choice(w.contexts[:4])
    return base * Body(1 / (1 + d.expr**2), {(ONE, monomial((f"1/(1+{d.name}^2)", 1))): Fraction(1)})


def _pool(w: World) -> list[Body]:
    half = Fraction(1, 2)
    return [
        element(w.x, ("x", 1)),
        element(w.x**2, ("x", 2)),
        element(w.x**3, ("x", 3)),
        element(w.y, ("y", 1)),
        element(w.x * w.y, ("x", 1), ("y", 1)),
        element(ra.exp(w.x / 2), ("e^x", half)),
        element(ra.exp(-w.x), ("e^x", -1)),
        element(ra.exp(w.y), ("e^y", 1)),
        element(ra.log(w.p), ("log p", 1)),
        element(ra.sqrt(w.p), ("p", half)),
        element(1 / w.p, ("p", -1)),
        element(w.p * w.x, ("p", 1), ("x", 1)),
        element(ra.tanh(w.x), ("tanh x", 1)),
        element(ra.abs(w.x), ("|x|", 1), kinks="x"),
        element(ra.where(w.y > 0, 1, 0), ("[y>0]", 1), kinks="y"),
        constant(1),
    ]


def _functions(rng: Random, w: World) -> list[Body]:
    contexts = list(w.contexts)
    bodies = [c.body() for c in contexts] + [c.body(2) for c in contexts[:4]] + [constant(1)]
    positive = [c for c in contexts if c.sign == "positive"]
    bodies += [c.body(-1) for c in positive] + [c.body(Fraction(1, 2)) for c in positive]
    bodies += [c.exp(Fraction(1, 2)) for c in contexts[:4]]
    bodies += [contexts[0].body() * contexts[2].body(), contexts[1].body() * contexts[4].body()]
    return bodies


def _invertible(rng: Random, r: int) -> list[list[Fraction]]:
    """Unit lower times unit upper triangular, entries small: determinant 1."""
    low = [[Fraction(rng.randint(-1, 1)) if j < i else Fraction(i == j) for j in range(r)] for i in range(r)]
    up = [[Fraction(rng.randint(-1, 2)) if j > i else Fraction(i == j) for j in range(r)] for i in range(r)]
    return [[sum((low[i][k] * up[k][j] for k in range(r)), Fraction(0)) for j in range(r)] for i in range(r)]


def _mix(bodies: list[Body], row: list[Fraction]) -> Body:
    total = constant(0)
    for c, b in zip(row, bodies, strict=True):
        if c:
            total = total + constant(c) * b
    return total


@family
def combination(rng: Random, w: World) -> Body:
    """Σ_k G_k(x)·H_k(D), each G_k and H_k a mixture of independent functions: rank r by construction."""
    r = rng.choice((1, 2, 2, 3, 4))
    elements, functions = rng.sample(_pool(w), r), rng.sample(_functions(rng, w), r)
    mixing = _invertible(rng, r)
    total = constant(0)
    for g, row in zip(elements, mixing, strict=True):
        total = total + g * _mix(functions, row)
    return total


def random_body(rng: Random, w: World, most: int = 4) -> tuple[str, Body]:
    """A body of rank 1 to `most`: one family, or the sum of two, or one times a context; sometimes expanded."""
    while True:
        name = rng.choice(sorted(FAMILIES))
        body = FAMILIES[name](rng, w)
        if rng.random() < 0.2:
            other = rng.choice(("power", "exponential", "root"))
            name, body = f"{name} + {other}", body + FAMILIES[other](rng, w)
        if rng.random() < 0.2:
            body = body * rng.choice(_functions(rng, w))
        if not 1 <= body.rank <= most:
            continue
        return name, body.expanded() if rng.random() < 0.3 else body
