"""SymPy's evaluation while a spec is written is bounded: constants are refused before SymPy calculates them."""

from __future__ import annotations

import cProfile
import pickle
import pstats
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.profiles import examples

x, q = ra.tensors("x[j]"), ra.scalar("q")
CALLS = 3_000_000  # of functions: what any of these may cost


def within_bounds(build: Callable[[], Any]) -> Any:
    """What is built, or its error in four parts, and the verdict; all of it for a bounded number of calls."""
    with cProfile.Profile() as profile:
        try:
            found = ra.verdict(ra.Spec(y=ra.sum(build(), "j")))
        except ra.RedalgError as refused:
            assert refused.what and refused.where and refused.why and refused.fix
            found = refused
    assert pstats.Stats(profile).total_calls < CALLS
    return found


REFUSED = {
    "a divided tensor": lambda: (x / 3) ** (10**9),
    "a negative power": lambda: (2 * x) ** -(10**9),
    "a root of a number": lambda: (sympy.sqrt(2) * x) ** (10**9),
    "a power of a power": lambda: ((x / 3) ** 1000) ** 1000,
    "squares of squares": lambda: squared(2 * x, 60),
    "the value of a map": lambda: (ra.tanh(x) / 3) ** (10**9),
    "the value of a reduction": lambda: (ra.max(x, "j") / 3 + 0 * q) ** (10**9),
    "a product with SymPy's": lambda: (sympy.sin(x) * q / 3) ** (10**9),
    "a number": lambda: x * 10**100000,
    "a number beside": lambda: x + sympy.Rational(1, 10**3000),
    "a number in a map": lambda: x * ra.sqrt(10**5000 + 1),
    "an exponential": lambda: x * ra.exp(10**6),
    "what SymPy fails on": lambda: x * ra.parse(f"return y = asin(sin({10**2400 + 39}))").expr,
    "exponentials of exponentials": lambda: x * ra.exp(ra.exp(ra.exp(ra.exp(10)))),
}
ENDED = {
    "a power": lambda: x ** (10**9),
    "a power of a difference": lambda: (x - ra.mean(x, "j")) ** (10**7),
    "a power of a sum with a factor": lambda: ra.sum(3 * x, "j") ** (10**9),
    "powers of powers": lambda: ((x**1000) ** 1000) ** 1000,
    "a tower": lambda: towered(x, 12),
    "a number to a power": lambda: 2 ** (x * 10**9),
}


def squared(e: Any, times: int) -> Any:
    for _ in range(times):
        e = e * e
    return e


def towered(e: Any, times: int) -> Any:
    for _ in range(times):
        e = e**e
    return e


@pytest.mark.parametrize("name", REFUSED)
def test_constants_are_refused_before_they_are_calculated(name: str) -> None:
    assert isinstance(within_bounds(REFUSED[name]), ra.RedalgError)


@pytest.mark.parametrize("name", ENDED)
def test_large_powers_end_in_a_verdict(name: str) -> None:
    found = within_bounds(ENDED[name])
    assert isinstance(found, ra.Undecided | ra.NotDecomposable) or found.slots


@given(
    base=st.fractions(max_denominator=50, min_value=-50, max_value=50).filter(lambda c: abs(c) not in (0, 1)),
    exponent=st.integers(2, 10**12),
)
@examples(40)
def test_a_power_has_its_constant_or_is_refused(base: Any, exponent: int) -> None:
    c = sympy.Rational(base.numerator, base.denominator)
    try:
        power = (c * x) ** exponent
    except ra.RedalgError:
        bits = max(abs(base.numerator), base.denominator).bit_length() * exponent
        assert bits > 8192
    else:
        assert power == sympy.Mul(c, x) ** exponent


# --- operators stay ours, expressions stay SymPy's --------------------------------------------------------------------

MADE = [x / 3, x + q, x * q, (x + 1) ** 2, -x, abs(x - 1), 2**x, q - x, 1 / x, sympy.sin(x) * q, ra.tanh(x), ra.erf(x)]


@pytest.mark.parametrize("e", MADE, ids=str)
def test_an_expression_is_equal_to_sympys(e: Any) -> None:
    plain = e.func(*e.args)
    assert e == plain and plain == e and hash(e) == hash(plain) and not e != plain and not plain != e
    assert sympy.sin(e) == sympy.sin(plain) and {plain: 1}[e] == 1 and e - plain == 0 and plain - e == 0
    assert str(e) == str(plain) and sympy.latex(e) == sympy.latex(plain) and sympy.srepr(e) == sympy.srepr(plain)
    assert pickle.loads(pickle.dumps(e)) == e and e.subs(x, q) == plain.subs(x, q) and e.diff(x) == plain.diff(x)
    assert sympy.expand(e * e) == sympy.expand(plain * plain)


@pytest.mark.parametrize("e", MADE, ids=str)
def test_what_operators_give_has_our_operators(e: Any) -> None:
    for found in (e + 1, 1 - e, 2 * e, e / 7, -e, sympy.cos(x) + e, sympy.cos(x) * e):
        with pytest.raises(ra.RedalgError, match="array"):
            np.ones(3) * found
        with pytest.raises(ra.RedalgError, match="string"):
            found + "x"
    assert (e * 0.1).has(sympy.Float) is False
