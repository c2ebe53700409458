"""Sums over several inner axes, of terms that lack some of them, and products of sums over axes that nothing links."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.testing import running
from tests.support.profiles import examples

SIZES = {"i": 2, "j": 5, "a": 2, "b": 3, "c": 4}
SPECS = (
    "return v = max[j](sum[a,b](x[j] * z[b]**2 + s * y[a]))",
    "return v = sum[j](exp(sum[a,b](x[j] * z[b] + s * y[a]) / 100))",
    "return v = max[j](tanh(sum[a,b](x[j] * y[a] + s * z[b])))",
    "return v = min[j](sum[a,b,c](x[j] * z[b] - s * y[a] * u[c]))",
    "return v = sum[j]((sum[a,b](x[j] * y[a] - s * z[b]))**2)",
    "return v = sum[j]((sum[a,b](x[j] * y[a] * z[b]))**2 * s)",
    "return v = sum[j]((sum[a](x[j] / s * y[a]))**3)",
    "return v = sum[j]((sum[a](x[j] * y[a] - s) - sum[b](z[b] * s))**2)",
    "return v = sum[j](sum[a](x[j] * y[a] + s) * sum[a,b](y[a] * z[b] * s - x[j]))",
)


@pytest.mark.parametrize("text", SPECS)
def test_terms_that_lack_an_axis(text: str) -> None:
    """They count once for each of its positions, in every target, and sums over other axes are factors."""
    form = ra.derive_incremental(ra.parse(f"s = mean[j](x[j]); {text}"), axis="j")
    cpu = form.compile("cpu")
    for seed in range(5):
        rng = np.random.default_rng(seed)
        arrays = {d.name: rng.standard_normal([SIZES[a] for a in d.axes]) for d in form.spec.tensors}
        wanted = ra.reference(form.spec, **arrays)
        for got in (form.compile("numpy")(**arrays), running.merged(form, arrays, [0, 2, 2, 5], [0, 0])["v"]):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(cpu(**arrays), wanted, rtol=1e-9, atol=1e-9)


STAGES = (
    "sum[j](X[j,a])",
    "mean[j](X[j,a])",
    "max[j](X[j,a])",
    "sum[j](exp(X[j,a]))",
    "sum[j](exp(X[j,a] - max[j](X[j,a])))",
)
ELEMENTS = (
    "X[j,a] / s",
    "w[a] * X[j,a] / s",
    "exp(X[j,a]) / s",
    "exp(X[j,a] - max[j](X[j,a])) / s",
    "(X[j,a] - s) / s",
)
READINGS = (
    "sum[j](sum[a]({p}))",
    "exp(mean[j](sum[a]({p})))",
    "sum[j](sum[a]({p}))**2",
    "sum[j]((sum[a]({p}) - mean[j](sum[a]({p})))**2)",
    "sum[j](sum[a]({p}))*sum[j](z[j]*sum[a]({p}))",
    "mean[j]((sum[a]({p}) - mean[j](sum[a]({p})))**2)/mean[j](sum[a]({p}))**2",
)


@examples(10)
@given(
    st.sampled_from(STAGES), st.sampled_from(ELEMENTS), st.sampled_from(READINGS), st.integers(1, 4), st.integers(0, 99)
)
def test_axes_that_cancel_count_their_positions(stage: str, element: str, reading: str, wide: int, seed: int) -> None:
    """Sums over j of shares, s[a]/s[a], are 1 for every a: the axis is summed though nothing has it any more."""
    spec = ra.parse(f"s = {stage}; return v = {reading.format(p=element)}")
    form = ra.derive_incremental(spec, axis="j")
    rng = np.random.default_rng(seed)
    sizes = {"j": 5, "a": wide}
    arrays = {d.name: rng.uniform(1, 3, [sizes[a] for a in d.axes]) for d in spec.tensors}
    wanted = ra.reference(spec, **arrays)
    for got in (form.compile("numpy")(**arrays), running.merged(form, arrays, [0, 2, 2, 5], [0, 0])["v"]):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def test_shares_of_experts() -> None:
    """How unevenly tokens are routed: the variance of what experts get of all, in units of its square."""
    text = "z = exp(x[t,e] - max[e](x[t,e])); p = sum[t](z / sum[e](z)); u = mean[e](p)"
    form = ra.derive_incremental(ra.parse(f"{text}; return y = mean[e]((p - u)**2) / u**2"))
    x = np.random.default_rng(0).standard_normal((6, 5))
    np.testing.assert_allclose(form.compile("numpy")(x=x), ra.reference(form.spec, x=x), rtol=1e-10)
    assert form.certificate.verify().proved


@pytest.mark.parametrize(
    "event", ["where(eq(x[t,e], m), 1, 0)", "where(x[t,e] < m, w[e], 0)", "where(eq(x[t,e], m), 0, w[e])"]
)
def test_ties_beside_what_is_normalised(event: str) -> None:
    """Tokens whose first choice an expert is, times its share of all: ties keep the anchor a share goes without."""
    share = "mean[t](exp(x[t,e] - m) / sum[e](exp(x[t,e] - m)))"
    spec = ra.parse(f"m = max[e](x[t,e]); return y = sum[e](mean[t]({event}) * {share}) * size[e]")
    form, rng = ra.derive_incremental(spec, axis="e"), np.random.default_rng(1)
    arrays = {"x": rng.integers(0, 3, (4, 5)).astype(float), "w": rng.standard_normal(5)}
    arrays = {d.name: arrays[d.name] for d in spec.tensors}
    wanted = ra.reference(spec, **arrays)
    for got in (form.compile("numpy")(**arrays), running.merged(form, arrays, [0, 2, 2, 5], [0, 0])["y"]):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)


INNER = ("max[j](x[i,j])", "min[j](x[i,j])", "argmax[j](x[i,j])", "argmin[j](x[i,j])", "logsumexp[j](x[i,j])",
         "any[j](x[i,j] > 0)", "all[j](x[i,j] > 0)", "prod[j](x[i,j])", "where(max[j](x[i,j]) > 0, 1, 2)")  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("width", [0, 1, 3])
@pytest.mark.parametrize("inner", INNER)
def test_axes_of_any_length_inside_an_element(inner: str, width: int, dtype: type) -> None:
    """Of nothing an extremum has its identity, and is at -1; of no integers it is no number that all formats hold, and
    accumulators refuse what is calculated with it."""
    if dtype is np.int32 and not width and inner[:3] in ("max", "min"):
        return
    form = ra.derive_incremental(ra.parse(f"return y = max[i]({inner}), z = sum[i](w[i]*({inner})/8)"), axis="i")
    x = np.random.default_rng(width).integers(-2, 3, (4, width)).astype(dtype)
    for rows in (x, np.full_like(x, -np.inf) if dtype is not np.int32 else -x):
        arrays = {"x": rows, "w": np.array([1.0, 2, 3, 4])}
        wanted = ra.reference(form.spec, **arrays)
        every = [form.compile("numpy")(**arrays), form.compile("cpu")(**arrays)]
        if dtype is np.int32 and not width and inner.startswith(("where", "logsumexp")):
            with pytest.raises(ra.RedalgError, match="no integer of a state"):
                running.merged(form, arrays, [0, 2, 2, 4], [0, 0])
        else:
            every.append(running.merged(form, arrays, [0, 2, 2, 4], [0, 0]))
        for found in every:
            for n in wanted:
                np.testing.assert_allclose(found[n], wanted[n], rtol=1e-6)
