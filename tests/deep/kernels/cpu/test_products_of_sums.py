"""Products of sums that leave the range of float32 where results hide it, against the definition.

What multiplies two or three sums is 0 or infinite in float32 while a function of it is an ordinary number: whatever the
scale of each tensor, rows are those of the definition.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.profiles import examples

SUMS = {
    "totals": ("sum[j](x[i,j])", "sum[j](z[i,j])", "sum[j](w[i,j])"),
    "means": ("mean[j](x[i,j])", "mean[j](z[i,j])", "mean[j](w[i,j])"),
    "mixed": ("sum[j](x[i,j])", "mean[j](z[i,j])", "sum[j](w[i,j])"),
}
HIDDEN = ("u/(1 + u)", "1/(1 + u)", "exp(-u)", "where(u > 1, 2, 1)", "log(u)", "sqrt(u)", "tanh(u)", "1 + 1/(2 + u)")
PRODUCTS = ("a*b", "a*b*c", "a*b**2", "a/(b*c)")
LARGEST = 37


@cache
def run(sums: str, product: str, result: str) -> tuple[ra.Form, Any]:
    lines = [f"{name} = {text}" for name, text in zip("abc", SUMS[sums], strict=True) if name in product]
    form = ra.derive_incremental(ra.parse("; ".join([*lines, f"u = {product}", f"y = {result}", "return y"])))
    return form, form.compile("cpu")


def drawn(n: int, scales: list[list[int]], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    power = np.float32(10) ** np.array(scales, np.float32)
    return {
        name: rng.uniform(0.5, 1, (len(scales), n)).astype(np.float32) * power[:, k : k + 1]
        for k, name in enumerate("xzw")
    }


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("result", HIDDEN)
@pytest.mark.parametrize("sums", SUMS)
@examples(20)
@given(data=st.data())
def test_hidden_products_are_those_of_the_definition(sums: str, result: str, data: st.DataObject) -> None:
    product = data.draw(st.sampled_from(PRODUCTS), label="product")
    scale = st.sampled_from((0, 0, -10, 10, -19, 19, -25, 25, -LARGEST, LARGEST))
    rows = data.draw(st.lists(st.lists(scale, min_size=3, max_size=3), min_size=1, max_size=5), label="scales")
    form, called = run(sums, product, result)
    arrays = drawn(data.draw(st.integers(1, 9), label="n"), rows, data.draw(st.integers(0, 99), label="seed"))
    arrays = {t.name: arrays[t.name] for t in form.spec.tensors}
    wide = {k: x.astype(np.float64) for k, x in arrays.items()}
    with np.errstate(all="ignore"):
        exact = np.asarray(ra.reference(form.spec, **wide), np.float64).astype(np.float32)
    usual = (exact == 0) | ~np.isfinite(exact) | (np.abs(exact) > np.finfo(np.float32).tiny)
    with np.errstate(all="ignore"):
        found = np.asarray(called(**arrays))
    np.testing.assert_allclose(found[usual], exact[usual], rtol=3e-4 if result == "exp(-u)" else 2e-5, atol=1e-37)
