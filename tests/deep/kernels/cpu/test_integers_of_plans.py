"""Integers that a form multiplies and its spec does not: squares of elements under a quotient, powers of counts."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.numeric.integer_bounds import Integers

QUOTIENTS = (
    "s = sum[j](x[j]); return v = sum[j]((k[j] / s)**2)",
    "s = max[j](x[j]); return v = mean[j]((k[j] / s)**3)",
    "s = sum[j](x[j]); return v = sum[j](where(x[j] > 0, (k[j] * s)**2, 0))",
    "m = mean[j](x[j]); return v = sum[j]((k[j] - m) * (h[j] - m))",
    "m = mean[j](x[j]); s = sum[j](x[j]**2); return v = sum[j](((k[j] - m) / s)**2 * h[j])",
    "s = sum[j](x[j]); return v = sum[j](h[j] * (k[j] + s))",
    "m = max[j](x[j]); return v = sum[j](exp(x[j] - m) * (k[j] / m)**2)",
    "s = sum[j](x[j]); return v = max[j](k[j] * h[j] * exp(s)), w = sum[j](k[j] / s)",
    "s = sum[j](x[j]); return v = sum[j]((sum[g](k[j] / s * c[g]))**2)",
    "n = sum[j](where(k[j] > 0, 1, 0)); s = sum[j](x[j]); return v = sum[j]((x[j] * n - s)**4)",
)
LARGE = {
    "int64": (1 << 61) + 12345,
    "int32": (1 << 31) - 7,
    "uint32": (1 << 32) - 5,
    "int16": (1 << 15) - 3,
    "int8": 127,
}


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("text", QUOTIENTS)
def test_squares_under_a_quotient(text: str, declared: bool) -> None:
    """Whatever a plan multiplies, no kernel wraps: what int64 does not hold is computed by NumPy."""
    words = ["x[j]", *(f"{name} integer" for name in ("k[j]", "h[j]", "c[g]") if name in text)]
    form = ra.derive_incremental(ra.parse(f"tensors {', '.join(words)}; {text}" if declared else text), axis="j")
    run, rng = form.compile("cpu"), np.random.default_rng(len(text))
    integers = {d.name for d in form.spec.tensors} & {"k", "h", "c"}
    for dtype, largest in LARGE.items():
        for length in (1, 9, 40):
            arrays = {d.name: rng.uniform(0.5, 2.0, length if "j" in d.axes else 3) for d in form.spec.tensors}
            for name in integers:
                arrays[name] = (largest - rng.integers(0, 3, arrays[name].shape)).astype(dtype)
            wanted, got = ra.reference(form.spec, **arrays), run(**arrays)
            for a, b in zip(_all(wanted), _all(got), strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-9, err_msg=f"{dtype} {length}")


def _all(found: object) -> list[object]:
    return list(found.values()) if isinstance(found, dict) else [found]


@pytest.mark.parametrize("power", range(2, 10))
@pytest.mark.parametrize("count", ["size[j]", "sum[j](where(x[j] > 0, 1, 0))"])
def test_powers_of_counts(count: str, power: int) -> None:
    """A power of a count is a product of integers, or where int64 does not hold it, of floats."""
    form = ra.derive_incremental(ra.parse(f"return v = sum[j](x[j]) * ({count})**{power}"))
    run = form.compile("cpu")
    for length in (0, 1, 2, 9, 1000, 100_000):
        x = np.linspace(-0.5, 1.0, length)
        np.testing.assert_allclose(run(x=x), ra.reference(form.spec, x=x), rtol=1e-12)


def test_a_plan_reads_magnitudes_only_where_it_multiplies() -> None:
    """Sums of int32 need no look at the data, squares of their quotients do."""
    for body, sure in (("k[j] / s", True), ("(k[j] / s)**2", False)):
        text = f"tensors k[j] integer, x[j]; s = sum[j](x[j]); return v = sum[j]({body})"
        form = ra.derive_incremental(ra.parse(text))
        nodes = list(form.spec.outputs.values())
        found = Integers(nodes, {"k": np.dtype("int32"), "x": np.dtype("float64")}, form.plan)
        assert found.certain({"j": 1000}) == sure
        assert found.fits({"j": 1000}, {"k": np.full(1000, 1 << 20, "int32"), "x": np.ones(1000)})
