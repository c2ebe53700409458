"""Results by group are the definition's: lists that are not full, bound tensors, numbers beyond a range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text
from tests.support.profiles import examples
from tests.support.streams import bound

TEXTS = {  # what a group has to have beside a stream of its own
    "bound tensors beside the count": "tensors x[j], c[d]; return v = norm[j](softmax[j](x[j]) - c[d])",
    "a norm about a bound number": "tensors x[j], s; m = max[j](x[j]); return v = norm[j](exp(x[j] - m) - s)",
    "sums less a bound number": "tensors x[j], y[j], s; return v = sum[j](x[j] - s), w = log1p(abs(var[j](y[j])/s))",
    "lists of integers": "tensors k[j] integer, x[j]; return v = topk[j:3:q](k[j]).values*std[j](x[j])",
    "lists of integers alone": "tensors k[j] integer; return v = topk[j:4:q](k[j]**3).values*2",
    "positions of products": "tensors x[j]; return v = argmax[j](x[j]*x[j]), w = topk[j:2:q](x[j]**3).indices",
    "shares of products": "tensors x[j]; return v = max[j](x[j]*x[j])/sum[j](x[j]*x[j])",
    "products of integers": "tensors k[j] integer; return v = prod[j](3*k[j] + 1)*sum[j](sqrt(abs(k[j])))",
}


@st.composite
def streams(draw: Any, form: Any) -> tuple[dict[str, Any], np.ndarray, list[int]]:
    """Arrays, float32 of any magnitude or around 1; keys; where chunks end, of length 0 among them."""
    n, rng = draw(st.sampled_from((1, 7, 60))), np.random.default_rng(draw(st.integers(0, 1 << 16)))
    scale = draw(st.sampled_from((1e30, 1e-30, 1.0))) if {d.name for d in form.spec.tensors} == {"x"} else 1.0
    whole = draw(st.sampled_from((np.int64, np.int8)))
    arrays: dict[str, Any] = {}
    for d in form.spec.tensors:
        shape = tuple({"j": n, "d": 2}[a] for a in d.axes)
        x = rng.integers(-5, 6, shape) if d.name == "k" else rng.normal(size=shape) * scale
        arrays[d.name] = x.astype(whole if d.name == "k" else np.float32)
    cuts = sorted([0, n, *draw(st.lists(st.integers(0, n), max_size=3))])
    return arrays, rng.integers(0, draw(st.sampled_from((9, 3, 1))), n), cuts


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
@examples(20)
@given(data=st.data(), merged=st.booleans())
def test_groups_have_the_results_of_the_definition(text: str, data: Any, merged: bool) -> None:
    form = form_of_text(text)
    arrays, keys, cuts = data.draw(streams(form))
    streamed = [d.name for d in form.spec.tensors if "j" in d.axes]
    parts = [form.grouped(**bound(form, arrays)) for _ in range(2 if merged else 1)]
    for k, (low, high) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
        of = parts[min(k, 1) if merged else 0]
        of.update(by=keys[low:high], **{n: arrays[n][low:high] for n in streamed})
    seen, found = sum(parts).result()
    found = found if isinstance(found, dict) else {"v": found}
    assert seen.tolist() == list(dict.fromkeys(keys.tolist()))
    for k, key in enumerate(seen):
        own = {n: x[keys == key] if n in streamed else x for n, x in arrays.items()}
        wanted = ra.reference(form.spec, **own)
        for name, value in (wanted if isinstance(wanted, dict) else {"v": wanted}).items():
            assert found[name].dtype == value.dtype
            np.testing.assert_allclose(found[name][k], value, rtol=2e-5, atol=2e-6 if value.dtype.kind == "f" else 0)
