"""A form over columns of Arrow: datasets, tables, readers and batches, out of core and by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from redalg.adapters.columns import Columns, library
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.groups.keys import canonical
from redalg.numeric.encoded import decoded

WHERE = "form.arrow"


def arrow(
    form: Form, /, source: Any, *, by: Any = None, nulls: str = "propagate", sort: bool = False, **columns: Any
) -> Any:
    """The form over columns of `source`, one record batch after the other: memory is that of a few batches.

    `source`: a `pyarrow.dataset.Dataset` (a folder of Parquet: only the columns that are read are decoded), a Table, a
    RecordBatch, a RecordBatchReader, anything with ``__arrow_c_stream__``, or an iterable of batches. What can be read
    once serves forms of one reading. A list of columns is a tensor of two axes; a tensor without a column has that of
    its own name; tensors without the streamed axis are arrays or numbers.

    ``by=`` a column or a list of them: a Table of keys (null is one key) and outputs, in order of first appearance, or
    sorted. Else what a run on the whole columns gives. `nulls` as in `Form.accumulator`.

    Raises: RedalgError without PyArrow, for columns that are not there, for a reader that would have to be read twice,
    and for arrays that do not fit the spec.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.parse("return v = sum[j](w[j]*x[j]) / sum[j](w[j])"))
    >>> form.arrow(pyarrow.dataset.dataset("sales"), x="price", w="volume", by="shop")          # doctest: +SKIP
    """
    found = Columns(form, columns, WHERE, nulls)
    return folded(found, reading(source, found), by, sort)


Read = Callable[[Sequence[str]], Iterable[Any]]


def folded(columns: Columns, read: Read, by: Any, sort: bool) -> Any:
    """The result over the batches that `read` gives for a list of columns."""
    pa = library("pyarrow", columns.where, "redalg[arrow]")
    if by is None:
        found = columns.results(columns.accumulated(lambda: _chunks(columns, read)), lambda: _chunks(columns, read))
        return next(iter(found.values())) if len(found) == 1 else found
    table = _Keys(pa, list(by) if isinstance(by, list | tuple) else [by], columns.where)
    columns.check_keys(table.names)
    keys, values = columns.grouped(lambda: _chunks(columns, read, table)).result()
    out = table.table(keys)
    for name, x in columns.named(values).items():
        out = out.append_column(name, _array(pa, np.asarray(x)))
    return _sorted(pa, out, table.names, columns.where) if sort else out


def _array(pa: Any, x: np.ndarray) -> Any:
    """An array of Arrow, of lists where there are several axes."""
    if x.ndim == 1:
        return pa.array(x)
    kind = pa.from_numpy_dtype(x.dtype)
    for _ in x.shape[1:]:
        kind = pa.list_(kind)
    return pa.array(x.tolist(), kind)


def _sorted(pa: Any, out: Any, names: Sequence[str], where: str) -> Any:
    try:
        return out.sort_by([(name, "ascending") for name in names])
    except pa.lib.ArrowException as error:
        raise RedalgError("sort=True", where, f"Arrow does not sort these keys: {error}", "sort=False") from error


def _chunks(columns: Columns, read: Read, table: _Keys | None = None) -> Iterator[dict[str, Any]]:
    """A tensor for every streamed one in each batch, and keys."""
    wanted = [c for column in columns.streamed.values() for c in (column if isinstance(column, list) else [column])]
    wanted = list(dict.fromkeys([*wanted, *(table.names if table else ())]))
    for batch in _batches(library("pyarrow", columns.where, "redalg[arrow]"), read(wanted)):
        _check(columns, batch, wanted)
        chunk = {tensor: _tensor(columns, tensor, batch) for tensor in columns.streamed}
        yield {**chunk, "by": table.codes(batch)} if table else chunk


def reading(source: Any, columns: Columns) -> Read:
    """How the batches of a source are read, with the columns that are wanted."""
    pa = library("pyarrow", columns.where, "redalg[arrow]")
    if hasattr(source, "scanner"):  # a dataset
        return lambda names: source.scanner(columns=known(columns, source.schema.names, names)).to_reader()
    if isinstance(source, pa.Table):
        return lambda names: source.select(known(columns, source.schema.names, names)).to_reader()
    if isinstance(source, pa.RecordBatch):
        return lambda names: [source]
    if isinstance(source, list | tuple):
        return lambda names: source
    readings = len(columns.form.plan.passes) + bool(columns.layout.keeps)
    if readings > 1:
        why = f"the form reads the stream {readings} times, and a {type(source).__name__} is read once"
        raise RedalgError("this source", columns.where, why, "pass a dataset or a table")
    if hasattr(source, "__arrow_c_stream__") and not hasattr(source, "read_next_batch"):
        return lambda names: pa.RecordBatchReader.from_stream(source)
    return lambda names: source


def _batches(pa: Any, found: Iterable[Any]) -> Iterator[Any]:
    """Record batches; those of a table, where tables are among them. One without a row, where a schema is all there is:
    it says of which dtypes the results are."""
    none, schema = True, getattr(found, "schema", None)
    for batch in found:
        for part in batch.to_batches() if hasattr(batch, "to_batches") else [batch]:
            none = False
            yield part
        schema = getattr(batch, "schema", None)
    if none and schema is not None:
        yield pa.record_batch([x.combine_chunks() for x in schema.empty_table().columns], schema=schema)


def known(columns: Columns, there: Sequence[str], names: Sequence[str]) -> list[str]:
    missing = [name for name in names if name not in there]
    if missing:
        why = f"the columns are {', '.join(there[:12])}"
        raise RedalgError(f"a column {missing[0]!r}", columns.where, why, "name the columns: x='price'")
    twice = [name for name in names if list(there).count(name) > 1]
    if twice:
        why = f"{list(there).count(twice[0])} columns are called so"
        raise RedalgError(f"a column {twice[0]!r}", columns.where, why, "rename one of them")
    return list(names)


def _check(columns: Columns, batch: Any, names: Sequence[str]) -> None:
    if not hasattr(batch, "schema"):
        why = "it has no schema, as record batches have"
        raise RedalgError(f"a {type(batch).__name__}", columns.where, why, "pass a dataset, a table or batches")
    known(columns, batch.schema.names, names)


def _tensor(columns: Columns, tensor: str, batch: Any) -> Any:
    column = columns.streamed[tensor]
    if not isinstance(column, list):
        return batch.column(column)
    return columns.side_by_side(tensor, [batch.column(c) for c in column])


class _Keys:
    """Codes of keys over batches: Arrow's dictionaries, so that Python sees distinct keys alone.

    Dates and times are their numbers here: what Python has for them ends at microseconds.
    """

    def __init__(self, pa: Any, names: Sequence[str], where: str) -> None:
        self.pa, self.names, self.where = pa, names, where
        self.of: dict[Any, int] = {}
        self.rows: list[Any] = []
        self.types: dict[str, Any] = {}

    def codes(self, batch: Any) -> Any:
        columns = [batch.column(name) for name in self.names]
        for name, column in zip(self.names, columns, strict=True):
            self._check(name, column.type)
            self.types[name] = column.type
        if len(columns) == 1 and self.pa.types.is_integer(columns[0].type):  # in every batch, so no numbers beside them
            return columns[0].to_pylist() if columns[0].null_count else np.asarray(columns[0])
        codes, parts = np.zeros(len(batch), np.int64), []
        for column in columns:
            # nulls are left to the indices: as an entry of the dictionary they are empty text in Arrow's views
            found = column if self.pa.types.is_dictionary(column.type) else decoded(column).dictionary_encode()
            values = [*self._numbers(found.dictionary).to_pylist(), None]
            indices = found.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
            parts.append((values, indices))
            _, first, codes = np.unique(codes * len(values) + indices, return_index=True, return_inverse=True)
        rows = zip(*([values[k] for k in indices[first].tolist()] for values, indices in parts), strict=True)
        return np.array([self._number(canonical(row)) for row in rows], np.int64)[codes]

    def _check(self, name: str, kind: Any) -> None:
        if self.pa.types.is_nested(_plain(self.pa, kind)):
            why = f"it holds {kind}, and a key is one value"
            raise RedalgError(f"the key {name!r}", self.where, why, "give the parts columns of their own: by=[...]")

    def _numbers(self, values: Any) -> Any:
        whole = _whole(self.pa, values.type)
        return values if whole is None else values.cast(whole)

    def _number(self, row: Any) -> int:
        number = self.of.setdefault(row, len(self.rows))
        if number == len(self.rows):
            self.rows.append(row)
        return number

    def table(self, codes: np.ndarray) -> Any:
        """The key columns in the order of the groups."""
        if len(codes) and not self.rows:
            kind = self.types.get(self.names[0])
            return self.pa.table({self.names[0]: self.pa.array(codes.tolist(), kind)})
        rows = [self.rows[k] for k in codes.tolist()]
        return self.pa.table({n: self._column(n, [r[k] for r in rows]) for k, n in enumerate(self.names)})

    def _column(self, name: str, values: list[Any]) -> Any:
        kind = _plain(self.pa, self.types[name]) if name in self.types else None
        whole = None if kind is None else _whole(self.pa, kind)
        return self.pa.array(values, kind) if whole is None else self.pa.array(values, whole).cast(kind)


def _plain(pa: Any, kind: Any) -> Any:
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


def _whole(pa: Any, kind: Any) -> Any:
    """The integers that dates and times are; None of other types."""
    if not pa.types.is_temporal(kind) or pa.types.is_interval(kind):
        return None
    return pa.int32() if kind.bit_width == 32 else pa.int64()


__all__ = ["arrow", "folded", "known", "reading"]
