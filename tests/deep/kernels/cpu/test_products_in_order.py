"""Products and quotients of CPU kernels are computed in the printed order: what is divided by first stays small.

LLVM may write (a/b)·a as (a·a)/b where it is allowed to reorder products, and a·a leaves the range where a/b does not.
Weights that are a power of 2 times others give the same bits, as far as no weight and no sum of them comes near the end
of the range; there rows are computed in wider numbers, whose results are the nearest ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.forms import Forms

TEXTS = {
    "variance": "m = sum[j](w[j]*x[i,j])/sum[j](w[j]); return y = sum[j](w[j]*(x[i,j] - m)**2)/sum[j](w[j])",
    "vector": "m = sum[j](w[j]*x[j,d])/sum[j](w[j]); return y = sum[j](w[j]*(x[j,d] - m)**2)/sum[j](w[j])",
    "covariance": "m = sum[j](w[j]*x[j])/sum[j](w[j]); n = sum[j](w[j]*z[j])/sum[j](w[j]);"
    "return y = sum[j](w[j]*(x[j] - m)*(z[j] - n))/sum[j](w[j])",
    "slope": "m = sum[j](w[j]*x[j])/sum[j](w[j]); n = sum[j](w[j]*z[j])/sum[j](w[j]);"
    "return y = sum[j](w[j]*(x[j] - m)*(z[j] - n))/sum[j](w[j]*(x[j] - m)**2)",
    "third": "m = sum[j](w[j]*x[j])/sum[j](w[j]); return y = sum[j](w[j]*(x[j] - m)**3)/sum[j](w[j])",
    "grouped": "m = sum[j](w[j]*r[j,g]*x[j])/sum[j](w[j]*r[j,g]);"
    "return y = sum[j](w[j]*r[j,g]*(x[j] - m)**2)/sum[j](w[j]*r[j,g])",
}
FORMS = Forms(TEXTS)
SIZES = {"i": 3, "d": 2, "g": 2}
LARGEST = {"float32": 110, "float64": 950}
FAR = 25  # hundredths of that, from which on rows may be computed in wider numbers
UNITS = 8  # that a sum of 40 terms may be off


@pytest.mark.parametrize("name", FORMS)
@given(
    power=st.integers(-100, 100),
    dtype=st.sampled_from(sorted(LARGEST)),
    length=st.integers(1, 40),
    seed=st.integers(0, 9),
)
def test_powers_of_two_in_all_weights_leave_the_bits(name: str, power: int, dtype: str, length: int, seed: int) -> None:
    form, rng = FORMS[name], np.random.default_rng(seed)
    run, sizes = form.compile("cpu"), {**SIZES, "j": length}
    arrays = {t.name: rng.normal(size=[sizes[a] for a in t.axes]).astype(dtype) for t in form.spec.tensors}
    arrays |= {n: np.abs(arrays[n]) + np.asarray(0.25, dtype) for n in ("w", "r") if n in arrays}
    scaled = {**arrays, "w": np.ldexp(arrays["w"], power * LARGEST[dtype] // 100)}
    with np.errstate(all="ignore"):
        found, true = np.asarray(run(**scaled)), np.asarray(run(**arrays))
    if abs(power) <= FAR:
        np.testing.assert_array_equal(found, true)
    else:
        np.testing.assert_allclose(found, true, rtol=UNITS * np.finfo(dtype).eps, atol=UNITS * np.finfo(dtype).eps)
