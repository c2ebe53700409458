"""Arrays that say they lie on a GPU: what the library asks of them, without one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redalg.kernels.cuda import marks
from redalg.kernels.cuda import run as cuda_run
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.launch import arrays, driver
from redalg.kernels.schedule.target import H200

BASE = 0x7F00_0000_0000  # an address


@dataclass(frozen=True)
class Place:
    """A device, by whatever names libraries describe theirs."""

    type: str = ""
    index: int | None = 0
    id: int = 0
    platform: str = ""
    local_hardware_id: int = 0

    def __str__(self) -> str:
        return self.type


class Face:
    """An array that has ``__cuda_array_interface__``, as its protocol describes it."""

    def __init__(
        self, shape: tuple[int, ...], typestr: str = "<f4", strides: Any = None, at: int = BASE, **more: Any
    ) -> None:
        face = {"shape": shape, "typestr": typestr, "data": (at, more.pop("readonly", False)), "version": 3}
        self.__cuda_array_interface__ = face | ({"strides": strides} if strides is not None else {}) | more
        self.shape, self.dtype = shape, np.dtype(typestr)


@dataclass(frozen=True)
class Dtype:
    text: str

    def __str__(self) -> str:
        return f"torch.{self.text}"

    @property
    def itemsize(self) -> int:
        return STORAGE[self.text]


class Tensor:
    """What the library asks of a tensor of PyTorch."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "float32", strides: Any = None, at: int = BASE) -> None:
        self.shape, self.dtype, self.at = shape, Dtype(dtype), at
        self.steps = strides or tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))
        self.device, self.layout = Place("cuda"), "torch.strided"
        self.requires_grad, self.negated, self.written = False, False, None
        self.recorded: list[Any] = []  # streams that use its memory

    def stride(self) -> tuple[int, ...]:
        return self.steps

    def data_ptr(self) -> int:
        return self.at

    def is_neg(self) -> bool:
        return self.negated

    def permute(self, axes: tuple[int, ...]) -> Tensor:
        steps = tuple(self.steps[d] for d in axes)
        return type(self)(tuple(self.shape[d] for d in axes), self.dtype.text, steps, self.at)

    def resolve_neg(self) -> Tensor:
        return Tensor(self.shape, self.dtype.text, at=self.at + 4096)

    def __setitem__(self, where: Any, value: Any) -> None:
        self.written = value

    def record_stream(self, stream: Any) -> None:
        self.recorded.append(stream)


class Cupy(Face):
    device = Place("cuda", id=0)


class Jax:
    def __init__(self, shape: tuple[int, ...], platform: str = "gpu", number: int = 0) -> None:
        self.shape, self.dtype = shape, np.dtype(np.float32)
        self.place = Place(platform=platform, local_hardware_id=number)

    def devices(self) -> set[Any]:
        return {self.place}

    def unsafe_buffer_pointer(self) -> int:
        return BASE + 8

    def block_until_ready(self) -> Jax:
        return self


Tensor.__module__, Cupy.__module__, Jax.__module__ = "torch", "cupy", "jaxlib._jax"


class Capsule:
    """An array that can only be exchanged by DLPack."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **more: Any) -> Any:
        return self.array.__dlpack__(**more)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def tensor(**fields: Any) -> Tensor:
    made = Tensor((3, 4), fields.pop("dtype", "float32"))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class HostMemory:
    """Memory of the host that no device knows."""

    def __init__(self, size: int, what: str = "") -> None:
        self.held = np.zeros(size, np.uint8)
        self.address = self.device = self.held.ctypes.data


def host_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks of rows in such memory, none of which is left for kernels of a device."""
    monkeypatch.setattr(marks, "Pinned", HostMemory)
    monkeypatch.setattr(marks, "FREE", [])


MADE: list[Tensor] = []  # by the library, in place of memory


class _Streams:
    @staticmethod
    def _cuda_getCurrentRawStream(device: int) -> int:
        return 77


class _Cuda:
    @staticmethod
    def ExternalStream(stream: int, device: Any) -> int:
        return stream


def launches_of_nothing(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A device that takes launches and runs nothing: (fixed arguments, addresses by role, values, stream) of each."""
    launched: list[Any] = []

    def launch(module: Any, cc: Any, limit: Any, geometry: Any, fixed: Any) -> Any:
        roles = [p.role for p in module.params if p.role in ("operand", "number", "result", "scratch")]
        return lambda values, stream: launched.append((fixed, dict(zip(roles, values, strict=True)), values, stream))

    def empty(shape: tuple[int, ...], dtype: Any, device: Any) -> Tensor:
        MADE.append(Tensor(tuple(shape), dtype, at=BASE + (1 << 20)))
        return MADE[-1]

    monkeypatch.setattr(driver, "require", lambda: None)
    monkeypatch.setattr(driver, "activate", lambda device: None)
    monkeypatch.setattr(driver, "target_of", lambda device: H200)
    monkeypatch.setattr(cuda_run, "Launch", launch)
    host_marks(monkeypatch)
    monkeypatch.setattr(arrays, "_numba_device", lambda array: 0)
    names = {name: name for name in STORAGE}
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(empty=empty, _C=_Streams(), cuda=_Cuda, **names))  # type: ignore[arg-type]
    return launched
