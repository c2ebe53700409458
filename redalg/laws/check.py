"""Tests an obligation at random exact points: rationals stay rational, everything else has 60 digits.

Imports neither the engine nor SymPy: it knows the graph and the exact evaluator. A point is a value for every leaf of
the pair (all elements of all tensors, on axes of one or two places) that satisfies the pair's assumptions; `tested`
means that the sides agreed wherever the right one is finite, and never that they are equal.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from redalg.algebra.work import VALUE, spend
from redalg.graph.formats import INTEGERS
from redalg.graph.formula import operation
from redalg.graph.intervals import moved
from redalg.graph.masked import made
from redalg.graph.node import COMPARISONS, ONE, POSITIONS, Node, walk
from redalg.graph.plan import COUNT, Obligation
from redalg.numeric.exact import Exact
from redalg.numeric.exact_numbers import arithmetic

ATTEMPTS = 12  # draws per wanted point: assumptions are met by rejection
PATIENCE = 4  # budgets that are spent before a law at which no point counted is left untested
TOLERANCE = Fraction(1, 10**40)  # relative to the largest value met on the way, where a side is not rational
DISCRETE = COMPARISONS | {"floor", "ceil", "sign", "cast"}  # what a rounding decides
NUMBERS = arithmetic(40)  # and its 50 guard digits: a root of what cancels, 0 by its definition, has half of them


def check(
    obligation: Obligation, points: int = 20, seed: object = 0, budget: int = 100_000, partial: bool = False
) -> str:
    """`tested`, `refuted`, or `vacuous` when no drawn point met the assumptions with a finite right side.

    `budget` bounds the node evaluations; large pairs are tested at fewer points (at least one, unless none counts).
    `partial`: the left side may be NaN (outside an assumption a form gives NaN, never another number).

    >>> from redalg.graph.node import tensor, fn, add, mul
    >>> x, y = tensor("x"), tensor("y")
    >>> check(Obligation("O3", "exp", fn("exp", add(x, y)), mul(fn("exp", x), fn("exp", y))))
    'tested'
    >>> check(Obligation("O3", "exp", fn("exp", add(x, y)), add(fn("exp", x), fn("exp", y))))
    'refuted'
    """
    return refutation(obligation, points, seed, budget, partial)[0]


def refutation(
    obligation: Obligation, points: int = 20, seed: object = 0, budget: int = 100_000, partial: bool = False
) -> tuple[str, dict[str, Any]]:
    """The status, and for a refuted pair the point: {"name[place]": value, "left": …, "right": …}."""
    found = refutations((obligation,), points, seed, budget, partial)
    return found.get(0, ("vacuous", {}))


def refutations(
    pairs: Sequence[Obligation], points: int = 20, seed: object = 0, budget: int = 100_000, partial: bool = False
) -> dict[int, tuple[str, dict[str, Any]]]:
    """Statuses of pairs under the same assumptions by their number, the vacuous left out, up to one that is refuted.

    They are tested at the same points, where what they share is computed once: the values of a chain of stages, or the
    terms that the transports of a pass's slots have in common. `budget` is each one's share.
    """
    sample, found = Sample(pairs, seed, partial), [0] * len(pairs)
    whole, wanted = budget * len(pairs), list(range(len(pairs)))
    for attempt in range(points * ATTEMPTS):
        enough = 1 if attempt and sample.spent > whole else points
        wanted = [k for k in wanted if found[k] < enough]
        if not wanted or (attempt and sample.spent > PATIENCE * whole):
            break
        for k, verdict in sample.draw(attempt, wanted):
            if verdict is False:
                return {k: ("refuted", sample.point())}
            found[k] += verdict is True
    return {k: ("tested", {}) for k, counted in enumerate(found) if counted}


def together(pairs: Iterable[Obligation]) -> list[list[Obligation]]:
    """Pairs that can be tested at the same points: of one list of assumptions, names of one domain, lists as long."""
    groups: dict[tuple[Node, ...], list[_Group]] = {}
    for pair in pairs:
        among = groups.setdefault(pair.assumptions, [])
        if not any(group.takes(pair) for group in among):
            among.append(_Group(pair))
    return [group.pairs for among in groups.values() for group in among]


class _Group:
    """Pairs with what is fixed by the names in them."""

    def __init__(self, first: Obligation) -> None:
        self.pairs: list[Obligation] = []
        self.seen: set[Node] = set()
        self.fixed: dict[object, object] = {}
        self.takes(first)

    def takes(self, pair: Obligation) -> bool:
        fresh = list(walk(pair.left, pair.right, *pair.assumptions, done=self.seen))
        leaves = (n.attr for n in fresh if n.op in ("tensor", "state"))
        fixed: dict[Any, Any] = dict(made(fresh))
        fixed |= {(leaf.name, len(leaf.axes)): leaf.domain for leaf in leaves}
        if any(self.fixed.get(name, value) != value for name, value in fixed.items()):
            return False
        self.pairs.append(pair)
        self.seen.update(fresh)
        self.fixed |= fixed
        return True


class Scalars(Exact):
    """An exact evaluation that counts its work and remembers the largest inexact value of every node."""

    def __init__(self, values: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        super().__init__(values, sizes)
        self.numbers = NUMBERS
        self.largest: dict[Node, Any] = {}
        self.evaluations = 0  # with what long numbers cost

    def _compute(self, node: Node, at: Mapping[str, int]) -> Any:
        found = super()._compute(node, at)
        longer = 0
        if type(found) is Fraction:
            longer = _length(found)
        elif not isinstance(found, bool) and self.largest.get(node, 0) < abs(found) < self.numbers.inf:
            self.largest[node] = abs(found)
        self.evaluations += 1 + longer
        spend(VALUE + longer)
        return found

    def magnitudes(self, roots: Iterable[Node], known: dict[Node, Any]) -> None:
        """The largest inexact value met below each of the roots and below what is below them, at least 1."""
        one = self.numbers.mp.mpf(1)
        for n in walk(*roots, done=known):
            own = self.largest.get(n, one)
            known[n] = max(own, one, *(known[a] for a in n.args))

    def forget(self) -> None:
        """Drop what was computed, because a leaf has changed."""
        self._done.clear()

    def _resolved(self, arg: Node, at: Mapping[str, int]) -> Any:
        """In an unrolled stream no axis tells elements from statistics: a term -oo makes the exponential 0."""
        found = super()._resolved(arg, at)
        if not self.numbers.is_nan(found):
            return found
        terms = [(self.value(t, at), scale) for t, scale in _terms(arg, ONE)]
        if any(self.numbers.is_nan(value) for value, _ in terms):
            return found
        masked = any(value == self.numbers.ninf and self.finite(self.value(scale, at)) for value, scale in terms)
        return self.numbers.ninf if masked else found

    def agree(self, left: Any, right: Any, magnitude: Any) -> bool:
        """Equal where both are rational or Boolean, both NaN, else equal to 40 digits of the largest value met."""
        if isinstance(left, bool | Fraction) and isinstance(right, bool | Fraction):
            return left == right
        if self.numbers.is_nan(left) or self.numbers.is_nan(right):
            return self.numbers.is_nan(left) and self.numbers.is_nan(right)
        difference = abs(self.numbers.inexact(left) - self.numbers.inexact(right))
        return bool(difference <= self.numbers.inexact(TOLERANCE) * magnitude)

    def finite(self, value: Any) -> bool:
        return not self.numbers.is_nan(value) and not self.numbers.is_infinite(value)

    def places(self, nodes: Collection[Node]) -> Iterator[tuple[Node, dict[str, int]]]:
        """Where these nodes have been computed."""
        keys = [key for key in self._done if key[0] in nodes]
        return ((node, dict(zip(self._axes[node], at, strict=True))) for node, *at in keys)

    def is_close(self, node: Node, at: Mapping[str, int]) -> bool:
        """Whether a comparison, a rounding or a position is one of numbers that differ by no more than their digits."""
        if node.op == "reduce":
            values = self._elements(node.args[0], node.attr.axes, at)
        else:
            values = [self.value(a, at) for a in node.args]
        known: dict[Node, Any] = {}
        self.magnitudes(node.args, known)
        gap = self.numbers.inexact(TOLERANCE) * max(known[a] for a in node.args)
        inexact = [v for v in values if self._has_digits(v)]
        if node.op in COMPARISONS or node.op == "reduce":
            return any(0 < abs(self.numbers.inexact(v) - w) <= gap for w in inexact for v in values if self.finite(v))
        return any(self._rounds(node, v - gap) != self._rounds(node, v + gap) for v in inexact)

    def _rounds(self, node: Node, value: Any) -> Any:
        return operation(self.numbers, node, [value])

    def _has_digits(self, value: Any) -> bool:
        return not isinstance(value, bool | Fraction) and not self.numbers.is_complex(value) and self.finite(value)


def _length(value: Fraction) -> int:
    """What a long rational costs beyond a short one: common divisors take the square of its bits."""
    return int(max(value.numerator.bit_length(), value.denominator.bit_length()) ** 2) >> 19


def _terms(arg: Node, scale: Node) -> list[tuple[Node, Node]]:
    """The terms of a sum, products with sums multiplied out, and what each was multiplied by."""
    if arg.op == "add":
        return [t for a in arg.args for t in _terms(a, scale)]
    sums = [a for a in arg.args if a.op == "add"] if arg.op == "mul" else []
    if not sums:
        return [(arg, scale)]
    rest = [a for a in arg.args if a is not sums[0]]
    scaled = Node("mul", (scale, *rest))
    return [t for a in sums[0].args for t in _terms(Node("mul", (*rest, a)), scaled)]


def is_exact(node: Node) -> bool:
    """Whether a value is a position, a condition or a count: whatever happens to its elements, it is no NaN."""
    if node.op == "reduce" and node.attr.kind not in _WHOLE:
        return node.is_boolean or node.attr.kind in POSITIONS
    if node.op == "const":
        return bool(node.attr.denominator == 1)
    if node.is_boolean or node is COUNT or node.op in ("size", "index"):
        return True
    if node.op == "cast" and node.attr not in INTEGERS:
        return False
    if node.op == "pow":
        power = node.args[1]
        return is_exact(node.args[0]) and power.op == "const" and power.attr >= 0 and is_exact(power)
    return node.op in _KEEPS_EXACT and all(map(is_exact, node.args[node.op == "where" :]))


_WHOLE = frozenset({"sum", "prod", "max", "min"})
_KEEPS_EXACT = frozenset("reduce where add mul maximum minimum abs sign relu floor ceil cast".split())
_CALCULATED = frozenset({"add", "mul", "pow", "maximum", "minimum"})


class Sample:
    """Draws points for obligations under the same assumptions; deterministic in the seed."""

    def __init__(self, pairs: Sequence[Obligation], seed: object, partial: bool = False) -> None:
        self.pairs, self.partial = pairs, partial
        self.assumptions = pairs[0].assumptions
        self.random = random.Random(f"{seed}:{pairs[0].name}:{pairs[0].subject}")
        below = list(walk(*(side for pair in pairs for side in (pair.left, pair.right)), *self.assumptions))
        self.fixed = dict(_fixed_sizes(self.assumptions)) | made(below)
        self.axes = sorted(_axes(below) - set(self.fixed))
        self.leaves = sorted((n for n in below if n.op in ("tensor", "state")), key=lambda n: n.digest)
        self.spent = 0
        spend(VALUE * len(below))
        ranks = (*POSITIONS, "topk_values")
        ranked = any(n.op == "reduce" and n.attr.kind in ranks for n in below)
        self.unit = Fraction(1, 16) if ranked else Fraction(1)  # unequal elements must stay so at 50 digits
        self.scalars: Scalars | None = None
        self.failed: tuple[dict[str, int], Any, Any] | None = None

    def draw(self, attempt: int, wanted: Iterable[int]) -> Iterator[tuple[int, bool | None]]:
        """Of each pair that is wanted, True: the sides agree at a new point; False: they differ; None: it does not
        count."""
        wide = attempt % 4 == 3  # mostly one place per free axis: cheap, and no broadcasting can hide there
        sizes = self.fixed | dict.fromkeys(self.axes, 2 if wide else 1)
        positive = self.random.random() < 0.4  # so that logarithms and roots are met inside their domain
        values: dict[str, dict[tuple[int, ...], Any]] = {}
        for leaf in self.leaves:
            elements = values.setdefault(leaf.attr.name, {})
            for place in product(*(range(sizes[a]) for a in leaf.attr.axes)):
                elements.setdefault(place, self._value(leaf.attr.domain, positive))
        self.scalars = scalars = Scalars(values, sizes)
        self._order(scalars, values)
        try:
            yield from self._compared(scalars, sizes, wanted) if self._is_met(scalars, sizes) else ()
        finally:
            self.spent += scalars.evaluations

    def _order(self, scalars: Scalars, values: dict[str, dict[tuple[int, ...], Any]]) -> None:
        """Meet ``lesser <= greater`` by moving the state leaf that comes later; what else is assumed, by rejection."""
        for fact in self.assumptions:
            later = _later(fact)
            if later is None:
                continue
            for at in _places(fact.axes, scalars.sizes):
                lesser, greater = (scalars.value(side, at) for side in fact.args)
                if scalars.numbers.compare("le", lesser, greater):
                    continue
                gap = Fraction(self.random.randint(0, 6), 2)  # ties are as likely as any other gap
                moved = scalars.numbers.add([lesser, gap] if later is fact.args[1] else [greater, -gap])
                values[later.attr.name][tuple(at[a] for a in later.attr.axes)] = moved
                scalars.forget()

    def _is_met(self, scalars: Scalars, sizes: dict[str, int]) -> bool:
        return all(scalars.value(fact, at) is True for fact in self.assumptions for at in _places(fact.axes, sizes))

    def _compared(
        self, scalars: Scalars, sizes: dict[str, int], wanted: Iterable[int]
    ) -> Iterator[tuple[int, bool | None]]:
        """All values first: how large they are says how much of them is rounding."""
        found = [(k, list(self._sides(scalars, self.pairs[k], sizes))) for k in wanted]
        magnitude: dict[Node, Any] = {}
        if scalars.largest:
            roots = (side for k, sides in found if sides for side in (self.pairs[k].left, self.pairs[k].right))
            scalars.magnitudes(roots, magnitude)
        for k, sides in found:
            pair = self.pairs[k]
            most = max(magnitude[pair.left], magnitude[pair.right]) if sides and magnitude else 1
            yield k, self._agree(scalars, pair, sides, most)

    def _sides(
        self, scalars: Scalars, pair: Obligation, sizes: dict[str, int]
    ) -> Iterator[tuple[dict[str, int], Any, Any]]:
        """The values of both sides at the places that count."""
        for at in _places(pair.left.axes | pair.right.axes, sizes):
            right = scalars.value(pair.right, at)
            if not self._comparable(scalars, pair, right):
                continue
            left = scalars.value(pair.left, at)
            if not (self.partial and (scalars.numbers.is_nan(left) or self._is_none(pair, left))):
                yield at, left, right

    def _agree(
        self, scalars: Scalars, pair: Obligation, sides: Iterable[tuple[dict[str, int], Any, Any]], magnitude: Any
    ) -> bool | None:
        counted = None
        for at, left, right in sides:
            if not scalars.finite(left) and not scalars.finite(right) and self._at_a_pole(scalars, pair, at):
                continue
            if not scalars.agree(left, right, magnitude):
                if self._is_excused(scalars, pair) or _is_of_no_numbers(scalars, pair) or _is_rounded(scalars, pair):
                    continue
                self.failed = (at, left, right)
                return False
            counted = True
        return counted

    def _is_none(self, pair: Obligation, value: Any) -> bool:
        """Whether it is -1 for a position: none, as NaN is no number."""
        root = pair.right
        return root.op == "reduce" and root.attr.kind in POSITIONS and bool(value == -1)

    def _is_excused(self, scalars: Scalars, pair: Obligation) -> bool:
        """Whether stage values are assumed to be finite and are not, and the form cannot be NaN: of a position, a
        condition or a count. An infinity or a NaN has made values alike, or comparisons false: also the -oo of a list
        that is not full, of which a function may be a number."""
        if not self.partial or not is_exact(pair.right):
            return False
        below = {n for n in walk(pair.left, pair.right, *pair.assumptions) if n.op in _CALCULATED or _is_list(n)}
        found = (value for value in scalars.found(below) if not isinstance(value, bool))
        return any(scalars.numbers.is_infinite(value) or scalars.numbers.is_nan(value) for value in found)

    def _comparable(self, scalars: Scalars, pair: Obligation, right: Any) -> bool:
        """Laws are about finite values; an output is also NaN exactly where the definition is."""
        output = pair.name == "O8"
        undefined = scalars.numbers.is_nan(right) and not isinstance(right, scalars.numbers.mp.mpc)
        return scalars.finite(right) or output and undefined

    def _at_a_pole(self, scalars: Scalars, pair: Obligation, at: Mapping[str, int]) -> bool:
        """Whether the definition divides by a function of parameters that is 0 here: what is above decides by its last
        digit between NaN and an infinity, in floats as well. A form that gives a number there is refuted all the same.
        """
        poles = _parameter_divisors(pair.right)
        return any(scalars.numbers.compare("eq", scalars.value(p, at), Fraction(0)) for p in poles)

    def _value(self, domain: frozenset[str], positive: bool) -> Any:
        draw = self.random
        if "bool" in domain:
            return draw.random() < 0.5
        whole = "integer" in domain or draw.random() < 0.5  # small integers, so that ties and zeros happen
        value = Fraction(draw.randint(-3, 3)) if whole else Fraction(draw.randint(-40, 40), draw.randint(1, 16))
        if "positive" in domain or positive:
            value = abs(value) or Fraction(1)
        if "nonnegative" in domain:
            value = abs(value)
        if "integer" not in domain:
            value *= self.unit
        value = moved(domain, value)
        if "complex" not in domain:
            return value
        return NUMBERS.mp.mpc(NUMBERS.inexact(value), draw.randint(-12, 12) / 4)

    def point(self) -> dict[str, Any]:
        assert self.scalars is not None and self.failed is not None
        values = ((name, place, v) for name, elements in self.scalars.values.items() for place, v in elements.items())
        shown = {f"{name}{list(place) if place else ''}": v for name, place, v in values}
        at, left, right = self.failed
        return shown | {"at": at, "left": left, "right": right}


def _is_list(node: Node) -> bool:
    return node.op == "reduce" and bool(node.attr.kind == "topk_values")


def _is_of_no_numbers(scalars: Scalars, pair: Obligation) -> bool:
    """Whether a separation is of stage values that are infinite or NaN: it is one of numbers, and what is computed
    where they are none, outputs show."""
    if pair.name != "O1":
        return False
    below = list(walk(pair.left))
    along = {a for n in below if n.op == "reduce" for a in n.attr.axes}
    values = {n for n in below if n.args and not n.is_boolean and n.axes.isdisjoint(along)}
    return not all(map(scalars.finite, scalars.found(values)))


def _is_rounded(scalars: Scalars, pair: Obligation) -> bool:
    """Whether something below a pair is decided by the last digits of numbers that are not exact: a comparison of what
    is equal but for its rounding, the next integer of what is one."""
    discrete = {n for n in walk(pair.left, pair.right) if n.op in DISCRETE or n.op == "reduce" and _ranks(n)}
    return any(scalars.is_close(node, at) for node, at in scalars.places(discrete))


def _ranks(n: Node) -> bool:
    return n.attr.kind in POSITIONS or n.attr.kind == "topk_values"


def _parameter_divisors(definition: Node) -> list[Node]:
    """What a definition divides by that reads parameters alone: tensors without an axis that is reduced."""
    reduced = {a for n in walk(definition) if n.op == "reduce" for a in n.attr.axes}
    divisors = (n.args[0] for n in walk(definition) if n.op == "pow" and _is_negative(n.args[1]))
    return [d for d in divisors if reduced.isdisjoint(d.axes) and all(n.op != "reduce" for n in walk(d))]


def _is_negative(exponent: Node) -> bool:
    return exponent.op == "const" and exponent.attr < 0


def _later(fact: Node) -> Node | None:
    """The state leaf of an order fact that stands for the later time (the one with more primes)."""
    if fact.op != "le":
        return None
    found = [side for side in fact.args if side.op == "state"]
    return max(found, key=lambda leaf: leaf.attr.name.count("'"), default=None)


def _fixed_sizes(assumptions: Iterable[Node]) -> Iterable[tuple[str, int]]:
    for node in assumptions:
        if node.op == "eq" and node.args[0].op == "size" and node.args[1].op == "const":
            yield node.args[0].attr, int(node.args[1].attr)


def _axes(nodes: Iterable[Node]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        found |= node.axes
        if node.op == "reduce":
            found |= set(node.attr.axes)
        elif node.op == "size":
            found.add(node.attr)
    return found


def _places(axes: Iterable[str], sizes: dict[str, int]) -> Iterable[dict[str, int]]:
    names = sorted(axes)
    return (dict(zip(names, at, strict=True)) for at in product(*(range(sizes[a]) for a in names)))
