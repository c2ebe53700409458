"""The same printed functions for a state of single numbers: Python's floats, which round as arrays do and cost a tenth.

A pass over statements: what varies along the stream stays a NumPy array of one dimension (`vectors`), everything else
becomes a number, and calls of the functions that join states become calls of those below. Where something is not
finite these functions give up (None, or an ArithmeticError): arrays then do it again, by the definition's rules.

Streams of float32 have NumPy's numbers of that type (`single`), which cost a third of what arrays do: operations of
these with Python's floats round to float32, as those of arrays do, and two of Python's own must not meet.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    expressions,
    function,
    names,
    walk,
)
from redalg.streaming.tapes import join
from redalg.streaming.tapes.inline import inlined
from redalg.streaming.tapes.kernels import counted, integer_power
from redalg.streaming.tapes.tape import Tape, dtype_names

UNARY = ("exp", "expm1", "log", "log1p", "sqrt", "tanh", "sin", "cos", "exp2", "log2")  # on numbers as on arrays
SAME = ("entered", "left", "single", "REAL", "WIDE", "usable", "np.broadcast_to")


class Unsupported(Exception):
    """A function that has no variant for numbers."""


UNROLLED = 16  # elements of a chunk up to which operations on each of them are faster than NumPy's
LINES = 512  # that such a function may have
ORDINARY = 2.0**-100


def written(tape: Tape, vectors: Sequence[str], length: int = 1, single: bool = False) -> Function:
    """The function of a tape for numbers; the keys `vectors` vary along the stream, whose chunks have this length.

    Raises: Unsupported.
    """
    tapes = {call.name: written(call, (), single=single) for call in tape.calls if isinstance(call, Tape)}
    lists = {p.name for p, key in zip(tape.function.parameters, tape.keys, strict=False) if key in vectors}
    try:
        made = _Unrolled(lists, frozenset(tapes), single, length).function(tape.function)
    except Unsupported:
        made = _Scalar(lists, frozenset(tapes), single).function(tape.function)
    return inlined(made, {**WRITTEN, **tapes})


def numbers(function: Function, real: np.dtype, known: Mapping[str, Any] = {}) -> Callable[..., Any]:
    """What such a function is called by, with parameters that are known."""
    own = {"as_float": as_float, "counted": counted, "integer_power": integer_power, **OWN}
    own |= OF_SINGLE if real == np.float32 else {}
    return executed(function, {**dtype_names(real), **own, **known})


def uses_arrays(function: Function) -> bool:
    """Whether some operation is NumPy's, which warns of what is not finite."""
    calls = {
        ast.unparse(c.func)
        for s in walk(function.body)
        for e in expressions(s)
        for c in ast.walk(e)
        if isinstance(c, ast.Call)
    }
    return any(name.startswith("np.") or name in WARNING for name in calls)


