"""Rows prefetched to shared memory: printed kernels against the definition, what is read, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.schedule import Schedule
from tests.support.forms import form_of
from tests.support.simulated import run

WALKED = Schedule(threads=32, rows=1, vector=4, tile=8, persistent=True)
HELD = Schedule(threads=32, rows=1, vector=4, tile=8, resident=True, persistent=True)
# (schedule, lengths of rows it is for)
SCHEDULES = [
    (replace(WALKED, prefetch=1024), (4, 12, 500)),
    (replace(WALKED, threads=64, prefetch=1024), (516, 1020)),
    (replace(WALKED, threads=8, rows=4, prefetch=256), (4, 200)),
    (replace(WALKED, cluster=2, prefetch=512), (260, 1024)),
    (replace(WALKED, split=3, prefetch=512), (1028,)),
    (replace(HELD, prefetch=256), (4, 256)),
    (replace(HELD, threads=8, rows=4, prefetch=64), (60,)),
    (replace(HELD, cluster=2, prefetch=256), (260, 512)),
    (replace(HELD, split=3, prefetch=256), (516,)),
    (replace(WALKED, prefetch=1024, prefetch_distance=1, exact=True), (1024,)),
    (replace(WALKED, prefetch=1024, prefetch_distance=3, exact=True), (1024,)),
    (replace(WALKED, prefetch=1024, prefetch_distance=9, exact=True), (1024,)),
    (replace(WALKED, threads=8, rows=4, prefetch=256, prefetch_distance=3, exact=True), (256,)),
    (replace(WALKED, cluster=2, prefetch=512, prefetch_distance=1, exact=True), (1024,)),
    (replace(WALKED, split=3, prefetch=512, prefetch_distance=1, exact=True), (1536,)),
    (replace(HELD, prefetch=256, prefetch_distance=2, exact=True), (256,)),
    (replace(HELD, threads=8, rows=4, prefetch=64, prefetch_distance=1, exact=True), (64,)),
    (replace(HELD, cluster=2, prefetch=256, prefetch_distance=1, exact=True), (512,)),
]
KEPT = ("softmax", "layer_norm")
TOTALS = ("logsumexp", "variance", "cross_entropy", "cosine_similarity", "kl_divergence", "argmax")
UNIT = {"float32": 2.0**-24, "bfloat16": 2.0**-8}


def cases() -> list[Any]:
    return [pytest.param(s, n, id=f"{s}-{n}") for s, lengths in SCHEDULES for n in lengths]


def judge(name: str, s: Schedule, rows: int, length: int, dtype: str = "float32", special: bool = False) -> Any:
    """Run a spec of the catalog; results within n roundings of float32 of the largest, and one to the result's type."""
    entry = ra.catalog.entry(name)
    axis = entry.axis or "j"
    arrays = dict(entry.sample(length, dtype="float32", **{"i": rows, axis: length}))
    if special:
        first = next(n for n, a in arrays.items() if np.ndim(a) == 2)
        arrays[first][0], arrays[first][1, length // 2], arrays[first][-1, 0] = 1, np.nan, np.inf
    narrow = {n: a.astype(dtype) if np.ndim(a) and a.dtype.kind == "f" else a for n, a in arrays.items()}
    form = form_of(name)
    found, planned, moved = run(form, narrow, s, seed=length)
    wide = {n: np.asarray(a, np.float64) if np.ndim(a) and a.dtype.kind not in "iub" else a for n, a in narrow.items()}
    with np.errstate(all="ignore"):
        want = ra.reference(form.spec, **wide)
    want = want if isinstance(want, dict) else {next(iter(found)): want}
    for output, got in found.items():
        true, here = np.asarray(want[output]), np.asarray(got)
        if true.dtype.kind != "f":
            np.testing.assert_array_equal(here, true)
            continue
        here = here.astype(np.float64)
        scale = np.abs(true[np.isfinite(true)]).max(initial=1e-30)
        np.testing.assert_array_equal(np.isnan(here), np.isnan(true))
        np.testing.assert_allclose(here, true, rtol=UNIT[dtype], atol=scale * 8 * length * 2.0**-24)
    return planned, moved


@pytest.mark.parametrize("s, length", cases())
@pytest.mark.parametrize("name", KEPT)
def test_results_that_keep_the_axis(name: str, s: Schedule, length: int) -> None:
    """More rows than the two blocks of the simulation have at a time; the last rows of a block do not fill it."""
    rows = 5 * s.rows + 1
    planned, moved = judge(name, s, rows, length, special=True)
    first = next(o.name for o in planned.program.operands if len(o.axes) == 2)
    again = (-rows % s.rows) * length * 4  # the threads beyond the last row read it once more
    if name == "softmax":  # the other looks for an anchor at the first element
        assert moved[f"operand {first}"].loaded == rows * length * 4 + again
    held = s.rows * (s.prefetch + s.prefetch_distance * s.threads * s.tile)
    assert "prefetch_tile(" in planned.module.source and planned.module.shared == 4 * held


@pytest.mark.parametrize("s, length", [c for c in cases() if c.values[0].split == 1][::4])
@pytest.mark.parametrize("name", TOTALS)
def test_results_once_per_row(name: str, s: Schedule, length: int) -> None:
    judge(name, s, 5 * s.rows + 1, length)


@pytest.mark.parametrize("s, length", cases()[::5])
def test_elements_of_16_bits(s: Schedule, length: int) -> None:
    for name in ("softmax", "variance"):
        if name == "softmax" or s.split == 1:
            judge(name, s, 7, length, "bfloat16")


def test_two_tensors_of_different_types() -> None:
    form = ra.derive_incremental(ra.parse("m = max[j](x[i,j]); return y = exp(x[i,j] - m) * z[i,j]"))
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((9, 512)).astype(np.float32), rng.standard_normal((9, 512)).astype(ml_dtypes.bfloat16)
    for s in (replace(WALKED, prefetch=512), replace(WALKED, prefetch=512, prefetch_distance=1, exact=True)):
        found, planned, _ = run(form, {"x": x, "z": z}, s, seed=3)
        true = ra.reference(form.spec, x=x.astype(np.float64), z=z.astype(np.float64))
        np.testing.assert_allclose(found["y"], true, rtol=2.0**-20)
        assert planned.module.shared == 6 * (512 + 256 * s.prefetch_distance)


def test_conditions_and_whole_numbers() -> None:
    """Rows of 1 and 2 bytes an element lie beside those of 4."""
    text = "tensors x[i,j], k[i,j] bool, n[i,j] integer; m = max[j](where(k[i,j], x[i,j], 0)); "
    text += "return y = (x[i,j] - m) * n[i,j]"
    form, rng = ra.derive_incremental(ra.parse(text)), np.random.default_rng(2)
    x, k = rng.standard_normal((7, 256)).astype(np.float32), rng.random((7, 256)) < 0.5
    n = rng.integers(-9, 9, (7, 256)).astype(np.int16)
    found, planned, _ = run(
        form, {"x": x, "k": k, "n": n}, replace(WALKED, prefetch=256, prefetch_distance=1, tile=4, exact=True), seed=3
    )
    true = (x - np.where(k, x, 0).max(1, keepdims=True)).astype(np.float64) * n
    np.testing.assert_allclose(found["y"], true, rtol=2.0**-22)
    assert planned.module.shared == (4 + 1 + 2) * (256 + 128) and "copy_boolx4" in planned.module.source


def test_several_axes_of_rows_and_strides() -> None:
    form = ra.derive_incremental(ra.parse("return y = x[a,b,j] / sum[j](x[a,b,j])"))
    whole = np.random.default_rng(1).random((3, 4, 264)).astype(np.float32)
    x = whole[:, :, :256]
    found, _, _ = run(form, {"x": x}, replace(WALKED, prefetch=256, prefetch_distance=1, exact=True), seed=3)
    true = x.astype(np.float64) / x.astype(np.float64).sum(-1, keepdims=True)
    np.testing.assert_allclose(found["y"], true, rtol=256 * 2.0**-24)


REFUSED: dict[str, tuple[str, Schedule, str]] = {
    "one row": ("softmax", replace(WALKED, prefetch=512, persistent=False), "persistent=True"),
    "too little": ("softmax", replace(WALKED, prefetch=256), "prefetch=512"),
    "no whole tiles": ("softmax", replace(WALKED, prefetch=600), "prefetch=512"),
    "held, and more": ("softmax", replace(HELD, tile=16, prefetch=1024), "prefetch=512"),
    "single elements": ("softmax", replace(WALKED, vector=1, prefetch=512), "prefetch=0"),
    "columns": ("softmax", replace(WALKED, vector=1, column=True, prefetch=512), "prefetch=0"),
    "a lead with bounds": ("softmax", replace(WALKED, prefetch=1024, prefetch_distance=1), "prefetch_distance=0"),
    "far too long a lead": (
        "softmax",
        replace(WALKED, prefetch=512, prefetch_distance=99, exact=True),
        "prefetch_distance=31",
    ),
    "a lead without room": ("softmax", replace(WALKED, prefetch_distance=1), "prefetch=512"),
    "too much": ("softmax", replace(WALKED, prefetch=65536), "prefetch=0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_brought_is_refused(name: str) -> None:
    spec, s, fix = REFUSED[name]
    dtype = ml_dtypes.bfloat16 if name == "single elements" else np.float32
    with pytest.raises(RedalgError) as error:
        run(ra.derive_incremental(ra.catalog[spec]), {"x": np.ones((3, 512), dtype)}, s)
    assert fix in error.value.fix and error.value.why and error.value.where


def test_rows_that_share_everything_bring_nothing() -> None:
    form = ra.derive_incremental(ra.parse("return y = sum[j](x[j] * w[j])"))
    with pytest.raises(RedalgError, match="no row has elements of its own"):
        run(form, {"x": np.ones(512, np.float32), "w": np.ones(512, np.float32)}, replace(WALKED, prefetch=512))


def test_what_is_not_brought_in_whole_vectors_is_refused_by_name() -> None:
    form = ra.derive_incremental(ra.parse("return y = x[i,j] * z[i,j] / sum[j](x[i,j])"))
    x, z = np.ones((4, 512), np.float32), np.ones((512, 4), np.float32).T
    with pytest.raises(RedalgError, match="z is not read in vectors of 4"):
        run(form, {"x": x, "z": z}, replace(WALKED, prefetch=512))
