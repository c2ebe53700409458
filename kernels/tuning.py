"""Schedules refined by measuring: the model's best few are timed once, the winner is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any, Protocol

from redalg.graph import Node
from redalg.kernels.choosing import Choice, choose, rank
from redalg.kernels.ir import Program
from redalg.kernels.layouts import Walk
from redalg.kernels.legality import Case, refusals
from redalg.kernels.schedule import FAMILIES, Schedule
from redalg.kernels.target import Target
from redalg.kernels.work import work_of

FIELDS = {f.name for f in fields(Schedule)}
MOST = 12  # schedules that are timed unless more are asked for


class Store(Protocol):
    """Where winners are kept: text by key, lost or damaged entries read as None."""

    def get(self, key: str) -> Mapping[str, Any] | None: ...

    def put(self, key: str, value: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Measured:
    """What measuring found. `times`: every schedule that ran, in seconds; `remembered`: it was not measured now."""

    choice: Choice
    times: tuple[tuple[Schedule, float], ...] = ()
    remembered: bool = False


def candidates(
    program: Program, sizes: Mapping[str, int], walk: Walk, target: Target, k: int = MOST, deterministic: bool = False
) -> list[Schedule]:
    """The k schedules most worth measuring: the best of every family first, then by predicted time.

    A second schedule that differs from a better one only in being half or twice as large in one field is taken all the
    same: the model tells families apart more surely than neighbours.
    """
    ranked = rank(Case.of(program, sizes, walk, target), deterministic)
    limit = 3 * ranked[0][1].seconds  # no family is worth a measurement that is predicted to take three times as long
    best = [next((s for s, e in ranked if s.family == word and e.seconds < limit), None) for word in FAMILIES]
    order = [ranked[0][0], *(s for s in best if s), *(s for s, _ in ranked)]
    return list(dict.fromkeys(order))[: max(1, k)]


def measure(
    program: Program,
    sizes: Mapping[str, int],
    walk: Walk,
    target: Target,
    time: Callable[[Schedule], float],
    store: Store | None = None,
    k: int = MOST,
    deterministic: bool = False,
) -> Measured:
    """The fastest of the candidates by `time`, a function from a schedule to seconds.

    A schedule whose `time` raises (a kernel that does not compile or launch) is left out; if all do, the last error is
    raised. With a `store`, the winner for calls of the same program, strides, length, device and number of rows up to a
    factor of two is remembered, and nothing is measured where it is known.

    >>> import redalg as ra
    >>> from redalg.kernels.layouts import View, walk_of
    >>> from redalg.kernels.lower import lower
    >>> from redalg.kernels.target import H200
    >>> program = lower(ra.derive_incremental(ra.catalog["softmax"]), {"x": "float32"})
    >>> array, sizes = View.contiguous((512, 512)), {"i": 512, "j": 512}
    >>> walk = walk_of(program, {"x": array, "y": array})
    >>> found = measure(program, sizes, walk, H200, lambda s: 1e-6 * s.threads)  # pretending that fewer are faster
    >>> found.choice.schedule.threads == min(s.threads for s, _ in found.times), len(found.times)
    (True, 12)
    """
    key = key_of(program, sizes, walk, target, deterministic)
    known = None if store is None else _known(store, key, program, sizes, walk, target)
    if known:
        return Measured(choose(program, sizes, walk, target, deterministic, known), remembered=True)
    times: list[tuple[Schedule, float]] = []
    error: Exception | None = None
    for s in candidates(program, sizes, walk, target, k, deterministic):
        try:
            times.append((s, time(s)))
        except Exception as found:  # whatever a compiler or a driver raises
            error = found
    if not times and error is not None:
        raise error
    winner, seconds = min(times, key=lambda pair: pair[1])
    if store is not None:
        store.put(key, {"schedule": asdict(winner), "seconds": seconds})
    choice = choose(program, sizes, walk, target, deterministic, winner)
    line = f"measured: {seconds * 1e6:.1f} µs, the fastest of {len(times)} schedules."
    return Measured(replace(choice, reasons=(*choice.reasons, line)), tuple(times))


def _known(
    store: Store, key: str, program: Program, sizes: Mapping[str, int], walk: Walk, target: Target
) -> Schedule | None:
    """The remembered winner, if it is whole and legal for this call."""
    entry = store.get(key)
    given = entry.get("schedule") if isinstance(entry, Mapping) else None
    if not isinstance(given, Mapping) or set(given) != FIELDS:
        return None
    if any(type(given[f.name]) is not type(f.default) for f in fields(Schedule)):
        return None
    s = Schedule(**given)
    return s if next(refusals(Case.of(program, sizes, walk, target), s), None) is None else None


def key_of(program: Program, sizes: Mapping[str, int], walk: Walk, target: Target, deterministic: bool = False) -> str:
    """The key of a winner: program, strides, length of the stream, rows up to a factor of two, device."""
    work = work_of(program, sizes)
    parts = (
        digest(program), digest(walk), work.length, max(1, work.rows).bit_length(), work.lanes, target.name, target.cc,
        deterministic,
    )  # fmt: skip
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def digest(value: Any) -> str:
    """A digest of plain data, graphs and monoids that is the same in every process."""
    h = hashlib.blake2b(digest_size=16)
    _feed(h, value)
    return h.hexdigest()


def _feed(h: Any, value: Any) -> None:
    if isinstance(value, Node):
        h.update(value.digest)
    elif is_dataclass(value):
        _feed(h, [type(value).__name__, *(getattr(value, f.name) for f in fields(value))])
    elif isinstance(value, Mapping):
        _feed(h, sorted(value.items()))
    elif isinstance(value, frozenset | set):
        _feed(h, sorted(value))
    elif isinstance(value, list | tuple):
        h.update(f"({len(value)}".encode())
        for item in value:
            _feed(h, item)
    else:
        h.update(f"{value if not hasattr(value, 'digest') else value.digest!r};".encode())
