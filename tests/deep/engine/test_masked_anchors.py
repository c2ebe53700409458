"""Extrema under a mask are infinite until something is selected: they centre what stands under that mask, nothing else.

Every pattern of a mask, streams whose first parts select nothing, and parts that are empty.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running

MASKED = {
    "subtracted": "m = max[j](where(t[j], x[j], -oo)); r = sum[j](where(t[j], exp(x[j] - m), 0))",
    "own": "u = mean[j](x[j]); r = sum[j](where(t[j], exp(x[j] - u), 0))",
    "both ends": "u = mean[j](x[j]); r = sum[j](where(t[j], cosh(x[j] - u), 0))",
    "times x": "u = mean[j](x[j]); r = sum[j](where(t[j], exp(x[j] - u)*x[j], 0))",
    "least": "m = min[j](where(t[j], x[j], oo)); r = sum[j](where(t[j], exp(m - x[j]), 0))",
    "groups": "u = mean[j](x[j]); r = sum[g](sum[j](where(G[j,g], exp(x[j] - u), 0)))",
    "two conditions": "u = mean[j](x[j]); r = sum[j](where(t[j] and h[j], exp(x[j] - u), 0))",
    "otherwise": "u = mean[j](x[j]); r = sum[j](where(t[j], 0, exp(x[j] - u)))",
}
BESIDE = {
    "variance": "v = var[j](x[j])",
    "mean": "v = mean[j](x[j])",
    "third": "a = mean[j](x[j]); v = mean[j]((x[j] - a)**3)",
    "covariance": "v = cov[j](x[j], z[j])",
    "under another mask": "a = mean[j](x[j]); v = sum[j](where(h[j], (x[j] - a)**2, 0))",
    "weighted": "a = sum[j](z[j]*x[j])/sum[j](z[j]); v = sum[j](z[j]*(x[j] - a)**2)",
    "below the selected": "b = max[j](where(t[j], x[j], -oo)); v = where(b > -oo, sum[j]((x[j] - b)**2), 0)",
    "kept": "a = mean[j](x[j]); v = x[j] - a",
}
LENGTH = 4
DOMAINS = {"t[j]": " bool", "h[j]": " bool", "G[j,g]": " bool", "z[j]": " positive"}


PAIRS = [(m, b) for k, m in enumerate(MASKED) for i, b in enumerate(BESIDE) if (k + i) % 3 == 0]


@pytest.mark.parametrize(("masked", "beside"), PAIRS)
def test_what_is_not_selected_has_an_anchor_of_its_own(masked: str, beside: str) -> None:
    text = f"{MASKED[masked]}; {BESIDE[beside]}; return r = r, v = v"
    leaves = [t for t in ("x[j]", *DOMAINS) if t in text]
    form = ra.derive_incremental(ra.parse(f"tensors {', '.join(t + DOMAINS.get(t, '') for t in leaves)}; {text}"), "j")
    names = [d.name for d in form.spec.tensors]
    rng, run = np.random.default_rng(len(text)), form.compile("numpy")
    for pattern in product((False, True), repeat=LENGTH):
        mask = np.array(pattern)
        arrays = {"x": 20 + rng.normal(size=LENGTH), "z": rng.uniform(0.5, 2, LENGTH), "t": mask, "h": ~mask[::-1]}
        arrays = {n: a for n, a in (arrays | {"G": np.stack([mask, ~mask], axis=1)}).items() if n in names}
        with np.errstate(all="ignore"):
            wanted = running.named(form, ra.reference(form.spec, **arrays))
            found = [running.named(form, run(**arrays)), running.streamed(form, arrays, [0, 1, 1, 3, LENGTH])]
            found += [running.merged(form, arrays, [0, 2, 2, LENGTH], tree) for tree in ([0, 0], [1, 0])]
        for got, (name, value) in product(found, wanted.items()):
            selected = mask.any() and not mask.all()  # else a stage value may be infinite, and is named as such
            numbers = np.isnan(got[name]) & ("finite_stage_values" in form.assumptions) & (not selected)
            np.testing.assert_allclose(np.where(numbers, value, got[name]), value, rtol=1e-10, atol=1e-12)


INFINITE = {  # where nothing is left out they are variances as any, of numbers far from 0
    "alone": "u = where(t[j], x[j], -oo); return v = var[j](u)",
    "oo": "u = where(not t[j], oo, x[j]); return v = std[j](u), m = mean[j](u)",
    "sum": "u = where(t[j], x[j], -oo) + x[j]; return v = cov[j](u, z[j]), w = var[j](u)",
    "weighted": "u = where(x[j] > 0, x[j], -oo); m = sum[j](z[j]*u)/sum[j](z[j]); return v = sum[j](z[j]*(u - m)**2)",
    "cubed": "u = where(t[j], x[j], -oo); m = mean[j](u); return v = mean[j]((u - m)**3)",
    "of another": "u = where(t[j], x[j], -oo); m = mean[j](x[j]); return v = mean[j](abs(u - m)**2)",
}


@pytest.mark.parametrize("text", INFINITE.values(), ids=list(INFINITE))
def test_elements_that_a_condition_may_make_infinite_are_centred(text: str) -> None:
    leaves = [t for t in ("x[j]", "z[j]", "t[j]") if t in text]
    form = ra.derive_incremental(ra.parse(f"tensors {', '.join(t + DOMAINS.get(t, '') for t in leaves)}; {text}"), "j")
    names, run = [d.name for d in form.spec.tensors], form.compile("numpy")
    for seed, far in product(range(4), (0.0, 1e7)):
        rng, n = np.random.default_rng(seed), 9
        drawn = {"x": far + rng.normal(size=n), "z": rng.uniform(0.5, 2, n), "t": np.ones(n, bool)}
        if not far:
            drawn["x"], drawn["t"] = rng.uniform(0.1, 2, n), rng.random(n) < 0.7
        arrays = {name: drawn[name] for name in names}
        with np.errstate(all="ignore"):
            wanted = running.named(form, ra.reference(form.spec, **arrays))
            found = [running.named(form, run(**arrays)), running.streamed(form, arrays, [0, 1, 1, 4, n])]
            found.append(running.merged(form, arrays, [0, 2, 2, n], [1, 0]))
        for got, (name, value) in product(found, wanted.items()):
            if np.isnan(got[name]) and "finite_stage_values" in form.assumptions and not np.all(drawn["t"]):
                continue
            size = max(far, 1) * 1e-15 * 9  # of a rounding of an element, by deviations near 1
            np.testing.assert_allclose(got[name], value, rtol=1e-9 if far else 1e-13, atol=size, err_msg=name)
