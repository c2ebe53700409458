"""Elements divided by a stage value: what a rounding decides of them, whatever their size, in one pass and in two."""

from __future__ import annotations

import pytest

from tests.support.divided_cases import of_any_size, over_itself


@pytest.mark.parametrize("target", ["numpy", "parts"])
def test_an_element_over_itself_is_one(target: str) -> None:
    bodies = "sum[j](floor(x[i,j]/s))", "sum[j](where(x[i,j]/s == 1, 1, 0))", "max[j](floor(5*x[i,j]/s))/5"
    over_itself(target, ("sum[j](x[i,j])", "max[j](x[i,j])", "mean[j](x[i,j])"), bodies)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("total", ["sum[j]({})", "{}"])
@pytest.mark.parametrize("target", ["numpy", "parts"])
def test_quotients_of_elements_of_any_size(target: str, total: str) -> None:
    of_any_size(target, total)
