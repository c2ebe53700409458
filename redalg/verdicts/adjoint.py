"""Exact derivatives of an evaluated graph, all of them in one backward sweep.

Only points where the graph is certainly differentiable count: a tie in a maximum, a zero under an absolute value or an
equality in a condition gives NaN, which drops the stream.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from redalg.algebra.work import spend
from redalg.graph.formula import evaluated
from redalg.graph.functions import FUNCTIONS, INTEGERS
from redalg.graph.node import COMPARISONS, UNARY, Node, walk
from redalg.verdicts import numbers as scalar
from redalg.verdicts.evaluate import PLUS, TIMES, Evaluation, Unsupported, Value, align, vectorised
from redalg.verdicts.numbers import NAN, Number, Numbers, Truth

ZERO, ONE = Fraction(0), Fraction(1)
_SUM = np.frompyfunc(scalar.plus, 2, 1)
_STEPS = frozenset({"argmax", "argmin", "any", "all", "topk_indices"})


class Backward:
    """Derivatives of one node of an `Evaluation` with respect to the entries of one tensor.

    A walk of its own: it goes against the order of evaluation, and what an argument has of a node's adjoint depends on
    the values of the other arguments, which no arithmetic of values passed forward is given.
    """

    def __init__(self, evaluation: Evaluation, root: Node, variable: str) -> None:
        self.evaluation, self.root = evaluation, root
        evaluation.value(root)
        self.order = list(walk(root))
        self.active: set[Node] = set()
        for n in self.order:
            if (n.op in ("tensor", "state") and n.attr.name == variable) or any(a in self.active for a in n.args):
                self.active.add(n)
        self.adjoint: dict[Node, np.ndarray] = {}

    def sweep(self, seed: np.ndarray) -> dict[Node, Value]:
        """Derivatives of Σ seed · root for every leaf of the tensor, in the axes of the leaf's value."""
        self.adjoint[self.root] = seed
        leaves: dict[Node, Value] = {}
        for node in reversed(self.order):
            if node not in self.active or node not in self.adjoint:
                continue
            adjoint = self.adjoint.pop(node)
            spend((1 + adjoint.size * self._products(node)) * self.evaluation.numbers.price)
            if not node.args:
                leaves[node] = adjoint, self.evaluation.memo[node][1]
                continue
            axes = self.evaluation.memo[node][1]
            for argument, share in self._shares(node, adjoint, axes):
                self._add(argument, share)
        return leaves

    def _products(self, node: Node) -> int:
        """Operations that its arguments' derivatives take: of a product each is the product of the others."""
        count = max(1, len(node.args))
        return count * (max(1, count // 4) if node.op == "mul" else 1)

    def _add(self, node: Node, share: Value) -> None:
        """Sum a contribution over the axes the node was broadcast along."""
        array, axes = share
        own_array, own = self.evaluation.memo[node]
        extra = tuple(i for i, a in enumerate(axes) if a not in own)
        for i in reversed(extra):
            array = np.asarray(_SUM.reduce(array, axis=i), dtype=object)
        kept = tuple(a for a in axes if a in own)
        array = np.broadcast_to(align((array, kept), own), own_array.shape)
        present = self.adjoint.get(node)
        self.adjoint[node] = array if present is None else PLUS(present, array)

    def _shares(self, node: Node, adjoint: np.ndarray, axes: tuple[str, ...]) -> list[tuple[Node, Value]]:
        if node.op == "reduce":
            return self._reduction(node, adjoint, axes)
        memo = self.evaluation.memo
        values = [align(memo[a], axes) for a in node.args]
        result = memo[node][0]
        shares = []
        for k, argument in enumerate(node.args):
            if argument not in self.active or (node.op == "where" and k == 0) or node.op in COMPARISONS:
                continue
            local = self._local(node, k, values, result)
            shares.append((argument, (adjoint if local is None else TIMES(adjoint, local), axes)))
        if node.op == "where" and node.args[0] in self.active:
            shares = [(a, (self._guard(node.args[0], array, axes), ax)) for a, (array, ax) in shares]
            self._require_decided(node, adjoint)
        return shares

    def _local(self, node: Node, k: int, values: list[np.ndarray], result: np.ndarray) -> np.ndarray | None:
        op, numbers, entries = node.op, self.evaluation.numbers, self.evaluation.entries
        if op == "add":
            return None
        if op == "mul":
            return entries.mul([v for i, v in enumerate(values) if i != k])
        if op == "pow":
            rule = _power_base if k == 0 else _power_exponent
            return vectorised(lambda b, e, y: rule(b, e, y, numbers), 3)(*values, result)
        if op in UNARY:
            return vectorised(lambda x, y: derivative(op, x, y, numbers), 2)(values[0], result)
        if op in ("maximum", "minimum"):
            beats = vectorised(lambda a, b: _beats(op, a, b), 2)
            truth = entries.conjunction([beats(values[k], v) for i, v in enumerate(values) if i != k])
            return entries.select(truth, ONE, ZERO)
        if op == "where":
            return entries.select(values[0], *((ONE, ZERO) if k == 1 else (ZERO, ONE)))
        raise Unsupported(f"the derivative of {op}")

    def _guard(self, condition: Node, array: np.ndarray, axes: tuple[str, ...]) -> np.ndarray:
        """NaN where a condition that depends on the variable holds or fails only just."""
        for node in walk(condition):
            if node in self.active and node.op in COMPARISONS:
                a, b = (self.evaluation.memo[x] for x in node.args)
                mask, own = self._strict(a, b, self.evaluation.memo[node][1])
                if not set(own) <= set(axes):
                    raise Unsupported("a condition inside a reduction inside a condition")
                array = TIMES(array, align((mask, own), axes))
        return array

    @staticmethod
    def _strict(a: Value, b: Value, axes: tuple[str, ...]) -> Value:
        strict = vectorised(lambda x, y: ONE if scalar.order(x, y) in (-1, 1) else NAN, 2)
        return strict(align(a, axes), align(b, axes)), axes

    def _require_decided(self, node: Node, adjoint: np.ndarray) -> None:
        """Both branches constant: the step itself must not be hit; no share carries that, so refuse it outright."""
        if not any(a in self.active for a in node.args[1:]):
            guarded = self._guard(
                node.args[0], np.full(adjoint.shape, ONE, dtype=object), self.evaluation.memo[node][1]
            )
            if any(scalar.is_nan(v) for v in guarded.flat):
                raise Unsupported("a step that is hit exactly")

    def _reduction(self, node: Node, adjoint: np.ndarray, axes: tuple[str, ...]) -> list[tuple[Node, Value]]:
        kind, body = node.attr.kind, node.args[0]
        value = self.evaluation.memo[body]
        rows, rest = self.evaluation.rows(node, value)
        if kind == "sum":
            local = np.full(rows.shape, ONE, dtype=object)
            weights = TIMES(adjoint[..., None], local)
        elif kind == "prod":
            weights = TIMES(adjoint[..., None], _others_product(rows))
        elif kind in ("max", "min"):
            weights = TIMES(adjoint[..., None], _one_hot(rows, "maximum" if kind == "max" else "minimum"))
        elif kind in _STEPS:
            raise Unsupported("a step function of the stream")
        else:
            raise Unsupported(f"the derivative of {kind}")
        reduced = node.attr.axes
        lengths = [self.evaluation.lengths[a] for a in reduced]
        full = weights.reshape(*weights.shape[:-1], *lengths)
        names = (*rest, *reduced)
        order = sorted(range(len(names)), key=names.__getitem__)
        return [(body, (full.transpose(order), tuple(names[i] for i in order)))]


def _beats(op: str, a: Number, b: Number) -> Truth:
    """Whether `a` is the extreme one of two; not decided where they are equal."""
    sign = scalar.order(a, b)
    return sign == (1 if op == "maximum" else -1) if sign else None


def _others_product(rows: np.ndarray) -> np.ndarray:
    """The product of all other entries of the row, by running products from both ends."""
    out = np.empty(rows.shape, dtype=object)
    for at in np.ndindex(*rows.shape[:-1]):
        row, n = rows[at], rows.shape[-1]
        left, right = [ONE] * n, [ONE] * n
        for i in range(1, n):
            left[i] = scalar.times(left[i - 1], row[i - 1])
            right[n - 1 - i] = scalar.times(right[n - i], row[n - i])
        out[at] = [scalar.times(a, b) for a, b in zip(left, right, strict=True)]
    return out


def _one_hot(rows: np.ndarray, op: str) -> np.ndarray:
    """1 at the only extreme entry of every row; NaN for the whole row where there are several."""
    out = np.full(rows.shape, ZERO, dtype=object)
    wanted = 1 if op == "maximum" else -1
    for at in np.ndindex(*rows.shape[:-1]):
        row, best = rows[at], 0
        for i in range(1, len(row)):
            if scalar.order(row[i], row[best]) == wanted:
                best = i
        unique = all(i == best or scalar.order(row[best], v) == wanted for i, v in enumerate(row))
        out[(*at, best)] = ONE
        if not unique:
            out[at] = NAN
    return out


def _power_base(b: Number, e: Number, y: Number, numbers: Numbers) -> Number:
    return scalar.times(e, scalar.power(b, scalar.plus(e, -ONE), numbers))


def _power_exponent(b: Number, e: Number, y: Number, numbers: Numbers) -> Number:
    return scalar.times(y, scalar.unary("log", b, numbers))


def _at_a_kink(where: str, x: Number) -> bool:
    """Whether the point is one without a derivative, as far as that is decided: if it is not, it counts as one."""
    if where == INTEGERS:
        return not isinstance(x, Fraction) or x.denominator == 1
    return bool(where) and scalar.order(x, ZERO) in (None, 0)


def derivative(op: str, x: Number, y: Number, numbers: Numbers) -> Number:
    """The derivative of a unary function at x, where its value is y.

    >>> from redalg.verdicts.residues import FieldNumbers
    >>> derivative("relu", Fraction(3), Fraction(3), FieldNumbers())
    Fraction(1, 1)
    """
    if isinstance(x, float):
        return ZERO if op == "exp" and x == -math.inf else NAN
    row = FUNCTIONS[op]
    if not row.derivative or _at_a_kink(row.kinks, x):
        return NAN
    return evaluated(row.derivative, scalar.Formulas(numbers), x, y)
