"""Which of several numbers is the largest: what derivatives of maxima ask, counted, divided by and summed up."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

import redalg as ra
from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import Judge
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.terms import Terms
from redalg.proofs.document.work import metered
from tests.support.false_lemmas import term

Expression = Any
GRID = [Fraction(k, 2) for k in range(-4, 5)]
PAIRS = 300
NUMBERS = {
    "add": lambda *v: sum(v),
    "mul": lambda a, b: a * b,
    "maximum": max,
    "minimum": min,
    "neg": lambda a: -a,
    "where": lambda c, a, b: a if c else b,
}
TRUTHS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "and": lambda a, b: a and b,
    "not": lambda a: not a,
}


def value(e: Expression, at: dict[str, Fraction]) -> Any:
    if isinstance(e, str):
        return at[e]
    if not isinstance(e, tuple):
        return e
    return {**NUMBERS, **TRUTHS}[e[0]](*(value(x, at) for x in e[1:]))


def alike(left: Expression, right: Expression) -> bool:
    places = (dict(zip("ab", place, strict=True)) for place in product(GRID, repeat=2))
    return all(value(left, at) == value(right, at) for at in places)


def number(draw: random.Random, depth: int) -> Expression:
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(["a", "b", 0, 1])
    op = draw.choice(["maximum", "maximum", "minimum", "add", "neg"])
    return (op, number(draw, depth - 1)) if op == "neg" else (op, number(draw, depth - 1), number(draw, depth - 1))


def truth(draw: random.Random, depth: int) -> Expression:
    """A comparison, most often of a number with a maximum or minimum that it is in."""
    if draw.random() < 0.3:
        return draw.choice(["lt", "le", "eq"]), number(draw, depth), number(draw, depth)
    one, other = number(draw, depth - 1), number(draw, depth - 1)
    sides = [(draw.choice(["maximum", "minimum"]), *draw.sample([one, other], 2)), one]
    return draw.choice(["eq", "eq", "le", "lt"]), *draw.sample(sides, 2)


def proved(left: Expression, right: Expression) -> bool:
    t = Terms()
    document = Document(t, ("j",), {}, {}, (), ())
    with metered():
        return Judge(document).proves(Obligation("O8", "y", term(t, left), term(t, right)))


@pytest.mark.deep
def test_what_is_proved_of_comparisons_with_maxima_holds() -> None:
    """Random conditions beside random ones, and beside what they are for a pair of numbers without a maximum."""
    draw = random.Random(20261127)
    held = 0
    for _ in range(PAIRS):
        left, right = truth(draw, 2), truth(draw, 2)
        if draw.random() < 0.3:
            right = ("not", (draw.choice(["lt", "le"]), *left[1:]))
        one, other = (("where", c, 1, draw.choice([0, 0, "b"])) for c in (left, right))
        if proved(one, other):
            held += 1
            assert alike(one, other), (one, other)
    assert held > PAIRS // 50


A_OR_B, B_OR_A = ("maximum", "a", "b"), ("minimum", "a", "b")
FIRST, SECOND = (("where", ("eq", x, A_OR_B), 1, 0) for x in "ab")
CLIPPED = ("minimum", 1, ("maximum", 0, "a"))
INSIDE, ABOVE = ("where", ("eq", ("maximum", 0, "a"), CLIPPED), 1, 0), ("where", ("eq", 1, CLIPPED), 1, 0)


@pytest.mark.parametrize(
    "left, right, true",
    [
        (FIRST, ("where", ("le", "b", "a"), 1, 0), True),
        (FIRST, ("where", ("lt", "b", "a"), 1, 0), False),
        (("add", FIRST, SECOND), ("where", ("eq", "a", "b"), 2, 1), True),
        (("add", FIRST, SECOND), 1, False),
        (("mul", ("pow", ("add", FIRST, SECOND), -1), ("add", FIRST, SECOND)), 1, True),
        (("mul", ("pow", FIRST, -1), FIRST), 1, False),
        (("pow", ("add", FIRST, SECOND), -1), 1, False),
        (("mul", ("pow", ("add", INSIDE, ABOVE), -1), ("add", INSIDE, ABOVE)), 1, True),
        (("add", INSIDE, ABOVE), ("where", ("eq", "a", 1), 2, 1), True),
        (("where", ("eq", "a", B_OR_A), 1, 0), ("where", ("le", "a", "b"), 1, 0), True),
        (("where", ("eq", "c", A_OR_B), 1, 0), ("where", ("le", "c", "a"), 1, 0), False),
        (("where", ("eq", "a", ("maximum", "a", "b", "c")), 1, 0), ("where", ("le", "b", "a"), 1, 0), False),
    ],
)
def test_ties_of_two(left: Expression, right: Expression, true: bool) -> None:
    assert proved(left, right) is true
    if true:  # for every element, too: no element of the sum is infinite
        assert proved(("sum:j", ("mul", "x@j", left)), ("sum:j", ("mul", right, "x@j")))


RESIDUE = "r = t[j] - sum[a](X[j,a]*w[a]); return L = "
LOSSES = {
    "pinball": f"{RESIDUE}mean[j](maximum(q*r, (q - 1)*r))",
    "pinball, summed up": f"{RESIDUE}sum[j](maximum(q*r, (q - 1)*r))",
    "quantile": "r = t[j] - m; return L = mean[j](maximum(r/4, -3*r/4))",
    "truncated squares": f"{RESIDUE}mean[j](minimum(r**2, c))",
    "larger of two": "return L = mean[j](maximum(sum[a](X[j,a]*w[a]), sum[a](X[j,a]*v[a])))",
    "clipped": "r = sum[a](X[j,a]*w[a]); return L = mean[j]((t[j] - minimum(maximum(r, 0), 1))**2)",
    "margin": f"{RESIDUE}mean[j](maximum(abs(r) - e, 0))",
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("given", ["all", ()])
def test_derivatives_of_maxima_are_certified(name: str, given: Any) -> None:
    for spec in dict.fromkeys(ra.parse(LOSSES[name]).vjp(given=given).specs.values()):
        form = ra.verdict(spec, axis="j" if "j" in _reduced(spec) else None)
        assert isinstance(form, ra.Form)
        assert Certificate.from_json(form.certificate.to_json()).verify().proved


def _reduced(spec: ra.Spec) -> str:
    return "j" if "[j](" in str(spec) else ""
