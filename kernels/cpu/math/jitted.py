"""Operations as Numba functions, by which printed kernels run under Numba as well.

Nothing else of kernels on the CPU needs Numba: what calls run is translated by `redalg.kernels.cpu.translate`.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.core.extending import intrinsic

from redalg.kernels.cpu.math.values import Operation

SCALARS = {
    "b1": types.boolean,
    "t8": types.uint8,
    **{
        f"{sign}{bits}": getattr(types, f"{word}{bits}")
        for sign, word in (("i", "int"), ("u", "uint"))
        for bits in (8, 16, 32, 64)
    },
    "f32": types.float32,
    "f64": types.float64,
}
_intrinsic: Any = intrinsic
_CALLS = (  # an intrinsic says how many arguments it takes
    lambda made: _intrinsic(lambda typing: made()),
    lambda made: _intrinsic(lambda typing, a: made(a)),
    lambda made: _intrinsic(lambda typing, a, b: made(a, b)),
    lambda made: _intrinsic(lambda typing, a, b, c: made(a, b, c)),
    lambda made: _intrinsic(lambda typing, a, b, c, d: made(a, b, c, d)),
    lambda made: _intrinsic(lambda typing, a, b, c, d, e: made(a, b, c, d, e)),
)
_WRAPPERS = (
    None,
    lambda inner: lambda x: inner(x),
    lambda inner: lambda x, y: inner(x, y),
    lambda inner: lambda x, y, z: inner(x, y, z),
    lambda inner: lambda x, y, z, v: inner(x, y, z, v),
    lambda inner: lambda x, y, z, v, w: inner(x, y, z, v, w),
)


def kind_of(kind: str, given: Any = None) -> Any:
    """Numba's type; `given`: what an address of any cells is an address of."""
    if kind == "*":
        return given
    return types.CPointer(SCALARS[kind[1:]]) if kind.startswith("*") else SCALARS[kind]


def jitted(name: str, operation: Operation) -> Any:
    """The function of a name; its instructions stay free of what callers allow (fast-math) where it stands apart."""

    def made(*given: Any) -> Any:
        takes = [kind_of(kind, g) for kind, g in zip(operation.takes, given, strict=True)]
        gives = kind_of(operation.gives) if operation.gives else types.none

        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            found = operation.emit(b, *args)
            return found if operation.gives else context.get_dummy_value()

        return gives(*takes), generate

    inner = _CALLS[len(operation.takes)](made)
    if not operation.apart:
        return inner
    outer: Any = _WRAPPERS[len(operation.takes)](inner)  # type: ignore[misc]
    outer.__name__ = outer.__qualname__ = name
    return njit(forceinline=True, nogil=True, error_model="numpy", fastmath=False)(outer)
