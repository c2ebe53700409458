"""States that are arrays along several axes, reduced along some of them before they are written or read by a later
pass: CPU kernels against the definition."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.joint import derived
from tests.support.profiles import examples
from tests.support.simulated import agree

STATE = "s = sum[j](X[j,a]*Y[j,b]); "
TEXTS = {
    "shares": STATE + "return y = s/(1 + sum[b](s**2)), m = max[a](s)",
    "nested": STATE + "return z = sum[a](relu(s - min[b](s))*sum[b](s*W[a,b]))",
    "other axes": STATE + "return r = sum[a](s*W[a,c]), p = prod[b](s/4), q = sum[a](sum[b](s)*V[a])",
    "any and all": STATE + "return u = where(any[a](s > 1), s, -s), v = where(all[b](s < 1), 1, 0)",
    "three axes": "s = sum[j](X[j,a]*Y[j,b]*Z[j,c]); "
    "return y = s - max[a,c](s), z = sum[b](s*sum[c](s**2)), w = sum[a](sum[b](sum[c](s)**2)**2)",
    "of rows": "s = sum[j](X[i,j,a]*Y[j,b]); return y = s*sum[a](s*V[a]), n = sum[i](sum[a](s)*T[i,b])",
    "a later pass": STATE + "t = sum[b](s*W[a,b]); return y = sum[j](X[j,a]*tanh(t)), z = s + t",
}
CHAIN = (
    "tensors A[m,k], B[n,k], D[n,l], F[l,p]; return E = sum[l](tanh(sum[n](relu(sum[k](A[m,k]*B[n,k]))*D[n,l]))*F[l,p])"
)


@cache
def form_of(name: str) -> Any:
    return ra.derive_incremental(ra.parse(TEXTS[name]), axis="j", max_passes=4)


def found(form: Any, sizes: dict[str, int], seed: int, ties: bool, schedule: str | None, bound: float) -> None:
    rng = np.random.default_rng(seed)
    arrays = {}
    for t in form.spec.tensors:
        shape = [sizes[a] for a in t.axes]
        arrays[t.name] = rng.integers(-1, 2, shape).astype(float) if ties else rng.standard_normal(shape)
    made = form.compile("cpu", schedule=schedule)(**arrays)
    agree(form.spec, made if isinstance(made, dict) else {next(iter(form.spec.outputs)): made}, arrays, bound)


@examples(12)
@given(
    st.sampled_from([*TEXTS]),
    st.sampled_from([1, 2, 5, 17]),
    st.tuples(*[st.integers(1, 5)] * 4),
    st.integers(0, 99),
    st.booleans(),
    st.sampled_from([None, "rows", "split"]),
)
def test_states_with_several_axes(
    name: str, length: int, others: tuple[int, ...], seed: int, ties: bool, schedule: str | None
) -> None:
    found(form_of(name), {"j": length, **dict(zip("iabc", others, strict=True))}, seed, ties, schedule, 1e-11)


def test_gradients_of_chains_of_products() -> None:
    sizes = dict(zip("mknlp", (3, 2, 5, 4, 3), strict=True))
    for spec in dict.fromkeys(ra.parse(CHAIN).vjp(given=()).specs.values()):
        found(derived(spec), sizes, 3, False, None, 1e-10)


@pytest.mark.parametrize("name", [*TEXTS])
def test_no_elements(name: str) -> None:
    form = form_of(name)
    sizes = dict(zip("jiabc", (0, 2, 3, 2, 2), strict=True))
    arrays = {t.name: np.ones([sizes[a] for a in t.axes]) for t in form.spec.tensors}
    made, true = form.compile("cpu")(**arrays), form.compile("numpy")(**arrays)
    for a, b in zip(*(x.values() if isinstance(x, dict) else [x] for x in (made, true)), strict=True):
        np.testing.assert_array_equal(a, b)
