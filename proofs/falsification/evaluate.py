"""Evaluates terms on small streams: every array of a term over its free axes, from exact values of its leaves.

A leaf is given as {index tuple: value} in the order of its axes; a table of a term holds one value per position of its
free axes, row-major in the order of their names. Nothing is recursive in the depth of a term, and the work is counted
before it is done. The one deviation from IEEE arithmetic is that of the language: in exp(u - max u) the element terms
decide where u is -oo, whatever the maximum is (`Evaluation.exponent`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

from redalg.proofs.document.document import Monoid
from redalg.proofs.document.terms import UNARY, Term, walk
from redalg.proofs.document.work import spend
from redalg.proofs.numbers.value_maps import NEG_INF, UNKNOWN, Value
from redalg.proofs.numbers.values import Numbers

BUDGET = 200_000
Place = Mapping[str, int]
Product = tuple[tuple[Term, ...], tuple[Term, ...]]  # factors, and what the sum they stood in was multiplied by
Leaves = Mapping[str, Mapping[tuple[int, ...], Value]]


class TooMuch(ValueError):
    """The evaluation would cost more than its budget."""


class Unfit(ValueError):
    """The values given do not fit the term: a leaf without a value, an axis without a length."""


def new_axes(*roots: Term) -> dict[str, int]:
    """The axes that top-k reductions make, with their lengths."""
    found = (t.attr for t in walk(*roots) if t.op == "reduce" and t.attr.kind.startswith("topk"))
    return {r.extra[1]: r.extra[0] for r in found}


Rule = Callable[[Numbers, Sequence[Value]], Value]
FOLDED = frozenset({"add", "mul", "and", "or"})
_OF_OPERANDS: dict[str, Rule] = {
    "add": lambda n, row: n.add(row),
    "mul": lambda n, row: n.mul(row),
    "and": lambda n, row: n.conjunction(row),
    "or": lambda n, row: n.disjunction(row),
    "maximum": lambda n, row: n.extremum("max", row),
    "minimum": lambda n, row: n.extremum("min", row),
    "eq": lambda n, row: n.compare("eq", *row),
    "ne": lambda n, row: n.compare("ne", *row),
    "lt": lambda n, row: n.compare("lt", *row),
    "le": lambda n, row: n.compare("le", *row),
    "pow": lambda n, row: n.power(*row),
    "where": lambda n, row: n.select(*row),
    "not": lambda n, row: n.negation(*row),
}
_OF_ELEMENTS: dict[str, Rule] = {
    "sum": lambda n, part: n.add(part),
    "prod": lambda n, part: n.mul(part),
    "any": lambda n, part: n.disjunction(part),
    "all": lambda n, part: n.conjunction(part),
    "max": lambda n, part: n.extremum("max", part),
    "min": lambda n, part: n.extremum("min", part),
    "argmax": lambda n, part: n.position("argmax", part),
    "argmin": lambda n, part: n.position("argmin", part),
}


class Evaluation:
    """Values of terms for given leaves, remembering everything it has computed.

    `lengths` are the lengths of the arrays along each axis, `sizes` what size(axis) means where it differs, `offsets`
    where index(axis) starts to count, `starts` where a leaf is read from along an axis. With `casts` false a cast
    changes nothing (the assumption that it commutes).
    """

    def __init__(
        self,
        numbers: Numbers,
        leaves: Leaves,
        lengths: Mapping[str, int],
        *,
        sizes: Mapping[str, int] | None = None,
        offsets: Mapping[str, int] | None = None,
        starts: Mapping[str, int] | None = None,
        monoids: Sequence[Monoid] = (),
        casts: bool = True,
        budget: int = BUDGET,
    ) -> None:
        self.numbers, self.leaves, self.lengths = numbers, leaves, dict(lengths)
        self.sizes, self.offsets, self.starts = {**lengths, **(sizes or {})}, offsets or {}, starts or {}
        self.monoids, self.casts, self.budget, self.spent = monoids, casts, budget, 0
        self.tables: dict[Term, list[Value]] = {}
        self.orders: dict[Term, tuple[str, ...]] = {}
        self.lists: dict[Any, list[Any]] = {}
        self.maps: dict[Any, list[int]] = {}

    # --- reading ---

    def table(self, root: Term) -> list[Value]:
        """The values of a term at all positions of its free axes."""
        if root not in self.tables:
            for axis, k in new_axes(root).items():
                if self.lengths.setdefault(axis, k) != k or k < 1:
                    raise Unfit(f"axis {axis:.80} has two lengths, or none")
        for t in walk(root, until=self.tables.__contains__):
            if t not in self.tables:
                self.orders[t] = tuple(sorted(t.axes))
                self.tables[t] = self._compute(t)
        return self.tables[root]

    def value(self, term: Term, at: Place) -> Value:
        """The value at a position (axes the term lacks are ignored)."""
        table, flat = self.table(term), 0
        for axis in self.orders[term]:
            flat = flat * self._length(axis) + at[axis]
        return table[flat]

    def places(self, axes: Sequence[str]) -> Iterator[dict[str, int]]:
        """Every position along the axes, row-major."""
        for at in product(*(range(self._length(a)) for a in axes)):
            self._spend(1)
            yield dict(zip(axes, at, strict=True))

    def _length(self, axis: str) -> int:
        if axis not in self.lengths:
            raise Unfit(f"axis {axis:.80} has no length")
        return self.lengths[axis]

    def _spend(self, cost: int) -> None:
        self.spent += cost
        spend(cost)
        if self.spent > self.budget:
            raise TooMuch(f"more than {self.budget} evaluations")

    def _along(self, term: Term, axes: tuple[str, ...]) -> list[Value]:
        """The table of an argument, repeated along the axes that it lacks."""
        table, own = self.tables[term], self.orders[term]
        if own == axes:
            return table
        return [table[i] for i in self._map(own, axes)]

    def _map(self, own: tuple[str, ...], axes: tuple[str, ...]) -> list[int]:
        """For every position along `axes` the place in a table over `own`."""
        key = own, axes
        if key not in self.maps:
            strides, step = {}, 1
            for axis in reversed(own):
                strides[axis], step = step, step * self._length(axis)
            flats = [0]
            for axis in axes:
                stride, n = strides.get(axis, 0), range(self._length(axis))
                flats = [f + stride * i for f in flats for i in n]
            self.maps[key] = flats
        return self.maps[key]

    # --- computing ---

    def _compute(self, t: Term) -> list[Value]:
        if t.op == "reduce":
            return self._reduce(t)
        axes = self.orders[t]
        count = prod(self._length(a) for a in axes)
        self._spend(count)
        if not t.args:
            return self._leaf(t, axes)
        columns = [self._along(a, axes) for a in t.args]
        if t.op in UNARY or t.op == "cast":
            return self._mapped(t, columns[0])
        if t.op in FOLDED:
            self._spend(count * len(columns))
        rule = _OF_OPERANDS.get(t.op)
        if rule is None:
            raise Unfit(f"the operation {t.op:.60} has no rule")
        return [rule(self.numbers, row) for row in zip(*columns, strict=True)]

    def _mapped(self, t: Term, column: list[Value]) -> list[Value]:
        if t.op == "exp":
            return [self._exp(t, x, i) for i, x in enumerate(column)]
        if t.op != "cast":
            return [self.numbers.map(t.op, x) for x in column]
        rounded = self.casts or t.attr == "bool"
        return [self.numbers.cast(x, t.attr) for x in column] if rounded else column

    def _leaf(self, t: Term, axes: tuple[str, ...]) -> list[Value]:
        op = t.op
        if op in ("tensor", "state"):
            values, shift = self.leaves.get(t.attr.name, {}), self.starts
            found = []
            for at in self.places(axes):
                place = tuple(at[a] + shift.get(a, 0) for a in t.attr.axes)
                if place not in values:
                    raise Unfit(f"{t.attr.name:.80} has no value at {list(place)}")
                found.append(values[place])
            return found
        if op == "index":
            return [Fraction(i + self.offsets.get(t.attr, 0)) for i in range(self._length(t.attr))]
        if op == "size":
            if t.attr not in self.sizes:
                raise Unfit(f"axis {t.attr:.80} has no length")
            return [Fraction(self.sizes[t.attr])]
        if op == "special":
            return [self.numbers.special(t.attr)]
        return [t.attr if op == "const" else op == "true"]

    # --- exponentials ---

    def _exp(self, t: Term, x: Value, flat: int) -> Value:
        if self.numbers.is_nan(x):
            axes, at = self.orders[t], {}
            for axis in reversed(axes):
                flat, at[axis] = divmod(flat, self._length(axis))
            x = self.exponent(t.args[0], at)
        return self.numbers.map("exp", x)

    def exponent(self, arg: Term, at: Place) -> Value:
        """The argument of an exp that is NaN by arithmetic: -oo where its element terms are -oo.

        Statistics are the terms computed from a reduction over an axis of the argument that they have lost. Where the
        element terms add up to -oo, not because of an infinite scale, and the statistics are no NaN, the exponential is
        0. A product with a sum is distributed first, so that (S - max S)/T obeys the same rule.
        """
        while arg.op == "where":
            condition = self.numbers.truth(self.value(arg.args[0], at))
            if condition is UNKNOWN:
                return UNKNOWN
            arg = arg.args[1 if condition else 2]
        numbers = self.numbers
        elements, statistics = self._parted(arg)
        plain = self.value(arg, at)
        if not elements or not statistics:
            return plain
        u = numbers.add(self._product(factors, at) for factors, _ in elements)
        c = numbers.add(self._product(factors, at) for factors, _ in statistics)
        scale = numbers.mul(self._product(scale, at) for scale in dict.fromkeys(s for _, s in elements))
        if any(v is UNKNOWN for v in (u, c, scale)):
            return UNKNOWN
        void = numbers.is_lowest(u) and numbers.is_finite(scale) and not numbers.is_nan(c)
        return u if void else plain

    def _parted(self, arg: Term) -> tuple[list[Product], list[Product]]:
        """The element terms and the statistics of an argument of exp."""
        terms = self._distributed(arg)
        late = [_is_statistic(factors, arg.axes) for factors, _ in terms]
        self._spend(len(terms))
        found = list(zip(terms, late, strict=True))
        return [x for x, later in found if not later], [x for x, later in found if later]

    def _product(self, factors: tuple[Term, ...], at: Place) -> Value:
        return self.numbers.mul(self.value(f, at) for f in factors)

    def _distributed(self, arg: Term) -> list[Product]:
        """The terms of a sum as (factors, what the sum was multiplied by), products distributed over sums."""
        if arg in self.lists:
            return self.lists[arg]
        found: list[Product] = []
        todo: list[Product] = [((arg,), ())]
        while todo:
            factors, scale = todo.pop()
            self._spend(len(factors))
            i = next((i for i, f in enumerate(factors) if f.op in ("add", "mul")), None)
            if i is None:
                found.append((factors, scale))
            elif factors[i].op == "mul":
                todo.append((factors[:i] + factors[i].args + factors[i + 1 :], scale))
            else:
                rest = factors[:i] + factors[i + 1 :]
                todo += [((*rest, a), scale + rest) for a in reversed(factors[i].args)]
        self.lists[arg] = found
        return found

    # --- reductions ---

    def _reduce(self, t: Term) -> list[Value]:
        kind, axes, extra = t.attr
        own = self.orders[t]
        outer = tuple(a for a in own if not (kind.startswith("topk") and a == extra[1]))
        if any(not b.axes <= {*outer, *axes} for b in t.args) or len(set(axes)) < len(axes):
            raise Unfit(f"a reduction {kind} makes an axis that its body has")
        n = prod(self._length(a) for a in axes)
        rows = prod(self._length(a) for a in outer)
        self._spend(rows * (n + 1) * len(t.args))
        if kind.startswith("topk"):
            self._spend(rows * (extra[0] + n * min(extra[0], n)))
        columns = [self._along(b, outer + axes) for b in t.args]
        if kind == "monoid":
            return [self._folded(t, columns, r * n, n)[extra[1]] for r in range(rows)]
        parts = [columns[0][r * n : (r + 1) * n] for r in range(rows)]
        if kind.startswith("topk"):
            return self._ranked(t, parts, outer)
        rule = _OF_ELEMENTS[kind]
        return [rule(self.numbers, part) for part in parts]

    def _ranked(self, t: Term, parts: list[list[Value]], outer: tuple[str, ...]) -> list[Value]:
        """The k first of every row; a row of fewer elements is padded with (-oo, -1)."""
        k, new = t.attr.extra
        key = "topk", t.args, t.attr.axes, k
        if key not in self.lists:
            rows = (self.numbers.ranked(part, k) for part in parts)
            self.lists[key] = [row[i] if i < len(row) else (Fraction(-1), NEG_INF) for row in rows for i in range(k)]
        column = [found[t.attr.kind == "topk_values"] for found in self.lists[key]]
        own = self.orders[t]
        return column if own == (*outer, new) else [column[i] for i in self._map((*outer, new), own)]

    def _folded(self, t: Term, columns: list[list[Value]], start: int, n: int) -> Sequence[Value]:
        """A user's monoid in stream order; its identity is the value of nothing."""
        number, part = t.attr.extra
        if not 0 <= number < len(self.monoids):
            raise Unfit(f"there is no monoid {number}")
        m = self.monoids[number]
        if not len(columns) == len(m.combined) == len(m.identity) or not 0 <= part < len(columns):
            raise Unfit(f"the monoid {m.name:.80} has another number of parts")
        key = "monoid", number, t.args, t.attr.axes, start
        if key not in self.lists:
            rows = list(zip(*(c[start : start + n] for c in columns), strict=True))
            state = rows[0] if rows else self._parts(m.identity, {})
            for row in rows[1:]:
                values: Leaves = {f"a{i}": {(): v} for i, v in enumerate(state)} | {
                    f"b{i}": {(): v} for i, v in enumerate(row)
                }
                state = self._parts(m.combined, values)
            self.lists[key] = list(state)
        return self.lists[key]

    def _parts(self, terms: tuple[Term, ...], values: Leaves) -> list[Value]:
        self._spend(len(values))
        inner = Evaluation(self.numbers, values, {}, casts=self.casts, budget=self.budget - self.spent)
        found = [inner.table(t)[0] for t in terms]
        self._spend(inner.spent)
        return found


def _is_statistic(factors: tuple[Term, ...], axes: frozenset[str]) -> bool:
    missing = axes - frozenset().union(*(f.axes for f in factors))
    return bool(missing) and any(
        t.op == "state" or (t.op == "reduce" and not missing.isdisjoint(t.attr.axes)) for t in walk(*factors)
    )
