"""Products of equal powers as the power of the product: x²/a² is evaluated (x/a)².

SymPy writes (x/a)² as x²/a² before anything here sees it, and x² may overflow where (x/a)² does not; of integers it
may leave int64. So the language says, in text and Python alike, that products and quotients of equal powers are the
power of the product. A common part of the powers is taken out, too: (t/√v)⁴, which SymPy writes t⁴/v², is (t²/v)².
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import gcd

import sympy

from redalg.graph.functions import NOT_NEGATIVE
from redalg.graph.node import Node, const, is_const, is_written_out, mul, neg, power

Powers = dict[Node, Fraction]
_SMALL, _HARMLESS = 16, 64  # bits of a coefficient that stays outside: of a power like the others, and of any other
_POSITIVE_MAPS = NOT_NEGATIVE | {"size"}
_SIGN_KEEPING = frozenset({"add", "mul", "where", "reduce", "minimum", "maximum"})
_SIGN_KEEPING_KINDS = frozenset({"sum", "prod", "max", "min", "topk_values"})


def joined(product: Node) -> Node:
    """The product with equal powers joined; equal products give the same node, however they were written.

    Integer powers are joined, and integer parts of powers (a³·v^(-3/2) = (a·v^(-1/2))³): that holds for all reals, and
    where a part is undefined so is the whole. Other equal powers, at least 1 or symbols, are joined where at most one
    base may be negative. Square roots stay apart: so their range is the wider one.

    >>> from redalg.graph.node import tensor
    >>> x, a = tensor("x", "j"), tensor("a")
    >>> joined(mul(power(x, 2), power(a, -2))) is power(mul(x, power(a, -1)), 2)
    True
    """
    if product.op not in ("mul", "pow"):
        return product
    coefficient = Fraction(1)
    powers: Powers = {}
    others: list[Node] = []
    for base, e in _flat(product, Fraction(1)):
        if base.op == "const" and e == 1:
            coefficient *= base.attr
        elif base.op == "pow" and not is_const(base.args[1]) and e == 1:
            others.append(base)
        else:
            powers[base] = powers.get(base, Fraction(0)) + e
    return mul(_product(coefficient, {b: e for b, e in powers.items() if e}), *_symbolic(others))


def _flat(node: Node, e: Fraction) -> Iterator[tuple[Node, Fraction]]:
    """Factors with their powers; a whole power of a product is the product of the powers."""
    if node.op == "mul" and e.denominator == 1:
        for factor in node.args:
            yield from _flat(factor, e)
    elif node.op == "pow" and is_const(node.args[1]) and _keeps_roots(node.args[1].attr, e):
        yield from _flat(node.args[0], e * node.args[1].attr)
    elif node.op == "const" and is_written_out(node.attr, e) and (node.attr or e > 0):
        yield const(node.attr ** int(e)), Fraction(1)
    else:
        yield node, e


def _keeps_roots(inner: Fraction, outer: Fraction) -> bool:
    """Whether (b^inner)^outer is b^(inner·outer) for every b: no root is taken twice, and none goes away."""
    return outer.denominator == 1 and (inner * outer).denominator == inner.denominator


def _product(coefficient: Fraction, powers: Powers) -> Node:
    """The product of the powers with what they have in common outside."""
    equal = _equal_fractions(powers)
    if equal:
        inside, k = equal
    else:
        k = Fraction(_common_part(powers))
        inside = {b: e / k for b, e in powers.items() if e.numerator % k == 0} if k != 1 else {}
    if not inside:
        return _scaled(coefficient, powers)
    rest = {b: e for b, e in powers.items() if b not in inside}
    scale = Fraction(1)
    if k.denominator == 1:
        coefficient, scale = _balanced(coefficient, k)
    return mul(const(coefficient), power(_product(scale, inside), k), _product(Fraction(1), rest))


def _common_part(powers: Powers) -> int:
    """The largest whole number that divides the powers of two bases at least; 1 if there is none."""
    numerators = [abs(e.numerator) for e in powers.values() if abs(e.numerator) > 1]
    return max((gcd(a, b) for i, a in enumerate(numerators) for b in numerators[:i]), default=1)


def _equal_fractions(powers: Powers) -> tuple[Powers, Fraction] | None:
    """Bases with the same fractional power beyond 1, up to its sign, at most one of which may be negative."""
    for k in sorted({abs(e) for e in powers.values() if e.denominator > 1 and abs(e) > 1}, reverse=True):
        bases = [b for b, e in powers.items() if abs(e) == k]
        if len(bases) > 1 and _joinable(bases):
            return {b: powers[b] / k for b in bases}, k
    return None


def _scaled(coefficient: Fraction, powers: Powers) -> Node:
    """Nothing in common: a coefficient far from 1 still goes inside a power, (x/c)² being written x²/c²."""
    above = [(b, e) for b, e in powers.items() if abs(e) > 1]
    one = [t for t in above if t[1].denominator == 1] or above
    scale = Fraction(1)
    if len(one) == 1:
        coefficient, scale = _balanced(coefficient, abs(one[0][1]))
    if scale == 1:
        return mul(const(coefficient), *(power(b, e) for b, e in powers.items()))
    base, e = one[0]
    rest = (power(b, e) for b, e in powers.items() if b is not base)
    inside = mul(const(scale), base if e > 0 else power(base, -1))
    return mul(const(coefficient), power(inside, abs(e)), *rest)


def _balanced(coefficient: Fraction, e: Fraction) -> tuple[Fraction, Fraction]:
    """(c, s) with c·s^e the coefficient, s its root where it has one, else a power of 2; s = 1 where it is near 1."""
    size, k = abs(coefficient), e.numerator
    bits = size.numerator.bit_length() - size.denominator.bit_length()
    if abs(bits) <= _SMALL:
        return coefficient, Fraction(1)
    if e.denominator == 1:
        (above, one), (below, two) = (sympy.integer_nthroot(n, k) for n in (size.numerator, size.denominator))
        if one and two:
            return coefficient / size, Fraction(above, below)
    if abs(bits) <= _HARMLESS:
        return coefficient, Fraction(1)
    root = Fraction(2) ** (bits // k)  # of the denominator of e
    return coefficient / root**k, root**e.denominator


def _symbolic(factors: Iterable[Node]) -> list[Node]:
    """Powers with an exponent that is no number: those with the same one, up to its sign, are joined.

    (a/b)^p, not (b/a)^(-p): what divides stays what divides.
    """
    groups: dict[Node, list[tuple[Node, Node]]] = {}
    for f in factors:
        base, e = f.args
        downwards = e.op == "mul" and is_const(e.args[0]) and e.args[0].attr < 0
        groups.setdefault(neg(e) if downwards else e, []).append((power(base, -1) if downwards else base, f))
    found = []
    for e, pairs in groups.items():
        bases = [base for base, _ in pairs]
        found += [power(mul(*bases), e)] if len(pairs) > 1 and _joinable(bases) else [f for _, f in pairs]
    return found


def _joinable(bases: list[Node]) -> bool:
    return sum(not _nonnegative(b) for b in bases) <= 1


def _nonnegative(node: Node) -> bool:
    """Whether a node is certainly not negative (it may be NaN)."""
    if node.op == "const":
        return bool(node.attr >= 0)
    if node.op in ("tensor", "state"):
        return bool(node.attr.domain & {"positive", "nonnegative", "bool"})
    if node.op == "pow":
        e = node.args[1]
        even = is_const(e) and e.attr.numerator % 2 == 0
        return even or is_const(e) and e.attr.denominator > 1 or _nonnegative(node.args[0])
    if node.op in _SIGN_KEEPING and (node.op != "reduce" or node.attr.kind in _SIGN_KEEPING_KINDS):
        return all(_nonnegative(a) for a in (node.args[1:] if node.op == "where" else node.args))
    return node.op in _POSITIVE_MAPS or node.is_boolean
