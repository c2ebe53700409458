"""Rows without a valid element, which `empty=` fills: stated anew from the definition of absence.

An element is absent where the mask that the body writes puts the identity of the reduction in its place: -oo below a
maximum, ``where(c, e, 0)`` in a sum with c false, ``exp(u - max u)`` with u = -oo, and products with such a factor. A
row is filled where all elements of all its outermost reductions are absent.
"""

from __future__ import annotations

from collections.abc import Iterator

from redalg.proofs.document.terms import Term, Terms

WORST = {"max": "-oo", "min": "oo", "argmax": "-oo", "argmin": "oo", "topk_values": "-oo", "topk_indices": "-oo"}
IDENTITY = {"prod": 1, "sum": 0}
MOST = 64  # nested sums and products in an exponent


class Rows:
    """Conditions on rows as terms of one table."""

    def __init__(self, terms: Terms) -> None:
        self.t, self.true, self.false = terms, terms("true"), terms("false")

    def masked(self, output: Term) -> Term:
        """Where the row of an output saw no valid element."""
        found = list(dict.fromkeys(_outermost(output)))
        return self.both(*map(self._all_absent, found)) if found else self.false

    def _all_absent(self, n: Term) -> Term:
        t, (kind, axes, _), body = self.t, n.attr, n.args[0]
        if kind in WORST:
            return t("eq", t.reduce("max" if WORST[kind] == "-oo" else "min", axes, body), t.special(WORST[kind]))
        gone = self.absent(body, kind)
        none = t("eq", t.size(axes), t.const(0))
        if gone is self.false:
            return none
        apart = [c for c in self._conjuncts(gone) if not c.axes & set(axes)]
        own = [c for c in self._conjuncts(gone) if c.axes & set(axes)]
        lowest = own[0].args[0] if len(own) == 1 and own[0].op == "eq" else None
        if lowest is not None and own[0].args[1] == t.special("-oo"):
            every = t("eq", t.reduce("max", axes, lowest), t.special("-oo"))
            held = self.both(every, *apart)
            return self.either(held, none) if apart else held
        return t("not", t.reduce("any", axes, t("not", gone)))

    def _conjuncts(self, c: Term) -> tuple[Term, ...]:
        return c.args if c.op == "and" else (c,)

    def absent(self, body: Term, kind: str) -> Term:
        """Where an element is left out of a sum, product, any or all."""
        if kind in ("any", "all"):
            return self._chosen(body, kind) if body.op == "where" else self._truth(body is self._identity(kind))
        if body.op == "const":
            return self._truth(kind in IDENTITY and body.attr == IDENTITY[kind])
        if body.op == "where":
            return self._chosen(body, kind)
        return self._without_weight(body) if kind == "sum" else self.false

    def _identity(self, kind: str) -> Term:
        return self.false if kind == "any" else self.true

    def _without_weight(self, body: Term) -> Term:
        if body.op == "mul":
            return self.either(*(self.absent(f, "sum") for f in body.args))
        if body.op == "add":
            return self.both(*(self.absent(f, "sum") for f in body.args))
        if body.op == "pow" and body.args[1].op == "const" and body.args[1].attr > 0:
            return self.absent(body.args[0], "sum")
        return self._left_out(body.args[0]) if body.op == "exp" else self.false

    def _chosen(self, body: Term, kind: str) -> Term:
        c, then, other = body.args
        sides = self.both(c, self.absent(then, kind)), self.both(self.t("not", c), self.absent(other, kind))
        return self.either(*sides)

    def _left_out(self, exponent: Term) -> Term:
        """u = -oo in exp(u + c) of element terms u and statistics c, unless by an infinite scale."""
        t, low = self.t, self.t.special("-oo")
        parts = list(self._terms(exponent, (), MOST))
        elements = [x for x in parts if not _is_statistic(x[0], exponent.axes)]
        if not elements or len(elements) == len(parts):
            return self.false
        u = t.add(*(x for x, _ in elements))
        scales = [s for s in dict.fromkeys(f for _, scale in elements for f in scale) if s.op != "const"]
        finite = [self.both(t("lt", low, s), t("lt", s, t.special("oo"))) for s in scales]
        return self.both(self._truth(u is low) if u.op == "const" else t("eq", u, low), *finite)

    def _terms(self, e: Term, scale: tuple[Term, ...], left: int) -> Iterator[tuple[Term, tuple[Term, ...]]]:
        """The terms of an exponent, products with sums written out, each with what it was multiplied by."""
        if e.op == "add" and left:
            for a in e.args:
                yield from self._terms(a, scale, left - 1)
            return
        if e.op == "mul" and left:
            k = next((k for k, f in enumerate(e.args) if f.op == "add"), None)
            if k is not None:
                rest = e.args[:k] + e.args[k + 1 :]
                for a in e.args[k].args:
                    yield from self._terms(self.t.mul(*rest, a), (*scale, *rest), left - 1)
                return
        yield e, scale

    # --- conditions, without what is always so ---

    def _truth(self, holds: bool) -> Term:
        return self.true if holds else self.false

    def both(self, *conditions: Term) -> Term:
        return self._joined("and", self.true, self.false, conditions)

    def either(self, *conditions: Term) -> Term:
        return self._joined("or", self.false, self.true, conditions)

    def _joined(self, op: str, neutral: Term, absorbing: Term, conditions: tuple[Term, ...]) -> Term:
        flat = [p for c in conditions for p in (c.args if c.op == op else (c,)) if p is not neutral]
        kept = tuple(dict.fromkeys(flat))
        if absorbing in kept:
            return absorbing
        return neutral if not kept else kept[0] if len(kept) == 1 else self.t(op, *kept)


def _outermost(root: Term) -> Iterator[Term]:
    seen, stack = {root}, [root]
    while stack:
        n = stack.pop()
        if n.op == "reduce":
            yield n
            continue
        fresh = [a for a in n.args if a not in seen]
        seen.update(fresh)
        stack.extend(reversed(fresh))


def _is_statistic(term: Term, axes: frozenset[str]) -> bool:
    """Whether a term is made of a reduction over an axis that it no longer has."""
    missing = axes - term.axes
    return any(n.attr.axes and missing & set(n.attr.axes) for n in _outermost(term)) if missing else False


__all__ = ["Rows"]
