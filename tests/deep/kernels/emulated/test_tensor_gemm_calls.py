"""Matrix products with operands prepared in the same launch or before: what is assembled, and what a call is given."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from redalg.kernels import pipeline
from redalg.kernels.cuda import run as cuda_run
from redalg.kernels.cuda.run import CudaRun
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.launch import driver
from redalg.kernels.launch.planned import Planned
from redalg.kernels.launch.ptx import assemble, ptxas
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.plan import MOST_SHARED
from tests.support import chain_cases
from tests.support.forms import form_of_text
from tests.support.gemm_cases import PLAIN, SCALED, form_of, planned
from tests.support.gpu_standins import BASE, Tensor

E4M3 = "float8_e4m3fn"
LARGE = {"i": 4096, "j": 4096, "k": 4096, "b": 2}
FP8 = ("fp8_per_token_gemm", {"w": E4M3, "major": ("w",)})
needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="ptxas was not found")

# --- assembly --------------------------------------------------------------------------------------------------------

CELLS: dict[str, tuple[str, dict[str, int], dict[str, Any]]] = {
    "fp8": (FP8[0], LARGE, FP8[1]),
    "layer norm": ("layer_norm_gemm", LARGE, {}),
    "rms norm": ("rms_norm_gemm", LARGE, {}),
    "long rows": ("layer_norm_gemm", LARGE | {"j": 16384}, {}),
    "odd": ("layer_norm_gemm", {"i": 1000, "j": 1001, "k": 1000}, {}),
    "copied": (PLAIN, LARGE, {"major": ("x",)}),
    "right": (PLAIN, LARGE, {"w": E4M3}),
    "several rows": (SCALED, LARGE, {"x": E4M3}),
}


@needs_ptxas
@pytest.mark.parametrize("name", CELLS)
def test_kernels_of_one_launch_assemble_without_spills(name: str) -> None:
    text, sizes, options = CELLS[name]
    found = planned(text, sizes, launches=1, **options)
    made = assemble(found.module, H200.cc)
    assert (made.spill_stores, made.spill_loads, made.stack) == (0, 0, 0)
    assert made.registers <= 168 or found.geometry.threads == 256
    assert found.module.shared + made.shared <= MOST_SHARED


# --- calls -----------------------------------------------------------------------------------------------------------


class Launches:
    """A device that takes launches and runs nothing. Every allocation has an address of its own."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, list[Any], int]] = []
        self.taken: dict[int, tuple[tuple[int, ...], str]] = {}
        self.stream = 77

    def launch(self, module: Any, cc: Any, limit: Any, geometry: Any, fixed: Any) -> Any:
        for p in module.params:
            assert p.role in driver.CHANGING or (p.role, p.name, p.dim) in fixed
        slots = [p for p in module.params if p.role in driver.CHANGING]

        def call(values: list[Any], stream: int) -> None:
            assert len(values) == len(slots)
            self.made.append((module, list(zip(slots, values, strict=True)), stream))

        return call

    def empty(self, shape: tuple[int, ...], dtype: Any, device: Any) -> Tensor:
        at = BASE + (len(self.taken) + 1 << 24)
        self.taken[at] = tuple(shape), dtype
        return Tensor(tuple(shape), dtype, at=at)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    made = Launches()
    streams = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: made.stream)
    names = {name: name for name in STORAGE}
    monkeypatch.setattr(driver, "require", lambda: None)
    monkeypatch.setattr(driver, "activate", lambda device: None)
    monkeypatch.setattr(driver, "target_of", lambda device: H200)
    monkeypatch.setattr(cuda_run, "Launch", made.launch)
    monkeypatch.setattr(
        cuda_run, "TensorMaps", lambda *_: SimpleNamespace(at=lambda pointers: 1000 + hash(tuple(pointers)))
    )
    counters = lambda count, device, barrier: SimpleNamespace(at=lambda stream: 5000 + count + stream)  # noqa: E731
    monkeypatch.setattr(cuda_run, "Counters", counters)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(empty=made.empty, _C=streams, **names))  # type: ignore[arg-type]
    yield made


