"""States of threads merged at once (`redalg.kernels.ir.all_reduce`), by emulation: against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.all_reduce import all_reduced
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.programs import lower
from tests.support import simulated
from tests.support.forms import Forms
from tests.support.profiles import examples

FORMS = Forms(
    {
        "variance": "u = mean[j](x[i,j]); return v = mean[j]((x[i,j] - u)**2), u = u",
        "third moment": "u = mean[j](x[i,j]); return v = mean[j]((x[i,j] - u)**3)",
        "weighted variance": "w = abs(y[i,j]) + 1; s = sum[j](w); u = sum[j](w*x[i,j])/s; "
        "return v = sum[j](w*(x[i,j] - u)**2)/s",
        "covariance": "u = mean[j](x[i,j]); t = mean[j](y[i,j]); return v = mean[j]((x[i,j] - u)*(y[i,j] - t))",
        "products": "w = exp(y[i,j]/8); s = sum[j](w); u = sum[j](w*x[i,j])/s; t = sum[j](w*y[i,j])/s; "
        "return v = sum[j](w*(x[i,j] - u)*(y[i,j] - t))/s, q = sum[j](w*(x[i,j] - u)**2)/s",
        "logsumexp": "m = max[j](x[i,j]); return l = m + log(sum[j](exp(x[i,j] - m)))",
        "weighted mean": "m = max[j](x[i,j]); p = exp(x[i,j] - m); return e = sum[j](p*y[i,j])/sum[j](p)",
        "extremes": "return a = max[j](x[i,j]), b = min[j](x[i,j]), c = sum[j](x[i,j]), p = argmax[j](abs(x[i,j]))",
        "product": "return p = prod[j](1 + x[i,j]/2**20), n = sum[j](where(x[i,j] > 0, 1, 0))",
        "conditions": "return a = any[j](x[i,j] > 2), b = all[j](x[i,j] < y[i,j] + 3), c = mean[j](y[i,j])",
        "where": "return a = sum[j](where(x[i,j] > 0, x[i,j], 0)), b = max[j](where(x[i,j] < 0, y[i,j], -oo))",
    }
)
SCHEDULES = [
    Schedule(2, 16, 1, 4),
    Schedule(16, 4, 1, 4),
    Schedule(32, 2, 1, 1),
    Schedule(64, 1, 4, 4, peel=True),
    Schedule(128, 1, 1, 4),
    Schedule(32, 1, 1, 4, cluster=2),
    Schedule(64, 1, 4, 8, cluster=4, peel=True),
    Schedule(32, 1, 1, 2, split=3),
    Schedule(64, 1, 1, 4, split=70),
    Schedule(4, 8, 1, 4, column=True),
    Schedule(8, 16, 1, 2, column=True, split=2),
    Schedule(16, 4, 1, 2, column=True),
    Schedule(16, 2, 1, 4, column=True, split=3),
    # threads with several rows: each has states of its own, and one count for all
    Schedule(16, 2, 1, 2, column=True, coarsen=2),
    Schedule(32, 1, 1, 2, column=True, coarsen=4),
    Schedule(16, 4, 1, 2, column=True, coarsen=2, split=2),
    # threads with several splits: they ask for some of them at a time, in one turn or more
    Schedule(32, 1, 1, 1, split=75),
    Schedule(2, 16, 1, 2, column=True, split=7),
    Schedule(16, 2, 1, 1, column=True, split=37),
    Schedule(2, 8, 1, 2, column=True, coarsen=2, split=21),
]


def _drawn(form: ra.Form, rows: int, length: int, offset: float, scale: float, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    made = {t.name: rng.standard_normal((rows, length)) * scale for t in form.spec.tensors}
    made["x"] = made["x"] + offset
    return {n: a.astype("f4") for n, a in made.items()}


def _run(form: ra.Form, arrays: dict[str, np.ndarray], schedule: Schedule, seed: int) -> dict[str, np.ndarray] | None:
    if schedule.column:  # rows side by side
        arrays = {n: np.asfortranarray(a) for n, a in arrays.items()}
    try:
        return simulated.run(form, arrays, schedule, seed)[0]
    except RedalgError as refused:  # a law of the program: a list or a position takes no such schedule
        assert refused.where == "schedule=", refused
        return None


def _exact(form: ra.Form, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    true = ra.reference(form.spec, **{n: a.astype("f8") for n, a in arrays.items()})
    return true if isinstance(true, dict) else {next(iter(form.spec.outputs)): true}


@examples(60)
@given(
    st.sampled_from(list(FORMS)),
    st.sampled_from(SCHEDULES),
    st.integers(1, 5),
    st.sampled_from([1, 2, 3, 31, 33, 64, 257]),
    st.sampled_from([0.0, 1.0, -300.0, 1e4]),
    st.sampled_from([1.0, 1e-3, 50.0]),
    st.integers(0, 9),
)
def test_states_of_threads_as_defined(
    name: str, schedule: Schedule, rows: int, length: int, offset: float, scale: float, seed: int
) -> None:
    """Threads without an element, blocks without one, and anchors far from 0 and from one another."""
    form = FORMS[name]
    arrays = _drawn(form, rows, length, offset, scale, seed)
    found = _run(form, arrays, schedule, seed)
    if found is None:
        return
    size = {"third moment": scale**3, "variance": scale**2, "covariance": scale**2, "weighted variance": scale**2}
    for output, true in _exact(form, arrays).items():
        if true.dtype.kind in "ib":
            np.testing.assert_array_equal(found[output], true)
            continue
        # Sums of `length` rounded terms of at most 8 deviations, each of up to 8 roundings; and the result's own.
        terms = size.get(name, scale) * 512 if output not in ("u", "l", "p", "a", "b", "c") else np.abs(true) + scale
        bound = 2.0**-24 * ((8 + length) * terms + 4 * np.abs(true) + (length * abs(offset) if output == "c" else 0))
        with np.errstate(invalid="ignore"):  # of an infinity and itself
            near = (found[output] == true) | (np.abs(found[output] - true) <= bound)
        assert near.all(), (output, found[output], true)


@examples(40)
@given(
    st.sampled_from([n for n in FORMS if n != "product"]),
    st.sampled_from(SCHEDULES),
    st.sampled_from([1, 2, 5, 40, 257]),
    st.sampled_from([np.inf, -np.inf, np.nan, 3e38]),
    st.integers(0, 9),
)
def test_what_is_not_finite_as_defined(name: str, schedule: Schedule, length: int, value: float, seed: int) -> None:
    form = FORMS[name]
    arrays = _drawn(form, 4, length, 1.0, 1.0, seed)
    arrays["x"][1, seed % length] = value
    with np.errstate(all="ignore"):
        found, exact = _run(form, arrays, schedule, seed), _exact(form, arrays)
    for output, true in exact.items() if found is not None else ():
        if true.dtype.kind in "ib":
            np.testing.assert_array_equal(found[output], true)
        elif abs(value) != 3e38:  # squares of it are beyond float32
            np.testing.assert_array_equal(np.isnan(found[output]), np.isnan(true), output)
            np.testing.assert_array_equal(np.isinf(found[output]), np.isinf(true), output)
        else:
            np.testing.assert_allclose(found[output][[0, 2, 3]], true[[0, 2, 3]], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("coarsen", [2, 4])
def test_threads_with_several_rows_share_a_count(coarsen: int) -> None:
    """No schedule of these is refused, and each of a thread's rows has the state of its own elements."""
    form = FORMS["variance"]
    arrays = _drawn(form, 8, 40, 300.0, 1.0, 3)
    for split in (1, 2):
        found = _run(form, arrays, Schedule(16, 2, 1, 2, column=True, coarsen=coarsen, split=split), 3)
        assert found is not None
        np.testing.assert_allclose(found["v"], arrays["x"].astype("f8").var(axis=1), rtol=1e-5)


@pytest.mark.parametrize("name", list(FORMS))
def test_numbers_are_merged_at_once(name: str) -> None:
    """None of these takes a tree, so that the tests above are about what they say."""
    form = FORMS[name]
    program = lower(form, {t.name: "float32" for t in form.spec.tensors})
    assert all(all_reduced(p) for p in program.passes)


def test_lists_are_merged_by_trees() -> None:
    form = ra.derive_incremental(ra.parse("return t = topk[j:3](x[i,j]).values"))
    assert all(all_reduced(p) is None for p in lower(form, {"x": "float32"}).passes)
