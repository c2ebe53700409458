"""Axes of contractions inside an element, under names of their own wherever a row or another contraction has the name.

``Σ_j x[j,a]·(Σ_a x[j,a]·w[a])`` gives a row for every a, and adds up all a for every element. In a kernel an axis is an
index, and the two are different ones: the inner sum is renamed to one over ``a_inner``, which is as long as a.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from redalg.errors import RedalgError
from redalg.graph.formula import spelled_out
from redalg.graph.functions import COMPUTED
from redalg.graph.node import Node, Reduce, leaves, rename_axes, walk
from redalg.kernels.ir.program import First, Join, Let, Loop, Pass, Program, Step


def unknown_inside(node: Node) -> RedalgError:
    """Why a reduction of every element is refused."""
    return RedalgError(
        f"a {node.attr.kind.partition('_')[0]} inside an element",
        f"a kernel that reduces over {', '.join(node.attr.axes)} for every element",
        "kernels hold sums, products, extrema and their positions, any and all there",
        'form.compile("numpy")',
    )


def apart(program: Program) -> Program:
    """An equal program in which no contraction is over an axis that has an index of its own where it stands.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> x, w = ra.tensors("x[j,a] w[a]")
    >>> form = ra.derive_incremental(ra.Spec(s=ra.sum(x * ra.sum(x * w, "a"), "j")), axis="j")
    >>> lower(form, {"x": "float32", "w": "float32"}).inner
    {'a_inner': 'a'}
    """
    if not any(n.op == "reduce" for n in walk(*_nodes(program))):
        return program
    renaming = _Renaming(program)
    return replace(_rewritten(program, renaming), inner=renaming.inner)


def spelled(program: Program) -> Program:
    """An equal program without the functions that are computed by a formula of others (`redalg.graph.functions`)."""
    return _rewritten(program, spelled_out) if any(n.op in COMPUTED for n in walk(*_nodes(program))) else program


def of_state(node: Node) -> bool:
    """Whether a reduction is over what a row's state holds, columns or the entries of a list: one for the whole row."""
    axes = {*node.attr.axes}
    return any(axes & leaf.axes for arg in node.args for leaf in leaves(arg, "state"))


class _Renaming:
    def __init__(self, program: Program) -> None:
        self.indices = frozenset({*program.rows, *program.stream, *program.columns, *program.lengths})
        self.taken = self.indices | {a for o in program.operands for a in o.axes}
        self.inner: dict[str, str] = {}
        self.made: dict[tuple[Node, frozenset[str]], Node] = {}

    def __call__(self, node: Node, around: frozenset[str] = frozenset()) -> Node:
        """`around`: axes of the contractions the node stands in."""
        if not node.args:
            return node
        key = node, around
        if key not in self.made:
            self.made[key] = self._renamed(node, around)
        return self.made[key]

    def _renamed(self, node: Node, around: frozenset[str]) -> Node:
        args, attr = node.args, node.attr
        if node.op == "reduce":
            if not of_state(node):
                names = {a: self._fresh(a, around) for a in attr.axes if a in self.indices or a in around}
                args = tuple(rename_axes(a, names) for a in args) if names else args
                attr = Reduce(attr.kind, tuple(names.get(a, a) for a in attr.axes), attr.extra)
            around = around | {*attr.axes}
        args = tuple(self(a, around) for a in args)
        return node if args == node.args and attr == node.attr else Node(node.op, args, attr)

    def _fresh(self, axis: str, around: frozenset[str]) -> str:
        base = self.inner.get(axis, axis)
        name = f"{base}_inner"
        while name in self.taken or name in around:
            name += "_"
        self.inner[name] = base
        return name


# --- nodes of a program ----------------------------------------------------------------------------------------------


def _nodes(program: Program) -> Iterator[Node]:
    for p in program.passes:
        yield from (let.node for let in p.exports)
        for step in (*p.lift, *p.combine, *p.update):
            if isinstance(step, Loop):
                yield from (body for fold in step.folds for body in fold.bodies)
            else:
                yield from (*step.a, *step.b) if isinstance(step, Join) else (step.node,)
    for r in program.results:
        yield from (r.node,) if r.masked is None else (r.node, r.masked)


def _rewritten(program: Program, read: Callable[[Node], Node]) -> Program:
    results = tuple(
        replace(r, node=read(r.node), masked=None if r.masked is None else read(r.masked)) for r in program.results
    )
    return replace(program, passes=tuple(_pass(p, read) for p in program.passes), results=results)


def _pass(p: Pass, read: Callable[[Node], Node]) -> Pass:
    lift, combine, update = (tuple(_step(s, read) for s in steps) for steps in (p.lift, p.combine, p.update))
    exports = tuple(Let(let.name, read(let.node)) for let in p.exports)
    return replace(p, lift=lift, combine=combine, update=update, exports=exports)


def _step(step: Step, read: Callable[[Node], Node]) -> Step:
    if isinstance(step, Let | First):
        return replace(step, node=read(step.node))
    if isinstance(step, Join):
        return replace(step, a=tuple(map(read, step.a)), b=tuple(map(read, step.b)))
    return Loop(tuple(replace(f, bodies=tuple(map(read, f.bodies))) for f in step.folds))
