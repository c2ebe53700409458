"""Calls that are a product of two matrices: by tiles of sums (`redalg.kernels.cpu.products.tiles`), not row by row.

`factors_of` says whether a spec is one: Σ_k of two tensors and numbers, with an axis of its own for rows and for
columns, and any that all three arrays have; or Σ_k of another function of two tensors, as distances are.
`multiplied` prepares its calls. Where a result is infinite or NaN, the
kernel of rows computes the call anew: it looks into rows that leave the range of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from redalg.graph.contractions import compares, contracts
from redalg.graph.node import Node, factors, leaves
from redalg.kernels.cpu.products.lost import LARGE
from redalg.kernels.cpu.products.terms import PRODUCT, Term, in_range, term_of
from redalg.kernels.cpu.products.tiles import Product, Shape, text_of, tile_for
from redalg.kernels.cpu.ready import WHERE, Ready
from redalg.kernels.cpu.walk import address_of, steps_of
from redalg.numeric.out import by_output, shared

if TYPE_CHECKING:
    from redalg.language.spec import Spec

Axes = tuple[str, ...]
LEAST, WORK = 8, 1 << 17  # rows, columns and terms; multiplications: of fewer, packing and calling take the time
FEW = 32  # rows, where panels are packed across lines of memory
FASTER = 4  # times the operations of a kernel of rows, in the same time
KINDS = (np.dtype("float32"), np.dtype("float64"))


class Factors(NamedTuple):
    """The tensors that are multiplied, the one along rows first, axes by their roles, a factor of all sums, and what is
    added up."""

    names: tuple[str, str]
    axes: tuple[Axes, Axes]
    terms: Axes
    batch: Axes
    rows: Axes
    columns: Axes
    factor: float
    term: Term


def factors_of(spec: Spec) -> Factors | None:
    """What a spec multiplies, if that is all it does.

    >>> import redalg as ra
    >>> found = factors_of(ra.parse("return y = sum[k](a[b,i,k]*w[b,k,j])/8"))
    >>> found.names, found.batch, found.rows, found.columns, found.factor
    (('a', 'w'), ('b',), ('i',), ('j',), 0.125)
    >>> str(factors_of(ra.parse("return y = sum[k](abs(a[i,k] - w[j,k]))")).term)
    'abs(sub(a, b))'
    >>> factors_of(ra.parse("return y = sum[k](a[i,k]*w[k])")) is None
    True
    """
    if len(spec.outputs) != 1 or spec.empty or any(t.dimensions for t in spec.tensors):
        return None
    ((name, node),) = spec.outputs.items()
    found = _multiplied(node)
    if found is None:
        return None
    fold, (left, right), factor = found
    order, terms = spec.output_axes[name], fold.attr.axes
    left, right = (left, right) if {*order[-1:]} <= right.axes else (right, left)
    term = PRODUCT if _is_product(fold) else term_of(fold.args[0], left, right)
    if term is None:
        return None
    batch, rows, columns = (
        tuple(a for a in order if a in own)
        for own in (left.axes & right.axes, left.axes - right.axes, right.axes - left.axes)
    )
    if not rows or not columns or {*order} | {*terms} != left.axes | right.axes:
        return None
    inner = tuple(a for a in left.attr.axes if a in terms)
    names = left.attr.name, right.attr.name
    return Factors(names, (left.attr.axes, right.attr.axes), inner, batch, rows, columns, factor, term)


def _multiplied(node: Node) -> tuple[Node, list[Node], float] | None:
    """A sum over two tensors that have all of its axes, these, and the numbers around it, and inside of a product."""
    parts = node.args if node.op == "mul" else (node,)
    folds = [p for p in parts if p.op == "reduce" and p.attr.kind == "sum"]
    tensors = _pair(folds[0]) if len(folds) == 1 else None
    if tensors is None:
        return None
    inside = [f for f in factors(folds[0]) if f.op != "tensor"] if _is_product(folds[0]) else []
    others = [*(p for p in parts if p is not folds[0]), *inside]
    if any(p.op != "const" for p in others):
        return None
    factor = prod(p.attr for p in others)
    return (folds[0], tensors, float(factor)) if in_range(factor) and abs(factor) < LARGE else None


def _pair(fold: Node) -> list[Node] | None:
    """The two tensors that a sum is over, if it is over such."""
    tensors = leaves(fold.args[0], "tensor")
    whole = all(len(t.attr.axes) == len(t.axes) and t.axes.issuperset(fold.attr.axes) for t in tensors)
    return tensors if len(tensors) == 2 and whole else None


def _is_product(fold: Node) -> bool:
    """Whether a sum is of products of two tensors and numbers."""
    inside = factors(fold)
    return sum(f.op == "tensor" for f in inside) == 2 and all(f.op in ("tensor", "const") for f in inside)


def is_over_pairs(node: Node) -> bool:
    """Whether a sum is a contraction, or one of another function of two tensors that tiles compute."""
    if contracts(node):
        return True
    tensors = _pair(node) if compares(node) else None
    return tensors is not None and term_of(node.args[0], *tensors) is not None


def shape_of(found: Factors, sizes: Mapping[str, int], strides: Sequence[Mapping[str, int]]) -> Shape | None:
    """The lengths and strides of a product, axes that lie one behind the other as one; `strides`: by axis, of the
    tensors and the result. None where axes do not lie so, or it is too small."""
    roles = []
    for axes, arrays in (
        (found.batch, strides),
        (found.rows, (strides[0], strides[2])),
        (found.columns, (strides[1], strides[2])),
        (found.terms, strides[:2]),
    ):
        role = _as_one(axes, sizes, arrays)
        if role is None:
            return None
        roles.append(role)
    (batches, by_batch), (rows, by_row), (columns, by_column), (terms, by_term) = roles
    few = FEW if by_term[1] == 1 else LEAST
    if min(columns, terms) < LEAST or rows < few or batches * rows * columns * terms < WORK:
        return None
    a, b = (by_batch[0], by_row[0], by_term[0]), (by_batch[1], by_column[0], by_term[1])
    return Shape(batches, rows, columns, terms, a, b, (by_batch[2], by_row[1], by_column[1]))


def _as_one(
    axes: Axes, sizes: Mapping[str, int], arrays: Sequence[Mapping[str, int]]
) -> tuple[int, tuple[int, ...]] | None:
    """The length of axes that are one, and its stride in every array."""
    long = [a for a in axes if sizes[a] != 1]
    for steps in arrays:
        if any(steps[x] != sizes[y] * steps[y] for x, y in zip(long, long[1:], strict=False)):
            return None
    return prod(sizes[a] for a in axes), tuple(steps[long[-1]] if long else 0 for steps in arrays)


@dataclass(frozen=True)
class Shown:
    """What is said of a product that ran: as `redalg.kernels.cpu.walk.Compiled` says it of a kernel."""

    program: Any
    schedule: str
    module: Any


class Text(NamedTuple):
    source: str


def multiplied(
    spec: Spec, whole: Ready, program: Any, held: Mapping[str, Any], dtypes: Mapping[str, Any]
) -> Multiplied | None:
    """Calls with arrays like these, if they are a product. `whole`: the same by a kernel of rows; `dtypes` are
    those of results."""
    found = factors_of(spec)
    if found is None:
        return None
    arrays = [held[n] for n in found.names]
    ((name, dtype),) = dtypes.items()
    dtype = np.dtype(dtype)
    if dtype not in KINDS or any(not isinstance(x, np.ndarray) or x.dtype != dtype for x in arrays):
        return None
    order, lengths = spec.output_axes[name], whole.wants[name][0]
    result = dict(zip(order, (prod(lengths[d + 1 :]) for d in range(len(order))), strict=True))
    steps = [dict(zip(axes, steps_of(x), strict=True)) for axes, x in zip(found.axes, arrays, strict=True)]
    shape = shape_of(found, whole.sizes, (*steps, result))
    if shape is None:
        return None
    places = [list(held).index(n) for n in found.names]
    product = Product(shape, dtype, found.factor, found.term)
    return Multiplied(whole, product, program, name, (places[0], places[1]))


class Multiplied:
    """What calls of one kind do that are a product, as `redalg.kernels.cpu.ready.Ready` is for kernels of rows."""

    def __init__(self, whole: Ready, product: Product, program: Any, name: str, places: tuple[int, int]) -> None:
        self._whole, self._product, self._places, self._name = whole, product, places, name
        self.wants, self.sizes = whole.wants, whole.sizes
        dtype, term = product.dtype, product.term
        tile = tile_for(dtype.itemsize, term)
        what = "a product of matrices" if term == PRODUCT else f"sums of {term} over pairs"
        told = f"{what} by tiles of {tile.rows} by {tile.columns} sums in registers, panels packed"
        self.last = (Shown(program, told, Text(f"; {name}: {told}, {dtype}\n{text_of(dtype.itemsize, term)}")),)

    def __call__(self, given: Sequence[Any], arrays: Mapping[str, Any], out: Any) -> Any:
        """The results for arrays of this kind, as kernels read them (`given`) and as the caller passed them."""
        left, right = (given[at] for at in self._places)
        if out is None:
            made = np.empty(*self.wants[self._name])
            return self._whole.restored(made) if self._computed(left, right, made) else self._whole(given, arrays, out)
        target = self._whole.received(out)[self._name]
        apart = target.flags.c_contiguous and not (shared(left, target) or shared(right, target))
        made = target if apart else np.empty(*self.wants[self._name])
        if not self._computed(left, right, made):
            return self._whole(given, arrays, out)
        if made is not target:
            target[...] = made
        return by_output(out, [self._name], WHERE)[self._name]

    def _computed(self, left: np.ndarray, right: np.ndarray, made: np.ndarray) -> bool:
        """Multiply, and say whether all that came of it is finite."""
        self._product(address_of(left), address_of(right), address_of(made))
        return isfinite(np.vdot(made, made)) or bool(np.isfinite(made).all())

    def received(self, out: Any) -> Mapping[str, np.ndarray]:
        """The arrays of `out`."""
        return self._whole.received(out)

    def tell_marks(self) -> None:
        """Leave rows that leave the range to what these calls are the last part of."""
        self._whole.tell_marks()

    def lie_contiguous(self) -> None:
        """Leave results in row-major order, as they are."""
        self._whole.lie_contiguous()

    @property
    def rescued(self) -> int:
        """Rows that left the range of the reals and were computed in wider numbers, of all calls so far."""
        return self._whole.rescued


def may_multiply(spec: Spec, dtypes: Iterable[str]) -> bool:
    """Whether calls of a spec are such products, once they are large enough."""
    return {*dtypes} in ({"float32"}, {"float64"}) and factors_of(spec) is not None


__all__ = ["FASTER", "Multiplied", "is_over_pairs", "may_multiply", "multiplied"]
