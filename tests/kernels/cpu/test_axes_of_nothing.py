"""Axes of length 0, one or two of them: results that lack such an axis are what the definition says, too."""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import redalg as ra
from tests.support.forms import form_of_text

SPECS = {
    "stage of no rows": ("tensors x[h,i,j], w[j]; m = max[j](w[j]); return y = x[h,i,j]*m, stat = m", "j"),
    "sum beside": ("tensors x[i,j], w[j]; return T = sum[j](x[i,j]), stat = sum[j](w[j]), least = min[j](w[j])", "j"),
    "map beside": ("tensors x[i,j], w[j]; return T = sum[j](x[i,j]*w[j]), twice = w[j]*2", "j"),
    "number": ("tensors x[i,j], s; return T = sum[j](x[i,j]*s), root = s**2 + 1", "j"),
    "counts": (
        "tensors x[i,j], w[j]; return n = sum[j](where(w[j] > 0, 1, 0)), T = mean[j](x[i,j]), at = argmax[j](w[j])",
        "j",
    ),
    "columns": ("tensors x[i,j,d], w[j]; return T = sum[j](w[j]*x[i,j,d]), n = sum[j](w[j])", "j"),
    "positions, nothing streamed": (
        "tensors x[i,j]; empty top = 7; empty later = 5; return top = max[j](index[j]), half = max[j](index[j])*1.5, "
        "at = argmin[j](index[j]), later = max[j](where(index[j] > index[i], 1, 0)), total = sum[j](index[j])",
        None,
    ),
    "two axes": ("tensors x[i,c,d], w[c,d]; return T = sum[c,d](x[i,c,d]), n = sum[c,d](w[c,d])", None),
    "states along two axes": ("return C = cov[j](x[j,a], y[j,b]), P = sum[j](x[j,a]*y[j,b]), n = sum[j](y[j,b])", "j"),
}


@pytest.mark.parametrize("name", SPECS)
def test_results_that_lack_an_axis_of_nothing(name: str) -> None:
    text, axis = SPECS[name]
    form = form_of_text(text, axis)
    rng, axes = np.random.default_rng(1), [*form.spec.axes]
    for none in [*combinations(axes, 1), *combinations(axes, 2)]:
        sizes = {a: 0 if a in none else 3 for a in axes}
        given: dict[str, Any] = {
            t.name: rng.normal(size=[sizes[a] for a in t.axes]).astype("f4") if t.axes else 1.5
            for t in form.spec.tensors
        }
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            wanted = ra.reference(form.spec, **given)
            for target in ("cpu", "numpy"):
                found = form.compile(target)(**given)
                for n, exact in wanted.items():
                    np.testing.assert_allclose(
                        np.asarray(found[n], float), exact, rtol=1e-6, err_msg=f"{n}, {none} {target}"
                    )


INTEGERS = {
    "beside floats": "return r = max[i](max[j](k[i,j]) + y[i]), t = sum[i](min[j](k[i,j])*y[i])",
    "of extrema": "return r = max[i](max[j](k[i,j])), s = min[i](max[j](k[i,j]))",
    "compared": "return r = sum[i](where(max[j](k[i,j]) > 0, y[i], 2*y[i]))",
    "further out": "return r = max[i](max[j](k[i,j])) + 0.5",
    "maps": "return r = max[j](k[i,j])*y[i]",
}


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint16"])
@pytest.mark.parametrize("name", INTEGERS)
def test_an_extremum_of_no_integers_is_infinite_where_it_is_calculated_with(name: str, dtype: str) -> None:
    form = form_of_text(INTEGERS[name], None if name == "maps" else "i")
    for none in ({"j"}, {"i"}, {"i", "j"}, set[str]()):
        sizes = {a: 0 if a in none else 2 for a in ("i", "j")}
        given = {
            t.name: np.ones([sizes[a] for a in t.axes], dtype if t.name == "k" else "f4") for t in form.spec.tensors
        }
        with np.errstate(all="ignore"):
            wanted = ra.reference(form.spec, **given)
            for target in ("cpu", "numpy"):
                found = form.compile(target)(**given)
                for n, exact in (wanted if isinstance(wanted, dict) else {"r": wanted}).items():
                    got = found[n] if isinstance(found, dict) else found
                    np.testing.assert_array_equal(got, exact, err_msg=f"{n}, {none}, {target}")
