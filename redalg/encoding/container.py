"""The container: a version, a header in JSON, arrays, a checksum. What is read is bounded by what was given.

::

    8 bytes   0x93 R E D A L G \n
    2, 2      major and minor version of the format
    4         length of the header
    …         the header: JSON, among it "arrays": [[name, dtype, shape], …]
    …         the arrays, C order, one after the other
    16        BLAKE2b of everything before

All numbers are little-endian. Nothing is allocated before lengths were compared with the length of the blob, and no
object but numbers, strings, lists and dicts is ever made of it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from redalg.errors import RedalgError

Array = np.ndarray
MAGIC = b"\x93REDALG\n"
MAJOR, MINOR = 1, 0
HEAD = struct.Struct("<8sHHI")
CHECK = 16
DTYPES = frozenset("|b1 |i1 |u1 <i2 <u2 <i4 <u4 <i8 <u8 <f2 <f4 <f8 <c8 <c16".split())
LARGEST = (1 << 63) - 1


def damaged(where: str, why: str) -> RedalgError:
    return RedalgError("this state", where, why, "save the accumulator again, and move its bytes unchanged")


def packed(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """The blob of a header and arrays of `DTYPES`."""
    first = prefix(header, arrays)
    body = b"".join([first, *(_plain(x).tobytes() for x in arrays.values())])
    return body + _digest(body)


def prefix(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """What comes before the arrays."""
    table = [[name, _plain(x).dtype.str, list(x.shape)] for name, x in arrays.items()]
    text = json.dumps({**header, "arrays": table}, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return HEAD.pack(MAGIC, MAJOR, MINOR, len(text)) + text


def unpacked(blob: Any, where: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the arrays. Raises: RedalgError."""
    data = _bytes(blob, where)
    size = _head(data, where)
    if len(data) < HEAD.size + size + CHECK or _digest(data[:-CHECK]) != data[-CHECK:]:
        raise damaged(where, "its checksum is not that of its bytes: some are missing or changed")
    header = _json(data[HEAD.size : HEAD.size + size], where)
    table = _table(header.pop("arrays", None), where)
    body = memoryview(data)[HEAD.size + size : -CHECK]
    if sum(np.dtype(dtype).itemsize * prod(shape) for _, dtype, shape in table) != len(body):
        raise damaged(where, "the arrays its header lists have another length than its bytes")
    arrays, at = {}, 0
    for name, dtype, shape in table:
        kind, count = np.dtype(dtype), prod(shape)
        found = np.frombuffer(body, kind, count, at) if count else np.empty(0, kind)
        if kind.kind == "b" and found.view(np.uint8).max(initial=0) > 1:
            raise damaged(where, f"{name} holds bytes that are no bool")
        arrays[name] = found.astype(kind.newbyteorder("=")).reshape(shape)  # of its own: aligned, writable
        at += count * kind.itemsize
    return header, arrays


def header_of(data: Any, where: str) -> tuple[bytes, list[tuple[str, str, tuple[int, ...]]]]:
    """The bytes before the arrays and the list of them, of a prefix that is followed by the checksum."""
    known = _bytes(data, where)
    size = _head(known, where)
    if len(known) != HEAD.size + size + CHECK:
        raise damaged(where, f"its header has {len(known) - HEAD.size - CHECK} bytes and says {size}")
    return known[:-CHECK], _table(_json(known[HEAD.size : -CHECK], where).get("arrays"), where)


def with_digest(first: bytes, arrays: Sequence[Array]) -> bytes:
    """A prefix and the checksum of it with its arrays."""
    return first + _digest(b"".join([first, *(_plain(x).tobytes() for x in arrays)]))


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=CHECK).digest()


def _plain(x: Array) -> Array:
    return x.astype(x.dtype.newbyteorder("<"), copy=False)


def _bytes(blob: Any, where: str) -> bytes:
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise RedalgError(f"a {type(blob).__name__}", where, "a state is bytes", "pass what to_bytes() returned")
    return bytes(blob)


def _head(data: bytes, where: str) -> int:
    """The length of the header, of a version that can be read."""
    if len(data) < HEAD.size + CHECK or not data.startswith(MAGIC):
        raise damaged(where, "it does not begin as a state does")
    _, major, minor, size = HEAD.unpack_from(data)
    if (major, minor) > (MAJOR, MINOR):
        why = f"its format is version {major}.{minor}, and this library reads up to {MAJOR}.{MINOR}: it is too new"
        raise RedalgError("this state", where, why, "install a newer redalg here, or save the state with this one")
    if major < MAJOR:
        why = f"its format is version {major}.{minor}, and this library reads from {MAJOR}.0 on: it is too old"
        raise RedalgError("this state", where, why, "read it with the redalg that wrote it, and start anew here")
    return int(size)


def _json(text: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text.decode("utf-8"), parse_constant=_refused, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise damaged(where, f"its header is not the JSON of a state ({type(error).__name__})") from error
    if not isinstance(found, dict):
        raise damaged(where, "its header is not a JSON object")
    return found


def _refused(text: str) -> Any:
    raise ValueError(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _table(rows: Any, where: str) -> list[tuple[str, str, tuple[int, ...]]]:
    found: dict[str, tuple[str, str, tuple[int, ...]]] = {}
    for row in rows if isinstance(rows, list) else [None]:
        if not isinstance(row, list) or [type(item) for item in row] != [str, str, list] or row[1] not in DTYPES:
            raise damaged(where, "its list of arrays is not one")
        name, dtype, shape = row
        if len(shape) > 32 or any(type(n) is not int or not 0 <= n <= LARGEST for n in shape) or name in found:
            raise damaged(where, f"its list of arrays has a row {name[:80]!r} that is none")
        if 16 * prod(n for n in shape if n) > LARGEST:
            raise damaged(where, f"array {name[:80]!r} has a shape no memory holds")
        found[name] = name, dtype, tuple(shape)
    return list(found.values())
