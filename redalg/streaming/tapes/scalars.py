"""The same printed functions for a state of single numbers: Python's floats, which round as arrays do and cost a tenth.

A pass over statements: what varies along the stream stays a NumPy array of one dimension (`vectors`), everything else
becomes a number, and calls of the functions that join states become calls of those below. Where something is not
finite these functions give up (None, or an ArithmeticError): arrays then do it again, by the definition's rules.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from redalg.numeric.integers import as_float
from redalg.numeric.integers import total as whole_total
from redalg.source.compiled import executed
from redalg.source.statements import (
    Assign,
    Block,
    Expression,
    Function,
    If,
    Return,
    Statement,
    expression,
    names,
)
from redalg.streaming.tapes import join
from redalg.streaming.tapes.kernels import counted, integer_power
from redalg.streaming.tapes.tape import Tape, dtype_names

UNARY = ("exp", "expm1", "log", "log1p", "sqrt", "tanh", "sin", "cos", "exp2", "log2")  # on numbers as on arrays
SAME = ("entered", "left", "single", "REAL", "WIDE", "usable", "np.broadcast_to")


class Unsupported(Exception):
    """A function that has no variant for numbers."""


def numbers(tape: Tape, vectors: Sequence[str]) -> Callable[..., Any]:
    """The function of a tape for numbers; the keys `vectors` vary along the stream. Raises: Unsupported."""
    lists = {p.name for p, key in zip(tape.function.parameters, tape.keys, strict=False) if key in vectors}
    tapes = {call.name: numbers(call, ()) for call in tape.calls if isinstance(call, Tape)}
    made = _Scalar(lists, frozenset(tapes)).function(tape.function)
    return executed(
        made,
        {
            **dtype_names(tape.real),
            "as_float": as_float,
            "counted": counted,
            "integer_power": integer_power,
            **OWN,
            **tapes,
        },
    )


class _Scalar:
    """Maps statements in order; `arrays` are the names that hold arrays at the moment."""

    def __init__(self, arrays: set[str], tapes: frozenset[str]) -> None:
        self.arrays, self.tapes = arrays, tapes

    def function(self, f: Function) -> Function:
        return replace(f, body=tuple(self._block(f.body)))

    def _block(self, block: Block) -> Iterator[Statement]:
        for s in block:
            if isinstance(s, Assign):
                if names(s.targets[0]) != {"masked"}:
                    yield self._assigned(s)
            elif isinstance(s, If):
                yield from self._if(s)
            elif isinstance(s, Return) and s.value is not None:
                yield replace(s, value=self.number(s.value))
            else:
                raise Unsupported(type(s).__name__)

    def _assigned(self, s: Assign) -> Assign:
        value = self.value(s.value)
        for target in s.targets:
            change = self.arrays.add if self._varies(value) else self.arrays.discard
            for name in names(target):
                change(name)
        return replace(s, value=value)

    def _if(self, s: If) -> Iterator[Statement]:
        read = names(s.test)
        if "careful" in read:  # sums that are not finite are left to arrays anyway
            return
        if isinstance(s.test, ast.UnaryOp) and isinstance(s.test.operand, ast.Call) and "np" in read:
            (x,) = s.test.operand.args  # not np.all(np.isfinite(x)), or of x == x
            watched = x.args[0] if isinstance(x, ast.Call) else x
            varies = self._varies(watched)
            sound = ast.Call(expression("finite_numbers" if varies else "isfinite"), [watched], [])
            yield If(test=ast.UnaryOp(ast.Not(), sound), body=(Return(value=expression("None")),))
            return
        yield replace(s, body=tuple(self._block(s.body)))

    # --- expressions ---------------------------------------------------------------------------------------------

    def _varies(self, e: Expression) -> bool:
        if isinstance(e, ast.Call):
            name = ast.unparse(e.func)
            return (name.startswith("np.") or name in ELEMENTWISE) and any(map(self._varies, e.args))
        return isinstance(e, ast.Name) and e.id in self.arrays

    def number(self, e: Expression) -> Expression:
        """An expression that is none of an array."""
        found = self.value(e)
        if self._varies(found):
            raise Unsupported("an array as a result")
        return found

    def value(self, e: Expression) -> Expression:
        if isinstance(e, ast.Call):
            return self._call(ast.unparse(e.func), e)
        if isinstance(e, ast.Name | ast.Constant | ast.Attribute):
            return e
        if isinstance(e, ast.Subscript):
            return ast.Subscript(self.value(e.value), e.slice, e.ctx)
        if isinstance(e, ast.Tuple | ast.List):
            return type(e)([self.number(x) for x in e.elts], e.ctx)
        if isinstance(e, ast.Dict):
            return ast.Dict(e.keys, [self.number(v) for v in e.values])
        if isinstance(e, ast.BinOp):
            return ast.BinOp(self.number(e.left), e.op, self.number(e.right))
        if isinstance(e, ast.UnaryOp):
            return ast.UnaryOp(e.op, self.number(e.operand))
        if isinstance(e, ast.IfExp):
            return ast.IfExp(e.test, self.number(e.body), self.number(e.orelse))
        raise Unsupported(type(e).__name__)

    def _call(self, name: str, e: ast.Call) -> Expression:
        if name in SAME:
            first = e.args[0]
            return self.value(first.value if name == "entered" and isinstance(first, ast.Subscript) else first)
        if name in ("np.asarray", "as_float"):
            x = self.value(e.args[0])
            if self._varies(x):
                return ast.Call(e.func, [x, *e.args[1:]], e.keywords)
            known = isinstance(x, ast.Call) and ast.unparse(x.func) == "float"
            return x if known or len(e.args) + len(e.keywords) == 1 else ast.Call(expression("float"), [x], [])
        if name in ("np.ones", "np.zeros", "np.zeros_like"):
            return expression("1.0" if name == "np.ones" else "0.0")
        args = [self.value(a) for a in e.args]
        if any(map(self._varies, args)):
            return self._of_arrays(name, e, args)
        return self._of_numbers(name, e, args)

    def _of_arrays(self, name: str, e: ast.Call, args: list[Expression]) -> Expression:
        if name in REDUCED:
            more = [k.value for k in e.keywords if k.arg == "k"]
            return ast.Call(expression(REDUCED[name]), [*args, *more], [])
        if name == "masked_exp":
            return ast.Call(expression("np.exp"), args[:1], e.keywords)
        if name.startswith("np.") or name in ELEMENTWISE:
            return ast.Call(e.func, args, e.keywords)
        raise Unsupported(name)

    def _of_numbers(self, name: str, e: ast.Call, args: list[Expression]) -> Expression:
        if name in OPERATORS:
            return OPERATORS[name](*args[:3])
        if name.removeprefix("np.") in UNARY:
            return ast.Call(expression("float"), [ast.Call(e.func, args[:1], [])], [])
        if name == "masked_exp":
            return ast.Call(expression("float"), [ast.Call(expression("np.exp"), args[:1], [])], [])
        if name in WORDS:
            return ast.Call(expression(WORDS[name]), args, [])
        if name in OWN or name in self.tapes or name in ("int", "bool"):
            return ast.Call(e.func, args, [])
        if name == "integer_power":
            return ast.Call(e.func, args, e.keywords)
        if name not in REDUCED:
            raise Unsupported(name)
        one = f"{REDUCED[name]}_of_one"
        more = [k.value for k in e.keywords if k.arg == "k"]
        return ast.Call(expression(one), [*args, *more], []) if one in OWN else args[0]


# --- what the functions call -----------------------------------------------------------------------------------------


class Numbers:
    """A state of numbers (lists, in a top-k), which reads as one of arrays does."""

    __slots__ = ("n", "parts", "low", "wide")

    def __init__(self, n: int, parts: dict[str, Any], low: dict[str, float], wide: bool = False) -> None:
        self.n, self.parts, self.low, self.wide = n, parts, low, wide


def finite_numbers(x: Any) -> bool:
    return bool(np.isfinite(x).all())


def summed(x: Any) -> Any:
    """The sum, of few numbers in the order in which NumPy adds them."""
    if x.dtype.kind != "f":
        return int(whole_total(x.astype(np.int64)))
    if len(x) > 16:
        return np.add.reduce(x).item()
    values, total = x.tolist(), 0.0
    if len(values) >= 8:
        a, b, c, d, e, f, g, h, *values = values
        if len(values) == 8:
            i, j, k, m, n, o, p, q = values
            return ((a + i + (b + j)) + (c + k + (d + m))) + ((e + n + (f + o)) + (g + p + (h + q)))
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for value in values:
        total += value
    return total


def largest(x: Any) -> Any:
    return np.maximum.reduce(x).item()


def least(x: Any) -> Any:
    return np.minimum.reduce(x).item()


def some(x: Any) -> bool:
    return bool(np.logical_or.reduce(x))


def every(x: Any) -> bool:
    return bool(np.logical_and.reduce(x))


def first_largest(x: Any) -> int:
    return int(x.argmax())


def first_least(x: Any) -> int:
    return int(x.argmin())


def first_of_one(x: Any) -> int:
    return 0


def ranked(x: Any, k: int) -> tuple[list[float], list[int]]:
    """The k largest, descending, and their positions, the lower one first among equals."""
    values = x.tolist()
    if not isfinite(sum(values)):
        raise ArithmeticError
    order = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:k]
    missing = k - len(order)
    return [values[i] for i in order] + [-np.inf] * missing, order + [-1] * missing


def ranked_of_one(x: float, k: int) -> tuple[list[float], list[int]]:
    if not isfinite(x):
        raise ArithmeticError
    return [x] + [-np.inf] * (k - 1), [0] + [-1] * (k - 1)


def top(a: Any, b: Any) -> tuple[list[float], list[int]]:
    """The first k of two descending lists of k, NaN (of the first alone) before all; the lowest position among equals,
    padding last."""
    (x, p), (y, q) = a, b
    if y[0] < x[-1]:  # most chunks hold nothing that enters
        return x, p
    values, places, i, j = [], [], 0, 0
    for _ in x:
        u, v = x[i], y[j]
        if u > v or u != u or u == v and (q[j] < 0 or 0 <= p[i] <= q[j]):
            values.append(u)
            places.append(p[i])
            i += 1
        else:
            values.append(v)
            places.append(q[j])
            j += 1
    return values, places


def positions(kind: str, a: Any, b: Any) -> Any:
    better = b[0] > a[0] if kind == "argmax" else b[0] < a[0]
    return b if better or b[0] == a[0] and b[1] < a[1] else a


def larger(a: float, b: float) -> float:
    return a if a > b or a != a else b


def smaller(a: float, b: float) -> float:
    return a if a < b or a != a else b


def difference(new: float, old: float) -> float | None:
    return None if new == old else new - old


def ratio(new: float, old: float) -> float | None:
    return None if new == old else old / new


def still(shift: float | None, like: float, value: int) -> float:
    return value if shift is None else shift


def term(coefficient: float, source: float, shifts: Any = ()) -> float:
    """coefficient · source; what is not finite is left to arrays."""
    return coefficient * source


def times(coefficient: float, source: float, selects: bool = False) -> float:
    return coefficient * (0 if selects and not coefficient else source)


def scaled(
    coefficient: float, high: float, low: float, less_one: float | None, selects: bool = False
) -> tuple[float, float]:
    if selects and not coefficient:
        high = low = 0.0
    if less_one is None or less_one <= -0.5:
        return coefficient * high, (0 if less_one is not None else 0) + coefficient * low
    s, e = join.two_sum(high, high * less_one)
    return s, e + coefficient * low


def rested(total: float, rest: Any, high: float, low: Any, shifts: Any) -> tuple[float, Any]:
    if all(shift is None or shift == value for shift, value in shifts):
        return high, low
    return total, rest


def added(a: Any, b: Any) -> tuple[float, float]:
    (x, u), (y, v) = a, b
    s = x + y  # two_sum and settled, written out: a call takes as long as what they do
    t = s - x
    low = ((x - (s - t)) + (y - t)) + (u + v)
    high = s + low
    return high, low - (high - s)


def averaged(a: Any, b: Any, na: int, nb: int) -> tuple[float, float]:
    (x, u), (y, v) = (b, a) if nb > na else (a, b)
    y = ((y - x) + (v - u)) * ((na if nb > na else nb) / (na + nb))
    s = x + y
    t = s - x
    low = ((x - (s - t)) + (y - t)) + u
    high = s + low
    return high, low - (high - s)


def _binary(operator: type[ast.operator]) -> Callable[..., Expression]:
    return lambda a, b: ast.BinOp(a, operator(), b)


def _compared(operator: type[ast.cmpop]) -> Callable[..., Expression]:
    return lambda a, b: ast.Compare(a, [operator()], [b])


OPERATORS: dict[str, Callable[..., Expression]] = {
    **dict.fromkeys(("np.add", "plus", "add"), _binary(ast.Add)),
    **dict.fromkeys(("np.subtract", "subtract"), _binary(ast.Sub)),
    **dict.fromkeys(("np.multiply", "multiply", "multiplied"), _binary(ast.Mult)),
    **dict.fromkeys(("np.divide", "ratio_of"), _binary(ast.Div)),
    **dict.fromkeys(("np.where", "chosen"), lambda c, a, b: ast.IfExp(c, a, b)),
    "np.equal": _compared(ast.Eq),
    "np.not_equal": _compared(ast.NotEq),
    "np.less": _compared(ast.Lt),
    "np.less_equal": _compared(ast.LtE),
    "np.logical_or": lambda a, b: ast.BoolOp(ast.Or(), [a, b]),
    "np.logical_and": lambda a, b: ast.BoolOp(ast.And(), [a, b]),
    "np.logical_not": lambda a: ast.UnaryOp(ast.Not(), a),
    "np.square": lambda a: ast.BinOp(a, ast.Mult(), a),
}
REDUCED = {
    "sum_over": "summed",
    "max_over": "largest",
    "min_over": "least",
    "any_over": "some",
    "all_over": "every",
    "argmax_over": "first_largest",
    "argmin_over": "first_least",
    "top_over": "ranked",
}
WORDS = {
    "np.maximum": "larger",
    "np.minimum": "smaller",
    "np.absolute": "abs",
    "np.isfinite": "isfinite",
    "counted": "int",
}
ELEMENTWISE = ("counted", "as_float", "masked_exp", "integer_power")
_SINGLE = (finite_numbers, summed, largest, least, some, every, first_largest, first_least, ranked, ranked_of_one)
_JOINED = (top, positions, larger, smaller, difference, ratio, still, term, times, scaled, rested, added, averaged)
OWN: dict[str, Any] = {f.__name__: f for f in (*_SINGLE, *_JOINED, isfinite, join.two_sum)} | {
    "first_largest_of_one": first_of_one,
    "first_least_of_one": first_of_one,
    "State": Numbers,
}
