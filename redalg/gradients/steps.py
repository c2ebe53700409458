"""Specs over the same tensors in steps: sums along the innermost axes first, then what is small, then what is wide.

The gradient of group norm's weight is Σ_b r[b,g]·Σ_s e[b,g,c,s], and its gradient of x reads Σ_{c,s} w[g,c]·e[b,g,c,s],
which is Σ_c w[g,c]·Σ_s e. So the sums along s alone are computed in one reading, by rows as any form has them; what is
made of them (weights, numbers of a row) costs next to nothing; and the gradient of x is then written element by
element. `stepped` finds this by structure: inner sums of nested ones, or composite sums, along the last axes of a
tensor that has all axes of what is added. Specs with matrix products stay as they are. Every step is an ordinary spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from redalg.engine.normalise import axes_of
from redalg.form import Form
from redalg.gradients.sums import total
from redalg.gradients.unit_axes import removable, without
from redalg.graph import node as g
from redalg.graph.contractions import contracts
from redalg.graph.node import Node
from redalg.joint import Joint, Several, derived, united, units
from redalg.language.spec import Spec

Nodes = Mapping[str, Node]


@dataclass(frozen=True, eq=False)
class Steps(Several):
    """Specs in one call that can share sums along the innermost axes: ``steps.compile(target)(x=…)``.

    `apart`: the specs as they were. `ways`: each a sequence of specs with the same outputs, in which later ones read
    outputs of earlier ones as tensors. `joint`: the same in one reading of the rows, where there is such a thing. On
    CUDA the way that is predicted to be fastest is taken, the specs one after the other among them
    (`redalg.kernels.steps`); elsewhere these run one after the other.

    >>> import numpy as np, redalg as ra
    >>> norm = ra.parse("tensors x[b,c,s], w[c]; return y = w[c]*x[b,c,s]/sqrt(sum[s](x[b,c,s]**2) + 1)")
    >>> (steps,) = together(norm.vjp().only("xw"))
    >>> [list(spec.outputs) for spec in steps.ways[0]]
    [['grad_x', 'inner1'], ['grad_w']]
    >>> run = steps.compile("numpy")
    >>> made = run(x=np.ones((1, 2, 3)), w=np.ones(2), grad_y=np.ones((1, 2, 3)), sum1=np.full((1, 2), 3.0))
    >>> made["grad_w"].tolist()
    [1.5, 1.5]
    """

    ways: tuple[tuple[Spec, ...], ...]
    joint: Joint | None = None

    @cached_property
    def rows(self) -> Form:
        """The form of the specs that stands for all of them where one is asked for."""
        return self.forms[0]

    def stepwise(self, way: int) -> tuple[Form, ...]:
        """The forms of one way."""
        if way not in self._stepwise:
            self._stepwise[way] = tuple(map(derived, self.ways[way]))
        return self._stepwise[way]

    @cached_property
    def _stepwise(self) -> dict[int, tuple[Form, ...]]:
        return {}

    def narrowed(self, units: Iterable[str]) -> tuple[frozenset[str], Steps | Joint | None]:
        """Which of these axes of length 1 are left out, and the same without them; None where nothing is. Fewer axes
        are more ways: group norm with one channel in a group adds weights' gradients along its innermost axis alone."""
        found = removable(self.apart, units)
        if found not in self._narrowed:
            specs = [without(s, found) for s in self.apart] if found else []
            whole = [s for s in specs if s is not None]
            self._narrowed[found] = _one(whole) if whole and len(whole) == len(specs) else None
        return found, self._narrowed[found]

    @cached_property
    def _narrowed(self) -> dict[frozenset[str], Steps | Joint | None]:
        return {}

    def __repr__(self) -> str:
        return f"<{', '.join(self.spec.outputs)} in steps>"


def together(specs: Iterable[Spec]) -> list[Spec | Joint | Steps]:
    """The specs, those that share readings of their tensors as one `Joint` or `Steps`; the others as they are."""
    own = list(specs)
    if not _listed_together(own):
        return [*own]
    found = units(own)
    joints = [u for u in found if isinstance(u, Joint)]
    steps = stepped(own) if len(found) == len(joints) or not joints else None
    return [replace(steps, joint=next(iter(joints), None))] if steps is not None else [*found]


