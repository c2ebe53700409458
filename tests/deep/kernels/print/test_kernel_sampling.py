"""Anchors that are looked for in a part of a tile: which programs have them, and what kernels compute with them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.graph.node import walk
from redalg.kernels.ir.program import Let, Loop, step_nodes
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.programs import lower
from redalg.kernels.schedule.sampling import ALL, SHARE, SOME, sampled
from tests.support.forms import Forms, form_of
from tests.support.simulated import run

X, Y = ra.tensors("x[i,j] y[i,j]")
MEAN = ra.mean(X, "j")
SPECS = {
    "var_mean": ra.Spec(var=ra.mean((X - MEAN) ** 2, "j"), mean=MEAN),
    "scores": ra.Spec(z=(X - MEAN) / ra.sqrt(ra.mean((X - MEAN) ** 2, "j") + 1e-3)),
    "covariance": ra.Spec(c=ra.mean((X - MEAN) * (Y - ra.mean(Y, "j")), "j"), largest=ra.max(X, "j")),
    "logs": ra.Spec(v=ra.mean((ra.log(X * X + 1) - ra.mean(ra.log(X * X + 1), "j")) ** 2, "j")),
}
FORMS = Forms(SPECS)
SCHEDULES = [
    Schedule(threads=1, rows=32, tile=16),
    Schedule(threads=8, rows=4, vector=4, tile=16),
    Schedule(threads=16, rows=2, vector=2, tile=32, resident=True),
    Schedule(threads=64, rows=1, tile=16, resident=True),
    Schedule(threads=32, rows=1, tile=8, cluster=2, resident=True),
    Schedule(threads=32, rows=1, tile=4, cluster=2),
    Schedule(threads=32, rows=1, tile=8, split=3),
    Schedule(threads=2, rows=16, tile=16, column=True),
    Schedule(threads=2, rows=16, tile=4, column=True),
    Schedule(threads=1, rows=32, tile=8, column=True, split=2),
]
EPS, ROUND = 2.0**-24, {"bfloat16": 2.0**-8, "float16": 2.0**-11}


def lowered(name: str, *dtypes: str) -> Any:
    entry = ra.catalog.entry(name)
    form = form_of(name)
    given = {t.name: d for t, d in zip(entry.spec.tensors, dtypes * 9, strict=False)}
    return lower(form, {t.name: given[t.name] if t.axes else float for t in entry.spec.tensors})


@pytest.mark.parametrize("name", ["variance", "kurtosis", "geometric_mean", "covariance", "pearson_correlation"])
def test_plain_means_are_looked_for_in_a_part(name: str) -> None:
    program = lowered(name, "bfloat16")
    found = sampled(program).passes[0].lift
    walks = [s.part for s in found if isinstance(s, Loop)]
    units = any(n.op == "pow2" for s in found for node in step_nodes(s) for n in walk(node))
    assert walks[units:][:2] == [True, False], "behind the walk that finds the unit, where there is one"
    counts = [{n for n in (SOME, ALL) if n in walk(s.node)} for s in found if isinstance(s, Let)]
    assert {SOME} in counts and {ALL} in counts and {SOME, ALL} not in counts


@pytest.mark.parametrize(
    "name, dtypes",
    [
        ("variance", ("float32",)),
        ("variance", ("float64",)),
        ("covariance", ("bfloat16", "float32")),
        ("weighted_variance", ("bfloat16",)),
        ("softmax", ("bfloat16",)),
        ("canonical_ensemble", ("bfloat16",)),
    ],
)
def test_other_anchors_are_looked_for_in_all_of_it(name: str, dtypes: tuple[str, ...]) -> None:
    program = lowered(name, *dtypes)
    assert not any(s.part for p in sampled(program).passes for s in p.lift if isinstance(s, Loop))


def drawn(kind: str, n: int, dtype: str, seed: int) -> Any:
    """Five rows: noise around 0, far from 0, one far element first or last, a constant, steps."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(6, n))
    x[1] += 300
    x[2, 0] += 200
    x[3, -1] -= 200
    x[4] = 3.140625
    x[5] = np.arange(n) // max(1, n // 3) * 50
    if kind == "special":
        x[0, n // 2], x[1, 0], x[2, -1] = np.nan, np.inf, -np.inf
    return x.astype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("name", SPECS)
def test_what_is_computed_with_them_is_the_definition(name: str, schedule: Schedule) -> None:
    """Moments about an anchor are at most 1 + SHARE times those about the mean, and every sum of n of them is off by at
    most n units of float32; what is stored is rounded once."""
    for seed, (n, dtype, kind) in enumerate(
        [
            (100, "bfloat16", "plain"),
            (1, "bfloat16", "plain"),
            (2, "float16", "plain"),
            (52, "bfloat16", "special"),
            (3, "float16", "plain"),
            (512, "bfloat16", "plain"),
        ]
    ):
        arrays = {t.name: drawn(kind, n, dtype, seed + i) for i, t in enumerate(SPECS[name].tensors)}
        try:
            found, planned, _ = run(FORMS[name], arrays, schedule, seed=seed)
        except RedalgError as refusal:
            assert refusal.where == "schedule="
            continue
        assert ("n_tile = " if schedule.column else "n_some = ") in planned.module.source
        wide = {k: a.astype(np.float64) for k, a in arrays.items()}
        with np.errstate(all="ignore"):
            true = ra.reference(SPECS[name], **wide)
            true = true if isinstance(true, dict) else {next(iter(found)): true}
            spread = {k: a.std(1) for k, a in wide.items()}
        for output, value in true.items():
            got, slack = found[output].astype(np.float64), 4 * n * EPS * (1 + SHARE)
            scale = {"var": spread["x"] ** 2, "c": spread["x"] * spread.get("y", 1.0), "v": value + 1.0}.get(output)
            scale = np.abs(value) if scale is None else scale
            np.testing.assert_array_equal(np.isnan(got), np.isnan(value))
            plain = np.isfinite(value)
            bound = (slack * scale + 1e-6 + ROUND[dtype] * np.abs(value)) if output != "z" else 0.02 + 0.02 * abs(value)
            bound = np.broadcast_to(bound, got.shape)
            assert (np.abs(got[plain] - value[plain]) <= bound[plain]).all(), (output, n, dtype)
