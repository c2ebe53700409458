"""A form over columns of pandas: of a frame, by group, or as the function that `agg`, `apply` and `transform` take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from redalg.adapters.columns import Chunks, Columns, by_place, library, rows_of, unique
from redalg.errors import RedalgError
from redalg.form import Form

WHERE = "form.pandas"


def pandas(
    form: Form, /, *given: Any, by: Any = None, nulls: str = "propagate", sort: bool = True, **columns: Any
) -> Any:
    """The form over columns of a frame, or a function of frames.

    ``form.pandas(frame, x="price", w="volume")``: what a run on these columns gives: a number or an array; a Series on
    the frame's index for an output that keeps the streamed axis; a dict of them where there are several outputs. A
    list of columns is a tensor of two axes. A tensor without a column has that of its own name; tensors without the
    streamed axis are arrays or numbers. A Series stands for the one tensor of a form.

    ``by=`` (what `DataFrame.groupby` takes, rows with a null key left out) or a `DataFrameGroupBy` in place of the
    frame: a Series, or a DataFrame where there are several outputs, on the index of groups; arrays by group are
    objects. All groups are computed at once (`Form.grouped`).

    ``form.pandas(x="price")``: a function for ``groupby.apply``, ``groupby[column].agg``, ``transform``: called once
    for every group, by pandas. `nulls`: what becomes of NA and NaN, as in `Form.accumulator` (pandas' own aggregations
    skip them: ``nulls="skip"``).

    Raises: RedalgError without pandas, for columns that are not there and for arrays that do not fit the spec.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.parse("return v = sum[j](w[j]*x[j]) / sum[j](w[j])"))
    >>> form.pandas(frame, x="price", w="volume", by="shop")                                    # doctest: +SKIP
    """
    pd = library("pandas", WHERE, "redalg[pandas]")
    framed = bool(given) and not isinstance(given[0], str)
    frame: Any = given[0] if framed else None
    names = given[1:] if framed else given
    columns = by_place(form, names, columns, WHERE)
    if not framed:
        if by is not None:
            raise RedalgError("by= without a frame", WHERE, "pandas gives the groups", "form.pandas(frame, by=...)")
        return PandasFunction(Columns(form, columns, WHERE, nulls))
    found = Columns(form, columns, WHERE, nulls)
    if hasattr(frame, "ngroup"):
        return _by_group(pd, found, frame.obj, frame)
    if by is not None:
        if not hasattr(frame, "groupby"):
            raise _no_frame(frame)
        try:
            groups = frame.groupby(by, sort=sort, observed=True)
        except (KeyError, TypeError, ValueError) as error:
            raise _not_grouped(f"by={by!r}", frame, error) from error
        return _by_group(pd, found, frame, groups)
    return _whole(pd, found, frame)


class PandasFunction:
    """A function of a frame or a Series that pandas calls for every group."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.__name__ = "_".join(columns.form.spec.outputs)

    def __call__(self, frame: Any) -> Any:
        pd = library("pandas", WHERE, "redalg[pandas]")
        found = _whole(pd, self.columns, frame)
        return pd.Series(found) if isinstance(found, dict) and not self.columns.layout.keeps else found

    def __repr__(self) -> str:
        return f"<pandas function of {', '.join(self.columns.form.spec.outputs)}>"


def _whole(pd: Any, columns: Columns, frame: Any) -> Any:
    chunks = _chunks(columns, frame)
    found = columns.results(columns.accumulated(chunks), chunks)
    axes, first = columns.form.spec.output_axes, columns.layout.axis[0]
    if columns.nulls == "skip" and columns.layout.keeps:
        why = "an output that keeps the axis has an element for every row"
        raise RedalgError('nulls="skip"', WHERE, why, "drop the rows with nulls first")
    for name, x in found.items():
        if axes[name] == (first,):
            found[name] = pd.Series(x, index=frame.index, name=name)
        elif not np.ndim(x):
            found[name] = np.asarray(x)[()]
    return next(iter(found.values())) if len(found) == 1 else found


def _chunks(
    columns: Columns, frame: Any, more: Mapping[str, Any] | None = None, rows: np.ndarray | None = None
) -> Callable[[], Chunks]:
    """The columns, of those `rows` alone; None: of all."""
    return lambda: [{**{t: _column(columns, frame, t, c, rows) for t, c in columns.streamed.items()}, **(more or {})}]


def _column(columns: Columns, frame: Any, tensor: str, column: Any, rows: np.ndarray | None = None) -> Any:
    if getattr(frame, "ndim", 0) == 1:
        columns.sole()
        return rows_of(frame, rows)
    if not hasattr(getattr(frame, "columns", None), "get_loc"):  # columns of other libraries are lists
        raise _no_frame(frame)
    wanted = column if isinstance(column, list) else [column]
    missing = [c for c in wanted if c not in frame.columns]
    if missing:
        why = f"the columns are {', '.join(map(str, frame.columns[:12]))}"
        raise RedalgError(f"{tensor}={column!r}", WHERE, why, f"name the column of {tensor}: {tensor}=...")
    for c in wanted:
        unique(frame, c, WHERE)
    if isinstance(column, list):
        return columns.side_by_side(tensor, [rows_of(frame[c], rows) for c in column])
    return rows_of(frame[column], rows)


def _not_grouped(by: str, frame: Any, error: Exception) -> RedalgError:
    why = f"pandas does not group by it: {error}"
    fix = f"name a column or several, of {', '.join(map(str, getattr(frame, 'columns', ())))}"
    return RedalgError(by, WHERE, why, fix)


def _no_frame(given: Any) -> RedalgError:
    why = "it is neither a frame nor a Series, nor groups of them"
    return RedalgError(f"a {type(given).__name__}", WHERE, why, "form.pandas(frame, x=...)")


def _by_group(pd: Any, columns: Columns, frame: Any, groups: Any) -> Any:
    if not groups.as_index:
        why = "results are on the index of groups"
        raise RedalgError("groups with as_index=False", WHERE, why, "leave it out, then result.reset_index()")
    try:
        codes, sizes = groups.ngroup().to_numpy(), groups.size()
    except (TypeError, ValueError, NotImplementedError) as error:  # keys without an order, dtypes without an index
        raise _not_grouped("these groups", frame, error) from error
    index = sizes.index[sizes > 0]  # categories without a row have no result
    held = ~np.isnan(codes)  # the others have a null key
    rows = None if held.all() else held
    codes = np.unique(codes[held], return_inverse=True)[1]
    keys, values = columns.grouped(_chunks(columns, frame, {"by": codes}, rows)).result(sort=True)
    series = {}
    for name, x in columns.named(values).items():
        series[name] = pd.Series(x if np.ndim(x) == 1 else list(x), index=index[keys.astype(np.int64)], name=name)
    return next(iter(series.values())) if len(series) == 1 else pd.DataFrame(series)


__all__ = ["PandasFunction", "pandas"]
