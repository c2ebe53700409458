"""Writing results: once per row, or for every element of the stream."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from redalg.graph.node import Node, walk
from redalg.kernels.code.text import conjunction, literal
from redalg.kernels.ir.program import Pass, Result, renamed
from redalg.source.names import axis_name
from redalg.source.statements import (
    Assign,
    Block,
    Do,
    Expression,
    Statement,
    expression,
    mapped,
    rewritten,
    with_names,
)

LOOPED = 48  # elements of a thread that a loop over portions of them writes, at most

if TYPE_CHECKING:
    from redalg.kernels.code.scalars import Scalars
    from redalg.kernels.rows.kernel import Kernel


class Results:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.program, self.access = kernel, kernel.program, kernel.access

    def write(self, names: dict[str, str], p: Pass | None) -> None:
        """All results. `names`: the parts of the state under the names they have here."""
        self.some(self.program.results, names)

    def some(self, results: Sequence[Result], names: dict[str, str]) -> None:
        if self.program.columns:
            printer = self.kernel.column_rows().printer
            printer.across([self._node(n, names) for r in results for n in (r.node, r.masked) if n is not None])
            self.kernel.flush(self.kernel.row)
        totals = [r for r in results if not r.keeps]
        kept = [r for r in results if r.keeps]
        if totals:
            self._totals(totals, names)
        columnar = [r for r in kept if self._columnar(self._node(r.node, names))]
        if columnar:
            self._kept_along_columns(columnar, names)
        kept = [r for r in kept if r not in columnar]
        if kept:
            self._kept(kept, names)

    def _columnar(self, node: Node) -> bool:
        """Whether an element's value lies along columns, or is computed from them."""
        columns = {*self.program.columns}
        inside = (n.attr.axes for n in walk(node) if n.op == "reduce" and n.axes & self.kernel.elements.stream)
        return not (columns.isdisjoint(node.axes) and all(map(columns.isdisjoint, inside)))

    def _kept_along_columns(self, results: list[Result], names: dict[str, str]) -> None:
        kernel = self.kernel

        def store(scope: Scalars, result: Result, node: Node, condition: str | None) -> None:
            value = self._value(scope, result, node, names)
            kernel.flush(scope)
            with kernel.out.block(condition):
                kernel.out(self.access.store(result, self._place(result, "at"), [value]))

        nodes = [self._node(r.node, names) for r in results]
        kernel.row.hoist(nodes, [*self.program.stream, *self.program.columns])
        kernel.flush(kernel.row)
        kernel.column_rows().kept(results, nodes, store)

    def _node(self, node: Node, names: dict[str, str]) -> Node:
        return renamed(node, names)

    # --- once per row ------------------------------------------------------------------------------------------------

    def _totals(self, results: list[Result], names: dict[str, str]) -> None:
        across = [r for r in results if set(r.axes) & set(self.program.columns)]
        for result in across:
            self._along_columns(result, names)
        rest = [r for r in results if r not in across]
        if rest:
            self._row_totals(rest, names)

    def _row_totals(self, results: list[Result], names: dict[str, str]) -> None:
        kernel, out, s = self.kernel, self.kernel.out, self.kernel.schedule
        kernel.comment("Results of the row.")
        apart = [r for r in results if self._by_thread(r)]
        several = [(f"t < {self.program.lengths[r.axes[-1]]}", [r], True) for r in apart]
        for who, group, by_thread in [*several, ("t == 0", [r for r in results if r not in apart], False)]:
            conditions = [who if s.threads > 1 else None, "split == 0" if s.cluster > 1 else None, kernel.live]
            if not group:
                continue
            with out.block(conjunction(conditions)):
                for result in group:
                    along = self.program.outer(result.axes)
                    missing = [f"i_{axis_name(a)} == 0" for a in self.program.rows if a not in along]
                    with out.block(conjunction([*missing, *self.access.beyond(result.axes)])):
                        self._total(result, names, by_thread)

    def _by_thread(self, result: Result) -> bool:
        """Whether the entries of a list are written by as many threads: where all can read all of it."""
        tops = [a for a in result.axes if a in self.program.lengths]
        shared = self.kernel.group.shared_lists
        all_shared = len(shared) == len(self.kernel.lists) and bool(shared)
        return all_shared and len(tops) == 1 and self.kernel.schedule.threads >= self.program.lengths[tops[0]]

    def _along_columns(self, result: Result, names: dict[str, str]) -> None:
        kernel, node = self.kernel, self._node(result.node, names)

        def store(scope: Scalars) -> None:
            value = self._value(scope, result, node, names)
            kernel.flush(scope)
            kernel.out(self.access.store(result, self._place(result, None), [value]))

        kernel.column_rows().total(result, node, store)

    def _total(self, result: Result, names: dict[str, str], by_thread: bool = False) -> None:
        kernel, out = self.kernel, self.kernel.out
        node = self._node(result.node, names)
        tops = [a for a in result.axes if a in self.program.lengths]
        scope = kernel.row.child()
        scope.hoist([node], tops)
        kernel.flush(scope)
        if by_thread:
            out(f"i_{axis_name(tops[0])} = t")
        with ExitStack() as loops:
            for axis in () if by_thread else tops:
                loops.enter_context(out.block(f"for i_{axis_name(axis)} in range({self.program.lengths[axis]}):"))
            inner = scope.child(tops)
            inner.announce([node])
            value = self._value(inner, result, node, names)
            kernel.flush(inner)
            out(self.access.store(result, self._place(result, None), [value]))

    def _place(self, result: Result, at: str | None) -> str:
        elements = self.kernel.elements
        terms = [elements.result_base(result)]
        if at is not None:
            terms.append(self.access.along(result.name, result.axes, at, True))
        inner = [a for a in result.axes if a in self.program.lengths or a in self.program.columns]
        terms += self.access.offset(result.name, result.axes, inner, True)
        return " + ".join(x for x in terms if x) or "0"

    def _value(self, scope: Scalars, result: Result, node: Node, names: dict[str, str]) -> str:
        """The value as it is stored: of the result's kind, with the value of masked rows."""
        kind = self._kind(result)
        value = scope.converted(node, kind) if kind != "i" or self.kernel.kinds.of(node) != "f" else None
        if value is None:
            value = f"i64(rint_{self.kernel.real}({scope.text(node)}))"
        if result.masked is None:
            return value
        masked = self._node(result.masked, names)
        scope.announce([masked])
        condition = scope.text(masked, 1)
        name = scope.fresh()
        empty = literal(float(result.empty) if kind == "f" else result.empty, kind, self.kernel.real)
        scope.lines.append(f"{name} = {value}")
        return f"{empty} if {condition} else {name}"

    @staticmethod
    def _kind(result: Result) -> str:
        return "b" if result.dtype == "bool" else "i" if result.dtype.startswith(("int", "uint")) else "f"

    # --- for every element -------------------------------------------------------------------------------------------

    def _kept(self, results: list[Result], names: dict[str, str]) -> None:
        kernel = self.kernel
        nodes = [self._node(r.node, names) for r in results]
        shared = [*nodes, *(self._node(r.masked, names) for r in results if r.masked is not None)]
        turned, staged = kernel.turn.of(results), kernel.staging.of(results)
        if not (turned or staged) and self._is_walked_once():
            self._mapped(results, nodes, shared, names)
            return
        self._of_row(shared)
        kernel.comment("Results of every element.")
        kernel.turn.begin(turned)
        kernel.staging.declare(staged)
        with kernel.out.block(conjunction([None if turned or staged else kernel.live])):
            if kernel.schedule.resident:
                if turned:
                    self._in_portions(results, nodes, names, turned)
                else:
                    self._elements(results, nodes, names)
                kernel.staging.write(staged)
            else:
                self._walked(results, nodes, names, turned)

    def _is_walked_once(self) -> bool:
        """Whether elements are read here for the first time, tile by tile, by a compiler that would delay loads."""
        s = self.kernel.schedule
        return self.kernel.elements.loads_first and not (self.program.passes or s.resident or s.prefetch or s.kept)

    def _walked(self, results: list[Result], nodes: list[Node], names: dict[str, str], turned: list[Result]) -> None:
        """Elements of rows that are walked, once more where there are passes."""
        kernel, elements, s = self.kernel, self.kernel.elements, self.kernel.schedule
        backwards = bool(self.program.passes or turned) and not (s.prefetch or s.kept)
        with elements.in_step(backwards) if turned else elements.tiles(backwards=backwards):
            elements.load_tile((), elements.of_row(nodes) if self.program.passes else nodes)
            kernel.prefetch.next()
            kernel.kept.next()
            self._elements(results, nodes, names)
            kernel.turn.write(turned, "base", elements.stop, [f"base == {'low' if s.split > 1 else 0}"])
        kernel.turn.finish(turned, elements.stop)

    def _of_row(self, nodes: list[Node]) -> None:
        """What elements have in common, by name."""
        self.kernel.row.hoist(nodes, [*self.program.stream, *self.program.lengths])
        self.kernel.flush(self.kernel.row)

    def _mapped(self, results: list[Result], nodes: list[Node], shared: list[Node], names: dict[str, str]) -> None:
        """Elements of rows that are walked once: a tile is asked for before what its row has in common is waited for.

        Numbers of the row are read for every tile, from the second on from the first-level cache; a thread has few.
        Before the loop they would be waited for first: the gradient of a pooling of 32 rows of 54024 float32 takes an
        H200 5.5 us so, and 4.8 (2026-11-29).
        """
        kernel, elements = self.kernel, self.kernel.elements
        kernel.comment("Results of every element.")
        with kernel.out.block(conjunction([kernel.live])), elements.tiles():
            with kernel.row.apart():
                elements.numbers_of_row(shared)
                elements.load_tile((), nodes)
                self._of_row(shared)
                self._elements(results, nodes, names)

    def _in_portions(
        self, results: list[Result], nodes: list[Node], names: dict[str, str], turned: list[Result]
    ) -> None:
        """What threads hold, a few elements of each at a time, as many as lines of shared memory have."""
        kernel, s = self.kernel, self.kernel.schedule
        low, stop = "", kernel.elements.stop
        if s.blocks_per_row > 1:
            low = f"split * {s.threads * s.tile}"
            stop = f"min({low} + {s.threads * s.tile}, {stop})"  # what lies after a block's part is another's
        if s.turned == s.tile:
            self._elements(results, nodes, names)
            kernel.turn.write(turned, low, stop, [])
            return
        count = s.tile // s.turned
        # A long loop around barriers is not unrolled, and what it indexes is put into memory: softmax of a transposed
        # 6x198007 float32 in tiles of 28 for each of 2 rows has 224 bytes of stack, and none if its portions are
        # printed one after the other (ptxas 13, sm_90).
        printed = s.tile * s.coarsen > LOOPED
        with kernel.out.block(None if printed else f"for portion in range({count - 1}, -1, -1):"):
            for number in reversed(range(count)) if printed else ("portion",):
                first, base = _times(number, s.turned), _times(number, s.threads * s.turned)
                with kernel.elements.portion(first):
                    self._elements(results, nodes, names)
                rest = [] if number == 0 else ["portion == 0"] if number == "portion" else None
                kernel.turn.write(turned, f"{low} + {base}" if low else base, stop, rest)

    def _elements(self, results: list[Result], nodes: list[Node], names: dict[str, str]) -> None:
        """A walk over the tile, vector by vector: read what was not read before, compute, write."""
        kernel, elements, out = self.kernel, self.kernel.elements, self.kernel.out
        wide = self._vectors(results)
        late = elements.late(nodes)
        position, axes = self._needs(results, nodes, wide)
        if not wide and not late:
            with elements.each(position, axes):
                self._compute(results, nodes, names, wide)
            return
        for r in wide:
            out(f"{self.access.result_names[r.name]}_part = cuda.local.array(VECTOR, {self._dtype(r)})")
        with elements.vectors(late):
            with elements.within(position, axes):
                self._compute(results, nodes, names, wide)
            for r in wide:
                values = [f"{self.access.result_names[r.name]}_part[{c}]" for c in range(kernel.schedule.vector)]
                base = elements.result_base(r)
                out(self.access.store(r, f"{base} + j" if base else "j", values))
        parts = {table: leaf for leaf, (table, _) in elements.parts_of.items()}
        elements.parts_of = {}
        kernel.peel.repeat(axes if position else (), lambda said: self._singly(said, wide, parts))

    def _needs(self, results: list[Result], nodes: list[Node], wide: list[Result]) -> tuple[bool, set[str]]:
        """Whether an element's position is asked for, and its indices along which axes."""
        position, needed = self.kernel.elements.needs(nodes)
        axes = set(needed)
        for r in results:
            if r in self.kernel.staging.results:
                position = True
            elif r not in wide and not r.summed:
                flat = self.access.walks_flat(r.axes) and set(self.program.stream) <= set(r.axes)
                position, axes = True, axes | (set() if flat else {*self.program.stream})
        return position, axes

    def _singly(self, said: Block, wide: list[Result], parts: Mapping[str, Node]) -> Block:
        """What was said of an element of a vector, of one that is alone: it is read, and written, by itself."""
        stored = {f"{self.access.result_names[r.name]}_part": r for r in wide}

        def read(e: Expression) -> Expression | None:
            name = e.value.id if isinstance(e, ast.Subscript) and isinstance(e.value, ast.Name) else ""
            return expression(self.kernel.elements.read(parts[name], "at")) if name in parts else None

        def written(s: Statement) -> Statement:
            target = s.targets[0] if isinstance(s, Assign) else None
            table = target.value if isinstance(target, ast.Subscript) else None
            r = stored.get(table.id) if isinstance(table, ast.Name) else None
            if r is None or not isinstance(s, Assign):
                return s
            base = self.kernel.elements.result_base(r)
            call = self.access.store(r, f"{base} + at" if base else "at", ["value"])
            return Do(value=with_names(expression(call), {"value": s.value}))

        return tuple(written(s) for s in mapped(said, lambda e: rewritten(e, read)))

    def _vectors(self, results: list[Result]) -> list[Result]:
        """The results that are written as vectors."""
        rows, layout = set(self.program.rows), self.kernel.layout
        if self.kernel.schedule.vector == 1:
            return []
        return [r for r in results if r.key in layout.unit and rows <= set(r.axes)]

    def _compute(self, results: list[Result], nodes: list[Node], names: dict[str, str], wide: list[Result]) -> None:
        kernel, out = self.kernel, self.kernel.out
        inner = kernel.folding.element_scope(kernel.row)
        inner.announce(nodes)
        for r, node in zip(results, nodes, strict=True):
            value = self._value(inner, r, node, names)
            kernel.flush(inner)
            if r.summed:
                kernel.sums.add(r, value)
            elif r in wide:
                out(f"{self.access.result_names[r.name]}_part[c] = {value}")
            elif kernel.turn.of([r]):
                kernel.turn.keep(r, value)
            elif kernel.staging.of([r]):
                kernel.staging.keep(r, value)
            else:
                together = kernel.turn.of(results) or kernel.staging.of(results)
                with out.block(conjunction([kernel.live if together else None])):
                    self._store_one(r, value)

    def _store_one(self, r: Result, value: str) -> None:
        """One element; a result that lacks axes of the kernel is written where they are 0."""
        stream = self.program.stream
        lacking = [a for a in stream if a not in r.axes]
        if len(lacking) == len(stream):
            missing = ["at == 0"] if stream else []
            at = None
        else:
            missing, at = [f"i_{axis_name(a)} == 0" for a in lacking], "at"
        missing += [f"i_{axis_name(a)} == 0" for a in self.program.rows if a not in r.axes]
        with self.kernel.out.block(conjunction(missing)):
            self.kernel.out(self.access.store(r, self._place(r, at), [value]))

    def _dtype(self, r: Result) -> str:
        return {"i": "np.int64", "b": "np.bool_"}.get(self._kind(r), self.kernel.elements.real)


def _times(number: int | str, n: int) -> str:
    """The text of a product with a number that is known, or that has a name."""
    return f"{number} * {n}" if isinstance(number, str) else str(number * n)
