"""Rows that leave the range of the reals: a kernel marks them, and what called it computes them in wider numbers.

Once the state of a row is known, what the program watches is compared with the ends of the range, a few instructions
for a row. A row that is outside, or that holds infinities or NaN, gets a mark: which sums are not finite (a bit for
what these read), whether one is below normal numbers (`BELOW`). `spare` asks for results that lie where operands do not
to be written in such rows (`HELD`), so that their elements are still there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from redalg.kernels.code.roles import each_column
from redalg.kernels.ir.program import Param, Part, Pass, Watch
from redalg.kernels.rows.watch import BELOW, Range, bits

if TYPE_CHECKING:
    from redalg.kernels.cpu.kernel import CpuKernel

HELD = 1 << 7
PARAMS = (
    Param("marks", "marks", "uint8"),
    Param("marked", "marked", "int64"),
    Param("spare", "spare", "int64"),
)


class Watching(Range):
    """What a kernel says about the range of its rows' states."""

    def __init__(self, kernel: CpuKernel) -> None:
        super().__init__(kernel.program, kernel.real)
        self.kernel, self.out = kernel, kernel.out
        if kernel.cpu.single:
            self.watched = {name: self._alone(w) for name, w in self.watched.items()}
        self.holds = bool(self.watched) and self.program.keeps

    def _varied(self, w: Watch) -> str | None:
        """The condition under which terms are not 0 because a factor is: of elements that are equal, or 0."""
        access, out, tests = self.kernel.access, self.out, list[str]()
        for f in w.factors if not (w.product or w.extremum) else ():
            operand = access.operands[f.tensor]
            if operand.number or not {*operand.axes} <= self._own or not access.walks_flat(operand.axes):
                continue
            if self.kernel.cpu.across:
                self.kernel.column_rows().printer.place()
            own = access.offset(f.tensor, operand.axes, {*self._own} - {*self.program.stream})
            step, first = access.along(f.tensor, operand.axes, "at"), " + ".join(own) or "0"
            datum = access.load(operand, first) if f.centred else "0"
            name = f"varied{len(tests) + 1}"
            out(f"{name} = False")
            with out.block("for at in range(length):"):
                item = access.load(operand, " + ".join([*own, *([step] if step else [])]) or "0")
                out(f"{name} = {name} | ({item} != {datum})")
            tests.append(name)
        return f"if {' & '.join(tests)}:" if tests else None

    @property
    def _own(self) -> set[str]:
        """The axes of a row and of its stream."""
        return {*self.program.rows, *self.program.stream, *self.kernel.cpu.across}

    def _alone(self, w: Watch) -> Watch:
        """What is watched of one element: a difference from itself is 0, and not below what numbers are."""
        axes = {o.name: {*o.axes} for o in self.program.operands}
        return replace(w, factors=()) if any(f.centred and axes[f.tensor] <= self._own for f in w.factors) else w

    def begin(self) -> None:
        """What a row starts with."""
        if self.watched:
            self.kernel.access.used |= {p.name: p for p in PARAMS}
        if self.holds:
            self.out("held = i64(0)")

    @property
    def writes(self) -> str | None:
        """The condition under which results of a row are written."""
        return "if held == 0:" if self.holds else None

    def known(self) -> None:
        """Whether an earlier function has held the results of a row back."""
        if self.holds:
            first = f"{self._row} + origin" if self.kernel.cpu.across else "row"
            self.out(f"held = spare * i64(load_uint8(marks, {first}))")

    @property
    def _row(self) -> str:
        """Where the marks of a row of a program begin."""
        return "row * columns" if self.kernel.cpu.across else "row"

    def state(self, p: Pass, names: dict[str, str]) -> None:
        """Look at the state of a row; `names`: its parts under the names they have here."""
        seen = [(w, part) for w, part in self.seen(p) if not (part.top and self.kernel.cpu.across)]
        if not seen:
            return
        self._ask(seen, names)
        with self.out.block("if unlikely(not inside):"):
            self.out("found = i64(0)")
            with self._each_row() as at:
                self._mark(seen, names, at)
            with self.out.block("if found != 0:"):
                if self.holds:
                    with self._each_row() as at:
                        self.out(f"store_uint8(marks, {at}, load_uint8(marks, {at}) | {HELD} * spare)")
                self.out("store_int64(marked, 0, 1)", *(["held = spare"] if self.holds else []))

    @contextmanager
    def _each_row(self) -> Iterator[str]:
        """Every row there is; where its mark lies."""
        across = self.kernel.cpu.across
        with self._each(bool(across), None):
            yield f"{self._row} + origin + m" if across else "row"

    def _ask(self, seen: list[tuple[Watch, Part]], names: dict[str, str]) -> None:
        """Whether all that is looked at is inside: single values, those along columns, and the entries of lists."""
        tests: dict[tuple[bool, int | None], list[str]] = {(False, None): []}
        for w, part in seen:
            entries = (True, None) if part.axes else (False, part.top)
            tests.setdefault(entries, []).append(self.inside(w, part, names))
        self.out(f"inside = {' & '.join(tests.pop((False, None))) or True}")
        for entries, asked in tests.items():
            with self._each(*entries):
                self.out(f"inside = inside & {' & '.join(asked)}")

    def _each(self, columnar: bool, top: int | None) -> AbstractContextManager[object]:
        """A loop over columns or over the entries of a list, where there are any."""
        return each_column(self.out) if columnar else self.out.block(f"for m in range({top}):" if top else None)

    def _mark(self, seen: list[tuple[Watch, Part]], names: dict[str, str], at: str) -> None:
        out, kinds = self.out, bits(self.program)
        out(f"mark = load_uint8(marks, {at})")
        for w, part in seen:
            with self._each(bool(part.axes) and not self.kernel.cpu.across, part.top):
                if w.above:
                    with out.block(f"if not {self.finite(w, part, names)}:"):
                        out(f"mark = mark | {kinds[w.reads]}")
                if w.low:
                    with out.block(f"if abs({self.value(part, names)}) < {self.least(w)}:"):
                        with out.block(self._varied(w)):
                            out(f"mark = mark | {BELOW}")
        out(f"store_uint8(marks, {at}, mark)", "found = found | mark")
