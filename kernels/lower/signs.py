"""Signs and reciprocals of graph nodes, so that a sum is printed with minus signs and a product with divisions."""

from __future__ import annotations

from collections.abc import Container
from fractions import Fraction

from redalg.graph.node import Node, is_inverse

SEEN = ("n", "n_b", "n_new")  # counts of elements: of a state, of the other side, and of both together


def is_negation(node: Node) -> bool:
    """Whether a node is -1 times something."""
    return node.op == "mul" and node.args[0].op == "const" and node.args[0].attr == -1


def is_minus(term: Node) -> bool:
    """Whether a term of a sum is printed behind a minus sign."""
    first = term.args[0] if term.op == "mul" else term
    return first.op == "const" and first.attr < 0


def negated(term: Node) -> Node:
    """-term, for a term that `is_minus`."""
    if term.op == "const":
        return Node("const", (), -term.attr)
    rest = term.args[1:] if term.args[0].attr == -1 else (Node("const", (), -term.args[0].attr), *term.args[1:])
    return rest[0] if len(rest) == 1 else Node("mul", rest)


def inverse(power: Node) -> Node:
    """1/power, for a power with a negative constant as its exponent."""
    base, e = power.args
    return base if e.attr == -1 else Node("pow", (base, Node("const", (), -e.attr)))


def is_safe(node: Node, bounded: Container[str]) -> bool:
    """Whether an inverse may be multiplied by, in place of a division: of what is bounded, of a root (these are normal
    numbers), and of a unit, a power of 2 (that is exact)."""
    base, exponent = node.args
    if base.op == "pow2" or base.op == "state" and base.attr.domain == {"positive"}:
        return bool(exponent.attr == -1)
    return base.op == "state" and base.attr.name in bounded or bool(exponent.attr >= Fraction(-1, 2))


def inverse_root(node: Node) -> tuple[Node, int] | None:
    """For x**(-3/2) or x**(-5/2), 1/sqrt(x) and how often it is a factor. Multiplied by one after the other, what such
    a power scales grows or shrinks step by step: it leaves the range of normal numbers only where the result does."""
    base, exponent = node.args
    times = -2 * exponent.attr
    return (Node("pow", (base, Node("const", (), Fraction(-1, 2)))), int(times)) if times in (3, 5) else None


def is_count(node: Node) -> bool:
    """Whether a node is the number of elements of an axis, or of those that a state has seen."""
    return node.op == "size" or node.op == "state" and node.attr.name in (*SEEN, "n_some")


def is_share(node: Node) -> bool:
    """Whether a node is one over the number of elements that a state has seen."""
    of_one = is_inverse(node) and node.args[0].op == "state" and node.args[1].attr == -1
    return of_one and node.args[0].attr.name in SEEN
