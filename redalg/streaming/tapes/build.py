"""From graph nodes to a `Tape`: kinds of numbers, order of operations, contractions; decided once per form and dtype.

The rules are those of `redalg.numeric.evaluate`: integers are int64 until they meet a float or a division, Booleans
count as 0
and 1, all inexact arithmetic happens in one float dtype, terms that vary most are added first and statistics last.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from redalg.graph.formula import operation
from redalg.graph.masked import is_statistic, masked_exponent, split_exponent
from redalg.graph.node import NEG_INF, ZERO, Levels, Node, is_inverse, rename_axes, state, walk
from redalg.graph.plan import key
from redalg.numeric import integers
from redalg.numeric.arithmetic import COMPARE, SPECIAL
from redalg.numeric.maps import EXACT_MAPS, FLOAT_MAPS, of_integers
from redalg.numeric.reductions import unfilled
from redalg.source.names import local
from redalg.streaming.tapes import kernels
from redalg.streaming.tapes.registers import Registers, widest
from redalg.streaming.tapes.tape import Aside, Load, Ramp, Step, Tape, Value

_RESULTS = {"any": "b", "all": "b", "argmax": "i", "argmin": "i"}  # kinds that are not the operand's
IN_PLACE = (np.exp, np.log, np.tanh, np.log1p, np.expm1, np.sin, np.cos)  # their result has the argument's dtype
NESTED = 16  # exponentials inside exponentials that recursion may pass
STEP = 48  # operations inside operations that it may


@dataclass(frozen=True)
class Bound:
    """A name that stands for a node: the axes it is declared along, and the node."""

    axes: tuple[str, ...]
    node: Node


class Builder(Registers):
    """Emits the steps of graph nodes.

    `kinds` gives the kind of every leaf by name, `bound` names that are computed here, `batched` the state leaves that
    arrive with a leading batch dimension, `numbers` the leaves that are Python numbers; `fixed` makes sums whose bits
    do not depend on how many rows are done together.
    """

    def __init__(
        self,
        layout: Sequence[str],
        kinds: Mapping[str, str],
        real: np.dtype,
        bound: Mapping[str, Bound] | None = None,
        batched: frozenset[str] = frozenset(),
        numbers: frozenset[str] = frozenset({"n"}),
        fixed: bool = False,
    ) -> None:
        super().__init__(layout, real)
        self.levels = Levels(STEP)
        self.kinds, self.fixed = kinds, fixed
        self.bound, self.batched, self.numbers = dict(bound or {}), batched, numbers

    def tape(
        self,
        name: str,
        roots: Sequence[Node],
        orders: Sequence[Sequence[str]],
        results: Sequence[str],
        spread: bool = True,
        inexact: bool = False,
    ) -> tuple[Tape, list[str]]:
        """The function `name` that computes the roots, and their kinds. Results never share memory with an input.

        With `spread` they are broadcast along axes they lack; `inexact` turns integer results into floats.
        """
        values = [self._list(root) if _is_list(root) else self.value(root) for root in roots]
        found = [self.inexact(v) if inexact else v for v in values]
        return self.closed(name, found, orders, spread, results), [v.kind for v in found]

    # --- nodes ---------------------------------------------------------------------------------------------------

    def value(self, node: Node) -> Value:
        """The register that holds a node's value; every node is emitted once."""
        if node not in self.memo:
            for inner in (*long_chain(node, self.memo), *self.levels.below(node)):
                self.value(inner)
            self.memo[node] = self._emit(node)
        return self.memo[node]

    def _emit(self, node: Node) -> Value:
        op = node.op
        if op in ("tensor", "state"):
            return self._leaf(node)
        if op in ("size", "index"):
            return self._position(node)
        if op in ("true", "false"):
            return self.number(op == "true")
        rule = getattr(self, f"_{op}", None)
        return operation(self, node, map(self.value, node.args)) if rule is None else rule(node)

    def _leaf(self, node: Node) -> Value:
        name, axes = key(node), node.attr.axes
        if name in self.bound:
            known = self.bound[name]
            renaming = {old: new for old, new in zip(known.axes, axes, strict=True) if old != new}
            return self.value(rename_axes(known.node, renaming) if renaming else known.node)
        if name in self.numbers:
            v = self._register(self.kinds[name], scalar=True)
            self.loads.append(Load(v.reg, name, (), (), None, False))
            return v
        batch = (0,) if name in self.batched else ()
        order = sorted(range(len(axes)), key=lambda d: self.position[axes[d]])
        index: list[Any] = [None] * self.rank
        for place in [0] * len(batch) + [self.position[axis] for axis in axes]:
            index[place] = slice(None)
        perm = (*batch, *(d + len(batch) for d in order))
        kind = self.kinds[name]
        v = self._register(kind, (*axes, *("",) * len(batch)))
        self.loads.append(Load(v.reg, name, perm, tuple(index), self.dtype(kind), self.fixed))
        return v

    def _position(self, node: Node) -> Value:
        if node.op == "size":
            v = self._register("i", scalar=True)
            self.lengths[v.reg] = node.attr
            return v
        shape = [1] * self.rank
        shape[self.position[node.attr]] = -1
        v = self._register("i", (node.attr,))
        self.ramps.append(Ramp(v.reg, node.attr, tuple(shape)))
        return v

    # --- arithmetic ----------------------------------------------------------------------------------------------

    def _binary(self, ufunc: np.ufunc, a: Value, b: Value) -> Value:
        kind = widest((a.kind, b.kind))
        if kind == "i" and ufunc in integers.CHECKED:
            return self.step(integers.CHECKED[ufunc], kind, a, b)
        return self.step(ufunc, kind, a, b, ufunc=True)

    def _add(self, node: Node) -> Value:
        """Terms that vary most first and statistics last, so that u in u - max u rounds as it does below the max."""
        terms = sorted(node.args, key=lambda t: (is_statistic(t, node.axes), -len(t.axes)))
        minus = [
            i > 0 and t.op == "mul" and t.args[0].op == "const" and t.args[0].attr == -1 for i, t in enumerate(terms)
        ]
        values = [self._product(t.args[1:]) if m else self.value(t) for t, m in zip(terms, minus, strict=True)]
        values = self.unified(values)
        total = values[0]
        for value, negative in zip(values[1:], minus[1:], strict=True):
            total = self._binary(np.subtract if negative else np.add, total, value)
        return total

    def _mul(self, node: Node) -> Value:
        return self._product(_elements_first(node))

    def _product(self, factors: Sequence[Node]) -> Value:
        above, below = self._over_and_under(factors)
        result = self._multiplied(self.unified(above)) if above else None
        if not below:
            assert result is not None
            return result
        counts = [self.counted(v) for v in below]
        if widest(v.kind for v in counts) == "i" and self.real.itemsize >= 8 and (result is None or result.kind == "i"):
            top = result if result is not None else self.number(1)
            return self.step(kernels.ratio_of, "f", top, self._multiplied(counts), dtype=self.real)
        bottom = self._multiplied([self.inexact(v) for v in below])
        top = self.inexact(result) if result is not None else self._one()
        return self._binary(np.true_divide, top, bottom)

    def _over_and_under(self, factors: Sequence[Node]) -> tuple[list[Value], list[Value]]:
        """Factors above and below the line; a rational number is divided by its denominator, exactly."""
        above, below = [], []
        for f in factors:
            if is_inverse(f):
                below.append(self._power(self.value(f.args[0]), -f.args[1].attr))
            elif f.op == "const" and f.attr.denominator > 1 and abs(f.attr.numerator) < 2**53 > f.attr.denominator:
                above += [self.number(f.attr.numerator)] if f.attr.numerator != 1 else []
                below.append(self.number(f.attr.denominator))
            else:
                above.append(self.value(f))
        return above, below

    def _one(self) -> Value:
        return self.number(1.0)

    def _multiplied(self, values: Sequence[Value]) -> Value:
        values = sorted(values, key=lambda v: len(v.axes))
        result = values[0]
        for v in values[1:]:
            result = self._binary(np.multiply, result, v)
        return result

    def _pow(self, node: Node) -> Value:
        base, exponent = node.args
        if exponent.op != "const":
            a, b = self.inexact(self.value(base)), self.inexact(self.value(exponent))
            return self._binary(np.power, a, b)
        if exponent.attr < 0:
            return self._binary(
                np.true_divide, self._one(), self.inexact(self._power(self.value(base), -exponent.attr))
            )
        return self._power(self.value(base), exponent.attr)

    def _power(self, base: Value, e: Fraction) -> Value:
        base = self.counted(base)
        if e == 1:
            return base
        if e.denominator == 1 and base.kind == "i":
            return self.step(integers.power, base.kind, base, e=int(e))
        if e == 2:
            return self.step(np.square, base.kind, base, ufunc=True)
        if e.denominator == 1 and e <= 4:
            return self.step(kernels.integer_power, base.kind, base, e=int(e))
        base = self.inexact(base)
        if e == Fraction(1, 2):
            return self.step(np.sqrt, base.kind, base, ufunc=True)
        if e == Fraction(3, 2):
            return self.step(kernels.three_halves, base.kind, base)
        return self.step(kernels.constant_power, base.kind, base, e=float(e))

    # --- maps ----------------------------------------------------------------------------------------------------

    def special(self, name: str) -> Value:
        return self.number(SPECIAL[name])

    def extremum(self, op: str, *values: Value) -> Value:
        return self._binary(np.maximum if op == "maximum" else np.minimum, *self.unified(values))

    def unary(self, name: str, x: Value) -> Value:
        if name in FLOAT_MAPS:
            return self._unary(FLOAT_MAPS[name], self.inexact(x))
        x = self.counted(x)
        kind = "f" if x.kind == "c" and name in ("abs", "re", "im") else x.kind
        if kind == "i":
            return self.step(of_integers, kind, x, owned=False, op=name)
        return self._unary(EXACT_MAPS[name], x, kind, owned=False)

    def compare(self, op: str, *values: Value) -> Value:
        if widest(v.kind for v in values) != "i":  # NumPy has no integers beyond int64 beside floats
            values = tuple(self.inexact(v) if v.kind == "i" and v.reg in self.known else v for v in values)
        return self.step(COMPARE[op], "b", *values)

    def _unary(self, fn: Callable[..., Any], x: Value, kind: str = "", owned: bool = True) -> Value:
        if isinstance(fn, functools.partial):
            return self.step(fn.func, kind or x.kind, x, owned=owned, **fn.keywords)
        return self.step(fn, kind or x.kind, x, ufunc=fn in IN_PLACE, owned=owned)

    def _where(self, node: Node) -> Value:
        c, then, other = (self.value(a) for a in node.args)
        if node.args[1] is NEG_INF and other.kind == "i" and _is_negative(node.args[0]):
            return self.step(kernels.listed, "i", other, self.value(node.args[0].args[0]), dtype=self.dtype("f"))
        if not node.is_boolean:
            then, other = self.unified([then, other])
        kind = widest((then.kind, other.kind))
        dtype = self.dtype(kind)
        if kind == "i":
            return self.step(integers.select, kind, c, then, other)
        if then.scalar and other.scalar:
            return self.step(kernels.chosen, kind, c, then, other, dtype=dtype)
        return self.step(np.where, kind, c, then, other)

    def conjunction(self, values: Iterable[Value]) -> Value:
        return functools.reduce(functools.partial(self.step, np.logical_and, "b"), values)

    def disjunction(self, values: Iterable[Value]) -> Value:
        return functools.reduce(functools.partial(self.step, np.logical_or, "b"), values)

    def negation(self, value: Value) -> Value:
        return self.step(np.logical_not, "b", value)

    def cast(self, value: Value, name: str) -> Value:
        x = self.inexact(value) if name.startswith(("float", "bfloat")) else self.counted(value)
        kind = "b" if name == "bool" else x.kind
        return self.step(kernels.cast_to, kind, x, owned=False, name=name, dtype=self.dtype(x.kind))

    def _exp(self, node: Node) -> Value:
        """exp, and 0 where the element terms are -inf whatever the statistics are (unless NaN)."""
        arg = node.args[0]
        plain = self.inexact(self.value(arg))
        masked = masked_exponent(arg)
        if masked is None or plain.kind == "c":
            return self._unary(np.exp, plain)
        split = split_exponent(arg)
        watched = self.inexact(self.value(split.c)) if split else plain
        check, side = self._aside(masked)
        made = {step.out for step in side}
        outer = tuple(dict.fromkeys(i for step in side for i in step.ins if i not in made)) if side else (check.reg,)
        aside = Aside(watched.reg, split is not None, tuple(side), check.reg)
        args = [plain, watched, *(self.values[i] for i in outer)]
        return self.step(kernels.masked_exp, plain.kind, *args, free=plain.axes, ufunc=True, aside=aside)

    def _aside(self, node: Node) -> tuple[Value, list[Step]]:
        """Emit a node into a list of its own, to be executed only when it is needed."""
        main, memo, levels = self.steps, dict(self.memo), self.levels.copy()
        self.steps = []
        try:
            check = self.value(node)
            return check, self.steps
        finally:
            self.steps, self.memo, self.levels = main, memo, levels

    # --- reductions ----------------------------------------------------------------------------------------------

    def _reduce(self, node: Node) -> Value:
        kind, axes = node.attr.kind, node.attr.axes
        places = tuple(self.position[a] for a in axes)
        if kind == "sum" and (groups := contraction_groups(node)):
            return self._contraction(groups, axes, places)
        bodies = [self._along(self.value(b), axes) for b in node.args]
        free = frozenset().union(*(b.axes for b in bodies)) - set(axes)
        if kind == "monoid":
            return self._fold(node, bodies, places, free)
        x = bodies[0] if kind in ("any", "all") else self.counted(bodies[0])
        if not axes and kind in ("sum", "prod", "max", "min") and node.attr.extra is None:
            return x
        if kind.startswith("topk"):
            return self._top(node, x, places, free)
        if kind == "sum" and self.fixed:
            return self.step(kernels.fixed_sum, x.kind, x, axes=places, free=free)
        over = getattr(kernels, f"number_{kind}_over" if node.attr.extra == "ignore_nan" else f"{kind}_over")
        return self.step(over, _RESULTS.get(kind, x.kind), x, axes=places, free=free)

    def _contraction(self, groups: Sequence[Sequence[Node]], axes: Sequence[str], places: tuple[int, ...]) -> Value:
        a, b = self._rows_first(*self.unified([self._product(g) for g in groups]))
        product = kernels.fixed_contraction if self.fixed else kernels.contraction
        free = (a.axes | b.axes) - set(axes)
        return self.step(product, widest((a.kind, b.kind)), a, b, axes=places, free=free)

    def _rows_first(self, a: Value, b: Value) -> tuple[Value, Value]:
        """The factor whose own axes come first in the layout on the left: so the product lies as the layout does."""
        own = (a.axes - b.axes, b.axes - a.axes)
        first = [min((self.position[x] for x in s if x), default=self.rank) for s in own]
        return (a, b) if first[0] < first[1] else (b, a)

    def _along(self, v: Value, axes: Sequence[str]) -> Value:
        """The value written out along axes it does not have, as an array."""
        if v.axes >= set(axes) and not v.scalar:
            return v
        lengths = [self.value(Node("size", (), a)) for a in axes]
        places = [self.position[a] for a in axes]
        statics = {"places": tuple(places), "rank": self.rank, "dtype": self.dtype(v.kind)}
        out = self._register(v.kind, v.axes | set(axes))
        self.steps.append(Step(kernels.along, out.reg, (v.reg, *(n.reg for n in lengths)), statics))
        return out

    def _list(self, root: Node) -> Value:
        """A list that is a result: where it is not full, one of integers holds the least, and -oo in what reads it."""
        axes = root.attr.axes
        x = self.counted(self._along(self.value(root.args[0]), axes))
        return self._ranked(root, x, tuple(self.position[a] for a in axes), x.axes - set(axes))

    def _top(self, node: Node, x: Value, places: tuple[int, ...], free: frozenset[str]) -> Value:
        found = self._ranked(node, x, places, free)
        if x.kind != "i" or node.attr.kind != "topk_values":
            return found
        indices = self.value(Node("reduce", node.args, replace(node.attr, kind="topk_indices")))
        return self.step(unfilled, "i", found, indices, free=found.axes)

    def _ranked(self, node: Node, x: Value, places: tuple[int, ...], free: frozenset[str]) -> Value:
        """One of the two arrays of a list."""
        k, new_axis = node.attr.extra
        key = ("top", x.reg, node.attr.axes, k, new_axis)
        if key not in self.memo:
            pair = self._register(x.kind, free | {new_axis})
            statics = {"k": k, "axes": places, "target": self.position[new_axis]}
            self.steps.append(Step(kernels.top_over, pair.reg, (x.reg,), statics))
            self.memo[key] = pair
        which = 0 if node.attr.kind == "topk_values" else 1
        kind = x.kind if which == 0 else "i"
        return self.step(operator.getitem, kind, self.memo[key], free=free | {new_axis}, item=which)

    def _fold(self, node: Node, bodies: Sequence[Value], places: tuple[int, ...], free: frozenset[str]) -> Value:
        monoid, part = node.attr.extra
        kinds, combine = monoid_combine(monoid, tuple(b.kind for b in bodies), self.real)
        bodies = [self._as(b, kind) for b, kind in zip(bodies, kinds, strict=True)]
        key = ("fold", monoid, tuple(b.reg for b in bodies), places)
        if key not in self.memo:
            parts = self._register(kinds[0], free)
            statics = {"axes": places, "combine": combine}
            self.steps.append(Step(kernels.fold_over, parts.reg, tuple(b.reg for b in bodies), statics))
            self.memo[key] = parts
        return self.step(operator.getitem, kinds[part], self.memo[key], free=free, item=part)

    def _as(self, v: Value, kind: str) -> Value:
        return self.inexact(v) if kind in "fc" else self.counted(v) if kind == "i" else v


