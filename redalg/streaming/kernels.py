"""The array operations of a tape: reductions that keep their dimensions, contractions, and a few fused ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from redalg.numeric_integers import multiply
from redalg.numeric_reduce import contract, pairwise_sum, position, product, top_k

Array = Any


def _last(x: Array, axes: Sequence[int]) -> Array:
    """The reduced dimensions, row-major, as the last one."""
    moved = np.moveaxis(x, axes, range(-len(axes), 0)) if axes else x[..., None]
    return moved.reshape(*moved.shape[: -len(axes)], -1) if len(axes) > 1 else moved


def _kept(x: Array, axes: Sequence[int]) -> Array:
    return np.expand_dims(x, tuple(axes)) if axes else x


def sum_over(axes: tuple[int, ...]) -> Callable[[Array], Array]:
    """Sum with pairwise accuracy whatever the memory layout; integers and Booleans in int64."""

    def run(x: Array) -> Array:
        if not axes:
            return x
        if len(axes) == 1 and x.dtype.kind in "fc":
            (p,) = axes
            if x.shape[p] <= 8 or x.strides[p] == x.itemsize:
                return np.add.reduce(x, axis=p, keepdims=True)
        return _kept(pairwise_sum(_last(x, axes)), axes)

    return run


def prod_over(axes: tuple[int, ...]) -> Callable[[Array], Array]:
    return lambda x: _kept(product(_last(x, axes)), axes)


def extremum_over(kind: str, axes: tuple[int, ...], ignore_nan: bool = False) -> Callable[[Array], Array]:
    ufunc = np.maximum if kind == "max" else np.minimum
    if not ignore_nan:
        return lambda x: ufunc.reduce(x, axis=axes, keepdims=True)
    quiet, void = (np.fmax, -np.inf) if kind == "max" else (np.fmin, np.inf)

    def run(x: Array) -> Array:
        best = quiet.reduce(x, axis=axes, keepdims=True)
        return np.where(best == best, best, void).astype(best.dtype) if best.dtype.kind == "f" else best

    return run


def logical_over(kind: str, axes: tuple[int, ...]) -> Callable[[Array], Array]:
    ufunc = np.logical_or if kind == "any" else np.logical_and
    return lambda x: ufunc.reduce(x, axis=axes, keepdims=True)


def position_over(kind: str, axes: tuple[int, ...]) -> Callable[[Array], Array]:
    return lambda x: _kept(position(kind, _last(x, axes)), axes)


def top_over(k: int, axes: tuple[int, ...], target: int) -> Callable[[Array], tuple[Array, Array]]:
    """Both lists of a top-k, the new dimension at the layout's place for it."""

    def run(x: Array) -> tuple[Array, Array]:
        values, indices = top_k(_last(x, axes), k)
        return _place(values, axes, target), _place(indices, axes, target)

    return run


def _place(values: Array, axes: Sequence[int], target: int) -> Array:
    """Restore the reduced dimensions with length 1 and move the list's dimension where the layout has it."""
    return np.moveaxis(np.squeeze(_kept(values, axes), axis=target), -1, target)


def fold_over(axes: tuple[int, ...], combine: Callable[..., Sequence[Array]]) -> Callable[..., list[Array]]:
    """A monoid's fold in stream order: neighbours combined level by level; needs at least one element."""

    def run(*bodies: Array) -> list[Array]:
        shape = np.broadcast_shapes(*(b.shape for b in bodies))
        parts = [_last(np.broadcast_to(b, shape), axes) for b in bodies]
        while (n := parts[0].shape[-1]) > 1:
            even = n - n % 2
            merged = list(combine([p[..., 0:even:2] for p in parts], [p[..., 1:even:2] for p in parts]))
            tails = [p[..., even:] for p in parts]
            parts = [np.concatenate([m, t], axis=-1) if n % 2 else m for m, t in zip(merged, tails, strict=True)]
        return [_kept(p[..., 0], axes) for p in parts]

    return run


def contraction(axes: tuple[int, ...]) -> Callable[[Array, Array], Array]:
    return lambda a, b: contract(a, b, axes)


def fixed_sum(axes: tuple[int, ...]) -> Callable[[Array], Array]:
    """A sum whose bits do not depend on how many rows are done together: always along contiguous memory."""

    def run(x: Array) -> Array:
        if x.dtype.kind in "iub":
            return _kept(pairwise_sum(_last(x, axes)), axes)
        return _kept(np.add.reduce(np.ascontiguousarray(_last(x, axes)), axis=-1), axes)

    return run


def fixed_contraction(axes: tuple[int, ...]) -> Callable[[Array, Array], Array]:
    """A contraction written out, for the same reason."""
    total = fixed_sum(axes)
    return lambda a, b: total(multiply(a, b) if a.dtype.kind in "iO" else a * b)


def integer_power(x: Any, e: int) -> Any:
    """x**e for e >= 1 by squaring: a handful of multiplications."""
    result = None
    while e:
        if e & 1:
            result = x if result is None else result * x
        e >>= 1
        if e:
            x = x * x
    return result
