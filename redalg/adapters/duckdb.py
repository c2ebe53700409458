"""A form over columns of a DuckDB relation: DuckDB streams Arrow batches, the form folds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redalg.adapters.arrow import folded, known
from redalg.adapters.columns import Columns, library
from redalg.errors import RedalgError
from redalg.form import Form

WHERE = "form.duckdb"
ROWS = 1 << 18  # of a batch


def duckdb(
    form: Form, /, relation: Any, *, by: Any = None, nulls: str = "propagate", sort: bool = False, **columns: Any
) -> Any:
    """The form over columns of `relation` (``duckdb.sql("FROM 'sales/*.parquet'")``), which may be a text of SQL.

    DuckDB, which has no aggregates in Python, runs the query and hands out Arrow batches of the columns that are read;
    a relation is run once for every reading that the form needs. Arguments and results are those of `Form.arrow`. The
    order of rows is the relation's, which SQL leaves open without ``ORDER BY``: forms of positions need one.

    Raises: RedalgError without DuckDB and PyArrow, for columns that are not there, and for arrays that do not fit.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.parse("return v = sum[j](w[j]*x[j]) / sum[j](w[j])"))
    >>> form.duckdb(duckdb.sql("FROM 'sales/*.parquet'"), x="price", w="volume", by="shop")     # doctest: +SKIP
    """
    db = library("duckdb", WHERE, "redalg[duckdb]")
    found = Columns(form, columns, WHERE, nulls)
    source = db.sql(relation) if isinstance(relation, str) else relation
    if not hasattr(source, "project"):
        why = "it is neither a relation nor a text of SQL"
        raise RedalgError(f"a {type(source).__name__}", WHERE, why, 'duckdb.sql("SELECT …")')

    def read(names: Sequence[str]) -> Iterable[Any]:
        known(found, source.columns, names)
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        projected = source.project(quoted)
        reader = getattr(projected, "to_arrow_reader", None) or projected.fetch_record_batch
        return reader(ROWS)

    return folded(found, read, by, sort)


__all__ = ["duckdb"]
