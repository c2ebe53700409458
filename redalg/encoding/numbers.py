"""Numbers that have no portable dtype: Python's integers of any length, and floats wider than float64."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from redalg.encoding.container import Array, damaged
from redalg.errors import RedalgError

INTEGER, EXTENDED, EXTENDED_COMPLEX = "integer", "extended", "extended complex"
_LENGTH = 4  # bytes that say how many an integer has
_FLOAT = np.dtype([("exponent", "<i4"), ("kind", "u1"), ("high", "<u8"), ("low", "<u8")])  # of one extended float
_WORD = 64  # bits of `high` and of `low`


def coded(x: Array) -> tuple[str, Array]:
    """How an array is written ("" if as it is), and what is written. Floats keep 128 bits of fraction."""
    if x.dtype == object:
        return INTEGER, _of_integers(x)
    if x.dtype.kind == "f" and x.dtype.itemsize > 8:
        return EXTENDED, _of_floats(x)
    if x.dtype.kind == "c" and x.dtype.itemsize > 16:
        return EXTENDED_COMPLEX, np.concatenate([_of_floats(x.real), _of_floats(x.imag)])
    return "", x


def decoded(x: Array, kind: str, shape: tuple[int, ...], where: str) -> Array:
    """The array that was coded. Raises: RedalgError."""
    if x.dtype != np.uint8 or x.ndim != 1:
        raise damaged(where, f"an array of kind {kind} is not bytes")
    if kind == INTEGER:
        return _integers(x.tobytes(), shape, where)
    halves = 2 if kind == EXTENDED_COMPLEX else 1
    if x.size != prod(shape) * _FLOAT.itemsize * halves:
        raise damaged(where, f"an array of kind {kind} has another length than its shape {shape} says")
    found = [_floats(half, where).reshape(shape) for half in np.split(x, halves)]
    if halves == 1:
        return found[0]
    both = np.empty(shape, np.clongdouble)
    both.real, both.imag = found
    return both


# --- integers --------------------------------------------------------------------------------------------------------


def _of_integers(x: Array) -> Array:
    rows: list[bytes] = []
    for value in x.ravel().tolist():
        number = int(value)
        length = number.bit_length() // 8 + 1
        rows += [length.to_bytes(_LENGTH, "little"), number.to_bytes(length, "little", signed=True)]
    return np.frombuffer(b"".join(rows), np.uint8)


def _integers(data: bytes, shape: tuple[int, ...], where: str) -> Array:
    values: list[int] = []
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + _LENGTH], "little")
        text = data[at + _LENGTH : at + _LENGTH + length]
        if not length or len(text) != length:
            raise damaged(where, "an integer ends before its length says")
        values.append(int.from_bytes(text, "little", signed=True))
        at += _LENGTH + length
    if len(values) != prod(shape):
        raise damaged(where, f"{len(values)} integers do not fill the shape {shape}")
    found = np.empty(len(values), object)
    found[:] = values
    return found.reshape(shape)


# --- floats ----------------------------------------------------------------------------------------------------------


def _of_floats(x: Array) -> Array:
    x = np.ascontiguousarray(x).ravel()
    rows = np.zeros(x.size, _FLOAT)
    finite = np.isfinite(x)
    fraction, exponent = np.frexp(np.abs(np.where(finite, x, 0)))
    scaled = np.ldexp(fraction, _WORD)
    high = np.floor(scaled)
    rows["exponent"], rows["high"] = exponent, high.astype(np.uint64)
    rows["low"] = np.ldexp(scaled - high, _WORD).astype(np.uint64)
    rows["kind"] = np.where(finite, 0, np.where(np.isnan(x), 2, 1)) + 128 * np.signbit(x)
    return rows.view(np.uint8)


def _floats(x: Array, where: str) -> Array:
    rows = np.frombuffer(x.tobytes(), _FLOAT)
    kind = rows["kind"] & 127
    if np.any(kind > 2) or np.any(np.abs(rows["exponent"].astype(np.int64)) > 1 << 16):
        raise damaged(where, "an extended float is none")
    real: Any = np.longdouble
    with np.errstate(all="ignore"):
        parts = [np.ldexp(rows[name].astype(real), -k * _WORD) for k, name in ((1, "high"), (2, "low"))]
        found = np.ldexp(parts[0] + parts[1], rows["exponent"])
    found = np.where(kind == 1, real(np.inf), np.where(kind == 2, real(np.nan), found))
    found = np.where(rows["kind"] >= 128, -found, found)
    plain = kind == 0
    back = np.frombuffer(_of_floats(found).tobytes(), _FLOAT)
    if np.any(plain & (back != rows)):
        why = f"it holds floats wider than float64 that this machine's long double ({np.finfo(real).bits} bits) rounds"
        raise RedalgError("this state", where, why, "read it on a machine whose long double is as wide")
    return found
