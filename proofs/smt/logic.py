"""Conditions and lowered terms: what `redalg.proofs.smt.lower` writes terms with."""

from __future__ import annotations

from typing import NamedTuple

from redalg.proofs.document.terms import Term, Terms


class Unexpressed(Exception):
    """An obligation that this export has no words for; nothing is claimed about it."""


class Lowered(NamedTuple):
    """value: a real or a condition; defined, high (oo) and low (-oo): conditions."""

    value: Term
    defined: Term
    high: Term
    low: Term


class Logic:
    """Conditions, folded where a part is constant."""

    def __init__(self, terms: Terms) -> None:
        self.t = terms
        self.true, self.false = terms("true"), terms("false")
        self.zero, self.one = terms.const(0), terms.const(1)

    def all(self, *parts: Term) -> Term:
        return self._join("and", self.true, self.false, parts)

    def any(self, *parts: Term) -> Term:
        return self._join("or", self.false, self.true, parts)

    def _join(self, op: str, neutral: Term, absorbing: Term, parts: tuple[Term, ...]) -> Term:
        flat: dict[Term, None] = {}
        for p in parts:
            flat.update(dict.fromkeys(p.args if p.op == op else (p,)))
        flat.pop(neutral, None)
        if absorbing in flat:
            return absorbing
        return self.t(op, *flat) if len(flat) > 1 else next(iter(flat), neutral)

    def no(self, c: Term) -> Term:
        if c in (self.true, self.false):
            return self.false if c is self.true else self.true
        return c.args[0] if c.op == "not" else self.t("not", c)

    def implies(self, a: Term, b: Term) -> Term:
        return self.any(self.no(a), b)

    def when(self, c: Term, a: Term, b: Term) -> Term:
        """``where(c, a, b)``."""
        if a is b or c is self.true:
            return a
        if c is self.false:
            return b
        if a.is_boolean and b.is_boolean:
            if {a, b} & {self.true, self.false}:
                return self.all(self.implies(c, a), self.any(c, b))
        return self.t("where", c, a, b)

    def every(self, axes: tuple[str, ...], c: Term) -> Term:
        """For all places along the axes; an axis has at least one place."""
        bound = tuple(a for a in axes if a in c.axes)
        if c.op == "and" and bound:
            return self.all(*(self.every(axes, part) for part in c.args))
        return self.t.reduce("all", bound, c) if bound else c

    def some(self, axes: tuple[str, ...], c: Term) -> Term:
        bound = tuple(a for a in axes if a in c.axes)
        return self.t.reduce("any", bound, c) if bound else c