class _Scalar:
    """Maps statements in order; `arrays` are the names that hold arrays at the moment."""

    def __init__(self, arrays: set[str], tapes: frozenset[str], single: bool) -> None:
        self.arrays, self.tapes, self.single = arrays, tapes, single
        self.tests: list[str] = []  # that hold where a statement stands

    def function(self, f: Function) -> Function:
        return replace(f, body=tuple(self._block(f.body)))

    def _block(self, block: Block) -> Iterator[Statement]:
        for s in block:
            if isinstance(s, Assign):
                if names(s.targets[0]) != {"masked"}:
                    yield from self._assigned(s)
            elif isinstance(s, If):
                yield from self._if(s)
            elif isinstance(s, Return) and s.value is not None:
                yield replace(s, value=self.number(s.value))
            else:
                raise Unsupported(type(s).__name__)

    def _assigned(self, s: Assign) -> Iterator[Statement]:
        value = self.value(s.value)
        for target in s.targets:
            change = self.arrays.add if self._varies(value) else self.arrays.discard
            for name in names(target):
                change(name)
        yield replace(s, value=value)

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
        self.tests.append(ast.unparse(s.test))
        yield replace(s, body=tuple(self._block(s.body)))
        self.tests.pop()

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
            known = isinstance(x, ast.Call) and ast.unparse(x.func) == self._real
            return x if known or len(e.args) + len(e.keywords) == 1 else self._rounded(x)
        if name in ("np.ones", "np.zeros", "np.zeros_like"):
            return self._rounded(ast.Constant(1.0 if name == "np.ones" else 0.0))
        args = [self.value(a) for a in e.args]
        if any(map(self._varies, args)):
            return self._of_arrays(name, e, args)
        return self._of_numbers(name, e, args)

    @property
    def _real(self) -> str:
        """What makes a float of a number."""
        return "rounded" if self.single else "float"

    def _rounded(self, x: Expression) -> Expression:
        """A number as a float of the stream's type; constants are written as they are, but for float32."""
        constant = isinstance(x, ast.Constant) and isinstance(x.value, float)
        return x if constant and not self.single else ast.Call(expression(self._real), [x], [])

    def _typed(self, name: str, args: list[Expression]) -> list[Expression]:
        """What an operator is given, with constants of the stream's type where no operation rounds them."""
        constant = [isinstance(a, ast.Constant) and isinstance(a.value, float) for a in args]
        if not self.single or not (name in CHOICES or all(constant)):
            return args
        return [self._rounded(a) if c else a for a, c in zip(args, constant, strict=True)]

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
            return OPERATORS[name](*self._typed(name, args)[:3])
        if name == "rested":
            return self._rested(*args)
        plain = "np.exp" if name == "masked_exp" else name
        if plain.removeprefix("np.") in UNARY:
            return self._rounded(ast.Call(expression(plain), args[:1], []))
        if name in WORDS:
            return ast.Call(expression(WORDS[name]), args, [])
        if name in {*OWN, *WRITTEN, *self.tapes, "int", "bool"}:
            return ast.Call(e.func, args, [])
        if name == "integer_power":
            return ast.Call(e.func, args, e.keywords)
        if name not in REDUCED:
            raise Unsupported(name)
        one = f"{REDUCED[name]}_of_one"
        more = [k.value for k in e.keywords if k.arg == "k"]
        return ast.Call(expression(one), [*args, *more], []) if one in OWN else args[0]

    def _rested(
        self, total: Expression, rest: Expression, high: Expression, low: Expression, shifts: Expression
    ) -> Expression:
        """What a sum is at the new anchors, (total, rest); what it was, where all of them have stayed."""
        assert isinstance(shifts, ast.Tuple)
        moved: list[Expression] = []
        for pair in shifts.elts:
            assert isinstance(pair, ast.Tuple)
            shift, stays = pair.elts
            if isinstance(shift, ast.Constant):
                continue
            some: Expression = ast.Compare(shift, [ast.IsNot()], [ast.Constant(None)])
            if not (isinstance(stays, ast.Constant) and stays.value == 0):  # unlike numbers have a difference
                some = ast.BoolOp(ast.And(), [some, ast.Compare(shift, [ast.NotEq()], [stays])])
            moved.append(some)
        new, old = ast.Tuple([total, rest], ast.Load()), ast.Tuple([high, low], ast.Load())
        if not moved:
            return old
        test = moved[0] if len(moved) == 1 else ast.BoolOp(ast.Or(), moved)
        return new if ast.unparse(test) in self.tests else ast.IfExp(test, new, old)