def _listed_together(specs: Sequence[Spec]) -> bool:
    """Whether specs as one list every tensor that one of them does: it may only say how long an axis is, which tensors
    that others read say, too."""
    outputs = {n: node for s in specs for n, node in s.outputs.items()}
    return len(specs) < 2 or {d for s in specs for d in s.tensors} <= {*united(specs, outputs).tensors}


def _one(specs: Sequence[Spec]) -> Steps | Joint | None:
    """Specs as one `Joint` or `Steps`, if only for outputs that stream alike; None where these are the specs."""
    found = together(specs)
    if len(found) == 1 and not isinstance(found[0], Spec):
        return found[0]
    try:
        alike = _Cut(specs, {n: node for s in specs for n, node in s.outputs.items()}, (), ()).grouped()
    except _NoLength:
        return None
    return Steps(tuple(specs), (alike,)) if len(alike) < len(specs) and not any(s.empty for s in specs) else None


def stepped(specs: Sequence[Spec]) -> Steps | None:
    """The specs in steps; None where there are no sums along innermost axes to begin with."""
    outputs = {n: node for s in specs for n, node in s.outputs.items()}
    if any(s.empty for s in specs) or any(contracts(n) for n in g.walk(*outputs.values())):
        return None
    found = next(_innermost(outputs.values()), None)
    if found is None:
        return None
    try:
        ways = _Cut(specs, outputs, *found).ways()
    except _NoLength:
        return None
    return Steps(tuple(specs), tuple(ways)) if ways else None


