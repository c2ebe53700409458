"""Where operations have values: divisors are not 0, arguments of logarithms, roots and inverses are in their domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import MINUS_ONE, ONE, ZERO, Node, is_inverse

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
