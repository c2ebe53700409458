"""Evaluate graph nodes exactly over named axes: NumPy arrays of objects, one dimension per axis.

A value is a pair (array, axes), the axes sorted by name. The extra axis `STREAM` sorts before all others and numbers
the streams that are evaluated side by side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from redalg.algebra.work import spend
from redalg.graph.formula import FOLDED, operation, reduced
from redalg.graph.masked import is_statistic
from redalg.graph.node import Node, walk
from redalg.verdicts import numbers as scalar
from redalg.verdicts.numbers import NAN, Number, Numbers

STREAM = "\0"
Value = tuple[np.ndarray, tuple[str, ...]]


class Unsupported(ArithmeticError):
    """The graph holds an operation that these numbers do not model."""


def _object(items: Any) -> np.ndarray:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def vectorised(f: Callable[..., Any], arguments: int) -> Callable[..., np.ndarray]:
    """f applied to every entry; the result is an object array also where it has no dimension."""
    ufunc = np.frompyfunc(f, arguments, 1)

    def apply(*arrays: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):  # NaN marks what is not decided
            result = ufunc(*arrays)
        if isinstance(result, np.ndarray):
            return result
        boxed = np.empty((), dtype=object)
        boxed[()] = result
        return boxed

    return apply


PLUS, TIMES = vectorised(scalar.plus, 2), vectorised(scalar.times, 2)
_UNKNOWN = vectorised(scalar.is_nan, 1)
_GROWING = frozenset({"add", "mul", "pow", "reduce"})  # operations that make rationals longer


def align(value: Value, axes: tuple[str, ...]) -> np.ndarray:
    """The array with a dimension of length one for every axis it lacks."""
    array, own = value
    return array[tuple(slice(None) if a in own else None for a in axes)]


def joint_axes(values: list[Value]) -> tuple[str, ...]:
    return tuple(sorted({a for _, axes in values for a in axes}))


class Entries:
    """The arithmetic of a mode of evaluation on arrays of its numbers; two at a time of several."""

    add = staticmethod(functools.partial(functools.reduce, PLUS))
    mul = staticmethod(functools.partial(functools.reduce, TIMES))
    conjunction = staticmethod(functools.partial(functools.reduce, vectorised(scalar.conjunction, 2)))
    disjunction = staticmethod(functools.partial(functools.reduce, vectorised(scalar.disjunction, 2)))
    negation = staticmethod(vectorised(scalar.negation, 1))
    select = staticmethod(vectorised(scalar.select, 3))

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def power(self, base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
        return vectorised(lambda b, e: scalar.power(b, e, self.numbers), 2)(base, exponent)

    def unary(self, name: str, array: np.ndarray) -> np.ndarray:
        return vectorised(lambda x: scalar.unary(name, x, self.numbers), 1)(array)

    def extremum(self, op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return vectorised(functools.partial(scalar.extremum, op), 2)(a, b)

    def compare(self, op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return vectorised(functools.partial(scalar.compare, op), 2)(a, b)

    def cast(self, array: np.ndarray, name: str) -> np.ndarray:
        return vectorised(lambda x: scalar.cast(x, name), 1)(array)


class Evaluation:
    """Values of nodes on given leaves.

    `leaves[name]` is a value, its axes in any order; `lengths` are the lengths of arrays along each axis, `sizes` what
    `size(axis)` means, `first` the position `index` starts from.
    """

    def __init__(
        self,
        leaves: dict[str, Value],
        lengths: dict[str, int],
        sizes: dict[str, int],
        first: dict[str, int],
        numbers: Numbers,
        memo: dict[Node, Value] | None = None,
        places: dict[str, list[int]] | None = None,
    ) -> None:
        self.leaves, self.lengths, self.sizes, self.first, self.numbers = leaves, lengths, sizes, first, numbers
        self.formulas, self.entries = scalar.Formulas(numbers), Entries(numbers)
        self.memo: dict[Node, Value] = dict(memo or {})
        self.places = places or {}  # axes along which only some positions are held

    def value(self, root: Node) -> Value:
        """The value of a node; raises `Unsupported` or `NeedsEnclosures`."""
        for node in walk(root, done=self.memo):
            self.memo[node] = found = self._compute(node)
            spend((1 + found[0].size) * self.numbers.price + (self._length(node) if node.op in _GROWING else 0))
        return self.memo[root]

    def _length(self, node: Node) -> int:
        """What the length of its rationals adds to the price of a node."""
        arrays = [self.memo[n][0] for n in (node, *node.args)]
        longest = max(map(scalar.bits, arrays[0].flat), default=0)
        return max(a.size for a in arrays) * max(1, len(node.args) - 1) * scalar.weight(longest)

    def _compute(self, node: Node) -> Value:
        op = node.op
        if not node.args:
            return self._leaf(node)
        args = [self.memo[a] for a in node.args]
        if op == "reduce":
            return self._reduce(node, args[0])
        if op == "exp" and node.args[0].op == "add":
            return self._exp_of_sum(node, args[0])
        axes = joint_axes(args)
        return operation(self.entries, node, [align(a, axes) for a in args]), axes

    def _exp_of_sum(self, node: Node, total: Value) -> Value:
        """exp(u - max u) is 0 where u is -inf, whatever the statistics are unless NaN comes in."""
        array, axes = total
        exponential = self.entries.unary("exp", array)
        fixed = [t for t in node.args[0].args if is_statistic(t, node.axes)]
        elements = [align(self.memo[t], axes) for t in node.args[0].args if t not in fixed]
        if not fixed or not elements or not any(isinstance(x, float) for x in array.flat):
            return exponential, axes
        unknown = self.entries.disjunction([_UNKNOWN(align(self.memo[t], axes)) for t in fixed])
        vanish = vectorised(lambda e, u, nan: Fraction(0) if u == -math.inf and not nan else e, 3)
        return vanish(exponential, self.entries.add(elements), unknown), axes

    def _leaf(self, node: Node) -> Value:
        op = node.op
        if op in ("tensor", "state"):
            array, own = self.leaves[node.attr.name]
            order = sorted(range(len(own)), key=own.__getitem__)
            return array.transpose(order), tuple(own[i] for i in order)
        if op == "index":
            start = self.first.get(node.attr, 0)
            places = self.places.get(node.attr) or range(start, start + self.lengths[node.attr])
            return _object([Fraction(i) for i in places]), (node.attr,)
        boxed = np.empty((), dtype=object)
        boxed[()] = Fraction(self.sizes[node.attr]) if op == "size" else operation(self.formulas, node, ())
        return boxed, ()

    def rows(self, node: Node, body: Value) -> tuple[np.ndarray, tuple[str, ...]]:
        """The body with the reduced axes flattened (row-major) into a last dimension; and the axes that remain."""
        reduced = node.attr.axes
        rest = tuple(a for a in body[1] if a not in reduced)
        have = [a for a in reduced if a in body[1]]
        array = np.moveaxis(body[0], [body[1].index(a) for a in have], range(-len(have), 0)) if have else body[0]
        lengths = [self.lengths[a] for a in reduced]
        index = (slice(None),) * len(rest) + tuple(slice(None) if a in have else None for a in reduced)
        full = np.broadcast_to(array[index], (*array.shape[: len(rest)], *lengths))
        return full.reshape(*array.shape[: len(rest)], math.prod(lengths)), rest

    def _reduce(self, node: Node, body: Value) -> Value:
        kind = node.attr.kind
        array, rest = self.rows(node, body)
        if kind in FOLDED:
            rows = array.reshape(math.prod(array.shape[:-1]), array.shape[-1]).tolist()
            return _object([reduced(self.formulas, kind, row) for row in rows]).reshape(array.shape[:-1]), rest
        if kind in ("argmax", "argmin"):
            ranked = rank_rows(array, 1, "maximum" if kind == "argmax" else "minimum")
            return ranked[1][..., 0], rest
        if kind.startswith("topk"):
            k, axis = node.attr.extra
            if array.shape[-1] < k:
                raise Unsupported("a top-k of fewer elements")
            values, places = rank_rows(array, k, "maximum")
            axes = (*rest, axis)
            order = sorted(range(len(axes)), key=axes.__getitem__)
            chosen = values if kind == "topk_values" else places
            return chosen.transpose(order), tuple(axes[i] for i in order)
        raise Unsupported(f"the reduction {kind}")


def rank_rows(array: np.ndarray, k: int, op: str) -> tuple[np.ndarray, np.ndarray]:
    """The k best entries of every row with their positions, lowest position first among equals; NaN if undecided."""
    shape = (*array.shape[:-1], k)
    values, places = np.empty(shape, dtype=object), np.empty(shape, dtype=object)
    for at in np.ndindex(*array.shape[:-1]):
        row = list(enumerate(array[at]))
        for slot in range(k):
            best = _best(row, op)
            if best is None:
                values[(*at, slot)] = (-math.inf if op == "maximum" else math.inf) if not row else NAN
                places[(*at, slot)] = Fraction(-1) if not row else NAN
                continue
            row.remove(best)
            values[(*at, slot)], places[(*at, slot)] = best[1], Fraction(best[0])
    return values, places


def _best(row: list[tuple[int, Number]], op: str) -> tuple[int, Number] | None:
    wanted = 1 if op == "maximum" else -1
    best = row[0] if row else None
    for item in row[1:]:
        sign = scalar.order(item[1], best[1])  # type: ignore[index]
        if sign is None:
            return None
        if sign == wanted:
            best = item
    return None if best is None or scalar.is_nan(best[1]) else best
