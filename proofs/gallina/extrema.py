"""Extrema over the stream in terms of others: what is monotone and does not depend on the stream leaves them.

max_j |m - x_j| = max(m - min x, max x - m); `Extremum` says what an extremum is, and Rocq checks it.
"""

from __future__ import annotations

from redalg.proofs.document.functions import FUNCTIONS
from redalg.proofs.document.terms import Term, Terms
from redalg.proofs.gallina.words import nonnegative, positive

RISING = frozenset(name for name, row in FUNCTIONS.items() if row.moves)
OTHER = {"max": "min", "min": "max"}


class Extremum:
    """Extrema over one axis."""

    def __init__(self, terms: Terms, axis: str) -> None:
        self.t, self.axis = terms, axis

    def of(self, kind: str, body: Term) -> Term:
        """An equal term in which the extrema are of what cannot be taken apart; the same one where nothing can."""
        t = self.t
        whole = t.reduce(kind, (self.axis,), body)
        if body.op == "abs" and kind == "max" and self.shifted(body.args[0]):
            inside = body.args[0]
            return t("maximum", self.of("max", inside), self.of("max", t.mul(t.const(-1), inside)))
        if body.op in RISING or (body.op == "log" and positive(body.args[0])):
            return t(body.op, self.of(kind, body.args[0]))
        moving = [a for a in body.args if self.axis in a.axes]
        still = [a for a in body.args if self.axis not in a.axes]
        if not (moving and still):
            return whole
        if body.op == "add":
            return self.replaced(body, moving, self.of(kind, t.add(*moving)))
        return self.scaled(kind, body, moving[0], still) if body.op == "mul" and len(moving) == 1 else whole

    def scaled(self, kind: str, body: Term, moving: Term, still: list[Term]) -> Term:
        """The extremum of a product with one factor that moves."""
        t = self.t
        if moving.op == "add":
            return self.of(kind, t.add(*(t.mul(*still, a) for a in moving.args)))
        sign = self.sign(still)
        if not sign:
            return t.reduce(kind, (self.axis,), body)
        return self.replaced(body, [moving], self.of(kind if sign > 0 else OTHER[kind], moving))

    def replaced(self, body: Term, moving: list[Term], value: Term) -> Term:
        """The sum or product with the value in the place of its first moving part, so that both are alike."""
        args = [value if a is moving[0] else a for a in body.args if a is moving[0] or a not in moving]
        return self.t(body.op, *args)

    def shifted(self, t: Term) -> bool:
        return t.op == "add" and any(self.axis not in a.axes for a in t.args)

    def sign(self, factors: list[Term]) -> int:
        """1 for a product that is not negative, -1 for one that is not positive, else 0."""
        sign = 1
        for f in factors:
            if f.op == "const" and f.attr < 0:
                sign = -sign
            elif not (positive(f) or nonnegative(f)):
                return 0
        return sign
