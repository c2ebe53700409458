"""What has no derivative, as errors."""

from __future__ import annotations

from collections.abc import Collection

from redalg.algebra.work import ADJOINT
from redalg.errors import RedalgError, Undecided
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.graph.nonzero import is_shifted
from redalg.text.nodes import short

STRAIGHT_THROUGH = "straight_through"
ORDERS = 3  # of derivatives of products
ASSUMPTIONS = (STRAIGHT_THROUGH,)


def check_differentiable(n: Node, where: str, assume: Collection[str]) -> None:
    """Raises: RedalgError for a user's monoid, a rounding that is not taken as the identity, and complex numbers."""
    if n.op == "reduce" and n.attr.kind == "monoid":
        raise RedalgError(
            f"a derivative through {short(n)}",
            where,
            "a user's monoid says how values are combined, and nothing of its derivative",
            "write the reduction with sum, prod, max, min or topk, or leave what it reads out of wrt",
        )
    if n.op == "cast" and STRAIGHT_THROUGH not in assume:
        raise RedalgError(
            f"a derivative through {short(n)}",
            where,
            "a rounding is constant between its jumps: its derivative is 0 wherever there is one",
            f"assume={{{STRAIGHT_THROUGH!r}}} to differentiate what is rounded in its place",
        )
    if n.op in ("conj", "re", "im"):
        raise RedalgError(
            f"a derivative through {short(n)}",
            where,
            "derivatives are those of functions of real numbers",
            "write real and imaginary parts as tensors of their own",
        )


def check_order(n: Node, a: Node, where: str) -> None:
    """Raises: RedalgError for a fourth derivative of a product, from an operation to what it is made of.

    The first three are right where factors are 0 (`redalg.gradients.slopes.of_factor`). Each divides once more by a
    factor that is not 0, which says how many there were.
    """
    if not is_shifted(a):
        return
    powers = (p.args[1] for p in (n, *n.args) if p.op == "pow" and p.args[0] is a)
    if any(g.is_const(e) and e.attr <= -ORDERS for e in powers):
        raise RedalgError(
            f"a fourth derivative of a product of {short(a.args[2])}",
            where,
            f"derivatives of up to order {ORDERS} alone are known where more than {ORDERS} factors are 0",
            "write the factors one by one, or the product as exp of a sum of logarithms where all are positive",
        )


def check_parts(count: int, where: str) -> None:
    """Raises: Undecided for an adjoint of more parts than its budget: each extremum of extrema may double them."""
    if count > ADJOINT:
        raise Undecided(
            "a gradient through a long chain of extrema",
            where,
            f"a budget of {ADJOINT} parts of an adjoint that count where different conditions hold is spent",
            "differentiate the stages in shorter chains, each a spec whose cotangent is the gradient of the next",
        )


__all__ = ["ASSUMPTIONS", "STRAIGHT_THROUGH", "check_differentiable", "check_order", "check_parts"]
