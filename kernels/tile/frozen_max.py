"""The frozen maximum: one that is taken of the first block alone, where results do not depend on it.

Where states are relative to an anchor A (sums of exp(u - A)), results are the same for every A in exact arithmetic if
moving A by δ, which multiplies the sums by e^(-δ), leaves them alone. `frozen_steps` proves that by degrees: every node
of a result is given a `Degree` (k, c), meaning that it becomes e^(-kδ)·x + c·δ, and a result must be given (0, 0). Then
later blocks need no maximum and nothing is rescaled. A test of the final sums shows that nothing was lost: sums of
positive terms only grow, so that a sum below 2^64 never overflowed (2^15 where weights are rounded to float16), and one
of at least 1 was not lost to underflow either; sums of weights times values stay infinite or NaN once they overflowed.
Rows that fail the test are computed anew by a fallback kernel, with a running anchor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import NamedTuple

from redalg.graph.node import ZERO, Node, is_const, substitute, walk
from redalg.graph.operators import Extremum, Sum
from redalg.kernels.ir.program import Join, Let, Loop, Step
from redalg.kernels.tile.match import Class, Outside, weight_of


class Degree(NamedTuple):
    """Moving the anchor by δ makes a value e^(-factor·δ)·x + shift·δ."""

    factor: Fraction = Fraction(0)
    shift: Fraction = Fraction(0)


NONE = Degree()
ANCHOR = Degree(shift=Fraction(1))
Rule = Callable[[Node, list[Degree]], Degree | None]


def frozen_steps(made: Class) -> tuple[tuple[Step, ...], str]:
    """What folds a block at a frozen maximum, and the name of the sum whose final value is tested.

    Raises: Outside, where results depend on the anchor or nothing shows that a row was right.
    """
    p = made.walk
    anchor = anchor_of(made)
    tested = _tested(made)
    lets = {s.name: s.node for s in p.update if isinstance(s, Let)}
    degrees = {anchor: ANCHOR}
    for step in p.update:
        if isinstance(step, Join) and step.names[0] != f"{anchor}_new":
            degrees[step.names[0].removesuffix("_new")] = _moved(step, anchor, lets)
    for let in p.exports:
        found_let = _degree(let.node, degrees)
        if found_let is None:
            raise Outside(f"{let.name} depends on the anchor in no simple way")
        degrees[let.name] = found_let
    for r in made.program.results:
        nodes = [r.node] if r.masked is None else [r.node, r.masked]
        if any(_degree(n, degrees) != NONE for n in nodes):
            raise Outside(f"{r.name} depends on the anchor")
    return _kept(made, anchor), tested


def _moved(step: Join, anchor: str, lets: Mapping[str, Node]) -> Degree:
    """How a part of the state moves with the anchor. Raises: Outside, unless it is by a factor."""
    name = step.names[0].removesuffix("_new")
    factors = step.a[0].args if step.a[0].op == "mul" else (step.a[0],)
    rest = [x for x in factors if not (x.op == "state" and x.attr.name == name)]
    total = Fraction(0)
    for factor in rest:
        found = _degree(_expanded(factor, lets), {f"{anchor}_new": ANCHOR})
        if found is None or found.shift:
            raise Outside(f"{name} does not move with the anchor by a factor")
        total += found.factor
    return Degree(total)


def anchor_of(made: Class) -> str:
    """The part that is a maximum."""
    found = [
        f.names[0].removesuffix("_b")
        for s in made.walk.update
        if isinstance(s, Loop)
        for f in s.folds
        if isinstance(f.op, Extremum)
    ]
    if len(found) != 1:
        raise Outside("there is not one maximum for an anchor")
    return found[0]


def largest(made: Class) -> int:
    """The power of two below which a sum shows that nothing overflowed: weights are rounded to the values' type."""
    return 15 if made.values is not None and made.dtype == "float16" else 64


def _tested(made: Class) -> str:
    """The sum of exp(u - max u); every other sum must have terms that are no larger, but for the values."""
    folds = [f for s in made.walk.update if isinstance(s, Loop) for f in s.folds if isinstance(f.op, Sum)]
    sums = [f for f in folds if f.names[0].removesuffix("_b") in made.program.attained]
    if len(sums) != 1:
        raise Outside("no sum shows whether an exponential overflowed")
    for f in folds:
        body = weight_of(f, made.values) if f.axes and made.values is not None else f.bodies[0]
        if body is not sums[0].bodies[0]:
            raise Outside(f"{f.names[0]} is not bounded by the sum that is tested")
    return sums[0].names[0].removesuffix("_b")


def _expanded(node: Node, lets: Mapping[str, Node]) -> Node:
    """Names of steps by what they stand for; differences without their test for equality."""
    mapping = {
        n: _expanded(_difference(lets[n.attr.name]), lets)
        for n in walk(node)
        if n.op == "state" and n.attr.name in lets
    }
    return substitute(node, dict(mapping), raw=True) if mapping else node


def _difference(node: Node) -> Node:
    """a - b of ``where(a == b, 0, a - b)``."""
    if node.op == "where" and node.args[0].op == "eq" and is_const(node.args[1], 0):
        return node.args[2]
    return node


