"""What an expression is where one of its parts is infinite or 0 and everything else is finite."""

from __future__ import annotations

from collections.abc import Iterable

from redalg.graph import NEG_INF, ZERO, Decl, Node, special, walk

INF = special("oo")
FINITE = Node("state", (), Decl("a finite number"))


def at(node: Node, place: Node, value: Node, memo: dict[Node, Node | None]) -> Node | None:
    """A node's value where `place` has this value and what does not depend on it is finite; None: that does not say."""
    if node is place:
        return value
    if node not in memo:
        found = _evaluated(node, [at(a, place, value, memo) for a in node.args])
        memo[node] = FINITE if found is None and place not in set(walk(node)) else found
    return memo[node]


def _evaluated(node: Node, args: list[Node | None]) -> Node | None:
    op = node.op
    if op == "const" or op == "special":
        return node
    if op == "where":
        then, other = args[1], args[2]
        return then if then is other else _finite(args[1:])
    known = [a for a in args if a is not None]
    if len(known) < len(args) or not args:
        return None
    infinite = [a for a in known if a in (INF, NEG_INF)]
    first = known[0]
    if op == "add":
        if infinite:
            return infinite[0] if len(set(infinite)) == 1 else None
        return ZERO if all(a is ZERO for a in known) else _finite(args)
    if op == "mul":
        if any(a is ZERO for a in known):
            return ZERO if not infinite else None
        if infinite and all(a is not FINITE for a in known):
            minus = sum(a is NEG_INF or a.op == "const" and a.attr < 0 for a in known)
            return NEG_INF if minus % 2 else INF
        return _finite(args)
    if op in ("exp", "sigmoid"):
        return ZERO if first is NEG_INF else _finite(args)
    if op == "relu":
        return ZERO if first in (NEG_INF, ZERO) else first
    if op in ("log1p", "tanh", "abs") and first is ZERO:
        return ZERO
    if op == "maximum" and all(a is NEG_INF for a in known):
        return NEG_INF
    return _finite(args) if op in ("tanh", "abs", "sin", "cos", "maximum", "minimum") else None


def _finite(args: Iterable[Node | None]) -> Node | None:
    """That something is finite, where all it is made of is."""
    return FINITE if all(a is FINITE or a is not None and a.op == "const" for a in args) else None
