"""The monoids of slots, as graph nodes: two sides that are held at the same anchors become one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

from redalg.graph.node import Node, add, compare, div, extremum, logical, mul, sub, where
from redalg.graph.operators import Average, Custom, Extremum, Position, Product, Quantifier, Sum, TopK
from redalg.graph.plan import Slot


def call(name: str, *args: Node) -> Node:
    """An operation on sorted lists that the graph has no node for; `Form` shows it as an opaque function."""
    return Node("call", args, name)


def join(slot: Slot, a: list[Node], b: list[Node], counts: tuple[Node, Node]) -> list[Node]:
    """The slot's monoid on parts that are held at the same anchors."""
    match slot.op:
        case Average():  # the larger side plus a difference: never a sum of large products
            return [add(a[0], mul(sub(b[0], a[0]), div(counts[1], add(*counts))))]
        case Position(kind):
            later_wins = compare("lt", a[0], b[0]) if kind == "argmax" else compare("lt", b[0], a[0])
            best = extremum(slot.op.extremum.operation, a[0], b[0])
            return [best, where(later_wins, add(b[1], counts[0]), a[1])]
        case TopK():
            lists = (a[0], a[1], b[0], add(b[1], counts[0]))
            return [call("topk_merge", a[0], b[0]), call("topk_merge_indices", *lists)]
        case Custom(monoid):
            return list(monoid.combine_nodes(tuple(a), tuple(b)))
        case Sum() | Product() | Extremum() | Quantifier():
            return [BINARY[slot.op.operation](a[0], b[0])]
        case _:
            assert_never(slot.op)


BINARY: dict[str, Callable[[Node, Node], Node]] = {
    "add": add,
    "mul": mul,
    **{op: partial(extremum, op) for op in ("maximum", "minimum")},
    **{op: partial(logical, op) for op in ("or", "and")},
}
