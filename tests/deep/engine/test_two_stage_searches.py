"""The search for a witness of a stage over another: its price is that of the digits it calculates."""

from __future__ import annotations

import pytest

import redalg as ra
from redalg.algebra.work import SEARCH, allowance, spent
from redalg.verdicts import balls
from redalg.verdicts.balls import BallNumbers

UNDECIDED = {
    "erf": "u = max[j](x[j]**2); v = max[j](erf(x[j] + z[j]*u)); return y = min[j](maximum(x[j] + z[j]*v, z[j]))",
    "tanh": "u = max[j](x[j]**2); v = mean[j]((x[j]*u - z[j])**3); return y = prod[j](tanh(x[j]*v - z[j]))",
    "softplus": "u = sum[j](exp(x[j])); v = max[j](tanh(x[j]*u)); return y = min[j](abs(softplus(x[j]*u) - v)*z[j])",
}
REFUTED = {
    "next to a pole": "u = min[j](x[j]); v = sum[j](x[j]/u - z[j]); return y = prod[j](softplus(x[j]*(u*v) - z[j]))",
    "at large numbers": "u = sum[j](x[j]**2); v = sum[j](tanh(x[j]*u)); return y = sum[j](erf(x[j]*v)*z[j])",
    "of two outputs": "u = logsumexp[j](x[j]); v = logsumexp[j](x[j]*u); return y = min[j](abs(x[j] - v) + z[j]*u)",
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_an_undecided_search_calculates_no_more_digits_than_its_budget(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    squares, enclosed = [0], balls._enclose_function

    def counted(op: str, x: balls.Interval, prec: int) -> balls.Interval | None:
        squares[0] += prec * prec
        return enclosed(op, x, prec)

    monkeypatch.setattr(balls, "_enclose_function", counted)
    assert isinstance(ra.verdict(ra.parse(UNDECIDED[name])), ra.Undecided)
    assert squares[0] <= SEARCH * balls.FUNCTION


@pytest.mark.parametrize("name", REFUTED)
def test_witnesses_are_found_within_the_price_of_digits(name: str) -> None:
    assert isinstance(ra.verdict(ra.parse(REFUTED[name])), ra.NotDecomposable)


@pytest.mark.parametrize("op", ["exp", "tanh", "erf"])
def test_a_value_is_paid_for_by_its_digits(op: str) -> None:
    prices = []
    for prec in (600, 3000):
        numbers, x = BallNumbers(prec), balls.Fraction(17, 53)
        for _ in range(2):
            with allowance(10**9, "operations"):
                numbers.unary(op, x)
                prices.append(spent())
    few, _, many, _ = prices
    assert many >= 24 * few
