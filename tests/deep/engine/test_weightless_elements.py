"""Elements without weight may be of any size (a missing value written as 1e20): they leave no trace in any target."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import Forms
from tests.support.profiles import examples
from tests.support.streams import fed, placed

# In every text x is of any size where k is not, and w is 1 where k is and else 0.
SELECTED = {
    "mean by a condition": "return y = sum[j](where(w[j] > 1/2, x[j], 0))/sum[j](where(w[j] > 1/2, 1, 0))",
    "weighted mean": "return y = sum[n1](w[n1]*x[n1])/sum[n1](w[n1])",
    "mean of rows": "tensors k[t] bool; return y = sum[t](where(k[t], x[i,t], 0))/sum[t](where(k[t], 1, 0))",
    "variance": "tensors k[j] bool; n = sum[j](where(k[j], 1, 0)); u = sum[j](where(k[j], x[j], 0))/n; "
    "return y = sum[j](where(k[j], (x[j] - u)**2, 0))/n",
    "softmax": "tensors k[j] bool; s = where(k[j], v[j], -oo); e = exp(s - max[j](s)); u = sum[j](e*x[j])/sum[j](e); "
    "return y = sum[j](e*(x[j] - u)**2)/sum[j](e)",
    "another location": "tensors k[j] bool; m = min[j](v[j]); return y = sum[j](where(k[j], (x[j] - m)**2, 0))",
    "third power": "tensors k[j] bool; m = max[j](v[j]); return y = sum[j](where(k[j], (x[j] - m)**3, 0))",
    "weighted square": "m = min[j](v[j]); return y = sum[j](w[j]*(x[j] - m)**2)",
    "weights of rows": "m = mean[t](v[t]); return y = sum[t](w[i,t]*(x[t] - m)**2)",
    "several weights": "m = mean[j](v[j]); return y = sum[j](where(v[j] < 2, w[j]*abs(v[j])*(x[j] - m)**2, 0))",
    "weight of a product": "m = mean[j](v[j]); return y = sum[j](w[j]*(x[j] - m)*(v[j] - 2*m))",
    "another in each term": "m = max[b](v[b]); "
    "return y = sum[b](w[b]*(x[b] - m)**2 + relu(w[b] - 1/2)*v[b]*(x[b] - m))",
    "no exponential": "tensors k[j] bool; m = mean[j](v[j]); "
    "return y = sum[j](exp(where(k[j], v[j], -oo))*(x[j] - m)**2)",
}
UNDERFLOWING = {  # s is far below the others where k is not
    "moment under a softmax": "e = exp(s[j] - max[j](s[j])); u = sum[j](e*x[j])/sum[j](e); "
    "return y = sum[j](e*(x[j] - u)**2)/sum[j](e)",
    "about another location": "e = exp(s[t] - max[t](s[t])); m = mean[t](v[t]); "
    "return y = sum[t](e*(x[i,t] - m)**2)/sum[t](e)",
    "divergence": "p = exp(2*x[j] - max[j](2*x[j])); "
    "return y = sum[j](p*(x[j] - log(sum[j](p)) - v[j] - max[j](v[j])))",
}
AT_AN_EXTREMUM = {  # v is at its largest or smallest where k is
    "mean at 4": "m = max[j](v[j]); return y = sum[j](where(eq(v[j], m), x[j], 0))/sum[j](where(eq(v[j], m), 1, 0))",
    "variance at -4": "m = min[a](v[a]); n = sum[a](where(v[a] <= m, 1, 0)); u = sum[a](where(v[a] <= m, x[a], 0))/n; "
    "return y = sum[a](where(v[a] <= m, (x[a] - u)**2, 0))/n",
}
BESIDE_ITS_EXPONENTIAL = {  # which is centred on the largest of all; here its sum is 0 or 1 or so
    "first power": "tensors k[j] bool; u = mean[j](v[j]); m = max[j](x[j]); "
    "return y = sum[j](where(k[j], v[j]*(x[j] - u), 0)), s = sum[j](exp(x[j] - m))",
    "square": "tensors k[a] bool; u = max[a](v[a]); m = max[a](2*x[a]); "
    "return y = sum[a](where(k[a], (2*x[a] - u)**2, 0)), s = sum[a](exp(2*x[a] - m))",
    "own mean": "tensors k[j] bool; m = max[j](x[j]); n = sum[j](where(k[j], 1, 0)); "
    "u = sum[j](where(k[j], x[j], 0))/n; return y = sum[j](where(k[j], (x[j] - u)**2, 0))/n, s = sum[j](exp(x[j] - m))",
    "smallest": "tensors k[t] bool; u = mean[t](v[t]); m = min[t](x[t]); "
    "return y = sum[t](where(k[t], (x[t] - u)**3, 0)), s = sum[t](exp(m - x[t]))",
    "a number": "u = mean[j](v[j]); m = max[j](x[j]); return y = sum[j](w[j]*(x[j] - u)**2), s = sum[j](exp(x[j] - m))",
    "another's exponential": "u = mean[j](v[j]); m = max[j](x[j]); q = max[j](s[j]); "
    "return y = sum[j](exp(s[j] - q)*(x[j] - u)**2), e = sum[j](exp(x[j] - m))",
    "two tensors": "tensors k[i,t] bool; u = mean[t](v[t]); m = max[t](x[i,t]); "
    "return y = sum[t](where(k[i,t], (x[i,t] - u)*(v[t] - u), 0)), s = sum[t](exp(x[i,t] - m))",
    "a softmax of the others": "tensors k[j] bool; u = mean[j](v[j]); m = max[j](where(k[j], x[j], -oo)); "
    "e = exp(where(k[j], x[j], -oo) - m); q = max[j](x[j]); "
    "return y = sum[j](e*(x[j] - u)*v[j]), l = m + log(sum[j](e)), s = sum[j](exp(x[j] - q))",
}
FORMS = Forms(SELECTED | UNDERFLOWING | AT_AN_EXTREMUM | BESIDE_ITS_EXPONENTIAL)
LARGEST = {np.float64: 150, np.float32: 18}  # decimal digits: squares are in range
CUTS = st.lists(st.integers(0, 9), min_size=2, max_size=4).map(lambda inner: sorted([*inner, inner[0]]))  # one is empty


def streams() -> st.SearchStrategy[dict[str, np.ndarray]]:
    """The first element has no weight, and at least three others have one."""
    seeds, dtypes, lengths = st.integers(0, 2**32 - 1), st.sampled_from([*LARGEST]), st.integers(5, 9)
    return st.builds(drawn_stream, seeds, dtypes, lengths)


def drawn_stream(seed: int, dtype: Any, length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    k = np.isin(np.arange(length), rng.choice(np.arange(1, length), rng.integers(3, length), replace=False))
    any_size = 10.0 ** rng.uniform(9, LARGEST[dtype], length) * rng.choice((-1, 1), length)
    x = np.where(k, rng.choice((1.0, -0.5, 0.25, 1.75, -2.0, 3.0), length), any_size)
    return {"k": k, "w": k.astype(dtype), "x": x.astype(dtype), "v": rng.uniform(-2, 3, length).astype(dtype)}


def arguments(name: str, drawn: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if name in AT_AN_EXTREMUM:
        drawn = drawn | {"v": np.where(drawn["k"], int(name.split()[-1]), drawn["v"]).astype(drawn["v"].dtype)}
    if name in UNDERFLOWING or "s[" in str(FORMS[name].spec):
        least = np.where(drawn["k"], drawn["v"], -1e6).astype(drawn["v"].dtype)
        drawn = drawn | {"s": least}
    if name in UNDERFLOWING:
        drawn = drawn | {"x": -abs(drawn["x"])}
    names = {d.name: d.axes for d in FORMS[name].spec.tensors}
    return {n: np.stack([drawn[n], drawn[n]]) if "i" in axes else drawn[n] for n, axes in names.items()}


def assert_near(name: str, got: Any, arrays: dict[str, np.ndarray]) -> None:
    """Of at most 9 numbers that are at most 6 apart, cubed: what rounding these may change."""
    wide = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    wanted = ra.reference(FORMS[name].spec, **wide)
    for output in FORMS[name].spec.outputs:
        one, other = (v[output] if isinstance(v, dict) else v for v in (got, wanted))
        np.testing.assert_allclose(one, other, 0, 1e4 * np.finfo(arrays["x"].dtype).eps, err_msg=output)


@pytest.mark.parametrize("name", [*FORMS])
@given(drawn=streams(), inner=CUTS)
@examples(8)
def test_they_leave_no_trace_in_streams(name: str, drawn: dict[str, np.ndarray], inner: list[int]) -> None:
    form, arrays = FORMS[name], arguments(name, drawn)
    length = len(drawn["k"])
    cuts = [0, *(min(cut, length) for cut in inner), length]
    with np.errstate(all="ignore"):
        for got in (
            form.compile("numpy")(**arrays),
            fed(form, arrays, cuts).result(),
            fed(form, arrays, range(length + 1)).result(),
            placed(form, arrays, cuts, [*range(len(cuts) - 1)][::-1]).result(),
            placed(form, arrays, range(length + 1), [*range(length)][::-1]).result(),
        ):
            assert_near(name, got, arrays)


@pytest.mark.parametrize(
    "name",
    ["mean of rows", "mean at 4", "weighted square", "weights of rows", "a number", "two tensors", *UNDERFLOWING],
)
@given(drawn=streams())
@examples(5)
def test_they_leave_no_trace_in_kernels(name: str, drawn: dict[str, np.ndarray]) -> None:
    assert_near(name, FORMS[name].compile("cpu")(**arguments(name, drawn)), arguments(name, drawn))


CORRELATION = Forms(
    {
        "of r": "a = mean[j](x[i,j]); b = mean[j](w[i,j]); return y = sum[j]((x[i,j] - a)*(w[i,j] - b))"
        "/sqrt(sum[j]((x[i,j] - a)**2)*sum[j]((w[i,j] - b)**2))"
    }
)


@pytest.mark.parametrize("dtype", [*LARGEST])
def test_units_of_zeros_serve_where_more_range_is_needed(dtype: Any) -> None:
    """While the elements of a tensor are 0 its unit is the least one, which is another one in the wider dtype."""
    least = np.finfo(dtype).smallest_subnormal
    for place, first in product(range(1, 5), (0.25, -3.0)):
        x, w = np.zeros((2, 5), dtype), np.zeros((2, 5), dtype)
        x[:, 0], w[:, 0], w[0, place], x[1, place] = 0.25, first, least, least
        with np.errstate(all="ignore"):
            got = placed(CORRELATION["of r"], {"x": x, "w": w}, range(6), [4, 3, 2, 1, 0]).result()
        np.testing.assert_allclose(got, np.sign(first), rtol=64 * np.finfo(dtype).eps)
