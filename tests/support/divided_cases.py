"""Elements divided by a stage value, in one pass and in two: specs, targets, and what holds of them at any size."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product

import numpy as np

import redalg as ra

STAGES = ("sum[j](x[i,j])", "max[j](x[i,j])", "2*max[j](abs(x[i,j]))", "mean[j](x[i,j])", "max[j](x[i,j])/3")
ELEMENTS = ("x[i,j]/s", "w*x[i,j]/s", "7*x[i,j]/s", "x[i,j]/s/w", "x[i,j]/(3*s)")
JUDGED = ("floor({})", "ceil(-{})", "where({} < 1, 1, 0)", "cast({}, int8)", "{}")
ENDS = {"float32": (-148, -126, -100, 120), "float64": (-1073, -1022, -900, 1016)}


@cache
def form(body: str, stage: str) -> ra.Form:
    return ra.derive_incremental(ra.parse(f"s = {stage}; return y = {body}"), max_passes=2)


def parts(form: ra.Form, arrays: dict[str, np.ndarray], scalars: dict[str, float], ends: list[int]) -> np.ndarray:
    """Unequal parts, an empty one among them, through all passes."""
    acc, cuts = form.accumulator(**scalars), list(pairwise(ends))
    for number in range(form.passes.statistics):
        acc = acc if number == 0 else acc.next_pass() or acc
        for a, b in cuts:
            acc.update(x=arrays["x"][:, a:b])
    kept = form.plan.outputs[0].keeps_axis
    return np.concatenate([acc.apply(x=arrays["x"][:, a:b]) for a, b in cuts], axis=1) if kept else acc.result()


def over_itself(target: str, stages: tuple[str, ...], bodies: tuple[str, ...]) -> None:
    """49·(1/49) is less than 1."""
    x = np.arange(1.0, 200.0)[:, None]
    for stage in stages:
        for body in bodies:
            f = form(body, stage)
            found = parts(f, {"x": x}, {}, [0, 1, 1]) if target == "parts" else f.compile(target)(x=x)
            assert (found == 1).all(), (stage, body, x[found != 1])


def of_any_size(target: str, total: str, every: int = 1) -> None:
    """The quotients are those of elements near 1: one over a stage value is infinite before they are."""
    drawn = np.random.default_rng(3).integers(1, 8, (2, 5)).astype(float)
    drawn[:, 2] = 7
    for k, (stage, element) in list(enumerate(product(STAGES, ELEMENTS)))[::every]:
        body = total.format(JUDGED[k // 5 % 5 - k % 5].format(element))
        f, scalars = form(body, stage), {"w": 3.0} if "w" in element else {}
        for dtype, powers in ENDS.items():
            wanted = np.asarray(ra.reference(f.spec, x=drawn, **scalars), dtype)
            rounded = "/3" in stage or "mean" in stage and target != "cpu"  # where subnormal
            for power in powers[2:] if rounded else powers:
                x = np.ldexp(drawn.astype(dtype), power)
                parted = target == "parts"
                found = parts(f, {"x": x}, scalars, [0, 2, 2, 5]) if parted else f.compile(target)(x=x, **scalars)
                np.testing.assert_allclose(found, wanted, rtol=4e-6, err_msg=f"{stage}, {body}, {dtype} {power}")
