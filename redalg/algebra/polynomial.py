"""The engine's normal form: sparse Laurent polynomials over generators, with rational coefficients and powers.

A *generator* is a graph node taken as algebraically independent (a tensor, an opaque function value, an indicator);
an exponential ``exp(c·t)`` of a monomial t is the generator ``exp(t)`` to the power c, so that products of exponentials
merge by adding powers. Indicators (boolean nodes) are idempotent and exclude their negation; |t|² is t² for real t.
Equal polynomials are equal dictionaries: no search, no `simplify`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from math import comb

from redalg.algebra.work import CONSTANT, NODE, spend
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.language.equal_powers import joined

Mono = tuple[tuple[Node, Fraction], ...]  # sorted by digest, no zero powers
UNIT: Mono = ()
EXPANDED = 16  # powers of a sum of two terms are products up to here, binomial sums beyond
KEPT = 256  # largest numerator and denominator of a power that is kept as one object
_ONE = Fraction(1)  # the one that most coefficients are: what is multiplied by it is not calculated
WIDE = 8  # generators in two terms that make their product cost twice what short ones do


class Power(Fraction):
    """A power of a generator, one object for each number: monomials are hashed at every step, which takes long."""

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:  # type: ignore[override]  # numbers.Complex has none, Fraction does
        return self._hash

    def __reduce__(self) -> tuple[type[Fraction], tuple[int, int]]:
        return Fraction, (self.numerator, self.denominator)

    def __copy__(self) -> Power:
        return self

    def __deepcopy__(self, memo: object) -> Power:
        return self


_POWERS: dict[tuple[int, int], Power] = {}


def power(p: Fraction) -> Fraction:
    """The number as the one object that stands for it in monomials; large ones are not kept."""
    key = p.numerator, p.denominator
    found = _POWERS.get(key)
    if found is None:
        if max(abs(key[0]), key[1]) > KEPT:
            return p
        found = Power(*key)
        found._hash = Fraction.__hash__(p)
        found = _POWERS.setdefault(key, found)
    return found


_PLAIN = power(Fraction(1))  # of a generator that stands by itself


class TooLarge(Exception):
    """An expansion exceeded its budget of terms; the caller treats the expression as opaque."""


@lru_cache(maxsize=4096)
def may_be_complex(node: Node) -> bool:
    """Whether a value need not be real: |t|² is t² for real t only, and roots and logarithms split for them only."""
    if node.op in ("tensor", "state"):
        return "complex" in node.attr.domain
    if node.is_boolean or node.op in ("abs", "re", "im", "floor", "ceil", "index", "size", "const"):
        return False
    return node.op == "special" and node.attr == "i" or any(map(may_be_complex, node.args))


def mono(powers: dict[Node, Fraction]) -> Mono | None:
    """The canonical monomial, or None where it is identically zero (an indicator times its negation)."""
    out: dict[Node, Fraction] = {}
    for gen, p in powers.items():
        if not p:
            continue
        if gen.is_boolean:
            if g.negate(gen) in powers:
                return None
            p = _PLAIN
        elif gen.op == "abs" and _squares(gen.args[0], p):
            gen = gen.args[0]
        out[gen] = out[gen] + p if gen in out else p
    for gen in [k for k in out if k.op == "abs"]:  # x²·|x| is |x|³, however it came about
        arg = gen.args[0]
        if arg in out and _squares(arg, out[arg]):
            out[gen] += out.pop(arg)
    return tuple(sorted(((k, power(p)) for k, p in out.items() if p), key=_place))


def _place(factor: tuple[Node, Fraction]) -> bytes:
    return factor[0].digest


def _squares(arg: Node, p: Fraction) -> bool:
    """Whether |arg|^p is arg^p: an even power of a real number (a power of an indicator is itself)."""
    even = p.denominator == 1 and p.numerator % 2 == 0
    return bool(p) and even and not arg.is_boolean and not may_be_complex(arg)


def mono_mul(a: Mono, b: Mono) -> Mono | None:
    if not a:
        return b
    if not b:
        return a
    if len(a) < len(b):
        a, b = b, a
    if any(map(_is_special, a)) or any(map(_is_special, b)):
        powers = dict(a)
        for gen, p in b:
            powers[gen] = powers[gen] + p if gen in powers else p
        return mono(powers)
    # Both are canonical: only what they share, and conditions that exclude each other, has to be looked at.
    out = list(a)
    for factor in b:
        gen, p = factor
        at = bisect_left(out, gen.digest, key=_place)
        there = at < len(out) and out[at][0] is gen
        if not there:
            if gen.is_boolean and _holds(out, g.negate(gen)):
                return None
            out.insert(at, factor)
        elif gen.is_boolean:
            continue
        elif total := out[at][1] + p:
            out[at] = gen, power(total)
        else:
            del out[at]
    return tuple(out)


def _is_special(factor: tuple[Node, Fraction]) -> bool:
    """Whether a factor may meet another one than itself (|x| and x²), or is a condition with a power."""
    gen, p = factor
    return gen.op == "abs" or p is not _PLAIN and gen.is_boolean


def _holds(factors: list[tuple[Node, Fraction]], gen: Node) -> bool:
    at = bisect_left(factors, gen.digest, key=_place)
    return at < len(factors) and factors[at][0] is gen


def mono_pow(a: Mono, e: Fraction) -> Mono:
    result = mono({gen: p * e for gen, p in a})
    assert result is not None
    return result


def divides_by_condition(m: Mono, e: Fraction) -> bool:
    """Whether a power of a term is a pole where a condition fails: 1/where(c, x, 0) is 1/x or 1/0, and not 1/x or 0."""
    return e < 0 and any(gen.is_boolean for gen, _ in m)


def renamed(m: Mono, names: dict[str, str]) -> Mono:
    """The monomial with axes renamed."""
    out = mono({g.rename_axes(gen, names): p for gen, p in m})
    assert out is not None
    return out


def plain_axes(root: Node, among: Iterable[str] | None = None) -> tuple[Node, dict[str, str]]:
    """Fresh axis names (``d~1``), all or `among` some, undone where the plain name is free, and what was undone."""
    undo: dict[str, str] = {}
    for a in sorted(a for a in (root.axes if among is None else root.axes & frozenset(among)) if "~" in a):
        plain = a.split("~")[0]
        while plain in root.axes or plain in undo.values() or _binds(root, plain, a):
            plain += "'"
        undo[a] = plain
    return (g.rename_axes(root, undo) if undo else root), undo


def plain(m: Mono) -> Mono:
    """The monomial with fresh axis names undone."""
    spend(1 + len(m) // WIDE)
    if not any("~" in a for gen, _ in m for a in gen.axes):
        return m
    _, undo = plain_axes(mono_node(m))
    return renamed(m, undo) if undo else m


def _binds(root: Node, plain: str, fresh: str) -> bool:
    """Whether a reduction over the plain name reads along the fresh one, which it would capture."""
    below = g.walk(root, done=g.Without({fresh}))
    return any(n.op == "reduce" and plain in n.attr.axes and fresh in n.axes for n in below)


def summed(bound: Mono, fresh: Iterable[str], selected: Node | None = None) -> Poly:
    """The sum of a monomial over fresh axes (where a condition selects it), which get their plain names back.

    Axes that no factor has any more, once equal ones have cancelled, count their positions.
    """
    body = mono_node(bound) if selected is None else g.where(selected, mono_node(bound), g.ZERO)
    kept = [a for a in fresh if a in body.axes]
    lost = sizes(a.split("~")[0] for a in fresh if a not in body.axes)
    if not kept:
        return lost * (constant(body.attr) if body.op == "const" else generator(body))
    inner, undo = plain_axes(body, kept)
    return lost * generator(g.reduction("sum", sorted(undo.get(a, a) for a in kept), inner))


def total(bound: Mono, fresh: Iterable[str], selected: Node | None = None) -> Poly:
    """`summed` over those of the axes that its factors have, as a product of sums over axes that no factor links."""
    read = {a for gen, _ in bound for a in gen.axes} | (frozenset() if selected is None else selected.axes)
    axes, product = set(fresh) & read, constant(1)
    if selected is not None:
        return summed(bound, axes, selected)
    left = list(bound)
    while axes:
        linked = {min(axes)}
        while True:
            part = [t for t in left if t[0].axes & linked]
            wider = linked | {a for gen, _ in part for a in gen.axes & axes}
            if wider == linked:
                break
            linked = wider
        product = product * summed(tuple(part), sorted(linked))
        left, axes = [t for t in left if t not in part], axes - linked
    return product


class Poly:
    """Σ coefficient · monomial. Immutable by convention; arithmetic returns new objects."""

    __slots__ = ("terms",)
    LIMIT = 12_000  # products of terms in one step of an expansion

    def __init__(self, terms: dict[Mono, Fraction] | None = None) -> None:
        self.terms = terms or {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __len__(self) -> int:
        return len(self.terms)

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __add__(self, other: Poly) -> Poly:
        spend(1 + len(other) // 8)
        terms = dict(self.terms)
        for m, c in other.terms.items():
            _put(terms, m, c)
        return Poly(terms)

    def __neg__(self) -> Poly:
        return self.scale(Fraction(-1))

    def __sub__(self, other: Poly) -> Poly:
        return self + (-other)

    def minus(self, other: Poly, c: Fraction) -> Poly:
        """self - c·other."""
        spend(1 + len(other) // 4)
        terms = dict(self.terms)
        for m, v in other.terms.items():
            s = terms[m] - c * v if m in terms else -c * v
            if s:
                terms[m] = s
            else:
                del terms[m]
        return Poly(terms)

    def scale(self, c: Fraction) -> Poly:
        spend(len(self) // 8)
        return Poly({m: c * v for m, v in self.terms.items()} if c else {})

    def __mul__(self, other: Poly) -> Poly:
        if len(self) * len(other) > self.LIMIT:
            raise TooLarge(f"a budget of {self.LIMIT} terms in one product, where {len(self)} x {len(other)} meet")
        spend(len(self) * len(other) * (1 + (_length(self) + _length(other)) // WIDE))
        terms: dict[Mono, Fraction] = {}
        for ma, ca in self.terms.items():
            for mb, cb in other.terms.items():
                m = mono_mul(ma, mb)
                if m is not None:
                    _put(terms, m, ca if cb is _ONE else cb if ca is _ONE else ca * cb)
        return Poly(terms)

    def __pow__(self, n: int) -> Poly:
        if len(self) > 1 and n > self.LIMIT:
            raise TooLarge(f"a budget of {self.LIMIT} terms in one product, where a sum has the power {n}")
        one = self.single()
        if one is not None and n > self.LIMIT:  # m^n = (m^(n/2))²
            constant_power(one[0], n)
            half = self ** (n // 2)
            return half * half * self if n % 2 else half * half
        if len(self) == 2 and n > EXPANDED and all(gen.op != "abs" for gen in self.generators()):
            return self._binomial(n)
        result = constant(1)
        for _ in range(n):
            result = result * self
        return result

    def _binomial(self, n: int) -> Poly:
        (ma, ca), (mb, cb) = self.terms.items()
        constant_power(ca, n)
        constant_power(cb, n)
        spend(n)
        terms: dict[Mono, Fraction] = {}
        for k in range(n + 1):
            m = mono_mul(mono_pow(ma, Fraction(n - k)), mono_pow(mb, Fraction(k)))
            if m is not None:  # terms may meet: powers of a condition are the condition
                terms[m] = terms.get(m, Fraction(0)) + comb(n, k) * ca ** (n - k) * cb**k
        return Poly({m: c for m, c in terms.items() if c})

    def single(self) -> tuple[Fraction, Mono] | None:
        """(coefficient, monomial) of a one-term polynomial."""
        if len(self.terms) != 1:
            return None
        ((m, c),) = self.terms.items()
        return c, m

    def as_constant(self) -> Fraction | None:
        if not self.terms:
            return Fraction(0)
        one = self.single()
        return one[0] if one and one[1] == UNIT else None

    def generators(self) -> Iterable[Node]:
        return dict.fromkeys(gen for m in self.terms for gen, _ in m)

    def ordered(self) -> list[tuple[Mono, Fraction]]:
        """Terms in canonical order (independent of how they were produced)."""
        return sorted(self.terms.items(), key=lambda t: mono_key(t[0]))


def _put(terms: dict[Mono, Fraction], m: Mono, c: Fraction) -> None:
    """Add a term, whose coefficient is not 0; to hash a monomial takes longer than all else."""
    there = len(terms)
    before = terms.setdefault(m, c)
    if len(terms) > there:
        return
    s = before + c
    if s:
        terms[m] = s
    else:
        del terms[m]


def _length(p: Poly) -> int:
    """Of the first term: terms of one expansion are about as long."""
    return len(next(iter(p.terms), UNIT))


def mono_key(m: Mono) -> tuple[object, ...]:
    return tuple((gen.digest, p) for gen, p in m)


def constant(c: int | Fraction) -> Poly:
    return Poly({UNIT: _ONE if c == 1 else Fraction(c)} if c else {})


def generator(node: Node, exponent: int | Fraction = 1) -> Poly:
    return Poly({((node, _PLAIN if exponent == 1 else power(Fraction(exponent))),): _ONE})


def sizes(axes: Iterable[str]) -> Poly:
    """The product of the lengths of axes."""
    out = constant(1)
    for a in axes:
        out = out * generator(g.size([a]))
    return out


def constant_power(c: Fraction, n: int) -> Fraction:
    """c^n, if it has few enough digits to be written out."""
    if (max(c.numerator.bit_length(), c.denominator.bit_length()) - 1) * abs(n) > CONSTANT:
        raise TooLarge(f"a budget of {CONSTANT} bits in a constant")
    return c**n


def from_mono(m: Mono, c: Fraction = _ONE) -> Poly:
    return Poly({m: c})


# --- rank: F = Σ_k G_k · H_k --------------------------------------------------------------------------------------


def rank_factor(rows: dict[Mono, Poly]) -> list[tuple[Poly, Poly]]:
    """Rank factorisation over Q of Σ_e e·rows[e] as pairs (G_k, H_k) with the least number of pairs.

    Row reduction of the coefficient matrix [element monomial × context monomial]: dependent rows are folded into the
    G of the rows they depend on. ``{x: D, x²: 2D} -> [(x + 2x², D)]``.
    """
    pivots: list[tuple[Mono, Poly, Mono, dict[int, Fraction]]] = []  # reduced rows, their pivot column, provenance
    basis: list[Poly] = []
    weights: list[dict[int, Fraction]] = []
    elements = sorted(rows, key=mono_key)
    for e in elements:
        rest = rows[e]
        used: dict[int, Fraction] = {}
        for column, row, _, origin in pivots:
            c = rest.terms.get(column)
            if c:
                rest = rest.minus(row, c)
                for k, v in origin.items():
                    used[k] = used.get(k, Fraction(0)) + c * v
        if rest:
            k = len(basis)
            basis.append(rows[e])
            column = min(rest.terms, key=mono_key)
            c = rest.terms[column]
            origin = {i: -v / c for i, v in used.items()}
            origin[k] = 1 / c
            pivots.append((column, rest.scale(1 / c), e, origin))
            weights.append({k: Fraction(1)})
        else:
            weights.append(used)
    gs = [Poly() for _ in basis]
    for e, w in zip(elements, weights, strict=True):
        for k, c in w.items():
            if c:
                gs[k] = gs[k] + from_mono(e, c)
    return list(zip(gs, basis, strict=True))


# --- back to nodes -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def mono_node(m: Mono, c: Fraction = Fraction(1)) -> Node:
    """The node of one term: conditions select (never multiply), exponentials merge into one."""
    conditions = [gen for gen, _ in m if gen.is_boolean]
    exponent = [(gen.args[0], p) for gen, p in m if gen.op == "exp" and not gen.is_boolean]
    plain = [g.power(gen, p) for gen, p in m if not gen.is_boolean and gen.op != "exp"]
    if exponent:
        plain.append(g.fn("exp", _exponent(exponent)))
    body = joined(g.mul(g.const(c), *plain))
    return g.where(g.logical("and", *conditions), body, g.ZERO) if conditions else body


def _exponent(parts: list[tuple[Node, Fraction]]) -> Node:
    """Σ p·u; differences u = x - A stay whole beside others: (x - A) + 2·(y - B)."""
    if len(parts) == 1 or not any(_is_centred(u) for u, _ in parts):
        return g.add(*(g.mul(g.const(p), u) for u, p in parts))
    return Node("add", tuple(u if p == 1 else Node("mul", (g.const(p), u)) for u, p in parts))


def _is_centred(u: Node) -> bool:
    return u.op == "add" and any(x.op == "state" for x in g.walk(u))


def poly_node(p: Poly) -> Node:
    """The node of a polynomial with the common monomial factored out: ``n·m2 - n·r² -> n·(m2 - r²)``."""
    if len(p) <= 1:
        one = p.single()
        return mono_node(one[1], one[0]) if one else g.ZERO
    common = _common(p)
    inner = p * from_mono(mono_pow(common, Fraction(-1))) if common else p
    spend(NODE * len(p))
    terms = [mono_node(m, c) for m, c in inner.ordered()]
    return g.mul(mono_node(common), g.add(*terms)) if common else g.add(*terms)


def _common(p: Poly) -> Mono:
    """Greatest common monomial (plain generators only: not conditions, not exponentials)."""
    monos = [dict(m) for m in p.terms]
    shared = [gen for gen in monos[0] if all(gen in m for m in monos) and not gen.is_boolean and gen.op != "exp"]
    powers = {}
    for gen in shared:
        ps = [m[gen] for m in monos]
        if all(x > 0 for x in ps):
            powers[gen] = min(ps)
        elif all(x < 0 for x in ps):
            powers[gen] = max(ps)
    result = mono(powers)
    return result if result is not None else UNIT
