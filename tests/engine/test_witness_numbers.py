"""The numbers witnesses are made of: images modulo a prime, enclosures, exact determinants."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redalg.graph.node import ONE, ZERO, Node, fn, mul, reduction, state, tensor, where
from redalg.verdicts.adjoint import Backward
from redalg.verdicts.balls import Ball, BallNumbers, closed_form
from redalg.verdicts.design import Draw, designs, survey
from redalg.verdicts.evaluate import Evaluation
from redalg.verdicts.minors import determinant, enclose_minor, pivots, round_outward
from redalg.verdicts.numbers import cast, extremum, is_nan, order, power, unary
from redalg.verdicts.residues import I_ROOT, FieldNumbers, G, NeedsEnclosures, P, Q, Residue, T, inverse
from redalg.verdicts.search import _shown

rationals = st.fractions(-5, 5, max_denominator=60)
field, balls = FieldNumbers(), BallNumbers(300)
FUNCTIONS = (
    "exp log sin cos tan sinh cosh tanh sigmoid expm1 log1p erf erfc atan asinh asin acos acosh atanh abs relu".split()
)


def test_the_prime_is_what_the_proof_needs() -> None:
    import sympy

    assert sympy.isprime(P) and sympy.isprime(Q) and P == 4 * Q + 1
    assert I_ROOT**2 % P == P - 1
    assert all(v != 1 and pow(v, Q, P) == 1 for v in (G, T))


@given(rationals, rationals)
def test_images_respect_the_laws_of_the_functions(a: Fraction, b: Fraction) -> None:
    f = field.unary
    assert (f("exp", a) * f("exp", b) - f("exp", a + b)).r == 0
    assert (f("sin", a) ** 2 + f("cos", a) ** 2 - 1).r == 0
    assert (f("sin", a + b) - f("sin", a) * f("cos", b) - f("cos", a) * f("sin", b)).r == 0
    assert (f("tanh", a) * f("cosh", a) - f("sinh", a)).r == 0
    assert (f("sigmoid", a) * (1 + f("exp", -a)) - 1).r == 0
    assert (f("cosh", a) ** 2 - f("sinh", a) ** 2 - 1).r == 0


def test_what_the_field_cannot_decide_is_refused() -> None:
    e = field.unary("exp", Fraction(1))
    for attempt in (
        lambda: unary("log", Fraction(2), field),
        lambda: unary("exp", e, field),
        lambda: power(Fraction(2), Fraction(1, 2), field),
        lambda: order(e, Fraction(2)),
        lambda: extremum("maximum", e, Fraction(2)),
        lambda: unary("abs", e, field),
    ):
        with pytest.raises(NeedsEnclosures):
            attempt()
    assert power(Fraction(9, 4), Fraction(1, 2), field) == Fraction(3, 2)
    with pytest.raises(ZeroDivisionError):
        inverse(0)


@settings(deadline=None)
@given(st.sampled_from(FUNCTIONS), rationals)
@example("atanh", Fraction(1))
@example("atanh", Fraction(-1))
@example("log", Fraction(0))
@example("log1p", Fraction(-1))
def test_enclosures_contain_the_value(name: str, x: Fraction) -> None:
    value = unary(name, x, balls)
    with mpmath.workdps(150):
        at = mpmath.mpf(x.numerator) / x.denominator
        plain = {"sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)), "relu": lambda v: max(v, mpmath.mpf(0)), "abs": abs}
        try:
            exact = plain.get(name, getattr(mpmath, name, None))(at)
        except ValueError:
            exact = mpmath.nan
        if is_nan(value) or isinstance(value, float):
            assert mpmath.isinf(exact) or mpmath.isnan(exact) or isinstance(exact, mpmath.mpc)
            return
        low, high = value.bounds() if isinstance(value, Ball) else (value, value)
        scale = mpmath.mpf(10) ** -140
        assert mpmath.mpf(low.numerator) / low.denominator <= exact + scale * (1 + abs(exact))
        assert mpmath.mpf(high.numerator) / high.denominator >= exact - scale * (1 + abs(exact))
        assert high - low < Fraction(1, 10**70) * (1 + abs(low))


@given(st.fractions(min_value=0, max_denominator=10**9), st.integers(2, 9), st.integers(0, 400))
def test_rational_roots_are_found_however_long(root: Fraction, degree: int, longer: int) -> None:
    root *= Fraction(3) ** longer
    assert power(root**degree, Fraction(1, degree), balls) == root
    assert not root or isinstance(power(2 * root**degree, Fraction(1, degree), balls), Ball)


def test_undecided_orders_stay_undecided() -> None:
    root = power(Fraction(2), Fraction(1, 2), balls)
    square = root * root
    assert order(square, Fraction(2)) is None and order(root, root) == 0 and order(root, Fraction(1)) == 1
    low, high = extremum("maximum", square, Fraction(2)).bounds()
    assert low <= 2 <= high
    assert is_nan(unary("sign", square - Fraction(2), balls))
    assert cast(root, "int8") == 1 and is_nan(cast(square + Fraction(1, 2), "int8"))
    assert closed_form(root, {}, 10) ** 2 == 2 and closed_form(square * square, {}, 2) is None


@settings(deadline=None)
@given(st.lists(st.lists(rationals, min_size=4, max_size=4), min_size=4, max_size=4))
def test_minors(rows: list[list[Fraction]]) -> None:
    import sympy

    plain = sympy.Matrix([[sympy.Rational(v.numerator, v.denominator) for v in row] for row in rows])
    assert determinant(rows) == Fraction(str(plain.det()))
    choice = pivots(np.array(rows, dtype=object), 4, 300)
    assert choice.rank == plain.rank()
    if choice.rank == 4:
        part = [[rows[i][j] for j in choice.columns] for i in choice.rows]
        minor = enclose_minor(part, 300)
        assert minor is not None and len(minor.rows) == 4
        permuted = determinant([part[i] for i in minor.rows])
        assert minor.low <= permuted <= minor.high
        low, high = round_outward(minor.low, minor.high)
        assert low <= permuted <= high and low * high > 0


def evaluation(values: list[Fraction | float]) -> Evaluation:
    leaves = {f"x{k}": (np.array([v], dtype=object), ("j",)) for k, v in enumerate(values)}
    return Evaluation(leaves, {"j": 1}, {"j": 1}, {}, field)


@pytest.mark.parametrize("op", ["add", "mul", "maximum", "minimum"])
@settings(deadline=None)
@given(st.lists(st.integers(-99, 99), min_size=2, max_size=80, unique=True))
@example(list(range(70)))
def test_an_operation_of_many_arguments_is_one_of_two_repeated(op: str, values: list[int]) -> None:
    leaves = [tensor(f"x{k}", "j") for k in range(len(values))]
    found = []
    for root in (Node(op, tuple(leaves)), functools.reduce(lambda a, b: Node(op, (a, b)), leaves)):
        known = evaluation([Fraction(v) for v in values])
        slopes = Backward(known, root, "x0").sweep(np.array([Fraction(1)], dtype=object))
        found.append((known.value(root)[0].tolist(), [str(v) for a, _ in slopes.values() for v in a]))
    assert found[0] == found[1]


@pytest.mark.parametrize("count", [1, 70])
def test_a_masked_exponential_is_0_whatever_its_many_statistics_are(count: int) -> None:
    known = evaluation([-math.inf, *[Fraction(1)] * count])
    for k in range(count):
        known.leaves[f"m{k}"] = np.array(math.inf, dtype=object), ()
    terms = [tensor(f"x{k}", "j") for k in range(count + 1)] + [state(f"m{k}") for k in range(count)]
    assert known.value(fn("exp", Node("add", tuple(terms))))[0].tolist() == [0]


def test_residues_mix_with_rationals() -> None:
    e = Residue.exp(Fraction(1))
    assert (Fraction(1, 2) * e + e * Fraction(1, 2) - e).r == 0
    assert (Fraction(1) / e - Residue.exp(Fraction(-1))).r == 0
    assert (e**-2 * e**2 - 1).r == 0
    assert (Fraction(1) - e + e).r == 1


def test_every_sample_is_of_rational_numbers() -> None:
    """A float stands for an infinity or NaN where a body is evaluated."""
    domains = [(), ("positive",), ("nonnegative",), ("integer",), ("bool",)]
    leaves = [tensor(f"x{k}", ("j",), domain) for k, domain in enumerate(domains)]
    total = [reduction("sum", ("j",), where(x, ONE, ZERO) if "bool" in x.attr.domain else x) for x in leaves]
    problem = survey(mul(*total, Node("index", (), "j"), tensor("c", ())), ("j",))
    for design in {*designs(True, True, True), *designs(False, False, True)}:
        sample = Draw(problem, design, 6, 1).sample()
        elements = [*sample.prefix, *itertools.chain(*sample.suffixes), sample.parameters]
        held = {type(v) for e in elements for a in e.values() for v in a.flat}
        assert held <= {Fraction, int, bool}, (design, held)


def test_entries_that_are_shown_have_the_determinant_that_is_claimed() -> None:
    """Rows that are nearly alike lose hundreds of digits."""
    numbers, size = BallNumbers(3000), 8
    long = [Fraction(1, n) for n in range(2, 24)]  # too long for a closed form

    def entry(i: int, k: int) -> Ball:
        return functools.reduce(lambda a, b: a + b, long, unary("exp", Fraction(i * k + 1, 2**80), numbers))

    part = np.array([[entry(i, k) for k in range(size)] for i in range(size)], dtype=object)
    minor = enclose_minor(part.tolist(), 3000)
    assert minor is not None and len(minor.rows) == size
    low, high = round_outward(minor.low, minor.high)
    assert max(abs(low), abs(high)) < Fraction(1, 10**400)
    shown = _shown(part[list(minor.rows)], (low, high))
    slack = (abs(low) + abs(high)) / 10**6
    assert low - slack <= determinant([list(row) for row in shown]) <= high + slack
