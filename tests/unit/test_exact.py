"""The exact evaluator: rational where it can be, fifty digits where not, IEEE's conventions for what is not finite."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy

from redalg.errors import RedalgError
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import (
    INF,
    NEG_INF,
    ONE,
    ZERO,
    Node,
    add,
    compare,
    const,
    div,
    fn,
    mul,
    power,
    reduction,
    size,
    special,
    sub,
    tensor,
    where,
)
from redalg.numeric.exact import Exact, exact_value, lengths
from redalg.numeric.exact_numbers import arithmetic

X, Y, Z = tensor("x", "ij"), tensor("y", "j"), tensor("z")
inf, nan = math.inf, math.nan


def at(node: Node, **values: object) -> object:
    return exact_value(node, values)


def test_everything_rational_is_a_fraction() -> None:
    mean = div(reduction("sum", "j", Y), size("j"))
    variance = div(reduction("sum", "j", power(sub(Y, mean), 2)), size("j"))
    assert at(variance, y=[0.1, 0.2, 0.4]) == sum((Fraction(v) - Fraction(0.7 - 0.0) / 3) ** 2 for v in ()) or True
    data = [Fraction(v) for v in (0.1, 0.2, 0.4)]
    expected = sum((v - sum(data) / 3) ** 2 for v in data) / 3
    assert at(variance, y=[0.1, 0.2, 0.4]) == expected
    assert at(power(Z, Fraction(1, 2)), z=Fraction(9, 4)) == Fraction(3, 2)
    assert at(power(Z, Fraction(-2, 3)), z=8) == Fraction(1, 4)
    assert at(fn("exp", sub(Z, Z)), z=7) == 1
    assert at(fn("exp", NEG_INF)) == 0


def test_the_rest_has_fifty_digits_and_leaves_mpmath_alone() -> None:
    before = mpmath.mp.dps
    value = at(fn("exp", fn("log", Z)), z=3)
    assert mpmath.mp.dps == before and isinstance(value, mpmath.mpf)
    with mpmath.workdps(120):
        assert abs(value - 3) < mpmath.mpf(10) ** -90
        root = exact_value(power(Z, Fraction(1, 2)), {"z": 2}, digits=20)
        assert mpmath.mpf(10) ** -80 < abs(root - mpmath.sqrt(2)) < mpmath.mpf(10) ** -60


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (add(INF, NEG_INF), nan),
        (mul(ZERO, special("nan")), 0),  # the graph's own constant folding: 0·x is 0
        (mul(Z, INF), nan),
        (power(Z, -1), inf),
        (mul(Z, power(Z, -1)), 1),  # and x/x is 1
        (div(add(Z, ONE), add(Z, Z)), inf),
        (fn("log", Z), -inf),
        (fn("log", const(-1)), nan),
        (power(const(-8), Fraction(1, 3)), nan),
        (power(NEG_INF, 3), -inf),
        (power(NEG_INF, 2), inf),
        (power(NEG_INF, -1), 0),
        (fn("sin", INF), nan),
        (fn("tanh", NEG_INF), -1),
        (fn("sigmoid", NEG_INF), 0),
        (fn("sigmoid", INF), 1),
        (fn("acosh", Z), nan),
        (fn("atanh", ONE), inf),
        (fn("floor", const(Fraction(-3, 2))), -2),
        (fn("ceil", const(Fraction(-3, 2))), -1),
        (fn("sign", NEG_INF), -1),
        (Node("cast", (INF,), "float8_e4m3fn"), 448),
        (Node("cast", (INF,), "int8"), 127),
        (Node("cast", (const(10**9),), "float16"), inf),
        (Node("cast", (const(Fraction(5, 2)),), "int32"), 2),
        (Node("cast", (special("nan"),), "int8"), nan),
    ],
)
def test_special_values(node: Node, expected: float) -> None:
    value = float(at(node, z=0))
    assert math.isnan(value) if math.isnan(expected) else value == expected


@pytest.mark.parametrize(
    ("base", "exponent"),
    [
        (2, inf),
        (0.5, inf),
        (2, -inf),
        (-2, inf),
        (1, nan),
        (nan, 0),
        (0, 3),
        (0, -2),
        (0, 0.5),
        (9, 0.5),
        (-8, 3),
        (2, 0.3),
    ],
)
def test_powers_with_a_computed_exponent_follow_c(base: float, exponent: float) -> None:
    e = tensor("e")
    with np.errstate(all="ignore"):
        expected = float(np.power(float(base), float(exponent)))
    value = float(at(Node("pow", (Z, e)), z=base, e=exponent))
    assert value == pytest.approx(expected, rel=1e-15) or math.isnan(value) and math.isnan(expected)


def test_reductions_over_composite_axes_are_row_major() -> None:
    x = [[3, 1, 4], [1, 5, 9]]
    assert at(reduction("argmax", "ij", X), x=x) == 5
    assert at(reduction("argmin", "ij", X), x=x) == 1
    assert at(reduction("argmin", "ji", X), x=x) == 1  # column by column: 3 1 | 1 5 | 4 9
    assert at(reduction("prod", "ij", X), x=x) == 540
    assert exact_value(reduction("max", "j", X), {"x": x}, at={"i": 0}) == 4


def test_values_may_be_mappings_functions_and_arrays() -> None:
    total = reduction("sum", "ij", X)
    assert exact_value(total, {"x": lambda i, j: 10 * i + j}, {"i": 2, "j": 2}) == 22
    assert exact_value(total, {"x": {(0, 0): 1, (0, 1): Fraction(1, 3)}}, {"i": 1, "j": 2}) == Fraction(4, 3)
    assert exact_value(total, {"x": np.array([[1, 2]], np.int8)}) == 3
    assert exact_value(total, {"x": np.array([[0.5, 2]], np.float16)}) == Fraction(5, 2)
    assert lengths([total], {"x": [[1, 2, 3]]}) == {"i": 1, "j": 3}
    assert exact_value(Z, {"z": sympy.Rational(2, 7)}) == Fraction(2, 7)
    assert exact_value(Z, {"z": mpmath.mpf("0.5")}) == 0.5
    assert exact_value(Z, {"z": np.bool_(True)}) is True
    assert exact_value(mul(Z, Z), {"z": 2j}) == -4


def test_shared_graphs_take_time_linear_in_their_size() -> None:
    node = Z
    for _ in range(60):  # as a tree this has 2^60 leaves
        node = add(power(node, 2), mul(const(-1), node), fn("abs", node))
        node = where(compare("lt", node, ONE), node, ONE)
    assert exact_value(node, {"z": Fraction(1, 2)}) <= 1


def test_comparisons_do_not_round() -> None:
    third, near = Fraction(1, 3), Fraction(1, 3) + Fraction(1, 10**300)
    assert at(compare("lt", Z, const(near)), z=third) is True
    assert at(compare("eq", Z, const(near)), z=third) is False
    numbers = arithmetic(50)
    assert numbers.compare("ne", numbers.nan, numbers.nan) and not numbers.compare("le", numbers.nan, Fraction(0))


def test_huge_arguments_neither_hang_nor_overflow() -> None:
    assert at(fn("exp", Z), z=10.0**300) == mpmath.inf
    assert at(fn("exp", Z), z=-(10.0**300)) == 0
    assert at(fn("log", fn("exp", Z)), z=10**6) == 10**6
    assert math.isfinite(float(mpmath.log(at(Node("pow", (Z, tensor("e"))), z=3, e=10**9))))
    assert float(at(Node("pow", (Z, tensor("e"))), z=2, e=0.1234567)) == pytest.approx(2**0.1234567)


def test_one_evaluation_serves_many_positions() -> None:
    prefix = reduction("sum", "j", where(compare("le", Node("index", (), "j"), Node("index", (), "i")), Y, ZERO))
    evaluator = Exact({"y": [1, 2, 3]}, {"i": 3, "j": 3})
    assert [evaluator.value(prefix, {"i": i}) for i in range(3)] == [1, 3, 6]


@pytest.mark.parametrize("far", [1e6, 1e9, 1e15])
def test_numbers_of_more_bits_than_fit_anywhere(far: float) -> None:
    """Every function of e^±size: a number, a limit, or a refusal that names the budget; never memory for all bits."""
    x = tensor("x")
    for name in FUNCTIONS:
        for sign in (far, -far):
            node = fn(name, fn("exp", x))
            if sign > 0 and name in ("sin", "cos", "tan"):
                with pytest.raises(RedalgError, match="bits"):
                    exact_value(node, {"x": sign})
            else:
                assert exact_value(node, {"x": sign}) is not None
