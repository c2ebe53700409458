"""Kernels in steps that share sums along innermost axes, by emulation: against the definitions, and bit by bit."""

from __future__ import annotations

import sys
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.kernels import steps
from redalg.kernels.cuda import run as cuda_run
from redalg.kernels.cuda.joint import JointRun
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.launch import driver
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.match import Outside
from tests.support.chain_cases import emulated
from tests.support.gpu_standins import BASE, HostMemory, Tensor
from tests.support.profiles import examples
from tests.support.step_cases import SPECS, drawn, dtypes_of, plan_of, steps_of, truth

UNIT = {"float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-11}
FLOATS = [name for name in SPECS if name != "kept apart"]


def bound(kind: str, arrays: dict[str, Any], value: np.ndarray) -> float:
    """One rounding of the result, and of as many terms as there are in float32, whose partial sums are at most the
    number of terms times the product of the two largest factors of each."""
    number = arrays["grad_y"].size
    factors = np.prod([np.max(np.abs(arrays[n]), initial=1.0) for n in arrays if n in ("x", "w", "grad_y")])
    terms = 64 * UNIT["float32"] * np.sqrt(number) * factors
    return float(UNIT[kind] * np.max(np.abs(value), initial=1.0) + terms)


@st.composite
def calls(draw: Any) -> tuple[str, int, dict[str, int], str]:
    name = draw(st.sampled_from(FLOATS))
    sizes = {"n": draw(st.integers(1, 4)), "g": draw(st.integers(1, 3)), "c": draw(st.integers(1, 3))}
    sizes["k"] = draw(st.sampled_from([1, 2, 31, 33]) | st.integers(1, 40))
    return name, draw(st.integers(0, len(steps_of(name).ways) - 1)), sizes, draw(st.sampled_from(sorted(UNIT)))


@examples(8)
@given(calls(), st.integers(0, 3))
def test_steps_are_the_definitions(call: Any, seed: int) -> None:
    name, way, sizes, kind = call
    made, arrays = plan_of(name, sizes, kind, {}, way), drawn(name, sizes, kind, seed)
    found, expected = emulated(made, arrays, seed), truth(name, arrays)
    assert set(found) == set(expected)
    for output, value in expected.items():
        error = np.max(np.abs(found[output] - value), initial=0.0)
        assert error <= bound(kind, arrays, value), (output, error)


@pytest.mark.parametrize("name", FLOATS)
def test_a_step_begins_early_that_reads_nothing_of_those_that_run(name: str) -> None:
    """It ends after what it may have overtaken; any other begins when all before it have ended."""
    for way in range(len(steps_of(name).ways)):
        made = plan_of(name, {"n": 3, "g": 2, "c": 3, "k": 64}, "float32", {}, way)
        every, running = [*made.before, made], set[str]()
        for number, one in enumerate(every):
            reads = {o.name for o in one.program.operands}
            early = "kernel_before_wait()" in one.module.source
            assert early == bool(running and running.isdisjoint(reads)), (name, way, number)
            assert early or not one.geometry.early
            assert not number or early == ("kernel_behind_launch()" in every[number - 1].module.source)
            forms = steps_of(name).stepwise(way)
            running = {*forms[number].spec.outputs} | (running if early else set())


def test_sums_do_not_depend_on_who_comes_first() -> None:
    sizes = {"n": 3, "g": 2, "c": 3, "k": 35}
    made, arrays = plan_of("group norm", sizes, schedule={}), drawn("group norm", sizes)
    first = emulated(made, arrays, 1)
    assert all((first[n] == x).all() for n, x in emulated(made, arrays, 2).items())


@pytest.mark.parametrize("special", [np.inf, np.nan])
def test_special_values_stay_where_they_are(special: float) -> None:
    sizes = {"n": 2, "g": 2, "c": 2, "k": 33}
    arrays = drawn("group norm", sizes)
    arrays["grad_y"][1, 0, 1, 32] = special
    found = emulated(plan_of("group norm", sizes, schedule={}), arrays)
    with np.errstate(all="ignore"):
        expected = truth("group norm", arrays)
    for output, value in expected.items():
        np.testing.assert_array_equal(np.isfinite(found[output]), np.isfinite(value))
        fine = np.isfinite(value)
        np.testing.assert_allclose(found[output][fine], value[fine], rtol=1e-4, atol=1e-4)


def test_the_faster_way_is_taken_and_told() -> None:
    sizes = {"n": 8, "g": 32, "c": 16, "k": 4096}
    made = plan_of("group norm", sizes, "float16")
    assert "4 kernels in steps for grad_x, grad_w, grad_b" in made.choice.reasons[0]
    assert made.choice.seconds < 3e-4 and {r.name for r in made.program.results} == {"grad_x", "grad_w", "grad_b"}
    moved = sum(step.choice.bytes for step in (*made.before, made))
    assert moved <= 1.02 * 5 * 2 * np.prod([*sizes.values()])  # two tensors read twice, one written


def test_one_channel_in_a_group_takes_one_reading() -> None:
    """Axes of length 1 are left out, whatever their place; what is added along the others is what a row adds."""
    for sizes in ({"n": 909, "g": 32, "c": 1, "k": 885}, {"n": 79827, "g": 1, "c": 1, "k": 193}):
        made = plan_of("group norm", sizes, "bfloat16")
        assert len(made.before) == 1 and all(step.program.results for step in (made, *made.before))
        moved = sum(step.choice.bytes for step in (*made.before, made))
        assert moved <= 1.1 * 3 * 2 * np.prod([*sizes.values()])  # two tensors read and one written
        assert all(made.shapes[n] == (sizes["g"], 1) for n in ("grad_w", "grad_b"))


def test_one_reading_where_rows_are_held() -> None:
    """Weights of channels of few short rows; long ones go in steps."""
    short, long = ({"n": 512, "c": 8, "k": 16}, {"n": 32, "c": 96, "k": 3136})
    assert plan_of("channels", short, "float16").choice.reasons[0].startswith("one reading")
    assert "kernels in steps" in plan_of("channels", long, "float16").choice.reasons[0]


def test_what_is_not_done_in_steps_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Outside, match="no elements"):
        plan_of("group norm", {"n": 0, "g": 2, "c": 2, "k": 4})
    monkeypatch.setattr(steps, "EARLIER", 0.0)  # kernels that cost as much behind another one as alone
    with pytest.raises(Outside, match="one after the other"):
        plan_of("group norm", {"n": 2, "g": 2, "c": 2, "k": 8})
    with pytest.raises(Outside, match="other numbers"):
        plan_of("kept apart", {"n": 2, "c": 2, "k": 8})


