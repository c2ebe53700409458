"""Functions that kernels compute by a formula or by a name of their own: every target against the definition."""

import numpy as np
import pytest

import redalg as ra
from redalg.graph.functions import FUNCTIONS
from tests.support.simulated import run

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-310, -1e-310, 1e300, -1e300, 709.0, -745.0, 3.0, -3.0, 1.0]
NEW = [name for name in ("exp2", "log2", "softplus") if name in FUNCTIONS]
SPELLED = ["silu(x[j])", "gelu(x[j])", "logaddexp(x[j], 1)", "clip(x[j], -2, 2)", "where(isnan(x[j]), 0, x[j])"]


@pytest.mark.parametrize("text", [*(f"{name}(x[j])" for name in NEW), *SPELLED])
def test_elements_on_every_target(text: str) -> None:
    form = ra.derive_incremental(ra.parse(f"return y = {text}"))
    x = np.array(SPECIAL)
    wanted = ra.reference(form.spec, x=x)
    simulated, _, _ = run(form, {"x": x})
    for found in (form.compile("cpu")(x=x), form.compile("numpy")(x=x), simulated["y"]):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        np.testing.assert_allclose(found, wanted, rtol=3e-15, atol=2e-320)


@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("rows", [[], [2.0], [0.5, 0.5, -np.inf, 7.25], [np.nan, 1.0]])
def test_reductions_on_every_target(name: str, rows: list[float]) -> None:
    text = f"return s = sum[j]({name}(x[j])), m = max[j]({name}(x[j])), at = argmax[j]({name}(x[j]))"
    if name == "log2":
        text = f"tensors x[j] positive; {text}"
        rows = [abs(v) for v in rows]
    form = ra.derive_incremental(ra.parse(text))
    x = np.array(rows)
    wanted = ra.reference(form.spec, x=x)
    pieces = form.accumulator()
    for chunk in (x[:1], x[1:1], x[1:]):
        pieces.update(x=chunk)
    calls = [form.compile("cpu")(x=x), form.compile("numpy")(x=x), pieces.result()]
    calls += [run(form, {"x": x})[0]] if len(x) else []
    for found in calls:
        for output, value in wanted.items():
            np.testing.assert_allclose(found[output], value, rtol=1e-14)


def test_base_2_softmax_is_centred() -> None:
    form = ra.derive_incremental(ra.parse("m = max[j](x[j]); p = exp2(x[j] - m); return y = p / sum[j](p)"))
    for x in (np.array([5000.0, 5001.0, 4000.0]), np.array([-np.inf, 3.0]), np.array([1.0])):
        weights = np.exp2(x - x.max())
        for target in ("numpy", "cpu"):
            np.testing.assert_allclose(form.compile(target)(x=x), weights / weights.sum(), rtol=1e-12)
    assert form.certificate.verify()
