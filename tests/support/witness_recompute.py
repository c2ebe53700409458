"""Recompute a witness without the code that found it: a plain recursive evaluator in 220-digit arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import mpmath

from redalg.graph.formats import cast_fraction
from redalg.graph.node import Node
from redalg.verdicts.witness import Witness

DIGITS = 220
_TINY = mpmath.mpf(10) ** -150


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else mpmath.mpf(value)


class Table:
    """The arrays a stream stands for: element j of tensor T at the other indices i is `stream[j][T][i]`."""

    def __init__(self, witness: Witness, q: int, changed: tuple[int, Any] | None = None) -> None:
        self.witness, self.stream = witness, witness.streams[q]
        self.axis = witness.axis[0]
        self.sizes = witness.sizes | {self.axis: len(self.stream)}
        self.changed = changed  # (position, amount added to the variable's first entry)
        self.memo: dict[Any, Any] = {}

    def leaf(self, node: Node, at: dict[str, int]) -> Any:
        decl = node.attr
        if self.axis in decl.axes:
            value = self.stream[at[self.axis]][decl.name]
        else:
            value = self.witness.parameters[decl.name]
        rest = [at[a] for a in decl.axes if a != self.axis]
        for i in rest:
            value = value[i]
        value = _number(value)
        if self.changed and decl.name == self.witness.variable and not any(rest):
            if at.get(self.axis) == self.changed[0]:
                value += self.changed[1]
        return value

    def length(self, axis: str) -> int:
        return 1 if axis in self.witness.positions else self.sizes[axis]

    def value(self, node: Node, at: dict[str, int]) -> Any:
        key = node, tuple(sorted((a, i) for a, i in at.items() if a in node.axes))
        if key not in self.memo:
            self.memo[key] = self.compute(node, at)
        return self.memo[key]

    def compute(self, node: Node, at: dict[str, int]) -> Any:
        op = node.op
        if op in ("tensor", "state"):
            return self.leaf(node, at)
        if op == "index":
            return _number(at[node.attr] + self.witness.positions.get(node.attr, 0))
        if op == "const":
            return _number(node.attr)
        if op == "size":
            return _number(self.sizes[node.attr])
        if op == "special":
            return {"oo": mpmath.inf, "-oo": -mpmath.inf, "pi": +mpmath.pi, "e": +mpmath.e, "nan": mpmath.nan}[
                node.attr
            ]
        if op == "reduce":
            return self.reduce(node, at)
        if op == "where":
            return self.value(node.args[1 if self.value(node.args[0], at) else 2], at)
        args = [self.value(a, at) for a in node.args]
        if op == "exp" and args[0] != args[0] and any(self.value(t, at) == -mpmath.inf for t in node.args[0].args):
            return mpmath.mpf(0)
        return _OPERATIONS[op](node, *args)

    def reduce(self, node: Node, at: dict[str, int]) -> Any:
        ranges = [range(self.length(a)) for a in node.attr.axes]
        items = [
            self.value(node.args[0], at | dict(zip(node.attr.axes, i, strict=True))) for i in itertools.product(*ranges)
        ]
        kinds = {"sum": mpmath.fsum, "prod": mpmath.fprod, "max": max, "min": min, "any": any, "all": all}
        return kinds[node.attr.kind](items)


def _close(a: Any, b: Any) -> bool:
    """Equality of reals of which at most the last 70 digits are rounding."""
    return bool(abs(a - b) <= _TINY * (1 + abs(a)))


def _less(a: Any, b: Any, strict: bool) -> bool:
    return (not strict) if _close(a, b) else bool(a < b)


def _cast(node: Node, a: Any) -> Any:
    ratio = Fraction(str(mpmath.nstr(a, 200, strip_zeros=False)))
    return _number(cast_fraction(ratio.limit_denominator(10**60), node.attr))


_OPERATIONS: dict[str, Any] = {
    "add": lambda n, *a: mpmath.fsum(a),
    "mul": lambda n, *a: mpmath.fprod(a),
    "pow": lambda n, a, b: mpmath.mpf(1) if b == 0 else mpmath.power(a, b),
    "maximum": lambda n, *a: max(a),
    "minimum": lambda n, *a: min(a),
    "eq": lambda n, a, b: _close(a, b),
    "ne": lambda n, a, b: not _close(a, b),
    "lt": lambda n, a, b: _less(a, b, True),
    "le": lambda n, a, b: _less(a, b, False),
    "and": lambda n, *a: all(a),
    "or": lambda n, *a: any(a),
    "not": lambda n, a: not a,
    "abs": lambda n, a: abs(a),
    "sign": lambda n, a: mpmath.sign(a),
    "relu": lambda n, a: max(a, mpmath.mpf(0)),
    "sigmoid": lambda n, a: 1 / (1 + mpmath.exp(-a)),
    "floor": lambda n, a: mpmath.floor(a),
    "ceil": lambda n, a: mpmath.ceil(a),
    "cast": _cast,
    **{
        name: (lambda n, a, name=name: getattr(mpmath, name)(a))
        for name in "exp log log1p expm1 tanh erf erfc sin cos tan sinh cosh asin acos atan asinh acosh atanh".split()
    },
}


def entry(witness: Witness, node: Node, p: int, q: int) -> Any:
    """What `matrix[p][q]` has to be: the stage's body, or the output's derivative by a central difference."""
    axes = dict.fromkeys(witness.sizes, 0) | dict.fromkeys(witness.axis[1:], 0)
    if witness.kind == "minor":
        value = Table(witness, q).value(node.args[0], axes | {witness.axis[0]: witness.places[p]})
        return mpmath.log(abs(value)) if node.attr.kind == "prod" else value
    step = mpmath.mpf(10) ** -60
    last = axes | {witness.axis[0]: len(witness.streams[q]) - 1}
    ends = [Table(witness, q, (witness.places[p], sign * step)).value(node, last) for sign in (1, -1)]
    return (ends[0] - ends[1]) / (2 * step)


def check(witness: Witness, node: Node, sample: int = 10**6) -> None:
    """Assert everything a witness claims; `sample` bounds the number of entries that are recomputed."""
    k = witness.slots_excluded
    assert f"fewer than {k} " in witness.scope
    assert len(witness.streams) == len(witness.matrix) == k
    for stream in witness.streams:
        assert all(stream[place] == point for place, point in zip(witness.places, witness.points, strict=True))
    with mpmath.workdps(DIGITS):
        shown = [[_shown(v) for v in row] for row in witness.matrix]
        places = [(p, q) for p in range(k) for q in range(k)]
        for p, q in places[:: max(1, len(places) // sample)]:
            expected = entry(witness, node, p, q)
            assert abs(shown[p][q] - expected) <= mpmath.mpf(10) ** -50 * (1 + abs(expected)), (p, q)
        determinant = mpmath.det(mpmath.matrix(shown))
        low, high = witness.value if isinstance(witness.value, tuple) else (witness.value, witness.value)
        assert low > 0 or high < 0
        slack = abs(_number(low)) * mpmath.mpf(10) ** -6
        assert _number(low) - slack <= determinant <= _number(high) + slack


def _shown(value: Any) -> Any:
    if isinstance(value, Fraction):
        return _number(value)
    return value._to_mpmath(int(DIGITS * 3.4)) if hasattr(value, "_to_mpmath") else mpmath.mpf(value)
