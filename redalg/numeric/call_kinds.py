"""Kinds of calls: everything of the arguments that a call can be prepared for, with as little work as can be.

Calls of one kind have tensors of the same library, dtypes, shapes and strides, and numbers of the same Python types.
What depends on these alone (that the arrays fit the spec, the dtypes of results, the kernel, most of its arguments) is
decided once for a kind. What depends on the data, or on where arrays lie, is not part of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from redalg.numeric.array_origin import NARROW_ONLY

_LOWEST, _BEYOND = -(1 << 63), 1 << 63
_ndarray = np.ndarray
_NUMBERS = (float, bool)


class Unkeyed(Exception):
    """Arguments that no kind describes: they are validated anew in every call."""


def kind_of_call(names: Sequence[str], given: Mapping[str, Any]) -> tuple[list[Any], Hashable]:
    """The arguments in the order of `names`, as NumPy arrays and Python numbers, and their kind.

    Nothing is copied. Raises: Unkeyed for names that are missing or not known, and for what has to be looked at or
    converted first: lists, subclasses of arrays, tensors that require gradients, integers beyond int64, formats that
    NumPy lacks. Such calls may still be good ones.

    >>> x = np.zeros((2, 3))
    >>> held, kind = kind_of_call(["x", "p"], {"p": 2.0, "x": x})
    >>> held[0] is x, kind == kind_of_call(["x", "p"], {"p": 1.0, "x": x + 1})[1]
    (True, True)
    >>> kind == kind_of_call(["x", "p"], {"p": 1.0, "x": x.T.copy().T})[1]
    False
    """
    if len(given) != len(names):
        raise Unkeyed
    held: list[Any] = []
    kind: list[Any] = []
    try:
        for name in names:
            x = given[name]
            if x.__class__ is not _ndarray:
                x, library = _entered(x)
                kind.append(library)
            held.append(x)
            if x.__class__ is _ndarray:
                kind += x.shape, x.strides, x.dtype
    except KeyError:
        raise Unkeyed from None
    return held, tuple(kind)


def _entered(x: Any) -> tuple[Any, Hashable]:
    """A number with its type; else an array that shares the memory, with the library it belongs to."""
    cls = x.__class__
    if cls in _NUMBERS or cls is int and _LOWEST <= x < _BEYOND:
        return x, cls
    library = cls.__module__.partition(".")[0]
    if library == "torch":
        return _from_torch(x), "torch"
    if library in ("jax", "jaxlib"):
        return _from_jax(x), "jax"
    raise Unkeyed


def _from_torch(x: Any) -> np.ndarray:
    """PyTorch itself refuses what shares no memory: other devices and layouts, views that negate, formats."""
    if x.requires_grad:
        raise Unkeyed
    try:
        found = x.numpy()
    except (AttributeError, TypeError, RuntimeError) as problem:
        raise Unkeyed from problem
    return found if found.__class__ is _ndarray else _refuse()


def _from_jax(x: Any) -> np.ndarray:
    try:
        if {d.platform for d in x.devices()} != {"cpu"} or x.dtype.name in NARROW_ONLY:
            raise Unkeyed
        found = np.asarray(x)
    except (AttributeError, TypeError, RuntimeError) as problem:  # such as tracers
        raise Unkeyed from problem
    return found if found.__class__ is _ndarray else _refuse()


def _refuse() -> np.ndarray:
    raise Unkeyed
