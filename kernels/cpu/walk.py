"""One call of a compiled CPU kernel: its arguments, and who computes which rows and splits."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from redalg.kernels.cpu import pool
from redalg.kernels.cpu.blocks import IN, OUT, RECORD, Blocks, blocks_of, walker, words_of
from redalg.kernels.cpu.build import Function, Native, kinds_of, require_memory
from redalg.kernels.cpu.calls import MARKED, NO_MEMORY, caller, data_offset
from redalg.kernels.cpu.kernel import RANGE
from redalg.kernels.cpu.schedule import BLOCK, CpuModule, CpuSchedule, nanoseconds_of, span_of, width_of
from redalg.kernels.cpu.threads import share, threads
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Program, result_key

SHARE = 4e3  # nanoseconds of work that are worth telling another thread of
MERGED = 10.0  # nanoseconds that merging an entry of a split's state takes, about
KEPT_ENTRIES = 1 << 14  # entries of states that are worth keeping from one call to the next
ROWS_EACH = 2  # rows for every thread from which on a row is computed by one thread, whatever its length


@dataclass(frozen=True)
class Compiled:
    program: Program
    schedule: CpuSchedule
    module: CpuModule
    functions: tuple[Function, ...]


class Prepared:
    """Everything of a call that follows from shapes and strides: `views` by name, those of results by their keys;
    `names`: the order in which calls give arrays and numbers."""

    def __init__(
        self, compiled: Compiled, sizes: Mapping[str, int], views: Mapping[str, View], names: Sequence[str]
    ) -> None:
        self.compiled = compiled
        program, split = compiled.program, compiled.schedule.split
        axes = program.rows, program.columns, program.stream
        rows, columns, length = (prod([sizes[a] for a in each]) for each in axes)
        across = compiled.schedule.across
        self._watching = Watching(rows * columns if across else rows) if program.watched else None
        width = width_of(columns, split)
        self._units, held = (rows * -(-columns // width), BLOCK) if across else (rows, columns)
        inside, groups = compiled.schedule.interleaved, compiled.schedule.groups
        span = span_of(program, sizes, inside, groups) if split else length
        self._splits = -(-length // span)
        self._shares = int(nanoseconds_of(program, sizes) / SHARE)
        stages = zip(compiled.functions, compiled.module.stages, strict=True)
        self._calls = [(f, self._splits if s.counts == "splits" else 1) for f, s in stages]
        blocks = blocks_of(program, sizes, views) if compiled.schedule.turned else None
        if blocks is not None:
            self._units, held = -(-columns // blocks.size), blocks.size
            seen, like = blocks.sizes(program, sizes), blocks.views
            values, self._places = self._arguments(seen, like, span, blocks.size, names)
            values = self._turn(blocks, program, columns, values)
        else:
            values, self._places = self._arguments(sizes, views, span, width, names)
        self._slots = Slots(values, self._watching, compiled.module, self._units * self._splits, held)
        native = [(f, per_row) for f, per_row in self._calls if isinstance(f, Native)]
        self._native = native if len(native) == len(self._calls) else []
        self._once = Alone(*self._native[0], self._units) if len(self._native) == 1 else None
        self._lone = self._lone_job()
        self._slots.alone = self._by_python()
        self._plans: dict[int, pool.Jobs] = {}

    def _lone_job(self) -> pool.Job | None:
        """All functions by the caller, in one call."""
        return self._jobs_of(True)[0][0] if self._native and pool.available() else None

    def _by_python(self) -> Callable[[int, int], Callable[..., int] | None] | None:
        """What makes a function that runs all by itself, for arguments in a table and where their mark lies; None where
        there are numbers among the arguments, or functions that are not native code."""
        params = self.compiled.module.params
        if not self._native or any(p.role == "number" for p in params):
            return None
        first, each = self._native[0]
        if self._once is not None:
            return lambda table, mark: caller(first.address, table, self._units * each, mark, self._places)
        lone = self._lone
        if lone is None:
            return None
        return lambda table, mark: caller(lone.entry, table, self._units, mark, self._places, lone.address)

    def _by_several(self, slot: Slot, there: int) -> Callable[..., int] | None:
        """What runs all functions on arrays by so many threads, with the arguments of a slot; None without a pool."""
        if self._lone is None or slot.table is None:
            return None
        plan = self._plan(there)
        if slot.shared is None or slot.shared[0] is not plan:
            called = caller(plan.entry, address_of(slot.table), 0, slot.mark, self._places, plan.address)
            slot.shared = plan, called
        return slot.shared[1]

    def _plan(self, there: int) -> pool.Jobs:
        """What of the work the threads do, where there are so many. A child of the process has threads of its own."""
        found, own = self._plans.get(there), pool.pool_of(there)
        if found is None or found.pool is not own:
            workers = min(there, self._shares)
            jobs = self._jobs_of(self._by_rows(workers))
            parts = [(job, self._units * each, 1 if alone else workers) for job, each, alone in jobs]
            found = self._plans[there] = pool.Jobs(own, parts)
        return found

    def _turn(self, blocks: Blocks, program: Program, rows: int, values: list[Any]) -> list[Any]:
        """Blocks are the units, and a kernel is called for each by what turns them; arguments of that."""
        ((kernel, _),), params = self._calls, self.compiled.module.params[: -len(RANGE)]
        head, records = words_of(blocks, program, params)
        if not isinstance(kernel, Native):
            self._calls = [(ByNumpy(kernel, blocks, head, records, rows), 1)]
            return values
        kinds = kinds_of(params)[: len(params)]
        head[0], head[3] = kernel.address, rows
        words = ["i64"] * len(head), kinds, ["i64"] * (len(records) + len(RANGE))
        self._calls = [(Native(walker(blocks), [k for some in words for k in some]), 1)]
        self._places = [(len(head) + at, number) for at, number in self._places]
        if self._watching is not None:
            self._watching.at = {role: at + len(head) for role, at in self._watching.at.items()}
        return [*head, *values, *records]

    def __call__(self, arrays: Sequence[Any], spare: bool = False) -> np.ndarray | None:
        """Fill the results from the other arrays and numbers.

        Returns: a mark for every row where some left the range of the reals (`redalg.kernels.cpu.watch`). `spare`:
        whether results lie where operands do, so that nothing is written in rows with a mark.
        """
        slot = self._slots.taken()
        there = threads() if self._shares > 1 else 1
        called = slot.called if there == 1 else self._by_several(slot, there)
        if called is None or spare:
            return self._slowly(slot, arrays, spare)
        status = called(*arrays)
        if not status:
            if self._slots.kept:
                self._slots.idle.append(slot)
            return None
        require_memory(status & NO_MEMORY)
        return slot.marks.rows if status & MARKED and slot.marks is not None else None

    def _slowly(self, slot: Slot, arrays: Sequence[Any], spare: bool) -> np.ndarray | None:
        """The same where arguments are packed for every call."""
        values, marks = slot.values, slot.marks
        for at, number in self._places:
            x = arrays[number]
            if x.__class__ is _ndarray:
                x = _WORD(id(x) + _OFFSET).value if _OFFSET else address_of(x)
            values[at] = x
        if spare and self._watching is not None:
            values[self._watching.at["spare"]] = True
        if self._once is not None and self._shares < 2:
            self._once(values)
        else:
            self._run(values)
        if marks is not None and marks.word.value:
            return marks.rows
        if not spare and self._slots.kept:
            self._slots.idle.append(slot)
        return None

    @property
    def watches(self) -> bool:
        """Whether calls tell of rows that leave the range of the reals."""
        return self._watching is not None

    @property
    def spares(self) -> bool:
        """Whether nothing can be written in such rows: blocks of rows that are turned are written as a whole."""
        return not self.compiled.schedule.turned

    @property
    def _whole(self) -> bool:
        """Whether rows are the work of one thread each."""
        return self._splits == 1

    def _run(self, values: list[Any]) -> None:
        there = threads() if self._shares > 1 else 1
        workers = min(there, self._shares) or 1
        if workers == 1 and self._once is not None:
            self._once(values)
        elif self._lone is None:
            self._shared(values, workers)
        elif workers == 1:
            status = self._lone.run(self._native[0][0].pack(*values), self._units)
            if status:
                require_memory(status)
        else:
            require_memory(self._plan(there).run(self._native[0][0].pack(*values)))

    def _rows(self, values: list[Any], low: int, high: int) -> None:
        """Row by row, so that what is read again is still in the caches."""
        step = 1 if len(self._calls) > 1 and not self._whole else high - low
        for row in range(low, high, step):
            for function, per_row in self._calls:
                function(*values, row * per_row, (row + step) * per_row)

    def _by_rows(self, workers: int) -> bool:
        """Whether every row is computed by one thread."""
        if self.compiled.schedule.interleaved and not self._whole:
            return False
        return self._whole or workers == 1 or self._units >= ROWS_EACH * workers

    def _jobs_of(self, by_rows: bool) -> list[tuple[pool.Job, int, bool]]:
        """Jobs one after the other, and what they count of a row: one of rows, or one of each function's own; and
        whether the caller had better do it alone: states of splits are soon merged."""
        if by_rows:
            stages = [(f.address, per_row) for f, per_row in self._native]
            each = len(stages) > 1 and not self._whole and not self.compiled.schedule.interleaved
            return [(pool.Job(stages, each), 1, False)]
        soon = MERGED * self._slots.entries < SHARE
        return [(pool.Job([(f.address, 1)], False), per_row, soon and per_row == 1) for f, per_row in self._native]

    def _shared(self, values: list[Any], workers: int) -> None:
        """The work by Python's threads."""
        if self._by_rows(workers):
            share(self._units, workers, lambda low, high: self._rows(values, low, high))
            return
        for function, per_row in self._calls:

            def part(low: int, high: int, function: Function = function) -> None:
                function(*values, low, high)

            share(self._units * per_row, workers, part)

    def _arguments(
        self, sizes: Mapping[str, int], views: Mapping[str, View], span: int, width: int, names: Sequence[str]
    ) -> tuple[list[Any], list[tuple[int, int]]]:
        """The arguments of every function of the module, up to its range; which of them a call fills in, by what."""
        values: list[Any] = []
        places: list[tuple[int, int]] = []
        numbers = {name: number for number, name in enumerate(names)}
        for at, p in enumerate(self.compiled.module.params[: -len(RANGE)]):
            name = result_key(p.name) if p.role in ("result", "stride_out") else p.name
            if p.role == "size":
                values.append(sizes[name])
            elif p.role == "span":
                values.append(span)
            elif self._watching is not None and p.role in self._watching.at:
                self._watching.at[p.role] = at
                values.append(0)
            elif p.role == "width":
                values.append(width)
            elif p.role in ("stride", "stride_out"):
                values.append(views[name].strides[p.dim])
            else:
                values.append(0)
                places += [(at, numbers[name])] if p.role != "scratch" else []
        return values, places


