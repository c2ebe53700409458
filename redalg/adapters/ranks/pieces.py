"""A rank's part in several pieces of equal length: where each begins, and arrays cut and joined along the axis.

Where a mask is causal, early keys are seen by more queries than late ones, and ranks that hold them would have more to
do. With two pieces for each rank, one from either end (`zigzag`), all have the same.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redalg.adapters.ranks.channel import WHERE
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.streaming import checks

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


def starts_of(value: Any) -> tuple[int, ...] | None:
    """Where the pieces begin; None where nothing is said. Raises: RedalgError for what is no position."""
    if value is None:
        return None
    if not isinstance(value, Sequence | np.ndarray):
        return (int(checks.start(value) or 0),)
    found = tuple(int(checks.start(v) or 0) for v in value)
    if not found:
        raise RedalgError("start=[]", WHERE, "a part has at least one piece", "leave it out")
    return found


def cut(form: Form, arrays: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """The arrays of each piece: views. Raises: RedalgError where the length is no multiple of `count`."""
    if count == 1:
        return [dict(arrays)]
    axis = form.plan.axis[0]
    found: list[dict[str, Any]] = [dict(arrays) for _ in range(count)]
    for d in form.spec.tensors:
        if axis not in d.axes:
            continue
        x, place = arrays[d.name], d.axes.index(axis)
        length = x.shape[place]
        if length % count:
            why = f"{d.name} has {length} elements along {axis!r}, and start= names {count} pieces of equal length"
            raise RedalgError("a part that cannot be cut", WHERE, why, "pieces of one length, or one start=")
        step = length // count
        for k in range(count):
            found[k][d.name] = x[(slice(None),) * place + (slice(k * step, (k + 1) * step),)]
    return found


def joined(parts: Sequence[Any], axis: int) -> Any:
    """The pieces of an output that keeps the axis, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if torch is not None and isinstance(parts[0], torch.Tensor):
        return torch.cat(list(parts), axis)
    return np.concatenate(parts, axis)


def zigzag(length: int, rank: int, ranks: int) -> list[tuple[int, int]]:
    """The positions [start, stop) of a rank's two pieces, one from either end.

    Raises: RedalgError where `length` is no multiple of twice the ranks.

    >>> [zigzag(16, rank, 4) for rank in range(4)]
    [[(0, 2), (14, 16)], [(2, 4), (12, 14)], [(4, 6), (10, 12)], [(6, 8), (8, 10)]]
    """
    step, left = divmod(length, 2 * ranks)
    if left:
        why = f"it is cut into {2 * ranks} pieces of equal length"
        raise RedalgError(f"a length of {length}", "zigzag", why, "pad it, and mask what was added")
    return [(rank * step, (rank + 1) * step), (length - (rank + 1) * step, length - rank * step)]


__all__ = ["cut", "joined", "starts_of", "zigzag"]
