"""Heads with several axes of rows, or with axes that both operands share: as many plain heads, over views.

In ``Σ_d H[b,t,d]·W[v,d]`` rows are (b, t): tensors along them are read as if they had one axis of rows, and so is a
tensor along b alone, repeated. In ``Σ_d H[t,c,d]·W[c,v,d]`` (several codebooks, labels of several kinds) c is a batch:
a head for each c, one after the other. Outputs follow from the values of rows by an ordinary spec, along all axes.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from redalg.adapters.heads.operator import (
    LATER,
    NOW,
    TorchHead,
    check_known_slopes,
    received,
    result_dtypes,
    traced_call,
)
from redalg.adapters.heads.parts import (
    collect,
    contracts,
    head,
    moving_factors,
    over_leaves,
    reading,
    wide,
)
from redalg.adapters.heads.slabs import Arrays
from redalg.adapters.operands import Registered, own_tensors
from redalg.adapters.torch_graphs import is_traced
from redalg.adapters.torch_op import torch_op
from redalg.errors import RedalgError
from redalg.gradients.calls import derived
from redalg.graph import node as g
from redalg.graph.node import Node, fresh
from redalg.language.spec import Spec

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

TOTAL = "total"


@dataclass(frozen=True)
class Batched:
    """A spec taken apart: ``values`` is a plain head of one slice of the axes ``batch``, with ``rows`` as one axis.

    ``axes``: value -> its axes in the spec. ``row``: the axis of all rows in `values`. ``numbers``: positions and
    lengths that `values` reads as tensors, by what they are ("index" or "size", and of which axis). ``outer``: the
    outputs from the values, None where these are the outputs.
    """

    spec: Spec
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    row: str
    values: Spec
    axes: Mapping[str, tuple[str, ...]]
    numbers: Mapping[tuple[str, str], str]
    outer: Spec | None


def batched(spec: Spec) -> Batched | str:
    """The spec taken apart, or why it is no such head.

    >>> import redalg as ra
    >>> found = batched(ra.parse("return lse = logsumexp[v](sum[d](H[b,t,c,d]*W[c,v,d]))"))
    >>> found.batch, found.rows, found.row, dict(found.axes)
    (('c',), ('b', 't'), 'rows', {'lse': ('c', 'b', 't')})
    """
    folds = [n for n in g.walk(*spec.outputs.values()) if contracts(n)]
    if len({n.axes for n in folds}) != 1:
        return f"its products of two tensors have {len({n.axes for n in folds})} sets of axes"
    if spec.empty:
        return "an output says what it is where nothing is valid"
    reasons = []
    for column in (a for a in spec.axes if a in folds[0].axes):
        found = _Taken(spec, folds, column).apart()
        if isinstance(found, Batched):
            return found
        reasons.append(found)
    return "; ".join(dict.fromkeys(reasons))


class _Taken:
    """A spec on its way to a `Batched`, with one of the products' axes as that of columns."""

    def __init__(self, spec: Spec, folds: list[Node], column: str) -> None:
        self.spec, self.folds, self.column = spec, folds, column
        self.taken = {t.name for t in spec.tensors} | set(spec.outputs) | set(spec.axes)
        self.values: dict[Node, str] = {}

    def apart(self) -> Batched | str:
        operands = [f for fold in self.folds for f in moving_factors(fold)]
        with_column = [f for f in operands if self.column in f.axes]
        if len(with_column) != len(self.folds):
            return f"both operands of a product have {self.column}"
        common = [a for a in self.spec.axes if a in self.folds[0].axes and a != self.column]
        reads = reading(self.spec.outputs.values(), set(self.folds))
        for name, node in self.spec.outputs.items():
            why = collect(name, node, tuple(common), self.column, reads, self.values, self.taken)
            if why:
                return why
        every = set.intersection(*(set(f.axes) for f in operands if f not in with_column))
        rows = self._whole([a for a in common if a in every.difference(*(f.axes for f in with_column))])
        if not rows:
            return f"beside {self.column}, no axis is one of rows alone"
        return self._made([a for a in common if a not in rows], rows)

    def _whole(self, rows: list[str]) -> list[str]:
        """Without the axes of tensors along some rows and columns: repeated they would be as large as products."""
        for d in {x.attr for n in self.values for x in g.leaves(n)}:
            mine = set(d.axes) & set(rows)
            if self.column in d.axes and mine and mine < set(rows):
                rows = [a for a in rows if a not in mine]
        return rows

    def _made(self, batch: list[str], rows: list[str]) -> Batched:
        row = rows[0] if len(rows) == 1 else fresh("rows", self.taken)
        first, names = [*batch, *rows], {name: n for n, name in self.values.items()}
        along = {name: [a for a in self.spec.axes if a in n.axes and a not in first] for name, n in names.items()}
        axes = {name: (*first, *more) for name, more in along.items()}
        new, numbers = self._flattened(batch, rows, row)
        flat = {name: g.substitute(n, new, raw=True) for name, n in names.items()}
        order = {name: flat_axes(own, batch, rows, row) for name, own in axes.items()}
        values = over_leaves(flat, self.spec, order, wide(flat))
        return Batched(self.spec, tuple(batch), tuple(rows), row, values, axes, numbers, self._outer(axes))

    def _flattened(
        self, batch: list[str], rows: list[str], row: str
    ) -> tuple[dict[Node, Node], dict[tuple[str, str], str]]:
        """What stands in a slice for tensors, positions and lengths along axes that it lacks; the names of numbers."""
        gone = {*batch, *(rows if len(rows) > 1 else ())}
        numbers: dict[tuple[str, str], str] = {}
        new: dict[Node, Node] = {}
        for n in g.walk(*self.values):
            if n.op == "tensor" and not gone.isdisjoint(n.attr.axes):
                new[n] = g.tensor(n.attr.name, flat_axes(n.attr.axes, batch, rows, row), tuple(n.attr.domain))
            elif n.op in ("index", "size") and n.attr in gone:
                name = numbers[n.op, n.attr] = fresh(f"{n.op}_{n.attr}", self.taken)
                new[n] = g.tensor(name, (row,) if n.op == "index" and n.attr in rows else (), ("integer",))
        return new, numbers

    def _outer(self, axes: Mapping[str, tuple[str, ...]]) -> Spec | None:
        if self.values.keys() >= set(self.spec.outputs.values()):
            return None
        stand = {n: g.tensor(name, axes[name]) for n, name in self.values.items()}
        made = {n: g.substitute(x, stand, raw=True) for n, x in self.spec.outputs.items()}
        return over_leaves(made, self.spec, self.spec.output_axes)


