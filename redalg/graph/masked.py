"""Two facts that every evaluator shares: what is masked in ``exp(u - max u)``, and when a row has no valid element.

Pure graph code: the numeric and the exact evaluator, the streaming runtime and the printers ask the same functions, so
that the one deviation from IEEE arithmetic and the meaning of ``empty=`` are defined in one place.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import NamedTuple

from redalg.graph.node import (
    FALSE,
    INF,
    NEG_INF,
    ONE,
    TRUE,
    ZERO,
    Node,
    add,
    compare,
    is_const,
    logical,
    mul,
    negate,
    outermost,
    outermost_reductions,
    reduction,
    size,
    walk,
    where,
)


class Exponent(NamedTuple):
    """The argument of an exp as element terms `u` plus statistics `c`; `scale` is what both were multiplied by."""

    u: Node
    c: Node
    scale: Node


_SPLITS: weakref.WeakKeyDictionary[Node, Exponent | None] = weakref.WeakKeyDictionary()


def split_exponent(arg: Node) -> Exponent | None:
    """Split the argument of an exp into element terms and statistics, or None where there are not both.

    ``S - max_j S`` gives ``u = S`` and ``c = -max_j S``. A term is a *statistic* when it is a function of a reduction
    over an axis that the whole argument has and the term has not (or of a state leaf that lacks an axis of the
    argument). The rule: where u is -inf and c is not NaN, the exponential is 0, whatever c is. A product with a sum is
    distributed first, so that ``(S - max S) / T`` obeys the same rule, as long as its ``scale`` 1 / T is finite: what
    an infinite scale makes of a finite S is IEEE arithmetic.

    >>> from redalg.graph.node import tensor, reduction, sub
    >>> x = tensor("x", "j")
    >>> u, c, scale = split_exponent(sub(x, reduction("max", "j", x)))
    >>> u is x, scale is ONE
    (True, True)
    """
    if arg not in _SPLITS:
        _SPLITS[arg] = _split(arg)
    return _SPLITS[arg]


def is_masked(split: Exponent) -> Node:
    """The Boolean node of the rule: u is -inf, not because of the scale, and c is a number."""
    return logical("and", masked(split), Node("eq", (split.c, split.c)))


def masked_exponent(arg: Node) -> Node | None:
    """Where an exponent is masked (see `split_exponent`), or None where that cannot happen."""
    if arg.op == "where":
        condition, then, other = arg.args
        a, b = masked_exponent(then), masked_exponent(other)
        return where(condition, a or FALSE, b or FALSE) if a or b else None
    split = split_exponent(arg)
    return is_masked(split) if split else None


def masked(split: Exponent) -> Node:
    """u is -inf, and not because of the scale."""
    return logical("and", _absent_max(split.u), finite(split.scale))


def finite(node: Node) -> Node:
    """As two comparisons: SymPy takes |x| < oo for true whatever x is."""
    return TRUE if is_const(node) else logical("and", compare("lt", NEG_INF, node), compare("lt", node, INF))


def _split(arg: Node) -> Exponent | None:
    terms = _terms(arg, ONE, arg.axes)
    statistics = [t for t, _ in terms if is_statistic(t, arg.axes)]
    elements = [(t, scale) for t, scale in terms if not is_statistic(t, arg.axes)]
    if not statistics or not elements:
        return None
    scales = dict.fromkeys(scale for _, scale in elements)
    return Exponent(add(*(t for t, _ in elements)), add(*statistics), mul(*scales))


def _terms(arg: Node, scale: Node, axes: frozenset[str]) -> list[tuple[Node, Node]]:
    """The terms of a sum, each with what it was multiplied by: products with a sum of statistics distributed, one of
    elements alone is an element."""
    if arg.op == "add":
        return [t for a in arg.args for t in _terms(a, scale, axes)]
    if arg.op == "mul":
        for i, factor in enumerate(arg.args):
            if factor.op == "add":
                rest = arg.args[:i] + arg.args[i + 1 :]
                found = [t for a in factor.args for t in _terms(mul(*rest, a), mul(scale, *rest), axes)]
                return found if any(is_statistic(t, axes) for t, _ in found) else [(arg, scale)]
    return [(arg, scale)]


def is_statistic(term: Node, axes: frozenset[str]) -> bool:
    """Whether the term is computed from a reduction over one of ``axes`` that it no longer has itself."""
    missing = axes - term.axes
    if not missing:
        return False

    def decides(n: Node) -> bool:
        return n.op == "state" or n.op == "reduce" and not missing.isdisjoint(n.attr.axes)

    return any(True for _ in outermost(decides, term))


def new_axes(*roots: Node) -> dict[str, int]:
    """The axes that top-k reductions below the roots make, with their lengths."""
    return made(walk(*roots))


def made(nodes: Iterable[Node]) -> dict[str, int]:
    """`new_axes` of these nodes alone."""
    kinds = ("topk_values", "topk_indices")
    found = (n.attr.extra for n in nodes if n.op == "reduce" and n.attr.kind in kinds)
    return {axis: k for k, axis in found}


# --- rows without a valid element ------------------------------------------------------------------------------------


def masked_row(output: Node) -> Node:
    """The Boolean node that is true in the rows of ``output`` that saw no valid element (where ``empty=`` applies).

    The outermost reductions of the output are looked at, and a row is masked when *all* of them are: when every element
    they reduce is *absent*, that is, the mask written in the body replaces it by the reduction's identity:

    * ``max``/``argmax``/``topk``: the body is -inf; ``min``/``argmin``: +inf;
    * ``sum``: ``where(c, e, 0)`` with c false, ``exp(u - max u)`` with u = -inf, and every product with such a factor;
    * ``prod``: ``where(c, e, 1)`` with c false; ``any``/``all``: a false (true) branch chosen by ``where``.

    An axis of length 0 has no valid element. A zero weight, a NaN or a value that happens to be 0 is a valid element:
    NaN in stays NaN out. The result is written over statistics the definition has anyway (``max_j S == -inf``) wherever
    that is equivalent, so that a streaming form needs no further slot for it.

    >>> from redalg.graph.node import tensor, reduction, sub, fn, div
    >>> x = tensor("x", "j")
    >>> m = reduction("max", "j", x)
    >>> p = fn("exp", sub(x, m))
    >>> masked_row(div(p, reduction("sum", "j", p))) is compare("eq", m, NEG_INF)
    True
    """
    reductions = list(outermost_reductions(output))
    return logical("and", *map(_masked, reductions)) if reductions else FALSE


def _masked(node: Node) -> Node:
    kind, axes = node.attr.kind, node.attr.axes
    base = "max" if kind.startswith("topk") else kind.removeprefix("arg")
    if base in _BOUND:
        return _all_equal(base, axes, node.args[0])
    missing = absent(node.args[0], base)
    if missing is FALSE:
        return compare("eq", size(axes), ZERO)
    parts = missing.args if missing.op == "and" else (missing,)
    masks = [p for p in parts if p.op == "eq" and NEG_INF in p.args]
    others = [p for p in parts if p not in masks]
    if len(masks) == 1 and all(p.axes.isdisjoint(axes) for p in others):
        lowest = _all_equal("max", axes, next(a for a in masks[0].args if a is not NEG_INF))
        return logical("or", logical("and", lowest, *others), *([compare("eq", size(axes), ZERO)] if others else []))
    return negate(reduction("any", axes, negate(missing)))


_BOUND = {"max": NEG_INF, "min": INF}


def _all_equal(kind: str, axes: tuple[str, ...], body: Node) -> Node:
    """All elements are -inf exactly when their maximum is (a NaN would make it NaN), also where there are none."""
    return compare("eq", reduction(kind, axes, body), _BOUND[kind])


def absent(body: Node, kind: str) -> Node:
    """The Boolean node that says that an element's ``body`` is masked out of a sum, product, any or all."""
    return _ABSENT.get(kind, lambda _: FALSE)(body)


