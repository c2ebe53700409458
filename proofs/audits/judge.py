"""Judging one check on one case: in Fractions where the operator keeps them, else within a forward error bound.

The bound of a computed term f of the states, with unit roundoff u of the least precise float type involved::

    SAFETY·u·(max(1, largest number met)·combines  +  Σ |x·∂f/∂x|  +  |f|)

where x runs over every number that enters the term: parts of the states and of every intermediate state. |x·∂f/∂x| is
what a relative error in x becomes (a condition number times |f|), measured by moving x by a factor 1 + 2^(-p/3), p the
digits of the type. So it is the first-order forward error bound of an operator whose own operations commit SAFETY/2
roundings per part of the result. The states drawn are of the order of 1, and so is a broken law; rounding is 2^p
smaller. The steps lie between: a jump of size h under them adds no more than SAFETY·2^(-2p/3)·h to the bound.
"""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from redalg.proofs.audits.domain import Domain
from redalg.proofs.audits.terms import Check, Term
from redalg.proofs.audits.values import (
    LARGEST,
    PRECISION,
    Layout,
    Number,
    Several,
    Unfit,
    array_of,
    is_exact,
    is_finite,
    is_nan,
    layout_of,
)

SAFETY = 64
SHORT = 600  # bits of a fraction that still grows
EXACT = 140  # numbers of a case that is judged in Fractions
LONG = 64  # elements, past which the condition of every number is not measured
AGAIN = 2  # times a term is computed once more
Part = tuple[Number, ...]  # the numbers of a state, or of a chunk's elements one after the other
Case = tuple[Part, ...]


