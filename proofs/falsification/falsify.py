"""Looks for a point at which an obligation fails: exact rational points, both sides enclosed.

A point gives every leaf of the obligation a rational (or a truth) on axes of one to three places, so that what is
given holds. The sides are compared position by position: an obligation is *refuted* where they certainly differ, and
*tested* at the points where they agree as far as their enclosures tell. Nothing is ever proved here. The points depend
on the obligation and the seed alone, and the work is counted in evaluations, never timed.

What is compared: a law about numbers where its right side is a finite number, or is NaN without any infinity; an
output ("observational") where its definition is a finite number; O7 where the definition of its output (of one that
reads it, for a part of the state) is a number. Under an assumption a left side that is NaN refutes nothing, since a
form may be NaN where its assumption fails, and neither does a number where stage values are assumed to be finite and
are not; a separation is one of such stage values in any case. Casts are left out on both sides where that is assumed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import pairwise, product
from math import prod
from typing import Any

from redalg.proofs.document.defined import Defined
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.intervals import moved
from redalg.proofs.document.terms import MOST_AXES, Term, base, walk
from redalg.proofs.document.work import spend
from redalg.proofs.falsification.evaluate import BUDGET, Evaluation, Place, TooMuch, Unfit, new_axes
from redalg.proofs.numbers.complexes import Complex, parts
from redalg.proofs.numbers.enclosure import Interval
from redalg.proofs.numbers.value_maps import UNKNOWN, Value, is_finite, is_nan
from redalg.proofs.numbers.values import Numbers

ATTEMPTS = 6  # draws per wanted point
# Kinds of values, see Sample._value: every kind within the first eight points, then the more likely ones again.
MODES = (*(0, 1, 3, 8, 10, 5, 9, 4), *(1, 3, 4, 5, 0, 1, 2, 3, 0, 0, 1, 3, 8, 5, 0, 1, 2, 3, 0, 4, 5))
DEGENERATE = (6, 7, 0, 3, 4, 6, 7, 1, 5, 2)  # the same for divisors, which vanish on constant streams
BELOW = 12  # from 0, so that extrema of two sides and anchors above them stay negative
OPPOSITE, AT_ZERO = 9, 10  # modes that differ from leaf to leaf, see Sample._mode
NARROW = 80  # bits below max(1, |x|) that an enclosure may be wide
CASTS = frozenset({"cast_commutes", "cast_left_out"})
FINITE = "finite_stage_values"
HIDDEN = "the definition is a number there, and so the form may be"
Found = tuple[str, Any]


def falsify(
    obligation: Obligation,
    doc: Document,
    points: int = 8,
    seed: object = 0,
    budget: int = BUDGET,
    poles: Callable[[Term], Iterable[Term]] = lambda definition: (),
) -> Found:
    """("refuted", the point with both values), ("tested", points that agree) or ("unknown", why).

    Where a definition is a number at one of its `poles`, a condition that fails refutes nothing.

    >>> from redalg.proofs.document.terms import Terms
    >>> t = Terms()
    >>> x, y = t.state("x"), t.state("y")
    >>> doc = Document(t, ("j",), {}, {}, (), ())
    >>> falsify(Obligation("O3", "s", t("exp", t.add(x, y)), t.mul(t("exp", x), t("exp", y))), doc)
    ('tested', 8)
    >>> falsify(Obligation("O3", "s", t.mul(x, x), x), doc)[0]
    'refuted'
    """
    sample, agreed, hidden = Sample(obligation, doc, seed, budget), 0, False
    try:
        for attempt in range(points * ATTEMPTS):
            if agreed == points or sample.spent > budget:
                break
            if sample.draw(attempt) and sample.holds():
                outcome = sample.compared()
                if not isinstance(outcome, dict):
                    agreed += outcome
                elif sample.hides(outcome["at"], poles):
                    hidden = True
                else:
                    return "refuted", outcome
    except Unfit as e:
        return "unknown", str(e)
    except RecursionError:
        return "unknown", "the obligation is nested too deeply"
    if hidden:
        return "unknown", HIDDEN
    if agreed:
        return "tested", agreed
    return "unknown", sample.why or "no drawn point meets what is given with a finite right side"


class Sample:
    """Draws points for one obligation and compares its sides there."""

    def __init__(self, obligation: Obligation, doc: Document, seed: object, budget: int) -> None:
        self.obligation, self.doc, self.budget, self.spent, self.why = obligation, doc, budget, 0, ""
        self.random = random.Random(f"{seed}:{obligation.law}:{obligation.subject}")
        self.judged = self._definitions()
        self.guards = [g for g in obligation.given if obligation.equality == "domain" and _is_of_elements(g)]
        self.facts = [fact for fact in obligation.given if fact not in self.guards]
        self.modes = DEGENERATE if obligation.equality == "domain" else MODES
        self.roots = (obligation.left, obligation.right, *obligation.given, *self.judged)
        self.leaves = self._leaves()
        self.tensors = sorted({t.attr.name for t in walk(*self.roots) if t.op == "tensor"})
        self.made = new_axes(*self.roots)
        self.axes = sorted(_axes(self.roots) - set(self.made))
        self.sides = doc.sides
        self.stream = {*doc.axis, *self.sides[0], *self.sides[1]}
        self.casts = not CASTS & set(doc.assumptions)
        self.values: dict[str, dict[tuple[int, ...], Value]] = {}
        self.drawn: list[Fraction] = []
        self.sizes: dict[str, int] = {}
        self.starts: dict[str, int] = {}
        self.evaluation: Evaluation
        self.outside: bool | None = None  # whether NaN on the right comes from a function outside its domain

    def _definitions(self) -> tuple[Term, ...]:
        if self.obligation.law != "O7" and self.obligation.equality != "domain":
            return ()
        return tuple(self.doc.spec[name] for name in Defined(self.doc).outputs(self.obligation.subject))

    def _leaves(self) -> dict[tuple[str, tuple[str, ...]], frozenset[str]]:
        """Every (name, axes) that is read, with all that is declared of the name."""
        found: dict[tuple[str, tuple[str, ...]], frozenset[str]] = {}
        domains: dict[str, frozenset[str]] = {}
        for t in walk(*self.roots):
            if t.op in ("tensor", "state"):
                found[t.attr.name, t.attr.axes] = frozenset()
                domains[t.attr.name] = domains.get(t.attr.name, frozenset()) | t.attr.domain
        return {key: domains[key[0]] for key in sorted(found)}

    # --- drawing ---

    def draw(self, attempt: int) -> bool:
        """A point, with the later anchors moved so that the order facts hold; False where it costs too much."""
        self._draw_sizes(attempt)
        if any(prod(self.sizes[a] for a in axes) > self.budget for _, axes in self.leaves):
            self.why, self.spent = "a leaf has more entries than the budget of evaluations", self.budget + 1
            return False
        pairs = list(zip(*self.sides, strict=True))[:1]  # row-major: only the first axis of several is cut
        self.starts = {b: self.sizes.get(a, 0) for a, b in pairs}
        self._draw_values(self.modes[attempt % len(self.modes)])
        try:
            self._evaluate()
            return self._order()
        except TooMuch as e:
            self.why = str(e)
            self.spent += self.evaluation.spent
            return False

    def _draw_sizes(self, attempt: int) -> None:
        """Lengths of the axes, the longest cut until a table over all of them is affordable."""
        self.sizes = self.made | {a: self._size(a, attempt) for a in self.axes}
        self._share_sizes()
        if len(self.axes) > MOST_AXES:
            raise Unfit(f"it has more than {MOST_AXES} axes")
        while prod(self.sizes.values()) > self.budget // 64 and max(self.sizes.values()) > 1:
            widest = max(self.axes, key=self.sizes.__getitem__, default=None)
            if widest is None or self.sizes[widest] == 1:
                break
            self.sizes[widest] -= 1
        self._share_sizes()

    def _draw_values(self, mode: int) -> None:
        self.values, self.drawn = {}, []
        for (name, axes), domain in self.leaves.items():
            values = self.values.setdefault(name, {})
            own = self._mode(name, mode)
            spend(2 * prod(self.sizes[a] for a in axes))
            ranges = [range(self.starts.get(a, 0), self.starts.get(a, 0) + self.sizes[a]) for a in axes]
            for place in product(*ranges):
                if place not in values:
                    values[place] = self._value(domain, own)

    def _mode(self, name: str, mode: int) -> int:
        """The kind of values of one leaf.

        In one mode tensors have one sign and the other in turn, so that their products, and extrema of these, are below
        0, as anchors are; in another anchors are 0, and tensors not above it.
        """
        tensor = name in self.tensors
        if mode == OPPOSITE:
            return 5 if tensor and self.tensors.index(name) % 2 else 8
        return mode if mode != AT_ZERO else 4 if tensor else 6

    def _share_sizes(self) -> None:
        """d~1 and d' are other names for positions along d, and so are a and b where one array is read along both."""
        least: dict[str, int] = {}
        for a, b in self._alike():
            self.sizes[a] = self.sizes[b] = min(self.sizes[a], self.sizes[b])
        for axis in self.axes:
            least[base(axis)] = min(self.sizes[axis], least.get(base(axis), self.sizes[axis]))
        self.sizes |= {axis: least[base(axis)] for axis in self.axes}

    def _alike(self) -> Iterator[tuple[str, str]]:
        """Pairs of axes, none of them the stream's, along which one array is read; round about, until all are equal."""
        found: dict[tuple[str, int], set[str]] = {}
        for name, axes in self.leaves:
            for k, a in enumerate(axes):
                if a not in self.stream and a not in self.made:
                    found.setdefault((name, k), set()).add(a)
        groups = [sorted(axes) for axes in found.values() if len(axes) > 1]
        return (pair for _ in groups for group in groups for pair in [*pairwise(group), *pairwise(group[::-1])])

    def _size(self, axis: str, attempt: int) -> int:
        if axis in self.stream:
            return self.random.choice((1, 2, 3, 3, 3))
        if not self.stream:  # of a derivative every axis may be reduced
            return self.random.choice((1, 2, 2, 3))
        return self.random.choice((1, 1, 2)) if attempt % 3 else 1

    def _value(self, domain: frozenset[str], mode: int) -> Value:
        """Small integers, so that ties and zeros happen; fractions; one sign; one constant; or a value met before."""
        draw = self.random
        if "bool" in domain:
            return draw.random() < 0.5
        if mode in (6, 7):
            return moved(domain, Fraction(int("positive" in domain)) if mode == 6 else Fraction(2))
        value = moved(domain, _signed(self._number(mode), domain, mode))
        self.drawn.append(value)
        return Complex(value, Fraction(draw.choice((-3, -2, -1, 1, 2, 3)), 2)) if "complex" in domain else value

    def _number(self, mode: int) -> Fraction:
        draw = self.random
        if self.drawn and draw.random() < 0.3:
            return draw.choice(self.drawn)
        if mode in (1, 2):
            return Fraction(draw.randint(-40, 40), draw.randint(1, 16))
        return Fraction(draw.randint(-1, 1) if mode == 3 else draw.choice((-3, -2, -1, 0, 0, 1, 2, 3)))

    def _evaluate(self) -> None:
        self.evaluation = Evaluation(
            Numbers(),
            self.values,
            self.sizes,
            offsets=self.starts,
            starts=self.starts,
            monoids=self.doc.monoids,
            casts=self.casts,
            budget=self.budget,
        )

    def _order(self) -> bool:
        """Meet lesser <= greater by moving the state leaf of the later time; other facts are met by chance."""
        for fact in self.facts:
            later = _later(fact)
            if later is None:
                continue
            least = fact.args[1] is later
            self.evaluation.table(fact)
            bounds: dict[tuple[int, ...], Value] = {}
            for at in self.evaluation.places(sorted(fact.axes)):
                sides = [self.evaluation.value(side, at) for side in fact.args]
                if self.evaluation.numbers.compare("le", *sides) is True:
                    continue
                bound = _rational(sides[0 if least else 1], least)
                if bound is None:
                    return False
                place = tuple(at[a] + self.starts.get(a, 0) for a in later.attr.axes)
                gap = Fraction(self.random.randint(0, 6), 2)  # ties are as likely as any other gap
                moved, old = bound + (gap if least else -gap), bounds.get(place)
                bounds[place] = moved if old is None else max(old, moved) if least else min(old, moved)
            if bounds:
                self.values[later.attr.name].update(bounds)
                self.spent += self.evaluation.spent
                self._evaluate()
        return True

    # --- comparing ---

    def holds(self) -> bool:
        """Whether everything given is certainly true; what an operation stands under, at one place at least."""
        try:
            return all(v is True for fact in self.facts for v in self.evaluation.table(fact)) and all(
                True in self.evaluation.table(guard) for guard in self.guards
            )
        except TooMuch as e:
            self.why, self.spent = str(e), self.spent + self.evaluation.spent
            return False

    def compared(self) -> dict[str, Any] | bool:
        """The point with both values where the sides differ; else whether they agree at a position at least."""
        o, agreed, self.outside = self.obligation, False, None
        try:
            for root in (o.left, o.right, *self.judged):
                self.evaluation.table(root)
            for at in self.evaluation.places(sorted(o.left.axes.union(o.right.axes, *(g.axes for g in self.guards)))):
                if any(self.evaluation.value(guard, at) is not True for guard in self.guards):
                    continue
                left, right = (self.evaluation.value(side, at) for side in (o.left, o.right))
                outcome = self._outcome(left, right, at)
                if outcome is False and self._has_broken_stages():
                    outcome = None
                if outcome is False:
                    return self._point(at, left, right)
                agreed = agreed or outcome is True
        except TooMuch as e:
            self.why = str(e)
        self.spent += self.evaluation.spent
        return agreed

    def hides(self, at: Place, poles: Callable[[Term], Iterable[Term]]) -> bool:
        """Whether a pole is met wherever the definitions are numbers at this place, or that costs too much."""
        try:
            return bool(self.judged) and all(
                any(v is True for p in poles(t) for _, v in self._there(p, {**at, **place}))
                for t in self.judged
                for place, value in self._there(t, at)
                if is_finite(value)
            )
        except TooMuch:
            return True

    def _outcome(self, left: Value, right: Value, at: Place) -> bool | None:
        """Whether the sides agree; None where they are not compared, or where it cannot be told."""
        o = self.obligation
        if self.judged and not any(self._defined(t, at) for t in self.judged):
            return None
        if not is_finite(right):
            wrong = is_nan(right) and is_finite(left) and o.equality == "exact" and not self.doc.assumptions
            return False if wrong and self._outside(o.right) else None
        if is_nan(left):
            return None if self.doc.assumptions else False
        if left is UNKNOWN:
            self.why = self.why or "a side has no enclosure at any drawn point"
            return None
        return self._agree(left, right)

    def _has_broken_stages(self) -> bool:
        """Whether a stage value of the definition, or what is computed from stage values, is infinite or NaN though it
        is meant to be a number."""
        o = self.obligation
        if o.law != "O1" and (o.equality != "observational" or FINITE not in self.doc.assumptions):
            return False
        definition, along = o.left if o.law == "O1" else o.right, set(self.doc.axis)
        read: set[Term] = set()  # what reads a stage value
        for t in walk(definition):
            stage = t.op == "reduce" and not along.isdisjoint(t.attr.axes)
            if stage or not read.isdisjoint(t.args):
                read.add(t)
        values = (v for t in read if not t.is_boolean and along.isdisjoint(t.axes) for v in self.evaluation.table(t))
        return not all(v is UNKNOWN or is_finite(v) for v in values)

    def _outside(self, side: Term) -> bool:
        """Whether NaN comes from a real function outside its domain (or stands there), not from an infinity."""
        if self.outside is None:
            self.outside = not any(type(v) is float and v == v for t in walk(side) for v in self.evaluation.table(t))
        return self.outside

    def _agree(self, left: Value, right: Value) -> bool | None:
        if type(left) is bool or type(right) is bool:
            return self.evaluation.numbers.truth(left) is self.evaluation.numbers.truth(right)
        if type(left) is Complex or type(right) is Complex:
            found = [self._agree(a, b) for a, b in zip(parts(left), parts(right), strict=True)]
            return False if False in found else None if None in found else True
        sign = self.evaluation.numbers.order(left, right)
        if sign is not None:
            return sign == 0
        if all(type(v) is not Interval or v.is_narrow(NARROW) for v in (left, right)):
            return True
        self.why = self.why or "the enclosures of the sides are too wide"
        return None

    def _defined(self, definition: Term, at: Place) -> bool:
        """Whether the definition is a number at a position that agrees with this one."""
        return any(is_finite(value) for _, value in self._there(definition, at))

    def _there(self, t: Term, at: Place) -> Iterator[tuple[dict[str, int], Value]]:
        """The positions of a term that agree with this one, and its values there."""
        free = [a for a in sorted(t.axes) if a not in at]
        fixed = {a: at[a] for a in t.axes if a in at}
        return (
            ({**fixed, **rest}, self.evaluation.value(t, {**fixed, **rest})) for rest in self.evaluation.places(free)
        )

    def _point(self, at: Place, left: Value, right: Value) -> dict[str, Any]:
        shown = {
            f"{name}{list(place) if place else ''}": value
            for name, values in self.values.items()
            for place, value in values.items()
        }
        sizes = {a: n for a, n in self.sizes.items() if a not in self.made}
        return {"point": shown, "sizes": sizes, "at": dict(at), "left": left, "right": right}


