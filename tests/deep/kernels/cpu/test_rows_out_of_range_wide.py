"""Rows that leave the range of their numbers, over all ways to end: more specs, batches, other libraries' arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.range_cases import EXTREMA, LEAST, MOST, TEXTS, agree, definition, drawn, form, named

_RUNS: dict[str, ra.Run] = {}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [n for n in TEXTS | EXTREMA if n not in ("above the mean", "of both axes")])
@given(data=st.data())
def test_every_way_to_end(name: str, data: st.DataObject) -> None:
    run = _RUNS.setdefault(name, form(name).compile("cpu"))
    dtype = data.draw(st.sampled_from(("float32", "float64")))
    powers = data.draw(st.lists(st.floats(LEAST[dtype] + 9, MOST[dtype] + 0.4), min_size=1, max_size=3))
    arrays = drawn(
        name, data.draw(st.sampled_from(((2, 2), (3, 5), (4, 70)))), dtype, powers, data.draw(st.integers(0, 9))
    )
    if data.draw(st.booleans()):
        arrays["x"] = np.asfortranarray(arrays["x"])
    true = definition(name, arrays)
    for output, value in named(name, run(**arrays)).items():
        agree(value, true[output])


@pytest.mark.parametrize("name", ("group_norm", "batch_norm", "instance_norm"))
@pytest.mark.parametrize("size", (1e25, 1e-25, 1e38))
def test_rows_of_several_axes(name: str, size: float) -> None:
    """Several axes of rows and of the stream; results along some of the rows' axes."""
    spec = ra.catalog[name]
    rng, sizes = np.random.default_rng(3), {"b": 3, "g": 2, "c": 4, "n": 3, "s": 5}
    arrays = {t.name: rng.uniform(-1, 1, [sizes[a] for a in t.axes]).astype(np.float32) for t in spec.tensors if t.axes}
    row = (slice(None), 1) if name == "batch_norm" else 1
    arrays["x"][row] *= np.float32(size)
    arrays["eps"] = 0.0
    wide = {n: x.astype(np.float64) if isinstance(x, np.ndarray) else x for n, x in arrays.items()}
    true, found = ra.reference(spec, **wide), ra.derive_incremental(spec).compile("cpu")(**arrays)
    for n, x in true.items() if isinstance(true, dict) else [("y", true)]:
        value = found[n] if isinstance(found, dict) else found
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(value, x.astype(np.float32), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("size", (1e-40, 1e-30, 1e-21, 1.0, 1e19, 1e25, 1e38))
def test_neighbours_of_any_size(size: float) -> None:
    """Distances near 1e-46 were 0, and the nearest the first of all; points that are met and a point at 0 stay."""
    form = ra.derive_incremental(ra.catalog["nearest_neighbour"])
    rng = np.random.default_rng(5)
    x, q = ((rng.uniform(-1, 1, (n, 5)) * size).astype(np.float32) for n in (9, 4))
    q[1], q[2] = x[7], 0
    true = ra.reference(form.spec, q=q.astype(np.float64), x=x.astype(np.float64))
    found = form.compile("cpu")(q=q, x=x)
    assert found["position"].tolist() == true["position"].tolist()
    np.testing.assert_allclose(found["distance"], true["distance"].astype(np.float32), rtol=1e-6, atol=2.0**-149)


SCALED = ("fp8_quantise", "absmax_int8_gemm", "zero_point_gemm")
# A result that multiplies an extremum of numbers by a sum is not watched near the end of the range (docs/limits.md).
SCALES = [(n, x) for n in SCALED for x in (1e-42, 1e-39, 1e-36, 1.0, 1e36, 3e38) if x < 1e30 or "absmax" not in n]


@pytest.mark.parametrize("name, size", SCALES)
def test_scales_of_any_size(name: str, size: float) -> None:
    """One over a scale near 1e-40 is infinite, and so is the largest less the smallest of elements near 3e38."""
    spec = ra.catalog[name]
    form, rng = ra.derive_incremental(spec, assume=("cast_commutes",)), np.random.default_rng(6)
    arrays = {t.name: rng.uniform(-1, 1, [{"i": 3, "k": 4}.get(a, 17) for a in t.axes]) for t in spec.tensors}
    arrays = {n: (a * (size if n == "x" else 1.0)).astype(np.float32) for n, a in arrays.items()}
    true = ra.reference(spec, **{n: a.astype(np.float64) for n, a in arrays.items()})
    found = form.compile("cpu")(**arrays)
    for n, x in true.items() if isinstance(true, dict) else [("y", true)]:
        value = np.asarray(found[n] if isinstance(found, dict) else found, np.float64)
        least = np.abs(x).max() / 64  # steps of casts: where they fall otherwise they differ by one of many
        np.testing.assert_allclose(value, np.asarray(x, np.float32), rtol=2.0**-3, atol=max(least, 2.0**-149))


def test_arrays_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    run = ra.derive_incremental(ra.catalog["rms_norm"]).compile("cpu")
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        x = torch.linspace(-1, 2, 60).reshape(4, 15)
        want = x / (x.double() ** 2).mean(1, keepdim=True).sqrt().float()
        x = (x * torch.tensor([[1e25], [1.0], [1e-25], [3e37]])).to(dtype)
        found = run(x=x, weight=torch.ones(15, dtype=dtype), eps=0.0)
        assert found.dtype == dtype and torch.allclose(found.float(), want, atol=near, rtol=near)