def _innermost(nodes: Iterable[Node]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Axes of a tensor, and the last of them, along which sums inside of other sums run."""
    sums = [n for n in g.walk(*nodes) if n.op == "reduce" and n.attr.kind == "sum"]
    flat = [(n, leaf.attr.axes) for n in sums if (leaf := _whole(n.args[0])) is not None]
    inside = {n for m in sums for n in g.walk(m.args[0])}
    for wanted in (lambda n, last: n in inside and len(last) == len(n.attr.axes), lambda n, last: 0 < len(last)):
        for n, axes in flat:
            last = _shared_end(axes, set(n.attr.axes))
            if wanted(n, last) and (n in inside or len(last) < len(n.attr.axes)):
                yield axes, last


def _shared_end(axes: tuple[str, ...], own: Set[str]) -> tuple[str, ...]:
    """The last axes, as far as they are among others."""
    first = next((k for k in range(len(axes)) if own >= {*axes[k:]}), len(axes))
    return axes[first:]


def _whole(element: Node) -> Node | None:
    """A tensor that has all axes of an element without reductions."""
    if any(n.op == "reduce" for n in g.walk(element)):
        return None
    return next((leaf for leaf in g.leaves(element) if set(leaf.attr.axes) == element.axes), None)


class _Cut:
    """Outputs over sums along the last axes of a tensor."""

    def __init__(self, specs: Sequence[Spec], outputs: Nodes, axes: tuple[str, ...], last: tuple[str, ...]) -> None:
        self.specs, self.outputs, self.axes, self.last = specs, outputs, axes, last
        self.order = {n: a for s in specs for n, a in s.output_axes.items()}
        self.taken = {d.name for s in specs for d in s.tensors} | {*outputs} | {a for s in specs for a in s.axes}
        self.names: dict[Node, str] = {}

    def ways(self) -> list[tuple[Spec, ...]]:
        """In the reading of wide outputs where these add along the last axes alone; else with wide outputs as they are,
        or over the same sums."""
        small = {n: node for n, node in self.outputs.items() if not self._wide(node)}
        wide = {n: node for n, node in self.outputs.items() if n not in small}
        firsts, rest = self._extracted(small, self._is_inner)
        if not (firsts and wide):
            return self._all_shared()
        if all(set(n.attr.axes) == set(self.last) for n in g.walk(*wide.values()) if n.op == "reduce"):
            return [(self._spec({**wide, **firsts}), *self._grouped(rest))]
        return [(self._spec(firsts), *self._grouped(rest), *self._grouped(wide)), *self._all_shared()]

    def _all_shared(self) -> list[tuple[Spec, ...]]:
        """Wide outputs, too, over sums along the last axes, and over what is summed of these; one way or none."""
        every = {n: self._nested(node) for n, node in self.outputs.items()}
        firsts, rest = self._extracted(every, self._is_inner)
        steps, last = [self._spec(firsts)] if firsts else [], list[Spec]()
        while steps:
            done = {n: node for n, node in rest.items() if not self._wide(node)}
            rest = {n: node for n, node in rest.items() if n not in done}
            last += self._grouped(done)  # nothing reads them: they run beside what is wide
            firsts, rest = self._extracted(rest, self._is_small)
            steps += self._grouped(firsts)
            if not firsts:
                break
        return [(*steps, *self._grouped(rest), *last)] if steps else []

    def _wide(self, node: Node) -> bool:
        return not node.axes.isdisjoint(self.last)

    def _nested(self, node: Node) -> Node:
        """Sums over the last axes and others as sums of sums along the last; factors that lack them stand outside."""
        last = set(self.last)
        done: dict[Node, Node] = {}
        for n in g.walk(node):
            new = g.rebuild(n, tuple(done[a] for a in n.args))
            if new.op == "reduce" and new.attr.kind == "sum" and last < set(new.attr.axes):
                outer = tuple(a for a in new.attr.axes if a not in last)
                new = g.reduction("sum", outer, total(new.args[0], self.last, distributed=True))
            done[n] = new
        return done[node]

    def _is_inner(self, n: Node) -> bool:
        return n.attr.kind == "sum" and set(n.attr.axes) == set(self.last) and set(self.axes) >= n.args[0].axes

    def _is_small(self, n: Node) -> bool:
        return n.attr.kind == "sum" and n.args[0].axes.isdisjoint(self.last)

    def _extracted(self, outputs: Nodes, wanted: Any) -> tuple[dict[str, Node], dict[str, Node]]:
        """Reductions of elements without reductions, by new names, and the outputs that read these as tensors."""
        flat = [n for n in g.walk(*outputs.values()) if n.op == "reduce" and wanted(n)]
        flat = [n for n in flat if not any(m.op == "reduce" for m in g.walk(n.args[0]))]
        leaves = {n: g.tensor(self._name(n), self._axes(n)) for n in flat}
        rest = {n: g.substitute(node, dict(leaves)) for n, node in outputs.items()}
        return {self.names[n]: n for n in flat}, rest

    def _axes(self, node: Node) -> tuple[str, ...]:
        return tuple(a for a in (*self.axes, *sorted(node.axes - {*self.axes})) if a in node.axes)

    def _name(self, node: Node) -> str:
        if node not in self.names:
            number = len(self.names) + 1
            while f"inner{number}" in self.taken:
                number += 1
            self.names[node] = f"inner{number}"
            self.taken.add(f"inner{number}")
        return self.names[node]

    def grouped(self) -> tuple[Spec, ...]:
        """Of all outputs, as they are."""
        return tuple(self._grouped(self.outputs))

    def _grouped(self, outputs: Nodes) -> list[Spec]:
        """Specs of outputs that stream alike and have the same axes."""
        groups: dict[Any, dict[str, Node]] = {}
        for n, node in outputs.items():
            known = {a for leaf in g.leaves(node) for a in leaf.attr.axes}
            groups.setdefault((tuple(axes_of([node], known)), frozenset(node.axes)), {})[n] = node
        return [self._spec(group) for group in groups.values()]

    def _spec(self, outputs: Nodes) -> Spec:
        """Raises: _NoLength, where a step reads the length of an axis that none of its tensors has."""
        if not _complete(outputs.values()):
            raise _NoLength
        return Spec.from_nodes(outputs, order={n: self.order.get(n, self._axes(node)) for n, node in outputs.items()})


class _NoLength(Exception):
    pass


def _complete(nodes: Iterable[Node]) -> bool:
    """Whether tensors that nodes read say how long every axis is that they reduce over, or ask the length of."""
    read = list(g.walk(*nodes))
    own = {a for n in read if n.op == "tensor" for a in n.attr.axes}
    own |= {n.attr.extra[1] for n in read if n.op == "reduce" and n.attr.kind.startswith("topk")}
    asked = {a for n in read if n.op in ("size", "index", "reduce") for a in _spelled(n.attr)}
    return asked <= own


def _spelled(asked: Any) -> tuple[str, ...]:
    return (asked,) if isinstance(asked, str) else tuple(getattr(asked, "axes", asked))


__all__ = ["Steps", "stepped", "together"]
