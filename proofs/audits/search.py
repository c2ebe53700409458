"""Searching for counterexamples of a law, and shrinking them: deterministic functions of the operator and a seed.

Hypothesis draws three states at a time and shrinks them (`redalg.proofs.audits.drawing`). All laws about numbers of one
kind are judged on the same states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import cycle, islice, zip_longest
from random import Random
from typing import Any

from redalg.proofs.audits.domain import Below
from redalg.proofs.audits.drawing import drawn, smallest, strategy
from redalg.proofs.audits.judge import Case, Number, Operator, Part, Verdict, judge
from redalg.proofs.audits.terms import Check, Law

STATES = 3  # drawn at a time
LONGEST = 4  # elements of a chunk
LONG = (*range(5, 22), *sorted({2**e + d for e in range(5, 13) for d in (-1, 0, 1)} | {1000}))  # of one chunk
EVEN, ORDINARY = 100, 60  # of so many places, those that keep an ordinary number beside special ones
WIDE = 100  # numbers of a state that are drawn one by one
MIXED = ("large", "magnitudes")  # kinds of numbers that several states of a case may hold
GROWN, EACH = 12, 2  # cases of states that are merged with themselves; of each of many counts
TRIES, FEW = 40, 4  # draws of a state until `valid` takes one; so many of them number by number
BUDGET = 3000  # judgements spent on shrinking one counterexample


@dataclass(frozen=True)
class Found:
    """The outcome of a search: how many cases were judged, and the smallest one that breaks the law."""

    samples: int
    how: frozenset[str]
    check: Check | None = None
    case: Case = ()
    verdict: Verdict | None = None
    again: bool = True  # whether the law broke once more when the case was judged again


@dataclass(frozen=True)
class Drawn:
    """States, and one that holds special numbers, which takes the place of one of them."""

    parts: Case
    tie: bool = False  # the last state is the first
    special: Part | None = None
    at: int = 0

    def case(self, states: int) -> Case:
        """So many states of them."""
        parts = list(self.parts[:states])
        if self.tie and states > 1:
            parts[-1] = parts[0]
        if self.special is not None and states:
            parts[self.at % states] = self.special
        return tuple(parts)


class Sampler:
    """Cases of a law: ordinary numbers, and in some places special ones of the law's kind."""

    def __init__(self, op: Operator, kind: str) -> None:
        self.op, self.kind = op, kind
        self.special = [d.special(kind) if kind else () for d in op.domains]

    @property
    def applies(self) -> bool:
        return not self.kind or any(self.special)

    def states(self, below: Below, small: bool = False) -> Drawn | None:
        """Three states, half of them (or, if so wanted, all) of small numbers; None where `valid` takes none."""
        small = small or not below(2)
        parts = [self._part(below, small) for _ in range(STATES)]
        tie = below(5) == 4
        special = self._with_special(below, small) if self.kind else None
        at = below(6) if self.kind else 0
        if None in parts or (self.kind and special is None):
            return None
        return Drawn(tuple(p for p in parts if p is not None), tie, special, at)

    def _part(self, below: Below, small: bool) -> Part | None:
        """Large numbers stand in half of all states: a law may fail only where they meet, or only beside small ones."""
        met = self.kind in MIXED and below(2)
        return self._with_special(below, False) if met else self.part(below, small)

    def part(self, below: Below, small: bool) -> Part | None:
        """A state, or the elements of a chunk."""
        for take in _tries(below):
            found = self._numbers(take, small)
            if self.op.lift is None and self.op.identity and not self.kind and take(20) == 19:
                found = self.op.identity
            if valid(self.op, found):
                return found
        return None

    def _numbers(self, below: Below, small: bool) -> Part:
        if self.op.lift is None:
            return self._element(below, small)
        found: Part = ()
        while len(found) < LONGEST * len(self.op.domains) and below(5):
            found += self._element(below, small)
        return found

    def _element(self, below: Below, small: bool) -> Part:
        """One number per leaf; those of wide states are scattered by a number that stands for all of them."""
        if len(self.op.domains) > WIDE:
            below = _scattering(below(EVEN))
        return tuple(d.draw(below, small) for d in self.op.domains)

    def _with_special(self, below: Below, small: bool) -> Part | None:
        for take in _tries(below):
            numbers = self.part(take, small) or self._element(take, small)
            places = [i for i in range(len(numbers)) if self.special[i % len(self.special)]]
            if not places:
                return None
            found = self._replaced(take, list(numbers), places)
            if valid(self.op, found):
                return found
        return None

    def _replaced(self, below: Below, numbers: list[Number], places: list[int]) -> Part:
        """Special numbers in some of the places, in one of them for sure."""
        sure = places[below(min(len(places), EVEN))]
        scatter = _scattering(below(EVEN)) if len(places) > WIDE else below
        for i in places:
            among, k = self.special[i % len(self.special)], scatter(EVEN)
            if i == sure:
                numbers[i] = among[k * len(among) // EVEN]
            elif k >= ORDINARY:
                numbers[i] = among[(k - ORDINARY) * len(among) // (EVEN - ORDINARY)]
        return tuple(numbers)

    def long(self, below: Below, elements: int) -> Drawn | None:
        """One chunk of so many elements, one again and again or scattered ones; the others are short, and not empty."""
        short, one = self.states(below), self._one(below)
        at, entropy = below(6), below(EVEN)
        if short is None or one is None:
            return None
        short = replace(short, parts=tuple(p or one for p in short.parts))
        if not entropy:
            return replace(short, special=one * elements, at=at)
        roll, found = Random(entropy).randrange, list[Number]()
        for _ in range(elements):
            element = self._element(roll, False)
            found += element if valid(self.op, element) else one
        return replace(short, special=tuple(found), at=at)

    def _one(self, below: Below) -> Part | None:
        """An element that `valid` takes."""
        for take in _tries(below):
            if valid(self.op, found := self._element(take, False)):
                return found
        return None


def _tries(below: Below) -> Iterator[Below]:
    """What several draws of a state are made with: Hypothesis takes so many numbers, and no more."""
    for turn in range(TRIES):
        below = _scattering(below(EVEN)) if turn == FEW else below
        yield below


def _scattering(entropy: int) -> Below:
    """Nothing but the simplest, or what a generator gives."""
    return Random(entropy).randrange if entropy else lambda n: 0


def valid(op: Operator, part: Part) -> bool:
    """Whether the user's predicate takes the state (or, where there is a lift, every element of the chunk)."""
    if op.valid is None:
        return True
    if op.lift is None:
        return bool(op.valid(op.layout.build(iter(part), False)))
    assert op.element is not None
    source = iter(part)
    return all(op.valid(op.element.build(source, False)) for _ in range(len(part) // len(op.domains)))


@dataclass(frozen=True)
class Source:
    """A strategy for states, with the number of examples and the word that it is seeded with."""

    sampler: Sampler
    examples: int
    word: str
    elements: int = 0  # of the long chunk, if there is one

    def strategy(self, small: bool = False) -> Any:
        if self.elements:
            return strategy(lambda below: self.sampler.long(below, self.elements))
        return strategy(lambda below: self.sampler.states(below, small))

    @cached_property
    def drawn(self) -> list[Drawn]:
        """As many as there are examples, from the first again where there are no more; of long ones the last."""
        found = [d for d in drawn(self.strategy(), self.examples, self.word) if d is not None]
        return found[-1:] if self.elements else list(islice(cycle(found), self.examples))


@dataclass
class Search:
    """Counterexamples of the laws of one operator."""

    op: Operator
    samples: int
    seed: int
    _sources: dict[tuple[str, int], Source] = field(default_factory=dict)

    def law(self, law: Law) -> Found | None:
        """The first counterexample, shrunk, or on how many cases the law holds; None if it does not apply."""
        if not law.checks or not Sampler(self.op, law.kind).applies:
            return None
        judged, how = 0, set[str]()
        held: dict[Check, list[Case]] = {check: [] for check in law.checks}
        for check, source, case in self._in_turn(law):
            verdict = judge(self.op, check, case)
            if verdict.broken:
                return self._shrunk(source, check, held[check], (case, verdict), judged)
            if verdict.broken is False:
                judged += 1
                how.add(verdict.how)
            held[check].append(case)
        return Found(judged, frozenset(how))

    def _in_turn(self, law: Law) -> Iterator[tuple[Check, Source, Case]]:
        """The first case of every check, then the second: what fails easily is found first. Long chunks come last."""
        for long in (False, True):
            checks = [check for check in law.checks if check.long is long]
            for turn in zip_longest(*(self._cases(law.kind, check) for check in checks)):
                for check, found in zip(checks, turn, strict=True):
                    if found is not None:
                        yield check, found[0], found[1].case(check.states)

    def _cases(self, kind: str, check: Check) -> Iterator[tuple[Source, Drawn]]:
        """What a check is judged on: every long length once; once where nothing is drawn."""
        if check.long:
            sources = [self._source(kind, n) for n in LONG if n <= _longest(check)]
            yield from ((s, d) for s in sources for d in s.drawn)
            return
        ordinary = self._source(kind)
        if not check.states:
            yield ordinary, Drawn(())
        elif check.each:
            yield from ((ordinary, d) for d in self._from_one(ordinary))
        else:
            yield from self._ordinary(kind, check, ordinary)

    def _ordinary(self, kind: str, check: Check, ordinary: Source) -> Iterator[tuple[Source, Drawn]]:
        """As many cases as there are samples, half of them of huge numbers where the check is of these, too."""
        most = min(GROWN, self.samples) if check.grows else self.samples * (2 if kind in MIXED else 1)
        huge = self._source("huge") if check.huge and Sampler(self.op, "huge").applies else None
        first = most if huge is None else (most + 1) // 2
        yield from ((ordinary, d) for d in ordinary.drawn[:first])
        if huge is not None:
            yield from ((huge, d) for d in huge.drawn[: most - first])

    def _from_one(self, source: Source) -> list[Drawn]:
        """The first few cases without empty chunks, the first chunk cut to one element: the counts are what is said."""
        cases = (d.case(STATES) for d in source.drawn)
        found = [(c[0][: len(self.op.domains)], *c[1:]) for c in cases if all(c)]
        return [Drawn(c) for c in found[:EACH]]

    def _source(self, kind: str, elements: int = 0) -> Source:
        key = (kind, elements)
        if key not in self._sources:
            word = f"{self.seed}:{kind}:{elements}"
            examples = 2 if elements else self.samples * (2 if kind in MIXED else 1)  # the first is the simplest
            self._sources[key] = Source(Sampler(self.op, kind), examples, word, elements)
        return self._sources[key]

    def _shrunk(
        self, source: Source, check: Check, held: list[Case], first: tuple[Case, Verdict], judged: int
    ) -> Found:
        """The smallest counterexample, of small numbers if there is one. What does not repeat itself is not shrunk."""

        def broken(case: Case | None) -> Verdict | None:
            verdict = judge(self.op, check, case) if case is not None else None
            return verdict if verdict is not None and verdict.broken else None

        if check.demand == "same" or not check.states:
            return Found(judged, frozenset({first[1].how}), check, *first)
        known = {repr(case): None for case in held} | {repr(first[0]): first[1]}
        found: tuple[Case, Verdict] | None = None
        for small in (True, False):
            cases = source.strategy(small).map(lambda d: d and d.case(check.states))
            found = found or smallest(cases, broken, known, source.examples, source.word, BUDGET, _price)
        case, verdict = found or first
        return Found(judged, frozenset({verdict.how}), check, case, verdict, broken(case) is not None)


def _price(case: Case | None) -> int:
    return 1 + sum(map(len, case or ())) // 16


def _longest(check: Check) -> int:
    """Definitions may take the square of the length."""
    return LONG[-1] if check.right is None or check.right.op != "defined" else 513
