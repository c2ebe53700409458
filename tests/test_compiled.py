"""`form.compile`: one callable, its source, what it refuses."""

from __future__ import annotations

import ast
import pickle

import numpy as np
import pytest

import redalg as ra


@pytest.fixture(scope="module")
def form() -> ra.Form:
    return ra.derive_incremental(ra.catalog["variance"], axis="j")


def test_a_run_gives_what_the_definition_gives(form: ra.Form) -> None:
    x = np.random.default_rng(0).normal(size=(3, 100)).astype(np.float32)
    run = form.compile()
    assert run.target == "numpy"
    np.testing.assert_allclose(run(x=x), ra.reference(form.spec, x=x), rtol=1e-6)


def test_out_receives_the_result(form: ra.Form) -> None:
    x, out = np.arange(12.0).reshape(3, 4), np.empty(3)
    assert form.compile()(x=x, out=out) is out
    np.testing.assert_array_equal(out, form.compile()(x=x))


def test_a_deterministic_run_is_another_schedule(form: ra.Form) -> None:
    x = np.random.default_rng(0).normal(size=(3, 100))
    run = form.compile(deterministic=True)
    assert run.schedule != form.compile().schedule
    np.testing.assert_allclose(run(x=x), form.compile()(x=x), rtol=1e-12)


def test_the_source_lists_a_function_for_every_program() -> None:
    names = ("attention_causal", "layer_norm", "moe_renormalised", "splade")
    for name in names:
        entry = ra.catalog.entry(name)
        source = ra.derive_incremental(entry.spec, axis=entry.axis).compile().source
        functions = [f.name for f in ast.parse(source).body if isinstance(f, ast.FunctionDef)]
        assert functions[0] == "lift" and functions[-1] in ("finalize", "apply")


def test_explain_says_where_it_runs(form: ra.Form) -> None:
    assert form.explain().rstrip() in form.compile().explain() and "numpy" in form.compile().explain()


def test_a_run_pickles(form: ra.Form) -> None:
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(form.compile()))(x=x), form.compile()(x=x))


@pytest.mark.parametrize("arguments", [{"stream": 1}, {"y": 1.0}, {}])
def test_what_does_not_fit_is_refused(form: ra.Form, arguments: dict[str, object]) -> None:
    with pytest.raises(ra.RedalgError):
        form.compile()(**arguments)


def test_an_unknown_schedule_is_refused(form: ra.Form) -> None:
    with pytest.raises(ra.RedalgError, match="schedule"):
        form.compile(schedule="split-k")
