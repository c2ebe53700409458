"""Where arrays come from: recognising NumPy, PyTorch, CuPy, JAX and Numba arrays without importing any of them.

An array is known by the module of its type, so a library that is not installed costs nothing. Results go back to the
kind that came in.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

_LIBRARIES = {"numpy": "numpy", "torch": "torch", "cupy": "cupy", "jax": "jax", "jaxlib": "jax", "numba": "numba"}


@dataclass(frozen=True)
class Origin:
    """The kind of the arrays of one call ("numpy", "torch", …) and the device they lie on ("cpu", "cuda:0", …)."""

    kind: str = "numpy"
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.kind} on {self.device}"

    def restore(self, array: np.ndarray) -> Any:
        """A NumPy result as an array of this kind (torch and jax on the CPU; everything else stays NumPy)."""
        if self.kind == "torch":
            return _to_torch(array)
        return to_jax(array) if self.kind == "jax" else array


def to_jax(array: np.ndarray) -> Any:
    """The array in JAX with its dtype kept: by default JAX cuts 64 bits to 32, which would wrap sums and counts."""
    jax = sys.modules["jax"]
    wide = jax if hasattr(jax, "enable_x64") else sys.modules["jax.experimental"]  # moved in JAX 0.8
    with wide.enable_x64(True):
        return jax.numpy.asarray(array)


def origin_of(array: Any) -> Origin | None:
    """The origin of an array-like; None for Python numbers, which go with any kind."""
    if isinstance(array, np.ndarray | np.generic):
        return Origin()
    if isinstance(array, bool | int | float | complex):
        return None
    library = _library_of(array)
    if library == "torch":
        return Origin("torch", str(array.device))
    if library == "cupy":
        return Origin("cupy", f"cuda:{array.device.id}")
    if library == "jax":
        return Origin("jax", _jax_device(array))
    if hasattr(array, "__cuda_array_interface__"):
        return Origin(library or "cuda array", "cuda")
    if _is_elsewhere(array):
        return Origin(library or type(array).__name__, "a device")
    return Origin()


def _library_of(array: Any) -> str | None:
    """The library that an array's class is of, or that it extends."""
    named = (_LIBRARIES.get(c.__module__.partition(".")[0]) for c in type(array).__mro__)
    return next((name for name in named if name), None)


def is_masked_array(array: Any) -> bool:
    """Whether an array is one of `numpy.ma`, which is not imported to ask: without it there is none."""
    module = sys.modules.get("numpy.ma")
    return isinstance(array, getattr(module, "MaskedArray", ()))


def _is_elsewhere(array: Any) -> bool:
    """Whether an array says that it lies on another device; one that DLPack does not take (Arrow's, with nulls) says
    nothing."""
    try:
        return hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] != 1
    except Exception:
        return False


def _jax_device(array: Any) -> str:
    names = {str(d.platform) for d in array.devices()}
    return "cpu" if names == {"cpu"} else ",".join(sorted(names))


def to_numpy(array: Any) -> np.ndarray:
    """The array on the CPU as NumPy sees it, without a copy where possible; a dtype NumPy lacks comes as float32."""
    if isinstance(array, np.ndarray):
        return array
    if _library_of(array) == "torch":
        plain = array.detach().resolve_conj().resolve_neg()
        if getattr(plain, "_is_zerotensor", bool)():  # zeros without memory, among tangents
            plain = plain.clone()
        return (plain.float() if declared_dtype(array) in NARROW_ONLY else plain).numpy()
    if not hasattr(array, "__array__") and hasattr(array, "__dlpack__"):
        return np.from_dlpack(array)
    return np.asarray(array)


NARROW_ONLY = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})  # formats NumPy has no dtype for


@lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype) -> str:
    """The name of a dtype, which NumPy makes anew each time it is asked for."""
    return dtype.name


def declared_dtype(array: Any) -> str:
    """The name of the array's dtype ("float32", "bfloat16", …), whatever library it belongs to."""
    dtype = getattr(array, "dtype", None)
    return getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]


def stand_in(array: Any) -> Any:
    """An array of the same shape and dtype that holds nothing (narrow floats as float32, which nobody converts)."""
    if isinstance(array, list | tuple):
        return array
    name = declared_dtype(array)
    try:
        bits = name == "void16" and array.dtype == BFLOAT16_BITS
        dtype = np.dtype(np.float32 if bits or name in NARROW_ONLY else name)
    except TypeError:
        dtype = np.dtype(np.float32)
    return np.broadcast_to(np.zeros((), dtype), tuple(array.shape))


# bfloat16 results for a library that has the format while NumPy has not: the bit patterns, under a name of their own.
BFLOAT16_BITS = np.dtype([("bfloat16", np.uint16)])


def narrowed(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Floats that are numbers of the format already, stored in that format (an extension dtype or `BFLOAT16_BITS`)."""
    if dtype != BFLOAT16_BITS:
        return array.astype(dtype)
    bits = np.asarray(array, np.float32).view(np.uint32) >> 16
    return np.array(bits, np.uint16).view(BFLOAT16_BITS)


def format_name(dtype: np.dtype) -> str:
    return "bfloat16" if dtype == BFLOAT16_BITS else dtype.name


def _to_torch(array: np.ndarray) -> Any:
    torch = sys.modules["torch"]
    if array.dtype.isbuiltin == 1:  # a format that NumPy has by itself
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    if array.dtype == BFLOAT16_BITS:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array.astype(np.float32)).to(getattr(torch, array.dtype.name))
