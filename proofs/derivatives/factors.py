"""Factors that are 1, 1 + b or 1 - b where b is 0, as what they are there: 1.

Derivatives of products are sums of products of such factors (`redalg.proofs.derivatives.rules`), most of which cancel,
where it is known that b is 0. That is said here, since no normal form replaces a product by 0.
"""

from __future__ import annotations

from redalg.proofs.checker.partial import is_never_zero
from redalg.proofs.document.terms import Term, Terms, walk
from redalg.proofs.document.work import spend

Facts = frozenset[tuple[Term, bool]]  # a term, and whether it is 0
Use = tuple[Term, Facts]


def evaluated(t: Terms, root: Term) -> Term:
    """The term with 1 in the place of such factors where b is 0, and of every `where` that asks for a b that is known
    to be 0, or not to be, what it selects."""
    asked = {n.args[2] for n in walk(root) if is_never_zero(n)}
    if not asked:
        return root
    start: Use = (root, frozenset())
    done: dict[Use, Term] = {}
    stack = [start]
    while stack:
        use = stack[-1]
        below = _below(t, *use, asked)
        missing = [b for b in below if b not in done]
        if missing:
            stack += missing
            continue
        spend(1 + len(below))
        n, args = stack.pop()[0], [done[b] for b in below]
        done[use] = args[0] if n.op == "where" and len(args) == 1 else t(n.op, *args, attr=n.attr)
    return done[start]


def _below(t: Terms, n: Term, facts: Facts, asked: set[Term]) -> list[Use]:
    """The parts of a term, and what is known in each: of another element along a reduced axis, nothing."""
    if n.op == "reduce":
        facts = frozenset(f for f in facts if not f[0].axes & {*n.attr.axes})
    if n.op != "where":
        return [(a, facts) for a in n.args]
    condition, then, other = n.args
    if is_never_zero(n):
        then = t.const(1)
    held = _told(t, condition, True, asked), _told(t, condition, False, asked)
    if len(held[0]) == 1 and condition.op in ("eq", "ne"):
        if held[0] <= facts:
            return [(then, facts)]
        if held[1] <= facts:
            return [(other, facts)]
    return [(condition, facts), (then, facts | held[0]), (other, facts | held[1])]


def _told(t: Terms, condition: Term, holds: bool, asked: set[Term]) -> Facts:
    """What a condition that holds, or does not, says of the terms that are asked for."""
    found, stack = set(), [(condition, holds)]
    while stack:
        c, holds = stack.pop()
        if c.op == "not":
            stack.append((c.args[0], not holds))
        elif c.op == "and" and holds or c.op == "or" and not holds:
            stack += [(a, holds) for a in c.args]
        elif c.op in ("eq", "ne"):
            zero = t.const(0)
            sides = [a for a in c.args if a is not zero]
            if len(sides) == 1 and sides[0] in asked:
                found.add((sides[0], holds == (c.op == "eq")))
    return frozenset(found)


__all__ = ["evaluated"]
