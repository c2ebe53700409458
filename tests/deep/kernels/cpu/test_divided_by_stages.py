"""Elements divided by a stage value in compiled kernels: what a rounding decides of them, whatever their size."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from tests.support.divided_cases import of_any_size, over_itself


def test_an_element_over_itself_is_one() -> None:
    bodies = "sum[j](floor(x[i,j]/s))", "sum[j](where(x[i,j]/s == 1, 1, 0))"
    over_itself("cpu", ("sum[j](x[i,j])", "max[j](x[i,j])"), bodies)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("total", ["sum[j]({})", "{}"])
def test_quotients_of_elements_of_any_size(total: str) -> None:
    of_any_size("cpu", total, every=2)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("text", ["floor(x[i,j]*y[j]/s)*s", "cast(x[i,j]*y[j]/s, int8) + s", "sign(x[i,j]*y[j]/s) - s"])
def test_sums_in_a_unit_with_a_larger_tensor(text: str) -> None:
    """Both can be scaled together alone: squares of what is small beside the other one vanish in its unit."""
    f = ra.derive_incremental(ra.parse(f"s = sum[j](x[i,j]**2); return r = {text}"))
    y = np.array([1.0, 0.5, 1.0])
    for small, large in ((1e-8, 1e25), (1e-5, 1e17), (3e-5, 1e18), (1e-9, 1.0), (1.0, 1.0)):
        x = np.outer([small, 1.0], [1.0, 2.0, 3.0]).astype(np.float32)
        arrays = {"x": x, "y": (large * y).astype(np.float32)}
        wanted = ra.reference(f.spec, **{n: a.astype(np.float64) for n, a in arrays.items()}).astype(np.float32)
        np.testing.assert_allclose(f.compile("cpu")(**arrays), wanted, rtol=1e-5)
