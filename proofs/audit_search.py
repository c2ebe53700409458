"""Searching for counterexamples of a law, and shrinking them: deterministic functions of the operator and a seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from redalg.proofs.audit_domain import Domain, cost, simpler
from redalg.proofs.audit_judge import Case, Operator, Part, Verdict, judge
from redalg.proofs.audit_terms import Check, Law

LONGEST = 4  # elements of a chunk
LONG = (31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 513, 1000, 1023, 1025, 2049, 4097)  # of one chunk
GROWN = 12  # cases of states that are merged with themselves
TRIES = 40  # draws of a state until `valid` takes one
BUDGET = 3000  # judgements spent on shrinking one counterexample


@dataclass(frozen=True)
class Found:
    """The outcome of a search: how many cases were judged, and the smallest one that breaks the law."""

    samples: int
    how: frozenset[str]
    check: Check | None = None
    case: Case = ()
    verdict: Verdict | None = None


class Sampler:
    """Cases of a law: ordinary numbers, and in some places special ones of the law's kind."""

    def __init__(self, op: Operator, kind: str, rng: Random) -> None:
        self.op, self.kind, self.rng = op, kind, rng
        self.special = [d.special(kind) if kind else () for d in op.domains]

    @property
    def applies(self) -> bool:
        return not self.kind or any(self.special)

    def case(self, states: int, small: bool) -> Case | None:
        parts = [self.part(small) for _ in range(states)]
        if states > 1 and self.rng.random() < 0.2:
            parts[-1] = parts[0]
        if self.kind and states:
            at = self.rng.randrange(states)
            parts[at] = self._with_special(parts[at])
        return tuple(p for p in parts if p is not None) if None not in parts else None

    def part(self, small: bool) -> Part | None:
        """A state, or the elements of a chunk."""
        for _ in range(TRIES):
            count = 1 if self.op.lift is None else self.rng.randint(0, LONGEST)
            found = tuple(d.draw(self.rng, small) for _ in range(count) for d in self.op.domains)
            if self.op.lift is None and self.op.identity and not self.kind and self.rng.random() < 0.05:
                found = self.op.identity
            if valid(self.op, found):
                return found
        return None

    def long_case(self, states: int, elements: int) -> Case | None:
        """One chunk of so many elements, the others short."""
        case = self.case(states, False)
        if case is None:
            return None
        at, found = self.rng.randrange(states), list[object]()
        for _ in range(elements):
            element = tuple(d.draw(self.rng, False) for d in self.op.domains)
            found += element if valid(self.op, element) else case[at][: len(element)]
        return _replaced(case, at, tuple(found))

    def _with_special(self, part: Part | None) -> Part | None:
        width = len(self.op.domains)
        for _ in range(TRIES):
            numbers = list(part or self.part(True) or ())
            while self.op.lift is not None and not numbers:
                numbers = list(self.part(True) or ())
            places = [i for i in range(len(numbers)) if self.special[i % width]]
            if not places:
                return None
            chosen = {i for i in places if self.rng.random() < 0.4} | {self.rng.choice(places)}
            for i in chosen:
                numbers[i] = self.rng.choice(self.special[i % width])
            if valid(self.op, tuple(numbers)):
                return tuple(numbers)
        return None


