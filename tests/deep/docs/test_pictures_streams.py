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


def test_a_row_whose_position_is_read_keeps_its_position() -> None:
    entry = ra.catalog.entry("attention_causal")
    form, arrays = form_of("attention_causal"), entry.sample(seed=4)
    truth = ra.reference(form.spec, **arrays)
    output, axes = next(iter(form.spec.output_axes.items()))
    for k in (0, 2):
        ax = pictures.evolution(form, row={"i": k}, **arrays)
        at = tuple(k if a == "i" else 0 for a in axes)
        assert drawn(ax)[f"result:{output}"][-1] == pytest.approx(truth[at], rel=1e-12)


def test_a_composite_axis_arrives_by_its_first_part() -> None:
    """Samples and positions of a channel: one chunk per sample, every element drawn."""
    x = ra.tensors("x[n,c,s]")
    form = ra.derive_incremental(ra.Spec(v=ra.mean((x - ra.mean(x, ["n", "s"])) ** 2, ["n", "s"])))
    data = np.random.default_rng(1).normal(size=(4, 3, 5))
    found = drawn(pictures.evolution(form, row={"c": 2}, x=data))
    (anchor,) = [k.removeprefix("anchor:") for k in found if k.startswith("anchor:")]
    assert np.array_equal(found[f"element:{anchor}"], data[:, 2].ravel())
    assert found["result:v"] == pytest.approx([data[: t + 1, 2].var() for t in range(4)], rel=1e-12)


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


# --- error_growth ----------------------------------------------------------------------------------------------------

LENGTHS, OFFSETS = (4, 32), (1.0, 1e4, 1e8)


def errors(ax: plt.Axes, panel: int) -> dict[str, list[float]]:
    lines = [line for line in ax.child_axes[panel].lines if (line.get_gid() or "").startswith("error:")]
    return {str(line.get_label()): list(line.get_ydata()) for line in lines}


@pytest.fixture(scope="module")
def variance_errors() -> tuple[dict[str, list[float]], dict[str, list[float]], str]:
    from benchmarks.accuracy.feeding import run_peer
    from benchmarks.accuracy.peers import MOMENTS

    welford = next(p for p in MOMENTS if p.name == "Welford")

    def peer(x: np.ndarray) -> np.ndarray:
        return run_peer(welford, {"x": x}, "one by one")["variance"]  # type: ignore[index]

    ax = pictures.error_growth(form_of("variance"), LENGTHS, OFFSETS, others={"Welford": peer}, streams=2)
    return errors(ax, 0), errors(ax, 1), ax.get_title()


def test_the_panels_meet_at_the_largest_length_and_offset(variance_errors: Any) -> None:
    over_length, over_offset, title = variance_errors
    assert set(over_length) == set(over_offset) == {"this form", "lean form", "uncentred sums", "Welford"}
    for name in over_length:
        assert len(over_length[name]) == len(LENGTHS) and len(over_offset[name]) == len(OFFSETS)
        assert np.array_equal(over_length[name][-1], over_offset[name][-1], equal_nan=True)
    assert "after 32 elements at offset 1e+08" in title


def test_the_form_keeps_its_digits_the_lean_form_is_welfords_and_sums_lose_them(variance_errors: Any) -> None:
    """Theory 3.2: a few ulp at any offset; Welford's error grows with the offset, Σx²'s with its square."""
    _, over_offset, _ = variance_errors
    assert max(over_offset["this form"]) < 1e-14
    for lean, welford in zip(over_offset["lean form"], over_offset["Welford"], strict=True):
        assert lean <= max(50 * welford, 1e-14) and welford <= max(50 * lean, 1e-14)
    assert over_offset["lean form"][-1] > 1e-12
    sums = over_offset["uncentred sums"]
    assert sums[1] > 1e-11 and (np.isnan(sums[2]) or sums[2] > 1e-3)


