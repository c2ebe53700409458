"""Arrays that receive the results of a call on the CPU (``out=``): what they must be like, before anything is computed.

Each has the kind, shape and dtype of its result and may be written to; no two of its elements share memory, nor do two
arrays. What it may share memory with is an input: `shared` says so, and the caller computes elsewhere first.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.numeric.array_origin import BFLOAT16_BITS, Origin, declared_dtype, format_name, is_masked_array, origin_of

WORK: Any = 10_000  # candidates that are tried to tell whether two arrays share an element
FRESH = "pass an array of its own, or leave out away"

Wanted = Mapping[str, tuple[tuple[int, ...], np.dtype]]  # of each output the shape and dtype


def received(out: Any, wanted: Wanted, origin: Origin, where: str = "the call") -> dict[str, np.ndarray]:
    """The memory of the arrays in `out`, by output, in the order of `wanted`.

    Raises: RedalgError for arrays that do not fit their results, cannot be written to, or overlap.

    >>> whole = np.zeros(5)
    >>> wanted = {"a": ((3,), whole.dtype), "b": ((3,), whole.dtype)}
    >>> received({"a": whole[:3], "b": whole[2:]}, wanted, Origin())
    Traceback (most recent call last):
        ...
    redalg.errors.RedalgError: refused: out for a and out for b
    where:   the call
    why:     they share memory, and one result would overwrite the other
    try:     pass an array of its own, or leave out away
    """
    given = by_output(out, list(wanted), where)
    found = {name: _memory(name, given[name], *wanted[name], origin, where) for name in wanted}
    require_apart(found, where)
    return found


def by_output(out: Any, names: list[str], where: str) -> Mapping[str, Any]:
    """`out` as one array by output."""
    given = out if isinstance(out, dict) else {names[0]: out}
    if not isinstance(out, dict) and len(names) > 1 or set(given) != set(names):
        why, fix = f"the outputs are {', '.join(names)}", "pass one array, or a dict with one for each output"
        raise RedalgError(f"out={type(out).__name__}", where, why, fix)
    return given


def require_apart(found: Mapping[str, np.ndarray], where: str) -> None:
    """Raises: RedalgError where elements of one array share memory, or two arrays do."""
    for name, x in found.items():
        if self_overlapping(x.shape, x.strides, x.itemsize):
            what, why = f"out for {name} with strides {x.strides}", "elements of it share memory"
            raise RedalgError(what, where, why, FRESH)
    require_disjoint(found, where)


def require_disjoint(found: Mapping[str, np.ndarray], where: str) -> None:
    """Raises: RedalgError where two arrays share memory."""
    for a, b in combinations(found, 2):
        if shared(found[a], found[b]):
            why = "they share memory, and one result would overwrite the other"
            raise RedalgError(f"out for {a} and out for {b}", where, why, FRESH)


def shared(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether an element of one lies where one of the other does; True where that takes too long to tell.

    >>> x = np.zeros((4, 6))
    >>> shared(x[:, ::2], x[:, 1::2]), shared(x[1:], x[:-1])
    (False, True)
    """
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=WORK)
    except np.exceptions.TooHardError:
        return True


def same_place(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether elements with equal indices, and only they, share memory (neither array overlaps itself)."""
    places = [x.__array_interface__["data"][0] for x in (a, b)]
    return places[0] == places[1] and (a.shape, a.strides, a.itemsize) == (b.shape, b.strides, b.itemsize)


def self_overlapping(shape: tuple[int, ...], strides: tuple[int, ...], each: int) -> bool:
    """Whether two elements may share memory: not where every stride is longer than all that lies within it.

    Views that slicing, transposing and diagonals make of an array never do. `each`: what an element takes, in the unit
    of the strides.

    >>> self_overlapping((3, 4), (1, 3), 1), self_overlapping((3, 4), (0, 1), 1), self_overlapping((3, 4), (1, 1), 1)
    (False, True, True)
    """
    if 0 in shape:
        return False
    within = each
    for stride, n in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < within:
            return True
        within += stride * (n - 1)
    return False


def _memory(name: str, x: Any, shape: tuple[int, ...], dtype: np.dtype, origin: Origin, where: str) -> np.ndarray:
    if origin.kind == "jax":
        raise RedalgError(f"out for {name}", where, "arrays of JAX do not change", "leave out away")
    kind = "torch" if origin.kind == "torch" else "numpy"
    plain = isinstance(x, np.ndarray) and not is_masked_array(x)  # whose mask would hide results
    fits = plain if kind == "numpy" else origin_of(x) == origin
    if not fits:
        what, why = f"out for {name} of type {type(x).__name__}", f"the result is an array of {kind} on the CPU"
        raise RedalgError(what, where, why, "pass an array of that kind")
    matches = x.dtype == dtype if kind == "numpy" else declared_dtype(x) == format_name(dtype)
    if tuple(x.shape) != shape or not matches:
        what = f"out for {name} of shape {tuple(x.shape)} and dtype {x.dtype}"
        why = f"the result has shape {shape} and dtype {format_name(dtype)}"
        raise RedalgError(what, where, why, "pass an array of that shape and dtype")
    problem = _fixed_torch(x) if kind == "torch" else "" if x.flags.writeable else "the array is read-only"
    if problem:
        raise RedalgError(f"out for {name}", where, problem, "pass an array that results can be written to")
    return _torch_memory(x) if kind == "torch" else x


def _fixed_torch(x: Any) -> str:
    """Why results cannot be written to a tensor, if they cannot."""
    if str(x.layout) != "torch.strided":
        return f"it has the layout {x.layout}"
    return "it requires a gradient" if x.requires_grad else "it is a view that negates" if x.is_neg() else ""


def _torch_memory(x: Any) -> np.ndarray:
    if declared_dtype(x) != "bfloat16":
        return np.asarray(x.numpy())
    return np.asarray(x.view(sys.modules["torch"].int16).numpy()).view(BFLOAT16_BITS)
