"""Calls over other axes than their own, as products of matrices want them: a plan of such a call is one of the call as
it was, whose kernels see its arrays otherwise (`Reshaped.told`, `redalg.kernels.launch.planned.Seen`).

Axes that lie one behind the other in every array are one (coalesced dimensions): y[m,h,d] = Σ_c x[m,c]·w[h,d,c] is a
product of two matrices, whose columns have two names. `coalesced` finds runs of axes that stand side by side in every
tensor, result and reduction that has one of them, and whose strides make one axis of them.

A vector is a matrix of one row: one query in a softmax over keys, one token in a feed-forward layer. Where nothing
numbers rows, `of_one_row` gives what is multiplied an axis of length 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from redalg.errors import RedalgError
from redalg.graph.contractions import above_reductions, contracts
from redalg.graph.node import Node, extend, factors, fresh, tensor, walk
from redalg.kernels.ir.layouts import VECTOR_BYTES, View
from redalg.kernels.ir.program import result_key
from redalg.kernels.launch.planned import Map, Planned, Portion, Tile
from redalg.kernels.lower.draft import Call
from redalg.kernels.lower.partition import form_over
from redalg.language.spec import Spec

if TYPE_CHECKING:
    from redalg.form import Form

Axes = tuple[str, ...]
Runs = Mapping[Axes, str]  # axes, in order, and the name of the one that they are


@dataclass(frozen=True)
class Reshaped:
    """A call over other axes. `of`: the call as it was; `sizes`: the lengths of its axes."""

    of: Call
    call: Call
    sizes: Mapping[str, int]

    def told(self, made: Planned) -> Planned:
        """A plan of the call over other axes, as one of the call as it was."""
        spec, outputs = self.of.form.spec, self.of.form.spec.output_axes
        own = {t.name: t.axes for t in self.call.form.spec.tensors}
        arrays = {t.name: Portion(0, self.call.views[t.name]) for t in spec.tensors if own[t.name] != t.axes}
        written = [r for r in made.program.results if r.name in outputs and r.axes != outputs[r.name]]
        for r in written:
            given = self.call.results.get(r.name)
            arrays[result_key(r.name)] = Portion(0, given[1] if given else View.contiguous(made.shapes[r.name]))
        results = tuple(replace(r, axes=outputs[r.name]) if r in written else r for r in made.program.results)
        kernel, names = made.kernel, {r.name for r in written}
        seen = kernel.seen._replace(arrays={**arrays, **kernel.seen.arrays})
        return replace(
            made,
            program=replace(made.program, results=results),
            kernel=kernel._replace(seen=seen),
            sizes={**made.sizes, **self.sizes},
            before=tuple(map(self.told, made.before)),
            inside=tuple(map(self.told, made.inside)),
            maps=tuple(self._mapped(m, made) if m.operand in names and m.tile is Tile.RESULT else m for m in made.maps),
            results={n: view for n, view in made.results.items() if n not in names},
        )

    def _mapped(self, m: Map, made: Planned) -> Map:
        """A map of a result, whose axes in memory are those that the kernel sees."""
        written = next(r for r in made.program.results if r.name == m.operand)
        given = self.call.results.get(m.operand)
        view = given[1] if given else View.contiguous(made.shapes[m.operand])
        steps = dict(zip(written.axes, view.strides, strict=True))
        return replace(m, steps=tuple(steps[a] for a in m.axes))


def coalesced(call: Call, sizes: Mapping[str, int]) -> Reshaped | None:
    """The call over fewer axes, or None where no axes lie one behind the other everywhere."""
    spec = call.form.spec
    if any(t.dimensions or t.array for t in spec.tensors) or spec.empty:
        return None
    if not any(contracts(n) for n in walk(*spec.outputs.values())):
        return None
    taken = {t.name for t in spec.tensors} | {*spec.axes} | {*spec.outputs}
    runs = {run: fresh("_".join(run), taken) for run in _runs(call, sizes)}
    if not runs:
        return None
    lengths = {**sizes, **{name: prod(sizes[a] for a in run) for run, name in runs.items()}}
    short = _spec(spec, runs)
    views = {n: _view(t.axes, call.views[n], runs, lengths) for t in spec.tensors if (n := t.name) in call.views}
    results = {n: (kind, _view(spec.output_axes[n], view, runs, lengths)) for n, (kind, view) in call.results.items()}
    form = _derived(short, _joined(call.form.plan.axis, runs))
    if form is None:
        return None
    return Reshaped(call, replace(call, form=form, views=views, results=results, alike=False), sizes)


def _derived(spec: Spec, along: Axes) -> Form | None:
    """The form over other axes; None where there is none, as under an assumption that the call's own has."""
    with suppress(RedalgError):
        return form_over(spec, along)
    return None


def _runs(call: Call, sizes: Mapping[str, int]) -> Iterator[Axes]:
    """Runs of axes, none of which is part of another one."""
    spec = call.form.spec
    own = [t.axes for t in spec.tensors] + [*spec.output_axes.values()]
    own += [n.attr.axes for n in walk(*spec.outputs.values()) if n.op == "reduce"]
    pairs = {(a, b) for axes in own for a, b in zip(axes, axes[1:], strict=False)}
    asked = {a for n in walk(*spec.outputs.values()) for a in _asked(n)}
    lying = [(t.axes, call.views[t.name]) for t in spec.tensors if t.name in call.views]
    lying += [(spec.output_axes[n], view) for n, (_, view) in call.results.items()]
    after = {
        a: b for a, b in sorted(pairs) if not {a, b} & asked and _together(a, b, own) and _as_one(a, b, lying, sizes)
    }
    for first in (a for a in after if a not in after.values()):
        run = [first]
        while run[-1] in after:
            run.append(after[run[-1]])
        yield tuple(run)