def test_an_error_is_that_of_the_exact_definition() -> None:
    """Recomputed with nothing of the picture: the same draws, Fractions, and the largest of the streams."""
    from fractions import Fraction

    x = ra.tensors("x[j]")
    form = ra.derive_incremental(ra.Spec(v=ra.mean((x - ra.mean(x, "j")) ** 2, "j")))

    def draw(n: int, offset: float, rng: np.random.Generator) -> dict[str, Any]:
        return {"x": rng.uniform(size=n) + offset}

    def bad(x: np.ndarray) -> Any:
        return np.var(x) * 1.25

    def raw(x: np.ndarray) -> Any:
        return np.sum(x**2) / len(x) - np.sum(x) ** 2 / len(x) ** 2

    others = {"bad": bad, "raw": raw, "none": lambda x: np.nan}
    ax = pictures.error_growth(form, (5, 9), (1.0, 64.0), draw=draw, others=others, seed=5)
    plain = errors(ax, 0)["uncentred sums"]
    for place, n in enumerate((5, 9)):
        worst, bound = 0.0, 0.0
        for seed in (5, 6, 7):
            data = draw(9, 64.0, np.random.default_rng(seed))["x"][:n]
            exact = [Fraction(v) for v in data.tolist()]
            mean = sum(exact) / n
            true = sum((v - mean) ** 2 for v in exact) / n
            worst = max(worst, float(abs(Fraction(float(raw(data))) - true) / true))
            # both sums have n roundings, a square and two quotients at most two each, and so has the difference
            bound = max(bound, 2 * (n + 4) * 2.0**-53 * float(sum(v * v for v in exact) / n / true))
        assert errors(ax, 0)["raw"][place] == pytest.approx(worst, rel=1e-9)
        assert 0 < plain[place] <= bound
    assert errors(ax, 0)["bad"] == pytest.approx([0.25, 0.25], rel=1e-9)
    assert np.isnan(errors(ax, 0)["none"]).all()
    lost = [line for line in ax.child_axes[0].lines if line.get_gid() == "lost:none"]
    assert list(lost[0].get_xdata()) == [5, 9]


@pytest.mark.parametrize(
    "name", ["logsumexp", "softmax", "attention", "covariance", "weighted_mean", "moment_of_inertia"]
)
def test_forms_of_all_kinds_stay_accurate(name: str) -> None:
    ax = pictures.error_growth(form_of(name), (2, 17), (1.0, 1e6), streams=1)
    assert max(errors(ax, 1)["this form"]) < 1e-12


def test_uncentred_sums_equal_the_definition_on_rationals() -> None:
    from fractions import Fraction

    from redalg.numeric.exact import Exact
    from redalg.pictures.growth import uncentred

    for name in ("variance", "skewness", "covariance", "linear_regression", "layer_norm_gemm", "weighted_variance"):
        entry = ra.catalog.entry(name)
        form = form_of(name)
        nodes = uncentred(form)
        assert nodes is not None
        arrays = {k: v if isinstance(v, int | float) else v.round(2) for k, v in entry.sample(seed=2, j=5).items()}
        exact = ra.reference(form.spec, exact=True, **arrays)
        exact = exact if isinstance(exact, dict) else {next(iter(nodes)): exact}
        sizes = {a: n for d in form.spec.tensors for a, n in zip(d.axes, np.shape(arrays[d.name]), strict=True)}
        for output, node in nodes.items():
            at = dict.fromkeys(form.spec.output_axes[output], 0)
            value = Exact(arrays, sizes).value(node, at)
            truth = exact[output][(0,) * len(at)]
            assert value == truth if isinstance(truth, Fraction) else abs(value - truth) < 1e-40 * (1 + abs(truth))


def test_measurements_that_make_no_sense_are_refused() -> None:
    form = form_of("variance")
    for more in ({"lengths": ()}, {"lengths": (0,)}, {"offsets": (0.0,)}, {"streams": 0}, {"offsets": ()}):
        with pytest.raises(RedalgError) as error:
            pictures.error_growth(form, **more)
        assert complete(error.value)
    x = ra.tensors("x[j]")
    two = ra.derive_incremental(ra.Spec(y=ra.mean(ra.abs(x - ra.mean(x, "j")), "j")), max_passes=2)
    with pytest.raises(RedalgError) as error:
        pictures.error_growth(two)
    assert complete(error.value)
