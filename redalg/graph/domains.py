"""Where operations have values: divisors are not 0, arguments of logarithms, roots and inverses are in their domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import MINUS_ONE, ONE, ZERO, Node, add, is_inverse, mul

DOMAINS: dict[str, Callable[[Node], tuple[Node, ...]]] = {  # the conditions of a word of the table
    "": lambda a: (),
    "positive": lambda a: (Node("lt", (ZERO, a)),),
    "above_minus_one": lambda a: (Node("lt", (MINUS_ONE, a)),),
    "above_one": lambda a: (Node("le", (ONE, a)),),
    "unit": lambda a: (Node("le", (MINUS_ONE, a)), Node("le", (a, ONE))),
    "open_unit": lambda a: (Node("lt", (MINUS_ONE, a)), Node("lt", (a, ONE))),
}


def conditions(n: Node) -> Iterator[Node]:
    """What a node's argument must satisfy; powers of one base ask for the same, whatever their size.

    >>> from redalg.graph.node import fn, tensor
    >>> [c.op for c in conditions(fn("acosh", tensor("x")))]
    ['le']
    """
    if n.op in FUNCTIONS:
        yield from DOMAINS[FUNCTIONS[n.op].domain](n.args[0])
    if is_inverse(n):
        yield Node("ne", (n.args[0], ZERO))
    if n.op == "pow" and n.args[1].op == "const" and n.args[1].attr.denominator != 1:
        yield Node("le", (ZERO, n.args[0]))


def factored(total: Node) -> tuple[list[Node], Node]:
    """The factors that all terms of a sum have, and the sum of what else they have; nothing is multiplied out.

    >>> from redalg.graph.node import add, mul, tensor
    >>> x, w = tensor("x", ("j",)), tensor("w", ("j",))
    >>> common, rest = factored(add(mul(x, w), w))
    >>> common == [w], rest is add(x, ONE)
    (True, True)
    """
    rows = [list(a.args) if a.op == "mul" else [a] for a in total.args]
    common = [f for f in rows[0] if all(f in row for row in rows)]
    for f in common:
        for row in rows:
            row.remove(f)
    return common, add(*(mul(*row) for row in rows))
