"""Whether an output needs a refused stage, shown at numbers: identities that no normal form knows make a stage vanish.

sin² + cos² of a stage is 1, floor(sigmoid(a)/2) is 0, and max(a, b) - min(a, b) is |a - b|, which has a form where
a - b has one, although a and b have none. So two things are shown of the output, in enclosures of streams:

*Seen.* With the value that another stream gives the stage, or one nearby, all else being equal, the output is certainly
another than with its own, or one nearby.
*No small state.* In sums that are not known to separate, elements have weights: a sum is Σ w·F, a product Π F^w. If the
output were a function of fewer than K sums over the axis, those of all other results among them, and differentiable
there, its derivatives by the weights of elements that all streams share would have a rank below K. Where the output is
a step function of something (a floor, a choice), that is shown of what the step is taken of, which then has to be seen
in the output, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from random import Random
from typing import Any

from redalg.proofs.checker.coverage import separates
from redalg.proofs.checker.normalform import Normal
from redalg.proofs.document.functions import FUNCTIONS, STRICTLY
from redalg.proofs.document.intervals import moved
from redalg.proofs.document.terms import Leaf, Term, walk
from redalg.proofs.falsification.evaluate import Evaluation, TooMuch, Unfit, new_axes
from redalg.proofs.numbers.complexes import Complex, parts
from redalg.proofs.numbers.duals import Dual, Duals, plain, tangents
from redalg.proofs.numbers.enclosure import Interval
from redalg.proofs.numbers.value_maps import ONE, UNKNOWN, Value, is_nan
from redalg.proofs.numbers.values import Numbers
from redalg.proofs.refusals.evidence import Array, Element, Evidence
from redalg.proofs.refusals.rank import regular

PRECISIONS = (256, 900)  # bits of derivatives
BITS = 256  # of values that are compared
LONGEST = 2000  # bits of a rational
BUDGET = 200_000  # evaluations of one stream
SCALES = tuple(map(Fraction, ("1", "1/8", "-2", "20", "1/100", "3", "1000", "-1/2")))  # of drawn elements
LENGTHS = (3, 6)  # of drawn streams
OTHER = 2  # their length along every other axis
COMPARISONS = ("lt", "le", "eq", "ne")
FLAT, INDEPENDENT, OPEN = "flat", "independent", "open"


@dataclass(frozen=True)
class Stream:
    """Values of every tensor, the lengths of all axes, and what an axis of which one copy is kept counts as."""

    leaves: Mapping[str, Mapping[tuple[int, ...], Value]]
    lengths: Mapping[str, int]
    sizes: Mapping[str, int]
    offsets: Mapping[str, int]


def needs(r: Evidence, root: Term) -> str:
    """What could not be shown of an output that holds the stage; nothing where it needs it."""
    try:
        return Trial(r, root).missing()
    except (TooMuch, Unfit) as e:
        return str(e)
    except RecursionError:
        return "it is nested too deeply"


class Trial:
    """One output with the streams of the certificate, and some that are drawn."""

    def __init__(self, r: Evidence, root: Term) -> None:
        self.r, self.root = r, root
        self.head = r.document.axis[0]
        self.mixed = _mixed(r, root)
        self.readings = [t.attr for t in walk(root) if t.op == "tensor"]
        self.given = [self._completed(stream) for stream in r.streams]
        self.weighted: dict[int, list[Weighted]] = {}
        self.own: dict[tuple[Evaluation, Term], list[Value]] = {}
        self.groups: list[list[Evaluation]] = [self._evaluated(self.given[: len(SCALES)])]

    def missing(self) -> str:
        """What could not be shown of the output."""
        if not self._seen(self.r.stage):
            return "no stream was found on which the output changes with its value"
        todo, met = [self.root], set[Term]()
        while todo:
            term, whole = todo.pop(), not met
            while term.op in FUNCTIONS and FUNCTIONS[term.op].rises == STRICTLY:
                term = term.args[0]  # one tells the other
            if term in met or self.r.stage not in set(walk(term)):
                continue
            met.add(term)
            found = self._independent(term)
            if found == INDEPENDENT and (whole or self._seen(term)):
                return ""
            if found == FLAT and self._steps(term):
                chosen = term.op == "where" and self.r.stage in set(walk(term.args[0]))
                todo += term.args[:1] if chosen else term.args
        return "its derivatives by weights of elements are not shown to be independent"

    def _steps(self, term: Term) -> bool:
        """Whether a term is constant nearby because it is a step of what is not, and not because that cancels."""
        if all(self._independent(a) == FLAT for a in term.args if self.r.stage in set(walk(a))):
            return True
        if term.op in COMPARISONS:
            terms, (left, right) = self.r.document.terms, term.args
            less = terms("mul", terms("const", attr=-ONE), right)
            return self._independent(terms("add", left, less)) == INDEPENDENT
        return _is_step(term)

    # --- streams ---

    def _completed(self, elements: Sequence[Element]) -> Stream:
        """A stream of the certificate with values of the tensors that the stage does not read.

        An axis of which the stage needs one copy has the others nowhere, or, where the output reduces it, not at all.
        """
        r = self.r
        reduced = {a for t in walk(self.root) if t.op == "reduce" for a in t.attr.axes}
        kept = {a: at for a, at in r.positions.items() if a not in reduced}
        lengths = {a: 1 if a in r.positions else n for a, n in r.sizes.items()} | {self.head: len(elements)}
        leaves: dict[str, dict[tuple[int, ...], Value]] = {}
        for leaf in [t.attr for t in walk(r.stage) if t.op == "tensor"]:
            if self.head not in leaf.axes:
                leaves[leaf.name] = dict(_entries(r.parameters[leaf.name]))
                continue
            where = leaf.axes.index(self.head)
            rows = ((j, at, v) for j, e in enumerate(elements) for at, v in _entries(e[leaf.name]))
            leaves[leaf.name] = {(*at[:where], j, *at[where:]): v for j, at, v in rows}
        lengths = self._all_lengths(lengths, 1)
        self._draw(leaves, lengths, "given", ONE)
        return Stream(leaves, lengths, {a: r.sizes[a] for a in kept}, kept)

    def _drawn(self, n: int, number: int) -> Stream:
        leaves: dict[str, dict[tuple[int, ...], Value]] = {}
        lengths = self._all_lengths({self.head: n} | dict.fromkeys(self.r.document.axis[1:], 1), OTHER)
        self._draw(leaves, lengths, str(number), SCALES[number])
        return Stream(leaves, lengths, {}, {})

    def _all_lengths(self, lengths: Mapping[str, int], other: int) -> dict[str, int]:
        axes = {a for t in walk(self.root) for a in (*t.axes, *(t.attr.axes if t.op == "reduce" else ()))}
        return {**dict.fromkeys(axes - new_axes(self.root).keys(), other), **lengths}

    def _draw(self, leaves: dict[str, Any], lengths: Mapping[str, int], seed: str, scale: Fraction) -> None:
        """Values of the tensors that have none, each a function of its place and the seed."""
        given = set(leaves)
        for leaf in self.readings:
            if leaf.name not in given:
                ranges = [range(lengths.get(a, OTHER)) for a in leaf.axes]
                values = leaves.setdefault(leaf.name, {})
                for at in product(*ranges):
                    values.setdefault(at, _number(leaf, Random(f"{seed}:{leaf.name}:{at}"), scale))

    def _evaluated(self, streams: Sequence[Stream]) -> list[Evaluation]:
        return [self._evaluation(s, Numbers(BITS, LONGEST)) for s in streams]

    def _evaluation(self, s: Stream, numbers: Numbers, kind: type[Evaluation] = Evaluation) -> Evaluation:
        monoids, sizes = self.r.document.monoids, {**s.lengths, **s.sizes}
        return kind(numbers, s.leaves, s.lengths, sizes=sizes, offsets=s.offsets, monoids=monoids, budget=BUDGET)

    # --- seen ---

    def _seen(self, term: Term) -> bool:
        """Whether the output is certainly another with the term's value on another stream."""
        for k in range(2):
            if k == len(self.groups):
                numbers = range(len(SCALES))
                self.groups.append(self._evaluated([self._drawn(n, number) for n in LENGTHS for number in numbers]))
            group = self.groups[k]
            pairs = ((e, group[(i - step) % len(group)]) for step in (1, 3) for i, e in enumerate(group))
            if any(self._changes(e, other, term) for e, other in pairs):
                return True
        return False

    def _changes(self, e: Evaluation, other: Evaluation, term: Term) -> bool:
        if e is other or any(e.lengths[a] != other.lengths[a] for a in term.axes):
            return False
        value = other.table(term)
        if any(v is UNKNOWN or is_nan(v) for v in value):
            return False
        if (e, term) not in self.own:
            self.own[e, term] = self._around(e, term, e.table(term))
        pairs = zip(self.own[e, term], self._around(e, term, value), strict=True)
        return any(e.numbers.compare("ne", a, b) is True and not is_nan(a) and not is_nan(b) for a, b in pairs)

    def _around(self, e: Evaluation, term: Term, value: Sequence[Value]) -> list[Value]:
        """The output with a value of the term, and whatever lies near that.

        Where a stage ends (a sum of sizes at 0) a step of it may only ask whether elements are alike, and that may have
        a form; so a step shows nothing at the very value at which it steps.
        """
        changed = Evaluation(
            e.numbers, e.leaves, e.lengths, sizes=e.sizes, offsets=e.offsets, monoids=e.monoids, budget=BUDGET
        )
        changed.tables[term], changed.orders[term] = [_near(e.numbers, v) for v in value], e.orders[term]
        return changed.table(self.root)

    # --- no small state ---

    def _independent(self, term: Term) -> str:
        """Whether the derivatives of the term by the weights are independent on the streams on which it has some.

        Flat, where these are fewer than half of the streams.
        """
        for bits in PRECISIONS:
            if bits not in self.weighted:
                self.weighted[bits] = [self._with_weights(s, Weights(bits, LONGEST)) for s in self.given]
            columns = [self._column(e, term) for e in self.weighted[bits]]
            moving = [c for c in columns if c]
            if not moving:
                return FLAT if None not in columns else OPEN
            if regular([list(row) for row in zip(*moving, strict=True)], bits):
                return INDEPENDENT if 2 * len(moving) >= len(columns) else FLAT
        return OPEN

    def _with_weights(self, s: Stream, numbers: Numbers) -> Weighted:
        found = self._evaluation(s, numbers, Weighted)
        assert isinstance(found, Weighted)
        found.head, found.mixed, found.rows = self.head, self.mixed, []
        found.sites = {place: p for p, place in enumerate(self.r.places)}
        return found

    def _column(self, e: Weighted, term: Term) -> list[Value] | None:
        """The derivatives at the last element; none where the term stays, None where that is not known."""
        e.table(self.root)
        value = e.value(term, dict.fromkeys(term.axes, 0) | {self.head: e.lengths[self.head] - 1})
        if value is UNKNOWN:
            return None
        if all(t == 0 for t in tangents(value).values()):
            return []
        found = [Numbers.add(e.numbers, terms) for terms in e.column(value)]
        if any(type(v) not in (Fraction, Interval) for v in found):
            return None
        return [] if all(v == 0 for v in found) else found


