"""`redalg.pictures`, what runs forms: curves are the accumulator's, errors those against the exact definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from redalg import pictures  # noqa: E402


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def complete(error: RedalgError) -> bool:
    return bool(error.what and error.where and error.why and error.fix)


def form_of(name: str) -> ra.Form:
    entry = ra.catalog.entry(name)
    return ra.derive_incremental(entry.spec, entry.axis, assume=entry.assume)


def drawn(ax: plt.Axes) -> dict[str, Any]:
    """gid -> what the line holds along y."""
    return {
        line.get_gid(): np.asarray(line.get_ydata()) for room in ax.child_axes for line in room.lines if line.get_gid()
    }


# --- evolution -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["logsumexp", "variance", "attention", "linear_regression", "top_k", "kurtosis", "splade"]
)
def test_results_are_the_definition_of_what_was_seen(name: str) -> None:
    entry = ra.catalog.entry(name)
    form = form_of(name)
    axis = form.plan.axis[0]
    arrays = entry.sample(seed=3, **{axis: 17})
    found = drawn(pictures.evolution(form, **arrays))
    position = {d.name: d.axes.index(axis) for d in form.spec.tensors if axis in d.axes}
    for t in range(1, 18):
        part = {k: v[(slice(None),) * position[k] + (slice(0, t),)] if k in position else v for k, v in arrays.items()}
        truth = ra.reference(form.spec, **part)
        truth = truth if isinstance(truth, dict) else {next(iter(form.spec.outputs)): truth}
        for output, value in list(truth.items())[:3]:
            assert found[f"result:{output}"][t - 1] == pytest.approx(value.ravel()[0], rel=1e-9, abs=1e-9, nan_ok=True)


def test_anchor_and_corrections_are_the_states() -> None:
    x = np.array([[0.5, -1.0, 2.0, 2.0, 3.0, 1.0]])
    found = drawn(pictures.evolution(form_of("logsumexp"), x=x))
    top = np.maximum.accumulate(x[0])
    assert np.array_equal(found["element:max_x"], x[0]) and np.array_equal(found["anchor:max_x"], top)
    assert found["correction:sum_exp"] == pytest.approx(np.exp(top[:-1] - top[1:]), rel=1e-15)
    assert found["definition:y"][0] == pytest.approx(found["result:y"][-1], rel=1e-14)


def test_a_constant_of_the_spec_changes_the_corrections() -> None:
    x = ra.tensors("x[j]")
    data = np.array([0.0, 1.0, 3.0])

    def corrections(c: int) -> Any:
        form = ra.derive_incremental(ra.Spec(y=ra.sum(ra.exp(c * (x - ra.max(x, "j"))), "j")))
        return next(v for k, v in drawn(pictures.evolution(form, x=data)).items() if k.startswith("correction:"))

    assert corrections(1) == pytest.approx(np.exp([-1.0, -2.0])) and corrections(2) == pytest.approx(
        np.exp([-2.0, -4.0])
    )


def test_the_row_is_the_one_asked_for() -> None:
    entry = ra.catalog.entry("attention")
    arrays = entry.sample(seed=1, h=2, i=3, j=11, e=4)
    form = form_of("attention")
    truth = ra.reference(form.spec, **arrays)
    for row in ({}, {"h": 1, "i": 2, "e": 3}, {"i": 1}):
        ax = pictures.evolution(form, row=row, **arrays)
        at = tuple(row.get(a, 0) for a in "hie")
        assert drawn(ax)["result:O"][-1] == pytest.approx(truth[at], rel=1e-12)
        assert all(f"{a} = {k}" in ax.get_title() for a, k in zip("hie", at, strict=True))


def test_an_axis_that_is_also_contracted_is_kept_whole() -> None:
    """Attention whose values have the axis of the scores: cutting d would change the scores."""
    q, k = ra.tensors("q[d] k[j,d]")
    s = ra.sum(q * k, "d")
    p = ra.exp(s - ra.max(s, "j"))
    form = ra.derive_incremental(ra.Spec(o=ra.sum(p * k, "j") / ra.sum(p, "j")), axis="j")
    rng = np.random.default_rng(0)
    arrays = {"q": rng.normal(size=3), "k": rng.normal(size=(9, 3))}
    truth = ra.reference(form.spec, **arrays)
    for d in range(3):
        assert drawn(pictures.evolution(form, row={"d": d}, **arrays))["result:o"][-1] == pytest.approx(truth[d])


def test_outputs_that_keep_the_axis_leave_the_slots_and_several_passes_the_last() -> None:
    found = drawn(pictures.evolution(form_of("softmax"), x=np.array([[1.0, 0.0, 2.0]])))
    assert found["slot:sum_exp"] == pytest.approx([1.0, 1 + np.exp(-1.0), 1 + np.exp(-1.0) + np.exp(-2.0)])
    x = ra.tensors("x[j]")
    spec = ra.Spec(y=ra.mean(ra.abs(x - ra.mean(x, "j")), "j"))
    data = np.array([1.0, 5.0, 9.0, 3.0])
    form = ra.derive_incremental(spec, max_passes=2)
    two = drawn(pictures.evolution(form, x=data))
    (slot,) = [k.removeprefix("slot:") for k in two if k.startswith("slot:")]
    (anchor,) = [k.removeprefix("anchor:") for k in two if k.startswith("anchor:")]
    centre = np.abs(data - data.mean())
    assert two[f"anchor:{anchor}"] + two[f"slot:{slot}"] == pytest.approx(np.cumsum(centre) / np.arange(1, 5))
    assert np.array_equal(two[f"element:{anchor}"], centre) if f"element:{anchor}" in two else True


def test_streams_of_length_0_1_and_special_values() -> None:
    form = form_of("logsumexp")
    assert len(drawn(pictures.evolution(form, x=np.zeros((1, 1))))["result:y"]) == 1
    special = drawn(pictures.evolution(form, x=np.array([[-np.inf, 0.0, np.nan]])))["result:y"]
    assert special[0] == -np.inf and special[1] == 0 and np.isnan(special[2])
    with pytest.raises(RedalgError) as error:
        pictures.evolution(form, x=np.zeros((1, 0)))
    assert complete(error.value)


def test_evolutions_that_make_no_sense_are_refused() -> None:
    form, x = form_of("logsumexp"), np.zeros((2, 3))
    for row in ({"j": 0}, {"i": 2}, {"i": -1}, {"q": 0}, {"i": True}):
        with pytest.raises(RedalgError) as error:
            pictures.evolution(form, row=row, x=x)
        assert complete(error.value)
    y = ra.tensors("y[i]")
    with pytest.raises(RedalgError) as error:
        pictures.evolution(ra.derive_incremental(ra.Spec(z=ra.exp(y))), y=np.zeros(3))
    assert complete(error.value)
    with pytest.raises(RedalgError):
        pictures.evolution(form, z=x)
