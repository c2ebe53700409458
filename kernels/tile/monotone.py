"""Monotone functions taken out of an extremum: max f(u) is f(max u), so that f is applied once a row.

A function that grows may be applied after the extremum instead of to every element, in floats too, since rounding is
monotone; so may the addition of what is the same for all elements. Where a condition puts a number in place of f(u),
it must be what f gives far down: ``where(c, f(u), f(-oo))`` is ``f(where(c, u, -oo))``.
"""

from __future__ import annotations

from dataclasses import replace

from redalg.graph.functions import FUNCTIONS, NOT_NEGATIVE
from redalg.graph.node import NEG_INF, Node, state, substitute, walk
from redalg.kernels.ir.program import Loop, Part, Pass, Program
from redalg.kernels.tile.limits import at

FROM_ZERO = ("positive", "above_minus_one")  # domains in which every positive number lies; NaN somewhere below 0
GROWING = frozenset(f.name for f in FUNCTIONS.values() if f.direction > 0 and not f.domain)
GROWING_FROM_ZERO = {"sqrt"} | {f.name for f in FUNCTIONS.values() if f.direction > 0 and f.domain in FROM_ZERO}
POSITIVE = NOT_NEGATIVE


def pulled_out(program: Program) -> Program:
    """The program with a smaller body in its only fold, if that is a maximum of a growing function."""
    p = program.passes[0]
    body = _only_maximum(p)
    if body is None:
        return program
    part = p.parts[0]
    inner, outer = _peeled(body, set(program.stream), part)
    if inner is body:
        return program

    def step(s: object) -> object:
        if not isinstance(s, Loop):
            return s
        return Loop(tuple(replace(f, bodies=(inner,)) for f in s.folds))

    mine = [n for r in program.results for n in walk(r.node) if n.op == "state" and n.attr.name == part.name]
    after = {n: substitute(outer, {_place(part): n}, raw=True) for n in mine}
    results = tuple(
        replace(r, node=substitute(r.node, after, raw=True), masked=r.masked and substitute(r.masked, after, raw=True))
        for r in program.results
    )
    lift, update = (tuple(map(step, steps)) for steps in (p.lift, p.update))
    return replace(program, passes=(replace(p, lift=lift, update=update),), results=results)  # type: ignore[arg-type]


def _only_maximum(p: Pass) -> Node | None:
    """What a maximum is taken of, if the state is nothing else."""
    folds = [f for s in (*p.lift, *p.update) if isinstance(s, Loop) for f in s.folds]
    if len(p.parts) != 1 or len(folds) != 2 or any(f.kind != "max" or f.axes for f in folds):
        return None
    body = folds[0].bodies[0]
    same = all(f.bodies[0] is body for f in folds)
    return body if same and not any(n.op == "state" for n in walk(body)) else None


def _place(part: Part) -> Node:
    return state(f"inside {part.name}")


def _peeled(body: Node, stream: set[str], part: Part) -> tuple[Node, Node]:
    """A node and a function of `_place` whose value at the node is the body's, growing."""
    place = _place(part)
    if body.op == "where":
        inner, outer = _peeled(body.args[1], stream, part)
        if inner is not body.args[1] and at(outer, place, NEG_INF, {}) is body.args[2]:
            return Node("where", (body.args[0], inner, NEG_INF)), outer
        return body, place
    if body.op in GROWING or body.op in GROWING_FROM_ZERO and body.args[0].op in POSITIVE:
        inner, outer = _peeled(body.args[0], stream, part)
        return inner, Node(body.op, (outer,))
    if body.op == "add":
        moving = [a for a in body.args if a.axes & stream or any(n.op == "index" for n in walk(a))]
        if len(moving) == 1:
            inner, outer = _peeled(moving[0], stream, part)
            return inner, Node("add", (outer, *(a for a in body.args if a is not moving[0])))
    return body, place