class Weighted(Evaluation):
    """Values on a stream whose elements have weights of 1 in some sums and products, as duals of these.

    Variable v is one of them; `rows[v]` are its derivatives by the weights, with those of the sums inside it.
    """

    head: str
    mixed: frozenset[Term]
    sites: Mapping[int, int]  # position -> which weight
    rows: list[list[Value]]

    def _reduce(self, t: Term) -> list[Value]:
        found, (_, axes, _) = super()._reduce(t), t.attr
        if t not in self.mixed:
            return found
        n, after = self.lengths[self.head], prod(self.lengths[a] for a in axes[axes.index(self.head) + 1 :])
        column, size = self._along(t.args[0], self.orders[t] + axes), prod(self.lengths[a] for a in axes)
        self._spend(len(column))
        for r, value in enumerate(found):
            parts: list[list[Value]] = [[] for _ in self.sites]
            for i, v in enumerate(column[r * size : (r + 1) * size]):
                if i // after % n in self.sites:
                    parts[self.sites[i // after % n]].append(plain(v))
            found[r] = self._of_weights(t.attr.kind, value, parts)
        return found

    def _of_weights(self, kind: str, value: Value, parts: list[list[Value]]) -> Value:
        """The value of a sum or product as a variable, from what it adds up at each place."""
        numbers, bare = self.numbers, plain(value)
        if type(bare) not in (Fraction, Interval):
            return value
        if kind == "prod":
            sizes = [[Numbers.map(numbers, "log", Numbers.map(numbers, "abs", v)) for v in part] for part in parts]
            parts = [[Numbers.mul(numbers, [bare, v]) for v in part] for part in sizes]
        row = [Numbers.add(numbers, [*part, *inner]) for part, inner in zip(parts, self.column(value), strict=True)]
        if any(type(v) not in (Fraction, Interval) for v in row):
            return UNKNOWN
        self.rows.append(row)
        return Dual(bare, {len(self.rows) - 1: ONE})

    def column(self, value: Value) -> list[list[Value]]:
        """The terms of its derivative by each weight."""
        found = [(t, self.rows[v]) for v, t in tangents(value).items()]
        self._spend(len(found) * len(self.sites))
        return [[Numbers.mul(self.numbers, [t, row[p]]) for t, row in found] for p in range(len(self.sites))]


class Weights(Duals):
    """Duals for which steps are constant."""

    def map(self, name: str, x: Value) -> Value:
        steps = name in FUNCTIONS and FUNCTIONS[name].derivative == "0"
        return Numbers.map(self, name, plain(x)) if steps else super().map(name, x)

    def cast(self, x: Value, name: str) -> Value:
        if type(x) is not Dual:
            return Numbers.cast(self, x, name)
        near = x.value if type(x.value) is not Fraction else _near(self, x.value)
        found = Numbers.cast(self, near, name)
        return found if type(found) in (bool, Fraction) else UNKNOWN


def _near(numbers: Numbers, v: Value) -> Value:
    """An enclosure of a number with its neighbourhood; truths and infinities are as they are."""
    if type(v) is Complex:
        return Complex(*(_near(numbers, part) for part in parts(v)))
    if not isinstance(v, Fraction | Interval):
        return v
    try:
        low, high = (v, v) if isinstance(v, Fraction) else numbers.reals.ends(v)
    except OverflowError:  # too near to 0, or too large, to be written out
        return UNKNOWN
    tiny = Fraction(1, 1 << numbers.reals.bits // 2) * max(abs(low), abs(high), ONE)
    return numbers.reals.between(low - tiny, high + tiny)


def _is_step(term: Term) -> bool:
    """Whether an operation can be constant nearby where what it is taken of is not."""
    if term.op == "reduce":
        return term.attr.kind not in ("sum", "prod", "monoid")
    row = FUNCTIONS.get(term.op)
    return term.is_boolean or term.op in ("where", "maximum", "minimum", "cast") or bool(row and row.kinks)


def _mixed(r: Evidence, root: Term) -> frozenset[Term]:
    """The sums and products over the axis that are not known to separate into factors of elements and of results."""
    doc, normal = r.document, Normal()
    found = {
        t
        for t in walk(root)
        if t.op == "reduce" and t.attr.kind in ("sum", "prod") and r.document.axis[0] in t.attr.axes
    }
    return frozenset(t for t in found if t is r.stage or not separates(t, doc, normal))


def _entries(array: Array) -> Iterator[tuple[tuple[int, ...], Any]]:
    if not isinstance(array, tuple):
        yield (), array
        return
    for i, part in enumerate(array):
        yield from (((i, *at), v) for at, v in _entries(part))


def _number(leaf: Leaf, random: Random, scale: Fraction) -> Value:
    if "bool" in leaf.domain:
        return random.random() < 0.6
    if "integer" in leaf.domain:
        return moved(leaf.domain, Fraction(random.randint(1, 5)))
    drawn = Fraction(random.randint(-64, 64), random.randint(5, 16)) * scale
    if leaf.domain & {"positive", "nonnegative"}:
        drawn = abs(drawn) + Fraction(1, 8)
    value = moved(leaf.domain, drawn)
    return Complex(value, value / 3 + 1) if "complex" in leaf.domain else value
