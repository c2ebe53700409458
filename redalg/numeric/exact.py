"""Exact evaluation of graph nodes at given positions: the judge of everything that is computed in floating point.

A plain recursion over (node, position of its free axes) with memoisation. It shares no code with the NumPy evaluator
beyond the table of operations (`redalg.graph.formula`), the two structural rules of `redalg.graph.masked` and the
number formats, needs neither NumPy nor SymPy, and is meant for small lengths. Of a choice it evaluates what is taken.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product as pairs
from typing import Any

from redalg.graph.formula import FOLDED, operation, reduced
from redalg.graph.masked import is_masked, made, split_exponent
from redalg.graph.node import Node, leaves, state, walk
from redalg.numeric.exact_numbers import Number, arithmetic

At = Mapping[str, int]
_DEEP = 40  # levels of a graph that recursion may pass at once
_NESTED = 8  # reductions inside reductions that it may


def exact_value(
    node: Node,
    values: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
    digits: int = 50,
    *,
    at: At | None = None,
    offsets: Mapping[str, int] | None = None,
) -> Number:
    """The value of a node at the position ``at`` of its free axes: a Fraction where rational, an mpf otherwise.

    ``values`` gives for each leaf name a number, nested sequences, an array, a mapping from index tuples or a function
    of indices, in the order of the leaf's axes. ``sizes`` gives the lengths of axes, where nested sequences and arrays
    do not; ``offsets`` where ``index`` starts counting. A Boolean node gives a bool.

    >>> from redalg.graph.node import tensor, reduction, div, size
    >>> mean = div(reduction("sum", "j", tensor("x", "j")), size("j"))
    >>> exact_value(mean, {"x": [1, 2, 0.5]})
    Fraction(7, 6)
    """
    evaluator = Exact(values, {**lengths([node], values), **(sizes or {})}, digits, offsets)
    return evaluator.numbers.public(evaluator.value(node, at or {}))


def lengths(nodes: Sequence[Node], values: Mapping[str, Any]) -> dict[str, int]:
    """The lengths of axes that can be read off the values of the leaves."""
    found: dict[str, int] = {}
    for node in nodes:
        for leaf in leaves(node, "tensor", "state"):
            value: Any = values.get(leaf.attr.name)
            for axis in leaf.attr.axes:
                if not hasattr(value, "__len__") or isinstance(value, Mapping):
                    break
                found[axis] = len(value)
                value = value[0] if found[axis] else None
    return found


class _Computed:
    """As a container of nodes: those whose value at a position is known."""

    def __init__(self, evaluation: Exact, at: At) -> None:
        self.evaluation, self.at = evaluation, at

    def __contains__(self, node: object) -> bool:
        axes = self.evaluation._axes.get(node) if isinstance(node, Node) else None
        if axes is None or any(a not in self.at for a in axes):
            return False
        return (node, *(self.at[a] for a in axes)) in self.evaluation._done


class Exact:
    """An evaluation over fixed values, remembering everything it has computed."""

    def __init__(
        self,
        values: Mapping[str, Any],
        sizes: Mapping[str, int] | None = None,
        digits: int = 50,
        offsets: Mapping[str, int] | None = None,
    ) -> None:
        self.values, self.sizes, self.offsets = values, dict(sizes or {}), dict(offsets or {})
        self.numbers = arithmetic(digits)
        self._done: dict[tuple[Any, ...], Number] = {}
        self._axes: dict[Node, tuple[str, ...]] = {}
        self._depth: dict[Node, int] = {}
        self._nested: dict[Node, int] = {}
        self._preparing = False

    def value(self, node: Node, at: At) -> Number:
        """The value at the position ``at`` (axes the node lacks are ignored)."""
        axes = self._axes.get(node)
        if axes is None:
            self._meet(node)
            axes = self._axes[node]
        key = (node, *(at[a] for a in axes))
        found = self._done.get(key)
        if found is None:
            if self._nested[node] > _NESTED and not self._preparing:
                self._prepare_stages(node, at)
            if self._depth[node] > _DEEP:
                self._prepare(node, at)
            found = self._done[key] = self._compute(node, at)
        return found

    def found(self, nodes: Collection[Node]) -> Iterator[Number]:
        """What has been computed for these nodes, at all places."""
        return (value for (node, *_), value in self._done.items() if node in nodes)

    def _prepare(self, root: Node, at: At) -> None:
        """Evaluate what lies below a deep node first, up to the next reductions, so that recursion stays shallow."""
        stack = [(a, False) for a in root.args if root.op != "reduce"]
        seen: set[Node] = set()
        computed = _Computed(self, at)
        while stack:
            node, ready = stack.pop()
            if ready:
                self.value(node, at)
            elif node not in seen and node not in computed:
                seen.add(node)
                stack.append((node, True))
                stack.extend((a, False) for a in node.args if node.op != "reduce" and self._depth[a] > _DEEP)

    def _prepare_stages(self, root: Node, at: At) -> None:
        """Evaluate a chain of stages from its first one, so that recursion stays shallow there, too."""
        self._preparing = True
        try:
            for node in walk(root, done=_Computed(self, at)):
                if node.op == "reduce" and node is not root and node.axes <= at.keys():
                    self.value(node, at)
        finally:
            self._preparing = False

    def _meet(self, root: Node) -> None:
        fresh = []
        for node in walk(root, done=self._axes):
            fresh.append(node)
            self._axes[node] = tuple(sorted(node.axes))
            self._depth[node] = 1 + max((self._depth[a] for a in node.args), default=0)
            inner = max((self._nested[a] for a in node.args), default=0)
            self._nested[node] = inner + (node.op == "reduce")
        self.sizes.update(made(fresh))

    def _compute(self, node: Node, at: At) -> Number:
        if node.op in _RULES:
            return _RULES[node.op](self, node, at)
        return operation(self.numbers, node, [self.value(a, at) for a in node.args])

    # --- leaves and maps ---------------------------------------------------------------------------------------------

    def _leaf(self, node: Node, at: At) -> Number:
        value = self.values[node.attr.name]
        where = tuple(at[a] for a in node.attr.axes)
        if callable(value):
            value = value(*where)
        elif isinstance(value, Mapping) or hasattr(value, "dtype"):
            value = value[where]
        else:
            for i in where:
                value = value[i]
        return self.numbers.admit(value)

    def _exp(self, node: Node, at: At) -> Number:
        arg = self.value(node.args[0], at)
        return self.numbers.unary("exp", self._resolved(node.args[0], at) if self.numbers.is_nan(arg) else arg)

    def _resolved(self, arg: Node, at: At) -> Number:
        """The argument of an exp under the rule of masked elements (see `redalg.graph.masked.split_exponent`)."""
        if arg.op == "where":
            return self._resolved(arg.args[1 if self.value(arg.args[0], at) else 2], at)
        split = split_exponent(arg)
        if split is not None:
            elements = self.value(split.u, at)
            if elements == self.numbers.ninf and self.value(is_masked(split), at):
                return elements
        return self.value(arg, at)

    # --- reductions --------------------------------------------------------------------------------------------------

    def _reduce(self, node: Node, at: At) -> Number:
        kind = node.attr.kind
        if kind == "monoid":
            return self._fold(node, at)[node.attr.extra[1]]
        if kind.startswith("topk"):
            ranked = self._ranked(node, at)
            place = at[node.attr.extra[1]]
            found = ranked[place] if place < len(ranked) else (Fraction(-1), self.numbers.ninf)
            return found[kind == "topk_values"]
        elements = self._elements(node.args[0], node.attr.axes, at)
        if kind in FOLDED:
            return reduced(self.numbers, kind, elements)
        order = self._before(elements, kind == "argmin")
        return Fraction(min(range(len(elements)), key=functools.cmp_to_key(order), default=-1))

    def _elements(self, body: Node, axes: Sequence[str], at: At) -> list[Number]:
        """The body along the axes, row-major."""
        ranges = (range(self.sizes[a]) for a in axes)
        return [self.value(body, {**at, **dict(zip(axes, where, strict=True))}) for where in pairs(*ranges)]

    def _ranked(self, node: Node, at: At) -> list[tuple[Fraction, Number]]:
        """(index, value) in descending order, NaN first, ties by lowest index."""
        k, new_axis = node.attr.extra
        outer = tuple(sorted((a, i) for a, i in at.items() if a in node.axes and a != new_axis))
        key = ("topk", node.args, node.attr.axes, k, outer)
        if key not in self._done:
            elements = self._elements(node.args[0], node.attr.axes, at)
            order = sorted(range(len(elements)), key=functools.cmp_to_key(self._before(elements)))
            self._done[key] = [(Fraction(i), elements[i]) for i in order[:k]]
        return self._done[key]

    def _before(self, elements: Sequence[Number], least: bool = False) -> Callable[[int, int], int]:
        numbers = self.numbers

        def order(i: int, j: int) -> int:
            a, b = elements[i], elements[j]
            if numbers.is_nan(a) or numbers.is_nan(b):
                return numbers.is_nan(b) - numbers.is_nan(a)
            below = int(numbers.compare("lt", a, b)) - int(numbers.compare("lt", b, a))
            return -below if least else below

        return order

    def _fold(self, node: Node, at: At) -> tuple[Number, ...]:
        """A user's monoid, in stream order; its identity is used for an empty axis only."""
        monoid, _ = node.attr.extra
        outer = tuple(sorted((a, i) for a, i in at.items() if a in node.axes))
        key = ("monoid", monoid, node.args, node.attr.axes, outer)
        if key not in self._done:
            columns = [self._elements(body, node.attr.axes, at) for body in node.args]
            rows = list(zip(*columns, strict=True))
            self._done[key] = functools.reduce(_combiner(monoid, self), rows) if rows else self._unit(monoid)
        return self._done[key]

    def _unit(self, monoid: Any) -> tuple[Number, ...]:
        return tuple(self.value(n, {}) for n in monoid.identity_nodes)


