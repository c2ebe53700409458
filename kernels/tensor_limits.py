"""What an expression is where one of its parts is infinite or 0 and everything else is finite."""

from __future__ import annotations

from redalg.graph import NEG_INF, ZERO, Node, special

INF = special("oo")


def at(node: Node, place: Node, value: Node, memo: dict[Node, Node | None]) -> Node | None:
    """A node's value where `place` has this value and everything else is finite; None where that does not say."""
    if node is place:
        return value
    if node not in memo:
        memo[node] = _evaluated(node, [at(a, place, value, memo) for a in node.args])
    return memo[node]


def _evaluated(node: Node, args: list[Node | None]) -> Node | None:
    op = node.op
    if op == "const" or op == "special":
        return node
    known = [a for a in args if a is not None]
    infinite = [a for a in known if a in (INF, NEG_INF)]
    if op == "add":
        if infinite:
            return infinite[0] if len(set(infinite)) == 1 else None
        return ZERO if len(known) == len(args) and all(a is ZERO for a in known) else None
    if op == "mul":
        if any(a is ZERO for a in known):
            return ZERO if not infinite else None
        if infinite and all(a is not None for a in args):
            minus = sum(a is NEG_INF or a.op == "const" and a.attr < 0 for a in known)
            return NEG_INF if minus % 2 else INF
        return None
    first = args[0] if args else None
    if op in ("exp", "sigmoid"):
        return ZERO if first is NEG_INF else None
    if op == "relu":
        return ZERO if first in (NEG_INF, ZERO) else None
    if op in ("log1p", "tanh", "abs", "sqrt") and first is ZERO:
        return ZERO
    if op == "where":
        then, other = args[1], args[2]
        return then if then is other and then is not None else None
    if op == "maximum" and len(known) == len(args) and all(a is NEG_INF for a in known):
        return NEG_INF
    return None
