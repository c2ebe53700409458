"""Keys of groups: any hashable values, or integers, which are looked up without a step of Python per row.

Two keys are one where Python calls them equal (1, 1.0 and True; 0.0 and -0.0; integers of any width), and all NaN are
one key, also inside tuples; NaT is another.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from redalg.errors import RedalgError
from redalg.numeric.array_origin import is_masked_array
from redalg.numeric.encoded import decoded, is_wider
from redalg.streaming.nulls import mask, taken
from redalg.streaming.tapes.tape import Array

NAN, NAT = float("nan"), np.datetime64("NaT")
DENSE = 4  # codes per row up to which integers are their own codes
UPDATE = "Grouped.update"


class Groups(NamedTuple):
    """The rows of a chunk by group, shorter groups first: the permutation, where each begins, and their keys."""

    order: Array  # of the rows; stable, so that the stream of a group stays in order
    starts: Array  # one more than groups
    keys: Any  # int64 numbers, or a list

    @property
    def lengths(self) -> Array:
        return np.diff(self.starts)


class Codes(NamedTuple):
    """The rows of a chunk by number of key: ``rows - base`` lies in [0, span)."""

    rows: Array  # int64
    base: int
    span: int
    keys: Any  # of the numbers: int64 numbers, or a list; None: the numbers of `rows` are the keys

    def keys_of(self, numbers: Array) -> Any:
        """The keys with these numbers."""
        if self.keys is None:
            return numbers + self.base
        return self.keys[numbers] if isinstance(self.keys, np.ndarray) else [self.keys[k] for k in numbers.tolist()]

    def picked(self, rows: Array) -> Codes:
        return self._replace(rows=self.rows[rows])


def factorised(by: Any, length: int, where: str = UPDATE) -> Groups:
    """The rows of a chunk of `length` rows by their keys. Raises: RedalgError for what is no such column of keys."""
    return in_order(coded(by, length, where))


def in_order(codes: Codes) -> Groups:
    """Rows sorted by the length of their group, then by group."""
    if not len(codes.rows):
        return Groups(np.zeros(0, np.int64), np.zeros(1, np.int64), codes.keys_of(np.zeros(0, np.int64)))
    rows = codes.rows - codes.base if codes.base else codes.rows
    counts = np.bincount(rows, minlength=codes.span)
    present = np.flatnonzero(counts)
    return _sorted(rows, counts, present, codes.keys_of(present))


def coded(by: Any, length: int, where: str = UPDATE) -> Codes:
    """The rows of a chunk of `length` rows by the numbers of their keys. Raises: RedalgError as `factorised`."""
    keys = _column(by, where)
    if len(keys) != length:
        fix = "give one key for every row of the chunk"
        raise RedalgError(f"by of length {len(keys)}", where, f"the chunk has {length} rows", fix)
    if not isinstance(keys, np.ndarray):
        return _by_hand(keys, where)
    if not length:
        return Codes(np.zeros(0, np.int64), 0, 0, np.zeros(0, np.int64))
    if keys.dtype.kind in "iu":
        low, high = int(keys.min()), int(keys.max())
        if high - low < max(DENSE * length, 1 << 16):
            return Codes(np.ascontiguousarray(keys, np.int64), low, high - low + 1, None)
    distinct, codes = np.unique(keys, return_inverse=True)
    whole = distinct.dtype.kind in "iu"
    codes = np.ascontiguousarray(codes, np.int64)
    return Codes(codes, 0, len(distinct), distinct.astype(np.int64) if whole else distinct.tolist())


def _column(by: Any, where: str) -> Any:
    """An array of int64, float64 or text that NumPy can sort, else the keys in a sequence."""
    if isinstance(by, str | bytes) or not hasattr(by, "__len__") or isinstance(by, dict | set | frozenset):
        raise RedalgError(f"by={by!r}", where, "it is not a column of keys", "by=[...], one key for every row")
    by = plain(by)
    if not isinstance(by, Sequence):
        return _of_array(np.asarray(by), where)
    if len(by) and all(type(key) is int for key in by):
        try:
            return np.array(by, dtype=np.int64)
        except OverflowError:
            pass
    return by


def plain(by: Any) -> Any:
    """A column of keys without codes or runs, its nulls None where NumPy would have no integers beside them."""
    return by.to_list() if is_wider(by) else _with_none(decoded(by))


def _with_none(by: Any) -> Any:
    """A list with None for nulls beside integers, which NumPy would make floats, and for what a mask hides."""
    missing = mask(by)
    if missing is None or not missing.any():
        return by
    if is_masked_array(by):
        return by.filled("NaT") if by.dtype.kind in "mM" else by.tolist() if by.ndim == 1 else by
    kind = str(getattr(by, "type", None) or by.dtype).lower()
    if not kind.startswith(("int", "uint")):
        return by
    kept = np.flatnonzero(~missing)
    found: list[Any] = [None] * len(missing)
    for row, key in zip(kept.tolist(), np.asarray(taken(by, kept)).tolist(), strict=True):
        found[row] = key
    return found


def _of_array(by: Array, where: str) -> Any:
    if by.ndim != 1:
        fix = "give one key for every row; a tuple can be a key"
        raise RedalgError(f"by of shape {by.shape}", where, "keys are a column", fix)
    kind = by.dtype.kind
    if kind == "i" or (kind == "u" and int(by.max(initial=0)) < 1 << 63):
        return by.astype(np.int64, copy=False)
    if kind == "f" and by.dtype.itemsize <= 8:
        return by.astype(np.float64) + 0.0  # -0.0 becomes 0.0
    if kind in "US":
        return by
    return list(by) if kind in "mM" else by.tolist()


def canonical(key: Any) -> Any:
    """One object for keys that are one."""
    if isinstance(key, tuple):
        return tuple(map(canonical, key)) if type(key) is tuple else key
    if isinstance(key, np.datetime64 | np.timedelta64):
        return NAT if np.isnat(key) else key
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, float):
        return NAN if key != key else key + 0.0
    return NAN if isinstance(key, complex | Decimal) and key != key else key


def _by_hand(keys: Sequence[Any], where: str) -> Codes:
    codes_of: dict[Hashable, int] = {}
    codes = np.empty(len(keys), np.int64)
    for row, key in enumerate(keys):
        try:
            codes[row] = codes_of.setdefault(canonical(key), len(codes_of))
        except TypeError:
            why = f"the key of row {row} has no hash, so equal ones cannot be found"
            raise RedalgError(f"the key {key!r}", where, why, "make it a tuple, a string or a number") from None
    return Codes(codes, 0, len(codes_of), list(codes_of))


def _sorted(codes: Array, counts: Array, present: Array, keys: Any) -> Groups:
    """Rows sorted by the length of their group, then by group."""
    lengths = counts[present]
    by_length = np.argsort(lengths, kind="stable")
    rank = np.zeros(len(counts), np.uint16 if len(present) <= 1 << 16 else np.uint32)
    rank[present[by_length]] = np.arange(len(present))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[by_length])])
    keys = keys[by_length] if isinstance(keys, np.ndarray) else [keys[k] for k in by_length]
    return Groups(_order(rank[codes]), starts, keys)


def _order(rank: Array) -> Array:
    """The stable permutation that sorts: NumPy sorts 16 bits in linear time, so twice that for more."""
    if rank.dtype == np.uint16:
        return np.argsort(rank, kind="stable")
    low = np.argsort((rank & 0xFFFF).astype(np.uint16), kind="stable")
    return low[np.argsort((rank >> 16).astype(np.uint16)[low], kind="stable")]


class Keys:
    """Numbers of keys, in order of first appearance. Immutable: `extended` gives a new one."""

    def __init__(self) -> None:
        self.count = 0
        self._sorted, self._numbers = np.zeros(0, np.int64), np.zeros(0, np.int64)  # as long as all are integers
        self._of: dict[Hashable, int] | None = None

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        if self._of is not None:  # NaN is known by identity, which no pickle keeps
            self._of = {canonical(key): number for key, number in self._of.items()}

    def extended(self, keys: Any, first: Array) -> tuple[Keys, Array]:
        """With these distinct keys, new ones in the order of `first`; and the number of each."""
        if isinstance(keys, np.ndarray) and self._of is None:
            return self._with_integers(keys, first)
        known = dict(self._by_key())
        keys = keys.tolist() if isinstance(keys, np.ndarray) else [canonical(key) for key in keys]
        for k in np.argsort(first, kind="stable"):
            known.setdefault(keys[k], len(known))
        after = Keys()
        after.count, after._of = len(known), known
        return after, np.array([known[key] for key in keys], np.int64)

    def _with_integers(self, keys: Array, first: Array) -> tuple[Keys, Array]:
        numbers = np.full(len(keys), -1, np.int64)
        if self.count:
            at = np.minimum(np.searchsorted(self._sorted, keys), self.count - 1)
            numbers = np.where(self._sorted[at] == keys, self._numbers[at], -1)
        new = np.flatnonzero(numbers < 0)
        if not len(new):
            return self, numbers
        new = new[_by_first(first[new])]
        numbers[new] = self.count + np.arange(len(new))
        if not self.count and np.all(keys[1:] > keys[:-1]):
            after = Keys()
            after.count, after._sorted, after._numbers = len(keys), keys, numbers
            return after, numbers
        everything = np.concatenate([self._sorted, keys[new]])
        order = np.argsort(everything, kind="stable")
        after = Keys()
        after.count = len(everything)
        after._sorted, after._numbers = everything[order], np.concatenate([self._numbers, numbers[new]])[order]
        return after, numbers

    def _by_key(self) -> dict[Hashable, int]:
        if self._of is not None:
            return self._of
        return dict(sorted(zip(self._sorted.tolist(), self._numbers.tolist(), strict=True), key=lambda kv: kv[1]))

    def listed(self) -> Any:
        """The keys in order of their numbers: int64 numbers, or a list."""
        if self._of is not None:
            return list(self._of)
        found = np.empty(self.count, np.int64)
        found[self._numbers] = self._sorted
        return found

    def order(self) -> Array:
        """The numbers of the keys, sorted by key: NaN, NaT and None last. Raises: RedalgError if that is no order."""
        if self._of is None:
            return self._numbers
        keys: list[Any] = list(self._of)
        last = [key is None or key != key for key in keys]
        try:
            held = sorted((k for k in range(len(keys)) if not last[k]), key=lambda k: keys[k])
        except TypeError as error:
            raise RedalgError(
                "sort=True", "Grouped.result", f"these keys have no order: {error}", "sort=False"
            ) from None
        return np.array([*held, *(k for k in range(len(keys)) if last[k])], np.int64)


def _by_first(first: Array) -> Array:
    """The order of distinct rows; in linear time where they are many."""
    last = int(first.max(initial=0)) + 1
    if last > 64 * len(first):
        return np.argsort(first, kind="stable")
    at = np.full(last, -1, np.int64)
    at[first] = np.arange(len(first))
    return at[at >= 0]


def as_array(keys: Any) -> Array:
    """Keys as an array: of int64, float64, bool, or times of one unit, where all are of that kind, else of objects.

    >>> as_array([np.timedelta64(2, "s"), NAT]).dtype
    dtype('<m8[s]')
    """
    if isinstance(keys, np.ndarray):
        return keys
    units = {key.dtype if isinstance(key, np.datetime64 | np.timedelta64) else None for key in keys if key is not NAT}
    if len(units) == 1 and (unit := units.pop()) is not None:  # NaT is of the kind of the others
        return np.array([None if key is NAT else key for key in keys], unit)
    kinds = {type(key) for key in keys}
    for kind, dtype in ((bool, np.bool_), (float, np.float64), (int, np.int64)):
        if kinds == {kind} and (kind is not int or all(-(1 << 63) <= key < 1 << 63 for key in keys)):
            return np.array(keys, dtype)
    found = np.empty(len(keys), object)
    for k, key in enumerate(keys):  # one by one: a tuple is an element, not a row
        found[k] = key
    return found
