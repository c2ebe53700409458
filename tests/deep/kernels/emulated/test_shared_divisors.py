"""Elements over a number of their row, whose reciprocal is multiplied by: by emulation and on a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redalg as ra
from redalg.kernels.ir.schedule import Schedule
from tests.support.gemm_cases import planned
from tests.support.gemm_emulated import product_of
from tests.support.simulated import run

SPECS = {
    "alone": "tensors x[i,j], c[i]; dtype y = x; return y = x[i,j]/c[i]",
    "with a number before": "tensors x[i,j], c[i], a[i]; dtype y = x; return y = a[i]*x[i,j]/c[i]",
    "beside a statistic": "tensors x[i,j], c[i]; m = max[j](x[i,j]); dtype y = x; return y = (x[i,j] - m)/c[i]",
}
DIVISORS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -3.0, 1.1754944e-38, 3.4028235e38, -3.4028235e38]
DIVISORS += [
    sign * 2.0**e * f for sign in (1, -1) for e in (-149, -140, -126, -65, -64, 63, 64, 65, 120) for f in (1, 1.5)
]
SCHEDULES = [None, Schedule(1, 32, 1, 8), *(Schedule(16, 4, 1, 4, coarsen=n, resident=True) for n in (1, 2))]


def operands(name: str, dtype: Any, length: int) -> dict[str, Any]:
    """A row for every divisor: all sizes of elements, both signs of zeros, what is not finite."""
    rng = np.random.default_rng(length)
    rows, info = len(DIVISORS), ml_dtypes.finfo(dtype)
    low, high = (-24, 15) if dtype == np.float16 else (-132, 127) if name == "alone" else (-60, 60)
    x = np.ldexp(rng.uniform(-2, 2, (rows, length)), rng.integers(low, high, (rows, length)))
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, float(info.smallest_subnormal)]
    x[rng.random(x.shape) < 0.2] = rng.choice(special)
    given = {"x": x.astype(dtype), "c": np.array(DIVISORS, np.float32)}
    return given | ({"a": rng.uniform(1, 2, rows).astype(np.float32)} if "a[i]" in SPECS[name] else {})


def definition(name: str, x: Any, c: Any, a: Any = None) -> Any:
    """The results in float64."""
    x = x.astype(np.float64)
    above = x if a is None else a[:, None].astype(np.float64) * x
    above = above - np.max(x, axis=1, keepdims=True) if name == "beside a statistic" else above
    return above / c[:, None].astype(np.float64)


def judge(name: str, found: Any, given: dict[str, Any], dtype: Any = None) -> None:
    """Within roundings of float32 on the way to one to the dtype; the same infinities and NaN."""
    dtype, exact = dtype or given["x"].dtype, definition(name, **given)
    gap = abs(exact) * 2.0**-20 + 2.0**-147
    low, high = (
        np.where(np.isfinite(exact), v, exact).astype(np.float32).astype(dtype) for v in (exact - gap, exact + gap)
    )
    right = (low <= found) & (found <= high) | np.isnan(exact) & np.isnan(found.astype(np.float32))
    assert right.all(), [v[~right][:3] for v in (found, exact)]


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@np.errstate(all="ignore")
def test_quotients_by_a_number_of_the_row(name: str, dtype: Any, schedule: Schedule | None) -> None:
    form = ra.derive_incremental(ra.parse(SPECS[name]))
    for length in (1, 2, 37, 64):
        given = operands(name, dtype, length)
        found, made, _ = run(form, given, schedule, 1)
        assert "fast_rcp_f32" in made.source and "fast_div" not in made.source
        judge(name, np.asarray(found["y"]), given)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@np.errstate(all="ignore")
def test_products_over_a_number_of_their_row(kind: str) -> None:
    text = "dtype z = x; y = sum[j](x[i,j]*w[j,k]); return z = y/s[i]"
    sizes = {"i": len(DIVISORS), "j": 64, "k": 72}
    found = planned(text, sizes, kind=kind, s="float32")
    assert "fast_rcp_f32" in found.source and "fast_div" not in found.source
    rng = np.random.default_rng(5)
    given = {n: rng.integers(-4, 5, [sizes[a] for a in axes]).astype("f8") for n, axes in (("x", "ij"), ("w", "jk"))}
    given["s"] = np.array(DIVISORS, np.float32).astype("f8")
    made = product_of(found, given).run(seed=1)["z"]
    dtype = np.float16 if kind == "float16" else ml_dtypes.bfloat16
    whole = {"x": (given["x"] @ given["w"]).astype(np.float32), "c": given["s"].astype(np.float32)}
    judge("alone", np.asarray(made).astype(dtype), whole, dtype)


# --- elements of 32 and 64 bits, whose quotients are the nearest ------------------------------------------------------

WIDE = {"float32": (-149, 127), "float64": (-1074, 1023)}
FEW = Schedule(16, 4, 1, 2)  # too few elements of a thread for a reciprocal


def wide(dtype: str, length: int) -> dict[str, Any]:
    """Rows over divisors of every size, elements of every size and what is special, products of divisors among them."""
    rng, (low, high) = np.random.default_rng(length), WIDE[dtype]
    least = np.finfo(dtype).smallest_subnormal
    with np.errstate(all="ignore"):
        c = [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            1.0,
            -3.0,
            least,
            -3 * least,
            np.finfo(dtype).max,
            np.finfo(dtype).tiny,
        ]
        scales = [
            *range(low, high, (high - low) // 40),
            *(s * e + d for s in (1, -1) for e in (64, 512) for d in (-1, 0, 1)),
        ]
        c += [float(np.ldexp(rng.uniform(-2, 2), e)) for e in scales if low <= e <= high]
        c = np.array(c).astype(dtype)
        x = np.ldexp(rng.uniform(-2, 2, (len(c), length)), rng.integers(low, high, (len(c), length))).astype(dtype)
        near = rng.random(x.shape) < 0.4  # quotients of moderate size, and whole ones
        x = np.where(near, (c[:, None] * rng.choice([1, 2, 3, 5, 1 / 3, 63.5], x.shape)).astype(dtype), x)
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, least], dtype)
        x[rng.random(x.shape) < 0.2] = rng.choice(special)
    return {"x": x, "c": c}


def nearest(found: Any, x: Any, c: Any) -> None:
    """What a quotient gives but where two numbers are hardly further from it: then its neighbour."""
    with np.errstate(all="ignore"):
        right = x / c[:, None]
        odd = (found != right) & ~(np.isnan(found) & np.isnan(right)) | (np.signbit(found) != np.signbit(right)) & (
            right == 0
        )
        assert not (odd & ~np.isfinite(right)).any(), [v[odd][:3] for v in (found, right, x)]
        assert odd.mean() < 0.02
        off = np.abs(found - right) / np.spacing(np.abs(right))
        assert (off[odd] <= 1).all(), [v[odd][:3] for v in (found, right, x)]
        exact = np.isin(right, [1, 2, 3, 5, 63.5])
        assert not (odd & exact).any()


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("schedule", [*SCHEDULES, FEW], ids=str)
@np.errstate(all="ignore")
def test_nearest_quotients_by_a_number_of_the_row(dtype: str, schedule: Schedule | None) -> None:
    form = ra.derive_incremental(ra.parse("tensors x[i,j], c[i]; dtype y = x; return y = x[i,j]/c[i]"))
    for length in (1, 2, 37, 64):
        given = wide(dtype, length)
        found, made, _ = run(form, given, schedule, 1)
        assert schedule is None or ("quotient_f" in made.source) == (schedule is not FEW)
        nearest(np.asarray(found["y"]), **given)


def test_what_two_quotients_share_is_computed_once() -> None:
    text = "tensors x[i,j], y[i,j], c[i]; return a = x[i,j]/c[i], b = floor(y[i,j]/c[i])"
    given = {n: np.ones((4, 64), np.float32) for n in "xy"} | {"c": np.arange(4, dtype=np.float32)}
    found, made, _ = run(ra.derive_incremental(ra.parse(text)), given, SCHEDULES[1], 1)
    assert made.source.count(" = fast_rcp_f32(") == 1 and made.source.count("quotient_f32(") == 2
    with np.errstate(divide="ignore"):
        assert (np.asarray(found["b"]) == np.floor(given["y"] / given["c"][:, None])).all()


@pytest.mark.parametrize(
    "schedule", [Schedule(32, 4, 4, 8), Schedule(64, 1, 4, 8, split=3), Schedule(32, 4, 1, 4)], ids=str
)
def test_a_tile_is_asked_for_before_what_its_row_has_in_common_is_waited_for(schedule: Schedule) -> None:
    """Rows of several tiles, none at all, and a row that other blocks have a part of."""
    form = ra.derive_incremental(ra.parse("tensors x[i,j], m[i], s[i]; return y = exp(x[i,j] - m[i])/s[i]"))
    rng = np.random.default_rng(3)
    for length in (0, 4, 36, 1300) if schedule.vector > 1 else (1, 2, 37, 1301):
        given = {"x": rng.standard_normal((6, length)).astype(np.float32)}
        given |= {n: rng.uniform(1, 2, 6).astype(np.float32) for n in "ms"}
        found, made, _ = run(form, given, schedule, 1)
        wide = {n: v.astype(np.float64) for n, v in given.items()}
        exact = np.exp(wide["x"] - wide["m"][:, None]) / wide["s"][:, None]
        # the difference, its exponential by 3 units, a quotient of half of one
        assert (np.abs(found["y"] - exact) <= exact * 2.0**-23 * (3 + 1 + np.abs(wide["x"] - wide["m"][:, None]))).all()
        loop = made.source.split("while ")[1]
        order = [loop.index(word) for word in ("load_early_float32(s", "load_float32", "fast_rcp_f32(", "exp_f32(")]
        assert order == sorted(order) and "early" not in made.source.split("while ")[0].split("def ")[1]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", WIDE)
@np.errstate(all="ignore")
def test_nearest_quotients_on_a_gpu(dtype: str) -> None:
    import torch

    form = ra.derive_incremental(ra.parse("tensors x[i,j], c[i]; dtype y = x; return y = x[i,j]/c[i]"))
    for length in (1, 2, 37, 64, 1000, 100003):
        given = wide(dtype, length)
        found = form.compile("cuda")(**{n: torch.tensor(v, device="cuda") for n, v in given.items()})
        nearest(found.cpu().numpy(), **given)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@np.errstate(all="ignore")
def test_quotients_on_a_gpu(name: str, dtype: str) -> None:
    import torch

    form = ra.derive_incremental(ra.parse(SPECS[name]))
    for length in (1, 2, 37, 64, 1000):
        given = operands(name, np.float16 if dtype == "float16" else ml_dtypes.bfloat16, length)
        held = {n: torch.tensor(v.astype(np.float32), device="cuda") for n, v in given.items()}
        held["x"] = held["x"].to(getattr(torch, dtype))
        found = form.compile("cuda")(**held)
        judge(name, found.float().cpu().numpy().astype(given["x"].dtype), given)
