"""A spec as it is written: its stages along one axis, what each reads and needs, and how often the stream is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redalg.engine.normalise import choose_axis, normalise
from redalg.graph.node import Node, walk
from redalg.text.tables import Lines

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.language.spec import Spec


@dataclass(frozen=True)
class Step:
    """A stage or an output. `level`: the pass over the stream in which it is computed (0: without reading it)."""

    name: str
    node: Node
    reads: tuple[str, ...]  # tensors along the stream
    needs: tuple[str, ...]  # stages
    level: int


@dataclass(frozen=True)
class Written:
    """The cascade of a spec. Stages are named as `explain` and refusals name them."""

    axis: tuple[str, ...]
    stages: tuple[Step, ...]
    outputs: tuple[Step, ...]

    @property
    def passes(self) -> int:
        """Reads of the stream, run stage by stage: links of the longest chain."""
        return max((s.level for s in (*self.stages, *self.outputs)), default=0)

    @property
    def stream(self) -> str:
        return ",".join(self.axis)

    def lines(self, *more: Node) -> Lines:
        """Names for formulas: the stages', and new ones for what several formulas share."""
        known = {s.node: s.name for s in self.stages}
        leaves = {n.attr.name for s in (*self.stages, *self.outputs) for n in walk(s.node) if n.op == "tensor"}
        roots = [*(s.node for s in self.stages), *(o.node for o in self.outputs if o.node not in known), *more]
        return Lines(roots, leaves | {o.name for o in self.outputs}, known)


def written(spec: Spec, axis: object = None) -> Written:
    """The cascade along the axis (default: the one that the outermost reductions share).

    >>> import redalg as ra
    >>> w = written(ra.parse("m = max[j](x[j]); return y = sum[j](exp(x[j] - m))"))
    >>> [(s.name, s.needs, s.level) for s in w.stages], w.passes
    ([('stage1', (), 1), ('stage2', ('stage1',), 2)], 2)
    """
    outputs = list(spec.outputs.values())
    along = choose_axis(outputs, axis, set(spec.axes))
    nodes = [normalise(n, along) for n in outputs]
    stages = [n for n in walk(*nodes) if n.op == "reduce" and n.attr.axes == along] if along else []
    found: dict[Node, Step] = {}
    for number, node in enumerate(stages):
        found[node] = _step(f"stage{number + 1}", node, node.args, found, along, True)
    results = tuple(
        _step(name, n, (n,), found, along, not along or bool(n.axes & set(along)))
        for name, n in zip(spec.outputs, nodes, strict=True)
    )
    return Written(along, tuple(found.values()), results)


def written_form(form: Form) -> Written:
    return written(form.spec, form.plan.axis or None)


def _step(
    name: str, node: Node, roots: tuple[Node, ...], stages: dict[Node, Step], axis: tuple[str, ...], walks: bool
) -> Step:
    reads: dict[str, None] = {}
    needs: dict[str, int] = {}
    seen, stack = set(roots), list(reversed(roots))
    while stack:
        n = stack.pop()
        if n in stages:
            needs[stages[n].name] = stages[n].level
            continue
        if n.op == "tensor" and (n.axes & set(axis) or not axis):
            reads[n.attr.name] = None
        fresh = [a for a in n.args if a not in seen]
        seen.update(fresh)
        stack.extend(reversed(fresh))
    level = 1 + max(needs.values(), default=0) if walks else 0
    return Step(name, node, tuple(reads), tuple(sorted(needs)), level)
