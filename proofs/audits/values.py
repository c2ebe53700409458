"""What audited states are made of: scalars, tuples, dicts, dataclasses and arrays as flat lists of numbers, and back.

A *layout* is read off one value, the identity. It flattens every other state into numbers and builds states from
numbers, either in Fractions (for exact judgement) or in the number types the operator is used with.

A number is a `Fraction` (finite, exact), a `bool`, a `complex`, or a `float`: infinities, NaN, and finite floats that
an operator returned, which say that exactness was lost on the way.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import Any

Number = Any
PRECISION = {"bfloat16": 8, "float16": 11, "float32": 24, "complex64": 24, "float64": 53, "complex128": 53}
LARGEST = {"bfloat16": 3.3895313892515355e38, "float16": 65504.0, "float32": 3.4028234663852886e38}
SUBNORMAL = {"bfloat16": 2.0**-133, "float16": 2.0**-24, "float32": 2.0**-149}


class Unfit(Exception):
    """A value without the structure of the identity; the text says how it differs."""


def numpy_of(value: Any) -> Any:
    """The numpy module where the value is one of its arrays or scalars, else None; nothing is imported for it."""
    numpy = sys.modules.get("numpy")
    return numpy if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic) else None


def number(value: Any) -> Number:
    """A Python or NumPy scalar as a number of this module."""
    if isinstance(value, bool | Fraction | float | complex):
        return float(value) if type(value).__module__ == "numpy" and isinstance(value, float) else value
    if isinstance(value, int):
        return Fraction(value)
    numpy = numpy_of(value)
    if numpy is not None and value.size == 1 and value.ndim == 0:
        return _numpy_scalar(value)
    if isinstance(value, str | bytes | Mapping | Sequence) or numpy is not None or not hasattr(value, "__float__"):
        raise Unfit(f"{type(value).__name__} {value!r} where the identity has a number")
    return float(value)


def _numpy_scalar(value: Any) -> Number:
    kind = value.dtype.kind
    if kind == "O":
        return number(value.item())
    if kind in "iu":
        return Fraction(int(value))
    return bool(value) if kind == "b" else complex(value) if kind == "c" else float(value)


def is_finite(x: Number) -> bool:
    if isinstance(x, complex):
        return math.isfinite(x.real) and math.isfinite(x.imag)
    return not isinstance(x, float) or math.isfinite(x)


def is_nan(x: Number) -> bool:
    return bool(x != x)


def is_exact(x: Number) -> bool:
    """Nothing was rounded: rational, Boolean, or not finite (an infinity is what it is)."""
    return isinstance(x, Fraction | bool) or not is_finite(x)


@dataclass(frozen=True)
class Scalar:
    """One number. `kind`: "float", "int", "bool", "complex", "exact"; `cast`: the NumPy type it is handed over as."""

    kind: str
    cast: Any = None

    def leaves(self) -> tuple[Scalar, ...]:
        return (self,)

    @property
    def dtype(self) -> str:
        default = {"complex": "complex128", "float": "float64"}.get(self.kind, self.kind)
        return default if self.cast is None else getattr(self.cast, "__name__", default)

    def flatten(self, value: Any) -> list[Number]:
        return [number(value)]

    def build(self, numbers: Iterator[Number], exact: bool) -> Any:
        return self.hand(next(numbers), exact)

    def hand(self, x: Number, exact: bool) -> Any:
        """The number as the operator gets it."""
        value = self._in_python(x, exact)
        if self.cast is None or isinstance(value, Fraction) or (exact and not isinstance(value, complex)):
            return value
        return self.cast(value)

    def _in_python(self, x: Number, exact: bool) -> Any:
        if self.kind == "bool" or isinstance(x, bool):
            return bool(x)
        if self.kind == "int" and is_finite(x):
            return int(x)
        if self.kind == "complex":
            return complex(x)
        return Fraction(x) if (exact or self.kind == "exact") and is_finite(x) else float(x)


@dataclass(frozen=True)
class Several:
    """A tuple, list, named tuple, dict or dataclass; `keys` are the names of the parts of the last two."""

    type: Any
    parts: tuple[Layout, ...]
    keys: tuple[Any, ...] = ()

    def leaves(self) -> tuple[Scalar, ...]:
        return tuple(leaf for part in self.parts for leaf in part.leaves())

    def children(self, value: Any) -> list[Any]:
        if self.type is dict:
            if not isinstance(value, Mapping) or set(value) != set(self.keys):
                found = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
                raise Unfit(f"{found} where the identity has a dict with the keys {sorted(map(str, self.keys))}")
            return [value[k] for k in self.keys]
        if self.keys:
            if not isinstance(value, self.type):
                raise Unfit(f"{type(value).__name__} where the identity has a {self.type.__name__}")
            return [getattr(value, k) for k in self.keys]
        if not isinstance(value, tuple | list) or len(value) != len(self.parts):
            size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
            raise Unfit(f"{type(value).__name__}{size} where the identity has {len(self.parts)} parts")
        return list(value)

    def flatten(self, value: Any) -> list[Number]:
        return [x for part, v in zip(self.parts, self.children(value), strict=True) for x in part.flatten(v)]

    def build(self, numbers: Iterator[Number], exact: bool) -> Any:
        values = [part.build(numbers, exact) for part in self.parts]
        if self.type is dict:
            return dict(zip(self.keys, values, strict=True))
        if self.keys:
            return self.type(**dict(zip(self.keys, values, strict=True)))
        return self.type(*values) if hasattr(self.type, "_fields") else self.type(values)


@dataclass(frozen=True)
class Array:
    """A NumPy array of one shape and dtype."""

    shape: tuple[int, ...]
    element: Scalar

    def leaves(self) -> tuple[Scalar, ...]:
        return (self.element,) * math.prod(self.shape)

    def flatten(self, value: Any) -> list[Number]:
        import numpy

        array = numpy.asarray(value)
        if array.shape != self.shape:
            raise Unfit(f"shape {array.shape} where the identity has shape {self.shape}")
        return [number(x) for x in array.reshape(-1).tolist()] if array.dtype.kind in "Obiufc" else _floats(array)

    def build(self, numbers: Iterator[Number], exact: bool) -> Any:
        return array_of([next(numbers) for _ in range(math.prod(self.shape))], self.element, exact, self.shape)


Layout = Scalar | Several | Array


def _floats(array: Any) -> list[Number]:
    return [float(x) for x in array.reshape(-1)]


def array_of(numbers: Sequence[Number], element: Scalar, exact: bool, shape: tuple[int, ...]) -> Any:
    """A NumPy array of the numbers; in exact arithmetic real numbers are objects, everything else keeps its dtype."""
    import numpy

    boxed = (exact and element.kind == "float") or element.kind == "exact"
    default = {"float": numpy.float64, "int": numpy.int64, "bool": numpy.bool_, "complex": numpy.complex128}
    dtype = object if boxed else element.cast or default[element.kind]
    result = numpy.empty(len(numbers), dtype=dtype)
    for i, x in enumerate(numbers):
        result[i] = element.hand(x, exact)
    return result.reshape(shape)


def layout_of(value: Any, cast: Any = None) -> Layout:
    """The layout of a state; `cast` is the NumPy type Python floats are handed over as.

    >>> layout_of((0, 0.0, True)).flatten((3, 0.5, False))
    [Fraction(3, 1), 0.5, False]
    """
    if isinstance(value, Mapping):
        return Several(dict, tuple(layout_of(v, cast) for v in value.values()), tuple(value))
    if isinstance(value, tuple | list):
        return Several(type(value), tuple(layout_of(v, cast) for v in value))
    if is_dataclass(value) and not isinstance(value, type):
        keys = tuple(f.name for f in fields(value))
        return Several(type(value), tuple(layout_of(getattr(value, k), cast) for k in keys), keys)
    numpy = numpy_of(value)
    if numpy is not None:
        element = _numpy_element(value.dtype)
        return Array(value.shape, element) if isinstance(value, numpy.ndarray) else element
    return _python_scalar(value, cast)


def _numpy_element(dtype: Any) -> Scalar:
    kind = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex", "O": "exact"}.get(dtype.kind)
    if kind is None and dtype.name not in PRECISION:
        raise Unfit(f"an array of {dtype.name}")
    return Scalar(kind or "float", None if kind == "exact" else dtype.type)


def _python_scalar(value: Any, cast: Any) -> Scalar:
    if isinstance(value, bool):
        return Scalar("bool")
    if isinstance(value, int):
        return Scalar("int")
    if isinstance(value, Fraction):
        return Scalar("exact")
    if isinstance(value, complex):
        return Scalar("complex")
    if isinstance(value, float) or hasattr(value, "__float__"):
        return Scalar("float", cast)
    raise Unfit(f"{type(value).__name__} {value!r}, which is no number, tuple, dict or array")


def precision(layout: Layout) -> str:
    """The name of the least precise float type among the leaves; float64 where there is none."""
    names = [leaf.dtype for leaf in layout.leaves() if leaf.dtype in PRECISION]
    return (
        min(names, key=lambda name: PRECISION[name], default="float64")
        .replace("complex64", "float32")
        .replace("complex128", "float64")
    )
