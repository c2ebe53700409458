"""Where operations have values: divisors are not 0, logarithms and roots are in their domain."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from redalg.proofs.document.functions import FUNCTIONS
from redalg.proofs.document.terms import Term, Terms


def conditions(t: Terms, n: Term) -> Iterator[Term]:
    """Where an operation has a value, given that its arguments have: 0 < a, 0 <= a or a ≠ 0."""
    zero, one = t.const(0), t.const(1)
    if n.op == "pow" and n.args[1].op == "const":
        e = n.args[1].attr
        if e < 0 and not is_never_zero(n.args[0]):
            yield t("ne", n.args[0], zero)
        if e.denominator != 1:  # a cube root of a negative number is no number here either
            yield t("le", zero, n.args[0])
    elif n.op == "pow" and whole(n.args[1]):  # a negative base has a value, 0 to a negative power has none
        if not positive(n.args[1]):
            yield t("ne", n.args[0], zero)
    elif n.op == "pow":  # 0 to a positive power is 0; a negative base has a value for whole exponents alone
        yield t("le" if positive(n.args[1]) else "lt", zero, n.args[0])
    elif n.op in PARTIAL:
        (a,) = n.args
        sides = {"a": a, "1+a": t.add(one, a), "1-a": t.sub(one, a), "a-1": t.sub(a, one)}
        order, *which = PARTIAL[n.op].split()
        yield from (t(order, zero, sides[x]) for x in which)
    elif n.op == "tan":
        yield t("ne", t("cos", n.args[0]), zero)


def is_partial(t: Term) -> bool:
    return t.op in PARTIAL or t.op in ("pow", "tan")


# maps that are not defined everywhere: what is positive (lt) or not negative (le) in their domain
PARTIAL = {name: row.domain for name, row in FUNCTIONS.items() if row.domain}


def positive(t: Term) -> bool:
    """Whether a term is positive as it is written."""
    if t.op == "const":
        return bool(t.attr > 0)
    if t.op in ("add", "mul"):
        return all(map(positive, t.args))
    if t.op == "pow":
        return positive(t.args[0])
    return t.op in ("exp", "size") or (t.op == "tensor" and "positive" in t.attr.domain)


def whole(t: Term) -> bool:
    """Whether a term is a whole number as it is written."""
    if t.op == "const":
        return bool(t.attr.denominator == 1)
    if t.op == "where":
        return all(map(whole, t.args[1:]))
    if t.op in ("add", "mul") or t.op == "reduce" and t.attr.kind == "sum":
        return all(map(whole, t.args))
    return t.op == "size"


def is_never_zero(t: Term) -> bool:
    """Whether a term is 1, 1 + b or 1 - b where b is 0, and else b."""
    if t.op != "where" or t.args[0].op != "eq":
        return False
    sides, then, own = t.args[0].args, _linear(t.args[1]), t.args[2]
    if own not in sides or all(a.op != "const" or a.attr for a in sides):
        return False
    then[()] = then.get((), 0) - 1
    return any(_whole(then) == _whole(_linear(own, c)) for c in (0, 1, -1))


def _linear(root: Term, coefficient: int = 1) -> dict[tuple[Term, ...], Fraction | int]:
    """A sum as its terms, each as the factors of a coefficient; those of the constant are none."""
    found: dict[tuple[Term, ...], Fraction | int] = {}
    stack: list[tuple[Term, Fraction | int]] = [(root, coefficient)]
    while stack:
        t, c = stack.pop()
        factors = t.args if t.op == "mul" else (t,)
        number, rest = (factors[0].attr, factors[1:]) if factors[0].op == "const" else (1, factors)
        if len(rest) == 1 and rest[0].op in ("add", "mul") and rest[0] is not t:
            stack.append((rest[0], c * number))
        elif t.op == "add":
            stack += [(a, c) for a in t.args]
        else:
            found[rest] = found.get(rest, 0) + c * number
    return found


def _whole(terms: dict[tuple[Term, ...], Fraction | int]) -> dict[tuple[Term, ...], Fraction | int]:
    return {k: v for k, v in terms.items() if v}
