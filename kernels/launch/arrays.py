"""Arrays of PyTorch, CuPy, Numba, JAX and NumPy as kernels see them: an address, a shape, strides, a dtype.

Nothing is copied and no library is imported that the caller has not imported, with one exception: NumPy arrays are
copied to the device and results back, because that is where they lie.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.kernels.ir.program import STORAGE
from redalg.numeric.array_origin import BFLOAT16_BITS, declared_dtype, to_jax

NARROW = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


@dataclass(frozen=True)
class Framework:
    """How arrays of one library are asked and made. `strides` are in elements, `device` is a CUDA ordinal."""

    kind: str
    pointer: Callable[[Any], int]
    strides: Callable[[Any], tuple[int, ...]]
    device: Callable[[Any], int]
    empty: Callable[..., Any]  # shape, dtype, an array of the call; of `TURNING`, axes from the outermost one on
    stream: Callable[[int], int]
    key: Callable[[Any], Any]  # what a prepared call depends on, beside the kind
    enter: Callable[[Any], Any] = lambda array: array  # to an array on the device
    leave: Callable[[Any, Any], Any] = lambda array, out: array  # back to the kind that came in
    fixed: Callable[[Any], str] = lambda array: ""  # why results cannot be written to an array, if they cannot
    finish: Callable[[], None] = lambda: None
    used: Callable[[Any, int], None] = lambda array, stream: None  # its memory goes to nobody before a stream is done


def framework_of(array: Any) -> Framework | None:
    """The framework of an array; None for Python numbers. Raises: RedalgError for what no kernel can read."""
    if isinstance(array, bool | int | float) and not isinstance(array, np.generic):
        return None
    library = type(array).__module__.partition(".")[0]
    if library == "torch":
        return TORCH
    if library in ("jax", "jaxlib"):
        return JAX
    if isinstance(array, np.ndarray | np.generic | list | tuple):
        return NUMPY
    if hasattr(array, "__cuda_array_interface__"):
        return CUPY if library == "cupy" else NUMBA
    raise RedalgError(
        f"an array of type {type(array).__name__}",
        "a call of a CUDA kernel",
        "it is neither an array of PyTorch, CuPy, JAX, Numba or NumPy nor has it __cuda_array_interface__",
        "convert it to one of these",
    )


def plain(array: np.ndarray) -> np.ndarray:
    """The array itself, or a copy of one in a foreign byte order or with strides that are no whole elements.

    >>> pairs = np.zeros(3, [("a", "f8"), ("b", "f4")])
    >>> plain(pairs["a"]).strides, plain(np.arange(3, dtype=">f8")).dtype.isnative
    ((8,), True)
    """
    if array.dtype.isnative and not any(s % array.itemsize for s in array.strides):
        return array
    return np.array(array, array.dtype.newbyteorder("="))


def dtype_name(array: Any) -> str:
    """The dtype as `ir.STORAGE` names it."""
    name = declared_dtype(array)
    return name if name in STORAGE else "bfloat16" if name == "void16" and array.dtype == BFLOAT16_BITS else name


def alignment(pointer: int) -> int:
    """The largest power of two, up to 16, that divides the address."""
    return pointer & -pointer & 31 if pointer & 15 else 16


def handle_of(stream: Any) -> int:
    """The driver's handle of a stream: a number, or an object of PyTorch, CuPy, Numba or with ``__cuda_stream__``."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    handle = getattr(stream, "handle", None)
    if handle is None:
        why, fix = "it has no handle of a CUDA stream", "pass a stream of PyTorch, CuPy or Numba, or its handle"
        raise RedalgError(f"stream={stream!r}", "the call", why, fix)
    return int(getattr(handle, "value", handle) or 0)


# --- PyTorch ---------------------------------------------------------------------------------------------------------


