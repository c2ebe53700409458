"""Results on a GPU in the caller's arrays: what overlaps is computed elsewhere, what may stay in place is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cuda.counters import Counters
from redalg.kernels.cuda.out import Receiving
from redalg.kernels.cuda.run import CudaRun
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.one_hot import gathered
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.launch import driver
from redalg.kernels.launch.arrays import NUMPY, TORCH
from redalg.kernels.launch.in_place import in_place
from redalg.kernels.pipeline import plan
from redalg.kernels.programs import lower
from redalg.kernels.schedule.target import H200
from tests.support.gpu_standins import BASE, MADE, Tensor, launches_of_nothing, tensor
from tests.support.profiles import examples
from tests.support.simulated import run as simulated

CELLS = 96  # that operands and results lie in, of 4 bytes


def receiving(views: dict[str, View], shapes: list[tuple[int, ...]], over: Any = None, dtype: str = "float32") -> Any:
    outputs = [(f"r{k}", shape, dtype) for k, shape in enumerate(shapes)]
    return Receiving(TORCH, 0, outputs, views, dict.fromkeys(views, 4), {n: k for k, n in enumerate(views)}, over or {})


def cells(first: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> set[int]:
    return {first + sum(s * k for s, k in zip(strides, index, strict=True)) for index in np.ndindex(shape)}


@st.composite
def operands(draw: Any) -> tuple[int, View]:
    shape = draw(st.sampled_from(((4, 6), (6, 4), (3,), (5, 0), ())))
    strides = tuple(draw(st.sampled_from((0, 1, 2, 4, 6, -1, -6, 7))) for _ in shape)
    return draw(st.integers(36, 60)), View(shape, strides)


@examples(150)
@given(given=st.lists(operands(), min_size=1, max_size=3), at=st.integers(0, 90), rows=st.integers(0, 5))
def test_no_result_overwrites_what_is_read(given: list[Any], at: int, rows: int) -> None:
    """Whether operands share a cell with the result is found by listing all cells of both."""
    views = {f"x{k}": view for k, (_, view) in enumerate(given)}
    held = [Tensor(v.shape, "float32", v.strides, BASE + 4 * first) for first, v in given]
    target = Tensor((rows, 4), at=BASE + 4 * at)
    found = receiving(views, [(rows, 4)]).elsewhere(held, [target])
    mine = set(range(at, at + 4 * rows))
    beneath = [mine & cells(first, v.shape, v.strides) for first, v in given]
    if any(beneath):
        assert found == [0]
    bounds = [cells(first, v.shape, v.strides) for first, v in given]
    if not any(c and mine and min(c) <= max(mine) and min(mine) <= max(c) for c in bounds):
        assert found == []


def test_the_same_view_stays_where_the_kernel_allows_it() -> None:
    same, turned = View((4, 6), (6, 1)), View((4, 6), (1, 4))
    x, over = Tensor((4, 6)), {"r0": frozenset({"x"})}
    assert receiving({"x": same}, [(4, 6)], over).elsewhere([x], [x]) == []
    assert receiving({"x": same}, [(4, 6)]).elsewhere([x], [x]) == [0]
    assert receiving({"x": turned}, [(4, 6)], over).elsewhere([x], [x]) == [0]
    assert receiving({"x": same}, [(4, 6)], over).elsewhere([x], [Tensor((4, 6), at=BASE + 16)]) == [0]
    assert receiving({"x": same}, [(4, 6)], over, "bfloat16").elsewhere([x], [x]) == [0]
    both = receiving({"x": same, "w": same}, [(4, 6)], over)
    assert both.elsewhere([x, x], [x]) == [0] and both.elsewhere([x, Tensor((4, 6), at=BASE + 96)], [x]) == []


def test_results_that_overlap_each_other_are_refused() -> None:
    r = receiving({"x": View((4, 6), (6, 1))}, [(8,), (8,)])
    first = Tensor((8,))
    for other, fine in ((first, False), (Tensor((8,), at=BASE + 16), False), (Tensor((8,), at=BASE + 32), True)):
        if fine:
            assert r.checked({"r0": first, "r1": other}) == [first, other]
        else:
            with pytest.raises(RedalgError, match="r0 and out for r1"):
                r.checked({"r0": first, "r1": other})
    with pytest.raises(RedalgError, match="contiguous"):
        r.checked({"r0": Tensor((8,), strides=(0,)), "r1": first})
    host = Receiving(NUMPY, 0, [("a", (8,), "float32"), ("b", (8,), "float32")], {}, {}, {}, {})
    room = np.zeros(12, np.float32)
    with pytest.raises(RedalgError, match="out for a and out for b"):
        host.checked({"a": room[:8], "b": room[4:]})
    with pytest.raises(RedalgError, match="strides"):
        host.checked({"a": np.lib.stride_tricks.as_strided(room, (8,), (0,)), "b": room[4:].copy()})


# --- in place ---------------------------------------------------------------------------------------------------------

FORMS = {
    "softmax": ra.catalog["softmax"],
    "map": ra.parse("return y = x[i,j] * 2 - v[i]"),
    "weights": ra.parse("m = mean[j](x[i,j]); return y = (x[i,j] - m) * w[j]"),
    "total": ra.parse("s = sum[j](x[i,j]); y = x[i,j] / s; return s, y"),
}
NOT = {
    "two kept": "m = max[j](x[i,j]); a = x[i,j] - m; b = x[i,j] + m; return a, b",
    "rows": "return s = sum[j](x[i,j])",
    "turned": "order",
    "pointed": "return y = x[i,j] - max[j](x[i,j]) - sum[j](where(index(j) == t[i], x[i,j], 0))",
    "one for all rows": "return y = w[j] - max[j](x[i,j])",
}
SCHEDULES = [
    None,
    Schedule(32, 1, 1, 2, resident=True),
    Schedule(32, 1, 1, 2),
    Schedule(64, 2, 1, 4),
    Schedule(32, 1, 4, 4, persistent=True),
    "thread",
    "warp",
    "block",
    "cluster",
    "column",
    "split",
]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_kernels_in_place(name: str, schedule: Any) -> None:
    """Emulation gives result and operand one memory, and lets threads and blocks run in any order."""
    form = ra.derive_incremental(FORMS[name])
    rng = np.random.default_rng(1)
    shapes = {t.name: [{"i": 5, "j": 64}[a] for a in t.axes] for t in form.spec.tensors}
    arrays = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    try:
        apart, planned, _ = simulated(form, arrays, schedule)
    except RedalgError as refusal:
        assert refusal.where == "schedule="
        return
    assert planned.over["y"] >= {"x"}
    for seed in range(2):
        mine = {n: a.copy() for n, a in arrays.items()}
        found, _, _ = simulated(form, mine, schedule, seed, over={"y": "x"})
        assert found["y"] is mine["x"]
        for n in found:
            np.testing.assert_array_equal(found[n], apart[n])


@pytest.mark.parametrize("name", NOT)
def test_what_looks_elsewhere_does_not_stay_in_place(name: str) -> None:
    x = ra.tensors("x[i,j]")
    spec = ra.Spec(y=x - ra.max(x, "j"), order={"y": "j i"}) if NOT[name] == "order" else ra.parse(NOT[name])
    form = ra.derive_incremental(spec, axis="j")
    dtypes = {t.name: "int64" if t.name == "t" else "float32" for t in spec.tensors}
    assert not any(in_place(gathered(lower(form, dtypes))).values())


def test_kernels_on_tensor_cores_are_never_in_place() -> None:
    form = ra.derive_incremental(ra.catalog["attention"])
    sizes = {"h": 2, "i": 4096, "j": 4096, "d": 64, "e": 64}
    shapes = {t.name: tuple(sizes[a] for a in t.axes) for t in form.spec.tensors}
    views = {n: View.contiguous(shape) for n, shape in shapes.items() if shape}
    planned = plan(form, {n: "bfloat16" if shape else float for n, shape in shapes.items()}, views, H200)
    assert "tensor cores" in "\n".join(planned.choice.reasons) and not planned.over


# --- what is launched -------------------------------------------------------------------------------------------------

ROWS = ra.derive_incremental(ra.parse("return s = sum[j](x[i,j])"))


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return launches_of_nothing(monkeypatch)


def test_integers_outside_int64_are_refused_after_others_too(one_gpu: list[Any]) -> None:
    run = CudaRun(ra.derive_incremental(ra.parse("tensors x[i,j], c; return y = c * sum[j](x[i,j])")))
    for c in (2, 2**63 - 1, -(2**63)):
        run(x=tensor(), c=c)
    for c in (2**63, -(2**63) - 1, 2**70):
        with pytest.raises(RedalgError, match=f"int64, and it is {c}"):
            run(x=tensor(), c=c)
    assert len(one_gpu) == 3 and len(run._ready) == 1


def test_what_would_be_overwritten_is_computed_elsewhere_and_copied(
    one_gpu: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Any] = []
    monkeypatch.setattr(driver, "copy", lambda *given: copies.append(given))
    run, inside, beside = CudaRun(ROWS), Tensor((3,), at=BASE + 16), Tensor((3,), at=BASE + 48)
    assert run(x=Tensor((3, 4)), out=inside) is inside and run(x=Tensor((3, 4)), out=beside, stream=5) is beside
    elsewhere, place = (launched[1]["result"] for launched in one_gpu)
    assert copies == [(BASE + 16, elsewhere, 12, 77)] and elsewhere != BASE + 16 and place == BASE + 48


def test_memory_taken_for_another_stream_is_kept_until_that_is_done(
    one_gpu: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch would give it on in the order of the current stream. Scratch, and what results are computed in."""
    monkeypatch.setattr(driver, "copy", lambda *given: None)
    monkeypatch.setattr(driver, "clear", lambda *given: None)
    monkeypatch.setattr(Counters, "at", lambda *given: BASE)
    long = CudaRun(ROWS, schedule=Schedule(threads=256, rows=1, vector=4, tile=16, split=8))
    for run, x, out in (
        (CudaRun(ROWS), Tensor((3, 4)), Tensor((3,), at=BASE + 16)),
        (long, Tensor((2, 1 << 20)), None),
    ):
        for stream in (None, 5):
            MADE.clear()
            run(x=x, out=out, stream=stream)
            scratch = [t for t in MADE if t.shape != (2,)]
            assert scratch and all(t.recorded == ([5] if stream else []) for t in scratch)


