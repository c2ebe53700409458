"""Quotients that are the same past a pole: x - Σwx/Σw and (x - A) - Σw(x - A)/Σw are both infinite, or NaN, at Σw = 0.

Where a term is a + r/p, with a and r finite, equal rational functions have equal values at p = 0, too: the numerators
then differ by a multiple of p. Such terms are written in one way, that of the definition, and with them what they stand
in: exp(-(x - Σwx/Σw)²), which is 0 there. Products and sums are put in one order.
"""

from __future__ import annotations

from typing import Any

from redalg.proofs.checker.generators import frozen
from redalg.proofs.checker.normalform import Normal
from redalg.proofs.checker.partial import conditions
from redalg.proofs.checker.polynomial import Unknown
from redalg.proofs.document.defined import exposed
from redalg.proofs.document.document import Document
from redalg.proofs.document.terms import Term, walk


class Alike:
    """Terms of one document, with quotients at the poles that its definitions do not show written in one way."""

    def __init__(self, doc: Document) -> None:
        self.terms, self.normal = doc.terms, Normal(frozenset(doc.assumptions))
        self.done: dict[Term, Term] = {}
        self.written: dict[Any, Term] = {}
        self.finite: dict[Term, bool] = {}
        hidden = {t for t in walk(*doc.spec.values()) if _is_reciprocal(t)}
        hidden -= {t for root in doc.spec.values() for t, _ in exposed(root)} if hidden else set()
        self.poles = {k for k in map(self._pole, hidden) if k is not None}
        for t in walk(*doc.spec.values()) if self.poles else ():
            key = self._key(t)
            if key is not None:
                self.written.setdefault(key, t)

    def __call__(self, root: Term) -> Term:
        if not self.poles:
            return root
        for t in walk(root, until=self.done.__contains__):
            if t not in self.done:
                self.done[t] = self._ordered(self.written.get(self._key(t), t))
        return self.done[root]

    def _ordered(self, t: Term) -> Term:
        args = tuple(map(self, t.args))
        if t.op in ("add", "mul"):
            args = tuple(sorted(args, key=lambda a: a.number))
        return t if args == t.args else self.terms(t.op, *args, attr=t.attr)

    def _pole(self, t: Term) -> Any:
        """What a reciprocal divides by, and how often."""
        return None if (p := self._form(t.args[0])) is None else (p, t.args[1].attr)

    def _form(self, t: Term) -> Any:
        try:
            v = self.normal(t)
        except Unknown:
            return None
        return frozen(v) if isinstance(v, dict) else None

    def _key(self, t: Term) -> Any:
        """The pole and the normal form of a + r/p; None for a term of any other shape."""
        if t.op not in ("add", "mul"):
            return None
        found = self._quotient(t)
        if found is None or found not in self.poles:
            return None
        form = self._form(t)
        return None if form is None else (found, form)

    def _quotient(self, t: Term) -> Any:
        """The one pole of a term, in one summand of which it is a factor; None where there is another or none."""
        if self._is_finite(t):
            return None
        if t.op == "add":
            (part, *others) = [a for a in t.args if not self._is_finite(a)]
            return None if others else self._quotient(part)
        if t.op == "mul":
            (part, *others) = [a for a in t.args if not self._is_finite(a)]
            outer = [a for a in t.args if a is not part]
            if others or (part.op == "add" and not all(map(_is_nonzero, outer))):
                return None
            return self._quotient(part)
        return self._pole(t) if _is_reciprocal(t) and self._is_finite(t.args[0]) else None

    def _is_finite(self, t: Term) -> bool:
        """Whether a term has a value everywhere, whatever its arrays hold."""
        finite = self.finite
        for x in walk(t, until=finite.__contains__):
            if x not in finite:
                finite[x] = all(map(finite.__getitem__, x.args)) and self._has_value(x)
        return finite[t]

    def _has_value(self, x: Term) -> bool:
        """The same where its arguments have values."""
        if x.op == "special" and x.attr in ("oo", "-oo", "nan"):
            return False
        if x.op == "reduce" and x.attr.kind == "topk_values":
            return False
        return all(map(self._holds, conditions(self.terms, x)))

    def _holds(self, c: Term) -> bool:
        try:
            return self.normal(c) == {(): 1}
        except Unknown:
            return False


def _is_reciprocal(t: Term) -> bool:
    return t.op == "pow" and t.args[1].op == "const" and t.args[1].attr < 0 and t.args[1].attr.denominator == 1


def _is_nonzero(t: Term) -> bool:
    return t.op == "size" or (t.op == "const" and t.attr != 0)
