"""A form as an aggregate of DataFusion: ``SELECT volatility(price) FROM …``, states in a binary column of Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redalg.adapters.columns import library
from redalg.adapters.unordered import Unordered
from redalg.errors import RedalgError
from redalg.form import Form

WHERE = "form.datafusion"


def datafusion(form: Form, name: str, nulls: str, dtypes: Mapping[str, Any], bound: Mapping[str, Any]) -> Any:
    """The aggregate. Raises: RedalgError for forms of several outputs or an order, and without DataFusion."""
    pa, engine = library("pyarrow", WHERE, "redalg[datafusion]"), library("datafusion", WHERE, "redalg[datafusion]")
    parts = Unordered(form, WHERE, dict(bound), nulls)
    if len(form.spec.outputs) != 1 or any(form.spec.output_axes.values()):
        why = "an aggregate of SQL is one number"
        fix = "a spec of one output without axes for each aggregate"
        raise RedalgError(f"the outputs {', '.join(form.spec.outputs)}", WHERE, why, fix)
    if any(len(d.axes) != 1 for d in parts.layout.streamed):
        raise RedalgError("a tensor of several axes", WHERE, "a column of SQL has numbers", "bind what has other axes")
    columns = _dtypes(parts.names, dtypes)
    stands = parts.empty()
    stands.update(**{n: np.ones(1, dtype) for n, dtype in columns.items()})
    result = pa.from_numpy_dtype(np.asarray(stands.result()).dtype)

    base: Any = engine.Accumulator

    class Accumulator(base):
        """The state of one group in one partition."""

        def __init__(self) -> None:
            self.held = parts.empty()

        def update(self, *values: Any) -> None:
            if len(values[0]):
                self.held = parts.updated(self.held, dict(zip(columns, values, strict=True)))

        def state(self) -> list[Any]:
            return [pa.scalar(self.held.to_bytes(), pa.binary())]

        def merge(self, states: Any) -> None:
            column = states[0] if isinstance(states, list) else states
            for blob in column.to_pylist():
                self.held.merge(form.from_bytes(blob))

        def evaluate(self) -> Any:
            return pa.scalar(np.asarray(self.held.result()).item(), result)

    inputs = [pa.from_numpy_dtype(dtype) for dtype in columns.values()]
    return engine.udaf(Accumulator, inputs, result, [pa.binary()], "immutable", name)


def _dtypes(names: Sequence[str], given: Mapping[str, Any]) -> dict[str, np.dtype]:
    """The dtype of every column. Raises: RedalgError for a name that is none of them, and for what is no dtype."""
    unknown = [name for name in given if name not in names]
    if unknown:
        why, fix = f"the columns are {', '.join(names)}", f"leave {unknown[0]!r} out"
        raise RedalgError(f"dtypes={{{unknown[0]!r}: …}}", WHERE, why, fix)
    try:
        return {n: np.dtype(given.get(n, np.float64)) for n in names}
    except TypeError as error:
        raise RedalgError(f"dtypes={dict(given)!r}", WHERE, str(error), 'dtypes={"x": "int64"}') from error


__all__ = ["datafusion"]