def _asked(node: Node) -> Axes:
    """Axes that a node asks the length of, or numbers elements along."""
    if node.op not in ("size", "index"):
        return ()
    return (node.attr,) if isinstance(node.attr, str) else tuple(node.attr)


def _together(a: str, b: str, own: list[Axes]) -> bool:
    """Whether two axes stand side by side, in this order, wherever one of them stands."""
    return all((a, b) in zip(axes, axes[1:], strict=False) for axes in own if a in axes or b in axes)


def _as_one(a: str, b: str, lying: list[tuple[Axes, View]], sizes: Mapping[str, int]) -> bool:
    """Whether the strides of two axes make one of them."""
    for axes, view in lying:
        steps = dict(zip(axes, view.strides, strict=True))
        if a in steps and steps[a] != sizes[b] * steps[b]:
            return False
    return True


def _joined(axes: Axes, runs: Runs) -> Axes:
    """Axes with one in the place of every run."""
    firsts = {run[0]: name for run, name in runs.items()}
    others = {a for run in runs for a in run[1:]}
    return tuple(firsts.get(a, a) for a in axes if a not in others)


def _view(axes: Axes, view: View, runs: Runs, lengths: Mapping[str, int]) -> View:
    steps, lasts = dict(zip(axes, view.strides, strict=True)), {name: run[-1] for run, name in runs.items()}
    own = _joined(axes, runs)
    return replace(view, shape=tuple(lengths[a] for a in own), strides=tuple(steps[lasts.get(a, a)] for a in own))


def _spec(spec: Spec, runs: Runs) -> Spec:
    """The spec over fewer axes."""
    new: dict[Node, Node] = {}
    for node in walk(*spec.outputs.values()):
        if node.op == "tensor" and node.axes:
            new[node] = tensor(node.attr.name, _joined(node.attr.axes, runs), node.attr.domain)
        elif node.op == "reduce":
            args = tuple(new.get(a, a) for a in node.args)
            new[node] = Node("reduce", args, replace(node.attr, axes=_joined(node.attr.axes, runs)))
        elif node.args:
            extend([node], new, raw=True)
    order = {n: _joined(axes, runs) for n, axes in spec.output_axes.items()}
    return Spec.from_nodes({n: new.get(x, x) for n, x in spec.outputs.items()}, order=order)


# --- one row ---------------------------------------------------------------------------------------------------------


def of_one_row(call: Call, sizes: Mapping[str, int]) -> Reshaped | None:
    """The call with an axis of length 1 for vectors that are multiplied by matrices; None where there are none, or no
    other reduction reads the product."""
    spec = call.form.spec
    vectors = _vectors_of(spec)
    if not vectors:
        return None
    row = fresh("row", {t.name for t in spec.tensors} | {*spec.axes} | {*spec.outputs})
    made = _of_rows(spec, vectors, row)
    order = made.output_axes
    views = {n: _rowed_view(view) if n in vectors else view for n, view in call.views.items()}
    results = {n: (kind, _rowed_view(view) if row in order[n] else view) for n, (kind, view) in call.results.items()}
    form = _derived(made, call.form.plan.axis)
    if form is None:
        return None
    return Reshaped(call, replace(call, form=form, views=views, results=results, alike=False), sizes)


def _of_rows(spec: Spec, vectors: Collection[str], row: str) -> Spec:
    """The spec whose vectors have this axis, too."""
    new: dict[Node, Node] = {}
    for node in walk(*spec.outputs.values()):
        if node.op == "tensor" and node.attr.name in vectors:
            new[node] = tensor(node.attr.name, _rowed(node.attr.axes, row), node.attr.domain)
        elif node.args:
            extend([node], new, raw=True)
    outputs = {n: new.get(x, x) for n, x in spec.outputs.items()}
    order = {n: _rowed(axes, row) if row in outputs[n].axes else axes for n, axes in spec.output_axes.items()}
    return Spec.from_nodes(outputs, order=order)


def _vectors_of(spec: Spec) -> set[str]:
    """Names of vectors in products that a reduction along another axis reads."""
    if any(t.dimensions or t.array for t in spec.tensors) or spec.empty:
        return set()
    folds = [n for n in walk(*spec.outputs.values()) if n.op == "reduce"]
    if not any(m.op == "reduce" and m.attr.axes != n.attr.axes for n in folds for m in walk(*n.args)):
        return set()
    return {leaf.attr.name for n in folds for leaf in _vectors(n)}


def _vectors(fold: Node) -> Iterator[Node]:
    """Tensors in factors of a sum's elements beside one that has their axes and more; of no product of matrices."""
    if fold.attr.kind not in ("sum", "mean") or contracts(fold):
        return
    every = [f for f in factors(fold) if f.axes.issuperset(fold.attr.axes)]
    for f in every:
        if any(f.axes < other.axes for other in every):
            yield from (n for n in above_reductions(f) if n.op == "tensor" and n.axes)


def _rowed(axes: Axes, row: str) -> Axes:
    return (*axes[:-1], row, *axes[-1:])


def _rowed_view(view: View) -> View:
    """With an axis of length 1 before the last one, whose stride, which no address has in it, is a multiple of 16 bytes
    for tensor maps."""
    shape, strides = (*view.shape[:-1], 1, *view.shape[-1:]), view.strides
    step = -(-(view.shape[-1] * max(strides[-1], 1) if strides else 1) // VECTOR_BYTES) * VECTOR_BYTES
    return replace(view, shape=shape, strides=(*strides[:-1], step, *strides[-1:]))


__all__ = ["Reshaped", "coalesced", "of_one_row"]
