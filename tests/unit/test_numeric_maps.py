"""Unary maps, powers and casts of the NumPy evaluator, each against an independent judge."""

import math
from fractions import Fraction

import numpy as np
import pytest

from redalg.graph.formats import FLOATS, cast_fraction
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Node, fn, power, tensor
from redalg.numeric.casts import cast_array
from redalg.numeric.evaluate import evaluate
from redalg.numeric.exact import exact_value
from redalg.numeric.maps import erf, erfc, sigmoid

inf, nan = math.inf, math.nan
Y = tensor("y", "j")


def exactly(node: Node, y: np.ndarray) -> np.ndarray:
    return np.array([float(exact_value(node, {"y": y}, at={"j": j})) for j in range(len(y))])


@pytest.mark.parametrize(
    "name",
    sorted(name for name, row in FUNCTIONS.items() if row.word and not row.exact),
)
def test_maps_agree_with_fifty_digits(name: str) -> None:
    x = np.array([0, 1e-300, -1e-9, 0.3, -0.3, 0.999, 1, -1, 1.5, -2.5, 7.1, -30, 710, -745, 1e5, inf, -inf, nan])
    computed = evaluate([fn(name, Y)], {"y": x})[0]
    expected = exactly(fn(name, Y), x)
    np.testing.assert_array_equal(np.isnan(computed), np.isnan(expected))
    np.testing.assert_allclose(computed, expected, rtol=2e-15, atol=5e-323)


@pytest.mark.parametrize("exponent", [Fraction(n, d) for n in (-3, -1, 1, 2, 5) for d in (1, 2, 3)])
def test_powers_agree_with_fifty_digits(exponent: Fraction) -> None:
    x = np.array([0, 0.5, -0.5, 2, -3, 1e-100, 1e60, inf, -inf, nan])
    node = power(Y, exponent)
    np.testing.assert_allclose(evaluate([node], {"y": x})[0], exactly(node, x), rtol=1e-15)


def test_error_functions_are_accurate_everywhere() -> None:
    x = np.concatenate([np.linspace(-6, 26, 20001), np.logspace(-300, 0, 301)])
    for function, judge, units in ((erf, math.erf, 4), (erfc, math.erfc, 12)):
        expected = np.array([judge(v) for v in x])
        assert np.all(np.abs(function(x) - expected) <= units * np.spacing(np.abs(expected)))
    assert erf(np.float32(0.5)).dtype == np.float32
    assert sigmoid(np.array([-1000.0, 1000.0])).tolist() == [0.0, 1.0]


def test_casts_round_once_to_the_nearest() -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.standard_normal(500) * 10.0 ** rng.integers(-9, 6, 500), np.arange(-40, 40) / 4])
    for name in [*FLOATS, "int8", "uint8", "int32"]:
        expected = [float(cast_fraction(Fraction(v), name)) for v in x]
        np.testing.assert_array_equal(cast_array(x, name), expected)
        if name not in ("float32", "float64"):
            single = x.astype(np.float32)
            rounded = [float(cast_fraction(Fraction(float(v)), name)) for v in single]
            np.testing.assert_array_equal(cast_array(single, name), np.array(rounded, np.float32))
    assert cast_array(np.array([nan, inf, -inf]), "float8_e4m3fn").tolist()[1:] == [448, -448]
    assert cast_array(np.array([inf, 1e6]), "float8_e5m2").tolist() == [inf, inf]
    assert np.isnan(cast_array(np.array([nan]), "int8")).all()


def eight_bits(mantissa: int, bias: int, code: int) -> float:
    """The value of an 8-bit float, decoded by hand."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, fraction = (code & 0x7F) >> mantissa, code & ((1 << mantissa) - 1)
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + fraction / (1 << mantissa)) * 2.0 ** (exponent - bias)


@pytest.mark.parametrize(
    ("name", "mantissa", "bias", "largest"), [("float8_e4m3fn", 3, 7, 0x7E), ("float8_e5m2", 2, 15, 0x7B)]
)
def test_eight_bit_formats_against_their_whole_table(name: str, mantissa: int, bias: int, largest: int) -> None:
    table = [eight_bits(mantissa, bias, code) for code in range(largest + 1)]
    np.testing.assert_array_equal(cast_array(np.array(table), name), table)
    np.testing.assert_array_equal(cast_array(-np.array(table), name), -np.array(table))
    for code in range(largest):
        low, high = table[code], table[code + 1]
        middle = (low + high) / 2
        even = low if code % 2 == 0 else high
        points = np.array([np.nextafter(middle, low), middle, np.nextafter(middle, high)])
        assert cast_array(points, name).tolist() == [low, even, high]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
def test_casts_against_another_implementation(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(20000) * 10.0 ** rng.integers(-8, 3, 20000)).astype(np.float32)
    x = x[np.abs(x) < 448]
    np.testing.assert_array_equal(cast_array(x, name), x.astype(getattr(ml_dtypes, name)).astype(np.float32))
