"""Functions of a product x·S beside statistics that are centred on x: the function reads x, they keep their anchors."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import redalg as ra
from redalg.graph.plan import IN_RANGE, MODERATE
from redalg.testing import running

FUNCTIONS = {
    "relu": "relu({x}*S)",
    "abs": "abs({x}*S)",
    "sign": "sign({x}*S)",
    "condition": "where({x}*S > 0, 1, 2)",
    "maximum": "maximum({x}*S, 0)",
    "root": "sqrt(abs({x}*S))",
    "logarithm": "log(abs({x}*S))",
    "quotient": "relu({x}/S)",
}
STATISTICS = {
    "variance": "u = mean[j]({x}); v = mean[j](({x} - u)**2)",
    "third": "u = mean[j]({x}); v = sum[j](({x} - u)**3)",
    "softmax": "m = max[j]({x}); v = sum[j](exp({x} - m)*{x})/sum[j](exp({x} - m))",
    "spread": "m = max[j]({x}); u = sum[j](exp({x} - m)*{x})/sum[j](exp({x} - m)); v = mean[j]((2*{x} - u)**2)",
}
ENDS = {
    "apart": "return v = v, f = mean[j]({f})",
    "together": "return y = mean[j](v*{f})",
    "added": "return y = mean[j]({f} + (({x}) - v)**2)",
    "masked": "return y = sum[j](where(t[j], {f} + ({x} - v)**2, 0))",
}
SCALES = ("sum[j](w[j])", "sum[j](p[j])", "max[j](w[j])")


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("statistic", STATISTICS)
def test_a_function_of_a_product_takes_no_anchor_from_others(function: str, statistic: str) -> None:
    """At offsets of 1e8 moments keep their digits; softmax of scores of thousands does not overflow."""
    number = 4 * list(FUNCTIONS).index(function) + list(STATISTICS).index(statistic)
    end, x, scale = list(ENDS)[number % 3], ("x[j]", "x[i,j]")[number % 2], SCALES[number % 5 % 3]
    text = f"S = {scale}; {STATISTICS[statistic]}; {ENDS[end]}".replace("{f}", FUNCTIONS[function]).replace("{x}", x)
    domains = {"p[j]": "positive", "t[j]": "bool"}
    declared = ", ".join(f"{t} {domains.get(t, '')}" for t in (x, "w[j]", "p[j]", "t[j]") if t in text)
    form = ra.derive_incremental(ra.parse(f"tensors {declared}; {text}"), axis="j")
    assert not form.assumptions.keys() & {IN_RANGE, MODERATE}, text
    offset = 3000.0 if "m =" in text else 1e8
    for seed in range(3):
        rng = np.random.default_rng(seed)
        arrays = {"x": offset + rng.normal(size=7 if x == "x[j]" else (2, 7)), "w": rng.normal(size=7)}
        arrays |= {"p": rng.uniform(0.5, 1, 7), "t": rng.random(7) < 0.6}
        arrays = {d.name: arrays[d.name] for d in form.spec.tensors}
        exact = running.named(form, ra.reference(form.spec, exact=True, **arrays))
        merged = running.merged(form, arrays, [0, 2, 2, 7], [1, 0])
        for got, (name, value) in product(
            (running.named(form, form.compile("numpy")(**arrays)), merged), exact.items()
        ):
            wanted = np.asarray(value, float)
            moment = offset**2 if statistic == "third" else 1.0  # its terms are near 1, and may cancel
            size = 1e-14 * offset * (1 if end == "apart" else moment * np.abs(wanted).max())
            np.testing.assert_allclose(got[name], wanted, rtol=1e-7, atol=size, err_msg=f"{name}: {text}")


@pytest.mark.parametrize("function", ["relu({x}/S)", "abs({x}/S)", "maximum({x}/S, -{x}/S)", "relu(-{x}/S)**2"])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_where_a_divisor_is_0_a_form_is_nan_or_what_is_defined(function: str, statistic: str) -> None:
    """Weights of both signs that add up to 0, beside elements that are 0: 0/0 in some places, ±oo in others."""
    text = f"S = sum[j](w[j]); {STATISTICS[statistic]}; return y = mean[j](v*({function}))".replace("{x}", "x[j]")
    form = ra.derive_incremental(ra.parse(text))
    for x in ([19 / 9, 0.0, 2.0], [2.0, 3.0, 1.0], [-1.0, -2.0, 0.0], [0.0, 0.0, 0.0]):
        for w in ([3.0, -4.0, 1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 0.5]):
            arrays = {"x": np.array(x), "w": np.array(w)}
            with np.errstate(all="ignore"):
                wanted = float(ra.reference(form.spec, **arrays))
            for got in (form.compile("numpy")(**arrays), running.merged(form, arrays, [0, 1, 1, 3], [1, 0])["y"]):
                assert np.isnan(got) or float(got) == pytest.approx(wanted, rel=1e-9), (text, arrays, got, wanted)
                assert sum(w) == 0 or not np.isnan(got)
