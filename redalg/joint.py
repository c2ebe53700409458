"""Specs over the same tensors in one reading: outputs of rows, and sums over these rows of what is computed of them.

A norm's backward pass is one spec along its rows (the gradient of x) and one over all rows (those of weight and bias);
both read the same arrays. `units` finds such pairs by their structure: an output Y[j] that is a function of sums over
exactly the rows of another spec, Y[j] = f(Σ_i e[i,j], …). Then e is one more output of the rows' spec, in which it may
use every stage value of a row, and Y follows from sums over few groups of rows. Both are ordinary specs, and derived.
A sum over rows of sums along some of the row's own axes, Y[d] = f(Σ_i r[i]·Σ_c e[i,c,d]), is one of r·e over both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

from redalg import _hooks
from redalg.api import derive_incremental
from redalg.engine.normalise import axes_of
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.graph import node as g
from redalg.graph.node import Decl, Node
from redalg.language.spec import Spec, lengths_beside
from redalg.laws.laws import InternalError
from redalg.numeric.binding import by_output

PASSES = 8  # over the data, at most: a derivative may read stage values of stage values


@dataclass(frozen=True, eq=False)
class Several:
    """Specs in one call."""

    apart: tuple[Spec, ...]

    @cached_property
    def spec(self) -> Spec:
        """All outputs, over all tensors."""
        return united(self.apart, {n: node for s in self.apart for n, node in s.outputs.items()})

    @cached_property
    def forms(self) -> tuple[Form, ...]:
        """Of the specs apart."""
        return tuple(map(derived, self.apart))

    def compile(self, target: str | None = None, schedule: Any = None) -> Any:
        """One callable for all outputs, which gives a dict of them by name. `schedule`, on CUDA: of the rows of a
        `Joint`; with one ({} for the best) the specs are not compared with what they are one after the other.

        Raises: what `Form.compile` raises.
        """
        chosen = target or _hooks.best_target()
        return _hooks.cuda_joint(self, schedule) if chosen == "cuda" else Apart(self.forms, chosen)


@dataclass(frozen=True, eq=False)
class Joint(Several):
    """A spec of rows and specs of sums over these rows, in one call: ``joint.compile(target)(x=…)``.

    `apart`: the specs as they were, of the outputs that are joined here. `along`: the streamed axes of the rows.
    `rows_spec`: the outputs of rows, and the elements of sums by the names of `elements` (with the output each belongs
    to); `sums_spec`: the other outputs as functions of tensors of these names, whose first axis `parts` numbers the
    groups of rows that were added before. On CUDA one kernel writes both (`redalg.kernels.joint`) and a second one adds
    up the groups, where that is predicted to be faster; elsewhere the specs run one after the other.

    >>> import numpy as np, redalg as ra
    >>> norm = ra.parse("tensors x[i,j], w[j]; return y = w[j] * x[i,j] / sqrt(mean[j](x[i,j]**2) + 1)")
    >>> (joint,) = units(dict.fromkeys(norm.vjp().specs.values()))
    >>> joint.elements
    {'grad_w_sum1': 'grad_w'}
    >>> run = joint.compile("numpy")
    >>> made = run(x=np.ones((2, 2)), w=np.ones(2), grad_y=np.ones((2, 2)), mean1=np.ones(2))
    >>> [n for n in made], made["grad_w"].round(3).tolist()
    (['grad_x', 'grad_w'], [1.414, 1.414])
    """

    along: tuple[str, ...]
    rows_spec: Spec
    sums_spec: Spec
    elements: Mapping[str, str]
    parts: str

    @cached_property
    def rows(self) -> Form:
        return derive_incremental(self.rows_spec, self.along, max_passes=PASSES)

    @cached_property
    def sums(self) -> Form:
        found = axes_of(self.sums_spec.outputs.values(), {a for d in self.sums_spec.tensors for a in d.axes})
        return derive_incremental(self.sums_spec, found[0] if len(found) == 1 else self.parts)

    def __repr__(self) -> str:
        return f"<{', '.join(self.spec.outputs)} in one reading along {','.join(self.along)}>"


class Apart:
    """Forms over the same tensors, computed one after the other."""

    def __init__(self, forms: Sequence[Form], target: str) -> None:
        self.target = target
        self.runs = [form.compile(target) for form in forms]
        self._names = [[d.array or d.name for d in form.spec.tensors] for form in forms]

    def __call__(self, /, **arrays: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for run, names in zip(self.runs, self._names, strict=True):
            made = run(**{n: arrays[n] for n in names})
            found |= by_output(run.form.spec.outputs, made)
        return found

    def explain(self) -> str:
        return "\n".join(run.explain() for run in self.runs)


# --- which specs -----------------------------------------------------------------------------------------------------


def units(specs: Iterable[Spec]) -> list[Spec | Joint]:
    """The specs, those that can be computed in one reading of their rows as one `Joint`; the others as they are."""
    left = list(specs)
    _require_own_names(left)
    for rows in left:
        others = [s for s in left if s is not rows]
        joint = _joined(rows, others)
        if joint is not None:
            taken = {n for s in joint.apart for n in s.outputs}
            rest = [part_of(s, [n for n in s.outputs if n not in taken]) for s in others if set(s.outputs) - taken]
            return [joint, *rest]
    return list(left)


def _require_own_names(specs: Sequence[Spec]) -> None:
    """Raises: RedalgError for outputs of one name, of which a call would give one."""
    known: dict[str, int] = {}
    for number, spec in enumerate(specs, 1):
        for name in spec.outputs:
            first = known.setdefault(name, number)
            if first != number:
                why = f"spec {first} of the call has an output of this name, too, and results are told apart by name"
                raise RedalgError(
                    f"the output {name!r} of spec {number}", "specs in one call", why, "rename one of them"
                )


def _joined(spec: Spec, others: Sequence[Spec]) -> Joint | None:
    """The spec as one of rows, with what others add over exactly these rows; None where there is nothing."""
    whole = max(spec.output_axes.values(), key=len)
    streams = axes_of(spec.outputs.values(), {a for d in spec.tensors for a in d.axes})
    if len(streams) != 1 or not set(streams[0]) < set(whole):
        return None
    along = streams[0]
    cut = _Cut(tuple(a for a in whole if a not in along), along, (spec, *others))
    for s in others:
        for name in s.outputs:
            cut.take(s, name)
    if not cut.sums:
        return None
    apart = (spec, *(part_of(s, own) for s in others if (own := [n for n in s.outputs if n in cut.sums])))
    made = {**spec.outputs, **cut.elements}
    order = dict.fromkeys(cut.elements, (*cut.rows, *along))
    return Joint(apart, along, united(apart, made, order), cut.spec(apart), dict(cut.of), cut.parts)


class _Cut:
    """Outputs as functions of sums over rows, one after the other."""

    def __init__(self, rows: tuple[str, ...], along: tuple[str, ...], specs: Sequence[Spec]) -> None:
        self.rows, self.along = rows, along
        self.names = {n for s in specs for n in (*(d.name for d in s.tensors), *s.outputs)}
        axes = {a for s in specs for a in s.axes}
        self.parts = "part" if "part" not in axes else next(f"part{k}" for k in count() if f"part{k}" not in axes)
        self.elements: dict[str, Node] = {}
        self.of: dict[str, str] = {}  # element -> output
        self.sums: dict[str, Node] = {}  # output -> what it is of partial sums
        self.known: dict[Node, str] = {}

    def take(self, spec: Spec, name: str) -> None:
        """Cut one output, where it can be."""
        node = spec.outputs[name]
        sums = _outermost(node, set(self.rows), set(self.along))
        if not sums or name in spec.empty or not all(self._is_element(e) for e, _ in sums.values()):
            return
        leaves = {n: g.reduction("sum", (self.parts, *own), self._leaf(e, name)) for n, (e, own) in sums.items()}
        cut = g.substitute(node, leaves)
        if any(n.attr in self.rows for n in g.walk(cut) if n.op in ("size", "index")) or set(self.rows) & cut.axes:
            return
        self.sums[name] = cut
        for e, _ in sums.values():
            self.elements[self.known[e]] = e
            self.of.setdefault(self.known[e], name)

    def _is_element(self, node: Node) -> bool:
        """Whether a node is of every place of the rows, and reduces along all streamed axes or none."""
        inside = ({*n.attr.axes} & {*self.along} for n in g.walk(node) if n.op == "reduce")
        return node.axes == {*self.rows, *self.along} and all(own in (set(), {*self.along}) for own in inside)

    def _leaf(self, element: Node, output: str) -> Node:
        name = self.known.get(element)
        if name is None:
            number = sum(n.startswith(f"{output}_sum") for n in self.known.values()) + 1
            name = f"{output}_sum{number}"
            while name in self.names:
                name += "_"
            self.known[element] = name
            self.names.add(name)
        return g.tensor(name, (self.parts, *self.along))

    def spec(self, apart: Sequence[Spec]) -> Spec:
        """The outputs over partial sums."""
        order = {n: s.output_axes[n] for s in apart for n in s.output_axes if n in self.sums}
        return Spec.from_nodes(self.sums, order=order)


def _outermost(node: Node, rows: set[str], along: set[str]) -> dict[Node, tuple[Node, tuple[str, ...]]]:
    """The sums over the rows, and maybe some of their axes, that a node is a function of, each with its element and
    these axes; none where another reduction is outside them."""
    found: dict[Node, tuple[Node, tuple[str, ...]]] = {}
    stack, seen = [node], set[Node]()
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if n.op != "reduce":
            stack.extend(n.args)
            continue
        element, left = n, set(rows)
        while element.op == "reduce" and element.attr.kind == "sum" and left and left >= set(element.attr.axes):
            left -= set(element.attr.axes)
            element = element.args[0]
        if left:
            return {}
        found[n] = _inner(element, along)
    return found


def _inner(element: Node, along: set[str]) -> tuple[Node, tuple[str, ...]]:
    """An element that is a sum along some of the axes, or such a sum times what lacks them, as the element of one sum
    over both, and these axes."""
    factors = element.args if element.op == "mul" else (element,)
    sums = [f for f in factors if f.op == "reduce" and f.attr.kind == "sum" and along > set(f.attr.axes)]
    if len(sums) != 1 or any(f is not sums[0] and f.axes & {*sums[0].attr.axes} for f in factors):
        return element, ()
    (inner,) = sums
    return g.mul(*(inner.args[0] if f is inner else f for f in factors)), inner.attr.axes


def part_of(spec: Spec, names: Sequence[str]) -> Spec:
    """The spec with some of its outputs, and the tensors that these read."""
    if len(names) == len(spec.outputs):
        return spec
    return united([spec], {n: spec.outputs[n] for n in names})


def united(specs: Sequence[Spec], outputs: Mapping[str, Node], order: Mapping[str, Any] | None = None) -> Spec:
    """Outputs over the tensors of several specs, with what these say of them."""
    read = {leaf.attr for node in outputs.values() for leaf in g.leaves(node)}
    lengths = lengths_beside(outputs.values(), read)
    listed = (d for s in specs for d in s.tensors if d in read or lengths & {*d.axes})
    tensors: dict[Decl, None] = dict.fromkeys(listed)
    axes = {n: a for s in specs for n, a in s.output_axes.items() if n in outputs} | dict(order or {})
    empty = {n: x for s in specs for n, x in s.empty.items() if n in outputs}
    dtypes = {n: word for s in specs for n, word in s.dtypes.items() if n in outputs}
    return Spec.from_nodes(outputs, tensors=list(tensors), order=axes, empty=empty, dtypes=dtypes)


def derived(spec: Spec) -> Form:
    """The form over the first axis that there is one for, with as many passes as it takes.

    Sums over several axes at once may need reductions along some of them (both directions of a contrastive loss): these
    stream over one of the axes, and sum along the others afterwards.
    """
    candidates = axes_of(spec.outputs.values(), {a for d in spec.tensors for a in d.axes})
    alone = [(a,) for axes in candidates if len(axes) > 1 for a in axes]
    refusal: RedalgError | None = None
    for axis in dict.fromkeys((*candidates, *alone)) or (None,):
        try:
            return derive_incremental(spec, axis, max_passes=PASSES)
        except InternalError:
            raise
        except RedalgError as found:
            refusal = refusal or found
    assert refusal is not None
    raise refusal


__all__ = ["Apart", "Joint", "derived", "part_of", "united", "units"]
