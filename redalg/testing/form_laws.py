"""Laws of incremental forms as values: what must hold of a form on any stream, each with its equality.

A law takes a `Subject` (form, arrays, randomness) and raises `AssertionError` if it fails. Testing a new form is

    for law in LAWS: law(Subject(form, arrays))

and a new law is one function under `@law`. States are made by updates and merges, so the tested ones are reachable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

import numpy as np

from redalg.graph.operators import Custom
from redalg.testing import running, sampling
from redalg.testing.arithmetic import Digits
from redalg.testing.bounds import assert_within, axis_sizes, definition, error_bounds
from redalg.testing.evaluator import Evaluator
from redalg.testing.simulate import simulate

ROUNDS = "cast_commutes"  # the assumption under which a form may round other numbers than its spec does


@dataclass(frozen=True)
class Subject:
    """What a law is held against: a form, the arguments of a call, and a source of pieces and bracketings."""

    form: Any
    arrays: Mapping[str, Any]
    rng: Random = field(default_factory=lambda: Random(0))
    dtype: str = "float64"  # the arithmetic the bounds are derived for

    @cached_property
    def axis(self) -> str:
        return sampling.first_axis(self.form)

    @cached_property
    def length(self) -> int:
        return axis_sizes(self.form.spec, self.arrays)[self.axis]

    @cached_property
    def exact(self) -> dict[str, np.ndarray]:
        return definition(self.form.spec, self.arrays)

    def pieces(self) -> tuple[list[int], list[int]]:
        borders = sampling.cuts(self.rng, self.length)
        return borders, sampling.bracketing(self.rng, len(borders) - 1)

    def close(self, results: Mapping[str, Any], borders: list[int], tree: list[int] | None, what: str) -> None:
        rounds = ROUNDS in self.form.assumptions
        bounds = error_bounds(self.form.plan, self.form.spec, self.arrays, borders, tree, self.dtype, rounds)
        assert set(results) == set(self.exact), f"outputs {sorted(results)}"
        for name, exact in self.exact.items():
            message = f"in {name}, {what}, pieces {borders}, tree {tree}"
            assert_within(results[name], exact, bounds[name], message, self.dtype)


@dataclass(frozen=True)
class Law:
    name: str
    equation: str
    equality: str
    check: Callable[[Subject], None]

    def __call__(self, subject: Subject) -> None:
        self.check(subject)

    def __str__(self) -> str:
        return self.name


LAWS: list[Law] = []


def law(equation: str, equality: str) -> Callable[[Callable[[Subject], None]], Law]:
    def register(check: Callable[[Subject], None]) -> Law:
        LAWS.append(Law(check.__name__, equation, equality, check))
        return LAWS[-1]

    return register


@law("result(update* over any chunks) = definition", "derived bound")
def updates_give_the_definition(s: Subject) -> None:
    borders, _ = s.pieces()
    s.close(running.streamed(s.form, s.arrays, borders), borders, None, "updated")


@law("result(one element at a time) = definition", "derived bound")
def elements_give_the_definition(s: Subject) -> None:
    borders = list(range(s.length + 1))
    s.close(running.streamed(s.form, s.arrays, borders), borders, None, "one by one")


@law("result(merge in any bracketing) = definition", "derived bound")
def merges_give_the_definition(s: Subject) -> None:
    if s.form.passes.statistics > 1:
        return
    borders, tree = s.pieces()
    s.close(running.merged(s.form, s.arrays, borders, tree), borders, tree, "merged")


@law("result(placed partial states merged in any order) = definition", "derived bound")
def order_does_not_matter(s: Subject) -> None:
    if s.form.passes.statistics > 1 or not commutative(s.form):
        return
    borders, tree = s.pieces()
    # any order is some bracketing of the same pieces up to commutation: the widest bound of the sequential one holds
    s.close(running.shuffled(s.form, s.arrays, borders, s.rng), list(range(s.length + 1)), None, "shuffled")


@law("empty ⊕ a = a = a ⊕ empty", "bits")
def empty_is_the_identity(s: Subject) -> None:
    moving, bound = sampling.split(s.form.spec, s.axis, s.arrays)
    start = 0 if running.needs_positions(s.form) else None
    full, other, empty = (s.form.accumulator(start=start, **bound) for _ in range(3))
    full.update(**moving)
    other.update(**moving)
    before = {k: np.array(v) for k, v in full.state.items()}
    full.merge(empty)
    _same_bits(full.state, before)
    if start is None:
        empty.merge(other)
        _same_bits(empty.state, before)
    assert full.count == other.count


@law("combine, in rational arithmetic and 60 digits = definition", "exact where rational, else 1e-50")
def the_algebra_is_exact(s: Subject) -> None:
    if ROUNDS in s.form.assumptions:
        return  # such a form is its spec up to rounding only, within the bound of the other laws
    borders, tree = s.pieces()
    digits = Digits(60)
    sizes = axis_sizes(s.form.spec, s.arrays)
    env = {k: np.asarray(v) for k, v in s.arrays.items()}
    results = simulate(s.form.plan, digits, env, sizes, borders, tree)
    inner = Evaluator(digits, env, sizes)
    for name, node in s.form.spec.outputs.items():
        for key, value in results[name].items():
            point = dict(zip(s.form.spec.output_axes[name], key, strict=True))
            _equal(value, inner.value(node, point), name, digits)


def commutative(form: Any) -> bool:
    ops = [slot.op for p in form.plan.passes for slot in p.slots]
    return all(op.monoid.commutative for op in ops if isinstance(op, Custom))


def _equal(value: Any, exact: Any, name: str, digits: Digits) -> None:
    if isinstance(value, bool) or type(value) is type(exact) is not digits.context.mpf:
        assert value == exact, f"{name}: {value} instead of {exact}"
        return
    a, b = digits.wide(value), digits.wide(exact)
    if digits.context.isfinite(b):
        assert abs(a - b) <= digits.context.mpf(10) ** -50 * (1 + abs(b)), f"{name}: {a} instead of {b}"
    else:
        assert a == b or (a != a and b != b), f"{name}: {a} instead of {b}"


def _same_bits(state: Mapping[str, Any], before: Mapping[str, np.ndarray]) -> None:
    assert set(state) == set(before)
    for name, array in before.items():
        assert np.asarray(state[name]).tobytes() == array.tobytes(), name
