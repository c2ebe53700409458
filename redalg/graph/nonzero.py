"""Factors that are 1 + c·b where b is 0, and else b: never 0, and differentiated as 1 + c·b is.

Derivatives of products are written with them (`redalg.gradients.slopes.of_factor`). What they add to 1 is 0 itself, and
counts in derivatives alone: `settled` leaves it out, and with it what becomes equal, or 0.
"""

from __future__ import annotations

from redalg.graph import node as g
from redalg.graph.node import Node

COEFFICIENTS = (0, 1, -1)
Facts = frozenset[tuple[Node, bool]]  # conditions b = 0, and whether they hold


def nonzero(b: Node, c: int) -> Node:
    return g.where(g.compare("eq", b, g.ZERO), g.add(g.ONE, g.mul(g.const(c), b)), b)


def is_nonzero(n: Node) -> bool:
    return n.op == "where" and n.args[0].op == "eq" and any(n is nonzero(n.args[2], c) for c in COEFFICIENTS)


def is_shifted(n: Node) -> bool:
    """Whether it is a factor that another one was added to: no spec but a derivative has one."""
    return is_nonzero(n) and not g.is_const(n.args[1])


def settled(root: Node) -> Node:
    """The node with 1 in the place of 1 + c·b where b is 0; a `where` that asks again what is known is what it chooses.

    >>> b = g.tensor("b")
    >>> settled(g.sub(nonzero(b, 1), nonzero(b, -1))) is g.ZERO
    True
    """
    asked = {n.args[0] for n in g.walk(root) if is_nonzero(n)}
    return _Settled(root, asked)() if asked else root


class _Settled:
    def __init__(self, root: Node, asked: set[Node]) -> None:
        self.start: tuple[Node, Facts] = root, frozenset()
        self.done: dict[tuple[Node, Facts], Node] = {}
        self.asked: dict[Node, frozenset[Node]] = {}  # the conditions that are, or stand below, a node
        for n in g.walk(root):
            below = frozenset().union(*(self.asked[a] for a in n.args))
            self.asked[n] = below | {n} if n in asked else below

    def __call__(self) -> Node:
        stack = [self.start]
        while stack:
            n, facts = at = stack[-1]
            below = [(a, self._known(a, known)) for a, known in self._below(n, facts)]
            missing = [b for b in below if b not in self.done]
            if missing:
                stack += missing
            else:
                stack.pop()
                self.done[at] = self._of(n, [self.done[b] for b in below])
        return self.done[self.start]

    def _known(self, n: Node, facts: Facts) -> Facts:
        """What of the facts says something below a node."""
        return frozenset((c, holds) for c, holds in facts if c in self.asked.get(n, ()))

    def _below(self, n: Node, facts: Facts) -> list[tuple[Node, Facts]]:
        """What a node is made of, with what is known there: other elements of an axis are reduced than this one."""
        if n.op == "reduce":
            facts = frozenset((c, holds) for c, holds in facts if c.axes.isdisjoint(n.attr.axes))
        if n.op != "where":
            return [(a, facts) for a in n.args]
        condition, then, other = n.args
        if (condition, True) in facts or (g.negate(condition), False) in facts:
            return [(g.ONE if is_nonzero(n) else then, facts)]
        if (condition, False) in facts or (g.negate(condition), True) in facts:
            return [(other, facts)]
        no = facts | self._told(g.negate(condition))
        return [(condition, facts), (then, facts | self._told(condition)), (other, no)]

    def _told(self, condition: Node) -> Facts:
        """What holds where a condition does."""
        every = condition.args if condition.op == "and" else (condition,)
        return frozenset((g.negate(c) if c.op == "ne" else c, c.op != "ne") for c in every if c.op in ("eq", "ne"))

    def _of(self, n: Node, made: list[Node]) -> Node:
        if n.op == "reduce" and n.attr.kind == "sum" and made[0] is g.ZERO:
            return g.ZERO  # what the facts exclude; nothing would say any more how long its axes are
        if n.op != "where":
            return g.rebuild(n, tuple(made))
        if len(made) == 1:
            return made[0]
        return g.where(made[0], g.ONE if is_nonzero(n) else made[1], made[2])


__all__ = ["is_nonzero", "is_shifted", "nonzero", "settled"]