# --- kinds of calls ---------------------------------------------------------------------------------------------------


def test_a_view_that_negates_is_a_kind_of_its_own() -> None:
    """Its elements come as a copy, which may have other strides."""
    assert TORCH.key(tensor(negated=True)) != TORCH.key(tensor())


# --- on a device -----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_overlapping_results_on_the_device() -> None:
    torch = pytest.importorskip("torch")
    for name in ("softmax", "weights"):
        run = ra.derive_incremental(FORMS[name]).compile("cuda")
        for dtype in (torch.float32, torch.bfloat16):
            whole = torch.randn(72, 64, device="cuda", dtype=dtype)
            places = {"in place": (0, 64), "shifted": (8, 64), "turned": (0, 64)}
            for how, (first, n) in places.items():
                a = whole.clone()
                x = a[:n].T if how == "turned" else a[:n]
                given = {"x": x} | ({"w": a[3]} if name == "weights" else {})
                true = run(**{k: t.clone(memory_format=torch.preserve_format) for k, t in given.items()})
                out = a[first : first + 64]
                assert run(**given, out=out) is out
                torch.cuda.synchronize()
                unit = torch.finfo(dtype).eps
                torch.testing.assert_close(out.float(), true.float(), rtol=16 * unit, atol=unit * 1e-3)


@pytest.mark.gpu
def test_scratch_on_a_stream_that_is_behind() -> None:
    torch = pytest.importorskip("torch")
    run = ra.derive_incremental(ra.catalog["logsumexp"]).compile("cuda")
    x = torch.randn(3, 1 << 20, device="cuda")
    true, side = run(x=x), torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(5):
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
        found = run(x=x, stream=side)
        for size in (3, 64, 512, 4096, 1 << 16):  # whatever was given back is taken and overwritten at once
            torch.full((size,), float("nan"), device="cuda")
        torch.cuda.synchronize()
        torch.testing.assert_close(found, true)
