"""Reductions of reductions of a state as one: a kernel reduces what it holds as arrays along all of them at once."""

from __future__ import annotations

from dataclasses import replace

from redalg.graph.node import Node, Reduce, substitute, walk
from redalg.graph.plan import Plan

KINDS = frozenset({"sum", "prod", "max", "min", "any", "all"})


def joined(plan: Plan) -> Plan:
    """An equal plan, in which results and what passes leave for later ones have ``sum[a,b](x)`` for
    ``sum[a](sum[b](x))``.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.parse("g = sum[j](x[j,a]*y[j,b]); return y = sum[a](sum[b](g**2))"), axis="j")
    >>> joined(form.plan).outputs[0].value.attr.axes
    ('a', 'b')
    """
    passes = tuple(replace(p, exports=tuple((name, _read(node)) for name, node in p.exports)) for p in plan.passes)
    return replace(plan, passes=passes, outputs=tuple(o.map(_read) for o in plan.outputs))


def _read(node: Node) -> Node:
    while found := {n: _one(n) for n in walk(node) if _is_nested(n)}:
        node = substitute(node, found, raw=True)
    return node


def _is_nested(n: Node) -> bool:
    return n.op == "reduce" and n.attr.kind in KINDS and n.args[0].op == "reduce" and n.args[0].attr.kind == n.attr.kind


def _one(n: Node) -> Node:
    inner = n.args[0]
    return Node("reduce", inner.args, Reduce(n.attr.kind, (*n.attr.axes, *inner.attr.axes)))