def monoid_combine(monoid: Any, kinds: tuple[str, ...], real: np.dtype) -> tuple[tuple[str, ...], Tape]:
    """A user's monoid as a function of flat arrays, and the kinds its parts settle at."""
    key = (monoid, kinds, real)
    if key not in _MONOIDS:
        _MONOIDS[key] = _monoid_combine(monoid, kinds, real)
    return _MONOIDS[key]


_MONOIDS: dict[Any, Any] = {}


def _monoid_combine(monoid: Any, kinds: tuple[str, ...], real: np.dtype) -> tuple[tuple[str, ...], Tape]:
    names = [[f"{side}{i}" for i in range(monoid.width)] for side in "ab"]
    a, b = ([state(name) for name in side] for side in names)
    roots = monoid.combine_nodes(tuple(a), tuple(b))
    everything = names[0] + names[1]
    while True:
        known = dict(zip(everything, kinds * 2, strict=True))
        builder = Builder((), known, real, batched=frozenset(everything))
        called = f"combine_{local(monoid.name)}" + ("" if {*kinds} == {"f"} else f"_{''.join(kinds)}")
        tape, found = builder.tape(called, roots, [()] * len(roots), [f"part{i}" for i in range(monoid.width)])
        settled = tuple(widest(pair) for pair in zip(kinds, found, strict=True))
        if settled == kinds:
            return kinds, tape.taking(everything)
        kinds = settled


