"""What one pass hands on to the next may leave the range of the data: later passes then compute in wider floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra

TEXTS = {
    "a scale": "return r = log(mean[j](exp(x[j]*y[j]/max[j](abs(x[j]*y[j])))))",
    "a distance in a scale": "u = x[j]*y[j]; return r = log(mean[j](exp((u - min[j](u))/max[j](abs(u)))))",
    "a mean of squares": "return r = mean[j](tanh(x[j]**2/mean[j](x[j]**2)))",
    "a median of powers": "return r = sum[j](exp(-x[j]**2/max[j](x[j]**2))*y[j])/sum[j](abs(y[j]))",
    "along the stream": "return r = exp(x[j]*y[j]/max[j](abs(x[j]*y[j])))",
}
SCALES = [("float32", s) for s in (1e-30, 1e-25, 1.0, 1e25, 1e30)]
SCALES += [("float64", s) for s in (1e-200, 1e200, 1.0)]
CUTS = (0, 1, 1, 4, 7)


def _close(found: Any, right: np.ndarray, dtype: str) -> None:
    rtol = 64 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(found, np.float64), right, rtol, rtol)


@pytest.mark.parametrize(("dtype", "scale"), SCALES)
@pytest.mark.parametrize("name", TEXTS)
def test_later_passes_keep_what_is_handed_on(name: str, dtype: str, scale: float) -> None:
    rng = np.random.default_rng(len(name))
    spec = ra.parse(TEXTS[name])
    form = ra.derive_incremental(spec, max_passes=2)
    arrays = {t.name: (rng.uniform(-3, 3, CUTS[-1]) * scale).astype(dtype) for t in spec.tensors}
    exact = np.asarray(ra.reference(spec, exact=True, **arrays), object)
    right = np.array([float(v) for v in exact.ravel()]).reshape(exact.shape)
    run = form.compile("numpy")
    _close(run(**arrays), right, dtype)
    if dtype == "float64":
        space: dict[str, Any] = {}
        exec(run.source, space)
        _close(space["run"](**arrays), right, dtype)
    if name == "along the stream":
        return
    acc = form.accumulator()
    for number in range(form.passes.statistics):
        if number:
            acc.next_pass()
            acc = form.from_bytes(acc.to_bytes())
        for low, high in zip(CUTS, CUTS[1:], strict=False):
            acc.update(**{n: x[low:high] for n, x in arrays.items()})
    _close(acc.result(), right, dtype)