class Alone:
    """The only function, by the caller, for all units."""

    def __init__(self, function: Native, each: int, units: int) -> None:
        self._pack, self._call, self._total = function.pack, function.call, units * each

    def __call__(self, values: list[Any]) -> None:
        status = self._call(self._pack(*values), 0, self._total)
        if status:
            require_memory(status)


class Marks:
    """Room for the marks of a call's rows, and a word that says whether there is one."""

    def __init__(self, rows: int) -> None:
        self.rows, self.word = np.zeros(rows, np.uint8), ctypes.c_int64(0)
        self.addresses = address_of(self.rows), ctypes.addressof(self.word)


class Watching:
    """Which arguments the marks of so many rows are."""

    def __init__(self, rows: int) -> None:
        self.rows, self.at = rows, {"marks": -1, "marked": -1, "spare": -1}


@dataclass
class Slot:
    """Arguments of one call at a time, and the memory that they name: marks, all of them 0, and room for states.
    `called`: runs all functions on arrays, with the arguments in `table`, `shared` by the threads of a plan."""

    values: list[Any]
    marks: Marks | None
    buffers: tuple[np.ndarray, ...]
    table: np.ndarray | None = None
    called: Callable[..., int] | None = None
    shared: tuple[pool.Jobs, Callable[..., int] | None] | None = None

    @property
    def mark(self) -> int:
        """Where the word lies that says whether some row has a mark; 0 where none is looked for."""
        return self.marks.addresses[1] if self.marks is not None else 0