class _Unrolled(_Scalar):
    """The same for chunks of one length: every element is a number with a name of its own."""

    def __init__(self, arrays: set[str], tapes: frozenset[str], single: bool, length: int) -> None:
        super().__init__(arrays, tapes, single)
        self.length, self.given = length, {name: name for name in arrays}  # names of what was given

    def function(self, f: Function) -> Function:
        if not 1 < self.length <= UNROLLED or not self.arrays:
            raise Unsupported("other lengths")
        numbers = "{}" if self.single else "{}.tolist()"
        begin = [Assign(targets=(self._tuple(name),), value=expression(numbers.format(name))) for name in self.given]
        body = super().function(f).body
        if len(body) > LINES:
            raise Unsupported("functions that take too long to compile")
        return replace(f, body=(*begin, *body))

    def _tuple(self, name: str) -> Expression:
        return ast.Tuple([ast.Name(x, ast.Store()) for x in self._each(name)], ast.Store())

    def _each(self, name: str) -> list[str]:
        return [f"{name}_{i}" for i in range(self.length)]

    def _assigned(self, s: Assign) -> Iterator[Statement]:
        (target, *more), value = s.targets, self.value(s.value)
        if not self._varies(value):
            for name in names(ast.Tuple(list(s.targets), ast.Store())):
                self.arrays.discard(name)
                self.given.pop(name, None)
            yield replace(s, value=value)
            return
        if more or not isinstance(target, ast.Name):
            raise Unsupported("arrays of several names")
        elements = self._elements(value)
        self.given.pop(target.id, None)
        if isinstance(value, ast.Name) and value.id in self.given:
            self.given[target.id] = self.given[value.id]
        self.arrays.add(target.id)
        for name, element in zip(self._each(target.id), elements, strict=True):
            yield Assign(targets=(ast.Name(name, ast.Store()),), value=element)

    def _if(self, s: If) -> Iterator[Statement]:
        if names(s.test) & self.arrays:
            raise Unsupported("a condition on elements")
        yield from super()._if(s)

    def _elements(self, e: Expression) -> list[Expression]:
        if isinstance(e, ast.Name):
            return [ast.Name(name, ast.Load()) for name in self._each(e.id)]
        assert isinstance(e, ast.Call)
        name = ast.unparse(e.func)
        if name in ("np.asarray", "as_float"):
            return self._elements(e.args[0])
        if name not in EACH:
            raise Unsupported(name)
        args = [self._elements(a) if self._varies(a) else [a] * self.length for a in e.args]
        return [self._of_numbers(name, e, list(those)) for those in zip(*args, strict=True)]

    def _of_arrays(self, name: str, e: ast.Call, args: list[Expression]) -> Expression:
        if name == "sum_over":
            return _sum(self._elements(args[0]))
        if name in REDUCED:
            if not (isinstance(args[0], ast.Name) and args[0].id in self.given):
                raise Unsupported(name)
            args = [ast.Name(self.given[args[0].id], ast.Load()), *args[1:]]
        return super()._of_arrays(name, e, args)


def _sum(x: list[Expression]) -> Expression:
    """A sum in the order in which NumPy adds up to 16 numbers, see `summed`."""

    def of(terms: Iterable[Expression]) -> Expression:
        return functools.reduce(_binary(ast.Add), terms)

    if len(x) < 8:
        return of([ast.Constant(0.0), *x])
    eight = [of(pair) for pair in zip(x[:8], x[8:], strict=True)] if len(x) == 16 else x[:8]
    pairs = [of(eight[i : i + 2]) for i in range(0, 8, 2)]
    total = of([of(pairs[:2]), of(pairs[2:])])
    return total if len(x) == 16 else of([total, *x[8:]])


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


def rounded(x: Any) -> Any:
    return x if type(x) is np.float32 else np.float32(x)


def summed_singly(x: Any) -> Any:
    return np.add.reduce(x) if x.dtype == np.float32 else summed(x)


def largest_single(x: Any) -> Any:
    return np.maximum.reduce(x) if x.dtype == np.float32 else largest(x)


def least_single(x: Any) -> Any:
    return np.minimum.reduce(x) if x.dtype == np.float32 else least(x)


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


def ordinary(*numbers: Any) -> bool:
    """Whether products of up to six of these numbers, and of their differences, are normal numbers or 0."""
    values = [x.tolist() if isinstance(x, np.ndarray) else [x] for x in numbers]
    return all(not x or abs(x) > ORDINARY for one in values for x in one)


def later(at: list[int], by: int) -> list[int]:
    """Positions later by `by`; padding (-1) stays."""
    return [i if i < 0 else i + by for i in at]


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


