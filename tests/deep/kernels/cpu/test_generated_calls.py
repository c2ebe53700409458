"""Generated specs, shapes, strides and dtypes against the definition, on every target, within derived bounds."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.errors import RedalgError
from redalg.kernels.cpu.schedule import FAMILIES as CPU_FAMILIES
from redalg.kernels.ir.schedule import FAMILIES
from tests.support.generated_calls import FLOATS, LENGTHS, Call, calls, laid, strides
from tests.support.profiles import examples
from tests.support.simulated import run as simulated


@examples(20)
@given(call=calls(host=True), deterministic=st.booleans())
def test_numpy(call: Call, deterministic: bool) -> None:
    call.check(call.form.compile("numpy", deterministic=deterministic)(**call.arrays))


@examples(8)
@given(call=calls(host=True), schedule=st.sampled_from((None, *CPU_FAMILIES)))
def test_cpu(call: Call, schedule: str | None) -> None:
    call.check(call.form.compile("cpu", schedule=schedule)(**call.arrays))


@examples(16)
@given(
    call=calls(),
    schedule=st.sampled_from((None, *FAMILIES)),
    order=st.none() | st.integers(0, 99),
    deterministic=st.booleans(),
)
def test_the_simulated_gpu(call: Call, schedule: str | None, order: int | None, deterministic: bool) -> None:
    """Threads and blocks run in a shuffled order; an access outside an array ends the simulation."""
    try:
        found, _, _ = simulated(call.form, call.arrays, schedule, order, deterministic)
    except RedalgError as refusal:
        if refusal.where != "schedule=":  # which is not legal for these arrays
            raise
        found, _, _ = simulated(call.form, call.arrays, None, order, deterministic)
    call.check(found)


@pytest.mark.gpu
@pytest.mark.skipif(not find_spec("torch"), reason="PyTorch cannot be imported here")
@examples(30)
@given(call=calls(), deterministic=st.booleans())
def test_the_gpu(call: Call, deterministic: bool) -> None:
    """Tensors of PyTorch that lie as the arrays do, strides below zero apart, which it lacks."""
    given = {name: on_gpu(a) for name, a in call.arrays.items()}
    before = {name: t.clone() for name, t in given.items()}
    found = call.form.compile("cuda", deterministic=deterministic)(**given)
    results = found if isinstance(found, dict) else {next(iter(call.spec.outputs)): found}
    # Where all tensors have 16 bits, exponentials may be off by 2.5 + 1.23·|x| units instead of 4 (`gpu_accuracy`).
    call.check({name: of_gpu(t) for name, t in results.items()}, tolerance=8)
    assert all(bool((given[name] == before[name]).all()) for name in given)


def on_gpu(a: np.ndarray) -> Any:
    import torch

    kind = getattr(torch, a.dtype.name)
    steps = [abs(s) // a.itemsize for s in a.strides]
    room = 1 + sum(s * (n - 1) for s, n in zip(steps, a.shape, strict=True) if n)
    made = torch.full((max(1, room + 8),), 7, device="cuda").to(kind).as_strided(a.shape, steps, 3)
    for index in np.ndindex(a.shape):  # elements that share a place are equal
        made[index] = a[index].item() if a.dtype.name in ("bool", "int8", "int32", "int64") else float(a[index])
    return made


def of_gpu(t: Any) -> np.ndarray:
    narrow = str(t.dtype) == "torch.bfloat16"
    if not narrow:
        return np.asarray(t.cpu().numpy())
    import ml_dtypes

    return np.asarray(t.float().cpu().numpy()).astype(ml_dtypes.bfloat16)


# --- what is drawn ---------------------------------------------------------------------------------------------------


@examples(60)
@given(data=st.data(), rows=st.sampled_from(LENGTHS["i"]), length=st.sampled_from((0, *LENGTHS["j"])))
def test_an_array_lies_as_its_strides_say_and_nothing_else_is_read(data: Any, rows: int, length: int) -> None:
    step, before = data.draw(strides((rows, length)))
    a = laid(np.arange(rows * length, dtype=float).reshape(rows, length) + 100, step, before)
    assert tuple(s // 8 for s in a.strides) == step or 0 in a.shape or 1 in a.shape
    assert (a >= 100).all()
    if 0 not in step:
        assert np.unique(a).size == a.size


def test_what_is_drawn_reaches_every_stride_and_dtype() -> None:
    """Of the calls drawn here some have an array that is turned, one backwards, one repeated, and each dtype."""
    seen: set[str] = set()

    @examples(60, database=None)
    @given(call=calls())
    def look(call: Call) -> None:
        for a in call.arrays.values():
            live = [s for s, n in zip(a.strides, a.shape, strict=True) if n > 1]
            seen.add(a.dtype.name)
            seen.update(
                w
                for w, holds in {
                    "backwards": any(s < 0 for s in live),
                    "repeated": 0 in live,
                    "turned": len(live) == 2 and 0 < live[0] < live[1],
                    "gaps": bool(live) and min(live) > a.itemsize,
                }.items()
                if holds
            )
        seen.update("named as a tensor" for n in call.spec.outputs if n in call.arrays)
        seen.update("kept" for o in call.form.plan.outputs if o.keeps_axis)

    look()
    assert seen >= {*FLOATS, "int8", "bool", "backwards", "repeated", "turned", "gaps", "named as a tensor", "kept"}
