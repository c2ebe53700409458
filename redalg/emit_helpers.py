"""The few functions a generated NumPy program may need, as source text; a program contains those it calls."""

from __future__ import annotations

import re

CAST = "from redalg.numeric_cast import cast_array"

HELPERS = {
    "exp_centred": '''\
def exp_centred(u, c):
    """exp(u + c), and 0 where u is -inf, whatever c is."""
    return np.where((u == -np.inf) & (c == c), 0.0, np.exp(u + c))
''',
    "exp_scaled": '''\
def exp_scaled(x, u, c, scale):
    """exp(x), x = u + c, and 0 where u is -inf, whatever c is, unless the scale makes it so."""
    return np.where((u == -np.inf) & (c == c) & np.isfinite(scale), 0.0, np.exp(x))
''',
    "sigmoid": """\
def sigmoid(x):
    return 1 / (1 + np.exp(-x))
""",
    "relu": """\
def relu(x):
    return np.maximum(x, 0)
""",
    "erf": """\
erf = np.vectorize(math.erf, otypes=[float])
""",
    "erfc": """\
erfc = np.vectorize(math.erfc, otypes=[float])
""",
    "last": '''\
def last(x, axis):
    """The given dimensions, row-major, as the last one."""
    places = axis if isinstance(axis, tuple) else (axis,)
    x = np.moveaxis(x, places, range(-len(places), 0))
    return x.reshape(*x.shape[: x.ndim - len(places)], -1)
''',
    "pow2": '''\
def pow2(x):
    """The largest power of 2 that is at most |x|, kept where it and its reciprocal are normal; 1 for inf and NaN."""
    x = np.asarray(x) + 0.0
    least = np.finfo(x.dtype).minexp
    exponent = np.clip(np.where(x == 0, least, np.frexp(x)[1] - 1), least, -least)
    return np.ldexp(np.ones((), x.dtype), np.where(np.isfinite(x), exponent, 0))
''',
    "position": '''\
def position(x, axis, best):
    """The first position of the largest or smallest value; of the first NaN, if there is one."""
    return (np.argmax if best == "max" else np.argmin)(last(x, axis), axis=-1)
''',
    "top": '''\
def top(x, axis, k, place):
    """The k largest values in descending order and their positions, the lower one first among equals."""
    x = last(x, axis)
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    values = np.take_along_axis(x, order, axis=-1)
    missing = [(0, 0)] * (x.ndim - 1) + [(0, k - order.shape[-1])]
    values = np.pad(values.astype(float), missing, constant_values=-np.inf)
    order = np.pad(order, missing, constant_values=-1)
    return np.moveaxis(values, -1, place), np.moveaxis(order, -1, place)
''',
    "topk_merge": '''\
def topk_merge(a, b, axis):
    """The largest of both lists, descending."""
    both = np.concatenate([a, b], axis=axis)
    return np.take(-np.sort(-both, axis=axis), range(a.shape[axis]), axis=axis)
''',
    "topk_merge_indices": '''\
def topk_merge_indices(a, i, b, j, axis):
    """Their positions, the lower one first among equals; -1 where a list was short."""
    both, places = np.concatenate([a, b], axis=axis), np.concatenate([i, j], axis=axis)
    order = np.take(np.argsort(-both, axis=axis, kind="stable"), range(a.shape[axis]), axis=axis)
    found = np.take_along_axis(places, order, axis=axis)
    return np.where(np.take_along_axis(both, order, axis=axis) == -np.inf, -1, found)
''',
    "fold": '''\
def fold(combine, parts, axes):
    """Elements combined one after the other, in stream order."""
    parts = [last(p, axes) for p in np.broadcast_arrays(*parts)]
    total = tuple(p[..., 0] for p in parts)
    for j in range(1, parts[0].shape[-1]):
        total = combine(total, tuple(p[..., j] for p in parts))
    return total
''',
}


def needed(text: str) -> list[str]:
    """The helpers that the text calls, directly or through each other, in the order of definition."""
    found: set[str] = set()
    while True:
        bodies = text + "".join(HELPERS[name] for name in found)
        more = {name for name in HELPERS if re.search(rf"\b{name}\(", bodies)} - found
        if not more:
            return [HELPERS[name] for name in HELPERS if name in found]
        found |= more


def imports(text: str) -> list[str]:
    lines = ["import math", ""] if "math." in text else []
    return [*lines, "import numpy as np", *([CAST] if "cast_array(" in text else [])]
