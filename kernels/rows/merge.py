"""Merging the states of the threads, blocks and splits that share a row, in the order of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redalg.kernels.ir.all_reduce import TOTAL, AllReduce
from redalg.kernels.ir.program import BARRIER, Let, Loop, Part, Pass, step_nodes
from redalg.kernels.ir.schedule import SPLIT_WORDS, Schedule
from redalg.source.names import local

if TYPE_CHECKING:
    from redalg.kernels.rows.group import Group

SHUFFLE = {"i": "i64", "b": "b1", "k": "u64"}


def field(unit: int, count: int) -> str:
    """The text of the number of a thread's unit of so many threads, among `count` units; all powers of two.

    LLVM does not see how large a thread's number in a row is (`and_i32`): it divides it by signed rules, and tests
    whether indices of tables are negative. A bit field of the register is neither: LayerNorm of rows of 516 float16
    takes 425 instructions for 497 (ptxas 13, sm_90).

    >>> field(1, 32), field(32, 4), field(64, 1)
    ('(cuda.threadIdx.x & 31)', '(cuda.threadIdx.x >> 5 & 3)', '0')
    """
    shift = f" >> {unit.bit_length() - 1}" if unit > 1 else ""
    return f"(cuda.threadIdx.x{shift} & {count - 1})" if count > 1 else "0"


def warp_of_row(s: Schedule, number: str) -> str:
    """The text of the place of a row's warp of a number among all warps of its block.

    >>> warp_of_row(Schedule(threads=64, rows=2), field(1, 2))
    '(cuda.threadIdx.x >> 6 & 1) * 2 + (cuda.threadIdx.x & 1)'
    """
    return f"{field(s.threads, s.rows)} * {s.threads // 32} + {number}" if s.rows > 1 else number


LANE = field(1, 32)


class Merge:
    def __init__(self, group: Group, p: Pass, counted: bool) -> None:
        self.group, self.plan, self.counted = group, p, counted
        self.kernel, self.schedule = group.kernel, group.schedule
        self.out = self.kernel.out
        self.parts: list[tuple[str, str, int | None]] = [(local(x.name), x.kind, x.top) for x in p.parts]
        if counted:
            self.parts.insert(0, ("n", "i", None))
        self.at_once = group.all_reduce(p, counted)

    def whole_row(self) -> None:
        s = self.schedule
        if self.at_once:
            self._all_reduce(self.at_once, s.cluster, whole=s.split == 1)
            if s.split > 1:
                self._split()
            return
        if s.column:
            self._column()
        elif s.threads > 1:
            self._lanes(min(s.threads, 32))
            if s.threads > 32:
                self._warps()
        if s.cluster > 1:
            self._cluster()
        if s.split > 1:
            self._split()
            return
        if s.threads > 1 and not s.column:
            self._broadcast()

    # --- all at once --------------------------------------------------------------------------------------------------

    def _all_reduce(self, steps: AllReduce, blocks: int = 1, whole: bool = True) -> None:
        """All states to common anchors, then slot by slot; all threads of the row have the state of all. `whole`: they
        have all elements of the row, as many as it is long."""
        if self.schedule.threads * blocks == 1:
            return
        kernel, kinds = self.kernel, self.kernel.kinds.names
        kernel.comment("States of all threads of the row at once: to anchors that all know, then slot by slot.")
        scope = kernel.row.child()
        scope.announce([n for step in steps for n in step_nodes(step)])
        for step in steps:
            if isinstance(step, Let):
                kinds.setdefault(step.name, "f")
                scope.assign(local(step.name), step.node, kinds[step.name])
                continue
            folds = [f for f in step.folds if not (whole and f.names == (TOTAL.attr.name,))]
            if len(folds) < len(step.folds):
                self.out("n_new = length")
            for fold in folds:
                for name, body in zip(fold.names, fold.bodies, strict=True):
                    kinds.setdefault(name, "i" if name == TOTAL.attr.name else "f")
                    scope.assign(local(name), body, kinds[name])
                    scope.known.pop(body, None)  # the name soon holds the value of all threads
            kernel.flush(scope)
            if folds:
                self.group.reduce(Loop(tuple(folds)), scope)
        kernel.flush(scope)
        self.out(*(f"{name} = {name}_new" for name, _, _ in self.parts))

    # --- one warp ----------------------------------------------------------------------------------------------------

    def _real(self, kind: str) -> str:
        return SHUFFLE.get(kind, self.kernel.real)

    def _dtype(self, kind: str) -> str:
        return {"i": "np.int64", "b": "np.bool_", "k": "np.uint64"}.get(kind, self.kernel.elements.real)

    def _lanes(self, lanes: int) -> None:
        """A tree over neighbouring lanes; the first one ends up with all, in order."""
        out = self.out
        self.kernel.comment(
            f"Warp merge: a tree over {lanes} lanes by shuffles; lane 0 has the state of all, in order."
        )
        self._list_copies()
        out("step = 1")
        with out.block(f"while step < {lanes}:"):
            others = []
            for name, kind, top in self.parts:
                text = f"shfl_down_{self._real(kind)}({{}}, step)"
                if top:
                    with out.block(f"for i in range({top}):"):
                        out(f"{name}_b[i] = {text.format(f'{name}[i]')}")
                    others.append(f"{name}_b")
                else:
                    others.append(text.format(name))
            self._combine(others)
            out("step *= 2")

    def _list_copies(self) -> None:
        for name, kind, top in self.parts:
            if top:
                self.out(f"{name}_b = cuda.local.array({top}, {self._dtype(kind)})")

    def _combine(self, others: list[str]) -> None:
        count, rest = (others[0], others[1:]) if self.counted else ("", others)
        self.group._call(self.plan, self.counted, rest, count)

    def _broadcast(self) -> None:
        """What the row's first lane knows, to all of its lanes."""
        s, out = self.schedule, self.out
        self.kernel.comment("The row's state to all of its lanes.")
        leader = "0" if s.threads >= 32 else "(cuda.threadIdx.x & 31) // THREADS * THREADS"
        for name, kind, top in self.parts:
            with self._each(top) as i:
                out(f"{name}{i} = {self.kernel.told(name + i, self._real(kind), leader)}")

    @contextmanager
    def _each(self, top: int | None) -> Iterator[str]:
        """A loop over the entries of a list; what stands behind a name for one of them, nothing for a single value."""
        with self.out.block(f"for i in range({top}):" if top else None):
            yield "[i]" if top else ""

    # --- tables in shared memory -------------------------------------------------------------------------------------

    def _tables(self, what: str, count: int) -> list[str]:
        table = self.group.shared_table
        return [table(f"{name}_{what}", count * (top or 1), self._dtype(kind)) for name, kind, top in self.parts]

    def _write(self, tables: list[str], at: str) -> None:
        for (name, _, top), table in zip(self.parts, tables, strict=True):
            with self._each(top) as i:
                self.out(f"{table}[{f'({at}) * {top} + i' if top else at}] = {name}{i}")

    def _read(self, tables: list[str], at: str, end: str = "") -> None:
        for (name, _, top), table in zip(self.parts, tables, strict=True):
            with self._each(top) as i:
                self.out(f"{name}{end}{i} = {table}[{f'({at}) * {top} + i' if top else at}]")

    def _no_elements(self) -> None:
        """The state of no element."""
        parts: dict[str, Part] = {local(x.name): x for x in self.plan.parts}
        for name, _, top in self.parts:
            value = "i64(0)" if name not in parts else self.group.identity(parts[name])
            with self._each(top) as i:
                self.out(f"{name}{i} = {value}")

    def _warps(self) -> None:
        """Every warp leaves its state; every warp merges those of all."""
        s, out = self.schedule, self.out
        warps = s.threads // 32
        self.kernel.comment(
            f"Block merge: the states of a row's {warps} warps by shared memory; every warp merges all of them."
        )
        tables = self._tables("warps", warps * s.rows)
        out(f"slot = {field(32, s.block // 32)}")
        with out.block(f"if {LANE} == 0:"):
            self._write(tables, "slot")
        out("cuda.syncthreads()")
        with out.block(f"if {LANE} < {warps}:"):
            self._read(tables, warp_of_row(s, LANE))
        with out.block("else:"):
            self._no_elements()
        self._lanes(warps)

    def _column(self) -> None:
        """The threads of a row lie in different warps: a tree through shared memory, neighbours in the stream first."""
        s, out = self.schedule, self.out
        if s.threads == 1:
            return
        self.kernel.comment(f"Block merge: a tree over the {s.threads} threads of a row, which lie in different warps.")
        tables = self._tables("threads", s.threads * s.rows)
        self._list_copies()
        self._write(tables, "t * ROWS + r")
        out("cuda.syncthreads()", "step = 1")
        with out.block("while step < THREADS:"):
            with out.block("if t % (2 * step) == 0:"):
                self._read(tables, "(t + step) * ROWS + r", "_b")
                self._combine([f"{name}_b" for name, _, _ in self.parts])
                self._write(tables, "t * ROWS + r")
            out("cuda.syncthreads()", "step *= 2")
        self._read(tables, "r")

    # --- several blocks ----------------------------------------------------------------------------------------------

    def _cluster(self) -> None:
        """Every block of the cluster reads the states of all through distributed shared memory."""
        s, out = self.schedule, self.out
        self.group.uses_cluster = True
        self.kernel.comment(
            f"Cluster merge: every block reads the states of all {s.cluster} by distributed shared memory."
        )
        tables = self._tables("blocks", s.rows)
        at = "r" if s.rows > 1 else "0"
        with out.block("if t == 0:"):
            self._write(tables, at)
        out("cluster_sync()")
        with out.block(f"if {LANE} < {s.cluster}:"):
            for (name, kind, top), table in zip(self.parts, tables, strict=True):
                load = f"dsm_load_{self._real(kind)}({table}, {{}}, {LANE})"
                with self._each(top) as i:
                    out(f"{name}{i} = {load.format(f'{at} * {top} + i' if top else at)}")
        with out.block("else:"):
            self._no_elements()
        self._lanes(s.cluster)

    def _split(self) -> None:
        """Every split leaves its state in memory; the block that comes last merges all splits and goes on, or all do,
        where results keep the stream."""
        s, out, group = self.schedule, self.out, self.group
        self.kernel.comment(f"The state of this split to scratch, one of {s.split} of the row.")
        tables = []
        for name, kind, top in self.parts:
            dtype = self._storage(kind)
            tables.append(group.scratch(f"{name}_parts", dtype, s.split * (top or 1)))
        with out.block("if t == 0 and live:" if s.rows > 1 else "if t == 0:"):
            self._store_split(tables)
        if self.kernel.program.keeps:  # every block goes on
            barrier = group.scratch(BARRIER, "uint32", 1)
            out(f"splits_sync({barrier}, {'group' if s.rows_per_block > 1 else 'row'}, SPLIT)")
        else:
            self._last(group.scratch("counter", "uint32", 1))
        self.kernel.comment(
            "The states of all splits, in the order of the stream: a few to each thread, then as above."
        )
        out("low = t * SPLIT // THREADS", "stop = (t + 1) * SPLIT // THREADS")
        self._no_elements()
        self._list_copies()
        with out.block("while low < stop:"):
            self._next_splits(tables)
        if self.at_once:
            self._all_reduce(self.at_once)
        elif s.column:
            out("cuda.syncthreads()")
            self._column()
        elif s.threads > 1:
            self._lanes(min(s.threads, 32))
            if s.threads > 32:
                out("cuda.syncthreads()")
                self._warps()
            self._broadcast()

    def _store_split(self, tables: list[str]) -> None:
        """The state of a split, to its place in the tables."""
        for (name, kind, top), table in zip(self.parts, tables, strict=True):
            store = f"store_{self._storage(kind)}({table}, {{}}, {{}})"
            place = self._split_at(name, "split")
            with self._each(top) as i:
                self.out(store.format(f"({place}) * {top} + i" if top else place, name + i))

    def _next_splits(self, tables: list[str]) -> None:
        """The states of a thread's next splits, from `low` on: all of them are asked for before the first is joined."""
        out, several = self.out, self._asked
        others = [f"{name}_b" for name, _, _ in self.parts]
        if several == 1:
            self._load_split(tables, "low", others)
            self._combine(others)
            out("low += 1")
            return
        for name, kind, _ in self.parts:
            out(f"{name}_splits = cuda.local.array({several}, {self._dtype(kind)})")
        with out.block(f"for k in range({several}):"), out.block("if low + k < stop:"):
            self._load_split(tables, "low + k", [f"{name}_splits[k]" for name, _, _ in self.parts])
        with out.block(f"for k in range({several}):"), out.block("if low + k < stop:"):
            self._combine([f"{name}_splits[k]" for name, _, _ in self.parts])
        out(f"low += {several}")

    @property
    def _asked(self) -> int:
        """How many splits a thread asks for at a time: what comes from L2 takes as long as all joins together."""
        s = self.schedule
        if any(top for _, _, top in self.parts):
            return 1
        return max(1, min(-(-s.split // s.threads), SPLIT_WORDS // (len(self.parts) * s.neighbours)))

    def _load_split(self, tables: list[str], split: str, into: list[str]) -> None:
        """The state of a split, from there."""
        for (name, kind, top), table, other in zip(self.parts, tables, into, strict=True):
            load = f"load_relaxed_{self._storage(kind)}({table}, {{}})"
            place = self._split_at(name, split)
            with self._each(top) as i:
                self.out(f"{other}{i} = {load.format(f'({place}) * {top} + i' if top else place)}")

    def _split_at(self, name: str, split: str) -> str:
        """Where a value of a split lies: what neighbouring threads have, side by side. Neighbouring rows of a thread
        have one count."""
        row = "first_row" if name == "n" and self.schedule.coarsen > 1 else "row"
        if not self.schedule.column:
            return f"{row} * SPLIT + {split}"
        return f"{f'({split})' if ' ' in split else split} * {self.kernel.total} + {row}"

    def _storage(self, kind: str) -> str:
        return {"i": "int64", "b": "bool", "k": "uint64"}.get(kind, self.kernel.program.real)

    def _last(self, counter: str) -> None:
        """Go on only in the block that finds all other splits of its rows finished; it leaves the counter at zero."""
        s, out = self.schedule, self.out
        # A barrier of the block, an atomic of one thread that releases and acquires, and a barrier order the states of
        # all threads (PTX ISA 9.0, "causality order"); fences of every thread on either side would be waited for, too.
        self.kernel.comment(
            "Who finds the counter full sees the states of all splits: one thread's atomic releases those of its block,"
            " and acquires the others'. The last block goes on."
        )
        out("cuda.syncthreads()", "arrived = cuda.shared.array(1, np.int64)")
        rows = "cuda.blockIdx.x // SPLIT"
        with out.block("if cuda.threadIdx.x == 0:"):
            out(f"arrived[0] = atomic_inc_acq_rel({counter}, {rows})")
        out("cuda.syncthreads()")
        with out.block("if arrived[0] != SPLIT - 1:"):
            out("return")
        with out.block("if cuda.threadIdx.x == 0:"):
            out(f"store_uint32({counter}, {rows}, 0)")
        assert s.split > 1
