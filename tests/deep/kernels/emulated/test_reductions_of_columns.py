"""Results that reduce the columns of a state inside other reductions, by emulation: against the definition."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.kernels import partitioned
from tests.support import simulated
from tests.support.forms import form_of_text

STATE = "s = sum[d](q[i,d]*k[j,d]); "
TEXTS = {
    "a sum of sums": "return z = sum[e](g[i,e]*sum[j](s*v[j,e]))",
    "a sum of maxima": "return z = sum[e](g[i,e]*max[j](s*v[j,e])), m = max[j](s)",
    "a maximum of means": "m = max[j](s); p = exp(s - m); return z = max[e](g[i,e] + sum[j](p*v[j,e])/sum[j](p))",
    "two axes around": "return z = sum[e](sum[f](h[f]*g[i,e]*sum[j](s*v[j,e]*w[j,f])))",
    "one behind another": "return z = sum[e](sum[f](h[f]*min[j](s*w[j,f]))*g[i,e]*sum[j](s*v[j,e]))",
    "beside columns": "return z = s*sum[e](g[i,e]*sum[j](s*v[j,e]))",
    "inside columns": "t = sum[e](g[i,e]*sum[j](s*v[j,e])); return z = sum[j](s*t)",
    "where": "return z = sum[e](where(sum[j](s*v[j,e]) > 0, g[i,e], sum[j](abs(s))))",
}


@pytest.fixture(autouse=True)
def _in_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products inside of reductions run in parts where that is faster: here are the kernels that have them inside."""
    monkeypatch.setattr(partitioned, "parted", lambda *given: None)


@pytest.mark.parametrize("columns", (3, 70))
@pytest.mark.parametrize("name", TEXTS)
def test_columns_inside_reductions(name: str, columns: int) -> None:
    """Few columns are values of their own, and many are shared out among the threads of a warp."""
    form, rng = form_of_text(STATE + TEXTS[name], "d", 4), np.random.default_rng(columns)
    sizes = {"i": 5, "d": 7, "j": columns, "e": 3, "f": 2}
    given = {t.name: rng.standard_normal([sizes[a] for a in t.axes]).astype("f4") for t in form.spec.tensors}
    found, _, _ = simulated.run(form, given)
    true = ra.reference(form.spec, **{n: x.astype("f8") for n, x in given.items()})
    for output, value in (true if isinstance(true, dict) else {"z": true}).items():
        terms = 64 * 2.0**-24 * np.abs(value).max()  # of sums of at most 7, 70, 3 and 2 terms of both signs
        assert np.abs(found[output] - value).max() <= 8 * terms, output


def test_gradients_of_a_bias_that_save_nothing() -> None:
    """Two reductions over columns in one over what they vary along."""
    entry, sizes = ra.catalog.entry("attention_bias"), {"d": 8, "e": 5, "h": 2, "i": 3, "j": 88}
    pull = entry.spec.vjp(wrt="bias", given=())
    spec, rng = pull.specs["bias"], np.random.default_rng(0)
    given = {t.name: rng.standard_normal([sizes[a] for a in t.axes]).astype("f4") for t in spec.tensors}
    found, _, _ = simulated.run(pull.forms[spec], given)
    expected = ra.reference(spec, **{n: x.astype("f8") for n, x in given.items()})
    assert np.abs(found["grad_bias"] - expected).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("columns", (2, 11))
@pytest.mark.parametrize(
    "reduced",
    [
        "sum[a](sum[b](where(index[a] != index[b], c**2, 0)))/size[a]",
        "sum[b](sum[a](where(index[a] == index[b], (c - 1)**2, c**2/8)))",
        "max[a](max[b](c)) + min[b](min[a](c))",
        "sqrt(sum[a](sum[b](c**2)))*sum[b](sum[a](abs(c)))",
    ],
)
def test_reductions_of_reductions_over_all_columns(reduced: str, columns: int) -> None:
    """Losses of covariances, as they are written: one axis after the other."""
    text = "c = mean[n]((z[n,a] - mean[n](z[n,a]))*(y[n,b] - mean[n](y[n,b]))); return l = " + reduced
    form, rng = form_of_text(text, "n"), np.random.default_rng(columns)
    given = {name: rng.standard_normal((9, columns)).astype("f4") for name in "zy"}
    found, _, _ = simulated.run(form, given)
    true = ra.reference(form.spec, **{name: x.astype("f8") for name, x in given.items()})
    np.testing.assert_allclose(found["l"], true, rtol=2e-5)
