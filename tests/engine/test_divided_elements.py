"""Elements divided by a stage value: what a rounding decides of them, whatever their size, in one pass and in two."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
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


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_statistics_are_divided_by_statistics_first() -> None:
    """y/(1 + s) vanishes where s*y/(1 + s) is y."""
    for text in ("y[j]*s/(1 + s)", "floor(y[j]*s/(1 + s)*8)", "w*y[j]*s/(w + s)/w"):
        f = ra.derive_incremental(ra.parse(f"s = sum[j](x[j]**2); return r = {text}"))
        y = np.array([1e-15, 0.4, 2.0], np.float32)
        arrays = {"x": np.full(3, 1e15, np.float32), "y": y} | ({"w": 3.0} if "w" in text else {})
        wanted = np.floor(y * 8) if "floor" in text else y
        np.testing.assert_allclose(f.compile("numpy")(**arrays), wanted, rtol=1e-6)