@dataclass(frozen=True)
class Operator:
    """The functions under audit and how numbers are handed to them."""

    combine: Callable[[Any, Any], Any]
    identity: Part | None
    layout: Layout
    domains: tuple[Domain, ...]  # of the leaves of a state, or of an element where there is a lift
    dtype: str
    lift: Callable[[Any], Any] | None = None
    element: Layout | None = None
    finalize: Callable[[Any], Any] | None = None
    definition: Callable[[Any], Any] | None = None
    valid: Callable[[Any], bool] | None = None
    chunks: str = "list"
    exact: bool = False
    twice: bool = False  # exact judgement ran Python source, and the compiled function is to be judged as well
    rtol: float | None = None

    @property
    def u(self) -> float:
        return 2.0 ** -PRECISION[self.dtype]

    def function(self, name: str, exact: bool) -> Callable[..., Any]:
        """A function by name; its Python source where a compiled one cannot take Fractions."""
        found = getattr(self, name)
        return getattr(found, "py_func", found) if exact else found

    def chunk(self, numbers: Sequence[Number], exact: bool) -> Any:
        """A chunk of stream elements as the lift gets it."""
        assert self.element is not None
        width = len(self.element.leaves())
        if self.chunks == "array" and not (isinstance(self.element, Several) and self.element.keys):
            shape = (len(numbers) // width, width) if isinstance(self.element, Several) else (len(numbers),)
            return array_of(numbers, self.element.leaves()[0], exact, shape)
        source = iter(numbers)
        return [self.element.build(source, exact) for _ in range(len(numbers) // width)]

    def given(self, part: Part) -> Any:
        """A part of a case as the user would write it: a state, or a chunk of elements."""
        return self.layout.build(iter(part), False) if self.lift is None else self.chunk(part, False)


class Raised(Exception):
    """The operator raised an exception; its name is the text."""


@dataclass
class Run:
    """One evaluation of a term. `nudge`: (visit, leaf) whose number is moved by the factor 1 + step."""

    op: Operator
    case: Case
    exact: bool
    nudge: tuple[int, int] | None = None
    step: float = 0.0
    met: list[list[Number]] = field(default_factory=list)  # the numbers of every value visited
    combines: int = 0
    watched: bool = False  # whether arguments are compared before and after every combine
    changed: str = ""

    def value(self, term: Term) -> Any:
        return self._visited(self._compute(term), self.op.layout)

    def result(self, term: Term) -> list[Number]:
        """The numbers of a term's value, finalized where the operator has a finalize."""
        if term.op == "defined":
            return _flat(self._call("definition", self._joined(term.at)))
        value = self.value(term)
        if self.op.finalize is None:
            return self.met[-1]
        return _flat(self._call("finalize", value))

    def state(self, term: Term) -> list[Number]:
        self.value(term)
        return self.met[-1]

    def _compute(self, term: Term) -> Any:
        if term.op == "state":
            return self._state(term.at)
        if term.op == "combine":
            x, y = (self.value(a) for a in term.args)
            return self._combined(x, y)
        if term.op == "grown":
            return self._grown(self.value(term.args[0]), term.at)
        if term.op == "identity":
            return self._neutral()
        if term.op == "folded":
            total = self._neutral() if self.op.identity is not None else self._state(0)
            for k in range(self.op.identity is None, term.at):
                total = self._visited(self._combined(total, self._state(k)), self.op.layout)
            return total
        return self._call("lift", self._joined(0 if term.op == "nothing" else term.at))

    def _neutral(self) -> Any:
        assert self.op.identity is not None
        return self.op.layout.build(iter(self.op.identity), self.exact)

    def _combined(self, x: Any, y: Any) -> Any:
        self.combines += 1
        if not self.watched:
            return self._call("combine", x, y)
        before = [_bits(self.op.layout, v) for v in (x, y)]
        found = self._call("combine", x, y)
        for word, old, v in zip(("first", "second"), before, (x, y), strict=True):
            if _bits(self.op.layout, v) != old:
                self.changed = self.changed or f"returns with its {word} argument changed"
        return found

    def _grown(self, value: Any, times: int) -> Any:
        """The value combined with itself again and again, as long as its numbers stay far from the ends of the type."""
        for _ in range(times):
            numbers = self.op.layout.flatten(value)
            found = self._combined(value, self.op.layout.build(iter(numbers), self.exact))
            if not all(_moderate(x, self.op.dtype) for x in self.op.layout.flatten(found)):
                break
            value = found
        return value

    def _state(self, k: int) -> Any:
        if self.op.lift is None:
            return self.op.layout.build(iter(self.case[k]), self.exact)
        return self._call("lift", self._elements(list(self.case[k])))

    def _joined(self, chunks: int) -> Any:
        return self._elements([x for part in self.case[:chunks] for x in part])

    def _elements(self, numbers: list[Number]) -> Any:
        return self.op.chunk(self._moved(numbers), self.exact)

    def _visited(self, value: Any, layout: Layout) -> Any:
        numbers = layout.flatten(value)
        moved = self._moved(numbers)
        return value if moved is numbers else layout.build(iter(moved), self.exact)

    def _moved(self, numbers: list[Number]) -> list[Number]:
        visit = len(self.met)
        if self.nudge is not None and self.nudge[0] == visit:
            k = self.nudge[1]
            numbers = [*numbers[:k], float(numbers[k]) * (1 + self.step), *numbers[k + 1 :]]
        self.met.append(numbers)
        return numbers

    def _call(self, name: str, *args: Any) -> Any:
        try:
            return self.op.function(name, self.exact)(*args)
        except Exception as error:
            raise Raised(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error


def _moderate(x: Number, dtype: str) -> bool:
    """Far from overflow and underflow, and short where it is a fraction."""
    if isinstance(x, bool | complex) or not is_finite(x) or x == 0:
        return is_finite(x)
    end = LARGEST.get(dtype, 1.7976931348623157e308) ** 0.5
    if isinstance(x, Fraction) and max(x.numerator.bit_length(), x.denominator.bit_length()) > SHORT:
        return False
    return 1 / end <= abs(x) <= end


def _bits(layout: Layout, value: Any) -> tuple[Any, ...]:
    """What a state holds, to be compared with what it holds later: the structure, and numbers with their signs."""
    try:
        return tuple("nan" if is_nan(x) else (x, str(x)) for x in layout.flatten(value))
    except Unfit as error:
        return (str(error),)


def _flat(value: Any) -> list[Number]:
    return layout_of(value).flatten(value)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """NumPy's warnings about overflow and invalid operations are what is being looked for: they are not printed."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        yield
        return
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Outcome:
    """What a term gave: numbers, or the exception it raised (or the structure it lost)."""

    numbers: tuple[Number, ...] = ()
    raised: str = ""
    met: tuple[tuple[Number, ...], ...] = ()
    combines: int = 0

    @property
    def exact(self) -> bool:
        return not self.raised and all(is_exact(x) for group in (*self.met, self.numbers) for x in group)

    @property
    def scale(self) -> float:
        sizes = [abs(complex(x)) for group in (*self.met, self.numbers) for x in group if is_finite(x)]
        return max([1.0, *(s for s in sizes if math.isfinite(s))])


def outcome(op: Operator, term: Term, case: Case, exact: bool, plain: bool = False, **nudge: Any) -> Outcome:
    run = Run(op, case, exact, **nudge)
    try:
        numbers = run.state(term) if plain else run.result(term)
    except Raised as error:
        return Outcome(raised=str(error))
    except Unfit as error:
        return Outcome(raised=f"returns {error}")
    return Outcome(tuple(numbers), met=tuple(map(tuple, run.met)), combines=run.combines)


@dataclass(frozen=True)
class Verdict:
    """`broken` is None where the case says nothing: both sides raise, or the states are not finite to begin with."""

    broken: bool | None
    left: Outcome = Outcome()
    right: Outcome | None = None
    how: str = ""
    bound: float = 0.0


def judge(op: Operator, check: Check, case: Case, compiled: bool = False) -> Verdict:
    """One check on one case; `compiled` leaves exact arithmetic out."""
    if check.demand != "numbers":
        return (_kept if check.demand == "kept" else _steady)(op, check, case)
    if check.right is None:
        return _free_of_nan(op, check, case)
    short = op.lift is None or sum(map(len, case)) <= EXACT  # fractions of long folds grow too long
    if op.exact and not compiled and short and all(is_finite(x) for part in case for x in part):
        verdict = _exactly(op, check, case)
        if verdict is not None:
            if verdict.broken or not op.twice:
                return verdict
            second = _in_floats(op, check, case)
            return second if second.broken else verdict
    return _in_floats(op, check, case)


def _exactly(op: Operator, check: Check, case: Case) -> Verdict | None:
    """In Fractions, or None where they are lost on the way or a division by zero must be seen in floats."""
    assert check.right is not None
    left, right = (outcome(op, t, case, True) for t in (check.left, check.right))
    if not (left.exact and right.exact):
        return None
    same = len(left.numbers) == len(right.numbers) and _same(left, right, [0.0] * len(left.numbers))
    return Verdict(not same, left, right, "in Fractions")


def _in_floats(op: Operator, check: Check, case: Case) -> Verdict:
    assert check.right is not None
    left, right = (outcome(op, t, case, False) for t in (check.left, check.right))
    how = f"in {op.dtype}"
    if left.raised or right.raised:
        both = left.raised and right.raised
        return Verdict(None if both else True, left, right, how)
    if len(left.numbers) != len(right.numbers):
        return Verdict(True, left, right, how)
    scale = max(left.scale, right.scale)
    floor = scale * (op.rtol if op.rtol is not None else SAFETY * op.u * (1 + max(left.combines, right.combines)))
    bounds = [floor] * len(left.numbers)
    if _same(left, right, bounds):
        return Verdict(False, left, right, how, floor)
    if op.rtol is None and op.lift is not None and sum(map(len, case)) > LONG:
        bounds = [_bound_of_long(op, case, scale)] * len(bounds)
    elif op.rtol is None:
        moved = [_condition(op, t, case, o) for t, o in ((check.left, left), (check.right, right))]
        bounds = [floor + SAFETY * op.u * (p + q) for p, q in zip(*moved, strict=True)]
    return Verdict(not _same(left, right, bounds), left, right, how, max(bounds, default=0.0))


def _bound_of_long(op: Operator, case: Case, scale: float) -> float:
    """One rounding per element, of no more than the sizes of all together."""
    sizes = sum(abs(complex(x)) for part in case for x in part if is_finite(x))
    return SAFETY * op.u * sum(map(len, case)) * max(scale, sizes)


def _same(left: Outcome, right: Outcome, bounds: Sequence[float]) -> bool:
    """Equal numbers within the bounds; infinities equal themselves, and two states that both hold a NaN are equal."""
    if any(map(is_nan, left.numbers)) or any(map(is_nan, right.numbers)):
        return any(map(is_nan, left.numbers)) and any(map(is_nan, right.numbers))
    return all(_near(x, y, b) for x, y, b in zip(left.numbers, right.numbers, bounds, strict=True))


def _near(x: Number, y: Number, bound: float) -> bool:
    if x == y:
        return True
    if not (is_finite(x) and is_finite(y)) or isinstance(x, bool) != isinstance(y, bool):
        return False
    if isinstance(x, complex) or isinstance(y, complex):
        return abs(complex(x) - complex(y)) <= bound
    return bool(abs(Fraction(x) - Fraction(y)) <= Fraction(bound)) if math.isfinite(bound) else True


def _condition(op: Operator, term: Term, case: Case, found: Outcome) -> list[float]:
    """Σ |x·∂f/∂x| + |f| per number of the result (see the module)."""
    total = [abs(complex(x)) if is_finite(x) else 0.0 for x in found.numbers]
    step = 2.0 ** -(PRECISION[op.dtype] // 3)
    for visit, numbers in enumerate(found.met):
        for leaf, x in enumerate(numbers):
            if isinstance(x, bool | complex) or not is_finite(x) or x == 0:
                continue
            near = outcome(op, term, case, False, nudge=(visit, leaf), step=step)
            if near.raised or len(near.numbers) != len(total):
                continue
            for k, (y, z) in enumerate(zip(found.numbers, near.numbers, strict=True)):
                if is_finite(y) and is_finite(z):
                    total[k] += abs(complex(y) - complex(z)) / step
    return total


def _kept(op: Operator, check: Check, case: Case) -> Verdict:
    """No combine of the term changes what it was given."""
    run = Run(op, case, False, watched=True)
    try:
        run.value(check.left)
    except (Raised, Unfit):
        return Verdict(None)
    found = Outcome(raised=run.changed) if run.changed else Outcome(tuple(run.met[-1]))
    return Verdict(bool(run.changed), found, None, f"in {op.dtype}")


def _steady(op: Operator, check: Check, case: Case) -> Verdict:
    """The term has the same bits, or raises the same, however often it is computed."""
    first = outcome(op, check.left, case, False)
    for _ in range(AGAIN):
        again = outcome(op, check.left, case, False)
        if again.raised != first.raised or _written(again) != _written(first):
            return Verdict(True, first, again, f"in {op.dtype}")
    return Verdict(False, first, again, f"in {op.dtype}")


def _written(found: Outcome) -> tuple[str, ...]:
    return tuple("nan" if is_nan(x) else str(x) for x in found.numbers)


def _free_of_nan(op: Operator, check: Check, case: Case) -> Verdict:
    """A term of finite states holds no NaN and raises nothing."""
    for k in range(check.states):
        state = outcome(op, Term("state", at=k), case, False, plain=True)
        if state.raised or not all(map(is_finite, state.numbers)):
            return Verdict(None)
    found = outcome(op, check.left, case, False, plain=True)
    return Verdict(bool(found.raised) or any(map(is_nan, found.numbers)), found, None, f"in {op.dtype}")