def _absent_sum(body: Node) -> Node:
    if is_const(body, 0):
        return TRUE
    if body.op == "where":
        return _chosen(body, _absent_sum)
    if body.op == "mul":
        return logical("or", *(_absent_sum(f) for f in body.args))
    if body.op == "add":
        return logical("and", *(_absent_sum(t) for t in body.args))
    if body.op == "pow" and is_const(body.args[1]) and body.args[1].attr > 0:
        return _absent_sum(body.args[0])
    if body.op == "exp":
        split = split_exponent(body.args[0])
        return masked(split) if split else FALSE
    return FALSE


def _absent_max(body: Node) -> Node:
    return TRUE if body is NEG_INF else FALSE if is_const(body) else compare("eq", body, NEG_INF)


def _absent_prod(body: Node) -> Node:
    if is_const(body, 1):
        return TRUE
    return _chosen(body, _absent_prod) if body.op == "where" else FALSE


def _absent_bool(body: Node, identity: Node) -> Node:
    if body is identity:
        return TRUE
    return _chosen(body, lambda b: _absent_bool(b, identity)) if body.op == "where" else FALSE


def _chosen(body: Node, test: Callable[[Node], Node]) -> Node:
    """A `where` is absent when the branch it takes is."""
    condition, then, other = body.args
    return logical(
        "or",
        logical("and", condition, test(then)),
        logical("and", negate(condition), test(other)),
    )


_ABSENT: dict[str, Callable[[Node], Node]] = {
    "sum": _absent_sum,
    "prod": _absent_prod,
    "any": lambda body: _absent_bool(body, FALSE),
    "all": lambda body: _absent_bool(body, TRUE),
}
