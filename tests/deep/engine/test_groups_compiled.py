"""Groups by compiled loops over rows: the lift's own statements, against the definition and against the sorted way."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.groups import vectorised
from redalg.groups.vectorised import _Reading
from redalg.kernels.cpu.grouped import group_lift
from tests.support.forms import form_of_text
from tests.support.profiles import examples
from tests.support.streams import assert_close

LOOPS = {
    "variance": "return v = var[j](x[j])",
    "sample variance": "return v = var[j:1](x[j]), n = size[j]",
    "covariance": "return c = cov[j](x[j], w[j])",
    "weighted mean": "return y = sum[j](w[j]*x[j]) / sum[j](w[j])",
    "weighted variance": "s = sum[j](w[j]); u = sum[j](w[j]*x[j])/s; return y = sum[j](w[j]*(x[j] - u)**2)/s",
    "third moment": "u = mean[j](x[j]); return y = mean[j]((x[j] - u)**3)",
    "logsumexp": "return y = logsumexp[j](x[j])",
    "softmax mean": "m = max[j](x[j]); s = sum[j](exp(x[j] - m)); return y = sum[j](exp(x[j] - m)*w[j])/s",
    "conditions": "return a = any[j](x[j] > 1), b = all[j](x[j] < w[j]), c = count[j](x[j] > w[j]), l = min[j](x[j])",
    "norm": "return y = norm[j](x[j])",
    "clipped": "return y = sum[j](where(x[j] > 0, minimum(x[j], 2), abs(x[j])/2))",
}


@pytest.fixture(autouse=True)
def always_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorised, "COMPILED", 1)


def lift_of(form: ra.Form, dtype: str = "float64") -> Any:
    groups = form.grouped()
    groups.update(by=[1], **{d.name: np.ones(1, dtype) for d in form.spec.tensors})
    reading = _Reading(groups._like)
    arrays = {k: np.ones(1, dtype) for k in reading.engine.program.rows.keys if k.startswith("given:")}
    return group_lift(reading.engine.program, tuple((k, x.dtype.name) for k, x in sorted(arrays.items())))


@pytest.mark.parametrize("name", LOOPS)
def test_these_lifts_have_loops(name: str) -> None:
    for dtype in ("float64", "float32"):
        assert lift_of(form_of_text(LOOPS[name]), dtype) is not None


@pytest.mark.parametrize("name", LOOPS)
@examples(40)
@given(st.data())
def test_any_partition_gives_the_definition_by_group(name: str, data: st.DataObject) -> None:
    form, n = form_of_text(LOOPS[name]), data.draw(st.integers(1, 30))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    dtype = data.draw(st.sampled_from(["float64", "float64", "float32", "int16"]))
    x, w = rng.integers(-8, 9, n).astype(dtype), rng.integers(1, 5, n).astype(dtype)
    if dtype.startswith("f"):
        x = x / x.dtype.type(4)
        if data.draw(st.booleans()):
            x[rng.integers(0, n)] = data.draw(st.sampled_from([np.inf, -np.inf, np.nan, 1e30]))
    by = rng.integers(-2, data.draw(st.integers(-1, 6)), n)
    arrays = {d.name: {"x": x, "w": w}[d.name] for d in form.spec.tensors}
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=3))), n]
    whole, merged = form.grouped(), form.grouped()
    for a, b in pairwise(cuts):
        part = form.grouped()
        for groups in (whole, part):
            groups.update(by=by[a:b], **{t: v[a:b] for t, v in arrays.items()})
        merged.merge(part)
    for groups in (whole, merged):
        keys, found = groups.result()
        found = found if isinstance(found, dict) else {next(iter(form.spec.outputs)): found}
        assert keys.tolist() == list(dict.fromkeys(by.tolist()))
        for at, key in enumerate(keys.tolist()):
            expected = ra.reference(form.spec, **{t: v[by == key] for t, v in arrays.items()})
            expected = expected if isinstance(expected, dict) else {next(iter(form.spec.outputs)): expected}
            if np.abs(x[by == key][np.isfinite(x[by == key])].astype(float)).max(initial=0) > 1e20:
                continue  # cancellation against 1e30 is judged by the sorted way below
            assert_close({t: v[at] for t, v in found.items()}, expected, 512)


def test_many_groups_far_keys_and_one_long_group() -> None:
    rng = np.random.default_rng(7)
    n = 300_000
    x, w = rng.normal(size=n) + 100, rng.random(n)
    for by in (rng.integers(0, 100_000, n), rng.integers(0, 2, n), rng.integers(0, 50, n) * 10**12, np.zeros(n, int)):
        for name in ("sample variance", "weighted mean", "softmax mean"):
            form = form_of_text(LOOPS[name])
            arrays = {d.name: {"x": x, "w": w}[d.name] for d in form.spec.tensors}
            quick, plain = form.grouped(), form.grouped()
            for a, b in ((0, 200_000), (200_000, n)):
                quick.update(by=by[a:b], **{t: v[a:b] for t, v in arrays.items()})
            vectorised.COMPILED = n + 1
            plain.update(by=by, **arrays)
            vectorised.COMPILED = 1
            (keys, found), (same, expected) = quick.result(), plain.result()
            np.testing.assert_array_equal(keys, same)
            pairs = zip(*(v.values() if isinstance(v, dict) else [v] for v in (found, expected)), strict=True)
            for one, other in pairs:
                np.testing.assert_allclose(one, other, rtol=1e-11, equal_nan=True)


def test_float32_is_added_up_in_float64() -> None:
    form = form_of_text("return y = sum[j](x[j])")
    x = np.full(200_000, 0.1, np.float32)
    groups = form.grouped()
    groups.update(by=np.zeros(len(x), int), x=x)
    assert groups.result()[1][0] == np.float32(x.astype(float).sum())


def test_strings_and_mixed_keys_and_results_are_those_of_a_single_way() -> None:
    form = form_of_text(LOOPS["variance"])
    by = ["b", None, "a", "b", 3, None]
    groups = form.grouped()
    groups.update(by=by, x=np.arange(6.0))
    keys, found = groups.result()
    assert keys.tolist() == ["b", None, "a", 3] and found.tolist() == [2.25, 4.0, 0.0, 0.0]
