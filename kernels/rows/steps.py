"""The steps of a pass as statements: values per row, walks over the tile, joins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, assert_never

from redalg.graph.node import state
from redalg.graph.operators import (
    Average,
    Custom,
    Extremum,
    NumberExtremum,
    Position,
    Product,
    Quantifier,
    Sum,
    TopK,
    UserMonoid,
)
from redalg.kernels.code.scalars import Scalars, strength
from redalg.kernels.code.text import better, joined
from redalg.kernels.ir.program import First, Join, KeyMax, KeyTop, Let, Loop, Step
from redalg.source.names import local

if TYPE_CHECKING:
    from redalg.kernels.ir.kinds import Kinds
    from redalg.kernels.rows.kernel import Kernel


class Printed(Protocol):
    """What steps of numbers ask of the kernel that they are printed into."""

    kinds: Kinds
    real: str

    def flush(self, scope: Scalars) -> None: ...


class Steps:
    """Prints steps with the values known in `scope`: of a row, joins of numbers. How its elements are walked, and
    where the first one is, is its kernel's."""

    def __init__(self, kernel: Printed, scope: Scalars) -> None:
        self.kernel, self.scope = kernel, scope

    def steps(self, steps: Iterable[Step], whole: bool = False) -> None:
        """`whole`: the tile is the row, so that what a walk found is reduced over all threads of the row."""
        steps = list(steps)
        self.scope.announce([s.node for s in steps if isinstance(s, Let)])
        for step in steps:
            if isinstance(step, Let):
                self._let(step)
            elif isinstance(step, First):
                self._first(step)
            elif isinstance(step, Join):
                self.join(step)
            else:
                self._walk(step, whole)
        self.kernel.flush(self.scope)

    def _let(self, step: Let) -> None:
        """A value of the row."""
        names = self.scope.names
        if step.guess and "/count" in names:
            self.scope.names = names | {"/count": "fast_rcp"}
        self.scope.assign(local(step.name), step.node, self.kernel.kinds.names[step.name])
        self.scope.names = names

    def _walk(self, loop: Loop, whole: bool) -> None:
        raise NotImplementedError

    def _first(self, step: First) -> None:
        raise NotImplementedError

    # --- joins -------------------------------------------------------------------------------------------------------

    def join(self, step: Join) -> None:
        """Names := a ⊕ b."""
        self.scope.announce([*step.a, *step.b])
        match step.op:
            case TopK() | KeyTop():
                self._lists(step, step.op)
            case KeyMax():
                self._largest_key(step)
            case Custom(monoid):
                self._monoid(step, monoid)
            case Position():
                self._extremum_and_place(step)
            case Average():
                self.average(local(step.names[0]), step)
            case Sum() | Product() | Extremum() | Quantifier():
                self._values(step)
            case _:
                assert_never(step.op)

    def _values(self, step: Join) -> None:
        """Numbers by an operation of two."""
        scope, name, number = self.scope, local(step.names[0]), self.kernel.kinds.names[step.names[0]]
        level = strength(step.kind)
        a, b = (scope.converted(side[0], number, level) for side in (step.a, step.b))
        if isinstance(step.op, NumberExtremum):
            a, b = scope.atom(step.a[0], number), scope.atom(step.b[0], number)
            scope.lines.append(f"{name} = {b} if {b} {step.op.relation} {a} else {a}")
        else:
            scope.lines.append(f"{name} = {joined(step.kind, number, self.kernel.real, a, b)}")

    def _lists(self, step: Join, op: TopK | KeyTop) -> None:
        raise NotImplementedError

    def _largest_key(self, step: Join) -> None:
        a, b = (self.scope.text(side[0]) for side in (step.a, step.b))
        self.scope.lines.append(f"{local(step.names[0])} = max({a}, {b})")

    def _monoid(self, step: Join, monoid: UserMonoid) -> None:
        scope, kinds = self.scope, self.kernel.kinds.names
        combined = monoid.combine_nodes(step.a, step.b)
        scope.announce(combined)
        for name, node in zip(step.names, combined, strict=True):
            scope.lines.append(f"{local(name)} = {scope.converted(node, kinds[name])}")

    def _extremum_and_place(self, step: Join) -> None:
        scope, number = self.scope, self.kernel.kinds.names[step.names[0]]
        mine, other = ([scope.atom(n) for n in side] for side in (step.a, step.b))
        test = better(step.kind, number, mine[0], other[0], mine[1], other[1])
        wins = scope.fresh()
        scope.lines.append(f"{wins} = {test}")
        names = [local(name) for name in step.names]
        scope.lines += [f"{n} = {y} if {wins} else {x}" for n, x, y in zip(names, mine, other, strict=True)]

    def average(self, name: str, step: Join) -> None:
        """a + (b - a)·w; where that is not finite the weighted sum, in which infinities stay what they are."""
        real, lines = self.kernel.real, self.scope.lines
        a, b = (self.scope.atom(side[0], "f") for side in (step.a, step.b))
        share = state("share of b")
        if share not in self.scope.known:
            self.scope.known[share] = "fraction_b"
            lines.append(f"fraction_b = {self.scope.by_count(f'{real}(n_b)', f'{real}(n_new)')}")
        lines.append(f"{name} = {a} + ({b} - {a}) * fraction_b")
        weighted = f"{a} * ({real}(1) - fraction_b) + {b} * fraction_b"
        lines.append(f"{name} = {name} if is_finite_{real}({name}) else {weighted}")


class StepPrinter(Steps):
    """Those of a kernel of rows: walks over its tiles, and sorted lists."""

    kernel: Kernel

    def __init__(self, kernel: Kernel, scope: Scalars) -> None:
        super().__init__(kernel, scope)

    def _walk(self, loop: Loop, whole: bool) -> None:
        self.kernel.flush(self.scope)
        self.kernel.folding.loop(loop, self.scope)
        if whole:
            self.kernel.group.reduce(loop, self.scope)

    def _first(self, step: First) -> None:
        kernel, name = self.kernel, local(step.name)
        scope = self.scope.child()
        scope.leaf = kernel.elements.first_leaf
        scope.known = {n: t for n, t in scope.known.items() if n.axes.isdisjoint(kernel.program.stream)}
        text = scope.converted(step.node, "f")
        self.scope.lines += [*scope.lines, f"{name} = {text}"]
        self.scope.lines.append(f"{name} = {name} if is_finite_{kernel.real}({name}) else {kernel.real}(0)")

    def _lists(self, step: Join, op: TopK | KeyTop) -> None:
        """Put b's list into a's, in place."""
        (self._sorted_lists if isinstance(op, TopK) else self._largest_keys)(step, op.k)

    def _largest_keys(self, step: Join, k: int) -> None:
        """Put b's list of keys into a's, in place."""
        insert = self.kernel.folding.key_insertion(k)
        a, b = (local(side[0].attr.name) for side in (step.a, step.b))
        self.scope.lines += [f"for i in range({k}):", f"    {insert}({a}, {b}[i])"]

    def _sorted_lists(self, step: Join, k: int) -> None:
        """Put b's list into a's, in place; names other than a's part are the same list."""
        number = self.kernel.kinds.names[step.names[0]]
        insert = self.kernel.folding.insertion(k, number)
        a = [local(n.attr.name) for n in step.a]
        b = [local(n.attr.name) for n in step.b]
        self.scope.lines += [f"for i in range({k}):", f"    {insert}({a[0]}, {a[1]}, {b[0]}[i], {b[1]}[i])"]
