"""What an expression is where one of its parts is infinite or 0 and everything else is finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from redalg.graph.functions import FUNCTIONS, Function
from redalg.graph.node import NEG_INF, ZERO, Decl, Node, const, special, walk

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
    if node.op in ("const", "special"):
        return node
    if node.op == "where":
        then, other = args[1], args[2]
        return then if then is other else _finite(args[1:])
    known = [a for a in args if a is not None]
    if len(known) < len(args) or not args:
        return None
    if node.op in FUNCTIONS:
        return _function(FUNCTIONS[node.op], *known)
    if node.op not in LIMITS:
        return None
    return LIMITS[node.op](known)


def _finite(args: Iterable[Node | None]) -> Node | None:
    """That something is finite, where all it is made of is."""
    return FINITE if all(a is FINITE or a is not None and a.op == "const" for a in args) else None


# --- by operation: the value where arguments have these --------------------------------------------------------------


def _sum(args: list[Node]) -> Node | None:
    infinite = {a for a in args if a in (INF, NEG_INF)}
    if infinite:
        return infinite.pop() if len(infinite) == 1 else None
    return ZERO if all(a is ZERO for a in args) else _finite(args)


def _product(args: list[Node]) -> Node | None:
    infinite = any(a in (INF, NEG_INF) for a in args)
    if any(a is ZERO for a in args):
        return ZERO if not infinite else None
    if infinite and all(a is not FINITE for a in args):
        minus = sum(a is NEG_INF or a.op == "const" and a.attr < 0 for a in args)
        return NEG_INF if minus % 2 else INF
    return _finite(args)


def _function(row: Function, x: Node) -> Node | None:
    """The table's value; elsewhere a finite number, where the function has one for every finite number and grows no
    faster than its argument: a score that is not there is in no maximum, and exp(c·0 + b[j] - max) may be infinite
    where b is read beyond the end."""
    if x in (INF, NEG_INF):
        return _number(row.limits[x is INF])
    if x.op == "const" and x.attr in row.values:
        return _number(row.values[x.attr])
    return _finite([x]) if not row.domain and (row.slope or row.exact) else None


def _number(value: Fraction | float) -> Node | None:
    if isinstance(value, Fraction):
        return const(value)
    return None if value != value else INF if value > 0 else NEG_INF


def _maximum(args: list[Node]) -> Node | None:
    return NEG_INF if all(a is NEG_INF for a in args) else _finite(args)


LIMITS: dict[str, Callable[[list[Node]], Node | None]] = {
    "add": _sum,
    "mul": _product,
    "maximum": _maximum,
    "minimum": _finite,
}
