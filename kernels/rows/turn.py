"""Results whose rows lie in memory one after another, from operands whose rows lie side by side.

A column schedule reads such operands with neighbouring threads in neighbouring rows; results written in the same order
would take a sector of memory for every element. They go through a table in shared memory instead: a line for every
row of the block, padded to an odd length so that neither way meets a bank twice, as long as a tile of all threads. The
threads of the block meet, write the lines out with neighbouring threads at neighbouring elements, and meet again.

Rows begin anywhere in memory, and what writes a part of a sector costs as much as several whole ones. Tiles are
walked from the last to the first, and of every tile each row's elements up to its first whole sector stay behind, at
the end of its line, to be written with the tile before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.kernels.code.coarsen import SIDE
from redalg.kernels.code.roles import Role
from redalg.kernels.code.text import conjunction
from redalg.kernels.code.whole import in_two
from redalg.kernels.ir.program import STORAGE, Result
from redalg.kernels.ir.schedule import skewed, turned_pitch

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel


PAIRED = ("float16", "bfloat16")  # dtypes of which neighbours are written together
TOGETHER = 4  # elements of a line that a thread takes before it writes them, where rows are kept


class Turn:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.schedule = kernel, kernel.schedule
        self.kept_at: dict[str, str] = {}  # the kept arrays whose places results have, by their keys

    def of(self, results: list[Result]) -> list[Result]:
        """The results that go through shared memory."""
        return [r for r in results if r.key in self.kernel.layout.turned]

    def begin(self, results: list[Result]) -> None:
        """Before the walk that writes: tables, and the first row of the block."""
        s, out, kernel = self.schedule, self.kernel.out, self.kernel
        if not results:
            return
        self.kept_at = kernel.kept.targets(results)
        group = f"i64(cuda.blockIdx.x{f' // {s.blocks_per_row}' if s.blocks_per_row > 1 else ''})"
        group = f"block_row = {'group' if s.persistent else group} * {s.rows_per_block}"
        if self.kept_at:
            kernel.comment("Results turn in shared memory, in the places of the rows that are kept there.")
            out(group)
            return
        lengths = " and ".join(dict.fromkeys(str(self._pitch(r)) for r in results))
        kernel.comment(
            f"Results turn in shared memory: lines of {lengths} entries for the block's {s.rows_per_block} rows."
        )
        for r in results:
            out(f"{self._table(r)} = cuda.shared.array({s.rows * self._pitch(r)}, {kernel.results._dtype(r)})")
        out(group)

    def _table(self, r: Result) -> str:
        return f"{self.kernel.access.result_names[r.name]}_lines"

    def _pitch(self, r: Result) -> int:
        """Entries of a line."""
        return turned_pitch(self.schedule, STORAGE[r.dtype])

    def keep(self, r: Result, value: str) -> None:
        """One element of this thread's row, to its line."""
        s, kept = self.schedule, self.kernel.kept
        if r.key in self.kept_at:
            name = self.kept_at[r.key]
            self.kernel.out(f"store_shared_{r.dtype}({kept.table(name)}, {kept.place(name, 'at')}, {value})")
            return
        k = "u" if s.turned < s.tile else "k"
        mine = f"{k} * {s.threads} + t" if s.threads > 1 else k
        self.kernel.out(f"{self._table(r)}[r * {self._pitch(r)} + {mine}] = {value}")

    def write(self, results: list[Result], base: str, stop: str, rest: list[str] | None) -> None:
        """The lines of a tile that begins at `base`, to memory; `rest`: the conditions under which no tile is written
        after it, None where one is."""
        if not results or self.kept_at:
            return
        s, out, each, total = self.schedule, self.kernel.out, self._each, self.kernel.access.size(self._rows[0])
        out("cuda.syncthreads()", f"lane = cuda.threadIdx.x % {each}")
        out(f"upto = i32(min({stop}{f' - ({base})' if base else ''}, {2 * s.threads * s.turned}))")
        with out.block(f"for line in range(cuda.threadIdx.x // {each}, {s.rows}, {s.block // each}):"):
            number = f"block_row + {'line' if s.coarsen == 1 else f'line * COARSEN + {SIDE}'}"
            if self.kernel.layout.astride:
                number = f"min(block_row + line * COARSEN, {total} - COARSEN) + {SIDE}"
            out(f"number = {number}")
            with out.block(f"if number < {total}:"):
                for r in results:
                    self._line(r, base, rest)
        out("cuda.syncthreads()")

    @property
    def _rows(self) -> tuple[str, ...]:
        return self.kernel.program.rows

    @property
    def _each(self) -> int:
        """Threads that write a line together: as many as it has elements, up to a warp."""
        span, block = self.schedule.threads * self.schedule.turned, self.schedule.block
        return min(32, 1 << (span - 1).bit_length(), block & -block)

    def _row(self, r: Result) -> str:
        """Where a row of a result begins in memory."""
        row = self.kernel.access.offset(r.name, r.axes, self._rows, True)[0].partition(" * ")[2]
        return f"number * {row}"

    def _line(self, r: Result, base: str, rest: list[str] | None) -> None:
        """A line, from its first whole sector on, and what was left by the tile after this one; what this tile leaves
        takes its place. All tiles leave as much of a row, for they are whole sectors long."""
        s, out, each = self.schedule, self.kernel.out, self._each
        span, sector, row = s.threads * s.turned, skewed(s, STORAGE[r.dtype]), self._row(r)
        pairs = 2 if sector and r.dtype in PAIRED and span % (2 * each) == 0 else 1
        place, step = "lane * 2" if pairs > 1 else "lane", each * pairs
        to, line = f"{row} + {base} + " if base else f"{row} + ", f"line * {self._pitch(r)}"
        out(f"skew = {f'i32(-({row}) & {sector - 1}) + ' if sector else ''}{place}")
        out(f"to = {to}skew", f"here = {line} + skew")
        inside = [f"u * {step} + {place} < {span}"] if span % step else []
        places = [f"u * {step}", f"u * {step} + 1"][:pairs]
        with out.block(f"for u in range({-(-span // step)}):"):
            self._stored(r, places, inside)
        if sector:
            with out.block(f"for u in range({(span - sector) // step}, {-(-span // step)}):"):
                self._left_behind(r, places, inside)
        if sector and rest is not None:
            with out.block(conjunction(rest)), out.block(f"for u in range({-(-sector // each)}):"):
                with out.block(f"if u * {each} + lane < min(skew - {place}, upto):"):
                    self._store(r, f"{to}lane + u * {each}", f"{line} + lane + u * {each}")

    def _stored(self, r: Result, places: list[str], inside: list[str]) -> None:
        """Neighbours of a line together, or the first of them where the row ends behind it."""
        out, entries = self.kernel.out, [f"here + {p}" for p in places]
        with out.block(conjunction([*inside, f"skew + {places[-1]} < upto"])):
            self._store(r, f"to + {places[0]}", *entries)
        if len(places) > 1:
            with out.block("else:"), out.block(f"if skew + {places[0]} < upto:"):
                self._store(r, f"to + {places[0]}", *entries[:1])

    def _left_behind(self, r: Result, places: list[str], inside: list[str]) -> None:
        """What this tile leaves to the one before it, to where that one looks for it."""
        out, span, table = self.kernel.out, self.schedule.threads * self.schedule.turned, self._table(r)
        for place in places:
            with out.block(conjunction([*inside, f"skew + {place} >= {span}"])):
                out(f"{table}[here + {place}] = {table}[here + {place} - {span}]")

    def _store(self, r: Result, to: str, *entries: str) -> None:
        self.kernel.out(self.kernel.access.store(r, to, [f"{self._table(r)}[{at}]" for at in entries]))

    def finish(self, results: list[Result], stop: str) -> None:
        """After the walk that writes: what lies in the places of kept rows, row by row, to memory."""
        s, out, kernel, access = self.schedule, self.kernel.out, self.kernel, self.kernel.access
        if not results or not self.kept_at:
            return
        each = s.block // s.rows_per_block  # threads of a line
        total = access.size(kernel.program.rows[0])
        out("cuda.syncthreads()", f"line = cuda.threadIdx.x // {each}")
        number = "block_row + line"
        if kernel.layout.astride:
            number = f"min(block_row + line // COARSEN * COARSEN, {total} - COARSEN) + line % COARSEN"
        out(f"number = {number}")
        for r in results:
            out(f"{self._part(r)} = cuda.local.array({TOGETHER}, {kernel.results._dtype(r)})")
        with out.block(f"if block_row + line < {total}:" if not kernel.layout.astride else None):
            first = f"cuda.threadIdx.x % {each}"
            first = f"low + {first}" if s.split > 1 else first
            with out.block(f"for to in range({first}, {stop}, {TOGETHER * each}):"):
                with out.apart() as said:
                    for moving in (self._taken, self._left):
                        with out.block(f"for u in range({TOGETHER}):"):
                            out(f"at = to + u * {each}", role=Role.PLACE)
                            with out.block(f"if at < {stop}:", Role.INSIDE):
                                for r in results:
                                    moving(r)
                out(*in_two(said, f"to + {(TOGETHER - 1) * each} < {stop}"))

    def _part(self, r: Result) -> str:
        return f"{self.kernel.access.result_names[r.name]}_part"

    def _taken(self, r: Result) -> None:
        """An element of a line from the places of kept rows."""
        kept, name = self.kernel.kept, self.kept_at[r.key]
        place = kept.place(name, "at", "line")
        self.kernel.out(f"{self._part(r)}[u] = load_shared_{r.dtype}({kept.table(name)}, {place})")

    def _left(self, r: Result) -> None:
        """The same, to memory."""
        self.kernel.out(self.kernel.access.store(r, f"{self._row(r)} + at", [f"{self._part(r)}[u]"]))
