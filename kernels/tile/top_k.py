"""Positions of extrema and the k largest elements of a row, kept sorted in the registers of the threads that share it.

Every thread has a list of its own elements of each of its rows, over all blocks; the four threads of a row merge theirs
at the end of the tile. A block costs one comparison an element: where the largest of a thread's elements in it does not
come before the last entry of its list, nothing does. Else the elements that do are put into the list one by one.

Order: larger first, NaN before all numbers, the lowest position among equals. Blocks are walked from the last one on,
so that what a block has comes before what is equal in the list.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redalg.graph.node import walk
from redalg.graph.operators import Position, TopK
from redalg.kernels.code.text import better, joined
from redalg.kernels.ir.program import First, Fold, Join, Loop, Part, Pass, Step, step_nodes
from redalg.kernels.tile.scalars import UNROLLED, Element
from redalg.source.names import axis_name, local

if TYPE_CHECKING:
    from redalg.kernels.tile.kernel import TensorKernel

Listed = Position | TopK  # what is kept as sorted lists
LONGEST = 8  # entries of a list in registers
NOWHERE = 1 << 30  # comes after every position; a position beyond the end of the stream is none either
WAYS = 4


def top_k_folds(p: Pass) -> dict[str, Fold]:
    """Parts of a state that are kept so, values and positions, with their folds."""
    loops = [s for s in p.update if isinstance(s, Loop)]
    found = [f for s in loops for f in s.folds if isinstance(f.op, Listed)]
    return {name.removesuffix("_b"): f for f in found for name in f.names}


def entries(f: Fold) -> int:
    return f.op.k if isinstance(f.op, TopK) else 1


def objection(p: Pass, value_columns: bool) -> str | None:
    """Why lists would not do for a state, None if they do."""
    lists = top_k_folds(p)
    if not lists:
        return None
    if value_columns:
        return "positions are not kept beside a sum with columns"
    for f in lists.values():
        if entries(f) > LONGEST:
            return f"lists of {entries(f)} entries are longer than {LONGEST}"
        if any(n.op == "state" for n in walk(*f.bodies)):
            return "positions are of something that depends on a state"
    ends = ("", "_b", "_new")
    names = {name + end for name in lists for end in ends}
    steps = [s for s in (*p.lift, *p.update, *p.combine) if not _keeps_lists(s)]
    read = {str(n.attr.name) for s in steps for n in walk(*step_nodes(s)) if n.op == "state"}
    return "a state depends on positions, or on what is kept with them" if names & read else None


def _keeps_lists(s: Step) -> bool:
    return isinstance(s, First) or isinstance(s, Join) and isinstance(s.op, Listed)


class TopKPrinter:
    def __init__(self, kernel: TensorKernel) -> None:
        self.kernel, self.out, self.made = kernel, kernel.out, kernel.made
        self.lists = top_k_folds(kernel.made.walk)
        self.folds = list({f.names: f for f in self.lists.values()}.values())

    def names(self, f: Fold) -> tuple[str, str]:
        values, places = (local(n.removesuffix("_b")) for n in f.names)
        return values, places

    def leaf(self, part: str, axes: tuple[str, ...]) -> str:
        """An entry of a list in the text of a result."""
        f = self.lists[part]
        new = f.op.axis if isinstance(f.op, TopK) else None
        at = next((f"i_{axis_name(a)}" for a in (*axes, new) if a in self.kernel.program.lengths), "0")
        size, single = entries(f), self.kernel.single
        index = ("0" if single else "r") if size == 1 else at if single else f"{size} * r + {at}"
        entry = f"{local(part)}[{index}]"
        if part == f.names[0].removesuffix("_b"):
            return entry
        return f"(i64({entry}) if {entry} < {self.kernel.length} else i64(-1))"

    # --- a tile ------------------------------------------------------------------------------------------------------

    def start(self, rows: int = 0) -> None:
        """Empty lists, of the rows of a thread or of so many."""
        for f in self.folds:
            (values, places), size = self.names(f), (rows or self.kernel.held) * entries(f)
            self.kernel.array(values, size)
            self.kernel.array(places, size, "np.int32")
            with self.out.block(f"for k in range({size}):"):
                self.out(f"{values}[k] = {'INF' if f.kind == 'argmin' else '-INF'}", f"{places}[k] = {NOWHERE}")

    def fold(self, f: Fold, element: Element) -> None:
        """A block's elements."""
        out = self.out
        out.comment(
            "Sorted lists on registers: an element goes in where it comes before the last entry, which is rare."
        )
        for r in range(self.kernel.held):
            out(f"r = {r}")
            self._best(f, element)
            (self._single if entries(f) == 1 else self._several)(f, element, r)
        out("syncwarp()")

    def _best(self, f: Fold, element: Element, untaken: bool = False) -> None:
        """The first element of the row in this thread, by value; of those that are not taken."""
        kernel, out = self.kernel, self.out
        kind, ways = "min" if f.kind == "argmin" else "max", "best_way"
        kernel.array(ways, WAYS)
        with out.block(f"for k in range({WAYS}):"):
            if untaken:
                out(f"{ways}[k] = -INF")
            else:
                out(kernel.register, f"{ways}[k] = {element.text}")
        with kernel.elements(False, 0 if untaken else WAYS):
            text = joined(kind, "f", kernel.real, f"{ways}[k % {WAYS}]", element.text)
            out(f"{ways}[k % {WAYS}] = {text}" + (f" if {UNTAKEN} else {ways}[k % {WAYS}]" if untaken else ""))
        pairs = [joined(kind, "f", kernel.real, f"{ways}[{k}]", f"{ways}[{k + 1}]") for k in (0, 2)]
        out(f"best = {joined(kind, 'f', kernel.real, *pairs)}")

    def _found(self, element: Element, untaken: str = "") -> None:
        """The lowest element with the value `best`, and its position."""
        out, text = self.out, element.text
        out(f"found = {NOWHERE}")
        with self._backwards():
            out(f"found = k if {untaken}(({text} == best) | ({text} != {text})) else found")
        out(f"at = column + 8 * (found >> 1) + (found & 1) if found < {NOWHERE} else {NOWHERE}")

    @contextmanager
    def _backwards(self) -> Iterator[None]:
        out, count = self.out, self.kernel.plan.columns // 4
        starts = list(range(0, count, UNROLLED))[::-1]
        with out.block(f"for k in range({count - 1}, {starts[0] - 1}, -1):") as body:
            out(self.kernel.register)
            yield
        for low in starts[1:]:
            with out.block(f"for k in range({low + UNROLLED - 1}, {low - 1}, -1):"):
                out(*body)

    def _single(self, f: Fold, element: Element, r: int) -> None:
        values, places = self.names(f)
        relation = "<=" if f.kind == "argmin" else ">="
        with self.out.block(f"if (best {relation} {values}[{r}]) | (best != best):"):
            self._found(element)
            self.out(f"{values}[{r}] = best", f"{places}[{r}] = at")

    def _several(self, f: Fold, element: Element, r: int) -> None:
        kernel, out, size = self.kernel, self.out, entries(f)
        values, _ = self.names(f)
        words = -(-kernel.plan.columns // 128)
        kernel.array("taken", words, "np.uint32")
        last = f"{values}[{size * r + size - 1}]"
        with out.block(f"for w in range({words}):"):
            out("taken[w] = np.uint32(0)")
        self._bound(size, last)
        out("more = not (best < bound)")
        with out.block("while more:"):
            self._found(element, f"{UNTAKEN} & ")
            out(f"more = {self._before(f, size * r + size - 1, 'best', 'at')}")
            with out.block("if more:"):
                self._insert(f, size * r, "best", "at")
                with out.block(f"for w in range({words}):"):
                    out("mark = np.uint32(1) << np.uint32(found & 31) if found >> 5 == w else np.uint32(0)")
                    out("taken[w] = taken[w] | mark")
                self._best(f, element, True)
                out(f"bound = max_nan_f32(bound, {last})", "more = not (best < bound)")

    def _bound(self, size: int, last: str) -> None:
        """A value below which nothing is among the row's `size` largest: at least as many elements have it or more.

        That is so of the last entry of every thread's list, and of the least of four threads' largest elements, or
        of their largest but one among four that are largest of a part each. NaN excludes nothing.
        """
        out = self.out
        if size <= 4:
            out("bound = best")
        else:  # the second of four numbers
            tops, lows = (
                [f"{word}_nan_f32(best_way[{k}], best_way[{k + 1}])" for k in (0, 2)] for word in ("max", "min")
            )
            out(f"bound = max_nan_f32(min_nan_f32({', '.join(tops)}), max_nan_f32({', '.join(lows)}))")
        out(f"floor = {last}")
        with out.block("for step in range(2):"):
            out("bound = min_nan_f32(bound, shfl_xor_f32(bound, 1 << step))")
            out("floor = max_nan_f32(floor, shfl_xor_f32(floor, 1 << step))")
        out("bound = max_nan_f32(bound, floor)")

    def _before(self, f: Fold, entry: int, value: str, place: str) -> str:
        values, places = self.names(f)
        return better(f.kind, "f", f"{values}[{entry}]", value, f"{places}[{entry}]", place)

    def _insert(self, f: Fold, first: int, value: str, place: str) -> None:
        """Put an element in place of the last entry, and move it up."""
        out, size = self.out, entries(f)
        values, places = self.names(f)
        out(f"{values}[{first + size - 1}] = {value}", f"{places}[{first + size - 1}] = {place}")
        for i in range(first + size - 1, first, -1):
            with out.block(f"if {self._before(f, i - 1, f'{values}[{i}]', f'{places}[{i}]')}:"):
                out(f"{values}[{i - 1}], {values}[{i}] = {values}[{i}], {values}[{i - 1}]")
                out(f"{places}[{i - 1}], {places}[{i}] = {places}[{i}], {places}[{i - 1}]")

    # --- other threads, other splits ---------------------------------------------------------------------------------

    def exchange(self, element: Element) -> None:
        """One list of a row from those of its four threads; then what waited for the end is multiplied."""
        kernel, out = self.kernel, self.out
        for f in self.folds:
            (values, places), size = self.names(f), entries(f)
            out.comment("The quad's four lists of a row become one, by two rounds of shuffles.")
            kernel.array("other_value", size)
            kernel.array("other_place", size, "np.int32")
            with out.block("for step in range(2):"):
                for r in range(kernel.held):
                    with out.block(f"for k in range({size}):"):
                        out(f"other_value[k] = shfl_xor_f32({values}[{size * r} + k], 1 << step)")
                        out(f"other_place[k] = shfl_xor_i32({places}[{size * r} + k], 1 << step)")
                    self._merge(f, size * r)
            if element.factor:
                with out.block(f"for k in range({kernel.held * size}):"):
                    out(f"{values}[k] = {element.factor} * {values}[k]")

    def _merge(self, f: Fold, first: int) -> None:
        """Put what the other list has into this one."""
        size = entries(f)
        with self.out.block(f"for k in range({size}):"):
            test = self._before(f, first + size - 1, "other_value[k]", "other_place[k]")
            with self.out.block(f"if {test}:"):
                self._insert(f, first, "other_value[k]", "other_place[k]")

    def left(self, part: Part) -> tuple[str, int]:
        """What is stored of a part in scratch, and how many of it."""
        f = self.lists.get(part.name)
        if f is None:
            return "float32", 1
        return "float32" if part.name == f.names[0].removesuffix("_b") else "int32", entries(f)

    def merge(self, splits: int) -> None:
        """In a kernel with a thread for every row: the lists of all splits."""
        out = self.out
        self.start(1)
        for f in self.folds:
            (values, places), size = self.names(f), entries(f)
            with out.block(f"for split in range({splits}):"), out.block(f"for k in range({size}):"):
                at = f"(index * {splits} + split) * {size} + k"
                out(f"value = load_float32({values}_splits, {at})", f"place = load_int32({places}_splits, {at})")
                with out.block(f"if {self._before(f, size - 1, 'value', 'place')}:"):
                    self._insert(f, 0, "value", "place")


UNTAKEN = "(not has_bit(taken[k >> 5], k & 31))"
