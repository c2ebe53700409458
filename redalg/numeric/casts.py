"""Casts of NumPy arrays to the formats of `redalg.graph.formats`, without their dtypes being there."""

from __future__ import annotations

from typing import Any

import numpy as np

from redalg.graph.formats import FLOATS, INTEGERS, FloatFormat
from redalg.numeric.integers import fitted


def cast_array(x: Any, name: str) -> Any:
    """The array rounded to the named format, in its own dtype (integers stay int64 under an integer cast)."""
    if name == "bool":
        return x != 0
    if np.iscomplexobj(x):
        return (cast_array(x.real, name) + 1j * cast_array(x.imag, name)).astype(x.dtype)
    if name in INTEGERS:
        low, high = INTEGERS[name]
        if x.dtype.kind in "iu":
            bounds = np.iinfo(x.dtype)
            return np.clip(x, max(low, int(bounds.min)), min(high, int(bounds.max)))
        if x.dtype == object:  # Python's integers
            return fitted(np.asarray(np.clip(x, low, high), dtype=object))
        return np.clip(np.rint(x), low, high).astype(x.dtype)
    form = FLOATS[name]
    if form.bits >= np.finfo(x.dtype).nmant and form.least_exponent <= np.finfo(x.dtype).minexp:
        return x
    return _round_array(x, form)


def _round_array(x: np.ndarray, form: FloatFormat) -> np.ndarray:
    """Scale so that one unit in the last place of the format is 1, round half to even, scale back: all exact."""
    exponent = np.frexp(x)[1] - 1
    unit = np.maximum(exponent, form.least_exponent) - form.bits
    y = np.ldexp(np.rint(np.ldexp(x, -unit)), unit)
    largest = x.dtype.type(form.largest)
    limit = largest if form.saturates else x.dtype.type(np.inf)
    y = np.where(np.abs(y) > largest, np.copysign(limit, x), y)
    return np.where(np.isfinite(x) | form.saturates & np.isinf(x), y, x).astype(x.dtype)
