"""Sums of exponentials with weights: what a weight of 0 masks is not looked at from afar, and is infinite all the same.

An exponential of an element of weight 0 may be larger than all others by more than a format's range.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running
from tests.support.forms import Forms

SPECS = {
    "sum": "u = mean[j](z[j]); return s = sum[j](w[j]*exp(x[j] - u))",
    "log": "u = mean[j](z[j]); return s = log(sum[j](exp(x[j] - u)*w[j]))",
    "mean": "u = max[j](z[j]); return s = log(sum[j](exp(x[j] - u)*w[j])/sum[j](w[j]))",
    "average": "u = mean[j](z[j]); return s = sum[j](exp(x[j] - u)*w[j]*z[j])/sum[j](exp(x[j] - u)*w[j])",
    "two weights": "u = mean[j](z[j]); return s = sum[j](exp(x[j] - u)*w[j]*z[j])/sum[j](exp(x[j] - u)*w[j]**2)",
    "condition": "u = mean[j](z[j]); return s = log(sum[j](where(z[j] > 0, exp(x[j] - u)*w[j], 0)))",
    "pairs": "tensors z[j], w[j], x[i,j]; u = mean[j](z[j]); return s = log(sum[j](w[j]*exp(x[i,j] - u)))",
    "doubled": "u = mean[j](z[j]); return s = log(sum[j](w[j]*exp(2*x[j] - u)) + sum[j](w[j]*exp(x[j] - u)))",
    "less one": "u = mean[j](z[j]); return s = sum[j](w[j]*expm1(x[j] - u))",
}
FORMS = Forms(SPECS, "j")
Arrays = dict[str, np.ndarray]


def drawn(name: str, seed: int, far: float, little: float) -> Arrays:
    """Elements about 0, one of them far above the others, of little weight."""
    rng = np.random.default_rng(seed)
    n = 4 + seed % 5
    x, z, w = rng.normal(size=n), rng.uniform(0.5, 1, n), rng.uniform(0.5, 2, n)
    place = rng.integers(n)
    x[place], w[place] = x[place] + far, little
    x = np.stack([x, x - 1, rng.permutation(x)]) if name == "pairs" else x
    return {"x": x, "z": z, "w": w}


def found(form: Any, given: Arrays) -> list[tuple[str, np.ndarray]]:
    """What the form and its accumulators give, one of whose pieces is empty."""
    n = given["w"].size
    borders = [0, n // 3, n // 3, n - 1, n]
    whole = form.accumulator()
    for start, end in zip(borders, borders[1:], strict=False):
        whole.update(**{k: a[..., start:end] for k, a in given.items()})
    merged = running.merged(form, given, borders, [2, 1, 0])["s"]
    values = {"numpy": form.compile("numpy")(**given), "streamed": whole.result(), "merged": merged}
    return [(where, np.asarray(value)) for where, value in values.items()]


@pytest.mark.parametrize("name", SPECS)
def test_what_a_weight_masks_hides_nothing(name: str) -> None:
    form = FORMS[name]
    cases = product((0, 30, 110, 300), (0.0, -0.0, 1e-30), (np.float32, np.float64))
    for seed, (far, little, dtype) in enumerate(cases):
        if little and (far > 60 or name == "doubled"):
            continue  # w·e^u is beyond float32
        given = {k: a.astype(dtype) for k, a in drawn(name, seed, far, little).items()}
        true = np.asarray(ra.reference(form.spec, exact=True, **{k: a.astype(float) for k, a in given.items()}), float)
        for where, value in found(form, given):
            most = 400 * np.finfo(dtype).eps * (1 + np.abs(true))
            assert np.all(np.abs(value - true) <= most), (where, far, little, dtype, value, true)


@pytest.mark.parametrize("name", SPECS)
def test_what_a_weight_masks_is_infinite_all_the_same(name: str) -> None:
    """0·e^oo and 0·NaN are no numbers; 0·e^-oo is 0; where nothing has a weight, quotients are 0/0."""
    form, oo = FORMS[name], np.inf
    rows: list[tuple[list[float], list[float]]] = [
        ([], []),
        ([oo, 1], [0, 1]),
        ([1, oo], [1, 0]),
        ([np.nan, 1], [0, 1]),
        ([-oo, 1], [0, 1]),
        ([-oo, -oo], [1, 0]),
        ([1, 2], [0, 0]),
        ([1, 2], [np.nan, 0]),
        ([1, 2, 3], [oo, 0, 1]),
    ]
    for x, w in rows:
        shape = (2, len(x)) if name == "pairs" else (len(x),)
        given = {"x": np.broadcast_to(np.array(x, float), shape), "w": np.array(w, float), "z": np.ones(len(x))}
        with np.errstate(all="ignore"):
            wanted = np.asarray(ra.reference(form.spec, **given), float)
            values = found(form, given) if x else [("numpy", form.compile("numpy")(**given))]
        for where, value in values:
            np.testing.assert_allclose(value, wanted, 1e-12, err_msg=f"{where} {x} {w}")


@pytest.mark.parametrize("name", SPECS)
def test_forms_of_what_has_a_weight_are_proved(name: str) -> None:
    FORMS[name].certificate.verify()


def test_exponentials_that_stand_alone_somewhere_keep_their_anchor() -> None:
    """Attention sums its exponentials without a weight, too: no mask is wanted, and none is paid for."""
    texts = (
        "u = mean[j](z[j]); return s = sum[j](exp(x[j] - u)*w[j])/sum[j](exp(x[j] - u))",
        "return s = sum[j](exp(x[j] - max[j](x[j]))*w[j])",
        "tensors w[j] positive; u = mean[j](z[j]); return s = sum[j](exp(x[j] - u)*w[j])",
        "tensors x[i,j], v[j,e], z[j]; u = mean[j](z[j]); return s = sum[j](exp(x[i,j] - u)*v[j,e])",
    )
    for text in texts:
        form = ra.derive_incremental(ra.parse(text), axis="j")
        assert not any(n.op == "where" for slot in form.plan.passes[0].slots for x in slot.lift for n in [x, *x.args])
