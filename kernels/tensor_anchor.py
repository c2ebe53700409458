"""The optimistic anchor: a maximum that is taken of the first block alone, where results do not depend on it.

Where states are relative to an anchor A (sums of exp(u - A)), results are the same for every A in exact arithmetic if
moving A by δ, which multiplies the sums by e^(-δ), leaves them alone. `steps` proves that by degrees: every node of a
result is given (k, c), meaning that it becomes e^(-kδ)·x + c·δ, and a result must be given (0, 0). Then later blocks
need no maximum and nothing is rescaled. One test of the final sum shows that nothing was lost: sums of positive terms
only grow, so that a sum below 2^64 never overflowed (2^15 where weights are rounded to float16), and one of at least 1
was not lost to underflow either. Rows that fail the test are computed again with the anchor that moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from redalg.graph import ZERO, Node, is_const, substitute, walk
from redalg.kernels.ir import Join, Let, Loop, Step
from redalg.kernels.tensor_class import Class, Outside, weight_of

Degree = tuple[Fraction, Fraction]
NONE: Degree = (Fraction(0), Fraction(0))


def steps(made: Class) -> tuple[tuple[Step, ...], str]:
    """What folds a block at an anchor that stays, and the name of the sum whose final value is tested.

    Raises: Outside, where results depend on the anchor or nothing shows that a row was right.
    """
    p = made.walk
    anchor = anchor_of(made)
    tested = _tested(made)
    lets = {s.name: s.node for s in p.update if isinstance(s, Let)}
    degrees: dict[str, Degree] = {anchor: (Fraction(0), Fraction(1))}
    for step in p.update:
        if isinstance(step, Join) and step.names[0] != f"{anchor}_new":
            name = step.names[0].removesuffix("_new")
            factors = step.a[0].args if step.a[0].op == "mul" else (step.a[0],)
            rest = [x for x in factors if not (x.op == "state" and x.attr.name == name)]
            moved = {f"{anchor}_new": (Fraction(0), Fraction(1))}
            found = [_degree(_expanded(x, lets), moved) for x in rest]
            if any(d is None or d[1] for d in found):
                raise Outside(f"{name} does not move with the anchor by a factor")
            degrees[name] = (sum((d[0] for d in found if d is not None), Fraction(0)), Fraction(0))
    for let in p.exports:
        found_let = _degree(let.node, degrees)
        if found_let is None:
            raise Outside(f"{let.name} depends on the anchor in no simple way")
        degrees[let.name] = found_let
    for r in made.program.results:
        nodes = [r.node] if r.void is None else [r.node, r.void]
        if any(_degree(n, degrees) != NONE for n in nodes):
            raise Outside(f"{r.name} depends on the anchor")
    return _kept(made, anchor), tested


def anchor_of(made: Class) -> str:
    """The part that is a maximum."""
    found = [f.names[0].removesuffix("_b") for s in made.walk.update if isinstance(s, Loop) for f in s.folds
             if f.kind in ("max", "min")]  # fmt: skip
    if len(found) != 1:
        raise Outside("there is not one maximum for an anchor")
    return found[0]


def largest(made: Class) -> int:
    """The power of two below which a sum shows that nothing overflowed: weights are rounded to the values' type."""
    return 15 if made.values is not None and made.dtype == "float16" else 64


def _tested(made: Class) -> str:
    """The sum of exp(u - max u); every other sum must have terms that are no larger, but for the values."""
    folds = [f for s in made.walk.update if isinstance(s, Loop) for f in s.folds if f.kind == "sum"]
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
    mapping = {n: _expanded(_difference(lets[n.attr.name]), lets) for n in walk(node)
               if n.op == "state" and n.attr.name in lets}  # fmt: skip
    return substitute(node, dict(mapping), raw=True) if mapping else node


def _difference(node: Node) -> Node:
    """a - b of ``where(a == b, 0, a - b)``."""
    if node.op == "where" and node.args[0].op == "eq" and is_const(node.args[1], 0):
        return node.args[2]
    return node


def _degree(node: Node, known: Mapping[str, Degree]) -> Degree | None:
    """(k, c) if moving the anchor by δ makes the node e^(-kδ)·x + c·δ; None where these rules do not say."""
    if node.op == "state":
        return known.get(node.attr.name, NONE)
    if not node.args:
        return NONE
    args = [_degree(a, known) for a in node.args]
    if any(a is None for a in args):
        return None
    given = [a for a in args if a is not None]
    k, c = given[0]
    if node.op == "add":
        found = [d for a, d in zip(node.args, given, strict=True) if not is_const(a, 0)]
        if len({d[0] for d in found}) > 1 or found[0][0] and any(d[1] for d in found):
            return None
        return found[0][0], sum((d[1] for d in found), Fraction(0))
    if node.op == "mul":
        shifted = [a for a, d in zip(node.args, given, strict=True) if d[1]]
        if not shifted:
            return sum((d[0] for d in given), Fraction(0)), Fraction(0)
        others = [a for a in node.args if a is not shifted[0]]
        if len(shifted) > 1 or any(a.op != "const" for a in others):
            return None
        factor = Fraction(1)
        for a in others:
            factor *= a.attr
        return Fraction(0), factor * sum((d[1] for d in given), Fraction(0))
    if node.op == "pow" and node.args[1].op == "const" and not c:
        return k * node.args[1].attr, Fraction(0)
    if node.op == "exp" and not k:
        return -c, Fraction(0)
    if node.op == "log" and not c:
        return Fraction(0), -k
    if node.op == "where" and given[0] == NONE and given[1] == given[2]:
        return given[1]
    if node.op in ("eq", "ne", "lt", "le") and not any(d[1] for d in given):
        sides = [d[0] for a, d in zip(node.args, given, strict=True) if a is not ZERO]
        return NONE if len(set(sides)) <= 1 else None
    return NONE if all(d == NONE for d in given) else None


def _kept(made: Class, anchor: str) -> tuple[Step, ...]:
    """The update at an anchor that does not move: no maximum, and factors of 1."""
    p = made.walk
    new, old = f"{anchor}_new", anchor
    states = [n for s in p.update for n in walk(*nodes_of(s)) if n.op == "state"]
    fixed: dict[Node, Node] = {}
    for n in states:
        if n.attr.name == new:
            fixed[n] = next(x for x in states if x.attr.name == old)
    for step in p.update:
        if isinstance(step, Let) and step.name != "n_new" and is_const(_at_rest(step.node, fixed), 0):
            fixed |= {n: ZERO for n in states if n.attr.name == step.name}
    found: list[Step] = []
    for step in p.update:
        if isinstance(step, Loop):
            kept = tuple(f for f in step.folds if f.names[0] != f"{anchor}_b")
            bodies = [tuple(substitute(b, fixed, raw=True) for b in f.bodies) for f in kept]
            if kept:
                found.append(Loop(tuple(replace(f, bodies=b) for f, b in zip(kept, bodies, strict=True))))
        elif isinstance(step, Join):
            if step.names[0] != new:
                a, b = (tuple(substitute(n, fixed) for n in side) for side in (step.a, step.b))
                found.append(Join(step.names, step.kind, a, b, step.axes, step.extra, step.ignore_nan))
        elif isinstance(step, Let) and not is_const(_at_rest(step.node, fixed), 0):
            found.append(Let(step.name, substitute(step.node, fixed)))
    return tuple(found)


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
