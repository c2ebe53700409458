"""A form over columns of Polars: of a frame, lazy or not, by group, or as an expression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from redalg.adapters.columns import Columns, beyond_float64, by_place, library
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.groups.keys import canonical
from redalg.numeric.dtypes import output_flows
from redalg.numeric.encoded import is_wider

WHERE = "form.polars"
BATCH = 1 << 20  # rows of a lazy frame at a time


def polars(
    form: Form, /, *given: Any, by: Any = None, nulls: str = "propagate", sort: bool = False, **columns: Any
) -> Any:
    """The form over columns of a frame, or an expression.

    ``form.polars(frame, x="price", w=pl.col("n") * 2)``: columns by name or expression, a list of them for a tensor of
    two axes; what a run on them gives (a number, an array, a Series for an output that keeps the streamed axis; a dict
    of several outputs). A LazyFrame is collected in batches, once for every reading, by Polars' streaming engine.

    ``by=``: names or expressions: a DataFrame of keys (nulls are one key) and outputs, in order of first appearance, or
    sorted. All groups are computed at once (`Form.grouped`).

    ``form.polars(x="price")``: an expression for `select`, `agg` of a `group_by` (called once for every group, by
    Polars), `with_columns` and `over`: float64, int64, bool or a struct of several outputs. Numbers and arrays without
    the streamed axis are bound. `nulls` as in `Form.accumulator`; Polars' NaN is a number.

    Raises: RedalgError without Polars, and for arrays that do not fit the spec.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.parse("return v = sum[j](w[j]*x[j]) / sum[j](w[j])"))
    >>> frame.group_by("shop").agg(form.polars(x="price", w="volume"))                          # doctest: +SKIP
    """
    pl = library("polars", WHERE, "redalg[polars]")
    frame, names = (given[0], given[1:]) if given and hasattr(given[0], "collect_schema") else (None, given)
    columns = by_place(form, names, columns, WHERE)
    found = Columns(form, columns, WHERE, nulls)
    if frame is None:
        if by is not None:
            fix = "frame.group_by(...).agg(form.polars(...)), or form.polars(frame, by=...)"
            raise RedalgError("by= without a frame", WHERE, "Polars gives the groups", fix)
        return _expression(pl, found)
    return _Frame(pl, found, frame).result(by, sort)


class _Frame:
    """A frame read in batches: a column of its own for every part of a tensor and of the keys."""

    def __init__(self, pl: Any, columns: Columns, frame: Any) -> None:
        self.pl, self.columns, self.frame = pl, columns, frame

    def result(self, by: Any, sort: bool) -> Any:
        columns = self.columns
        if by is None:
            found = columns.results(columns.accumulated(self.chunks), self.chunks)
            return _returned(self.pl, columns, found)
        keys = by if isinstance(by, list | tuple) else [by]
        if not keys:
            columns.check_keys([])
        table = _Keys(self.pl, self._schema([_as_expr(self.pl, key) for key in keys]))
        columns.check_keys(table.names)
        found_keys, values = columns.grouped(lambda: self.chunks(keys, table)).result()
        out = table.frame(found_keys)
        out = out.with_columns(*(self.pl.Series(n, np.asarray(x)) for n, x in columns.named(values).items()))
        return out.sort(table.names, nulls_last=True) if sort else out

    def chunks(self, keys: Sequence[Any] = (), table: _Keys | None = None) -> Iterator[dict[str, Any]]:
        parts = {t: c if isinstance(c, list) else [c] for t, c in self.columns.streamed.items()}
        wanted = [_as_expr(self.pl, c).alias(f"{t}:{k}") for t, cs in parts.items() for k, c in enumerate(cs)]
        wanted += [_as_expr(self.pl, key).alias(f"by:{k}") for k, key in enumerate(keys)]
        for batch in self._batches(wanted):
            chunk = {t: self._tensor(batch, t, len(cs)) for t, cs in parts.items()}
            if table is not None:
                chunk["by"] = table.codes(batch.select(f"by:{k}" for k in range(len(keys))))
            yield chunk

    def _schema(self, wanted: list[Any]) -> Any:
        """Raises: RedalgError for expressions that the frame has no columns for."""
        try:
            return self.frame.lazy().select(wanted).collect_schema()
        except self.pl.exceptions.PolarsError as error:
            why = f"Polars refuses them: {str(error).splitlines()[0]}"
            raise RedalgError("these columns", WHERE, why, "name columns of the frame, each once") from error

    def _batches(self, wanted: list[Any]) -> Iterator[Any]:
        schema = self._schema(wanted)
        if not hasattr(self.frame, "collect"):
            yield self.frame.select(wanted)
            return
        lazy, none = self.frame.select(wanted), True
        if not hasattr(lazy, "collect_batches"):  # before Polars 1.34
            yield lazy.collect(engine="streaming")
            return
        for batch in lazy.collect_batches(chunk_size=BATCH, maintain_order=True):
            none = False
            yield batch
        if none:  # one without a row says of which dtypes the results are
            yield self.pl.DataFrame(schema=schema)

    def _tensor(self, batch: Any, tensor: str, width: int) -> Any:
        if not isinstance(self.columns.streamed[tensor], list):
            return batch.get_column(f"{tensor}:0")
        return self.columns.side_by_side(tensor, [batch.get_column(f"{tensor}:{k}") for k in range(width)])


class _Keys:
    """Codes of keys over batches: Polars factorises, and rows of Python are made for distinct keys alone.

    Dates and times are their numbers in these rows: what Python has for them ends at microseconds.
    """

    def __init__(self, pl: Any, schema: Any) -> None:
        self.pl, self.schema, self.names = pl, schema, schema.names()
        self.of = dict[Any, int]()
        self.rows = list[Any]()  # frames of the keys that each batch was first to have
        for name, dtype in schema.items():
            if dtype.is_nested():
                why = f"it holds {dtype}, and a key is one value"
                raise RedalgError(f"the key {name!r}", WHERE, why, "give the parts columns of their own: by=[...]")

    def codes(self, keys: Any) -> Any:
        """Of columns by:0, by:1, …"""
        narrow = len(keys.columns) == 1 and keys.dtypes[0].is_integer() and not is_wider(keys.to_series())
        if narrow:  # in every batch, so no numbers beside them
            return keys.to_series().to_list() if keys.to_series().null_count() else keys.to_series().to_numpy()
        distinct = keys.unique(maintain_order=True)
        whole = [self.pl.col(n).to_physical() if d.is_temporal() else n for n, d in distinct.schema.items()]
        at, known = np.empty(len(distinct), np.int64), len(self.of)
        for k, row in enumerate(distinct.select(whole).iter_rows()):
            at[k] = self.of.setdefault(canonical(row), len(self.of))
        _, first = np.unique(at, return_index=True)
        self.rows.append(distinct[first[at[first] >= known].tolist()])
        if len(distinct) == len(keys):  # in their order; Polars finds no partner for one row whose key is NaN
            return at
        joined = keys.join(
            distinct.with_columns(self.pl.Series("code", at)),
            on=keys.columns,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        return joined.get_column("code").to_numpy()

    def frame(self, keys: Any) -> Any:
        """The key columns in the order of the groups."""
        if not self.rows:
            values = keys.tolist() if keys.dtype == object else keys
            return self.pl.DataFrame({self.names[0]: values}, schema=self.schema)
        rows = self.pl.concat(self.rows)
        rows.columns = self.names
        return rows[np.asarray(keys, np.int64)]


def _as_expr(pl: Any, column: Any) -> Any:
    if not isinstance(column, str | pl.Expr | pl.Series):
        why = "a column is a name or an expression"
        raise RedalgError(f"the column {column!r}", WHERE, why, 'name one: x="price"')
    return pl.col(column) if isinstance(column, str) else column


def _returned(pl: Any, columns: Columns, found: dict[str, Any]) -> Any:
    if columns.nulls == "skip" and columns.layout.keeps:
        why = "an output that keeps the axis has an element for every row"
        raise RedalgError('nulls="skip"', WHERE, why, "drop the rows with nulls first")
    axes, first = columns.form.spec.output_axes, columns.layout.axis[0]
    for name, x in found.items():
        if axes[name] == (first,):
            found[name] = pl.Series(name, x)
        elif not np.ndim(x):
            found[name] = np.asarray(x)[()]
    return next(iter(found.values())) if len(found) == 1 else found


# --- expressions -----------------------------------------------------------------------------------------------------


def _expression(pl: Any, columns: Columns) -> Any:
    kinds = _kinds(columns)
    parts = {t: c if isinstance(c, list) else [c] for t, c in columns.streamed.items()}
    wanted = [_as_expr(pl, c) for cs in parts.values() for c in cs]
    keeps = bool(columns.layout.keeps)
    if keeps and len(columns.form.spec.outputs) > 1:
        why = "some outputs have a value for every row"
        raise RedalgError("an expression of several outputs", WHERE, why, "form.polars(frame, ...)")

    def computed(series: Sequence[Any]) -> Any:
        at, chunk = 0, {}
        for t, cs in parts.items():
            mine = series[at : at + len(cs)]
            chunk[t] = columns.side_by_side(t, mine) if isinstance(columns.streamed[t], list) else mine[0]
            at += len(cs)
        found = columns.results(columns.accumulated(lambda: [chunk]), lambda: [chunk])
        for name, x in found.items():
            _held(name, np.asarray(x), kinds[name])
        name, first = next(iter(found.items()))
        if keeps:
            return pl.Series(name, first, dtype=_dtype(pl, columns), strict=False)
        plain = {name: np.asarray(x).tolist() for name, x in found.items()}
        return pl.Series([plain if len(plain) > 1 else plain[name]], dtype=_dtype(pl, columns))

    name = "_".join(columns.form.spec.outputs)
    return pl.map_batches(wanted, computed, _dtype(pl, columns), returns_scalar=not keeps).alias(name)


def _held(name: str, x: np.ndarray, kind: str) -> None:
    """Raises: RedalgError for integers that a column of floats would round: Polars wants to know its dtype before."""
    largest = beyond_float64(x) if kind == "f" else None
    if largest is not None:
        why = f"{name} is {largest}, and the expression is float64, which is asked for before columns are known"
        raise RedalgError("an expression over these integers", WHERE, why, "form.polars(frame, ...), by=... for groups")


def _kinds(columns: Columns) -> dict[str, str]:
    """The kinds of the results, as for float64 columns."""
    kinds: dict[str, Any] = {}
    for d in columns.form.spec.tensors:
        kinds[d.name] = np.dtype(bool if "bool" in d.domain else np.int64 if "integer" in d.domain else np.float64)
    return {n: f.dtype.kind for n, f in output_flows(columns.form.spec, kinds).items()}


def _dtype(pl: Any, columns: Columns) -> Any:
    """Of the results, as for float64 columns."""
    of = {"b": pl.Boolean, "i": pl.Int64}
    found = {n: of.get(kind, pl.Float64) for n, kind in _kinds(columns).items()}
    inner = {n: len(columns.form.spec.output_axes[n]) - (n in columns.layout.keeps) for n in found}
    for n, axes in inner.items():
        for _ in range(axes):
            found[n] = pl.List(found[n])
    return next(iter(found.values())) if len(found) == 1 else pl.Struct(found)


__all__ = ["polars"]
