"""Outputs over stages that have a form: parts in which the other stages cancel, in normal form.

Sums and products beside elements are polynomials in the elements' parts, whose coefficients are stage values:
``x·A - x·B`` is x·(A - B), and A - B may have a form where neither A nor B has one.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono, Poly, TooLarge
from redalg.algebra.scope import Scope, Stages
from redalg.engine.rules.cascade import Cascade
from redalg.graph import node as g
from redalg.graph.node import Node

Rows = dict[Mono, Poly]  # monomials of elements' parts -> polynomials of stage values
LARGEST_POWER = 16  # of a sum that is multiplied out


class Cleaner:
    """Rewrites nodes of one cascade, as deep as they come; each part is looked at once."""

    def __init__(self, raw: Cascade) -> None:
        self.raw, self.scope = raw, raw.scope
        self._clean: dict[Node, Node] = {}
        self._rows: dict[Node, Rows | None] = {}
        self._bad: dict[Node, bool] = {}

    def __call__(self, root: Node) -> Node:
        """The node with every part in normal form whose normal form is free of what is in the way."""
        stack, opened = [root], set[Node]()
        while stack:
            n = stack[-1]
            if n in self._clean:
                stack.pop()
            elif n in opened:
                self._clean[n] = self._rebuilt(n)
            else:
                opened.add(n)
                whole = self._whole(n)
                if whole is not None:
                    self._clean[n] = whole
                else:
                    stack.extend(n.args)
        return self._clean[root]

    def _rebuilt(self, n: Node) -> Node:
        """With its parts rewritten; what they have become may let it be rewritten itself."""
        new = g.rebuild(n, tuple(self._clean[a] for a in n.args))
        whole = None if new is n else self._whole(new)
        return new if whole is None else whole

    def bad(self, root: Node) -> bool:
        """Whether it depends on a stage without a form, also where that cancels inside another stage's value."""
        stages = Stages(self.scope)
        if root in stages:
            return self._bad_stage(root)
        for n in g.walk(root, done=stages):
            if n not in self._bad:
                self._bad[n] = any(self._bad_stage(a) if a in stages else self._bad[a] for a in n.args)
        return self._bad[root]

    def _bad_stage(self, stage: Node) -> bool:
        if stage not in self._bad:
            self._bad[stage] = self.raw.first_bad(stage) is not None
        return self._bad[stage]

    def _whole(self, n: Node) -> Node | None:
        """The node itself, or its normal form, where that is free of what is in the way."""
        if self.scope.is_stage(n) or not self.bad(n):
            return n
        if not self.scope.varies(n):
            p = self.raw.separator.poly(n)
            return nf.poly_node(p) if self._free(p) else None
        if n.op not in ("add", "mul", "pow"):
            return None
        rows = self._polynomial(n)
        if (
            rows is None
            or any(self.bad(part) for e in rows for part, _ in e)
            or not all(map(self._free, rows.values()))
        ):
            return None
        ordered = sorted(rows.items(), key=lambda row: nf.mono_key(row[0]))
        return g.add(*(g.mul(nf.mono_node(e), nf.poly_node(h)) for e, h in ordered))

    def _free(self, p: Poly) -> bool:
        return not any(self.raw.first_bad(gen) is not None for gen in p.generators())

    # --- polynomials in what varies ---

    def _polynomial(self, root: Node) -> Rows | None:
        """Σ element monomial · polynomial of stage values, or None where multiplying it out exceeds a budget."""
        for n in g.walk(root, done=_Opaque(self.scope)):
            if n not in self._rows:
                try:
                    self._rows[n] = self._row(n)
                except TooLarge:
                    self._rows[n] = None
        return self._rows[root]

    def _row(self, n: Node) -> Rows | None:
        if n.op == "add":
            return _sum([self._part(a) for a in n.args])
        if n.op == "mul":
            constant = [a for a in n.args if not self.scope.varies(a)]
            varying = [self._part(a) for a in n.args if self.scope.varies(a)]
            fixed: Rows | None = {nf.UNIT: self.raw.separator.poly(g.mul(*constant))}
            return reduce(_product, varying, fixed)
        if is_power(n):
            return reduce(_product, [self._part(n.args[0])] * int(n.args[1].attr))
        return {((n, Fraction(1)),): nf.constant(1)}

    def _part(self, n: Node) -> Rows | None:
        if not self.scope.varies(n):
            return {nf.UNIT: self.raw.separator.poly(n)}
        if n not in self._rows:
            self._rows[n] = self._row(n)
        return self._rows[n]


class _Opaque:
    """As a container of nodes: what stands for itself in a polynomial, because it is fixed or no sum or product."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def __contains__(self, node: object) -> bool:
        if not isinstance(node, Node):
            return False
        return not self.scope.varies(node) or not (node.op in ("add", "mul") or is_power(node))


def is_power(n: Node) -> bool:
    """A whole power that is multiplied out."""
    if n.op != "pow" or n.args[1].op != "const" or n.args[0].op not in ("add", "mul"):
        return False
    e = n.args[1].attr
    return bool(e.denominator == 1 and 1 < e <= LARGEST_POWER)


def _sum(parts: list[Rows | None]) -> Rows | None:
    total: Rows = {}
    for rows in parts:
        if rows is None:
            return None
        for e, h in rows.items():
            total[e] = total[e] + h if e in total else h
    return {e: h for e, h in total.items() if h}


def _product(a: Rows | None, b: Rows | None) -> Rows | None:
    if a is None or b is None:
        return None
    if len(a) * len(b) > Poly.LIMIT:
        raise TooLarge(f"a budget of {Poly.LIMIT} terms in one product, where {len(a)} x {len(b)} meet")
    total: Rows = {}
    for ea, ha in a.items():
        for eb, hb in b.items():
            e = nf.mono_mul(ea, eb)
            if e is not None:
                total[e] = total.get(e, Poly()) + ha * hb
    return {e: h for e, h in total.items() if h}


__all__ = ["Cleaner"]
