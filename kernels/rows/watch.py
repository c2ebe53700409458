"""Rows that leave the range of the reals, as kernels tell them from a row's finished state.

Once the state of a row is known, what the program watches (`redalg.kernels.lower.watched`) is compared with the ends of
the range, one or two instructions for a row. A row that is outside, or that holds infinities or NaN, gets a mark: which
sums are not finite (a bit for what these read), whether one is below normal numbers (`BELOW`). A kernel for GPUs has
`TABLE` marks, of row r at r mod `TABLE`, in bytes that are 0 or 1, and writes the number of a row, from 1 on, where
`marked` points, unless all that is outside is 0, as are sums of a row of zeros and variances of equal elements. If no
row is outside it writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from redalg.kernels.ir.program import Factor, Param, Part, Pass, Program, Watch
from redalg.source.names import local

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel

KINDS = 5  # bits for what sums read: the last one stands for all others
BELOW = 1 << 6
ENDS = {"float32": (-126, 128), "float64": (-1022, 1024)}  # powers of 2: the least normal number, the first beyond
TABLE = 4096  # marks of a kernel for GPUs: rows that share one are looked at together
BITS = 8  # bytes of such a mark, one for each bit: blocks that store at once lose none
PARAMS = (Param("marks", "marks", "uint8"), Param("marks", "marked", "int64"))


def bits(program: Program) -> dict[frozenset[str], int]:
    """The bit that says that a sum of these tensors is not finite."""
    kinds = list(dict.fromkeys(w.reads for w in program.watched))
    return {reads: 1 << min(at, KINDS) for at, reads in enumerate(kinds)}


class Range:
    """Comparisons of a state with the ends of the range, as text."""

    def __init__(self, program: Program, real: str) -> None:
        self.program, self.real = program, real
        self.watched = {w.part: w for w in program.watched}

    def seen(self, p: Pass) -> list[tuple[Watch, Part]]:
        """What is watched of a pass."""
        return [(self.watched[part.name], part) for part in p.parts if part.name in self.watched]

    def inside(self, w: Watch, part: Part, names: dict[str, str]) -> str:
        least = [f"({self.least(w)} <= abs({self.value(part, names)}))"] if w.low else []
        return " & ".join([*least, *([self.finite(w, part, names)] if w.above else [])])

    def finite(self, w: Watch, part: Part, names: dict[str, str]) -> str:
        return f"(abs({self.value(part, names)}) < {_most(w)})"

    def least(self, w: Watch) -> str:
        """What terms that are normal numbers, as are powers of them, add up to at least."""
        least = _named("LEAST", w.least)
        return least if w.average or w.extremum or w.product else f"{least} * {self.real}(length)"

    def numbers(self) -> dict[str, str]:
        """The ends of ranges, by name: of numbers whose powers are normal ones."""
        real, (low, high) = self.real, ENDS[self.program.real]
        normal = [w for w in self.program.watched if w.low or not w.extremum]
        found = {_named("LEAST", w.least): f"{real}(2.0**{-int(-low / w.least)})" for w in normal}
        bounded = [w for w in self.program.watched if w.above and _most(w) != "INF"]
        return found | {_most(w): f"{real}(2.0**{int(high / w.power) - w.terms + 1})" for w in bounded}

    def value(self, part: Part, names: dict[str, str]) -> str:
        return local(names.get(part.name, part.name)) + ("[m]" if part.axes or part.top else "")


class Marks(Range):
    """What a kernel for GPUs says about the range of its rows' states."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel.program, kernel.real)
        self.kernel = kernel

    def state(self, p: Pass, names: dict[str, str]) -> None:
        """Look at the state of a row; `names`: its parts under the names they have here."""
        kernel, out = self.kernel, self.kernel.out
        seen = [(w, part) for w, part in self.seen(p) if not part.axes]
        if not seen:
            return
        kernel.access.used |= {param.name: param for param in PARAMS}
        kernel.comment("A row whose state left the range of the reals gets a mark: a cold branch, the same for a row.")
        out(f"inside = {' & '.join(self.inside(w, part, names) for w, part in seen)}")
        with out.block(f"if {' and '.join(['not inside', *self._one()])}:"):
            out(f"slot = row % {TABLE} * {BITS}" if self._numbered else "slot = 0")
            for bit, condition in self._conditions(seen, names):
                with out.block(f"if {condition}:"):
                    out(f"store_uint8(marks, slot + {bit}, 1)")
            told = [self._told(w, part, names) for w, part in seen]
            with out.block(f"if {' or '.join(told)}:"):
                out(f"store_int64(marked, 0, {'row + 1' if self._numbered else '1'})")

    def _conditions(self, seen: list[tuple[Watch, Part]], names: dict[str, str]) -> Iterator[tuple[int, str]]:
        """The numbers of bits of a mark, and when each is set."""
        above: dict[int, list[str]] = {}
        for w, part in seen:
            above.setdefault(bits(self.program)[w.reads], []).append(self.finite(w, part, names))
        for kind, finite in above.items():
            yield kind.bit_length() - 1, f"not ({' & '.join(finite)})"
        below = [f"(abs({self.value(part, names)}) < {self.least(w)})" for w, part in seen if w.factors]
        if below:
            yield BELOW.bit_length() - 1, " | ".join(below)

    def _told(self, w: Watch, part: Part, names: dict[str, str]) -> str:
        """Whether it is outside, and not 0 as it is of a row of zeros: one of squares whose first term is not."""
        kernel, empty = self.kernel, f"({self.value(part, names)} == 0)"
        if w.factors and not any(f.centred for f in w.factors) and kernel.schedule.coarsen == 1:
            empty = f"{empty} & ({' | '.join(f'({self._first(f)} == 0)' for f in w.factors)})"
        return f"not ({self.inside(w, part, names)} | {empty})"

    def _first(self, f: Factor) -> str:
        """The first element of a row."""
        access = self.kernel.access
        operand = access.operands[f.tensor]
        place = " + ".join(access.offset(operand.name, operand.axes, self.kernel.own_rows)) or "0"
        return access.load(operand, place)

    @property
    def _numbered(self) -> bool:
        return bool(self.program.rows) or self.kernel.schedule.split > 1

    def _one(self) -> list[str]:
        """The conditions under which a thread is the one that speaks for its row."""
        s = self.kernel.schedule
        first = [*(["t == 0"] if s.threads > 1 else []), *(["split == 0"] if s.cluster > 1 else [])]
        return first + ([self.kernel.live] if self.kernel.live else [])


def _most(w: Watch) -> str:
    """The name of the end that a sum or an extremum is below: infinity, or what powers of it and sums are no infinity
    of. A sum of n is at most 2^(n - 1) times as large as its terms."""
    if w.power == w.terms == 1:
        return "INF"
    return _named("MOST", w.power) + (f"_OF_{w.terms}" if w.terms > 1 else "")


def _named(end: str, power: float) -> str:
    """The name of an end of the range, of numbers that are raised to a power."""
    text = f"{int(power)}" if power == int(power) else f"{power:g}"
    return end if power == 1 else f"{end}_{text}".translate(str.maketrans(".+-", "___"))