def _combiner(monoid: Any, outer: Exact) -> Callable[[Sequence[Number], Sequence[Number]], tuple[Number, ...]]:
    width = len(monoid.identity_nodes)
    names = [[f"{side}.{i}" for i in range(width)] for side in "ab"]
    nodes = monoid.combine_nodes(*(tuple(state(n) for n in side) for side in names))

    def combine(a: Sequence[Number], b: Sequence[Number]) -> tuple[Number, ...]:
        inner = Exact(dict(zip([*names[0], *names[1]], [*a, *b], strict=True)), outer.sizes)
        inner.numbers = outer.numbers
        return tuple(inner.value(n, {}) for n in nodes)

    return combine


_RULES: dict[str, Callable[[Exact, Node, At], Number]] = {
    "tensor": Exact._leaf,
    "state": Exact._leaf,
    "index": lambda self, node, at: Fraction(at[node.attr] + self.offsets.get(node.attr, 0)),
    "size": lambda self, node, at: Fraction(self.sizes[node.attr]),
    "where": lambda self, node, at: self.value(node.args[1 if self.value(node.args[0], at) else 2], at),
    "and": lambda self, node, at: self.numbers.conjunction(self.value(a, at) for a in node.args),
    "or": lambda self, node, at: self.numbers.disjunction(self.value(a, at) for a in node.args),
    "exp": Exact._exp,
    "reduce": Exact._reduce,
}
