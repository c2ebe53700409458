"""Gradients of a head's gradients, in slabs of rows: products of a Hessian with what the gradients are weighed by.

With Z = H·Wᵀ, cotangents c of the values y(Z, o) and gradients dH = G·W, dW = Gᵀ·H and g of the other tensors o, where
G = ∂⟨c, y⟩/∂Z and g = ∂⟨c, y⟩/∂o: weighed by A, B and a, they are ⟨G, V⟩ + ⟨g, a⟩ with V = A·Wᵀ + H·Bᵀ. Its gradient
by Z and o is how G and g move along (V, a) (`Jvp` of the specs of the gradients: second derivatives commute), that by c
how y moves; and that by H is (∂/∂Z)·W + G·B, by W (∂/∂Z)ᵀ·H + Gᵀ·A.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from redalg.adapters.heads.parts import Placed, placed
from redalg.adapters.heads.slabs import Arrays, Slabs, matrix, multiplied
from redalg.gradients.calls import Jvp, Vjp
from redalg.language.spec import Spec

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


class Second:
    """What `Slabs.gradients` gives, differentiated: by the tensors, and by the cotangents of the values."""

    def __init__(self, slabs: Slabs) -> None:
        self.slabs, values = slabs, slabs.parts.values
        operands = [d.name for p in slabs.parts.products for d in (p.left, p.right)]
        self.vjp = Vjp(values, given=(), taken=operands)
        self.leaves = [p.leaf.name for p in slabs.parts.products]
        row = (slabs.parts.row,)
        self.slopes = [placed(s, row) for s in self.vjp.only(self.leaves)]
        self.moves = [self._along(s) for s in dict.fromkeys(self.vjp.specs.values())]
        self.changes = self._along(values)

    def _along(self, spec: Spec) -> tuple[Placed, dict[str, str]] | None:
        """How the results of a spec move, and which tensors are read as whose tangents; None where none moves."""
        names = [d.name for d in spec.tensors if d.name in self.vjp.wrt]
        made = Jvp(spec, names)
        return None if made.spec is None else (placed(made.spec, (self.slabs.parts.row,)), made.tangents)

    def __call__(self, arrays: Arrays, cotangents: Arrays, weights: Arrays) -> tuple[Arrays, Arrays]:
        """By tensor, and by output; `cotangents` are by output, `weights` of the gradients by tensor, all of floats."""
        slabs, row = self.slabs, self.slabs.parts.row
        sums = {n: _wide_zeros(arrays[n]) for n in weights}
        changes = {n: torch.zeros_like(c) for n, c in cotangents.items()}
        axes = {n: slabs.parts.values.output_axes[n] for n in cotangents}
        for start, stop in slabs.row_slabs(arrays, graded=True):
            cut = {n: c.narrow(axes[n].index(row), start, stop - start) for n, c in cotangents.items()}
            part, weight = (slabs.cut(x, row, start, stop) for x in (arrays, weights))
            read = part | slabs.products(part) | {self.vjp.cotangents[n]: c for n, c in cut.items()}
            read |= {name: slabs.length(arrays, a) for name, a in self.vjp.lengths.items()}
            along = weight | self._products(part, weight)
            for n, value in self._moved(self.changes, read, along, start, arrays).items():
                if n in cut:
                    target = changes[n].narrow(axes[n].index(row), start, stop - start)
                    target.copy_(_full(value, self._order(self.changes, f"tangent_{n}"), axes[n], target))
            self._add(sums, read, along, (part, weight), (start, stop), arrays)
        return {n: x.to(arrays[n].dtype) for n, x in sums.items()}, changes

    def tangents(self, arrays: Arrays, kept: Arrays, moving: Arrays) -> Arrays:
        """Of the values, by output, along those of some tensors."""
        slabs, row = self.slabs, self.slabs.parts.row
        axes = {n: slabs.parts.values.output_axes[n] for n in self.vjp.cotangents}
        found = {n: torch.zeros_like(kept[n]) for n in axes}
        for start, stop in slabs.row_slabs(arrays) if self.changes is not None else ():
            part, weight = (slabs.cut(x, row, start, stop) for x in (arrays, moving))
            read, along = part | slabs.products(part), weight | self._products(part, weight)
            for n, value in self._moved(self.changes, read, along, start, arrays).items():
                target = found[n].narrow(axes[n].index(row), start, stop - start)
                target.copy_(_full(value, self._order(self.changes, f"tangent_{n}"), axes[n], target))
        return found

    def _products(self, part: Arrays, weight: Arrays) -> Arrays:
        """V of every product of which an operand has a weight."""
        found = {}
        for p in self.slabs.parts.products:
            left, right = self.slabs.matrices(p, part)
            a, b = (matrix(weight[d.name], d, p.inner) if d.name in weight else None for d in (p.left, p.right))
            factors = [(x, y) for x, y in ((a, right), (left, b)) if x is not None and y is not None]
            out = left.new_empty((left.shape[0], right.shape[0]), dtype=self.slabs.product_dtype(left.dtype))
            for number, (x, y) in enumerate(factors):
                found[p.leaf.name] = multiplied(out, x, y.mT, added=number > 0)
        return found

    def _moved(
        self, move: tuple[Placed, dict[str, str]] | None, read: Arrays, along: Arrays, start: int, whole: Arrays
    ) -> Arrays:
        """The tangents of a spec, by what they are of."""
        if move is None:
            return {}
        spec, tangents = move
        held = {t: along[n] if n in along else torch.zeros_like(read[n]) for n, t in tangents.items()}
        found = self.slabs.run(spec, read | held, {self.slabs.parts.row: start}, whole)
        return {n.removeprefix("tangent_"): x for n, x in found.items()}

    def _add(
        self,
        sums: Arrays,
        read: Arrays,
        along: Arrays,
        parts: tuple[Arrays, Arrays],
        place: tuple[int, int],
        whole: Arrays,
    ) -> None:
        """What a slab adds: by the tensors that the values read, and by the operands of products."""
        slabs, (start, stop), (part, weight) = self.slabs, place, parts
        curved: Arrays = {}
        for move in self.moves:
            for name, value in self._moved(move, read, along, start, whole).items():
                of, order = name.removeprefix("grad_"), self._order(move, f"tangent_{name}")
                if of in self.leaves:
                    curved[of] = _full(value, order, (slabs.parts.row, slabs.parts.column), read[of])
                elif of in sums:
                    like = part[of]
                    self._part(sums, of, start, stop).add_(_full(value, order, slabs.decls[of].axes, like))
        slopes: Arrays = {}
        for spec in self.slopes:
            for name, value in slabs.run(spec, read, {slabs.parts.row: start}, whole).items():
                of = name.removeprefix("grad_")
                axes = (slabs.parts.row, slabs.parts.column)
                slopes[of] = _full(value, spec.spec.output_axes[name], axes, read[of])
        for p in slabs.parts.products:
            left, right = slabs.matrices(p, part)
            a, b = (matrix(weight[d.name], d, p.inner) for d in (p.left, p.right))
            for slope, of_left, of_right in ((curved, right, left), (slopes, b, a)):
                if p.leaf.name in slope:
                    own = slope[p.leaf.name].to(left.dtype)
                    for d, x, y in ((p.left, own, of_left), (p.right, own.mT, of_right)):
                        multiplied(matrix(self._part(sums, d.name, start, stop), d, p.inner), x, y, added=True)

    def _part(self, sums: Arrays, name: str, start: int, stop: int) -> Any:
        return self.slabs.cut({name: sums[name]}, self.slabs.parts.row, start, stop)[name]

    @staticmethod
    def _order(move: tuple[Placed, Mapping[str, str]] | None, name: str) -> Sequence[str]:
        assert move is not None
        return move[0].spec.output_axes[name]


def _full(value: Any, axes: Sequence[str], wanted: Sequence[str], like: Any) -> Any:
    """A value along all axes wanted: the same all along those that it lacks."""
    for at, axis in enumerate(wanted):
        value = value if axis in axes else value.unsqueeze(at)
    return value.expand_as(like)


def _wide_zeros(like: Any) -> Any:
    return torch.zeros(like.shape, dtype=torch.promote_types(like.dtype, torch.float32), device=like.device)


__all__ = ["Second"]