class Slots:
    """Arguments of calls like `values`. Those of a call that is over serve a later one.

    `entries` of states in all; `kept`: whether they are few enough for that.
    """

    def __init__(
        self, values: list[Any], watching: Watching | None, module: CpuModule, splits: int, width: int
    ) -> None:
        self._values, self._watching = values, watching
        scratch = [(at, p) for at, p in enumerate(module.params) if p.role == "scratch"]
        self._tables = [(at, splits * p.size * (width if p.dim else 1), p.dtype) for at, p in scratch]
        self.entries = sum(size for _, size, _ in self._tables)
        self.kept = self.entries <= KEPT_ENTRIES
        self.alone: Callable[[int, int], Callable[..., int] | None] | None = None
        self.idle: list[Slot] = []  # appending to a list, and taking from it, is atomic

    def taken(self) -> Slot:
        """Arguments that no other call uses now."""
        try:
            return self.idle.pop()
        except IndexError:
            return self._made()

    def _made(self) -> Slot:
        values, watching = self._values.copy(), self._watching
        marks = Marks(watching.rows) if watching is not None else None
        if watching is not None and marks is not None:
            values[watching.at["marks"]], values[watching.at["marked"]] = marks.addresses
        buffers = tuple(np.empty(size, dtype) for _, size, dtype in self._tables)
        for (at, _, _), x in zip(self._tables, buffers, strict=True):
            values[at] = address_of(x)
        made = Slot(values, marks, buffers)
        if self.alone is not None:
            made.table = np.array(values, np.int64)
            made.called = self.alone(address_of(made.table), made.mark)
        return made


