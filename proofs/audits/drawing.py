"""Hypothesis, driven by a program: what a strategy draws, and the smallest value drawn that breaks a demand.

Both are functions of the strategy and a word to seed with: no database, no deadline, a number of examples and a budget
of judgements in the place of seconds. Cases are judged outside of Hypothesis, which seeds the global generators of
random numbers, and calls what does not fail twice in the same way flaky: an operator under audit may do both. Only
shrinking judges within it, and each case once: a verdict is kept, so that nothing looks flaky there.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import cache
from random import Random
from typing import Any, TypeVar

from redalg.proofs.audits.domain import Below
from redalg.proofs.document.errors import RedalgError

EVEN = 100  # Hypothesis draws evenly below so many, and prefers constants of the loaded modules above
FAR = 2**72  # from where on it knows no constants: evenly again
Value = TypeVar("Value")
Verdict = TypeVar("Verdict")


def hypothesis_of(where: str, what: str = "a search for counterexamples") -> Any:
    """The package Hypothesis. Raises: RedalgError where it is not installed."""
    try:
        import hypothesis
    except ImportError as error:
        why = f"the package hypothesis cannot be imported: {error}"
        raise RedalgError(what, where, why, "pip install 'redalg[testing]'") from error
    return hypothesis


def strategy(build: Callable[[Below], Any]) -> Any:
    """The strategy of what `build` makes of numbers that it draws one by one."""
    from hypothesis import strategies

    @strategies.composite
    def built(draw: Any) -> Any:
        return build(lambda n: _below(draw, n))

    return built()


def _below(draw: Any, n: int) -> int:
    start = 0 if n <= EVEN else FAR
    return draw(_integers(start, n)) - start


@cache
def _integers(start: int, n: int) -> Any:
    from hypothesis import strategies

    return strategies.integers(start, start + n - 1)


def drawn(drawing: Any, examples: int, word: str) -> list[Any]:
    """At most so many values of a strategy, the simplest first; fewer where there are no more."""
    found: list[Any] = []

    def kept(value: Any) -> bool:
        found.append(value)
        return False

    _find(drawing, kept, examples, word)
    return found[:examples]


def smallest(
    drawing: Any,
    judge: Callable[[Value], Verdict | None],
    known: dict[str, Verdict | None],
    examples: int,
    word: str,
    budget: int,
    price: Callable[[Value], int],
    told: Callable[[Value], Any] = lambda value: value,
) -> tuple[Value, Verdict] | None:
    """The smallest value that `judge` has something against, and what; None where it has nothing against any.

    What is `known` of values, by the text of what is `told` of them, is not judged again; the rest costs its price
    until the budget is spent.
    """
    last: tuple[Value, Verdict] | None = None

    def breaks(value: Value) -> bool:
        nonlocal budget, last
        key = repr(told(value))
        if key not in known:
            if budget <= 0:
                return False
            budget -= price(value)
            known[key] = judge(value)
        found = known[key]
        if found is not None:
            last = (value, found)
        return found is not None

    _find(drawing, breaks, examples, word)
    return last


def _find(drawing: Any, condition: Callable[[Any], bool], examples: int, word: str) -> None:
    """`hypothesis.find`; in a thread of its own where it is called from a test of Hypothesis, which takes no other."""
    from hypothesis import currently_in_test_context

    if not currently_in_test_context():
        _found(drawing, condition, examples, word)
        return
    with ThreadPoolExecutor(1) as alone:
        alone.submit(copy_context().run, _found, drawing, condition, examples, word).result()


def _found(drawing: Any, condition: Callable[[Any], bool], examples: int, word: str) -> None:
    from hypothesis import Phase, Verbosity, find, settings
    from hypothesis.errors import NoSuchExample

    chosen = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.quiet,
        backend="hypothesis",
    )
    with suppress(NoSuchExample):
        find(drawing, condition, settings=chosen, random=Random(word))
