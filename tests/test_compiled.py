"""`form.compile`: one callable, its source, what it refuses."""

from __future__ import annotations

import ast
import pickle

import numpy as np
import pytest

import redalg as ra
from redalg.derive import derive_plan


@pytest.fixture(scope="module")
def form() -> ra.Form:
    return ra.derive_incremental(ra.catalog["variance"], axis="j")


def test_a_run_gives_what_the_definition_gives(form: ra.Form) -> None:
    x = np.random.default_rng(0).normal(size=(3, 100)).astype(np.float32)
    run = form.compile("numpy")
    assert run.target == "numpy"
    np.testing.assert_allclose(run(x=x), ra.reference(form.spec, x=x), rtol=1e-6)


def test_out_receives_the_result(form: ra.Form) -> None:
    x, out = np.arange(12.0).reshape(3, 4), np.empty(3)
    assert form.compile("numpy")(x=x, out=out) is out
    np.testing.assert_array_equal(out, form.compile("numpy")(x=x))


def test_an_out_that_does_not_fit_is_refused_and_left_as_it_was(form: ra.Form) -> None:
    x, read_only = np.arange(12.0).reshape(3, 4), np.zeros(3)
    read_only.flags.writeable = False
    for out in ([0.0, 0.0, 0.0], np.zeros(4), np.zeros(3, np.float32), read_only, {"other": np.zeros(3)}):
        with pytest.raises(ra.RedalgError) as caught:
            form.compile("numpy")(x=x, out=out)
        assert caught.value.what.startswith("out") and caught.value.why and caught.value.fix
    assert not read_only.any()


def test_a_deterministic_run_is_another_schedule(form: ra.Form) -> None:
    x = np.random.default_rng(0).normal(size=(3, 100))
    run = form.compile("numpy", deterministic=True)
    assert run.schedule != form.compile("numpy").schedule
    np.testing.assert_allclose(run(x=x), form.compile("numpy")(x=x), rtol=1e-12)


NAMES = ("attention_causal", "layer_norm", "moe_renormalised", "splade", "fp8_per_token_gemm", "boltzmann_average")


@pytest.mark.parametrize("name", NAMES)
def test_the_listing_has_a_function_for_every_program(name: str) -> None:
    entry = ra.catalog.entry(name)
    listing = ra.derive_incremental(entry.spec, axis=entry.axis, max_passes=2).compile("numpy").listing
    functions = [f.name for f in ast.parse(listing).body if isinstance(f, ast.FunctionDef)]
    assert functions[0].startswith("lift") and functions[-1] in ("finalize", "apply")


@pytest.mark.parametrize("name", ra.catalog)
def test_the_source_is_a_program_that_gives_the_definition(name: str) -> None:
    entry = ra.catalog.entry(name)
    try:
        form = ra.Form(entry.spec, derive_plan(entry.spec, axis=entry.axis, max_passes=3))
    except ra.NotDecomposable:
        return
    program: dict[str, object] = {}
    exec(form.compile("numpy").source, program)
    arrays = entry.sample(2)
    with np.errstate(all="ignore"):
        found = program["run"](*(np.asarray(arrays[t.name]) for t in entry.spec.tensors), block=3)  # type: ignore[operator]
    expected = ra.reference(entry.spec, **arrays)
    found, expected = (v if isinstance(v, dict) else {"": v} for v in (found, expected))
    for output, value in expected.items():
        np.testing.assert_allclose(found[output], value, rtol=1e-9, atol=1e-9)


def test_the_source_calls_a_users_monoid() -> None:
    x, y = ra.tensors("x[i,j] y[i,j]")
    affine = ra.Monoid("affine", lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (1, 0))
    slope, offset = ra.reduce((x, y), "j", monoid=affine)
    form = ra.derive_incremental(ra.Spec(slope=slope, offset=offset))
    program: dict[str, object] = {}
    exec(form.compile("numpy").source, program)
    arrays = {"x": np.array([[0.5, 2.0, 3.0]]), "y": np.array([[1.0, -1.0, 4.0]])}
    found = program["run"](**arrays, block=2)  # type: ignore[operator]
    for output, value in ra.reference(form.spec, **arrays).items():
        np.testing.assert_allclose(found[output], value)


def test_explain_says_where_it_runs(form: ra.Form) -> None:
    assert form.explain().rstrip() in form.compile("numpy").explain() and "numpy" in form.compile("numpy").explain()


def test_a_run_pickles(form: ra.Form) -> None:
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(form.compile("numpy")))(x=x), form.compile("numpy")(x=x))


@pytest.mark.parametrize("arguments", [{"stream": 1}, {"y": 1.0}, {}])
def test_what_does_not_fit_is_refused(form: ra.Form, arguments: dict[str, object]) -> None:
    with pytest.raises(ra.RedalgError):
        form.compile("numpy")(**arguments)


def test_an_unknown_schedule_is_refused(form: ra.Form) -> None:
    with pytest.raises(ra.RedalgError, match="schedule"):
        form.compile("numpy", schedule="split-k")
