"""User monoids under actions: reduce(act(G(x), H(D))) = act(reduce(G(x)), H(D)).

The law ``combine(act(a, h), act(b, h)) = act(combine(a, b), h)`` is an obligation. The factors are looked for where the
body's components split into one element and one stage factor (by × or by +); a match is accepted only if applying the
action to them gives the body back in normal form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from redalg.algebra import polynomial as nf
from redalg.engine.rules.monotone import CannotPull
from redalg.engine.rules.separate import Separator
from redalg.graph import node as g
from redalg.graph.node import Node


def act_outside(stage: Node, separator: Separator, slot: Callable[..., Node]) -> Node:
    monoid, part = stage.attr.extra
    for factor in _candidates(stage.args, separator):
        for name, _ in monoid.actions:
            inner = _undone(monoid, name, stage.args, factor, separator)
            if inner is None:
                continue
            separator.trace.rule(f"the action {name} of monoid {monoid.name} is pulled out")
            parts = [slot("monoid", *inner, extra=(monoid, i)) for i in range(len(inner))]
            return monoid.action_nodes(name, tuple(parts), factor)[part]
    raise CannotPull(stage, f"no action of monoid {stage.attr.extra[0].name} takes the stage values out of the body")


def _candidates(bodies: tuple[Node, ...], separator: Separator) -> Iterator[Node]:
    for body in bodies:
        p = separator.poly(body)
        pair = separator.rank_one(p)
        if pair is not None and separator.scope.uses(nf.poly_node(pair[1])):
            yield nf.poly_node(pair[1])
        fixed = separator.rows(p).get(nf.UNIT)
        if fixed is not None and not separator.mixed_generators(p):
            yield nf.poly_node(fixed)


def _undone(monoid: Any, name: str, bodies: tuple[Node, ...], h: Node, separator: Separator) -> tuple[Node, ...] | None:
    """Element components G with act(G, h) = body, by multiplying or adding back the inverse of h."""
    scope = separator.scope
    for inverse in (g.power(h, -1), g.neg(h)):
        trial = monoid.action_nodes(name, bodies, inverse)
        inner = tuple(nf.poly_node(separator.poly(t)) for t in trial)
        if any(scope.uses(t) for t in inner):
            continue
        back = monoid.action_nodes(name, inner, h)
        if all(separator.poly(a) == separator.poly(b) for a, b in zip(back, bodies, strict=True)):
            return inner
    return None