class ByNumpy:
    """What `redalg.kernels.cpu.blocks.walker` does, in NumPy, for functions that are not native code."""

    def __init__(
        self, kernel: Function, blocks: Blocks, head: Sequence[int], records: Sequence[int], rows: int
    ) -> None:
        self.kernel, self.blocks, self.slot, self.rows = kernel, blocks, head[5], rows
        self.records = [records[at : at + RECORD] for at in range(0, len(records), RECORD)]

    def __call__(self, *values: Any) -> None:
        *given, low, high = values
        for unit in range(low, high):
            first = unit * self.blocks.size
            rows = min(self.blocks.size, self.rows - first)
            own, after = list(given), []
            if self.slot >= 0:
                own[self.slot] = rows
            for to, does, itemsize, row, step, _ in self.records:
                own[to] = given[to] + first * row * itemsize
                if does:
                    array = _at(own[to], itemsize, (rows, self.blocks.length), (row * itemsize, step * itemsize))
                    block = np.zeros((self.blocks.length, self.blocks.size), array.dtype)
                    block[:, :rows] = array.T if does == IN else 0
                    own[to] = address_of(block)
                    after.append((does, array, block))
            self.kernel(*own, 0, 1)
            for does, array, block in after:
                if does == OUT:
                    array[...] = block[:, :rows].T


def _at(address: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The bits of an array at an address."""
    described = {"data": (address, False), "shape": shape, "strides": strides, "typestr": f"|u{itemsize}", "version": 3}
    return np.asarray(type("Described", (), {"__array_interface__": described})())


_ndarray = np.ndarray
_OFFSET = data_offset()
_WORD = ctypes.c_int64.from_address


def address_of(array: np.ndarray) -> int:
    """Where the data of an array lies: in a fifth of the time that ``__array_interface__`` takes.

    >>> x = np.arange(6.0)[2:]
    >>> address_of(x) == x.__array_interface__["data"][0]
    True
    """
    if _OFFSET:
        return _WORD(id(array) + _OFFSET).value
    address: int = array.__array_interface__["data"][0]
    return address


def steps_of(array: np.ndarray) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)
