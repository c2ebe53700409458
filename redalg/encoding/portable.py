"""Bytes, flat dicts and Arrow record batches of an accumulator, and accumulators of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.encoding.container import Array, damaged, header_of, packed, prefix, unpacked, with_digest
from redalg.encoding.states import accumulator, document
from redalg.errors import RedalgError
from redalg.streaming.accumulator import Accumulator

if TYPE_CHECKING:
    from redalg.form import Form

METADATA = "redalg"  # the entry of a dict, and the column of a batch, that is no array of the state


def to_bytes(a: Accumulator) -> bytes:
    return packed(*document(a))


def from_bytes(form: Form, blob: Any, where: str = "form.from_bytes") -> Accumulator:
    return accumulator(form, *unpacked(blob, where), where)


# --- flat dicts ------------------------------------------------------------------------------------------------------


def to_dict(a: Accumulator) -> dict[str, Array]:
    header, arrays = document(a)
    metadata = with_digest(prefix(header, arrays), list(arrays.values()))
    return {**{name: x.copy() for name, x in arrays.items()}, METADATA: np.frombuffer(metadata, np.uint8).copy()}


def from_dict(form: Form, state: Any, where: str = "form.from_state_dict") -> Accumulator:
    if not isinstance(state, Mapping) or METADATA not in state:
        what = f"a {type(state).__name__} without the entry {METADATA!r}"
        raise RedalgError(what, where, "a state is a mapping of names to arrays", "pass what state_dict() returned")
    metadata = _array(state[METADATA], METADATA, where)
    if metadata.dtype != np.uint8 or metadata.ndim != 1:
        raise damaged(where, f"its entry {METADATA!r} is not bytes")
    first, table = header_of(metadata.tobytes(), where)
    names = [name for name, _, _ in table]
    if sorted(map(str, state)) != sorted([*names, METADATA]) or any(name not in state for name in names):
        raise damaged(
            where, f"its entries are {', '.join(sorted(map(str, state)))[:200]}, and its metadata lists others"
        )
    body = [first]
    for name, dtype, shape in table:
        found = _array(state[name], name, where)
        if found.dtype != np.dtype(dtype) or found.shape != shape:
            raise damaged(where, f"{name} is {found.dtype} of shape {found.shape}, and was {dtype} of shape {shape}")
        body.append(found.astype(dtype, copy=False).tobytes())
    return from_bytes(form, b"".join([*body, metadata.tobytes()[len(first) :]]), where)


def _array(x: Any, name: str, where: str) -> Array:
    try:
        found = np.asarray(x)
    except Exception as error:
        raise damaged(where, f"{name} is a {type(x).__name__}, not an array") from error
    if found.dtype.kind not in "biufc":
        raise damaged(where, f"{name} does not hold numbers")
    return found


# --- Arrow -----------------------------------------------------------------------------------------------------------


def to_arrow(a: Accumulator) -> Any:
    """One row: a column of lists for every array, and one of bytes for the rest."""
    pa = _pyarrow("Accumulator.to_arrow")
    state = to_dict(a)
    columns, fields = [], []
    for name, x in state.items():
        if name == METADATA:
            columns.append(pa.array([x.tobytes()], pa.large_binary()))
        else:
            flat = pa.array(_real(x))
            columns.append(pa.LargeListArray.from_arrays(pa.array([0, len(flat)], pa.int64()), flat))
        fields.append(pa.field(name, columns[-1].type, nullable=False))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def from_arrow(form: Form, batch: Any, where: str = "form.from_arrow") -> Accumulator:
    pa = _pyarrow(where)
    if isinstance(batch, pa.Table) and batch.num_rows == 1:
        batch = batch.combine_chunks().to_batches()[0]
    if not isinstance(batch, pa.RecordBatch) or batch.num_rows != 1 or METADATA not in batch.schema.names:
        what = f"a {type(batch).__name__} of {getattr(batch, 'num_rows', 'no')} rows"
        why = f"a state is a record batch of one row with a column {METADATA!r}"
        raise RedalgError(what, where, why, "pass one row of what to_arrow() returned: batch.slice(i, 1)")
    try:
        return _from_row(form, pa, batch, where)
    except (pa.ArrowException, TypeError, KeyError) as error:
        raise damaged(where, f"its columns are not those of a state ({type(error).__name__})") from error


def _from_row(form: Form, pa: Any, batch: Any, where: str) -> Accumulator:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    metadata = columns.pop(METADATA)[0].as_py()
    if not isinstance(metadata, bytes) or len(columns) + 1 != batch.num_columns:
        raise damaged(where, f"its column {METADATA!r} is not bytes, or a name occurs twice")
    _, table = header_of(metadata, where)
    state: dict[str, Any] = {METADATA: np.frombuffer(metadata, np.uint8)}
    kinds = {name: (np.dtype(dtype), shape) for name, dtype, shape in table}
    for name, column in columns.items():
        if name not in kinds:
            raise damaged(where, f"its column {name[:80]!r} is none of the state's")
        dtype, shape = kinds[name]
        cell = column[0]
        values = cell.values if hasattr(cell, "values") else None
        if not isinstance(values, pa.Array) or values.null_count:
            raise damaged(where, f"its column {name!r} is not a list of numbers")
        flat = values.to_numpy(zero_copy_only=False)
        state[name] = _shaped(flat, dtype, shape, name, where)
    return from_dict(form, state, where)


def _real(x: Array) -> Array:
    """A vector of a dtype that Arrow has: a complex number is two real ones."""
    flat = np.ascontiguousarray(x).ravel()
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _shaped(flat: Array, dtype: np.dtype, shape: tuple[int, ...], name: str, where: str) -> Array:
    expected = _real(np.empty(0, dtype)).dtype
    try:
        if flat.dtype == expected:
            return np.ascontiguousarray(flat).view(dtype).reshape(shape)
    except ValueError:
        pass
    raise damaged(where, f"its column {name!r} is not of the dtype and the length that its metadata says")


def _pyarrow(where: str) -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise RedalgError("an Arrow record batch", where, "pyarrow is not installed", "pip install pyarrow") from error
