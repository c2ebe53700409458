"""Rows that leave the range of the reals: a kernel marks them, and what called it computes them in wider numbers.

Once the state of a row is known, what the program watches is compared with the ends of the range, a few instructions
for a row. A row that is outside, or that holds infinities or NaN, gets a mark: which sums are not finite (a bit for
what these read), whether one is below normal numbers (`BELOW`). `spare` asks for results that lie where operands do not
to be written in such rows (`HELD`), so that their elements are still there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.kernels.ir.program import Param, Part, Pass, Program, Watch
from redalg.source.names import local

if TYPE_CHECKING:
    from redalg.kernels.cpu.kernel import CpuKernel

KINDS = 5  # bits for what sums read: the last one stands for all others
BELOW, HELD = 1 << 6, 1 << 7
ENDS = {"float32": (-126, 128), "float64": (-1022, 1024)}  # powers of 2: the least normal number, the first beyond
PARAMS = (
    Param("marks", "marks", "uint8"),
    Param("marked", "marked", "int64"),
    Param("spare", "spare", "int64"),
)


def bits(program: Program) -> dict[frozenset[str], int]:
    """The bit that says that a sum of these tensors is not finite."""
    kinds = list(dict.fromkeys(w.reads for w in program.watched))
    return {reads: 1 << min(at, KINDS) for at, reads in enumerate(kinds)}


class Watching:
    """What a kernel says about the range of its rows' states."""

    def __init__(self, kernel: CpuKernel) -> None:
        self.kernel, self.out, self.program = kernel, kernel.out, kernel.program
        self.watched = {w.part: w for w in self.program.watched}
        self.holds = bool(self.watched) and self.program.keeps

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
        seen = [(self.watched[part.name], part) for part in p.parts if part.name in self.watched]
        if not seen:
            return
        single = [self._inside(w, part, names) for w, part in seen if not part.axes]
        along = [self._inside(w, part, names) for w, part in seen if part.axes]
        self.out(f"inside = {' & '.join(single) or True}")
        if along:
            with self.out.block("for m in range(COLUMNS):"):
                self.out(f"inside = inside & {' & '.join(along)}")
        with self.out.block("if unlikely(not inside):"):
            if self.kernel.cpu.across:
                with self.out.block("for m in range(COLUMNS):"):
                    self._mark(seen, names, f"{self._row} + origin + m")
            else:
                self._mark(seen, names, "row")
            self.out("store_int64(marked, 0, 1)", *(["held = spare"] if self.holds else []))

    def _mark(self, seen: list[tuple[Watch, Part]], names: dict[str, str], at: str) -> None:
        out, kinds = self.out, bits(self.program)
        out(f"mark = load_uint8(marks, {at})" + (f" | {HELD} * spare" if self.holds else ""))
        for w, part in seen:
            inner = part.axes and not self.kernel.cpu.across
            with out.block("for m in range(COLUMNS):" if inner else None):
                with out.block(f"if not {self._finite(w, part, names)}:"):
                    out(f"mark = mark | {kinds[w.reads]}")
                if w.factors:
                    with out.block(f"if abs({self._value(part, names)}) < {self._least(w)}:"):
                        out(f"mark = mark | {BELOW}")
        out(f"store_uint8(marks, {at}, mark)")

    def _inside(self, w: Watch, part: Part, names: dict[str, str]) -> str:
        finite, value = self._finite(w, part, names), self._value(part, names)
        return f"({self._least(w)} <= abs({value})) & {finite}" if w.factors else finite

    def _finite(self, w: Watch, part: Part, names: dict[str, str]) -> str:
        most = "INF" if w.power == 1 else _named("MOST", w.power)
        return f"(abs({self._value(part, names)}) < {most})"

    def _least(self, w: Watch) -> str:
        """What terms that are normal numbers, as are powers of them, add up to at least."""
        least = _named("LEAST", w.least)
        return least if w.average else f"{least} * {self.kernel.real}(length)"

    def numbers(self) -> dict[str, str]:
        """The ends of ranges, by name: of numbers whose powers are normal ones."""
        real, (low, high) = self.kernel.real, ENDS[self.program.real]
        found = {_named("LEAST", w.least): f"{real}(2.0**{-int(-low / w.least)})" for w in self.program.watched}
        return found | {_named("MOST", w.power): f"{real}(2.0**{int(high / w.power)})" for w in self.program.watched}

    def _value(self, part: Part, names: dict[str, str]) -> str:
        return local(names.get(part.name, part.name)) + ("[m]" if part.axes else "")


def _named(end: str, power: float) -> str:
    """The name of an end of the range, of numbers that are raised to a power."""
    return end if power == 1 else f"{end}_{power:g}".replace(".", "_")
