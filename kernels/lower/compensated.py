"""Sums of a program held as pairs, where ``compile(accuracy="compensated")`` asks for that.

Every sum of inexact numbers (folds over tiles, what moves them to other anchors, joins) becomes one of
`redalg.kernels.ir.compensated`; a term that is a sum, a difference or a product of two numbers, or of such, is added
with its own rounding error. What reads a sum reads s + low, rounded once, and s alone where that is not finite: an
infinite sum leaves no error but NaN. Factors of moving anchors (e^(A - A')) round as before, and so do averages of
tiles; a tile's own mean is its anchor and the mean of exact differences from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import reduce

from redalg.errors import RedalgError
from redalg.graph.masked import finite
from redalg.graph.node import ZERO, Node, is_const, leaves, mul, state, substitute, walk, where
from redalg.graph.operators import Sum
from redalg.kernels.ir.compensated import COMPENSATED, LOW, Pair, product_of, rounded, sum_of
from redalg.kernels.ir.kinds import Kinds, program_kinds
from redalg.kernels.ir.program import First, Fold, Join, Let, Loop, Part, Pass, Program, Result, Step

ENDS = ("_b", "_new", "_seen", "_first")


def compensated(program: Program) -> Program:
    """The program with sums of inexact numbers as pairs.

    Raises: RedalgError for sums that are arrays of a row's state, which kernels do not hold as pairs.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> program = lower(ra.derive_incremental(ra.parse("return y = sum[j](x[j])")), {"x": "float32"})
    >>> [part.name for part in compensated(program).passes[0].parts]
    ['sum_x', 'sum_x~low']
    """
    kinds, found = program_kinds(program), Pairs()
    passes = tuple(PassPairs(p, kinds, found).made() for p in program.passes)
    return replace(program, passes=passes, results=tuple(map(found.result, program.results)))


class Pairs:
    """Names that are pairs, and what reads them."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # a sum -> the name of its low part

    def result(self, r: Result) -> Result:
        return replace(r, node=self.read(r.node), masked=None if r.masked is None else self.read(r.masked))

    def read(self, node: Node) -> Node:
        """The node over the sums' values."""
        mapping = {leaf: self.value(leaf) for leaf in leaves(node, "state") if leaf.attr.name in self.names}
        return substitute(node, mapping, raw=True) if mapping else node

    def value(self, leaf: Node) -> Node:
        whole = rounded((leaf, self.low(leaf)))
        return where(finite(whole), whole, leaf)

    def low(self, leaf: Node) -> Node:
        return state(self.names[leaf.attr.name], leaf.attr.axes)

    def holds(self, node: Node) -> bool:
        return node.op == "state" and node.attr.name in self.names

    def pair(self, node: Node) -> Pair:
        """A node as a pair: what carries sums to other anchors is linear in them."""
        if self.holds(node):
            return node, self.low(node)
        if node.op == "add":
            total: Pair = (ZERO, ZERO)
            for term in node.args:
                total = sum_of(total, self.pair(term))
            return total
        if node.op == "where" and any(map(self.holds, _states(node))):
            then, other = (self.pair(n) for n in node.args[1:])
            condition = self.read(node.args[0])
            return where(condition, then[0], other[0]), where(condition, then[1], other[1])
        if node.op == "mul" and sum(map(self.holds, node.args)) == 1:
            held = next(n for n in node.args if self.holds(n))
            factor = self.read(mul(*(n for n in node.args if n is not held)))
            return product_of((factor, ZERO), (held, self.low(held)))
        return self.read(node), ZERO


class PassPairs:
    """One pass of a program."""

    def __init__(self, p: Pass, kinds: Kinds, pairs: Pairs) -> None:
        self.plan, self.kinds, self.pairs = p, kinds, pairs
        self.parts = {part.name for part in p.parts}

    def made(self) -> Pass:
        p, pairs = self.plan, self.pairs
        steps = (*p.lift, *p.combine, *p.update)
        guessed = {leaf.attr.name for s in steps if isinstance(s, Let) and s.guess for leaf in leaves(s.node, "state")}
        for step in steps:
            self._learn(step, guessed)
        for part in p.parts:
            if f"{part.name}_b" in pairs.names:
                pairs.names[part.name] = part.name + LOW
        lift, combine, update = (tuple(self._step(s) for s in steps) for steps in (p.lift, p.combine, p.update))
        exports = tuple(Let(let.name, pairs.read(let.node)) for let in p.exports)
        return replace(p, parts=tuple(self._parts()), lift=lift, combine=combine, update=update, exports=exports)

    def _parts(self) -> Iterable[Part]:
        for part in self.plan.parts:
            yield part
            if part.name in self.pairs.names:
                yield Part(part.name + LOW, "f", 0.0)

    def _learn(self, step: Step, guessed: Collection[str]) -> None:
        """`guessed`: sums that only make anchors, for which every number near is as good: those stay plain."""
        found = step.folds if isinstance(step, Loop) else (step,) if isinstance(step, Join) else ()
        for f in found:
            if isinstance(f.op, Sum) and self.kinds.names[f.names[0]] == "f" and f.names[0] not in guessed:
                if f.axes:
                    raise RedalgError(
                        f"accuracy='compensated' for the sums {f.names[0]!r} along {', '.join(f.axes)}",
                        "form.compile",
                        "a row's state holds an array of them, and kernels hold single sums as pairs",
                        "leave accuracy out: accumulators compensate such sums",
                    )
                self.pairs.names[f.names[0]] = self._low(f.names[0])

    def _low(self, name: str) -> str:
        """A part's own ending stays the last."""
        for end in ENDS:
            if name.removesuffix(end) in self.parts:
                return name.removesuffix(end) + LOW + (end if name.endswith(end) else "")
        return name + LOW

    def _step(self, step: Step) -> Step:
        pairs = self.pairs
        if isinstance(step, Let | First):
            return replace(step, node=pairs.read(step.node))
        if isinstance(step, Loop):
            return replace(step, folds=tuple(map(self._fold, step.folds)))
        if step.names[0] in pairs.names:
            names = (step.names[0], pairs.names[step.names[0]])
            return Join(names, COMPENSATED, pairs.pair(step.a[0]), pairs.pair(step.b[0]))
        return replace(step, a=tuple(map(pairs.read, step.a)), b=tuple(map(pairs.read, step.b)))

    def _fold(self, fold: Fold) -> Fold:
        bodies = tuple(map(self.pairs.read, fold.bodies))
        if fold.names[0] not in self.pairs.names:
            return replace(fold, bodies=bodies)
        return Fold((fold.names[0], self.pairs.names[fold.names[0]]), COMPENSATED, self._term(bodies[0]))

    def _term(self, body: Node) -> Pair:
        """A product of two numbers, a square, and sums of such and of numbers (what is held about an anchor is a
        difference), with what rounding leaves out."""
        if self.kinds.of(body) != "f":
            return body, ZERO
        if body.op == "mul" and len(body.args) == 2 and not any(map(is_const, body.args)):
            return product_of(*map(self._term, body.args))
        if body.op == "pow" and is_const(body.args[1]) and body.args[1].attr == 2:
            return product_of(*[self._term(body.args[0])] * 2)
        if body.op == "add":
            return reduce(sum_of, map(self._term, body.args))
        if body.op == "where":
            then, other = map(self._term, body.args[1:])
            if (then[1], other[1]) != (ZERO, ZERO):
                return where(body.args[0], then[0], other[0]), where(body.args[0], then[1], other[1])
        return body, ZERO


def _states(node: Node) -> list[Node]:
    return [n for n in walk(*node.args[1:]) if n.op == "state"]