def _degree(node: Node, known: Mapping[str, Degree]) -> Degree | None:
    """How the node moves with the anchor; None where these rules do not say."""
    if node.op == "state":
        return known.get(node.attr.name, NONE)
    if not node.args:
        return NONE
    given = []
    for arg in node.args:
        found = _degree(arg, known)
        if found is None:
            return None
        given.append(found)
    rule = RULES.get(node.op)
    return rule(node, given) if rule is not None else _still(given)


def _still(given: Iterable[Degree]) -> Degree | None:
    """What is made of values that do not move does not move."""
    return NONE if all(d == NONE for d in given) else None


def _sum(node: Node, given: list[Degree]) -> Degree | None:
    found = [d for a, d in zip(node.args, given, strict=True) if not is_const(a, 0)]
    shift = sum((d.shift for d in found), Fraction(0))
    if len({d.factor for d in found}) > 1 or found[0].factor and any(d.shift for d in found):
        return None
    return Degree(found[0].factor, shift)


def _product(node: Node, given: list[Degree]) -> Degree | None:
    shifted = [a for a, d in zip(node.args, given, strict=True) if d.shift]
    if not shifted:
        return Degree(sum((d.factor for d in given), Fraction(0)))
    others = [a for a in node.args if a is not shifted[0]]
    if len(shifted) > 1 or any(a.op != "const" for a in others):
        return None
    return Degree(shift=prod((a.attr for a in others), start=Fraction(1)) * sum((d.shift for d in given), Fraction(0)))


def _power(node: Node, given: list[Degree]) -> Degree | None:
    exponent = node.args[1]
    if exponent.op != "const" or given[0].shift:
        return _still(given)
    return Degree(given[0].factor * exponent.attr)


def _exp(node: Node, given: list[Degree]) -> Degree | None:
    return _still(given) if given[0].factor else Degree(-given[0].shift)


def _log(node: Node, given: list[Degree]) -> Degree | None:
    return _still(given) if given[0].shift else Degree(shift=-given[0].factor)


def _where(node: Node, given: list[Degree]) -> Degree | None:
    return given[1] if given[0] == NONE and given[1] == given[2] else _still(given)


def _comparison(node: Node, given: list[Degree]) -> Degree | None:
    """Both sides move by one factor, which is positive; 0 by any."""
    if any(d.shift for d in given):
        return None
    sides = {d.factor for a, d in zip(node.args, given, strict=True) if a is not ZERO}
    return NONE if len(sides) <= 1 else None


RULES: dict[str, Rule] = {
    "add": _sum,
    "mul": _product,
    "pow": _power,
    "exp": _exp,
    "log": _log,
    "where": _where,
    **dict.fromkeys(("eq", "ne", "lt", "le"), _comparison),
}


def _kept(made: Class, anchor: str) -> tuple[Step, ...]:
    """The update at an anchor that does not move: no maximum, and factors of 1."""
    fixed = _fixed(made.walk.update, anchor)
    kept = (_kept_step(step, anchor, fixed) for step in made.walk.update)
    return tuple(step for step in kept if step is not None)


def _fixed(update: Sequence[Step], anchor: str) -> dict[Node, Node]:
    """What states are where the anchor does not move: the new anchor the old one, differences of the two 0."""
    states = [n for s in update for n in walk(*nodes_of(s)) if n.op == "state"]
    old = [n for n in states if n.attr.name == anchor]
    fixed = {n: old[0] for n in states if n.attr.name == f"{anchor}_new"}
    for step in update:
        if isinstance(step, Let) and step.name != "n_new" and is_const(_at_rest(step.node, fixed), 0):
            fixed |= {n: ZERO for n in states if n.attr.name == step.name}
    return fixed


def _kept_step(step: Step, anchor: str, fixed: dict[Node, Node]) -> Step | None:
    """A step of the update as it is there; None if nothing of it is left."""
    if isinstance(step, Loop):
        folds = [f for f in step.folds if f.names[0] != f"{anchor}_b"]
        kept = [replace(f, bodies=tuple(substitute(b, fixed, raw=True) for b in f.bodies)) for f in folds]
        return Loop(tuple(kept)) if kept else None
    if isinstance(step, Join):
        if step.names[0] == f"{anchor}_new":
            return None
        a, b = (tuple(substitute(n, fixed) for n in side) for side in (step.a, step.b))
        return replace(step, a=a, b=b)
    if isinstance(step, Let) and not is_const(_at_rest(step.node, fixed), 0):
        return Let(step.name, substitute(step.node, fixed))
    return None


def _at_rest(node: Node, fixed: dict[Node, Node]) -> Node:
    """A node where the anchor did not move: ``where(a == a, 0, …)`` is 0."""
    found = substitute(node, fixed, raw=True)
    if found.op == "where" and found.args[0].op == "eq" and found.args[0].args[0] is found.args[0].args[1]:
        return found.args[1]
    return found


def nodes_of(step: Step) -> Sequence[Node]:
    """What a step evaluates."""
    if isinstance(step, Loop):
        return [b for f in step.folds for b in f.bodies]
    return [*step.a, *step.b] if isinstance(step, Join) else [step.node]
