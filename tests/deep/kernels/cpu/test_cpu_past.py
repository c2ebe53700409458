"""Results that go to memory past the caches: the definition, the same bits as by way of the caches, and no others."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redalg as ra
from redalg.kernels.cpu import memory as cpu_memory
from redalg.kernels.cpu import plan as cpu_plan
from redalg.kernels.cpu import schedule as cpu_schedule
from redalg.kernels.cpu import walk as cpu_walk
from redalg.kernels.cpu.schedule import PAST, STRIPE, past_caches
from redalg.kernels.programs import lower
from tests.support.assembly import vectorised
from tests.support.cpu_cases import agree
from tests.support.forms import form_of

X, B = ra.tensors("x[i,j] b[j]")
SPECS = {
    "map": ra.Spec(y=ra.log(ra.maximum(X + B, 0) + 1)),
    "two": ra.Spec(y=ra.exp(X - ra.max(X, "j")), z=2 * X, s=ra.sum(X, "j")),
    "columns alone": ra.Spec(y=X * B, z=B + 1),
    "positions": ra.Spec(y=X + ra.index("j")),
    "quantised": ra.Spec(q=ra.cast(100 * X / ra.max(abs(X), "j"), "int8"), half=ra.cast(X, "float16")),
}
MAPS = ("map", "columns alone", "positions")  # nothing is reduced
NAMES = ["softmax", "log_softmax", "layer_norm", "max_abs_scaling", *SPECS]
LENGTHS = [1, 15, 16, 17, 63, 65, 1000, STRIPE - 1, STRIPE, STRIPE + 1, 2 * STRIPE + 7, 9001]


def made(name: str) -> Any:
    axis = None if name in MAPS else "j"
    return ra.derive_incremental(SPECS[name], axis=axis, max_passes=2) if name in SPECS else form_of(name)


def drawn(form: Any, rows: int, length: int, dtype: Any = np.float32) -> dict[str, Any]:
    rng, sizes = np.random.default_rng(length), {"i": rows, "j": length}
    return {
        t.name: rng.standard_normal([sizes[a] for a in t.axes]).astype(dtype) if t.axes else 1e-5
        for t in form.spec.tensors
    }


def both(monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any]) -> list[Any]:
    """Results past the caches and by way of them."""
    found = []
    for past in (True, False):
        monkeypatch.setattr(cpu_plan, "past_caches", lambda *_, past=past: past)
        found.append(call())
    return found


def named(found: Any) -> dict[str, np.ndarray]:
    return found if isinstance(found, dict) else {"": found}


@pytest.mark.parametrize("schedule", [None, "rows", "split"])
@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_and_the_definition(name: str, schedule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_walk, "SHARE", 1e-3)
    monkeypatch.setenv("REDALG_THREADS", "3")
    monkeypatch.setattr(cpu_schedule, "SPAN", 1500)
    form = made(name)
    for length in LENGTHS:
        arrays = drawn(form, 5, length)
        past, plain = both(monkeypatch, lambda arrays=arrays: form.compile("cpu", schedule=schedule)(**arrays))
        for key, value in named(past).items():
            np.testing.assert_array_equal(value.view(np.uint8), named(plain)[key].view(np.uint8))
        if name != "quantised":  # a half may be rounded to the other side
            agree(form.spec, past, arrays, 2.0**-24)


def test_nothing_beside_the_result_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that start anywhere in a line, with steps, and backwards."""
    form = form_of("softmax")
    monkeypatch.setattr(cpu_plan, "past_caches", lambda *_: True)
    for length in (1, 40, 1030):
        arrays = drawn(form, 3, length)
        true = ra.reference(form.spec, **arrays)
        for first in (0, 1, 15, 16):
            for step in (1, 2, -1):
                room = np.full((3, 16 + 2 * length + 40), 7.0, np.float32)
                view = room[:, first : first + abs(step) * length : abs(step)][:, :: -1 if step < 0 else 1]
                assert view.shape == (3, length)
                form.compile("cpu")(**arrays, out=view)
                np.testing.assert_allclose(view, true, rtol=1e-5)
                view[...] = 7
                assert (room == 7).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int32], ids=str)
def test_every_width_of_an_element(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    form = ra.derive_incremental(ra.Spec(y=X - ra.max(X, "j")), axis="j", max_passes=2)
    for length in (1, 31, 33, 1500):
        arrays = drawn(form, 4, length, np.float32)
        arrays["x"] = (8 * arrays["x"]).astype(dtype)
        past, plain = both(monkeypatch, lambda arrays=arrays: form.compile("cpu")(**arrays))
        np.testing.assert_array_equal(past.view(np.uint8), plain.view(np.uint8))
        wide = arrays["x"].astype(np.float64)
        np.testing.assert_allclose(past.astype(np.float64), wide - wide.max(1, keepdims=True), rtol=2.0**-8)


def test_large_results_alone_go_there() -> None:
    program = lower(form_of("softmax"), {"x": "float32"})
    rows = PAST // (4 * 4096)
    assert past_caches(program, {"i": rows, "j": 4096}) and not past_caches(program, {"i": rows - 1, "j": 4096})
    assert not past_caches(program, {"i": PAST, "j": STRIPE // 4 - 1})  # rows of few lines
    assert not past_caches(lower(form_of("logsumexp"), {"x": "float32"}), {"i": rows, "j": 4096})


def test_a_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    form = form_of("softmax")
    for past, word in zip(both(monkeypatch, lambda: _told(form)), (True, False), strict=True):
        schedule, source = past
        assert ("past the caches" in schedule) == ("stream_float32" in source) == ("drained()" in source) == word


def _told(form: Any) -> tuple[str, str]:
    run = form.compile("cpu")
    run(**drawn(form, 2, 300))
    return run.schedule, run.source


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the name of the instruction is that of x86-64")
def test_the_instruction_is_there() -> None:
    from numba import njit

    stream, pointer = cpu_memory.stream_float32, cpu_memory.pointer_float32

    @njit
    def moved(target: Any, source: Any, count: Any) -> None:
        stream(pointer(target), 0, 1, pointer(source), count)

    vectorised(moved, "void(int64, int64, int64)", r"v?movnt")
