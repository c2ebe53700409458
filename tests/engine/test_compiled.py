"""`form.compile`: one callable, its source, what it refuses."""

from __future__ import annotations

import itertools
import pickle
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.engine.passes import derive_plan
from redalg.run import OnHost
from redalg.testing.generator import generate
from tests.support.forms import form_of_text
from tests.support.profiles import examples
from tests.support.sample import by_name


@pytest.fixture(scope="module")
def form() -> ra.Form:
    return ra.derive_incremental(ra.catalog["variance"], axis="j")


def test_a_run_gives_what_the_definition_gives(form: ra.Form) -> None:
    x = np.random.default_rng(0).normal(size=(3, 100)).astype(np.float32)
    run = form.compile("numpy")
    assert run.target == "numpy"
    np.testing.assert_allclose(run(x=x), ra.reference(form.spec, x=x), rtol=1e-6)


@pytest.mark.parametrize("axes", ["c,d", "j,c", "j,c,d"])
@pytest.mark.parametrize("kind", ["sum", "prod", "mean", "max", "norm"])
def test_axes_of_every_short_length_reduced_at_once(kind: str, axes: str) -> None:
    spec = ra.parse(f"s = {kind}[{axes}](x[i,j,c,d]*w[j,c]); return y = x[i,j,c,d] - s, t = s")
    run = ra.derive_incremental(spec, tuple(axes.split(","))).compile("numpy")
    for i, j, c, d in itertools.product([0, 1, 2], repeat=4):
        arrays = {"x": np.ones((i, j, c, d)), "w": np.ones((j, c))}
        with np.errstate(all="ignore"):
            expected, found = ra.reference(spec, **arrays), run(**arrays)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-12, strict=True)


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


@by_name()
def test_the_source_alone_gives_the_bits_of_a_run(name: str) -> None:
    entry = ra.catalog.entry(name)
    try:
        form = ra.Form(entry.spec, derive_plan(entry.spec, axis=entry.axis, max_passes=3))
    except ra.NotDecomposable:
        return
    arrays = entry.sample(2)
    same_bits(form, arrays)
    expected = outputs(ra.reference(entry.spec, **arrays))
    for output, value in outputs(program(form)(*(arrays[t.name] for t in entry.spec.tensors), block=3)).items():
        np.testing.assert_allclose(value, expected[output], rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 1 << 20), length=st.integers(1, 40), sort=st.sampled_from(["", "ties", "huge", "infinite"]))
@examples(12)
def test_the_source_of_a_generated_spec_gives_the_bits_of_a_run(seed: int, length: int, sort: str) -> None:
    drawn = generate(seed)
    if drawn.expected != "derived":
        return
    form, rng = ra.derive_incremental(drawn.spec, axis="j"), np.random.default_rng(seed)
    lengths = {a: length if a == "j" else 2 for a in drawn.spec.axes}
    arrays = {}
    for t in drawn.spec.tensors:
        x = rng.normal(size=[lengths[a] for a in t.axes])
        x = np.abs(x) + 0.1 if t.domain & {"positive", "nonnegative"} else np.round(x) if sort == "ties" else x
        x = rng.integers(0, 3, x.shape) if "integer" in t.domain else x > 0 if "bool" in t.domain else x
        if x.dtype == np.float64 and sort == "huge":
            x *= 1e307
        if x.dtype == np.float64 and x.ndim and sort == "infinite":
            x.flat[rng.integers(x.size)] = np.inf
        arrays[t.name] = x if t.axes else x.item()
    same_bits(form, arrays)


def same_bits(form: ra.Form, arrays: Mapping[str, Any]) -> None:
    run = form.compile("numpy")
    with np.errstate(all="ignore"):
        found, wanted = outputs(program(form)(*(arrays[t.name] for t in form.spec.tensors))), outputs(run(**arrays))
    for name, value in wanted.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert found[name].tobytes() == value.tobytes(), (name, found[name], value)


def program(form: ra.Form) -> Callable[..., Any]:
    """The printed source in a namespace of its own."""
    namespace: dict[str, Any] = {}
    exec(form.compile("numpy").source, namespace)
    return namespace["run"]  # type: ignore[no-any-return]


def outputs(found: Any) -> dict[str, np.ndarray]:
    return found if isinstance(found, dict) else {"": found}


def test_tracebacks_show_the_lines_that_run(form: ra.Form) -> None:
    acc = form.accumulator()
    acc.update(x=np.ones((2, 3)))
    tape = acc._engine(acc._machine(acc._now.dtypes)).program.block
    with pytest.raises(TypeError) as caught:
        tape.call(*[None] * (len(tape.keys) + len(tape.lengths)))
    lines = traceback.format_exception(caught.value)
    assert any("t1 = entered(" in line for line in lines)


@pytest.mark.parametrize("asked", ["any", "all"])
@pytest.mark.parametrize("relation", ["<", ">"])
def test_the_source_compares_as_the_definition_does_where_elements_are_nan(asked: str, relation: str) -> None:
    form = ra.derive_incremental(ra.parse(f"return y = {asked}[j](x[i,j] {relation} sum[j](w[j]))"))
    run = program(form)
    x = np.array([*itertools.product((-1.0, 0.0, 2.0, np.inf, -np.inf, np.nan), repeat=3)])
    for w in (np.zeros(3), np.full(3, np.inf), np.full(3, -np.inf), np.full(3, np.nan)):
        want = ra.reference(form.spec, x=x, w=w)
        for block in (1, 2, 3):
            np.testing.assert_array_equal(run(x=x, w=w, block=block), want)


def test_the_source_calls_a_users_monoid() -> None:
    x, y = ra.tensors("x[i,j] y[i,j]")
    affine = ra.Monoid("affine", lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (1, 0))
    slope, offset = ra.reduce((x, y), "j", monoid=affine)
    form = ra.derive_incremental(ra.Spec(slope=slope, offset=offset))
    arrays = {"x": np.array([[0.5, 2.0, 3.0]]), "y": np.array([[1.0, -1.0, 4.0]])}
    found = program(form)(**arrays, block=2)
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


def test_where_kernels_and_numpy_refuse_a_call_both_reasons_are_told() -> None:
    form = form_of_text("return y = topk[j:2:t](x[i,j]).values - x[i,j]")
    run = OnHost(form)
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(run(x=x), ra.reference(form.spec, x=x))  # kernels write no list for every element
    with pytest.raises(ra.RedalgError, match="dimensions") as refused:
        OnHost(form)(x=x[0])
    assert not getattr(refused.value, "__notes__", [])  # one reason
    products = form_of_text("v = topk[j:2:t](x[i,j]).values; return y = v*x[i,j]**2")
    with pytest.raises(ra.RedalgError, match="beyond int64") as refused:
        OnHost(products)(x=np.full((1, 2), 2**62))
    assert "along t and the streamed axis" in refused.value.__notes__[0]
