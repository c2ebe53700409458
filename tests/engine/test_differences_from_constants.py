"""Sums of differences from what is known while streaming: x - c has its digits, and Σx - n·c has lost them.

Differences of numbers that are near each other are exact. The bound is a few roundings of what the definition adds up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running
from tests.support.forms import Forms

SPECS = {
    "sum": "return s = sum[j](x[j] - c)",
    "mean": "return s = mean[j](x[j] - c)",
    "below": "return s = mean[j](c - x[j])",
    "number": "return s = mean[j](x[j] - 273125/1000)",
    "several": "return s = mean[j](x[j] - c - 1/1024)",
    "by rows": "return s = mean[j](x[j] - m[i])",
    "selected": "tensors b[j] bool; return s = sum[j](where(b[j], x[j] - c, 0))",
    "of those": "tensors b[j] bool; return s = sum[j](where(b[j], x[j] - c, 0))/count[j](b[j])",
    "beside a mean": "return s = mean[j](x[j] - c), t = mean[j](x[j])",
    "beside a variance": "return s = mean[j](x[j] - c), t = var[j](x[j] - c)",
    "over a spread": "return s = mean[j](x[j] - c)/std[j](x[j])",
    "weighted": "return s = sum[j](w[j]*(x[j] - c))/sum[j](w[j])",
    "largest of others": "return s = mean[j](x[j] - max[j](z[j]))",
    "sum about others": "return s = sum[j](x[j] - max[j](z[j]))",
    "times a value": "return s = mean[j]((x[j] - c)*max[j](w[j]))",
    "sum times a value": "return s = sum[j](w[j]*(x[j] - c)*max[j](w[j]))",
    "over a value": "return s = mean[j]((c - x[j])/(2 + max[j](w[j])))",
    "times a deviation": "return s = mean[j]((x[j] - c)*(w[j] - mean[j](w[j])))",
    "times an exponential": "return s = mean[j]((x[j] - c)*exp(w[j] - max[j](w[j])))",
}
FORMS = Forms(SPECS, "j")
PLACE = 273.125


def drawn(form: Any, dtype: Any, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    n, c = 60, dtype(PLACE)
    step = np.spacing(c) * 2.0 ** rng.integers(0, 12)
    x = (c + step * rng.integers(-9, 10, n)).astype(dtype)
    made = {"x": x, "c": c, "m": np.array([c, c + 4 * step], dtype), "b": rng.random(n) < 0.5, "w": rng.random(n)}
    made |= {"z": np.minimum(c, c - step * (np.arange(n) % 3)).astype(dtype)}
    made["w"] = np.where(rng.random(n) < 0.2, 0, made["w"]).astype(dtype)
    return {t.name: made[t.name] for t in form.spec.tensors}


def bound(name: str, given: dict[str, np.ndarray]) -> float:
    """What is added up, of elements and of those that they are compared with."""
    places = [given[n].astype(float) for n in ("c", "z") if n in given] or [np.float64(PLACE)]
    places = [given["m"].astype(float)] if "m" in given else places
    x = given["x"].astype(float)
    size = max(np.abs(x - p).max() for p in places[0].reshape(-1, 1))
    size += 2.0**-10 if name == "several" else 0
    return float(size) * (x.size if name.startswith("sum") or name == "selected" else 1)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_differences_keep_their_digits(name: str, dtype: Any) -> None:
    form = FORMS[name]
    for seed in range(8):
        given = drawn(form, dtype, seed)
        n = given["x"].size
        wide = {k: a if a.dtype == bool else a.astype(float) for k, a in given.items()}
        true = ra.reference(form.spec, exact=True, **wide)
        true = np.asarray(true["s"] if isinstance(true, dict) else true, float)
        whole = form.accumulator(**{k: a for k, a in given.items() if k in ("c", "m")})
        for part in np.split(np.arange(n), [0, 1, 20, 20]):
            whole.update(**{k: a[part] for k, a in given.items() if k not in ("c", "m")})
        merged = running.merged(form, given, [0, 9, 9, 33, n], [2, 1, 0])
        for where, value in {"numpy": form.compile("numpy")(**given), "streamed": whole.result(), "m": merged}.items():
            found = np.asarray(value["s"] if isinstance(value, dict) else value, float)
            off = np.abs(found - true).max()
            most = 40 * np.finfo(dtype).eps * (bound(name, given) / (1 if name != "over a spread" else wide["x"].std()))
            assert off <= most, (where, seed, found, true, off / most)


@pytest.mark.parametrize("name", SPECS)
def test_forms_of_differences_are_proved(name: str) -> None:
    FORMS[name].certificate.verify()