def flat_axes(axes: tuple[str, ...], batch: list[str], rows: list[str], row: str) -> tuple[str, ...]:
    """The axes of a slice of a tensor: those of rows as one, the first, where there are several."""
    if len(rows) == 1:
        return tuple(a for a in axes if a not in batch)
    others = tuple(a for a in axes if a not in batch and a not in rows)
    return others if set(rows).isdisjoint(axes) else (row, *others)


class BatchedHead(Registered):
    """``op(H, W, …)`` or ``op(H=…, …)``: a `TorchHead` whose rows have several axes, or whose operands share some.

    With ``Z[c,r,v] = Σ_d H[r,c,d]·W[c,v,d]``: r stands for all axes of rows, along which one operand varies, c for
    axes of batches, which are all others but the columns v. Options, dtypes and gradients are those of `TorchHead`:
    each slice along c is a plain head, one after the other, over views of the tensors; tensors along some of the rows'
    axes are repeated along the others, and those along some of them and columns make these axes of batches.
    ``gradients="now"`` takes the gradients of the one output by its values first, and makes the products of each slice
    once, for values and gradients.

    Raises: RedalgError where `TorchHead` does, and for tensors that have different lengths along an axis.

    >>> op = ra.torch.head(ra.parse("return lse = logsumexp[v](sum[d](H[b,t,d]*W[v,d]))"))        # doctest: +SKIP
    >>> op(torch.zeros(2, 3, 5), torch.zeros(4, 5)).shape                                         # doctest: +SKIP
    torch.Size([2, 3])
    """

    def __init__(self, parts: Batched, name: str, gradients: str, logits: str | None, workspace: int | None) -> None:
        self.parts, self.name, self.tensors = parts, name, own_tensors(parts.spec)
        self._dtypes = result_dtypes(parts.spec, self.tensors)
        self._outer = None if parts.outer is None else torch_op(derived(parts.outer), f"{name}_outer")
        self._rows = TorchHead(head(parts.values), f"{name}_rows", LATER, logits, workspace)
        self._loss, self._slopes = None, dict.fromkeys(parts.values.outputs, "")
        if gradients == NOW:
            check_known_slopes(parts.spec, parts.outer, parts.values.outputs)
            self._loss = TorchHead(head(self._weighted()), f"{name}_loss", NOW, logits, workspace)

    def __call__(self, /, *given: Any, **named: Any) -> Any:
        if any(map(is_traced, (*given, *named.values()))):
            return traced_call(self.tensors, given, named, self.name, len(self.parts.spec.outputs))
        arrays, dtypes, _ = received(self.tensors, given, named, self.name, self._dtypes)
        sizes = self._sizes(arrays)
        wanted = torch.is_grad_enabled() and any(a.requires_grad for a in arrays.values())
        found = [self._at_once(arrays, sizes)] if self._loss is not None and wanted else self._later(arrays, sizes)
        pairs = zip(self.parts.spec.outputs, found, strict=True)
        results = [x.to(dtypes[n]) if x.is_floating_point() else x for n, x in pairs]
        return results[0] if len(results) == 1 else tuple(results)

    def __repr__(self) -> str:
        return f"<head {self.name} of {', '.join(self.parts.spec.outputs)}>"

    def _weighted(self) -> Spec:
        """Σ of the values times the output's gradients by them: linear in the values, as the output is."""
        values, terms = self.parts.values, []
        taken = {t.name for t in values.tensors} | {*values.outputs, TOTAL}
        for n, node in values.outputs.items():
            self._slopes[n] = fresh(f"slope_{n}", taken)
            slope = g.tensor(self._slopes[n], values.output_axes[n])
            terms.append(g.reduction("sum", values.output_axes[n], g.mul(slope, node)))
        return over_leaves({TOTAL: g.add(*terms)}, values, {TOTAL: ()}, wide([TOTAL]))

    # --- calls ---

    def _sizes(self, arrays: Arrays) -> dict[str, int]:
        found: dict[str, int] = {}
        for d in self.tensors:
            for a, n in zip(d.axes, arrays[d.name].shape, strict=True):
                if found.setdefault(a, n) != n:
                    what = f"{d.name} with {n} elements along {a}"
                    raise RedalgError(
                        what, self.name, f"{a} has {found[a]} in another tensor", "one length for an axis"
                    )
        return found

    def _later(self, arrays: Arrays, sizes: Mapping[str, int]) -> list[Any]:
        slices: dict[str, list[Any]] = {n: [] for n in self.parts.values.outputs}
        for at in self._slices(sizes):
            made = self._rows(**self._flat(arrays, sizes, at))
            for n, x in zip(slices, made if isinstance(made, tuple) else (made,), strict=True):
                slices[n].append(x)
        values = {n: self._whole(n, parts, arrays, sizes) for n, parts in slices.items()}
        if self._outer is not None:
            return self._outputs(arrays | values)
        own, axes = self.parts.spec.output_axes, self.parts.axes
        return [values[n].permute([axes[n].index(a) for a in own[n]]) for n in self.parts.spec.outputs]

    def _outputs(self, arrays: Arrays) -> list[Any]:
        assert self._outer is not None
        found = self._outer(*(arrays[d.name] for d in self._outer.tensors))
        return list(found) if isinstance(found, tuple) else [found]

    def _at_once(self, arrays: Arrays, sizes: Mapping[str, int]) -> Any:
        """The output: what it is without values, and its gradients by them times what they are."""
        assert self._loss is not None
        parts, like = self.parts, arrays[self._rows.parts.products[0].left.name]
        dtype = torch.promote_types(like.dtype, torch.float32)
        zeros = {
            n: torch.zeros([sizes[a] for a in axes], dtype=dtype, device=like.device, requires_grad=True)
            for n, axes in parts.axes.items()
        }
        with torch.enable_grad():
            (total,) = self._outputs(arrays | zeros)
            slopes = torch.autograd.grad(total, list(zeros.values()), create_graph=True, allow_unused=True)
        slope = dict(zip(zeros, slopes, strict=True))
        for at in self._slices(sizes):
            flat = self._flat(arrays, sizes, at)
            for n, own in self._slopes.items():
                x = torch.zeros_like(zeros[n]) if slope[n] is None else slope[n]
                flat[own] = self._as_rows(x, parts.axes[n], sizes, at)
            total = total + self._loss(**flat)
        return total

    # --- views ---

    def _slices(self, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
        for at in product(*(range(sizes[a]) for a in self.parts.batch)):
            yield dict(zip(self.parts.batch, at, strict=True))

    def _flat(self, arrays: Arrays, sizes: Mapping[str, int], at: Mapping[str, int]) -> Arrays:
        """What the plain head reads of one slice."""
        read = {d.name for d in self.parts.values.tensors}
        found = {d.name: self._as_rows(arrays[d.name], d.axes, sizes, at) for d in self.tensors if d.name in read}
        like = next(iter(arrays.values()))
        for (kind, a), name in self.parts.numbers.items():
            if kind == "index" and a in self.parts.rows:
                places = torch.arange(sizes[a], device=like.device)
                found[name] = self._as_rows(places, (a,), sizes, at)
            else:
                number = at[a] if kind == "index" else sizes[a]
                found[name] = torch.tensor(number, device=like.device)
        return found

    def _as_rows(self, array: Any, axes: tuple[str, ...], sizes: Mapping[str, int], at: Mapping[str, int]) -> Any:
        """A slice of a tensor, its rows as one axis; a view where the tensor has all of them in order."""
        rows, left = self.parts.rows, list(axes)
        for a, k in at.items():
            if a in left:
                array = array.select(left.index(a), k)
                left.remove(a)
        if len(rows) == 1 or set(rows).isdisjoint(left):
            return array
        others = [a for a in left if a not in rows]
        array = array.permute([left.index(a) for a in (*(a for a in rows if a in left), *others)])
        for k, a in enumerate(rows):
            array = array if a in left else array.unsqueeze(k)
        return array.expand([sizes[a] for a in (*rows, *others)]).flatten(0, len(rows) - 1)

    def _whole(self, name: str, slices: list[Any], arrays: Arrays, sizes: Mapping[str, int]) -> Any:
        """A value along all axes, from those of the slices."""
        parts, axes = self.parts, self.parts.axes[name]
        if not slices:
            return next(iter(arrays.values())).new_zeros([sizes[a] for a in axes], dtype=torch.float32)
        found = torch.stack(slices) if parts.batch else slices[0]
        return found.reshape([sizes[a] for a in axes])


__all__ = ["Batched", "BatchedHead", "batched"]
