"""The table of rules: what each operation passes on to its arguments, as terms, with the lemma that proves it.

The engine has a table of its own (`redalg.gradients.slopes`), and neither is made from the other. Slopes of functions
are those of `redalg.proofs.document.functions`, but for relu, whose slope at its kink is a convention.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from redalg.proofs.checker.partial import is_never_zero
from redalg.proofs.document.functions import FUNCTIONS, evaluated
from redalg.proofs.document.terms import Term, Terms

STRAIGHT_THROUGH, FULL_LISTS = "straight_through", "full_lists"  # what may be assumed
FLAT = frozenset("eq ne lt le and or not index size const special true false state".split())
FLAT_REDUCTIONS = frozenset("any all argmax argmin topk_indices".split())
WITHOUT = frozenset({"conj", "re", "im"})  # functions of complex numbers


class Rule(NamedTuple):
    """The name of a rule, what it says (ȳ is the adjoint of the result) and its lemma in `proofs/theories`."""

    name: str
    says: str
    lemma: str


_SELECTED = "x̄ = where(x is the lowest position of the {}, ȳ, 0)"
RULES: dict[str, Rule] = {
    row.name: row
    for row in (
        Rule("leaf", "the adjoint of a tensor is its gradient", ""),
        Rule("add", "x̄ₖ = ȳ", "d_add"),
        Rule("mul", "x̄ₖ = ȳ·Π of the other factors", "d_mul"),
        Rule("pow", "x̄ = ȳ·e·x**(e - 1), ē = ȳ·y·log x, and 0 where x is 0", "d_power"),
        Rule("maximum", "x̄ₖ = where(xₖ = y, ȳ/number of arguments equal to y, 0)", "d_maximum"),
        Rule("minimum", "x̄ₖ = where(xₖ = y, ȳ/number of arguments equal to y, 0)", "d_minimum"),
        Rule("where", "x̄ = where(c, ȳ, 0), x̄' = where(c, 0, ȳ)", "d_where"),
        Rule("cast", "x̄ = ȳ: straight through, an assumption", ""),
        Rule("sum", "x̄ = ȳ at every element", "d_sum"),
        Rule("prod", "x̄ = ȳ·Π of the other elements", "d_prod"),
        Rule("max", _SELECTED.format("largest"), "d_max"),
        Rule("min", _SELECTED.format("smallest"), "d_min"),
        Rule("topk_values", "x̄ = Σ over the list of where(x is at the position listed, ȳ, 0)", "d_listed"),
        Rule("cancelled", "x̄ = 0: the results do not depend on it", ""),
    )
}
LEMMAS = {name: f"d_{name}" for name, row in FUNCTIONS.items() if row.derivative and name not in WITHOUT}
UNPROVED = ("asin", "acos", "acosh", "erf", "erfc")  # maps without a lemma


def rule_of(t: Term) -> Rule | None:
    """The rule of a term through which values are passed on; None where there is none."""
    name = t.attr.kind if t.op == "reduce" else "leaf" if t.op == "tensor" else t.op
    if name in RULES:
        return RULES[name]
    if name in LEMMAS:
        return Rule(name, f"x̄ = ȳ·({FUNCTIONS[name].derivative})", "" if name in UNPROVED else LEMMAS[name])
    return None


def is_flat(t: Term) -> bool:
    """Whether a term is constant wherever it is smooth."""
    return t.op in FLAT or t.op == "reduce" and t.attr.kind in FLAT_REDUCTIONS


class Slopes:
    """Partial derivatives as terms of one table."""

    def __init__(self, terms: Terms) -> None:
        self.t = t = terms
        self.zero, self.one = t.const(0), t.const(1)

    def __call__(self, n: Term) -> Iterator[tuple[Term, Term]]:
        """(argument, ∂n/∂argument) of a map; an argument that stands twice comes twice."""
        t = self.t
        if n.op == "add":
            yield from ((a, self.one) for a in n.args)
        elif n.op == "mul":
            for k, a in enumerate(n.args):
                yield a, t.mul(*(n.args[:k] + n.args[k + 1 :] or (self.one,)))
        elif n.op == "pow":
            yield from self._power(n, *n.args)
        elif n.op in ("maximum", "minimum"):
            equal = [self.indicator(t("eq", a, n)) for a in n.args]
            yield from ((a, t.div(e, t.add(*equal))) for a, e in zip(n.args, equal, strict=True))
        elif n.op == "relu":
            yield n.args[0], self.indicator(t("lt", self.zero, n.args[0]))
        else:
            yield n.args[0], evaluated(FUNCTIONS[n.op].derivative, _Written(t), n.args[0], n)

    def _power(self, n: Term, x: Term, e: Term) -> Iterator[tuple[Term, Term]]:
        t = self.t
        if e.op == "const":
            yield x, t.mul(e, t("pow", x, t.const(e.attr - 1)))
            return
        yield x, t.mul(e, t("pow", x, t.add(e, t.const(-1))))
        yield e, t("where", t("eq", x, self.zero), self.zero, t.mul(n, t("log", x)))

    def indicator(self, condition: Term) -> Term:
        return self.t("where", condition, self.one, self.zero)

    # --- reductions ---

    def taken(self, n: Term) -> Term:
        """Where an extremum is taken, or an entry of a list comes from: at the lowest position of ties."""
        kind, axes, extra = n.attr
        at = "topk_indices" if kind == "topk_values" else f"arg{kind}"
        return self.t("eq", self._place(axes), self.t.reduce(at, axes, *n.args, extra=extra))

    def _place(self, axes: tuple[str, ...]) -> Term:
        """The position along a composite axis, row by row."""
        t, at = self.t, self.t("index", attr=axes[0])
        for a in axes[1:]:
            at = t.add(t.mul(at, t.size((a,))), t("index", attr=a))
        return at

    def others(self, n: Term) -> Term:
        """The product of the other elements: by division where this one is not 0, and written out where it is.

        Where m others are 0, their product is the m-th coefficient of Π (1 + c·b) over them, a polynomial in c: for
        m = 1 half the difference of its values at 1 and -1, for m = 2 half their sum, less the value at 0. Such factors
        are not 0, and a product of all but one is that of all over this one. Three derivatives are those of the product
        itself, however many factors are 0.
        """
        t, body, axes = self.t, n.args[0], n.attr.axes
        if is_never_zero(body):
            return t.div(n, body)
        zero = t("eq", body, self.zero)
        zeros = t.reduce("sum", axes, self.indicator(zero))
        factors = [t("where", zero, t.add(self.one, t.mul(t.const(c), body)), body) for c in (1, -1)]
        plus, minus = (t.mul(t.const(Fraction(1, 2)), t.div(t.reduce("prod", axes, f), f)) for f in factors)
        none = t.reduce("prod", axes, t("where", zero, self.one, body))
        back = t.mul(t.const(-1), minus), t.mul(t.const(-1), none)
        alone = self.zero
        for count, value in ((3, t.add(plus, minus, back[1])), (2, t.add(plus, back[0])), (1, none)):
            alone = t("where", t("eq", zeros, t.const(count)), value, alone)
        return t("where", zero, alone, t.div(n, body))


class _Written:
    """Formulas of the table of functions as terms."""

    def __init__(self, terms: Terms) -> None:
        self.t = terms

    def number(self, value: Fraction) -> Term:
        return self.t.const(value)

    def pi(self) -> Term:
        return self.t.special("pi")

    def plus(self, a: Term, b: Term) -> Term:
        return self.t.add(a, b)

    def times(self, a: Term, b: Term) -> Term:
        return self.t.mul(a, b)

    def power(self, base: Term, exponent: Fraction) -> Term:
        return self.t("pow", base, self.t.const(exponent))

    def call(self, name: str, x: Term) -> Term:
        return self.t(name, x)


__all__ = ["FULL_LISTS", "LEMMAS", "RULES", "STRAIGHT_THROUGH", "Rule", "Slopes", "is_flat", "rule_of"]
