"""What leaves the range of float32 or float64 on the way to results that do not, by NumPy, on CPUs and in accumulators.

Products of the data inside of elements, of results, under functions that hide them, of extrema and lists, whatever the
scale of each tensor: compared with the definition of the arrays as they are, exact but for one rounding.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.profiles import examples
from tests.support.streams import fed, placed

MEAN = "m = mean[j](x[j,d])"
TEXTS = {
    "spread of totals": "s = sum[t](x[t,j]); m = mean[j](s); y = mean[j]((s - m)**2)/m**2; return y",
    "radius": f"{MEAN}; y = sqrt(mean[j](sum[d]((x[j,d] - m)**2))); return y",
    "hinge of deviations": f"{MEAN}; y = mean[d](relu(40*u - sqrt(mean[j]((x[j,d] - m)**2)))); return y",
    "product of extremum and sum": "y = max[j](abs(x[j]))*sum[j](z[j])/max[j](abs(z[j])); return y",
    "geometric mean": "y = prod[j](abs(x[j]))**(1/size[j]); return y",
    "largest product": "at = argmax[j](x[j]*z[j]); return at",
    "nearest": "at = topk[j:2](-(x[j] - u)**2).indices; return at",
    "masked": "y = sqrt(sum[j](where(w[j] > 1, (x[j] - u)**2, 0))); return y",
    "residuals": (
        "a = mean[j](x[j]); b = mean[j](z[j]); s = sum[j]((x[j] - a)*(z[j] - b))/sum[j]((x[j] - a)**2); "
        "y = sqrt(mean[j]((z[j] - b - s*(x[j] - a))**2)); return y"
    ),
    "square of a location": "m = mean[j](x[j]); y = m**2/(1 + m**2) + sum[j](x[j])/max[j](abs(x[j])); return y",
    "extremum by a mean": "u = max[j](x[j])*mean[j](x[j]); y = 2 + u/(1 + u); return y",
    "two powers": "y = (sum[j](abs(x[j])**3)/size[j])**(1/3) + max[j](abs(x[j])); return y",
}
INSIDE = ("hinge of deviations",)  # of an element, which kernels compute as it is written
LENGTHS = {"d": 3, "t": 4}


@cache
def form(name: str) -> ra.Form:
    return ra.derive_incremental(ra.parse(TEXTS[name]))


def drawn(name: str, n: int, dtype: Any, scale: int, seed: int) -> dict[str, Any]:
    rng, found = np.random.default_rng(seed), {}
    for t in form(name).spec.tensors:
        shape = tuple(LENGTHS.get(a, n) for a in t.axes)
        count = int(np.prod(shape))
        x = (rng.permutation(count) + rng.uniform(0.5, 1, count)).reshape(shape) / 4 * rng.choice([-1, 1])
        size = 0 if t.name == "w" else scale
        found[t.name] = (np.abs(x) if t.name == "u" else x).astype(dtype) * dtype(10.0) ** dtype(size)
    return found


def true(name: str, arrays: dict[str, Any]) -> Any:
    return ra.reference(form(name).spec, exact=True, **{k: np.asarray(x, float) for k, x in arrays.items()})


def agree(name: str, found: Any, exact: Any, dtype: Any) -> None:
    a, b = np.asarray(found), np.array([float(v) for v in np.ravel(np.asarray(exact, object))])
    if a.dtype.kind == "i":
        assert a.ravel().tolist() == b.tolist(), name
    else:
        np.testing.assert_allclose(a.ravel(), b, rtol=256 * float(np.finfo(dtype).eps), err_msg=name)


@pytest.mark.parametrize("name", TEXTS)
@examples(10)
@given(st.data())
def test_results_are_those_of_the_definition_at_every_scale(name: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from((np.float32, np.float64)), label="dtype")
    largest = 30 if dtype is np.float32 else 250
    scale = data.draw(st.sampled_from((-largest, -largest // 2, 0, largest // 2, largest)), label="scale")
    n = data.draw(st.integers(3, 9), label="n")
    arrays = drawn(name, n, dtype, scale, data.draw(st.integers(0, 99), label="seed"))
    exact = true(name, arrays)
    for target in ("numpy", *(() if name in INSIDE else ("cpu",))):
        agree(name, form(name).compile(target)(**arrays), exact, dtype)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), min_size=1, max_size=3), label="cuts")), n]
    for deterministic in (False, True):
        agree(name, fed(form(name), arrays, cuts, deterministic=deterministic).result(), exact, dtype)
    order = data.draw(st.permutations(range(len(cuts) - 1)), label="order")
    agree(name, placed(form(name), arrays, cuts, order).result(), exact, dtype)
    agree(name, fed(form(name), arrays, range(n + 1)).result(), exact, dtype)
