"""Lists of the largest of a tensor that all rows share, beside rows that lie side by side and are walked in tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.forms import form_of_text
from tests.support.profiles import examples

BESIDE = {
    "sum": ("return s = sum[j](x[i,j])", lambda x: x.sum(1)),
    "variance": ("return s = var[j](x[i,j])", lambda x: x.var(1)),
    "softmax": (
        "m = max[j](x[i,j]); return s = sum[j](exp(x[i,j] - m))",
        lambda x: np.exp(x - x.max(1)[:, None]).sum(1),
    ),
    "positions": ("return s = argmax[j](x[i,j])", lambda x: x.argmax(1)),
    "lists": ("return s = topk[j:3](x[i,j]).values", lambda x: -np.sort(-x, axis=1)[:, :3]),
}
LISTS = ", v = topk[j:3](k[j]).values, at = topk[j:3](k[j]).indices"


@pytest.mark.parametrize("name", BESIDE)
@examples(6)
@given(
    st.sampled_from([(2, 3), (5, 300), (33, 300), (64, 1000), (16, 4100), (3, 60000)]),
    st.sampled_from(["float32", "float64", "int32"]),
    st.integers(0, 1 << 16),
    st.booleans(),
)
def test_lists_are_of_all_tiles(name: str, sizes: tuple[int, int], dtype: str, seed: int, deterministic: bool) -> None:
    text, own = BESIDE[name]
    run = form_of_text(text + LISTS).compile("cpu", deterministic=deterministic)
    rng = np.random.default_rng(seed)
    x = np.asfortranarray(rng.normal(size=sizes))
    k = rng.integers(-50, 50, sizes[1]).astype(dtype)
    found = run(x=x, k=k)
    np.testing.assert_allclose(found["s"], own(x), rtol=1e-9, atol=1e-9)
    order = np.argsort(-k.astype(float), kind="stable")[:3]
    np.testing.assert_array_equal(found["v"], k[order])
    np.testing.assert_array_equal(found["at"], order)
