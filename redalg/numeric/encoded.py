"""Columns that hold numbers as codes or as runs, made plain: categories of pandas, Arrow's dictionaries and runs.

NumPy's conversions of them give floats where there are nulls, so that integers beyond 2^53 are rounded and nobody sees
that they were integers; and Arrow's conversion of a dictionary in several chunks has another element in the place of a
null.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from redalg.errors import RedalgError

ENCODED = ("dictionary", "run_end_encoded")


def decoded(column: Any) -> Any:
    """The column with a number or a null for each element; what is not encoded as it is.

    >>> x = np.ones(3)
    >>> decoded(x) is x
    True
    """
    library = type(column).__module__.partition(".")[0]
    if library == "pyarrow" and hasattr(column, "type"):
        return _of_arrow(column)
    if library == "pyarrow" and any(str(c.type).startswith(ENCODED) for c in columns_of(column) or ()):
        return type(column).from_arrays([_of_arrow(c) for c in column.columns], names=column.schema.names)
    if library == "pandas" and getattr(column, "ndim", 0) == 1 and hasattr(column, "dtype"):
        return _of_pandas(column)
    return column


def columns_of(frame: Any) -> list[Any] | None:
    """The columns of a frame that stands for a matrix; None of what is no frame of pandas, Polars or Arrow."""
    library = type(frame).__module__.partition(".")[0]
    if library == "pandas" and getattr(frame, "ndim", 0) == 2:
        return [frame.iloc[:, k] for k in range(frame.shape[1])]
    if library == "polars" and hasattr(frame, "get_columns"):
        return list(frame.get_columns())
    return list(frame.columns) if library == "pyarrow" and hasattr(frame, "schema") else None


def is_wider(column: Any) -> bool:
    """Whether it holds integers of 128 bits, which NumPy has no dtype for (Polars)."""
    return type(column).__module__.startswith("polars") and str(getattr(column, "dtype", "")) in ("Int128", "UInt128")


def refuse_wider(what: object, given: Any, where: str) -> None:
    """Raises: RedalgError for integers of 128 bits."""
    column = next(filter(is_wider, columns_of(given) or [given]), None)
    if column is not None:
        why, fix = f"integers are computed in int64, and it holds {column.dtype}", "column.cast(pl.Int64)"
        raise RedalgError(f"{what} with dtype {column.dtype}", where, why, fix)


def element(column: Any, k: int) -> int:
    """The integer at one place of a column, with all its digits."""
    found = column.iloc[k] if hasattr(column, "iloc") else column[k]
    return int(found.as_py() if hasattr(found, "as_py") else found)


def _of_arrow(column: Any) -> Any:
    while str(column.type).startswith(ENCODED):
        if str(column.type).startswith("run_end_encoded"):
            column = importlib.import_module("pyarrow.compute").run_end_decode(column)
        else:
            column = column.cast(column.type.value_type)
    return column


def _of_pandas(column: Any) -> Any:
    dtype = column.dtype
    if str(getattr(dtype, "pyarrow_dtype", "")).startswith(ENCODED):
        return _of_arrow(getattr(column, "array", column).__arrow_array__())
    kind = getattr(getattr(dtype, "categories", None), "dtype", None)
    if not isinstance(kind, np.dtype) or kind.kind not in "biuf":
        return column
    codes = np.asarray(getattr(column, "cat", column).codes)
    none = codes < 0
    values = np.asarray(dtype.categories)[codes] if len(dtype.categories) else np.zeros(len(codes), kind)
    pandas = sys.modules["pandas"]
    if not none.any():
        return pandas.Series(values)
    if kind.kind == "f":
        return pandas.Series(np.where(none, kind.type(np.nan), values))
    nullable = "boolean" if kind.kind == "b" else kind.name.replace("int", "Int").replace("uI", "UI")
    return pandas.Series(pandas.array(values, nullable)).mask(none)
