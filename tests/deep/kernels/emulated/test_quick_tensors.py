"""Prepared calls with tensors of PyTorch itself: a driver in C's convention reads the arguments of a launch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import redalg as ra
from redalg.kernels.cuda import quick
from redalg.kernels.cuda.run import CudaRun
from redalg.kernels.launch import arrays, driver
from redalg.kernels.schedule.target import H200
from tests.support import gpu_standins

torch = pytest.importorskip("torch")
CALLED = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
SPEC = ra.parse("tensors x[i,j], y[i,j], eps; return r = log(relu(x[i,j] + y[i,j])) + eps")


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """Words that parameters of every launch point to; tensors of the host are taken for a GPU's."""
    found: list[list[int]] = []
    params: list[Any] = []

    def loaded(module: Any, cc: Any, limit: Any) -> int:
        params[:] = module.params
        return 1

    def direct(config: int, function: int, places: int, extra: Any) -> int:
        held = (ctypes.c_void_p * len(params)).from_address(places)
        found.append([ctypes.c_int64.from_address(p).value for p in held if p])
        return 0

    called = CALLED(direct)
    gpu_standins.host_marks(monkeypatch)
    for name, value in {
        "_direct": lambda: ctypes.cast(called, ctypes.c_void_p).value,
        "require": lambda: None,
        "activate": lambda device: None,
        "is_only": lambda device: True,
        "target_of": lambda device: H200,
        "_loaded": loaded,
        "_running": lambda function, geometry, module: geometry.blocks,
        "relaxed": nullcontext,
    }.items():
        monkeypatch.setattr(driver, name, value)
    monkeypatch.setattr(quick, "_stream", lambda: lambda device: 77)
    guards = torch._C._dynamo.guards
    monkeypatch.setattr(guards, "_empty_strided_cuda", guards._empty_strided_cpu)
    before = {name: getattr(arrays.TORCH, name) for name in ("device", "stream")}
    for name in before:
        object.__setattr__(arrays.TORCH, name, lambda _: 0)
    yield found
    for name, value in before.items():
        object.__setattr__(arrays.TORCH, name, value)


def place(n: int = 64, offset: int = 0) -> Any:
    return torch.empty(3 * 200 + 16)[offset:].as_strided((3, n), (n, 1))


CHANGES: dict[str, Callable[[], Any]] = {
    "another shape": lambda: place(32),
    "other strides": lambda: torch.empty(64, 3).T,
    "another dtype": lambda: place().half(),
    "another alignment": lambda: place(offset=1),
    "a negated view": lambda: torch._neg_view(place()),
}
WRONG: dict[str, Callable[[], Any]] = {
    "a gradient": lambda: place().requires_grad_(),
    "nothing": lambda: None,
}


def test_the_launch_reads_where_tensors_lie(launches: list[list[int]]) -> None:
    run = CudaRun(ra.derive_incremental(SPEC))
    run(x=place(), y=place(), eps=0.5)
    call, fixed = run._quickly.call, []
    for eps in (0.25, -3.0):
        x, y = place(), place()
        result = call({"x": x, "y": y, "eps": eps})
        said = ctypes.c_int64.from_buffer(ctypes.c_double(eps)).value
        addresses = x.data_ptr(), y.data_ptr(), result.data_ptr(), said
        assert set(addresses) <= {*launches[-1]}
        fixed.append([w for w in launches[-1] if w not in addresses])
    assert fixed[0] == fixed[1] and len(launches) == 3


@pytest.mark.parametrize("change", CHANGES)
def test_another_kind_is_refused_before_anything_is_launched(change: str, launches: list[list[int]]) -> None:
    run = CudaRun(ra.derive_incremental(SPEC))
    run(x=place(), y=place(), eps=0.5)
    call = run._quickly.call
    for given in ({"x": CHANGES[change](), "y": place()}, {"x": place(), "y": CHANGES[change]()}):
        assert call({**given, "eps": 0.5}) is quick.MISS
    assert len(launches) == 1
    assert call({"x": place(), "y": place(), "eps": 0.5}) is not quick.MISS and len(launches) == 2


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_argument_is_refused_in_four_parts(wrong: str, launches: list[list[int]]) -> None:
    run = CudaRun(ra.derive_incremental(SPEC))
    run(x=place(), y=place(), eps=0.5)
    with pytest.raises(ra.RedalgError):
        run(x=WRONG[wrong](), y=place(), eps=0.5)
    assert len(launches) == 1


def test_tensors_without_an_address_are_refused_by_python(launches: list[list[int]]) -> None:
    """Those of `torch.vmap` and sparse ones are of PyTorch's own class."""
    run = CudaRun(ra.derive_incremental(SPEC))
    run(x=place(), y=place(), eps=0.5)
    call, seen = run._quickly.call, []

    def inside(x: Any) -> Any:
        try:
            seen.append(call({"x": x, "y": x, "eps": 0.5}) is quick.MISS)
        except quick.ELSEWHERE:
            seen.append(True)
        return x

    torch.vmap(inside)(torch.empty(2, 3, 64))
    inside(torch.zeros(3, 64).to_sparse())
    assert seen == [True, True] and len(launches) == 1