@pytest.mark.parametrize("launches", (0, 2))
def test_a_call_hands_every_launch_what_it_takes(
    device: Launches, monkeypatch: pytest.MonkeyPatch, launches: int
) -> None:
    monkeypatch.setattr(pipeline, "LAUNCHES", launches)
    run = CudaRun(form_of(FP8[0]), "tensor")
    x, w = Tensor((64, 128), "bfloat16"), Tensor((128, 96), E4M3, strides=(1, 128), at=BASE + 8192)
    out = run(x=x, w=w)
    assert len(device.made) == (1 if launches == 0 else 2)
    module, given, _ = device.made[-1]
    found = {(p.role, p.name): value for p, value in given}
    assert found["result", "y"] == out.at and out.shape == (64, 96)
    left, state = found["operand", "left"], found["operand", "state1"]
    assert device.taken[left] == ((64 * 128,), E4M3) and device.taken[state] == ((64,), "float32")
    assert found["maps", "maps"] == 1000 + hash((left, w.at))
    if launches == 2:
        first = {(p.role, p.name): value for p, value in device.made[0][1]}
        assert (first["result", "left"], first["result", "state1"], first["operand", "x"]) == (left, state, x.at)
        assert not any(p.role == "counters" for p in module.params)
        return
    assert found["operand", "x"] == x.at and found["counters", "finished"] == 5000 + 5 + 77
    device.stream = 78
    again = run(x=x, w=w)
    other = {(p.role, p.name): value for p, value in device.made[-1][1]}
    assert other["counters", "finished"] == 5000 + 5 + 78 and other["result", "y"] == again.at
    assert other["operand", "left"] != left and other["operand", "state1"] != state


@pytest.mark.parametrize("n", (203, 208))
@pytest.mark.parametrize("name", chain_cases.CHAINS)
def test_launches_of_a_chain_read_what_those_before_wrote(
    device: Launches, monkeypatch: pytest.MonkeyPatch, name: str, n: int
) -> None:
    """Also where products in a row prepare operands of one name: each reads its own, of its own size."""
    pointers: list[tuple[Any, int]] = []

    class Maps:
        def __init__(self, made: Planned, views: Any, device: int) -> None:
            self.made = made

        def at(self, given: list[int]) -> int:
            pointers.extend(zip([(self.made, m.operand) for m in self.made.maps], given, strict=True))
            return 0

    monkeypatch.setattr(cuda_run, "TensorMaps", Maps)
    sizes = {"m": 77, "k": 264, "n": n, "l": 129, "o": 65, "p": 3}
    run, at = CudaRun(chain_cases.form_of(name), "tensor"), BASE + (1 << 40)
    tensors = [t for t in run.form.spec.tensors if not t.array]
    shapes = {t.name: tuple(sizes[a] for a in t.axes) for t in tensors}
    given = {
        x: Tensor(shape, "bfloat16", at=at + (k << 32), strides=(1, 77) if x == "A" and len(shape) == 2 else None)
        for k, (x, shape) in enumerate(shapes.items())
    }
    run(**given)
    owned, written = {a.at for a in given.values()}, dict[int, str]()
    for _, arguments, _ in device.made:
        for p, value in arguments:
            assert p.role != "operand" or value in owned or value in written, p.name
        written |= {value: p.name for p, value in arguments if p.role == "result"}
    for (made, operand), value in pointers:
        if operand in given:
            assert value == given[operand].at
        else:
            view = made.scratch[operand][1]
            assert written[value] == operand and device.taken[value][0] == (view.shape[0] * view.strides[0],)


def test_a_convolution_reads_its_array_where_it_lies(device: Launches) -> None:
    """No zeros around it are written: two launches, and memory for what lies between them and for the result."""
    run = CudaRun(form_of_text("return z = sum[n](relu(sum[r,s,c](x[b,h+r-1,w+s-1,c]*U[r,s,c,n]))*V[n,m])", "n"))
    x, u = Tensor((2, 8, 8, 64), "bfloat16"), Tensor((3, 3, 64, 128), "bfloat16", at=BASE + (1 << 32))
    v = Tensor((128, 64), "bfloat16", at=BASE + (1 << 33))
    for _ in range(2):
        device.made.clear(), device.taken.clear()
        assert run(x=x, U=u, V=v).shape == (2, 8, 8, 64)
        first, second = ({(p.role, p.name): value for p, value in given} for _, given, _ in device.made)
        assert first["operand", "x"] == x.at and first["result", "left"] == second["operand", "left"]
        assert len(device.taken) == 2
