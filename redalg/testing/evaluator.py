"""Evaluate a graph one scalar at a time, in any arithmetic: slow, plain, and shared with nothing in the library.

    value(node at a point) = the node's operation applied to the values of its arguments at that point

A *point* gives every free axis a position. A reduction loops over its axes (the last fastest, as the design says).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from redalg.graph.node import COMPARISONS, UNARY, Decl, Node
from redalg.testing.arithmetic import Arithmetic

Point = Mapping[str, int]
SPECIAL = {"oo": math.inf, "-oo": -math.inf, "nan": math.nan, "pi": math.pi, "e": math.e}


class Evaluator:
    """Values of nodes over `env` (leaf name -> array indexed by a tuple), in the number system `arithmetic`.

    `ranges` restricts an axis to some positions (a piece of a stream); positions stay absolute, so that
    `index("j")` is the position in the whole stream.
    """

    def __init__(
        self,
        arithmetic: Arithmetic,
        env: Mapping[str, Any],
        sizes: Mapping[str, int],
        ranges: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.arithmetic, self.env, self.sizes = arithmetic, env, dict(sizes)
        self.ranges = dict(ranges or {})
        self.memo: dict[tuple[Node, tuple[int, ...]], Any] = {}

    def positions(self, axis: str) -> Iterable[int]:
        """Positions of an axis; d~1, d~2 and d' are copies of the axis d."""
        return self.ranges[axis] if axis in self.ranges else range(self.size(axis))

    def size(self, axis: str) -> int:
        return self.sizes[axis] if axis in self.sizes else self.sizes[axis.partition("~")[0].rstrip("'")]

    def points(self, axes: Sequence[str]) -> Iterable[dict[str, int]]:
        for combination in itertools.product(*(self.positions(a) for a in axes)):
            yield dict(zip(axes, combination, strict=True))

    def value(self, node: Node, point: Point) -> Any:
        key = (node, tuple(point[a] for a in sorted(node.axes)))
        if key not in self.memo:
            self.memo[key] = self._compute(node, point)
        return self.memo[key]

    def array(self, node: Node, axes: Sequence[str]) -> dict[tuple[int, ...], Any]:
        """All values over `axes`, keyed by positions."""
        return {tuple(p[a] for a in axes): self.value(node, p) for p in self.points(axes)}

    def _compute(self, node: Node, point: Point) -> Any:
        op = node.op
        if op == "reduce":
            return self._reduce(node, point)
        if op == "where":
            return self._where(node, point)
        if not node.args:
            return self._leaf(node, point)
        args = [self.value(a, point) for a in node.args]
        if op == "exp" and node.args[0].op == "add" and self._masked(node.args[0], point):
            return self.arithmetic.number(0)
        return self._apply(node, args)

    def _apply(self, node: Node, args: list[Any]) -> Any:
        op, ar = node.op, self.arithmetic
        if op == "add":
            return ar.add(args)
        if op == "mul":
            return ar.mul(args)
        if op == "pow":
            return ar.power(*args)
        if op in UNARY:
            return ar.unary(op, args[0])
        if op in ("maximum", "minimum"):
            return self.extremum(op, args)
        if op in COMPARISONS:
            return self._compare(op, *args)
        if op in ("and", "or", "not"):
            return _logical(op, args)
        if op == "cast":
            return ar.cast(args[0], node.attr)
        raise NotImplementedError(f"{op} in the scalar evaluator")

    def _leaf(self, node: Node, point: Point) -> Any:
        op = node.op
        if op in ("true", "false"):
            return op == "true"
        if op == "const":
            return self.arithmetic.number(node.attr)
        if op == "special":
            return self._special(node.attr)
        if op == "index":
            return self.arithmetic.number(point[node.attr])
        if op == "size":
            return self.arithmetic.number(self.size(node.attr))
        value = self.env[node.attr.name][tuple(point[a] for a in node.attr.axes)]
        if node.is_boolean:
            return bool(value)
        return value if isinstance(value, tuple) else self.arithmetic.number(value)

    def _special(self, name: str) -> Any:
        context = getattr(self.arithmetic, "context", None)
        if context is not None and name in ("pi", "e"):
            return +getattr(context, name)
        return self.arithmetic.number(SPECIAL[name])

    def _masked(self, terms: Node, point: Point) -> bool:
        """exp(u - max u) is 0 where u = -oo: a term that varies more than another one is -oo, and nothing is NaN."""
        values = [self.arithmetic.middle(self.value(t, point)) for t in terms.args]
        if any(math.isnan(v) for v in values) or -math.inf not in values:
            return False
        return any(
            v == -math.inf and any(not t.axes <= other.axes for other in terms.args)
            for t, v in zip(terms.args, values, strict=True)
        )

    def _where(self, node: Node, point: Point) -> Any:
        condition = self.value(node.args[0], point)
        if condition is None:
            then, other = (self.value(a, point) for a in node.args[1:])
            if node.is_boolean:
                return then if then is other else None
            return self.arithmetic.hull(then, other)
        return self.value(node.args[1 if condition else 2], point)

    def _compare(self, op: str, a: Any, b: Any) -> bool | None:
        if isinstance(a, bool) and isinstance(b, bool):
            return (a == b) if op == "eq" else (a != b)
        if op in ("lt", "le"):
            return self.arithmetic.less(a, b, op == "le")
        equal = self.arithmetic.equal(a, b)
        return equal if op == "eq" or equal is None else not equal

    def extremum(self, op: str, values: Sequence[Any]) -> Any:
        """The largest (smallest) value, NaN if one is NaN; a ball keeps the largest radius."""
        ar = self.arithmetic
        best = values[0]
        for v in values[1:]:
            if math.isnan(ar.middle(best)):
                break
            a, b = (best, v) if op == "maximum" else (v, best)
            if math.isnan(ar.middle(v)):
                best = v
                continue
            smaller = ar.less(a, b, False)
            if smaller is None:
                best = type(v)(max(a[0], b[0]) if op == "maximum" else min(a[0], b[0]), max(a[1], b[1]))
            elif smaller:
                best = v
        return best

    # --- reductions -------------------------------------------------------------------------------------------

    def _reduce(self, node: Node, point: Point) -> Any:
        kind, axes = node.attr.kind, node.attr.axes
        inner = [{**point, **p} for p in self.points(axes)]
        if kind.startswith("topk"):
            return self._topk(node, inner, point)
        if kind == "monoid":
            return self._monoid(node, inner)
        return self.fold(kind, [self.value(node.args[0], p) for p in inner])

    def fold(self, kind: str, values: Sequence[Any]) -> Any:
        """A reduction of scalars, empty ones included (argmax of nothing has no value: -1)."""
        ar = self.arithmetic
        if kind in ("any", "all"):
            return _logical("or" if kind == "any" else "and", list(values) or [kind == "all"])
        if kind in ("sum", "prod"):
            unit = ar.number(kind == "prod")
            return (ar.add if kind == "sum" else ar.mul)(values) if values else unit
        if kind in ("max", "min"):
            empty = ar.number(-math.inf if kind == "max" else math.inf)
            return self.extremum("maximum" if kind == "max" else "minimum", values) if values else empty
        if kind in ("argmax", "argmin"):
            order = self.ranking(values, kind == "argmax")
            return ar.number(order[0] if order else -1)
        raise NotImplementedError(f"{kind} in the scalar evaluator")

    def ranking(self, values: Sequence[Any], descending: bool = True) -> list[int]:
        """Positions by value (NaN first, as NumPy's argmax), ties by lowest position."""
        middles = [self.arithmetic.middle(v) for v in values]
        key = [(0.0, i) if math.isnan(m) else (1.0, i) for i, m in enumerate(middles)]
        sign = -1 if descending else 1
        return sorted(range(len(values)), key=lambda i: (key[i][0], _exact_key(values[i], sign, middles[i]), i))

    def _topk(self, node: Node, inner: list[dict[str, int]], point: Point) -> Any:
        k, axis = node.attr.extra
        values = [self.value(node.args[0], p) for p in inner]
        order, rank = self.ranking(values), point[axis]
        if rank >= len(order):
            return self.arithmetic.number(-math.inf if node.attr.kind == "topk_values" else -1)
        return values[order[rank]] if node.attr.kind == "topk_values" else self.arithmetic.number(order[rank])

    def _monoid(self, node: Node, inner: list[dict[str, int]]) -> Any:
        monoid, part = node.attr.extra
        elements = [tuple(self.value(b, p) for b in node.args) for p in inner]
        return self.fold_monoid(monoid, elements)[part]

    def fold_monoid(self, monoid: Any, elements: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        total = tuple(self.value(node, {}) for node in monoid.identity_nodes)
        for element in elements:
            total = self.combine_monoid(monoid, total, element)
        return total

    def combine_monoid(self, monoid: Any, a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [f"monoid:{side}{i}" for side in "ab" for i in range(monoid.width)]
        nodes = [Node("state", (), _scalar(name)) for name in names]
        env = {name: {(): v} for name, v in zip(names, (*a, *b), strict=True)}
        inner = Evaluator(self.arithmetic, env, {})
        combined = monoid.combine_nodes(tuple(nodes[: monoid.width]), tuple(nodes[monoid.width :]))
        return tuple(inner.value(node, {}) for node in combined)


def _scalar(name: str) -> Any:
    return Decl(name)


def _exact_key(value: Any, sign: int, middle: float) -> Any:
    if math.isnan(middle):
        return 0
    return sign * (value if isinstance(value, Fraction) else middle)


def _logical(op: str, args: Sequence[bool | None]) -> bool | None:
    if op == "not":
        return None if args[0] is None else not args[0]
    decisive = op == "or"
    if any(a is decisive for a in args):
        return decisive
    return None if any(a is None for a in args) else not decisive
