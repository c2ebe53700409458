"""Schedules refined by measuring: the model's best few are timed once, the winner is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from statistics import median
from typing import Any, Protocol

from redalg.graph.node import Node
from redalg.kernels.ir.layouts import Walk
from redalg.kernels.ir.program import Program
from redalg.kernels.ir.schedule import FAMILIES, Family, Schedule
from redalg.kernels.schedule.case import Case
from redalg.kernels.schedule.choose import Ranked, rank
from redalg.kernels.schedule.cost import estimate
from redalg.kernels.schedule.cost_terms import work_of
from redalg.kernels.schedule.families import waiting
from redalg.kernels.schedule.legality import refusals
from redalg.kernels.schedule.target import Target

MEASURE = "measure"  # the word for it, as schedule=
FIELDS = {f.name for f in fields(Schedule)}
MOST = 16  # schedules that are timed unless more are asked for
EACH = 3  # of every family, before others
WORTH = 3  # times the best prediction: what is predicted to take longer is not measured
ROUNDS = 9  # times every schedule is run, in turns
SHORT = 5e-3  # seconds that all rounds together take at least: events tell half a microsecond apart, kernels may take 2
MANY = 61  # rounds at most for that
HOPELESS = 1.5  # times the fastest, after three rounds: such a schedule is not run again
ENOUGH = 1.0  # seconds all rounds together are to take; three rounds are run anyway
EQUAL = 1.01  # times the fastest: the model's own choice is kept where it is as good as that

Way = Schedule | str  # what ``schedule=`` may be, named by one value
Time = float | Exception  # seconds, or why a schedule could not be run


class Store(Protocol):
    """Where winners are kept: text by key, lost or damaged entries read as None."""

    def get(self, key: str) -> Mapping[str, Any] | None: ...

    def put(self, key: str, value: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Measured:
    """What measuring found. `times`: every way that ran, in seconds; `remembered`: it was not measured now."""

    way: Way
    times: tuple[tuple[Way, float], ...] = ()
    remembered: bool = False

    @property
    def seconds(self) -> float:
        return dict(self.times)[self.way]

    def lines(self, named: Callable[[Any], Any] = str) -> tuple[str, ...]:
        """What was measured, in words: the winner, then every way by its time."""
        when = "measured by an earlier call" if self.remembered else "measured on the arrays of the first call"
        count = f"the fastest of {len(self.times)}" if len(self.times) > 1 else "the only one there is"
        others = sorted(self.times, key=lambda pair: pair[1])
        return (
            f"{when}: {self.seconds * 1e6:.1f} µs, {count}.",
            *(f"{t * 1e6:9.1f} µs with {named(w)}" for w, t in others),
        )


# --- which schedules -------------------------------------------------------------------------------------------------


def candidates(
    program: Program, sizes: Mapping[str, int], walk: Walk, target: Target, k: int = MOST, deterministic: bool = False
) -> list[Schedule]:
    """The k schedules most worth measuring: the model's choice, the best few of every family, then by predicted time.

    The few of a family differ in more than the rows that lie in a block. Persistent grids are only measured: on an H200
    they cost 4 to 10 % on most rows and gain as much on some, for reasons the model does not know. `deterministic`:
    those that add in the same order as the model's choice, so that whichever wins gives the same bits.

    >>> import redalg as ra
    >>> from redalg.kernels.ir.layouts import View, walk_of
    >>> from redalg.kernels.programs import lower
    >>> from redalg.kernels.schedule.target import H200
    >>> program = lower(ra.derive_incremental(ra.catalog["softmax"]), {"x": "float32"})
    >>> array, sizes = View.contiguous((512, 512)), {"i": 512, "j": 512}
    >>> found = candidates(program, sizes, walk_of(program, {"x": array, "y made": array}), H200)
    >>> len(found), {s.family for s in found} >= {"warp", "block"}
    (16, True)
    """
    case = Case.of(program, sizes, walk, target)
    ranked = rank(case, deterministic)
    first, least = ranked[0][0], min(e.seconds for _, e in ranked)
    lasting = [s for s in [replace(first, persistent=True)] if next(refusals(case, s), None) is None]
    if deterministic:
        same = [s for s, _ in ranked if replace(s, rows=first.rows, persistent=first.persistent) == first]
        return list(dict.fromkeys([first, *lasting, *same]))[: max(1, k)]
    worth = [(s, e) for s, e in ranked if e.seconds <= WORTH * least]
    joint = sorted((estimate(case, s).seconds, i, s) for i, s in enumerate(waiting(case)))[:EACH]
    several = [s for word in FAMILIES for s in _few(worth, word)] + [s for t, _, s in joint if t <= WORTH * least]
    order = [first, *lasting, *several, *(s for s, _ in ranked)]
    return list(dict.fromkeys(order))[: max(1, k)]


def _few(ranked: Ranked, family: Family) -> Iterator[Schedule]:
    seen: dict[Schedule, None] = {}
    for s, _ in ranked:
        kind = replace(s, rows=1, split=min(2, s.split))
        if s.family == family and kind not in seen and len(seen) < EACH:
            seen[kind] = None
            yield s


# --- which of them is the fastest ------------------------------------------------------------------------------------


def race(
    runs: Sequence[Callable[[], Any] | Exception], seconds: Callable[[Callable[[], Any]], float], rounds: int = ROUNDS
) -> list[Time]:
    """The median time of every run by `seconds`, in turns, so that all see the device in the same condition.

    A run that raises, or that an exception stands for, has that exception as its time.

    >>> race([lambda: 1.0, lambda: 2.0, ValueError("too large")], lambda run: run())
    [1.0, 2.0, ValueError('too large')]
    """
    times: dict[int, list[float]] = {}
    found: list[Time] = [r if isinstance(r, Exception) else 0.0 for r in runs]
    for i, run in enumerate(runs):  # once without being looked at: code is loaded, pages are touched
        if callable(run):
            try:
                times[i] = [seconds(run)][:0]
            except Exception as problem:  # whatever a compiler or a driver raises
                found[i] = problem
    live, number, spent = list(times), 0, 0.0
    while live and _goes_on(number, rounds, spent):
        for i in live:
            times[i].append(seconds(runs[i]))  # type: ignore[arg-type]
            spent += times[i][-1]
        number += 1
        if number == 3:
            least = min(median(times[i]) for i in live)
            live = [i for i in live if median(times[i]) <= HOPELESS * least]
    for i, taken in times.items():
        found[i] = median(taken)
    return found


def _goes_on(number: int, rounds: int, spent: float) -> bool:
    """Whether another round is run after so many, which took so many seconds."""
    if number < min(3, rounds):
        return True
    return spent < ENOUGH and number < rounds or spent < SHORT and number < MANY


def measure(
    ways: Sequence[Way],
    timed: Callable[[Sequence[Way]], Sequence[Time]],
    key: str = "",
    store: Store | None = None,
    legal: Callable[[Way], bool] = lambda way: True,
) -> Measured:
    """The fastest of `ways` by `timed`, a function from ways to their times; the first, where it is within 1 % of that.

    A way that cannot be run is left out; if none can, the last error is raised. With a `store`, the winner is
    remembered under `key`, and nothing is timed where one is known that is `legal`.

    >>> found = measure(["block", "warp"], lambda ways: [3e-6, 2e-6])
    >>> found.way, found.lines()[0]
    ('warp', 'measured on the arrays of the first call: 2.0 µs, the fastest of 2.')
    """
    known = None if store is None else _known(store.get(key))
    if known is not None and legal(known.way):
        return known
    found = list(zip(ways, timed(ways), strict=True))
    times = tuple((w, t) for w, t in found if not isinstance(t, Exception))
    if not times:
        raise next(t for _, t in reversed(found) if isinstance(t, Exception))
    least = min(t for _, t in times)
    winner = next(w for w, t in times if t == least or w == ways[0] and t <= EQUAL * least)
    if store is not None:
        store.put(key, {"way": _written(winner), "times": [[_written(w), t] for w, t in times]})
    return Measured(winner, times)


def _written(way: Way) -> Any:
    return way if isinstance(way, str) else asdict(way)


def _known(entry: Any) -> Measured | None:
    """The remembered winner, if the entry is whole."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("times"), list):
        return None
    times = []
    for pair in entry["times"]:
        way = _way(pair[0]) if isinstance(pair, list) and len(pair) == 2 else None
        if way is None or not isinstance(pair[1], float):
            return None
        times.append((way, pair[1]))
    winner = _way(entry.get("way"))
    return Measured(winner, tuple(times), True) if winner is not None and winner in dict(times) else None


def _way(given: Any) -> Way | None:
    if isinstance(given, str):
        return given
    if not isinstance(given, Mapping) or set(given) != FIELDS:
        return None
    if any(type(given[f.name]) is not type(f.default) for f in fields(Schedule)):
        return None
    return Schedule(**given)


# --- keys ------------------------------------------------------------------------------------------------------------


def key_of(
    program: Program, sizes: Mapping[str, int], walk: Walk, target: Target, deterministic: bool = False, *more: object
) -> str:
    """The key of a winner: program, strides, lengths, rows up to a factor of two, device, and `more` (versions)."""
    work = work_of(program, sizes)
    others = sorted((a, n) for a, n in sizes.items() if a not in program.rows)
    parts = (
        digest(program),
        digest(walk),
        others,
        max(1, work.rows).bit_length(),
        target.name,
        target.cc,
        target.multiprocessors,
        deterministic,
        *more,
    )
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