def times(coefficient: float, source: float, selects: bool) -> float:
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


# Sums with what rounding takes away, `two_sum` and `settled` written out; what is not finite is left to arrays.
WRITTEN = {
    f.name: f
    for f in map(
        function,
        (
            """
def two_sum(a, b):
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)
""",
            """
def added(x, u, y, v):
    s = x + y
    t = s - x
    low = ((x - (s - t)) + (y - t)) + (u + v)
    high = s + low
    return high, low - (high - s)
""",
            """
def averaged(x, u, y, v, na, nb):
    if nb > na:
        step = ((x - y) + (u - v)) * (na / (na + nb))
        s = y + step
        t = s - y
        low = ((y - (s - t)) + (step - t)) + v
    else:
        step = ((y - x) + (v - u)) * (nb / (na + nb))
        s = x + step
        t = s - x
        low = ((x - (s - t)) + (step - t)) + u
    high = s + low
    return high, low - (high - s)
""",
        ),
    )
}


def _binary(operator: type[ast.operator]) -> Callable[..., Expression]:
    return lambda a, b: ast.BinOp(a, operator(), b)


def _compared(operator: type[ast.cmpop]) -> Callable[..., Expression]:
    return lambda a, b: ast.Compare(a, [operator()], [b])


def _product(a: Expression, b: Expression, *_: Expression) -> Expression:
    return a if isinstance(b, ast.Constant) and b.value == 1.0 else ast.BinOp(a, ast.Mult(), b)


def _selected(a: Expression, b: Expression, selects: Expression | None = None) -> Expression:
    """a · b, whatever b is where a selects nothing."""
    return _product(a, b) if selects is None else ast.Call(expression("times"), [a, b, selects], [])


def _moved(by: Callable[[Expression, Expression], Expression]) -> Callable[..., Expression]:
    """How far an anchor moves, None where it stays."""
    return lambda new, old: ast.IfExp(_compared(ast.Eq)(new, old), ast.Constant(None), by(new, old))


def _rescaled(new: Expression, old: Expression, *largest: Expression) -> Expression:
    """How a unit moves, None where it stays or where all that it measures is 0."""
    zero: list[Expression] = [_compared(ast.Eq)(x, ast.Constant(0)) for x in largest]
    zeros = zero[0] if len(zero) == 1 else ast.BoolOp(ast.And(), zero)
    stays = ast.BoolOp(ast.Or(), [_compared(ast.Eq)(new, old), zeros])
    return ast.IfExp(stays, ast.Constant(None), ast.BinOp(old, ast.Div(), new))


def _still(shift: Expression, like: Expression, value: Expression) -> Expression:
    return ast.IfExp(ast.Compare(shift, [ast.Is()], [ast.Constant(None)]), value, shift)


OPERATORS: dict[str, Callable[..., Expression]] = {
    "difference": _moved(_binary(ast.Sub)),
    "ratio": _moved(lambda new, old: ast.BinOp(old, ast.Div(), new)),
    "rescaled": _rescaled,
    "still": _still,
    "term": _product,
    "times": _selected,
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
EACH = {
    *(f"np.{name}" for name in ("add", "subtract", "multiply", "divide", "square", "absolute")),
    *("plus", "add", "subtract", "multiply", "multiplied", "integer_power"),
}  # what gives the same bits for a single number
CHOICES = ("np.where", "chosen")
WARNING = {f.__name__ for f in (summed, largest, least, finite_numbers)}
_SINGLE = (finite_numbers, summed, largest, least, some, every, first_largest, first_least, ranked, ranked_of_one)
_JOINED = (ordinary, later, top, positions, larger, smaller, times, scaled)
OWN: dict[str, Any] = {f.__name__: f for f in (*_SINGLE, *_JOINED, isfinite)} | {
    "first_largest_of_one": first_of_one,
    "first_least_of_one": first_of_one,
    "State": Numbers,
}
OF_SINGLE = {"rounded": rounded, "summed": summed_singly, "largest": largest_single, "least": least_single}
