"""Rows whose state holds arrays along columns: a warp walks the stream together, and its threads share out the columns.

Every thread evaluates elements of its own (the scores of attention); what is reduced without columns is reduced over
the warp at once. For the sums along columns, each element in turn is told to all threads, which add it to their
columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from redalg.errors import RedalgError
from redalg.graph.node import Node, outermost, walk
from redalg.graph.operators import Average
from redalg.kernels.code.roles import each_column
from redalg.kernels.code.scalars import strength
from redalg.kernels.code.text import conjunction, joined, literal
from redalg.kernels.ir.program import First, Fold, Join, Let, Loop, Part, Pass, Result, Step, step_nodes
from redalg.kernels.rows.element import DTYPE
from redalg.kernels.rows.merge import Merge
from redalg.kernels.rows.steps import StepPrinter
from redalg.source.names import axis_name, local

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redalg.kernels.code.scalars import Scalars
    from redalg.kernels.rows.kernel import Kernel

SINGLE = frozenset({"sum", "prod", "max", "min", "any", "all"})


class ColumnPrinter(StepPrinter):
    """Steps where names may be arrays over the columns of a thread."""

    def __init__(self, kernel: Kernel, scope: Scalars) -> None:
        super().__init__(kernel, scope)
        self.columns = frozenset(kernel.program.columns)

    def columnar(self, node: Node) -> bool:
        return bool(node.axes & self.columns)

    def steps(self, steps: Iterable[Step], whole: bool = True) -> None:
        for step in steps:
            self.across(step_nodes(step) if not isinstance(step, Loop) else [])
            if isinstance(step, Loop):
                self._walk(step, True)
            elif isinstance(step, Let) and self.columnar(step.node):
                self._over_columns(step.name, [step.node], lambda s, n=step: s.converted(n.node, self._kind(n.name)))
            elif isinstance(step, Join) and step.axes:
                self._join_columns(step)
            elif isinstance(step, First) and self.columnar(step.node):
                self._first_columns(step)
            else:
                super().steps([step], whole)
        self.kernel.flush(self.scope)

    def _kind(self, name: str) -> str:
        return self.kernel.kinds.names[name]

    # --- values per column
    # ---------------------------------------------------------------------------------------------

    def array(self, name: str, kind: str) -> None:
        dtype = DTYPE.get(kind, self.kernel.elements.real)
        self.kernel.out(f"{local(name)} = cuda.local.array(COLUMNS, {dtype})")

    @contextmanager
    def each_column(self, nodes: Iterable[Node]) -> Iterator[Scalars]:
        """A loop over the columns of a thread; those beyond the last repeat it."""
        kernel, out = self.kernel, self.kernel.out
        self.scope.announce(nodes)
        self.scope.hoist(nodes, self.columns)
        kernel.flush(self.scope)
        with each_column(out):
            self.place()
            inner = self.column_scope()
            inner.announce(nodes)
            yield inner
            kernel.flush(inner)

    def column_scope(self) -> Scalars:
        """A block in a loop over columns, which knows what reductions over some of them leave along the others."""
        inner = self.scope.child(self.columns)
        inner.known |= {n: name for n, name in self.scope.known.items() if self.reduces(n)}
        return inner

    def place(self) -> None:
        """The index of column m along every column axis."""
        kernel, axes = self.kernel, self.kernel.program.columns
        total = " * ".join(kernel.access.size(a) for a in axes)
        kernel.out(f"column = min(t + m * THREADS, {total} - 1)")
        for axis in reversed(axes[1:]):
            size = kernel.access.size(axis)
            kernel.out(f"i_{axis_name(axis)} = column % {size}", f"column = column // {size}")
        kernel.out(f"i_{axis_name(axes[0])} = column")

    def reduces(self, node: Node) -> bool:
        """Whether a node is a reduction over columns."""
        return node.op == "reduce" and not self.columns.isdisjoint(node.attr.axes)

    def across(self, nodes: Iterable[Node], seen: set[Node] | None = None) -> None:
        """Reductions over columns that are one value for the row, and what is reduced of those that are not."""
        seen = set() if seen is None else seen
        for node in nodes:
            if node in seen or node in self.scope.known:
                continue
            seen.add(node)
            if self._holds_columns(node):
                self._looped(node)
                continue
            self.across(node.args, seen)
            if self.reduces(node) and not node.axes & self.kernel.elements.stream:
                self.scope.known[node] = self.reduced(node)

    def _holds_columns(self, node: Node) -> bool:
        """Whether a reduction over other axes is of reductions over columns that vary along these."""
        if node.op != "reduce" or self.reduces(node) or node.axes & (self.columns | self.kernel.elements.stream):
            return False
        return any(self.reduces(n) and n.axes & {*node.attr.axes} for n in walk(*node.args))

    def _looped(self, node: Node) -> None:
        """A reduction in whose every turn all threads reduce columns together."""
        kernel, out, around = self.kernel, self.kernel.out, self.scope
        kind, number, axes = node.attr.kind, kernel.kinds.of(node), node.attr.axes
        if kind not in SINGLE:
            raise _refused(node)
        name = around.fresh()
        kernel.flush(around)
        out(f"{name} = {kernel.folding.identity(kind, number)}")
        with ExitStack() as loops:
            for axis in axes:
                loops.enter_context(out.block(f"for i_{axis_name(axis)} in range({around.length(axis)}):"))
            self.scope = around.child(axes)
            self.across(node.args)
            value = self.scope.converted(node.args[0], number, strength(kind))
            kernel.flush(self.scope)
            out(f"{name} = {joined(kind, number, kernel.real, name, value)}")
        self.scope = around
        around.known[node] = name

    def contracted(self, nodes: Iterable[Node]) -> None:
        """Reductions over columns that vary along the stream, of all elements of the tile in turn: every thread reduces
        its own columns, and then all threads together."""
        elements = self.kernel.elements
        found = [n for n in walk(*nodes) if self._of_elements(n)]
        if not found:
            return
        bodies = [a for n in found for a in n.args]
        told = self._told(bodies)
        self._store(told)
        elements.shared |= set(found)
        self.kernel.folding._declare_shared(found)
        around, kept = self.scope, {n: elements.stored_value(n) for n in found}
        with self._each_element():
            self.scope = self.told_scope(told, bodies)
            for node, value in kept.items():
                name = self.scope.known[node] = self.reduced(node)
                self._owned(f"{value} = {name}")
        self.scope = around

    def _of_elements(self, node: Node) -> bool:
        elements = self.kernel.elements
        return self.reduces(node) and bool(node.axes & elements.stream) and node not in elements.tiles_of

    @contextmanager
    def _each_element(self) -> Iterator[None]:
        """Each element of the tile in turn, by all threads."""
        out = self.kernel.out
        with out.block("for owner in range(THREADS):"), out.block("for k in range(TILE):"):
            out("at = base + owner + k * THREADS")
            with out.block(conjunction([f"at < {self.kernel.elements.stop}"])):
                yield

    def _owned(self, line: str) -> None:
        """A statement of the thread whose element it is."""
        with self.kernel.out.block("if t == owner:"):
            self.kernel.out(line)

    def once(self, node: Node) -> list[str]:
        """Conditions under which a column counts in a reduction over some of several column axes: the others at 0.

        Raises: RedalgError where what is reduced varies along those.
        """
        others, program = self.columns.difference(node.attr.axes), self.kernel.program
        self.require_single(node, {*program.rows, *program.stream, *program.columns, *self.scope.looped})
        if others & node.args[0].axes:
            raise _refused(node)
        return [f"i_{axis_name(a)} == 0" for a in self.kernel.program.columns if a in others]

    def require_single(self, node: Node, known: Set[str]) -> None:
        """Raises: RedalgError for a reduction that is not over columns alone, or along others than these axes."""
        if not node.axes <= known or node.attr.kind not in SINGLE or not self.columns.issuperset(node.attr.axes):
            raise _refused(node)

    def reduced(self, node: Node) -> str:
        """The name of a reduction over columns: every thread reduces its own, and then all threads together."""
        kernel, out = self.kernel, self.kernel.out
        total = " * ".join(kernel.access.size(a) for a in kernel.program.columns)
        kind, number, real = node.attr.kind, kernel.kinds.of(node), kernel.real
        once = self.once(node)
        name = self.scope.fresh()
        kernel.flush(self.scope)
        out(f"{name} = {kernel.folding.identity(kind, number)}")
        with self.each_column(list(node.args)) as inner:
            value = inner.converted(node.args[0], number, strength(kind))
            kernel.flush(inner)
            with out.block(conjunction([f"t + m * THREADS < {total}", *once])):
                out(f"{name} = {joined(kind, number, real, name, value)}")
        shuffle = {"i": "i64", "b": "b1"}.get(number, real)
        if kernel.schedule.threads > 1:
            with out.block("for step in range(5):"):
                out(f"{name} = {joined(kind, number, real, name, f'shfl_xor_{shuffle}({name}, 1 << step)')}")
        return name

    def _over_columns(self, name: str, nodes: list[Node], text: object) -> None:
        self.array(name, self._kind(name))
        with self.each_column(nodes) as inner:
            value = text(inner)  # type: ignore[operator]
            self.kernel.flush(inner)
            self.kernel.out(f"{local(name)}[m] = {value}")

    def _join_columns(self, step: Join) -> None:
        name, kind = step.names[0], self._kind(step.names[0])
        real = self.kernel.real
        self.array(name, kind)
        with self.each_column([*step.a, *step.b]) as inner:
            if isinstance(step.op, Average):
                StepPrinter(self.kernel, inner).average("joined_column", step)
                value = "joined_column"
            else:
                a, b = (inner.converted(side[0], kind, strength(step.kind)) for side in (step.a, step.b))
                value = joined(step.kind, kind, real, a, b)
            self.kernel.flush(inner)
            self.kernel.out(f"{local(name)}[m] = {value}")

    def _first_columns(self, step: First) -> None:
        self.array(step.name, "f")
        kernel, name = self.kernel, local(step.name)
        with self.each_column([]) as inner:
            inner.leaf = kernel.elements.first_leaf
            value = inner.converted(step.node, "f")
            kernel.flush(inner)
            kernel.out(f"guess = {value}", f"{name}[m] = guess if is_finite_{kernel.real}(guess) else {kernel.real}(0)")

    # --- walks over the tile -----------------------------------------------------------------------------------------

    def _walk(self, loop: Loop, whole: bool) -> None:
        self.contracted([b for f in loop.folds for b in f.bodies])
        plain = tuple(f for f in loop.folds if not f.axes)
        columnar = [f for f in loop.folds if f.axes]
        if plain:
            super()._walk(Loop(plain), True)
        if columnar:
            self._walk_columns(columnar)

    def _walk_columns(self, folds: list[Fold]) -> None:
        """Each element in turn: its values go to all threads, which add it to their columns."""
        kernel, out = self.kernel, self.kernel.out
        kernel.flush(self.scope)
        told = self._told([b for f in folds for b in f.bodies])
        self._store(told)
        for f in folds:
            kind = self._kind(f.names[0])
            self.array(f.names[0], kind)
            with each_column(out):
                out(f"{local(f.names[0])}[m] = {kernel.folding.identities(f)[0]}")
        with self._each_element():
            inner = self.told_scope(told, [b for f in folds for b in f.bodies])
            with each_column(out):
                self.place()
                self._add(folds, inner)

    def told_scope(self, told: list[Node], nodes: list[Node]) -> Scalars:
        """The values of element `at`, sent by the thread that has them to all."""
        kernel, out, elements = self.kernel, self.kernel.out, self.kernel.elements
        inner = self.scope.child(self.columns)
        inner.leaf = elements.element_leaf
        for i, node in enumerate(told):
            shuffle = {"i": "i64", "b": "b1"}.get(kernel.kinds.of(node), kernel.real)
            out(f"element{i + 1} = {kernel.told(f'{elements.tiles_of[node]}[k]', shuffle, 'owner')}")
            inner.known[node] = f"element{i + 1}"
        position, axes = elements.needs(nodes)
        elements.places_along(axes if position else ())
        return inner

    def _add(self, folds: list[Fold], inner: Scalars) -> None:
        kernel = self.kernel
        inner.announce([b for f in folds for b in f.bodies])
        for f in folds:
            kind, name = self._kind(f.names[0]), f"{local(f.names[0])}[m]"
            value = inner.converted(f.bodies[0], kind, strength(f.kind))
            kernel.flush(inner)
            kernel.out(f"{name} = {joined(f.kind, kind, kernel.real, name, value)}")

    def _told(self, bodies: list[Node]) -> list[Node]:
        """The largest parts of the bodies that vary along the stream and neither along columns nor along what a
        contraction of columns is over."""
        stream = self.kernel.elements.stream
        outside = self.kernel.program.fixed | stream | self.scope.looped

        def wanted(n: Node) -> bool:
            open_ = any(map(self._of_elements, walk(n)))  # all threads compute it together
            return bool(n.axes & stream) and n.axes <= outside and not open_ and n.op not in ("index", "size")

        return list(outermost(wanted, *bodies))

    def _store(self, told: list[Node]) -> None:
        """Keep what is told in registers, element by element."""
        elements, kernel = self.kernel.elements, self.kernel
        missing = [n for n in told if n not in elements.tiles_of]
        if not missing:
            return
        elements.shared |= set(missing)
        self.scope.hoist(missing, kernel.program.stream)
        kernel.flush(self.scope)
        kernel.folding._declare_shared(missing)
        position, axes = elements.needs(missing)
        with elements.each(position, axes):
            inner = kernel.folding.element_scope(self.scope)
            inner.announce(missing)
            kernel.folding.keep_shared(inner, missing)


class ColumnRows:
    """The walk of one pass, and results, where the program has columns."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.out = kernel, kernel.out
        self.printer = ColumnPrinter(kernel, kernel.row)

    def walk(self, p: Pass) -> None:
        kernel, out, elements = self.kernel, self.out, self.kernel.elements
        splits = kernel.schedule.split > 1
        self._declare(p.parts)
        steps = p.update if p.update and p.absorbs else (*p.lift, *p.combine)
        elements.tiles_of, elements.stored, elements.shared = {}, set(), set()
        elements.stop = "stop" if splits else "length"
        if splits:
            span = kernel.schedule.threads * kernel.schedule.tile
            out(f"chunk = (length + {kernel.schedule.split * span - 1}) // {kernel.schedule.split * span} * {span}")
            out("low = split * chunk", "stop = min(low + chunk, length)")
        out("n = i64(0)", f"base = {'low' if splits else 'i64(0)'}")
        with out.block(f"while base < {elements.stop}:"):
            out("first = base + t", f"n_b = min({elements.stop} - base, THREADS * TILE)", "n_new = n + n_b")
            elements.begun()
            self.printer.scope = kernel.row.child()
            elements.load_tile([s for s in steps if isinstance(s, Loop)])
            if steps is p.update:
                self.printer.steps(s for s in steps if getattr(s, "name", "") != "n_new")
                self._commit(p.parts, "_new")
            else:
                self.printer.steps(p.lift)
                self._combined(p)
            out("n = n_new", "base += THREADS * TILE")
        if splits:
            self._splits(p)
        out("n = length")

    def _combined(self, p: Pass) -> None:
        """The state joined with the one under the names of a tile's."""
        with self.out.block("if n == 0:"):
            self._commit(p.parts, "_b")
        with self.out.block("else:"):
            self.printer.steps(s for s in p.combine if getattr(s, "name", "") != "n_new")
            self._commit(p.parts, "_new")

    def _splits(self, p: Pass) -> None:
        """The state of this split to scratch; the block that comes last merges all of them, in their order."""
        kernel, out, s = self.kernel, self.out, self.kernel.schedule
        kernel.comment(f"The state of this split to scratch, one of {s.split} of the row; the last block merges all.")
        merge = Merge(kernel.group, p, True)
        held = 32 * s.columns_per_thread
        tables = {
            part.name: kernel.group.scratch(
                f"{local(part.name)}_parts", merge._storage(part.kind), s.split * (held if part.axes else 1)
            )
            for part in p.parts
        }
        counts = kernel.group.scratch("n_parts", "int64", s.split)
        with out.block("if t == 0:"):
            out(f"store_int64({counts}, row * SPLIT + split, n)")
            for part in (x for x in p.parts if not x.axes):
                out(f"store_{merge._storage(part.kind)}({tables[part.name]}, row * SPLIT + split, {local(part.name)})")
        for part in (x for x in p.parts if x.axes):
            with each_column(out):
                at = f"(row * SPLIT + split) * {held} + t + m * THREADS"
                out(f"store_{merge._storage(part.kind)}({tables[part.name]}, {at}, {local(part.name)}[m])")
        merge._last(kernel.group.scratch("counter", "uint32", 1))
        self._declare(p.parts, anew=False)
        out("n = i64(0)")
        with out.block("for other in range(SPLIT):"):
            out(f"n_b = load_relaxed_int64({counts}, row * SPLIT + other)", "n_new = n + n_b")
            for part in p.parts:
                load = f"load_relaxed_{merge._storage(part.kind)}({tables[part.name]}, {{}})"
                if not part.axes:
                    out(f"{local(part.name)}_b = {load.format('row * SPLIT + other')}")
                    continue
                self.printer.array(f"{part.name}_b", part.kind)
                with each_column(out):
                    at = f"(row * SPLIT + other) * {held} + t + m * THREADS"
                    out(f"{local(part.name + '_b')}[m] = {load.format(at)}")
            self.printer.scope = kernel.row.child()
            with out.block("if n_b > 0:"):
                self._combined(p)
            out("n = n_new")

    def _declare(self, parts: Iterable[Part], anew: bool = True) -> None:
        """The state of no element; `anew`: with room for arrays."""
        for part in parts:
            value = literal(part.identity, part.kind, self.kernel.real)
            if part.axes:
                if anew:
                    self.printer.array(part.name, part.kind)
                with each_column(self.out):
                    self.out(f"{local(part.name)}[m] = {value}")
            else:
                self.kernel.group.start(part)

    def _commit(self, parts: Iterable[Part], end: str) -> None:
        for part in parts:
            if part.axes:
                with each_column(self.out):
                    self.out(f"{local(part.name)}[m] = {local(part.name + end)}[m]")
            elif not part.top:
                self.out(f"{local(part.name)} = {local(part.name + end)}")
            elif end == "_b":  # what elements were put into; combined, a list is the one that it was
                with self.out.block(f"for i in range({part.top}):"):
                    self.out(f"{local(part.name)}[i] = {local(part.name + end)}[i]")

    def exports(self, p: Pass) -> None:
        self.printer.scope = self.kernel.row
        self.printer.steps(p.exports)

    def total(self, result: Result, node: Node, store: object) -> None:
        """A result along columns: every thread writes its own."""
        kernel, out, program = self.kernel, self.out, self.kernel.program
        self.printer.scope = kernel.row
        total = " * ".join(kernel.access.size(a) for a in program.columns)
        missing = [f"i_{axis_name(a)} == 0" for a in program.columns if a not in result.axes]
        with self.printer.each_column([node]) as inner:
            conditions = [kernel.live, f"t + m * THREADS < {total}", *missing]
            kernel.flush(inner)
            with out.block(conjunction(conditions)):
                store(inner)  # type: ignore[operator]

    def kept(self, results: list[Result], nodes: list[Node], store: object) -> None:
        """Results along the stream and columns: the elements in turn, every thread its own columns."""
        kernel, out, elements = self.kernel, self.out, self.kernel.elements
        printer = self.printer
        total = " * ".join(kernel.access.size(a) for a in kernel.program.columns)
        elements.tiles_of, elements.stored, elements.shared, elements.stop = {}, set(), set(), "length"
        out("base = i64(0)")
        with out.block("while base < length:"):
            out("first = base + t", "n_b = min(length - base, THREADS * TILE)")
            elements.begun()
            printer.scope = kernel.row.child()
            printer.contracted(nodes)
            told = printer._told(nodes)
            elements.load_tile((), told)
            printer._store(told)
            with printer._each_element():
                inner = printer.told_scope(told, nodes)
                with each_column(out):
                    printer.place()
                    inner.announce(nodes)
                    for result, node in zip(results, nodes, strict=True):
                        missing = [f"i_{axis_name(a)} == 0" for a in kernel.program.columns if a not in result.axes]
                        condition = conjunction([kernel.live, f"t + m * THREADS < {total}", *missing])
                        store(inner, result, node, condition)  # type: ignore[operator]
            out("base += THREADS * TILE")


def _refused(node: Node) -> RedalgError:
    return RedalgError(
        f"{node.attr.kind} over {', '.join(node.attr.axes)} of a state",
        "a kernel that holds arrays of a row's state along columns",
        "sums, products, extrema, any and all that leave nothing along its columns are computed there",
        'form.compile("numpy")',
    )
