"""What is missing in a chunk (of pandas, Polars, Arrow and masked arrays), and what becomes of it.

A null is what the library says is one: ``isna`` of pandas (NaN in its float columns, too, as its users expect),
``is_null`` of Polars and Arrow (whose NaN is a number), the mask of a masked array. NaN in any other array is a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.operators import Position, TopK
from redalg.numeric.array_origin import is_masked_array, to_numpy
from redalg.numeric.encoded import columns_of, decoded
from redalg.streaming.snapshot import Layout
from redalg.streaming.tapes.tape import Array

POLICIES = ("propagate", "skip", "error")


def checked(layout: Layout, policy: Any, placed: bool, where: str) -> str:
    """The policy. Raises: RedalgError for an unknown one, and for "skip" where positions have a meaning."""
    if not isinstance(policy, str) or policy not in POLICIES:
        raise RedalgError(f"nulls={policy!r}", where, f"policies are {', '.join(POLICIES)}", 'nulls="propagate"')
    if policy != "skip":
        return policy
    why = ""
    if placed:
        why = "positions of a placed accumulator are those of the stream, nulls included"
    elif layout.positional or layout.positional_rows:
        why = f"the form reads index({layout.axis[0]!r}), and what follows a null would move"
    elif any(isinstance(s.op, Position | TopK) for p in layout.plan.passes for s in p.slots):
        why = "the form holds positions, which would count without the nulls"
    elif any(d.dimensions for d in layout.streamed):
        why = "a tensor is read in windows, of which an element without its neighbours is no part"
    elif len(layout.axis) > 1:
        why = f"({', '.join(layout.axis)}) is a composite axis, which has whole rows"
    if why:
        raise RedalgError('nulls="skip"', where, why, 'nulls="error", or fill the nulls first')
    return policy


def without(layout: Layout, chunks: Mapping[str, Any], policy: str, where: str) -> Mapping[str, Any]:
    """The chunks without the elements of the stream that are null in any tensor. Raises: RedalgError by "error"."""
    return selected(layout, chunks, policy, where)[0]


def selected(
    layout: Layout, chunks: Mapping[str, Any], policy: str, where: str
) -> tuple[Mapping[str, Any], Array | None]:
    """The same, and which elements these are; None: all of them."""
    at = {name: d.axes.index(layout.axis[0]) for d in layout.streamed for name in (d.array or d.name, d.name)}
    chunks = {name: decoded(x) if name in at else x for name, x in chunks.items()}
    missing = _missing(chunks, at)
    if len({len(rows) for rows in missing.values()}) > 1:
        return chunks, None  # lengths are refused next
    for name, rows in missing.items():
        if policy == "error" and rows.any():
            why = f"{int(rows.sum())} of its elements are null, the first at {int(np.argmax(rows))} of this chunk"
            raise RedalgError(f"a chunk of {name}", where, why, 'fill them, or form.accumulator(nulls="skip")')
    if not missing:
        return chunks, None
    rows = np.logical_or.reduce(list(missing.values()))
    kept = np.flatnonzero(~rows) if rows.any() else None
    found = {name: _taken(x, at.get(name), kept, len(rows)) for name, x in chunks.items()}
    return found, None if kept is None else ~rows


def _missing(chunks: Mapping[str, Any], at: Mapping[str, int]) -> dict[str, Array]:
    """Tensor -> which of its elements along the streamed axis are null; of arrays that can have nulls."""
    found: dict[str, Array] = {}
    for name in [name for name in chunks if name in at]:
        null = mask(chunks[name])
        if null is not None and at[name] < null.ndim:  # else its number of dimensions is refused next
            found[name] = null.any(axis=tuple(d for d in range(null.ndim) if d != at[name]))
    return found


def _library(x: Any) -> str:
    return type(x).__module__.partition(".")[0]


def mask(x: Any) -> Array | None:
    """Where an array is null; None of a kind that has no nulls."""
    if is_masked_array(x):
        return np.ma.getmaskarray(x)
    if _library(x) == "pandas" and hasattr(x, "isna"):
        return np.asarray(x.isna(), bool)
    if _library(x) in ("polars", "pyarrow") and hasattr(x, "is_null"):
        return np.asarray(x.is_null(), bool)
    columns = columns_of(x)
    masks = [] if columns is None else [m for m in map(mask, columns) if m is not None]
    return np.stack(masks, axis=1) if masks else None


def filled(x: Any) -> Array:
    """A column in its own dtype, with 0 in the place of nulls."""
    library, own = _library(x), _own_dtype(x)
    if library == "pandas" and own is not None and x.isna().any():
        return np.asarray(x.fillna(own.type(0)).to_numpy(dtype=own))
    if library in ("polars", "pyarrow") and x.null_count:
        return to_numpy(x.fill_null(False if str(_kind(x)).lower().startswith("bool") else 0))
    return np.asarray(x.to_numpy(dtype=own)) if library == "pandas" and own is not None else to_numpy(x)


def with_nan(x: Any) -> Array:
    """A column as an array, with NaN in the place of nulls where that is how its library has them in arrays."""
    own = _own_dtype(x)
    if _library(x) != "pandas" or own is None:
        return to_numpy(x)
    if not x.isna().any():
        return np.asarray(x.to_numpy(dtype=own))
    floats = own if own.kind == "f" else np.dtype(np.float64)
    return to_numpy(x) if own.kind == "b" else np.asarray(x.to_numpy(dtype=floats, na_value=np.nan))


def _own_dtype(x: Any) -> np.dtype | None:
    """NumPy's dtype of the numbers of an extension array."""
    found = getattr(getattr(x, "dtype", None), "numpy_dtype", None)
    return found if isinstance(found, np.dtype) and found.kind in "biuf" else None


def _kind(x: Any) -> Any:
    return getattr(x, "type", None) if _library(x) == "pyarrow" else x.dtype


def _taken(x: Any, at: int | None, kept: Array | None, length: int) -> Any:
    """The elements that are kept (None: all), in the dtype that they have without nulls."""
    if at is None:
        return x
    if is_masked_array(x):
        x = np.ma.getdata(x)
    if isinstance(x, list | tuple):
        x = np.asarray(x)
    shape = np.shape(x)
    if kept is not None and (at >= len(shape) or shape[at] != length):
        return x  # refused next
    library = _library(x)
    if library == "pandas":
        return _of_pandas(x, at, kept)
    if kept is None:
        return x
    if library == "polars":
        return x[kept]
    if library == "pyarrow":
        return x.take(kept)
    return x[(slice(None),) * at + (kept,)]


def taken(column: Any, kept: Array) -> Any:
    """The elements of a column that are kept, in the dtype that they have without nulls."""
    return _taken(column, 0, kept, len(column))


def _of_pandas(x: Any, at: int, kept: Array | None) -> Any:
    if kept is not None:
        if hasattr(x, "iloc"):
            x = x.iloc[(slice(None),) * at + (kept,)]
        else:
            x = x.take(kept)
    own = getattr(getattr(x, "dtype", None), "numpy_dtype", None)
    return x.to_numpy(dtype=own) if own is not None else to_numpy(x)
