"""The steps of a pass as statements: values per row, walks over the tile, joins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from redalg.graph import state
from redalg.kernels.cuda_text import better, joined
from redalg.kernels.ir import First, Join, Let, Loop, Step
from redalg.kernels.scalars import Scalars, strength
from redalg.naming import local

if TYPE_CHECKING:
    from redalg.kernels.emit_cuda import Kernel


class StepPrinter:
    """Prints steps into the kernel's text, with the values known in `scope`."""

    def __init__(self, kernel: Kernel, scope: Scalars) -> None:
        self.kernel, self.scope = kernel, scope

    def steps(self, steps: Iterable[Step], whole: bool = False) -> None:
        """`whole`: the tile is the row, so that what a walk found is reduced over all threads of the row."""
        steps = list(steps)
        self.scope.announce([s.node for s in steps if isinstance(s, Let)])
        for step in steps:
            if isinstance(step, Let):
                self.scope.assign(local(step.name), step.node, self.kernel.kinds.names[step.name])
            elif isinstance(step, First):
                self._first(step)
            elif isinstance(step, Join):
                self.join(step)
            else:
                self._walk(step, whole)
        self.kernel.flush(self.scope)

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
        usable = f"is_finite_{kernel.real}({name})"
        usable += f" and {name} != 0" if step.nonzero else ""
        self.scope.lines.append(f"{name} = {name} if {usable} else {kernel.real}({step.neutral})")

    # --- joins -------------------------------------------------------------------------------------------------------

    def join(self, step: Join) -> None:
        """Names := a ⊕ b."""
        kinds, scope, real = self.kernel.kinds.names, self.scope, self.kernel.real
        names = [local(name) for name in step.names]
        number = kinds[step.names[0]]
        scope.announce([*step.a, *step.b])
        if step.kind == "topk":
            self._merge_lists(step, number)
        elif step.kind == "keytop":
            insert, k = self.kernel.folding.key_insertion(step.extra[0]), step.extra[0]
            a, b = (local(side[0].attr.name) for side in (step.a, step.b))
            scope.lines += [f"for i in range({k}):", f"    {insert}({a}, {b}[i])"]
        elif step.kind == "keymax":
            scope.lines.append(f"{names[0]} = max({scope.text(step.a[0])}, {scope.text(step.b[0])})")
        elif step.kind == "monoid":
            combined = step.extra.combine_nodes(step.a, step.b)
            scope.announce(combined)
            for name, node in zip(names, combined, strict=True):
                scope.lines.append(f"{name} = {scope.converted(node, kinds[step.names[names.index(name)]])}")
        elif step.kind in ("argmax", "argmin"):
            mine, other = ([scope.atom(n) for n in side] for side in (step.a, step.b))
            test = better(step.kind, number, mine[0], other[0], mine[1], other[1])
            wins = scope.fresh()
            scope.lines.append(f"{wins} = {test}")
            scope.lines += [f"{n} = {y} if {wins} else {x}" for n, x, y in zip(names, mine, other, strict=True)]
        elif step.kind == "average":
            self._average(names[0], scope.atom(step.a[0], "f"), scope.atom(step.b[0], "f"))
        else:
            level = strength(step.kind)
            a_text, b_text = (scope.converted(side[0], number, level) for side in (step.a, step.b))
            if step.ignore_nan:
                a_text, b_text = scope.atom(step.a[0], number), scope.atom(step.b[0], number)
                relation = ">" if step.kind == "max" else "<"
                scope.lines.append(f"{names[0]} = {b_text} if {b_text} {relation} {a_text} else {a_text}")
            else:
                scope.lines.append(f"{names[0]} = {joined(step.kind, number, real, a_text, b_text)}")

    def _average(self, name: str, a: str, b: str) -> None:
        """a + (b - a)·w; where that is not finite the weighted sum, in which infinities stay what they are."""
        real, lines = self.kernel.real, self.scope.lines
        share = state("share of b")
        if share not in self.scope.known:
            self.scope.known[share] = "share_b"
            lines.append(f"share_b = {real}(n_b) / {real}(n_new)")
        lines.append(f"{name} = {a} + ({b} - {a}) * share_b")
        weighted = f"{a} * ({real}(1) - share_b) + {b} * share_b"
        lines.append(f"{name} = {name} if is_finite_{real}({name}) else {weighted}")

    def _merge_lists(self, step: Join, number: str) -> None:
        """Put b's list into a's, in place; names other than a's part are the same list."""
        k = step.extra[0]
        insert = self.kernel.folding.insertion(k, number)
        a = [local(n.attr.name) for n in step.a]
        b = [local(n.attr.name) for n in step.b]
        self.scope.lines += [f"for i in range({k}):", f"    {insert}({a[0]}, {a[1]}, {b[0]}[i], {b[1]}[i])"]
