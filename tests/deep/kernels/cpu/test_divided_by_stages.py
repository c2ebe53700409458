"""Elements divided by a stage value in compiled kernels: what a rounding decides of them, whatever their size."""

from __future__ import annotations

import pytest

from tests.support.divided_cases import of_any_size, over_itself


def test_an_element_over_itself_is_one() -> None:
    bodies = "sum[j](floor(x[i,j]/s))", "sum[j](where(x[i,j]/s == 1, 1, 0))"
    over_itself("cpu", ("sum[j](x[i,j])", "max[j](x[i,j])"), bodies)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("total", ["sum[j]({})", "{}"])
def test_quotients_of_elements_of_any_size(total: str) -> None:
    of_any_size("cpu", total, every=2)
