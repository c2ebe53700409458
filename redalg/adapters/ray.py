"""A form as an aggregate of Ray Data: ``dataset.aggregate(form.ray(x="price"))``, by group as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redalg.adapters.columns import library
from redalg.adapters.unordered import Unordered
from redalg.errors import RedalgError
from redalg.form import Form

WHERE = "form.ray"


def aggregate(form: Form, name: str | None, nulls: str, columns: Mapping[str, Any]) -> Any:
    """The `AggregateFn`. Raises: RedalgError for forms that need an order or several passes, and without Ray."""
    fn = library("ray.data.aggregate", WHERE, "redalg[ray]").AggregateFn
    streamed = {d.name for d in form.spec.tensors if form.plan.axis[:1] and form.plan.axis[0] in d.axes}
    parts = Unordered(form, WHERE, {n: x for n, x in columns.items() if n not in streamed}, nulls)
    names = {n: columns.get(n, n) for n in parts.names}

    def folded(state: bytes, block: Any) -> bytes:
        missing = [c for c in names.values() if c not in block.column_names]
        if missing:
            why = f"the columns are {', '.join(block.column_names)}"
            raise RedalgError(f"column {missing[0]!r}", WHERE, why, 'name one: form.ray(x="price")')
        acc = form.from_bytes(state)
        return parts.updated(acc, {n: block[c].combine_chunks() for n, c in names.items()}).to_bytes()

    return fn(
        init=lambda key: parts.empty().to_bytes(),
        merge=lambda a, b: parts.merged([form.from_bytes(a), form.from_bytes(b)]).to_bytes(),
        accumulate_block=lambda state, block: folded(state, _arrow(block)),
        finalize=lambda state: form.from_bytes(state).result(),
        name=name or "_".join(form.spec.outputs),
    )


def _arrow(block: Any) -> Any:
    return block if hasattr(block, "column_names") else library("pyarrow", WHERE, "pyarrow").Table.from_pandas(block)


__all__ = ["aggregate"]
