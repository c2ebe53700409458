"""Sums with a single term: Σ_j [j = u]·g(j) is g(u) where u is a place of the axis, and 0 elsewhere.

The selection of a class's logit in the cross-entropy, or of a row of a table. A fold of such a body would compare every
element with u; where nothing else needs the running sum, the term is read once, after the walk over the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from redalg.graph.node import ZERO, Node, Reduce, fresh, leaves, rename_axes, walk, where, with_states
from redalg.graph.operators import Sum
from redalg.kernels.ir.kinds import program_kinds
from redalg.kernels.ir.program import Fold, Join, Loop, Part, Pass, Program, Step


class OneHot(NamedTuple):
    place: Node
    term: Node


def one_hot_of(node: Node) -> OneHot | None:
    """The place and the term of a sum over one axis all of whose other terms are 0 by a condition."""
    if node.op != "reduce" or node.attr.kind != "sum" or len(node.attr.axes) != 1:
        return None
    return _one_hot(node.args[0], node.attr.axes[0])


def _one_hot(body: Node, axis: str) -> OneHot | None:
    if body.op != "where" or body.args[2] is not ZERO:
        return None
    condition, term, _ = body.args
    tests = condition.args if condition.op == "and" else (condition,)
    for test in tests if all(t.is_boolean for t in tests) else ():
        sides = test.args if test.op == "eq" else ()
        for here, place in zip(sides, reversed(sides), strict=True):
            if here.op == "index" and here.attr == axis and axis not in place.axes:
                rest = tuple(t for t in tests if t is not test)
                if rest:
                    term = where(rest[0] if len(rest) == 1 else Node("and", rest), term, ZERO)
                return OneHot(place, term)
    return None


def gathered(program: Program) -> Program:
    """An equal program without the running sums of single terms of the last pass: its results read the term itself.

    Only sums that nothing but results reads, of terms that are read and not contracted; one fold at least stays.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> form = ra.derive_incremental(ra.catalog["cross_entropy"])
    >>> program = lower(form, {"x": "float32", "t": "int64"})
    >>> [[part.name for part in p.passes[0].parts] for p in (program, gathered(program))]
    [['max_x', 'sum_exp', 'sum_if_t_x'], ['max_x', 'sum_exp']]
    """
    if not program.passes or len(program.stream) != 1:
        return program
    last, (axis,) = program.passes[-1], program.stream
    found = {x.name: body for x in last.parts if (body := _single(last, x, axis, program)) is not None}
    if not found or len(found) == len(last.parts):
        return program
    inner = fresh(f"{axis}_at", {a for o in program.operands for a in o.axes} | {*program.inner})
    values = {n: Node("reduce", (rename_axes(b, {axis: inner}),), Reduce("sum", (inner,))) for n, b in found.items()}
    results = tuple(
        replace(r, node=with_states(r.node, values), masked=None if r.masked is None else with_states(r.masked, values))
        for r in program.results
    )
    passes = (*program.passes[:-1], _without(last, set(found)))
    return replace(program, passes=passes, results=results, inner={**program.inner, inner: axis})


def gathered_axes(program: Program) -> set[str]:
    """Axes of sums that are not looped over, in the results of a program."""
    return {n.attr.axes[0] for r in program.results for n in walk(r.node) if one_hot_of(n) is not None}


def _single(p: Pass, part: Part, axis: str, program: Program) -> Node | None:
    """The body of the part's fold, if it has a single term and only results read the part."""
    folds = [f for s in p.lift if isinstance(s, Loop) for f in s.folds if f.names == (f"{part.name}_b",)]
    if len(folds) != 1 or not isinstance(folds[0].op, Sum) or part.axes:
        return None
    (body,) = folds[0].bodies
    one_hot = _one_hot(body, axis)
    if one_hot is None or any(n.op in ("state", "reduce") for n in walk(body)):
        return None
    if program_kinds(program).of(one_hot.place) != "i":  # reals are no places: the sum would be a loop again
        return None
    own = {part.name + end for end in ("", "_b", "_new")}
    read = {leaf.attr.name for n in _others(p, own) for leaf in leaves(n, "state")}
    return None if read & own else body


def _assigned(step: Step | Fold) -> set[str]:
    return {*step.names} if isinstance(step, Fold | Join) else {step.name} if not isinstance(step, Loop) else set()


def _others(p: Pass, own: set[str]) -> Iterable[Node]:
    """The nodes of all steps that do not assign these names."""
    for step in (*p.lift, *p.combine, *p.update):
        if isinstance(step, Loop):
            yield from (b for f in step.folds if not _assigned(f) <= own for b in f.bodies)
        elif not _assigned(step) <= own:
            yield from (*step.a, *step.b) if isinstance(step, Join) else (step.node,)
    yield from (let.node for let in p.exports)


def _without(p: Pass, names: set[str]) -> Pass:
    gone = {n + end for n in names for end in ("", "_b", "_new")}

    def kept(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        found: list[Step] = []
        for s in steps:
            if isinstance(s, Loop):
                folds = tuple(f for f in s.folds if not _assigned(f) <= gone)
                found += [Loop(folds)] if folds else []
            elif not _assigned(s) <= gone:
                found.append(s)
        return tuple(found)

    parts = tuple(x for x in p.parts if x.name not in names)
    return replace(p, parts=parts, lift=kept(p.lift), combine=kept(p.combine), update=kept(p.update))