def _signed(value: Fraction, domain: frozenset[str], mode: int) -> Fraction:
    """The number with the sign that the mode and the domain ask for: positive in modes 2 and 5, not so in 4 and 8.

    In 8 it is so far below 0 that anchors are, too.
    """
    if "integer" in domain:
        value = Fraction(round(value))
    if mode in (4, 8):
        value = -abs(value) - (BELOW if mode == 8 else 0)
    if mode in (2, 5) or domain & {"positive", "nonnegative"}:
        value = abs(value)
    if not value and ("positive" in domain or mode in (2, 5)):
        return Fraction(1)
    return value


def _is_of_elements(fact: Term) -> bool:
    """Whether a fact is a condition that something is computed under, which need not hold at other places."""
    return any(t.op not in ("state", "const") for t in walk(fact) if not t.args)


def _later(fact: Term) -> Term | None:
    """The state leaf of an order fact that stands for the later time (the one with more primes)."""
    if fact.op != "le":
        return None
    found = [side for side in fact.args if side.op == "state"]
    return max(found, key=lambda leaf: leaf.attr.name.count("'"), default=None)


def _rational(bound: Value, up: bool) -> Fraction | None:
    """A short rational on the right side of a value."""
    if type(bound) is Fraction:
        return bound
    if type(bound) is not Interval:
        return None
    try:
        end = Numbers().reals.ends(bound)[1 if up else 0] * 16
    except OverflowError:
        return None
    return Fraction(-((-end) // 1) if up else end // 1, 16)


def _axes(roots: tuple[Term, ...]) -> set[str]:
    return set(_every_axis(roots))


def _every_axis(roots: tuple[Term, ...]) -> Iterator[str]:
    for t in walk(*roots):
        spend(len(t.axes) // 4)
        yield from t.axes
        if t.op == "reduce":
            yield from t.attr.axes
        elif t.op == "size":
            yield t.attr
