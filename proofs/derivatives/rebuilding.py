"""The derivative of a spec, rebuilt by the table of rules: adjoints from above, tangents from below.

Values that count only where conditions hold are kept apart from the conditions, multiplied, and selected last: what a
`where` leaves out may be infinite, and 0 times that is no number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from redalg.proofs.derivatives.rules import Slopes, is_flat
from redalg.proofs.document.terms import Term, Terms, walk

Conditions = frozenset[Term]
Parts = dict[Conditions, list[Term]]  # values, by what has to hold where they count
ALWAYS: Conditions = frozenset()


def moving(roots: Collection[Term], leaves: Collection[Term], cancelled: Collection[Term] = ()) -> list[Term]:
    """The terms that depend on a leaf smoothly, arguments first; what is cancelled depends on none."""
    found: dict[Term, None] = {}
    for n in walk(*roots):
        args = n.args[1:] if n.op == "where" else n.args
        smooth = not is_flat(n) and n not in cancelled and any(a in found for a in args)
        if n in leaves or smooth:
            found[n] = None
    return list(found)


class Rebuilt:
    """Derivatives of the terms of one document."""

    def __init__(self, terms: Terms) -> None:
        self.t, self.slopes = terms, Slopes(terms)

    # --- reverse mode ---

    def adjoints(
        self, seeds: Mapping[Term, Parts], leaves: Collection[Term], cancelled: Collection[Term] = ()
    ) -> dict[Term, Term]:
        """Term -> its adjoint, for the leaves and what is cancelled: Σ over the roots of seed · ∂root/∂term."""
        roots = list(seeds)
        passing = moving(roots, leaves)
        found: dict[Term, Parts] = {n: {} for n in passing}
        for root, parts in seeds.items():
            if root in found:
                _join(found[root], parts)
        order = [n for n in walk(*roots) if n in found]
        for n in reversed(order):
            if n in leaves or n in cancelled or not found[n]:
                continue
            reduced: frozenset[str] = frozenset(n.attr.axes if n.op == "reduce" else ())
            for a, parts in self._passed_on(n, found[n]):
                if a in found:
                    _join(found[a], self._summed(parts, (n.axes | reduced) - a.axes))
        return {n: self.selected(found.get(n, {})) for n in (*leaves, *cancelled)}

    def _passed_on(self, n: Term, parts: Parts) -> Iterator[tuple[Term, Parts]]:
        if n.op == "where":
            c, then, other = n.args
            yield then, _where(parts, c)
            yield other, _where(parts, self.t("not", c))
        elif n.op == "cast":
            yield n.args[0], parts
        elif n.op == "reduce":
            kind = n.attr.kind
            if kind == "sum":
                yield n.args[0], parts
            elif kind == "prod":
                yield n.args[0], self._scaled(parts, self.slopes.others(n))
            else:
                yield n.args[0], _where(parts, self.slopes.taken(n))
        else:
            yield from ((a, self._scaled(parts, slope)) for a, slope in self.slopes(n))

    def _scaled(self, parts: Parts, slope: Term) -> Parts:
        if slope.op == "const" and slope.attr == 1:
            return parts
        return {c: [self.t.mul(v, slope) for v in values] for c, values in parts.items()}

    def _summed(self, parts: Parts, axes: frozenset[str]) -> Parts:
        """Σ over the axes; conditions that lack them all stay outside."""
        if not axes:
            return parts
        found: Parts = {}
        for conditions, values in parts.items():
            inside = frozenset(c for c in conditions if c.axes & axes)
            value = self._where_all(inside, self.t.add(*values))
            total = self.t.reduce("sum", tuple(sorted(axes)), value)
            found.setdefault(conditions - inside, []).append(total)
        return found

    def selected(self, parts: Parts) -> Term:
        chosen = [self._where_all(c, self.t.add(*values)) for c, values in parts.items()]
        return self.t.add(*chosen) if chosen else self.t.const(0)

    def _where_all(self, conditions: Conditions, value: Term) -> Term:
        if not conditions:
            return value
        held = sorted(conditions, key=lambda c: c.number)
        return self.t("where", held[0] if len(held) == 1 else self.t("and", *held), value, self.t.const(0))

    # --- forward mode ---

    def tangents(
        self, roots: Collection[Term], seeds: Mapping[Term, Term], cancelled: Collection[Term] = ()
    ) -> dict[Term, Term]:
        """Root -> its tangent along the seeds."""
        zero, found = self.t.const(0), dict(seeds)
        passing = set(moving(roots, seeds, cancelled))
        for n in walk(*roots):
            if n in passing and n not in found:
                found[n] = self._tangent(n, found, zero)
        return {r: found.get(r, zero) for r in roots}

    def _tangent(self, n: Term, found: Mapping[Term, Term], zero: Term) -> Term:
        t = self.t
        if n.op == "where":
            return t("where", n.args[0], *(found.get(a, zero) for a in n.args[1:]))
        if n.op == "cast":
            return found[n.args[0]]
        if n.op != "reduce":
            return t.add(*(t.mul(found[a], slope) for a, slope in self.slopes(n) if a in found))
        moved = found[n.args[0]]
        if n.attr.kind == "prod":
            moved = t.mul(moved, self.slopes.others(n))
        elif n.attr.kind != "sum":
            moved = t("where", self.slopes.taken(n), moved, zero)
        return t.reduce("sum", n.attr.axes, moved)


def _join(found: Parts, parts: Parts) -> None:
    for conditions, values in parts.items():
        found.setdefault(conditions, []).extend(values)


def _where(parts: Parts, condition: Term) -> Parts:
    found: Parts = {}
    for conditions, values in parts.items():
        found.setdefault(conditions | {condition}, []).extend(values)
    return found


__all__ = ["ALWAYS", "Parts", "Rebuilt", "moving"]