def long_chain(node: Node, known: Container[Node]) -> list[Node]:
    """The exponentials inside one, innermost first, where they are too many to be emitted by recursion."""
    inner = [n for n in walk(*node.args, done=known) if n.op == "exp"] if node.op == "exp" else []
    return inner if len(inner) > NESTED else []


def _is_negative(condition: Node) -> bool:
    """Whether it says that an entry of a list is not there: its position is less than 0."""
    return condition.op == "lt" and condition.args[1] is ZERO and condition.args[0].op in ("state", "reduce")


def _elements_first(product: Node) -> tuple[Node, ...]:
    """The factors (x/c)·2 for (2/c)·x, which kernels multiply by row by row: 2/c may be infinite where x/c is not."""
    quotient, *others = product.args
    if quotient.op != "mul" or not others or not others[0].axes > quotient.axes:
        return product.args
    below = [f for f in quotient.args if is_inverse(f)]
    above = [f for f in quotient.args if f not in below]
    if any(f.op != "const" for f in above):
        return product.args
    return (Node("mul", (others[0], *below)), *above, *others[1:])


def _is_list(node: Node) -> bool:
    return node.op == "reduce" and node.attr.kind.startswith("topk")


def contraction_groups(node: Node) -> tuple[tuple[Node, ...], tuple[Node, ...]] | None:
    """The factors of a sum of products as two groups for a matrix product, where writing them out would cost more."""
    body, reduced = node.args[0], frozenset(node.attr.axes)
    if body.op != "mul" or not reduced:
        return None
    wide = max(body.args, key=lambda f: (len(f.axes & reduced), len(f.axes)))
    one = tuple(f for f in body.args if f.axes <= wide.axes)
    other = tuple(f for f in body.args if f not in one)
    axes = frozenset().union(*(f.axes for f in other))
    if not other or not reduced <= axes or not reduced <= wide.axes or not axes - wide.axes or not wide.axes - axes:
        return None
    return one, other
