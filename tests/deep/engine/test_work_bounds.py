"""What a verdict costs grows no faster than the spec, or a budget ends it: counted in work, never in seconds."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.algebra import polynomial as nf
from redalg.algebra.work import SEARCH, allowance, spent
from redalg.graph import node as g
from redalg.numeric.exact import Exact
from redalg.verdicts import numbers as scalar
from redalg.verdicts.evaluate import Evaluation
from redalg.verdicts.minors import determinant
from redalg.verdicts.residues import FieldNumbers

X = g.tensor("x", ("j",))


def calls(act: Callable[[], Any]) -> int:
    with cProfile.Profile() as profile:
        act()
    return int(pstats.Stats(profile).total_calls)


# --- nests ---------------------------------------------------------------------------------------------------------

LINKS = {
    "maps": lambda e: g.fn("relu", g.sub(e, g.ONE)),
    "choices": lambda e: g.where(g.compare("lt", X, e), e, g.sub(X, e)),
    "stages": lambda e: g.reduction("sum", ("j",), g.mul(X, g.sub(e, g.ONE))),
}


@pytest.mark.parametrize("kind", LINKS)
def test_an_exact_value_takes_one_visit_of_every_node(kind: str) -> None:
    def value(depth: int) -> int:
        node = X
        for _ in range(depth):
            node = LINKS[kind](node)
        values = {"x": [Fraction(1), Fraction(-1), Fraction(0)]}
        return calls(lambda: Exact(values, {"j": 3}).value(node, {"j": 0}))

    assert value(400) < 2.6 * value(200)


# --- long numbers --------------------------------------------------------------------------------------------------

GROWING = {
    "squares": lambda e: g.add(g.power(e, 2), g.ONE),
    "products": lambda e: g.mul(e, g.add(e, X)),
    "quotients": lambda e: g.add(g.power(e, -2), X),
    "stages": lambda e: g.add(X, g.reduction("prod", ("j",), g.add(e, X))),
    "large powers": lambda e: g.power(g.add(e, g.ONE), 1000),
}


@pytest.mark.parametrize("kind", GROWING)
def test_rationals_of_a_search_are_cut_at_a_length_and_charged_by_it(kind: str) -> None:
    elements = np.array([Fraction(k, 7) for k in (2, -3, 5)], dtype=object)

    def work(depth: int) -> int:
        node: g.Node = X
        for _ in range(depth):
            node = GROWING[kind](node)
        with allowance(SEARCH, "operations"):
            found = Evaluation({"x": (elements, ("j",))}, {"j": 3}, {"j": 3}, {}, FieldNumbers())
            found.value(node)
            assert all(scalar.bits(v) <= scalar.LONGEST for array, _ in found.memo.values() for v in array.flat)
            return spent()

    assert work(60) < work(30) + 2_000  # all that is long is NaN by then


def test_a_determinant_is_charged_by_the_length_of_its_entries() -> None:
    def work(bits: int) -> int:
        rows = [[Fraction((1 << bits) + 7**i * (j + 1) ** i, 3) for j in range(8)] for i in range(8)]
        with allowance(1 << 60, "operations"):
            determinant(rows)
            return spent()

    assert work(40) == 0 and work(8000) > 3 * work(4000) > 0


@pytest.mark.parametrize("depth", [40])
def test_nested_conditions_end_within_the_budget_of_a_search(monkeypatch: Any, depth: int) -> None:
    monkeypatch.setattr("redalg.verdicts.refute.SEARCH", 20_000)
    x = ra.tensors("x[j]")
    m, body = ra.max(x, "j"), x
    for k in range(depth, 0, -1):
        body = ra.where(x < k * m, body, k * x)
    found = ra.verdict(ra.Spec(y=ra.sum(body, "j")))
    assert isinstance(found, ra.Undecided)
    assert "a budget of 20000 operations on exact numbers" in found.why


# --- powers of sums ------------------------------------------------------------------------------------------------

LOW = g.compare("lt", X, g.tensor("u"))
TERMS = {
    "element": nf.generator(X),
    "other": nf.generator(g.tensor("u")),
    "root": nf.generator(X, Fraction(1, 2)),
    "inverse": nf.generator(X, -1),
    "constant": nf.constant(Fraction(-2, 3)),
    "one": nf.constant(1),
    "size": nf.generator(g.fn("abs", X)) * nf.generator(X),
    "condition": nf.generator(LOW) * nf.generator(X),
    "its negation": nf.generator(g.negate(LOW)),
}


@pytest.mark.parametrize("power", [nf.EXPANDED, nf.EXPANDED + 1, nf.EXPANDED + 2])
def test_a_binomial_sum_is_the_product(power: int) -> None:
    for one in TERMS.values():
        for other in TERMS.values():
            base = one - other
            product = nf.constant(1)
            for _ in range(power):
                product = product * base
            assert base**power == product


def test_large_powers_of_two_terms_take_work_in_proportion() -> None:
    def work(power: int) -> int:
        with allowance(1 << 60, "products"):
            (nf.generator(X) - nf.constant(2)) ** power
            return spent()

    assert work(800) <= 2 * work(400)
