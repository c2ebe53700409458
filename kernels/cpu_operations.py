"""Operations of a program on the CPU, counted: what decides whether a spec runs as one kernel or in parts.

A count is no time. It says how often something is computed: a sum inside an element as often as that element is, for
every row, every element of the stream and every term of the sums around it, whether or not it varies along them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING

from redalg.graph.contractions import above_reductions
from redalg.graph.node import Node
from redalg.kernels.cpu.plan import Kind
from redalg.kernels.cpu.schedule import is_dear
from redalg.kernels.cpu_programs import plan_cpu
from redalg.kernels.ir.layouts import View, steps_nodes
from redalg.kernels.ir.one_hot import one_hot_of
from redalg.kernels.ir.program import Loop, Pass, Program, result_key

if TYPE_CHECKING:
    from redalg.form import Form

ROW = 128  # operations that beginning and ending a row takes as long as: its addresses, its state, what is written
FUNCTION = 10  # exp and its like
GAP = 6  # a load of single elements, where neighbours of a loop do not lie side by side in memory
FREE = frozenset({"const", "special", "true", "false", "size", "index", "state"})


def operations_of(
    form: Form, kind: Kind, program: Program, sizes: Mapping[str, int], views: Mapping[str, View]
) -> float:
    """Operations of the kernel that is planned for a form, with operands like these and contiguous results.

    >>> import redalg as ra
    >>> from redalg.kernels.cpu_programs import cpu_program
    >>> form = ra.derive_incremental(ra.parse("return y = sum[k](sum[d](a[i,d]*b[k,d])*c[n,k])"), axis="k")
    >>> kind = Kind(tuple(dict.fromkeys("abc", "float32").items()))
    >>> sizes = dict(i=8, d=32, k=16, n=1)
    >>> views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors}
    >>> operations_of(form, kind, cpu_program(form, kind), sizes, views) > 2 * 8 * 32 * 16
    True
    """
    made = {result_key(r.name): View.contiguous(tuple(sizes[a] for a in r.axes)) for r in program.results}
    draft = plan_cpu(form, kind, program, sizes, {**views, **made})
    assert draft.program is not None
    return _Count(draft.program, sizes, {} if draft.turned else views).total()


class _Count:
    def __init__(self, program: Program, sizes: Mapping[str, int], views: Mapping[str, View]) -> None:
        self.program, self.views = program, views
        known = {**sizes, **program.lengths}
        self.sizes = {**known, **{inner: known[a] for inner, a in program.inner.items()}}
        self.reduced: dict[Node, float] = {}

    def total(self) -> float:
        program = self.program
        rows = self._size(program.rows)
        found = sum(self._of_pass(p) for p in program.passes) + self._walked(r.node for r in program.results)
        return rows * (ROW + found)

    def _of_pass(self, p: Pass) -> float:
        steps = p.update or p.lift  # two ways to take in a tile
        folds = [f for s in steps if isinstance(s, Loop) for f in s.folds]
        nodes = [*steps_nodes(steps), *(let.node for let in p.exports)]
        return self._walked(nodes) + sum(self._times(b) for f in folds for b in f.bodies)

    def _walked(self, roots: Iterable[Node]) -> float:
        """What is computed for a row, without what is reduced for an element counted term by term."""
        innermost = (*self.program.stream, *self.program.columns)[-1:]
        nodes = dict.fromkeys(n for root in roots for n in above_reductions(root))
        return sum(self._times(n) * self._each(n, innermost) for n in nodes)

    def _times(self, node: Node) -> float:
        """How often a row computes a node: for every element of the stream if it varies there, and so for columns."""
        stream = self._size(self.program.stream) if node.axes & {*self.program.stream} else 1
        return stream * self._size(a for a in self.program.columns if a in node.axes)

    def _each(self, node: Node, innermost: tuple[str, ...]) -> float:
        """What computing a node once takes, without its arguments; `innermost`: the axis of the loop around it."""
        if node.op in FREE:
            return 0
        if node.op == "tensor":
            return GAP if self._has_gaps(node, innermost) else 0
        if node.op == "reduce" and one_hot_of(node) is None:
            return self._terms(node)
        return FUNCTION if is_dear(node) else 1

    def _terms(self, node: Node) -> float:
        """What a sum inside an element takes: all of its terms."""
        if node not in self.reduced:
            inside = above_reductions(node.args[0])
            self.reduced[node] = self._size(node.attr.axes) * (
                1 + sum(self._each(n, node.attr.axes[-1:]) for n in inside)
            )
        return self.reduced[node]

    def _has_gaps(self, leaf: Node, innermost: tuple[str, ...]) -> bool:
        if leaf.attr.name not in self.views:
            return False
        steps = dict(zip(leaf.attr.axes, self.views[leaf.attr.name].strides, strict=True))
        return any(steps.get(a, 0) not in (0, 1) for a in innermost)

    def _size(self, axes: Iterable[str]) -> int:
        return prod(self.sizes.get(a, 1) for a in axes)


__all__ = ["operations_of"]
