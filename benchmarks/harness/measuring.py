"""What all timings share: check first and time only what is right, interleave contenders, keep one JSON line per cell.

Nothing here knows a device: a *contender* is a callable over numbered sets of arguments, a *judge* says how far its
results are from the float64 reference, a *clock* times callables.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Protocol

from benchmarks.harness.processes import stamp

Record = dict[str, Any]
Call = Callable[[int], Any]  # the number of a set of arguments -> results


@dataclass(frozen=True)
class Timing:
    """Seconds per call: median, least and largest of the repeats. `host`: what the caller spent until it returned."""

    median: float
    least: float
    largest: float
    calls: int
    host: float

    @property
    def bound_by_calls(self) -> bool:
        """Whether the device waited for the caller: the time is one of Python, not of the kernel."""
        return self.host >= 0.8 * self.median


class Clock(Protocol):
    def batch(self, call: Call, sets: int, count: int) -> tuple[float, float]:
        """Seconds of `count` calls over rotating sets, and the seconds until the last call had returned."""
        ...


@dataclass(frozen=True)
class WallClock:
    """Times calls that are finished when they return.

    `settle`: seconds of rest before a batch, then one call that is not counted. Thread pools spin for milliseconds
    after their work and would take a core from whoever comes next. `now`: another clock, such as that of the time
    which all threads of the process have spent on processors (`time.process_time`).
    """

    settle: float = 0.0
    now: Callable[[], float] = time.perf_counter

    def batch(self, call: Call, sets: int, count: int) -> tuple[float, float]:
        if self.settle:
            time.sleep(self.settle)
            call(0)
        begin = self.now()
        for n in range(count):
            call(n % sets)
        return self.now() - begin, 0.0


@dataclass(frozen=True)
class Effort:
    """How much is repeated: a batch lasts about `seconds`, every contender has `repeats` batches."""

    repeats: int = 7
    seconds: float = 5e-3
    largest: int = 400  # calls in a batch


def race(calls: Mapping[str, Call], clock: Clock, sets: int, effort: Effort) -> dict[str, Timing]:
    """Time contenders alternately; each repeat starts with another one, so that none always runs first."""
    counts = {}
    for name, call in calls.items():
        clock.batch(call, sets, sets)  # warm
        seconds, _ = clock.batch(call, sets, sets)
        wanted = min(effort.largest, ceil(effort.seconds / max(seconds / sets, 1e-9)))
        counts[name] = max(1, ceil(wanted / sets)) * sets
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    names = list(calls)
    for repeat in range(effort.repeats):
        for k in range(len(names)):
            name = names[(k + repeat) % len(names)]
            seconds, host = clock.batch(calls[name], sets, counts[name])
            found[name].append((seconds / counts[name], host / counts[name]))
    return {
        name: Timing(
            statistics.median(s for s, _ in pairs),
            min(s for s, _ in pairs),
            max(s for s, _ in pairs),
            counts[name],
            statistics.median(h for _, h in pairs),
        )
        for name, pairs in found.items()
    }


@dataclass(frozen=True)
class Contender:
    """Someone who computes the operation.

    Each of `tries` computes set 0 into memory that was poisoned, and gives the results by name; `ours` are held to the
    strict tolerance; a ceiling has no tries and is only timed. `notes` is asked after the calls, for whatever the table
    should say (the schedule).
    """

    name: str
    call: Call
    tries: tuple[Callable[[], Mapping[str, Any]], ...]
    ours: bool = False
    notes: Callable[[], Record] = field(default=dict)


Judge = Callable[[Mapping[str, Any], bool], float]
"""(results of set 0, strict) -> the largest error in units of the tolerance; not <= 1 (NaN too) means wrong."""


def check(contender: Contender, judge: Judge) -> Record:
    """Run a contender on poisoned memory. The record has "error" where it raised or is wrong."""
    used, seconds = 0.0, []
    for attempt in contender.tries:
        begin = time.perf_counter()
        try:
            results = attempt()
            seconds.append(time.perf_counter() - begin)
            worst = float(judge(results, contender.ours))
        except Exception as problem:
            return {"error": f"{type(problem).__name__}: {problem}"[:600]}
        if not worst <= 1:
            return {"wrong": str(worst), "error": f"wrong: {worst:.3g} times the tolerance"}
        used = max(used, worst)
    return {"tolerance_used": round(used, 6), "first_call_s": round(seconds[0], 3)} if seconds else {}


def measure(
    contenders: list[Contender],
    judge: Judge,
    clock: Clock,
    *,
    sets: int,
    effort: Effort,
    graph: Clock | None = None,
) -> dict[str, Record]:
    """Check every contender, time those that are right, check ours again afterwards (a race may strike late).

    With `graph`, a clock that leaves the caller's own time out, everyone is timed by it as well.
    """
    records = {c.name: check(c, judge) for c in contenders}
    right = {c.name: c.call for c in contenders if "error" not in records[c.name]}
    for name, timing in race(right, clock, sets, effort).items() if right else ():
        records[name] |= _times(timing)
    if graph is not None:
        _time_graphs(records, right, graph, sets, effort)
    for c in contenders:
        if c.name in right and c.ours:
            late = check(c, judge)
            records[c.name] |= {"error": f"after timing, {late['error']}"} if "error" in late else {}
        if c.name in right:
            records[c.name] |= c.notes()
    return records


def _time_graphs(records: dict[str, Record], calls: dict[str, Call], graph: Clock, sets: int, effort: Effort) -> None:
    """The same race without the callers' own time; who cannot be captured stays out of it."""
    captured = {}
    for name, call in calls.items():
        try:
            graph.batch(call, sets, sets)
            captured[name] = call
        except Exception as problem:
            records[name]["graph_error"] = f"{type(problem).__name__}: {problem}"[:300]
    for name, timing in race(captured, graph, sets, effort).items() if captured else ():
        records[name] |= {"graph_us": _us(timing.median), "graph_low_us": _us(timing.least)}


