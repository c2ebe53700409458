"""Scalar evaluation of graph nodes: `Fraction` where rational, 60 digits otherwise, infinities and NaN as in the spec.

The rules are those of the language, not of IEEE arithmetic: ``where`` evaluates the branch it takes, 0 times an
infinity is NaN, a NaN enters every maximum, and ``exp(u - max u)`` is 0 where u is -oo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath

from redalg.graph import Node

DIGITS = 60
TOLERANCE = 40  # digits to which the sides must agree, relative to the largest value met on the way
_MP = mpmath.MPContext()
_MP.dps = DIGITS
NAN, OO = _MP.nan, _MP.inf


def is_nan(value: Any) -> bool:
    return not isinstance(value, (Fraction, bool, int)) and bool(_MP.isnan(value))


def real(value: Any) -> Any:
    """The value as a number of the 60-digit context."""
    if isinstance(value, Fraction):
        return _MP.mpf(value.numerator) / value.denominator
    return _MP.mpf(int(value)) if isinstance(value, (bool, int)) else value


def agree(left: Any, right: Any, magnitude: Any) -> bool:
    """Equal exactly where both are rational, else to 40 digits of the largest value met."""
    if isinstance(left, bool) or isinstance(right, bool):
        return bool(left) == bool(right) and not is_nan(left)
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left == right
    if is_nan(left) or is_nan(right):
        return is_nan(left) and is_nan(right)
    left, right = real(left), real(right)
    if _MP.isinf(left) or _MP.isinf(right):
        return bool(left == right)
    return bool(abs(left - right) <= _MP.mpf(10) ** -TOLERANCE * (1 + abs(real(magnitude))))


class Scalars:
    """Values of nodes at one point: leaves by (name, place), axes by size. Memoised by node and place."""

    context = _MP

    def __init__(self, values: dict[tuple[str, tuple[int, ...]], Any], sizes: dict[str, int]) -> None:
        self.values, self.sizes = values, sizes
        self.magnitude: Any = _MP.mpf(1)
        self.evaluations = 0
        self._memo: dict[tuple[Node, tuple[int, ...]], Any] = {}

    @staticmethod
    def complex(re: Fraction, im: Fraction) -> Any:
        return _MP.mpc(real(re), real(im))

    def value(self, node: Node, at: dict[str, int]) -> Any:
        key = node, tuple([at[a] for a in _sorted_axes(node)])
        if key not in self._memo:
            self.evaluations += 1
            try:
                found = self._evaluate(node, at)
            except (ZeroDivisionError, ValueError, OverflowError):
                found = NAN
            self._memo[key] = found
            if isinstance(found, (_MP.mpf, _MP.mpc)):
                self._grow(found)
        return self._memo[key]

    def _grow(self, found: Any) -> None:
        size = abs(found)
        if size > self.magnitude and size != OO:
            self.magnitude = size

    def _evaluate(self, node: Node, at: dict[str, int]) -> Any:
        if node.op in ("tensor", "state"):
            return self.values[node.attr.name, tuple(at[a] for a in node.attr.axes)]
        if node.op in _LEAVES:
            return _LEAVES[node.op](node, at, self.sizes)
        if node.op == "where":
            taken = self.value(node.args[0], at)
            return NAN if is_nan(taken) else self.value(node.args[1 if taken else 2], at)
        if node.op == "reduce":
            return self._reduce(node, at)
        args = [self.value(a, at) for a in node.args]
        if node.op == "exp" and is_nan(args[0]) and node.args[0].op == "add":
            return self._void(node.args[0], at)
        return _OPERATIONS[node.op](args) if node.op in _OPERATIONS else _function(node.op, args[0])

    def _void(self, exponent: Node, at: dict[str, int]) -> Any:
        """exp of an indeterminate difference: 0 where a term is -oo and none is NaN."""
        terms = [self.value(t, at) for t in exponent.args]
        return Fraction(0) if -OO in terms and not any(map(is_nan, terms)) else NAN

    # --- reductions ---

    def _reduce(self, node: Node, at: dict[str, int]) -> Any:
        kind, axes = node.attr.kind, node.attr.axes
        if kind == "monoid":
            return self._monoid(node, at)
        where = [at | dict(zip(axes, place, strict=True)) for place in self._along(axes)]
        elements = [self.value(node.args[0], here) for here in where]
        if kind.startswith("topk"):
            k, axis = node.attr.extra
            return _top(elements, kind, at[axis])
        return _REDUCTIONS[kind](elements)

    def _along(self, axes: tuple[str, ...]) -> Iterator[tuple[int, ...]]:
        return product(*(range(self.sizes[a]) for a in axes))

    def _monoid(self, node: Node, at: dict[str, int]) -> Any:
        from redalg.graph import state

        monoid, part = node.attr.extra
        sides = [tuple(state(f"{i}:{side}") for i in range(len(node.args))) for side in "ab"]
        combined = monoid.combine_nodes(*sides)
        folded: list[Any] | None = None
        for place in self._along(node.attr.axes):
            here = at | dict(zip(node.attr.axes, place, strict=True))
            element = [self.value(body, here) for body in node.args]
            folded = element if folded is None else _applied(combined, sides, (folded, element))
        if folded is None:
            folded = [Scalars({}, {}).value(n, {}) for n in monoid.identity_nodes]
        return folded[part]


def _applied(combined: tuple[Node, ...], sides: list[tuple[Node, ...]], values: tuple[list[Any], ...]) -> list[Any]:
    known: dict[tuple[str, tuple[int, ...]], Any] = {}
    for names, side in zip(sides, values, strict=True):
        known |= {(leaf.attr.name, ()): v for leaf, v in zip(names, side, strict=True)}
    return [Scalars(known, {}).value(n, {}) for n in combined]


def _sorted_axes(node: Node) -> tuple[str, ...]:
    return tuple(sorted(node.axes)) if len(node.axes) > 1 else tuple(node.axes)


def _top(elements: list[Any], kind: str, rank: int) -> Any:
    order = sorted(range(len(elements)), key=lambda i: (-real(elements[i]), i))
    if kind == "topk_indices":
        return Fraction(order[rank] if rank < len(order) else -1)
    return elements[order[rank]] if rank < len(order) else -OO


def _best(elements: list[Any], sign: int) -> Fraction:
    for i, e in enumerate(elements):
        if is_nan(e):
            return Fraction(i)
    if not elements:
        return Fraction(-1)
    return Fraction(max(range(len(elements)), key=lambda i: (sign * real(elements[i]), -i)))


def _sum(values: list[Any]) -> Any:
    total: Any = Fraction(0)
    for v in values:
        total = _binary(total, v, lambda a, b: a + b)
    return total


def _product(values: list[Any]) -> Any:
    total: Any = Fraction(1)
    for v in values:
        total = _binary(total, v, lambda a, b: a * b)
    return total


def _binary(a: Any, b: Any, op: Callable[[Any, Any], Any]) -> Any:
    if isinstance(a, Fraction) and isinstance(b, (Fraction, bool, int)):
        return op(a, b)
    return op(real(a), real(b))


def _extremum(values: list[Any], sign: int) -> Any:
    if any(map(is_nan, values)):
        return NAN
    exact = all(isinstance(v, Fraction) for v in values)
    return max(values, key=lambda v: sign * (v if exact else real(v)), default=-sign * OO)


def _power(args: list[Any]) -> Any:
    base, e = args
    if isinstance(base, Fraction) and isinstance(e, Fraction) and e.denominator == 1:
        return base ** int(e)
    if isinstance(base, Fraction) and isinstance(e, Fraction) and base >= 0:
        root = _exact_root(base, e)
        if root is not None:
            return root
    base, e = real(base), real(e)
    if _MP.isinf(base) and e < 0:
        return Fraction(0)
    if isinstance(base, _MP.mpf) and base < 0 and e != int(e):
        return NAN
    if not base and e < 0:
        return NAN
    return base**e


def _exact_root(base: Fraction, e: Fraction) -> Fraction | None:
    if base == 0:
        return Fraction(0) if e > 0 else None
    if e.denominator != 2:
        return None
    from math import isqrt

    top, bottom = isqrt(base.numerator), isqrt(base.denominator)
    if top * top != base.numerator or bottom * bottom != base.denominator:
        return None
    return Fraction(top, bottom) ** e.numerator


def _compare(op: Callable[[Any, Any], bool], unequal: bool = False) -> Callable[[list[Any]], Any]:
    def run(args: list[Any]) -> Any:
        a, b = args
        if is_nan(a) or is_nan(b):
            return unequal
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return op(a, b)
        return bool(op(real(a), real(b)))

    return run


def _function(name: str, x: Any) -> Any:
    if is_nan(x):
        return NAN
    if name in _EXACT and isinstance(x, (Fraction, bool, int)):
        return _EXACT[name](Fraction(x))
    if name in _ZERO_AT_ZERO and x == 0:
        return Fraction(0)
    if name in ("log", "log1p") and not isinstance(x, _MP.mpc):
        inner = real(x) + (name == "log1p")
        return NAN if inner < 0 else _MP.log(inner) if inner else -OO
    if name in ("asin", "acos", "atanh") and abs(x) > 1 or name == "acosh" and x < 1:
        return NAN
    return _MP_FUNCTIONS[name](real(x))


_LEAVES: dict[str, Callable[[Node, dict[str, int], dict[str, int]], Any]] = {
    "const": lambda n, at, sizes: n.attr,
    "special": lambda n, at, sizes: _SPECIAL[n.attr],
    "true": lambda n, at, sizes: True,
    "false": lambda n, at, sizes: False,
    "index": lambda n, at, sizes: Fraction(at[n.attr]),
    "size": lambda n, at, sizes: Fraction(sizes[n.attr]),
}
_SPECIAL: dict[str, Any] = {"oo": OO, "-oo": -OO, "nan": NAN, "pi": +_MP.pi, "e": +_MP.e, "i": _MP.mpc(0, 1)}
_OPERATIONS: dict[str, Callable[[list[Any]], Any]] = {
    "add": _sum,
    "mul": _product,
    "pow": _power,
    "maximum": lambda a: _extremum(a, 1),
    "minimum": lambda a: _extremum(a, -1),
    "and": lambda a: all(a),
    "or": lambda a: any(a),
    "not": lambda a: not a[0],
    "eq": _compare(lambda a, b: a == b),
    "ne": _compare(lambda a, b: a != b, unequal=True),
    "lt": _compare(lambda a, b: a < b),
    "le": _compare(lambda a, b: a <= b),
    "cast": lambda a: a[0],  # rounding is exact here: casts that commute are an assumption, others are inside elements
}
_REDUCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "sum": _sum,
    "prod": _product,
    "max": lambda e: _extremum(e, 1),
    "min": lambda e: _extremum(e, -1),
    "any": any,
    "all": all,
    "argmax": lambda e: _best(e, 1),
    "argmin": lambda e: _best(e, -1),
}
_EXACT: dict[str, Callable[[Fraction], Any]] = {
    "abs": abs,
    "sign": lambda x: Fraction((x > 0) - (x < 0)),
    "relu": lambda x: max(x, Fraction(0)),
    "floor": lambda x: Fraction(x.numerator // x.denominator),
    "ceil": lambda x: Fraction(-(-x.numerator // x.denominator)),
    "conj": lambda x: x,
    "re": lambda x: x,
    "im": lambda x: Fraction(0),
}
_ZERO_AT_ZERO = frozenset("tanh log1p expm1 erf sin tan sinh asin atan asinh atanh".split())
_MP_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sign": _MP.sign,
    "abs": abs,
    "relu": lambda x: max(x, _MP.mpf(0)),
    "sigmoid": lambda x: 1 / (1 + _MP.exp(-x)),
    "log": _MP.log,
    "log1p": lambda x: _MP.log(1 + x),
    "floor": _MP.floor,
    "ceil": _MP.ceil,
    **{n: getattr(_MP, n) for n in "exp expm1 tanh erf erfc sin cos tan sinh cosh asin acos atan asinh acosh atanh".split()},
    "conj": _MP.conj,
    "re": _MP.re,
    "im": _MP.im,
}
