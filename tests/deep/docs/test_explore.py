"""Walking through streams and changing definitions: the numbers shown are those of the definition."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.explore import edit, kernel, steps
from redalg.explore.widgets import WIDGET, toolkit
from tests.support.forms import form_of

DATA = np.array([[0.5, -1.0, 2.0, 2.0, -3.0], [1.0, 1.0, 4.0, 0.0, 9.0]])


# --- steps -----------------------------------------------------------------------------------------------------------


def rows_of(step: Any) -> dict[str, Any]:
    return {row.name: row for row in step.rows}


@pytest.mark.parametrize("row", [0, 1])
def test_after_is_before_corrected_and_what_the_element_gives(row: int) -> None:
    walk = steps(form_of("logsumexp"), x=DATA, row={"i": row})
    for step in walk:
        r = rows_of(step)["sum_exp"]
        if step.position:
            assert math.isclose(r.after, r.before * r.correction + r.gives, rel_tol=1e-12)
            top, old = rows_of(step)["max_x"].after, rows_of(step)["max_x"].before
            assert math.isclose(r.correction, math.exp(old - top), rel_tol=1e-12)
        else:
            assert r.before is None and r.correction is None
        assert rows_of(step)["max_x"].gives == DATA[row, step.position]
        assert list(step.elements.values()) == [DATA[row, step.position]]


@pytest.mark.parametrize("name", ["logsumexp", "variance"])
def test_results_so_far_are_the_definition_of_what_was_seen(name: str) -> None:
    form = form_of(name)
    walk = steps(form, x=DATA, row={"i": 1})
    for step in walk:
        exact = ra.reference(form.spec, x=DATA[1:, : step.position + 1])[0]
        assert np.isclose(next(iter(step.results.values())), exact, rtol=1e-12, atol=1e-15)
    assert math.isclose(next(iter(walk.definition.values())), ra.reference(form.spec, x=DATA)[1], rel_tol=1e-12)


def test_an_element_gives_its_powers_about_the_new_anchor() -> None:
    for step in steps(form_of("variance"), x=DATA):
        r = rows_of(step)
        centred = DATA[0, step.position] - r["A_x"].after
        assert math.isclose(r["avg_x2"].gives, centred**2, abs_tol=1e-15) and r["avg_x2"].correction is None
        assert math.isclose(r["avg_x"].gives, centred, abs_tol=1e-15)


def test_vectors_and_contractions_are_shown_by_their_first_entry() -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, 3)), rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    spec = ra.parse("s = sum[d](Q[i,d] * K[j,d]); m = max[j](s); p = exp(s - m); return O = sum[j](p * V[j,e])")
    walk = steps(ra.derive_incremental(spec, axis="j"), Q=q, K=k, V=v, row={"i": 1})
    last = walk[-1]
    scores = q[1] @ k.T
    assert math.isclose(last.results["O"], (np.exp(scores - scores.max()) * v[:, 0]).sum(), rel_tol=1e-12)
    assert math.isclose(next(iter(last.elements.values())), scores[-1], rel_tol=1e-12)


def test_labels_slices_and_both_ends() -> None:
    walk = steps(form_of("logsumexp"), x=DATA, labels=list("abcde"))
    assert len(walk) == 5 and [s.label for s in walk[1:3]] == ["b", "c"] and walk[-1].position == 4
    assert "element 2 (c)" in str(walk[2]) and "4 e" in str(walk) and "…" not in str(walk)
    assert "…" in str(steps(form_of("logsumexp"), x=np.tile(DATA, 4)))
    with pytest.raises(IndexError):
        walk[5]


def test_what_cannot_be_walked_through_is_refused() -> None:
    with pytest.raises(ra.RedalgError, match="2 labels"):
        steps(form_of("logsumexp"), x=DATA, labels=["a", "b"])
    with pytest.raises(ra.RedalgError, match="no state"):
        steps(ra.derive_incremental(ra.parse("return y = 2 * x[j]")), x=[1.0])
    with pytest.raises(ra.RedalgError, match="length 0"):
        steps(form_of("logsumexp"), x=np.zeros((1, 0)))
    with pytest.raises(ra.RedalgError, match="axis i has length 2"):
        steps(form_of("logsumexp"), x=DATA, row={"i": 2})


def test_several_passes_show_the_last_one() -> None:
    form = ra.derive_incremental(ra.parse("u = mean[j](x[j]); return y = sum[j](abs(x[j] - u))"), max_passes=2)
    data = [1.0, 2.0, 6.0]
    assert "abs_x" in str(steps(form, x=data)[2]) and steps(form, x=data).definition == {}


def test_a_step_along_a_composite_axis_shows_the_state_alone() -> None:
    form = ra.derive_incremental(ra.parse("return y = sum[a,b](x[a,b])"))
    walk = steps(form, x=np.arange(6.0).reshape(3, 2))
    assert [rows_of(s)["sum_x"].after for s in walk] == [1.0, 6.0, 15.0] and walk[1].elements == {}
    assert rows_of(walk[1])["sum_x"].gives is None


def test_a_single_element_and_infinities() -> None:
    assert steps(form_of("logsumexp"), x=np.array([[2.0]]))[0].results == {"y": 2.0}
    walk = steps(form_of("logsumexp"), x=np.array([[-np.inf, 1.0, -np.inf]]))
    assert [s.results["y"] for s in walk] == [-np.inf, 1.0, 1.0]
    assert [rows_of(s)["sum_exp"].gives for s in walk] == [0.0, 1.0, 0.0]
    assert math.isnan(steps(form_of("logsumexp"), x=np.array([[1.0, np.nan]]))[1].results["y"])


# --- edit ------------------------------------------------------------------------------------------------------------


def test_a_changed_text_has_a_new_verdict() -> None:
    trial = edit("u = mean[j](x[j]); return y = sum[j]((x[j] - u)**2)")
    assert isinstance(trial.verdict, ra.Form) and "avg_x2" in str(trial)
    before = trial.html()
    trial.text = "u = mean[j](x[j]); return y = sum[j](abs(x[j] - u))"
    assert isinstance(trial.verdict, ra.NotDecomposable) and "determinant" in trial.html() != before
    trial.text = "return y = sum[j](x[j]"
    assert type(trial.verdict) is ra.RedalgError and "not a spec" in trial.html() and "refused:" in str(trial)
    assert trial.changes == 3


def test_options_are_those_of_the_verdict() -> None:
    text = "u = mean[j](x[j]); return y = sum[j](abs(x[j] - u))"
    assert isinstance(edit(text, max_passes=2).verdict, ra.Form)
    assert type(edit(text, assume=["nonsense"]).verdict) is ra.RedalgError


# --- with and without widgets ----------------------------------------------------------------------------------------


def test_without_a_notebook_there_is_a_page_and_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert toolkit() is None
    for name in ("ipywidgets", "IPython"):
        monkeypatch.setitem(sys.modules, name, None)
    for thing in (steps(form_of("logsumexp"), x=DATA), edit("return y = sum[j](x[j])")):
        found = thing._repr_mimebundle_()
        assert set(found) == {"text/html", "text/plain"} and found["text/plain"]
    assert set(steps(form_of("logsumexp"), x=DATA)[1]._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_a_widget_follows_its_slider_and_its_box() -> None:
    widgets = pytest.importorskip("ipywidgets")
    walk = steps(form_of("logsumexp"), x=DATA)
    controls, page = walk._widget(widgets).children
    slider = controls.children[1]
    for k in (3, 0):
        slider.value = k
        assert page.value == walk[k].html()
    trial = edit("return y = sum[j](x[j])")
    box, _, shown = trial._widget(widgets).children
    box.value = "return y = max[j](x[j])"
    assert trial.text == box.value and shown.value == trial.html() and r"\max" in shown.value


def test_in_a_notebook_a_widget_stands_beside_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    widgets = pytest.importorskip("ipywidgets")
    monkeypatch.setattr("redalg.explore.widgets.toolkit", lambda: widgets)
    found = edit("return y = sum[j](x[j])")._repr_mimebundle_()
    assert found[WIDGET]["model_id"] and found["text/html"]


# --- kernels that are only printed ------------------------------------------------------------------------------------


def test_a_printed_kernel_is_the_one_that_would_be_launched() -> None:
    from redalg.kernels.ir.layouts import View
    from redalg.kernels.pipeline import plan
    from redalg.kernels.schedule.target import H200

    found = kernel(form_of("logsumexp"), {"i": 64, "j": 4096})
    planned = plan(form_of("logsumexp"), {"x": "float32"}, {"x": View.contiguous((64, 4096))}, H200)
    assert found.source == planned.module.source and found.schedule == planned.choice.schedule
    assert "max_x" in found.source and "threads for a row" in found.explain()
    assert kernel(form_of("logsumexp"), {"i": 64, "j": 4096}, schedule="warp").schedule.family == "warp"
    assert kernel(form_of("logsumexp"), {"i": 64, "j": 4096}, dtype="bfloat16").source != found.source


@pytest.mark.parametrize("schedule", ["tensor", "frozen_max", "mma"])
def test_small_products_go_to_tensor_cores_only_where_that_is_asked_for(schedule: str) -> None:
    form = ra.derive_incremental(ra.catalog["attention"])
    small, large = ({"h": 1, "i": i, "j": i, "d": 64, "e": 64} for i in (7, 64))
    asked = kernel(form, small, "H200", dtype="bfloat16", schedule=schedule)
    usual, more = (kernel(form, sizes, "H200", dtype="bfloat16") for sizes in (small, large))
    assert "tensor cores" in str(asked.reasons[0]) and "tensor cores" in str(more.reasons[0])
    assert "not on tensor cores: it is too small for tiles" in usual.reasons


def test_what_cannot_be_printed_is_refused() -> None:
    with pytest.raises(ra.RedalgError, match="axis j without a length"):
        kernel(form_of("logsumexp"), {"i": 4})
    with pytest.raises(ra.RedalgError, match="the table has H200"):
        kernel(form_of("logsumexp"), {"i": 4, "j": 4}, "abacus")
    softmax = ra.derive_incremental(ra.catalog["softmax"])
    with pytest.raises(ra.RedalgError, match="keeps the axis"):
        kernel(softmax, {"i": 4, "j": 4096}, schedule="split")


ADDING = """attention_causal softmax_entropy moe_renormalised attention_window splade weighted_variance
    kl_divergence_of_logits two_norm_safe zero_point_gemm min_max_scaling cosine_similarity"""


@pytest.mark.parametrize("name", ADDING.split())
def test_sums_and_extrema_of_catalog_forms_add_up(name: str) -> None:
    """after = correction·before + what the element gives for sums, and the larger or smaller of the two for extrema."""
    entry = ra.catalog.entry(name)
    form = form_of(name)
    slots = {part: s for p in form.plan.passes for s in p.slots for part in s.parts}
    seen = 0
    for step in steps(form, **entry.sample(0))[1:]:
        for row in step.rows:
            slot = slots.get(row.name)
            if slot is None or row.gives is None or slot.average or slot.moves and row.correction is None:
                continue
            old = row.before * (1.0 if row.correction is None else row.correction)
            new = {"sum": old + row.gives, "max": max(old, row.gives), "min": min(old, row.gives)}.get(slot.kind)
            if new is not None:
                assert math.isclose(row.after, new, rel_tol=1e-9, abs_tol=1e-9), (row, step)
                seen += 1
    assert seen


def test_a_kernel_is_printed_without_the_packages_of_a_gpu() -> None:
    """numba-cuda is an extra: planning and printing do without it, and what needs it says so."""
    code = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "numba.cuda" or name.startswith(("numba.cuda.", "cuda.")):
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Missing())
import redalg as ra
from redalg.explore import kernel
form = ra.derive_incremental(ra.catalog["attention"])
sizes = {"h": 1, "i": 256, "j": 256, "d": 64, "e": 64}
print("tile_product" in kernel(form, sizes, dtype="bfloat16", schedule="tensor").source)
print("exp" in kernel(form, sizes).source)
try:
    form.compile("cuda")
except ra.RedalgError as refused:
    print("redalg[cuda]" in refused.fix)
"""
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert got.returncode == 0, got.stderr
    assert got.stdout.split() == ["True", "True", "True"]