def valid(op: Operator, part: Part) -> bool:
    """Whether the user's predicate takes the state (or, where there is a lift, every element of the chunk)."""
    if op.valid is None:
        return True
    if op.lift is None:
        return bool(op.valid(op.layout.build(iter(part), False)))
    assert op.element is not None
    source = iter(part)
    return all(op.valid(op.element.build(source, False)) for _ in range(len(part) // len(op.domains)))


def search(op: Operator, law: Law, samples: int, seed: int) -> Found | None:
    """The first counterexample, shrunk, or the number of cases on which the law holds; None if it does not apply."""
    rng = Random(f"{seed}:{law.name}")
    sampler = Sampler(op, law.kind, rng)
    huge = Sampler(op, "huge", rng)
    if not law.checks or not sampler.applies:
        return None
    judged, how = 0, set()
    for turn in range(max(samples, len(LONG))):
        for check in law.checks:
            if turn >= _turns(check, samples):
                continue
            source = huge if check.huge and turn % 2 and huge.applies else sampler
            if check.long:
                case = source.long_case(check.states, LONG[turn])
            else:
                case = source.case(check.states, turn < samples // 2)
            verdict = judge(op, check, case) if case is not None else Verdict(None)
            if verdict.broken and check.demand == "same":
                return Found(judged, frozenset({verdict.how}), check, case or (), verdict)  # it may not fail again
            if verdict.broken:
                smallest, last = shrink(op, check, case or (), verdict)
                return Found(judged, frozenset({last.how}), check, smallest, last)
            judged += verdict.broken is False
            how |= {verdict.how} if verdict.broken is False else set()
    return Found(judged, frozenset(how))


def _turns(check: Check, samples: int) -> int:
    """How many cases a check is worth: every long length once; once where nothing is drawn."""
    if check.long:  # definitions may take the square of the length
        return len(LONG) if check.right is None or check.right.op != "defined" else LONG.index(513) + 1
    if not check.states:
        return 1
    return min(samples, GROWN) if check.grows else samples


# --- shrinking --------------------------------------------------------------------------------------------------------

Key = tuple[int, int, int, int, float]


def size(op: Operator, case: Case) -> Key:
    """Fewer elements in fewer chunks first, then numbers that are easier to read."""
    costs = [cost(x) for part in case for x in part]
    bits, digits, magnitudes = (sum(c[k] for c in costs) for k in range(3))
    elements = (sum(map(len, case)), sum(map(bool, case))) if op.lift is not None else (0, 0)
    return (*elements, int(bits), int(digits), magnitudes)


def shrink(op: Operator, check: Check, case: Case, verdict: Verdict) -> tuple[Case, Verdict]:
    """The smallest case that greedy steps reach and that still breaks the check."""
    left = BUDGET
    best = size(op, case)
    while left > 0:
        for candidate in candidates(op, case):
            key = size(op, candidate)
            if key >= best or not all(valid(op, p) for p in candidate):
                continue
            left -= 1 + sum(map(len, candidate)) // 16
            found = judge(op, check, candidate)
            if found.broken:
                case, verdict, best = candidate, found, key
                break
            if left <= 0:
                break
        else:
            break
    return case, verdict


def candidates(op: Operator, case: Case) -> Iterator[Case]:
    """Smaller cases, the boldest first: whole parts, elements, equal numbers together, single numbers."""
    width = len(op.domains)
    for k, part in enumerate(case):
        if op.lift is not None and len(part) > LONG[0] * width:
            yield _replaced(case, k, tuple(_easiest(op.domains[i % width]) for i in range(len(part))))
            yield _replaced(case, k, part[:width] * (len(part) // width))
    for k, part in enumerate(case):
        if op.lift is not None:
            yield from (_replaced(case, k, p) for p in _shorter(part, len(op.domains)))
        elif op.identity is not None:
            yield _replaced(case, k, op.identity)
            yield _replaced(case, k, tuple(_easiest(d) for d in op.domains))
    if op.lift is not None:
        yield from (_joined(case, k) for k in range(len(case)))
    yield from _together(op, case)
    for k, part in enumerate(case):
        for i, x in enumerate(part):
            for y in simpler(x, op.domains[i % len(op.domains)]):
                yield _replaced(case, k, (*part[:i], y, *part[i + 1 :]))


def _easiest(domain: Domain) -> object:
    found = simpler(float("nan"), domain)
    return found[0] if found else next(iter(domain.choices), False)


def _shorter(part: Part, width: int) -> Iterator[Part]:
    if part:
        yield ()
    if len(part) > LONG[0] * width:
        middle = len(part) // width // 2 * width
        yield from (part[:middle], part[middle:], part[width:])
        return
    for at in range(0, len(part), width):
        yield (*part[:at], *part[at + width :])


def _joined(case: Case, k: int) -> Case:
    """All elements in one chunk, the others empty."""
    return tuple(sum(case, ()) if j == k else () for j in range(len(case)))


def _replaced(case: Case, k: int, part: Part) -> Case:
    return (*case[:k], part, *case[k + 1 :])


def _together(op: Operator, case: Case) -> Iterator[Case]:
    """Every occurrence of one number replaced by a simpler one: ties stay ties."""
    width = len(op.domains)
    places: dict[str, list[tuple[int, int]]] = {}
    for k, part in enumerate(case):
        for i, x in enumerate(part):
            places.setdefault(f"{type(x).__name__} {x}", []).append((k, i))
    for where in places.values():
        if len(where) < 2:
            continue
        domains = [op.domains[i % width] for _, i in where]
        k, i = where[0]
        for y in simpler(case[k][i], domains[0]):
            if all(y in d for d in domains):
                parts = [list(p) for p in case]
                for a, b in where:
                    parts[a][b] = y
                yield tuple(map(tuple, parts))
