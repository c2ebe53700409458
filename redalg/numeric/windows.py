"""Arrays that a spec reads in windows: views of their memory, by strides, behind zeros where an index asks for them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.node import Decl, Dimension
from redalg.numeric.array_origin import is_masked_array

_MOST = 2**58  # elements of an array of any dtype, whose bytes are int64


def refuse_windows(decls: Sequence[Decl], where: str) -> None:
    """Raises: RedalgError for a tensor that is read in windows, where arrays are cut along the axes of tensors."""
    for d in decls:
        if d.dimensions:
            why = f"it is read as {d}, and what is cut here along an axis is an array with a dimension for each axis"
            fix = f"declare the windows, {d.array or d.name}[{','.join(d.axes)}], and pass them; or form.compile()"
            raise RedalgError(f"the tensor {d.array or d.name}", where, why, fix)


def windows(
    decls: Sequence[Decl],
    arrays: Mapping[str, Any],
    sizes: Mapping[str, int],
    where: str = "the call",
    padding: bool = True,
    partial: Collection[str] = (),
) -> dict[str, Any]:
    """The arrays of a call, those that are read in windows as views with one dimension for each axis.

    An array that has a dimension for every axis holds the windows themselves. What does not fit is left as it is, for
    `redalg.numeric.binding` to say. ``padding=False``: those with zeros around them are left as they are. `partial`:
    axes of which arrays hold a part.

    >>> from redalg.language.leaves import tensors
    >>> x = tensors("x[i + r:2 - 1]")
    >>> windows([x.decl], {"x": np.array([1, 2, 3])}, {})["x"].tolist()
    [[0, 1], [1, 2], [2, 3], [3, 0]]

    Raises: RedalgError where the length of an axis is open or not what an index says, and for arrays without strides.
    """
    found, known = dict(arrays), dict(sizes)
    given = {d: _array(found[d.name]) for d in decls if d.name in found}
    waiting = [d for d, x in given.items() if d.dimensions and len(x.shape) == d.rank and _is_dense(x)]
    _take_lengths(given, waiting, known)
    while waiting:
        ready = [d for d in waiting if not _open(d, known)]
        if not ready:
            d = waiting[0]
            axis = _open(d, known)[0]
            why = f"no other tensor has the axis {axis}, and its length is not said"
            raise RedalgError(f"{d} of shape {given[d].shape}", where, why, f"write {axis}:N for a length of N")
        for d in ready:
            for dim, length in zip(d.dimensions, given[d].shape, strict=True):
                known.setdefault(dim.terms[0][0], count(dim, length, known))
            if padding or not padded(d):
                found[d.name] = _viewed(d, given[d], known, where)
        waiting = [d for d in waiting if d not in ready]
    for d in (d for d in given if d.dimensions):
        _check_lengths(d, _array(found[d.name]).shape, where, partial)
    return found


def _check_lengths(d: Decl, shape: Sequence[int], where: str, partial: Collection[str]) -> None:
    """Raises: RedalgError where the windows of an array are not as many, or not as long, as an index says."""
    terms = [term for dim in d.dimensions for term in dim.terms]
    for (axis, _, said), length in zip(terms, shape, strict=False) if len(shape) == len(terms) else ():
        if said not in (0, length) and axis not in partial:
            why = f"axis {axis} has length {length} there, and {d} says {said}"
            fix = f"pass an array with {axis} of length {said}, or write {axis} without a length"
            raise RedalgError(f"windows of {d.array or d.name}, of shape {tuple(shape)}", where, why, fix)


def padded(d: Decl) -> bool:
    """Whether zeros lie around the array."""
    return any(dim.pad for dim in d.dimensions)


def _take_lengths(given: Mapping[Decl, Any], waiting: Sequence[Decl], known: dict[str, int]) -> None:
    """The lengths of arrays with a dimension for each axis, and those that indices say, which these have to fit."""
    for d, x in given.items():
        if len(x.shape) == len(d.axes):
            for axis, n in zip(d.axes, x.shape, strict=True):
                known.setdefault(axis, n)
    known |= {axis: n for d in waiting for dim in d.dimensions for axis, _, n in dim.terms if n}


def _array(x: Any) -> Any:
    """What has a shape."""
    if hasattr(x, "shape"):
        return x
    try:
        return np.asarray(x)
    except (TypeError, ValueError):  # which binding refuses
        return np.asarray(0)


def _is_dense(x: Any) -> bool:
    """Others (masks, sparse tensors) are refused when the arrays are validated: a view would drop what they say."""
    return not is_masked_array(x) and getattr(x, "is_sparse", False) is not True


def _open(d: Decl, known: Mapping[str, int]) -> list[str]:
    """Axes whose lengths have to be known first: an array says that of the first axis of each of its indices."""
    return [a for dim in d.dimensions for a, _, _ in dim.terms[1:] if a not in known]


def count(dim: Dimension, length: int, known: Mapping[str, int]) -> int:
    """How many windows lie in so many elements and the zeros around them.

    >>> count(Dimension((("h", 2, 0), ("r", 1, 0)), 1), 6, {"r": 3})
    3
    """
    (_, step, _), *others = dim.terms
    if not others:
        return length
    reach = sum(s * (known[a] - 1) for a, s, _ in others if known[a])
    return max(0, (length + 2 * dim.pad - 1 - reach) // step + 1)


def _viewed(d: Decl, array: Any, known: Mapping[str, int], where: str) -> Any:
    library = "torch" if hasattr(array, "as_strided") else type(array).__module__.partition(".")[0]  # subclasses, too
    pads = [dim.pad for dim in d.dimensions]
    if library in ("jax", "jaxlib"):
        return _gathered(d, sys.modules["jax"].numpy.pad(array, [(p, p) for p in pads]), known)
    if not isinstance(array, np.ndarray) and library not in ("torch", "cupy"):
        why = f"windows are views by strides, and a {type(array).__name__} has none"
        raise RedalgError(f"{d} given as {type(array).__name__}", where, why, "pass an array of NumPy, PyTorch or JAX")
    array = _padded(array, pads) if any(pads) else array
    shape, steps = _layout(d, array.shape, known)
    if prod([n or 1 for n in shape]) > _MOST:
        why = f"they would have the shape {tuple(shape)}, more elements than an array can have"
        raise RedalgError(f"the windows of {d}", where, why, "shorter axes")
    if library == "torch":  # which counts in elements
        return array.as_strided(shape, [s * n for n, s in zip(steps, _repeated(d, array.stride()), strict=True)])
    strides = [s * n for n, s in zip(steps, _repeated(d, array.strides), strict=True)]
    if library == "cupy":
        return sys.modules["cupy"].lib.stride_tricks.as_strided(array, shape, strides)
    return np.lib.stride_tricks.as_strided(array, shape, strides, writeable=False)


def folded(d: Decl, found: Any, shape: Sequence[int]) -> Any:
    """What lies in windows, added up where the elements of an array of that shape lie: the adjoint of reading them.

    Sums of 16-bit floats are float32. The order of additions is that of the windows' inner axes.

    >>> from redalg.language.leaves import tensors
    >>> folded(tensors("x[i + r:2]").decl, np.array([[1.0, 10.0], [2.0, 20.0]]), (3,)).tolist()
    [1.0, 12.0, 20.0]
    """
    if type(found).__module__.partition(".")[0] in ("jax", "jaxlib"):
        return sys.modules["jax"].numpy.asarray(folded(d, np.asarray(found), shape))
    dtype, narrow = found.dtype, found.dtype.itemsize < 4
    library = sys.modules[type(found).__module__.partition(".")[0]]
    whole = library.zeros([n + 2 * dim.pad for n, dim in zip(shape, d.dimensions, strict=True)], dtype=dtype)
    if hasattr(found, "to"):
        whole = whole.to(library.float32 if narrow else dtype).to(found.device)
    elif narrow:
        whole = whole.astype(np.float32)
    for inner in product(*(range(n) for n, first in zip(found.shape, _firsts(d), strict=True) if not first)):
        place = iter(inner)
        taken: tuple[Any, ...] = tuple(slice(None) if first else next(place) for first in _firsts(d))
        into, k = [], 0
        for dim in d.dimensions:
            at, step = 0, dim.terms[0][1]
            for j, (_, inner_step, _) in enumerate(dim.terms[1:]):
                at += inner_step * taken[k + 1 + j]
            into.append(slice(at, at + step * (found.shape[k] - 1) + 1 if found.shape[k] else at, step))
            k += len(dim.terms)
        whole[tuple(into)] += found[taken]
    whole = whole[tuple(slice(dim.pad, dim.pad + n) for n, dim in zip(shape, d.dimensions, strict=True))]
    return whole.to(dtype) if hasattr(whole, "to") else whole.astype(dtype)


def _firsts(d: Decl) -> list[bool]:
    """Of each axis, whether it counts windows, or is an axis of the array."""
    return [j == 0 for dim in d.dimensions for j, _ in enumerate(dim.terms)]


def _layout(d: Decl, lengths: Sequence[int], known: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """Lengths and steps of all axes, in a padded array."""
    shape: list[int] = []
    for dim, length in zip(d.dimensions, lengths, strict=True):
        shape += [count(replace(dim, pad=0), length, known), *(known[a] for a, _, _ in dim.terms[1:])]
    return shape, [step for dim in d.dimensions for _, step, _ in dim.terms]


def stepped(d: Decl, strides: Sequence[int]) -> tuple[int, ...]:
    """Strides of windows of an array with these strides."""
    steps = [step for dim in d.dimensions for _, step, _ in dim.terms]
    return tuple(s * n for n, s in zip(steps, _repeated(d, strides), strict=True))


def _repeated(d: Decl, strides: Sequence[int]) -> list[int]:
    return [s for dim, s in zip(d.dimensions, strides, strict=True) for _ in dim.terms]


def _padded(array: Any, pads: Sequence[int]) -> Any:
    if hasattr(array, "new_zeros"):  # PyTorch's, which may be mapped over, where nothing is written in place
        return sys.modules["torch"].nn.functional.pad(array, [p for pad in reversed(pads) for p in (pad, pad)])
    library = sys.modules[type(array).__module__.partition(".")[0]]
    whole = library.zeros([n + 2 * p for p, n in zip(pads, array.shape, strict=True)], array.dtype)
    whole[tuple(slice(p, p + n) for p, n in zip(pads, array.shape, strict=True))] = array
    return whole


def _gathered(d: Decl, array: Any, known: Mapping[str, int]) -> Any:
    """The windows as a copy."""
    shape, steps = _layout(d, array.shape, known)
    places = iter(np.ogrid[tuple(slice(n) for n in shape)] if shape else ())
    step = iter(steps)
    return array[tuple(sum(next(step) * next(places) for _ in dim.terms) for dim in d.dimensions)]
