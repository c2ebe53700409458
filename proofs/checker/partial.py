"""Where operations have values: divisors are not 0, logarithms and roots are in their domain."""

from __future__ import annotations

from collections.abc import Iterator

from redalg.proofs.document.functions import FUNCTIONS
from redalg.proofs.document.terms import Term, Terms


def conditions(t: Terms, n: Term) -> Iterator[Term]:
    """Where an operation has a value, given that its arguments have: 0 < a, 0 <= a or a ≠ 0."""
    zero, one = t.const(0), t.const(1)
    if n.op == "pow" and n.args[1].op == "const":
        e = n.args[1].attr
        if e < 0:
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
