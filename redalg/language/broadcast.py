"""Building `reduce` nodes: what a reduction means when its body lacks some of the reduced axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.graph.node import Node

SINGLE = frozenset("sum prod max min any all argmax argmin topk_values topk_indices".split())


def as_number(node: Node) -> Node:
    """A Boolean counts as 0 or 1 where a number is wanted."""
    return g.where(node, g.ONE, g.ZERO) if node.is_boolean else node


def reduced(kind: str, axes: Sequence[str], body: Node, extra: Any = None) -> Node:
    """Reduce `body` over one composite axis; axes it lacks are broadcast (sum: size·e, prod: e**size, max: e)."""
    if kind not in ("any", "all"):
        body = as_number(body)
    present = tuple(a for a in axes if a in body.axes)
    missing = tuple(a for a in axes if a not in body.axes)
    if kind.startswith("topk"):
        return _topk(kind, tuple(axes), body, extra, missing)
    if kind.startswith("arg"):
        return _position(kind, tuple(axes), body, present, missing)
    inner = g.reduction(kind, present, body) if present else body
    if not missing:
        return inner
    if kind == "sum":
        return g.mul(g.size(missing), inner)
    return g.power(inner, g.size(missing)) if kind == "prod" else inner


def _topk(kind: str, axes: tuple[str, ...], body: Node, extra: Any, missing: tuple[str, ...]) -> Node:
    if missing:
        raise RedalgError(
            f"topk over the axis {missing[0]!r}",
            "ra.topk",
            f"its expression has the axes {sorted(body.axes)}: all elements along {missing[0]!r} would be equal",
            "reduce along an axis of the expression",
        )
    return g.reduction(kind, axes, body, extra=extra)


def _position(kind: str, axes: tuple[str, ...], body: Node, present: tuple[str, ...], missing: tuple[str, ...]) -> Node:
    """Row-major position of the first extremum. Along a missing axis all elements tie, so its coordinate is 0."""
    if not present:
        return g.ZERO
    last = max(axes.index(a) for a in present)
    inside = [a for a in missing if axes.index(present[0]) < axes.index(a) < last]
    if inside:
        raise RedalgError(
            f"{kind} over the composite axis {list(axes)}",
            f"ra.{kind}",
            f"the expression lacks {inside[0]!r}, which lies between axes that it has",
            f"reduce over {list(present)} and compute the composite position from it",
        )
    trailing = [a for a in missing if axes.index(a) > last]
    return g.mul(g.size(trailing), g.reduction(kind, present, body))