def _times(t: Timing) -> Record:
    bound = {"bound_by_calls": True} if t.bound_by_calls else {}
    return {
        "us": _us(t.median),
        "low_us": _us(t.least),
        "high_us": _us(t.largest),
        "host_us": _us(t.host),
        "calls": t.calls,
        **bound,
    }


def _us(seconds: float) -> float:
    return round(1e6 * seconds, 3)


def best_us(record: Record) -> float | None:
    """A contender's time in the tables: without the caller's own time where that was measured; None if not timed."""
    if "error" in record:
        return None
    found = record.get("graph_us", record.get("us"))
    return None if found is None else float(found)


# --- the file of lines -----------------------------------------------------------------------------------------------


class Lines:
    """A file of JSON lines that survives being cut off: a damaged line counts as absent.

    >>> import tempfile
    >>> lines = Lines(Path(tempfile.mkdtemp()) / "cells.jsonl")
    >>> lines.add({"cell": "a", "results": {}})
    >>> with open(lines.path, "a") as file:
    ...     _ = file.write('{"cell": "b", "resu')
    >>> lines.add({"cell": "c", "results": {}})
    >>> sorted(lines.cells())
    ['a', 'c']
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Record]:
        if not self.path.exists():
            return
        for line in self.path.read_text().splitlines():
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found

    def add(self, record: Record) -> None:
        """Append a line, with commit and time, and see that it is on disk; a line that was cut off is closed first."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, 2)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(record | stamp()).encode() + b"\n")
            file.flush()

    def cells(self) -> dict[str, Record]:
        """The latest line of every cell."""
        return {r["cell"]: r for r in self if "cell" in r}

    def values(self, key: str) -> list[Record]:
        """The lines of another kind: conditions, ceilings."""
        return [r for r in self if key in r]


def finished(record: Record, failed_before: float = 0.0) -> bool:
    """Whether a cell needs no other run: those in which anything of ours failed before that time do.

    >>> cell = {"when": 5.0, "results": {"redalg": {"error": "wrong"}, "torch": {"us": 1.0}}}
    >>> finished(cell), finished(cell, failed_before=6.0), finished(cell, failed_before=4.0)
    (True, False, True)
    """
    results = record.get("results", {})
    ours = [r for name, r in results.items() if name.startswith("redalg")]
    sound = bool(ours) and not any("error" in r for r in ours)
    return sound or record.get("when", 0.0) >= failed_before