def _packed(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of an array as it lies in memory, with its axes in an order, and how to turn these back.

    >>> _packed((3, 64), (1, 0))
    ((64, 3), (1, 0))
    """
    return tuple(shape[d] for d in order), tuple(order.index(d) for d in range(len(order)))


def _torch_empty(shape: tuple[int, ...], dtype: str, like: Any, order: tuple[int, ...] = ()) -> Any:
    torch = sys.modules["torch"]
    packed, turned = _packed(shape, order) if order else (shape, ())
    made = torch.empty(packed, dtype=getattr(torch, dtype), device=like.device)
    return made.permute(turned) if order else made


def _torch_stream(device: int) -> int:
    return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(device))


def _torch_used(array: Any, stream: int) -> None:
    """Memory of PyTorch is given on in the order of the stream that was current when it was taken."""
    array.record_stream(sys.modules["torch"].cuda.ExternalStream(stream, array.device))


def _torch_device(array: Any) -> int:
    if str(array.layout) != "torch.strided":
        what, why = f"a tensor of layout {array.layout}", "kernels read dense tensors by their strides"
        raise RedalgError(what, "a call of a CUDA kernel", why, "pass x.to_dense()")
    if array.device.type != "cuda":
        raise _elsewhere("torch", str(array.device), "array.cuda()")
    return int(array.device.index or 0)


def _elsewhere(kind: str, device: str, fix: str) -> RedalgError:
    why = 'target "cuda" computes on NVIDIA GPUs'
    return RedalgError(f"{kind} arrays on {device}", "a call of a CUDA kernel", why, f'{fix}, or form.compile("cpu")')


def _torch_key(x: Any) -> Any:
    try:
        return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() & 15, x.requires_grad, x.is_neg()
    except RuntimeError as problem:  # what has no strides or no data is refused when a call is prepared
        raise TypeError(str(problem)) from problem


def _torch_fixed(x: Any) -> str:
    return "it requires a gradient" if x.requires_grad else "it is a view that negates" if x.is_neg() else ""


TORCH = Framework(
    "torch",
    pointer=lambda x: x.data_ptr(),
    strides=lambda x: tuple(x.stride()),
    device=_torch_device,
    empty=_torch_empty,
    stream=_torch_stream,
    key=_torch_key,
    enter=lambda x: x.resolve_neg() if x.is_neg() else x,  # such a view shares memory with what it negates
    fixed=_torch_fixed,
    used=_torch_used,
)

# --- arrays with __cuda_array_interface__ ----------------------------------------------------------------------------


def _interface_strides(array: Any) -> tuple[int, ...]:
    face = array.__cuda_array_interface__
    size = np.dtype(face["typestr"]).itemsize
    shape = tuple(face["shape"])
    if face.get("strides") is None:
        return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
    if any(s % size for s in face["strides"]):
        why = f"strides {face['strides']} in bytes are no whole elements of {size}"
        raise RedalgError(f"an array of type {type(array).__name__}", "a call of a CUDA kernel", why, "copy it")
    return tuple(s // size for s in face["strides"])


def _interface_fixed(array: Any) -> str:
    return "it is read-only" if array.__cuda_array_interface__["data"][1] else ""


def _interface_pointer(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def _interface_key(array: Any) -> Any:
    face = array.__cuda_array_interface__
    strides = face.get("strides")
    return tuple(face["shape"]), strides and tuple(strides), face["typestr"], face["data"][0] & 15, str(array.dtype)


def _cupy_empty(shape: tuple[int, ...], dtype: str, like: Any, order: tuple[int, ...] = ()) -> Any:
    packed, turned = _packed(shape, order) if order else (shape, ())
    with like.device:
        made = sys.modules["cupy"].empty(packed, dtype=_numpy_dtype(dtype))
    return made.transpose(turned) if order else made


def _numba_empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    from numba import cuda

    return cuda.device_array(shape or (), dtype=_numpy_dtype(dtype))


def _numpy_dtype(dtype: str) -> Any:
    if dtype in NARROW:
        extension = sys.modules.get("ml_dtypes")
        if extension is not None:
            return np.dtype(getattr(extension, dtype))
        return BFLOAT16_BITS if dtype == "bfloat16" else np.dtype(NARROW[dtype])
    return np.dtype(dtype)


def _numba_device(array: Any) -> int:
    from numba import cuda

    return int(cuda.get_current_device().id)


def _check_interface(array: Any) -> None:
    """Refuse what the interface allows and kernels cannot read: they go by address, strides and dtype alone."""
    face, fix = array.__cuda_array_interface__, "numba.cuda.as_cuda_array(x), or a contiguous copy"
    what, where = f"an array of type {type(array).__name__}", "a call of a CUDA kernel"
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise RedalgError(what, where, "it has __cuda_array_interface__, but neither shape nor dtype", fix)
    if face.get("mask") is not None:
        raise RedalgError(what, where, "it has a mask, which no kernel looks at", "fill what is masked")
    if not np.dtype(face["typestr"]).isnative:
        raise RedalgError(what, where, f"its bytes are in another order ({face['typestr']})", "convert them")


CUPY = Framework(
    "cupy",
    pointer=_interface_pointer,
    strides=_interface_strides,
    device=lambda x: int(x.device.id),
    empty=_cupy_empty,
    stream=lambda device: int(sys.modules["cupy"].cuda.get_current_stream().ptr),
    key=_interface_key,
    fixed=_interface_fixed,
)


def _interface_device(array: Any) -> int:
    _check_interface(array)
    return _numba_device(array)


def _numba_stream(device: int) -> int:
    from numba import cuda

    handle = cuda.default_stream().handle
    return int(getattr(handle, "value", handle) or 0)


NUMBA = Framework(
    "numba",
    pointer=_interface_pointer,
    strides=_interface_strides,
    device=_interface_device,
    empty=_numba_empty,
    stream=_numba_stream,
    key=_interface_key,
    fixed=_interface_fixed,
)

TURNING = (TORCH, CUPY)  # whose new arrays may have their axes in any order in memory

# --- NumPy: to the device and back -----------------------------------------------------------------------------------


def _to_device(array: Any) -> Any:
    from numba import cuda

    whole = np.asarray(plain(array), order="C")
    name = dtype_name(whole)
    carried = cuda.to_device(whole.view(NARROW[name]) if name in NARROW else whole)
    return _Carried(carried, whole.dtype, name)


class _Carried:
    """A NumPy array's copy on the device; narrow formats travel as their bits."""

    def __init__(self, array: Any, dtype: np.dtype, name: str) -> None:
        self.array, self.dtype, self.name = array, dtype, name
        self.shape = tuple(array.shape)

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__


def _carried_empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    from numba import cuda

    held = _numpy_dtype(dtype)
    return _Carried(cuda.device_array(shape or (1,), dtype=NARROW.get(dtype, held)), held, dtype)


def _to_host(array: Any, out: Any) -> Any:
    found = array.array.copy_to_host()
    return found.view(array.dtype) if array.name in NARROW else found


NUMPY = Framework(
    "numpy",
    pointer=_interface_pointer,
    strides=_interface_strides,
    device=lambda x: _numba_device(x),
    empty=_carried_empty,
    stream=_numba_stream,
    key=lambda x: (np.shape(x), np.asarray(x).dtype.str, dtype_name(np.asarray(x))),
    enter=_to_device,
    leave=_to_host,
    fixed=lambda x: "" if x.flags.writeable else "it is read-only",
)

# --- JAX: arrays are never written once they are seen; results are fresh ones, finished before they are returned


def _jax_empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    made = sys.modules["jax"].device_put(to_jax(np.zeros(shape, dtype=_numpy_dtype(dtype))), next(iter(like.devices())))
    assert made.nbytes == prod(shape) * _numpy_dtype(dtype).itemsize  # kernels write as many bytes
    return made.block_until_ready()


def _jax_device(array: Any) -> int:
    device = next(iter(array.devices()))
    if device.platform not in ("gpu", "cuda"):
        raise _elsewhere("jax", device.platform, "jax.device_put(array, jax.devices('gpu')[0])")
    return int(device.local_hardware_id or 0)


def _jax_finish() -> None:
    from cuda.bindings import driver

    driver.cuStreamSynchronize(0)


JAX = Framework(
    "jax",
    pointer=lambda x: int(x.unsafe_buffer_pointer()),
    strides=lambda x: tuple(prod(x.shape[d + 1 :]) for d in range(len(x.shape))),
    device=_jax_device,
    empty=_jax_empty,
    stream=lambda device: 0,
    key=lambda x: (x.shape, str(x.dtype), str(next(iter(x.devices()))), x.unsafe_buffer_pointer() & 15),
    enter=lambda x: x.block_until_ready(),
    fixed=lambda x: "arrays of JAX do not change",
    finish=_jax_finish,
)