@pytest.mark.parametrize("sizes, launches", [((8, 32, 16, 4096), 4), ((909, 32, 1, 885), 2)])
def test_a_call_hands_every_launch_what_it_takes(
    sizes: tuple[int, ...], launches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later launches read what earlier ones wrote, each of its own memory; strides and lengths are all there."""
    made: list[dict[tuple[str, str], int]] = []

    def launch(module: Any, cc: Any, limit: Any, geometry: Any, fixed: Any) -> Any:
        changing = [p for p in module.params if p.role in driver.CHANGING]
        assert all((p.role, p.name, p.dim) in fixed for p in module.params if p not in changing)
        names = [(p.role, p.name) for p in changing]
        return lambda values, stream: made.append(dict(zip(names, values, strict=True)))

    taken = count(BASE, 1 << 24)
    monkeypatch.setattr(driver, "require", lambda: None)
    monkeypatch.setattr(driver, "activate", lambda device: None)
    monkeypatch.setattr(driver, "target_of", lambda device: H200)
    monkeypatch.setattr(cuda_run, "Launch", launch)
    monkeypatch.setattr("redalg.kernels.cuda.marks.Pinned", HostMemory)
    streams, names = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 7), {n: n for n in STORAGE}
    empty = SimpleNamespace(empty=lambda shape, dtype, device: Tensor(tuple(shape), dtype, at=next(taken)))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(empty=empty.empty, _C=streams, **names))  # type: ignore[arg-type]
    lengths, steps = dict(zip("ngck", sizes, strict=True)), steps_of("group norm")
    dtypes = dtypes_of(steps, "float16")
    given = {
        t.name: Tensor(tuple(lengths[a] for a in t.axes), dtypes[t.name], at=next(taken)) for t in steps.spec.tensors
    }
    run = JointRun(steps)
    found = run(**given)
    assert len(made) == launches and "in steps" in run.explain()
    assert found["grad_x"].shape == sizes and found["grad_w"].shape == sizes[1:3]
    known = {n: a.at for n, a in given.items()}
    for one in made:
        assert all(known[name] == at for (role, name), at in one.items() if role == "operand")
        known |= {name: at for (role, name), at in one.items() if role == "result"}
    assert {n: a.at for n, a in found.items()} == {n: known[n] for n in ("grad_x", "grad_w", "grad_b")}
    assert len(set(known.values())) == len(known)
