"""Rows whose state holds arrays along columns, on a CPU: every loop over columns is one that LLVM vectorises.

Columns are the columns e of attention's P·V, or rows that lie side by side while the stream does not (`across`); the
latter are walked in blocks that fit the first-level caches, all of a block at every element of the stream.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from redalg.graph.node import Node, walk
from redalg.graph.operators import Average, Binary, NumberExtremum, Position
from redalg.kernels.code.roles import Role, each_column
from redalg.kernels.code.scalars import Scalars
from redalg.kernels.code.text import better, conjunction, joined
from redalg.kernels.cpu.schedule import is_dear
from redalg.kernels.ir.program import STORAGE, Fold, Join, Loop, Pass, Program, Result
from redalg.kernels.ir.program import renamed as restated
from redalg.kernels.rows.access import tensor_leaves
from redalg.kernels.rows.columns import ColumnPrinter, ColumnRows
from redalg.kernels.rows.element import DTYPE
from redalg.kernels.rows.steps import StepPrinter
from redalg.source.names import axis_name, local
from redalg.source.statements import Assign, Block, Statement, assigned_names, expressions, renamed

if TYPE_CHECKING:
    from redalg.kernels.cpu.kernel import CpuKernel

DTYPES = {"i32": "np.int32", "i64": "np.int64"}
LINE = 64  # bytes of a cache line
UNROLL = 4  # elements of the stream, or groups of them, that are added to a column at a time
AHEAD = 8  # elements of the stream


def supported(program: Program) -> bool:
    """Whether everything along columns is a value, or a value and its position, per column."""
    for p in program.passes:
        for step in (*p.lift, *p.combine, *p.update):
            folds = step.folds if isinstance(step, Loop) else (step,) if isinstance(step, Join) else ()
            if any(f.axes and not isinstance(f.op, Binary | Average | Position) for f in folds):
                return False
    return True


def _wins(kind: str, number: str, item: str, best: str) -> str:
    """Whether an element is beyond the best one before it, or the first NaN; where none is, the first is best."""
    if number != "f":
        return f"{item} {'>' if kind == 'argmax' else '<'} {best}"
    return f"(not ({item} {'<=' if kind == 'argmax' else '>='} {best})) & ({best} == {best})"


class CpuColumnPrinter(ColumnPrinter):
    kernel: CpuKernel

    def __init__(self, kernel: CpuKernel, scope: Scalars) -> None:
        super().__init__(kernel, scope)
        self.fetched: set[Node] = set()  # what a walk over the tile has asked for already
        self.settled: dict[Node, str] = {}  # what `settle` has computed
        self.kept: dict[Node, str] = {}  # dear values that results read again, and the buffers that keep them
        self.known: dict[Node, str] = {}  # those that a walk has computed

    def array(self, name: str, kind: str) -> None:
        super().array(name, kind)
        self.kernel.per_column.add(local(name))

    @property
    def here(self) -> str:
        """Where the value of an element in column m lies in a buffer for the whole stream: columns of groups are those
        of the elements that follow."""
        return f"at * {'COLUMNS' if self.kernel.cpu.groups > 1 else 'width'} + m"

    def place(self) -> None:
        """The index of column m along every column axis."""
        kernel = self.kernel
        kernel.out(f"column = {kernel.origin}m", *kernel.access.indices("column", kernel.program.columns))

    def reduced(self, node: Node) -> str:
        kernel, out = self.kernel, self.kernel.out
        kind, number = node.attr.kind, kernel.kinds.of(node)
        if self.columns.difference(node.attr.axes) & node.args[0].axes and not kernel.cpu.across:
            return self._left(node)
        once = self.once(node)
        name = self.scope.fresh()
        kernel.flush(self.scope)
        out(f"{name} = {kernel.folding.identity(kind, number)}")
        with self.each_column(list(node.args)) as inner:
            value = inner.converted(node.args[0], number, 3)
            kernel.flush(inner)
            with out.block(conjunction(once)):
                out(f"{name} = {joined(kind, number, kernel.real, name, value)}")
        return name

    def _left(self, node: Node) -> str:
        """A reduction over some of the column axes that varies along others, as an array along all of them: columns
        are joined where those that nothing is left along are at 0, and copied from there.

        Raises: RedalgError where it varies along the stream.
        """
        kernel, out, axes = self.kernel, self.kernel.out, self.kernel.program.columns
        kind, number = node.attr.kind, kernel.kinds.of(node)
        self.require_single(node, {*kernel.program.rows, *axes, *self.scope.looped})
        spot = "0"
        for a in axes:
            spot = f"({spot}) * {kernel.access.size(a)}" + (f" + i_{axis_name(a)}" if a in node.axes else "")
        once = [f"i_{axis_name(a)} == 0" for a in axes if a not in node.axes and a not in node.attr.axes]
        name = self.scope.fresh()
        kernel.flush(self.scope)
        self.array(name, number)
        value = f"{local(name)}[spot]"
        with each_column(out):
            out(f"{local(name)}[m] = {kernel.folding.identity(kind, number)}")
        with self.each_column(list(node.args)) as inner:
            item = inner.converted(node.args[0], number, 3)
            kernel.flush(inner)
            with out.block(conjunction(once)):
                out(f"spot = {spot}", f"{value} = {joined(kind, number, kernel.real, value, item)}")
        with each_column(out):
            self.place()
            out(f"spot = {spot}", f"{local(name)}[m] = {value}")
        return f"{local(name)}[m]"

    @contextmanager
    def _each_element(self) -> Iterator[None]:
        with self.kernel.out.block("for k in range(count):", Role.ELEMENTS):
            self.kernel.out("at = first + k")
            yield

    def _owned(self, line: str) -> None:
        self.kernel.out(line)

    # --- joins -------------------------------------------------------------------------------------------------------

    def _join_columns(self, step: Join) -> None:
        if not isinstance(step.op, Position | NumberExtremum):
            return super()._join_columns(step)
        names, kernel = [local(n) for n in step.names], self.kernel
        for name in step.names:
            self.array(name, self._kind(name))
        with self.each_column([*step.a, *step.b]) as inner:
            mine, other = (
                [inner.atom(n, self._kind(step.names[i])) for i, n in enumerate(s)] for s in (step.a, step.b)
            )
            if isinstance(step.op, NumberExtremum):
                test = f"{other[0]} {step.op.relation} {mine[0]}"
            else:
                test = better(step.kind, self._kind(step.names[0]), mine[0], other[0], mine[1], other[1])
            kernel.flush(inner)
            kernel.out(f"wins = {test}")
            for name, a, b in zip(names, mine, other, strict=True):
                kernel.out(f"{name}[m] = {b} if wins else {a}")
        return None

    # --- walks over the tile -----------------------------------------------------------------------------------------

    def _walk(self, loop: Loop, whole: bool) -> None:
        """What is told to columns comes first: folds without columns may read it."""
        self.contracted([b for f in loop.folds for b in f.bodies])
        columnar = [f for f in loop.folds if f.axes]
        if columnar:
            self._walk_columns(columnar)
        plain = tuple(f for f in loop.folds if not f.axes)
        if plain:
            StepPrinter._walk(self, Loop(plain), True)

    def _walk_columns(self, folds: list[Fold]) -> None:
        kernel = self.kernel
        kernel.flush(self.scope)
        bodies = [b for f in folds for b in f.bodies]
        told = self._told(bodies)
        self._store(told)
        self.scope.hoist([b for b in bodies if b not in self.scope.known], [*kernel.program.stream, *self.columns])
        kernel.flush(self.scope)
        self.settle(bodies)
        for f in folds:
            self._start(f)
        self._unrolled(lambda: self.told_scope(told, bodies), lambda inner: self._add(folds, inner), folds)
        self.known = {
            n: f"{name}[{self.here}]" for n, name in self.kept.items() if n in self.known or n in walk(*bodies)
        }
        for f in folds:
            if isinstance(f.op, Position):
                self._places(f)

    def settle(self, nodes: Iterable[Node]) -> None:
        """What differs from column to column alone is computed once, for all elements of the stream."""
        kernel, inner = self.kernel, self.column_scope()
        before = set(inner.known)
        nodes = [n for n in nodes if not self._contracts(n)]
        inner.hoist([n for n in nodes if n not in before], kernel.program.stream)
        found = {n: name for n, name in inner.known.items() if n not in before and n.op not in ("tensor", "state")}
        names = {n: f"settled_{name}" for n, name in found.items()}
        self.settled = {n: f"{local(name)}[m]" for n, name in names.items()}
        if not found:
            return
        for n, name in names.items():
            self.array(name, kernel.kinds.of(n))
        with each_column(kernel.out):
            self.place()
            kernel.flush(inner)
            kernel.out(*(f"{local(names[n])}[m] = {name}" for n, name in found.items()))

    def _contracts(self, node: Node) -> bool:
        """Whether something is reduced over columns, which is computed apart."""
        return any(n.op == "reduce" and not self.columns.isdisjoint(n.attr.axes) for n in walk(node))

    def _unrolled(self, told: Callable[[], Scalars], add: Callable[[Scalars], None], folds: list[Fold]) -> None:
        """Several elements at a time, so that a column is loaded and stored once for all of them; then the rest."""
        kernel, bodies = self.kernel, [b for f in folds for b in f.bodies]
        out, groups = kernel.out, kernel.cpu.groups
        with out.apart() as before:
            out("at = first + k")
            inner = told()
        with out.apart() as inside:
            add(inner)
        assigned = {name for s in before if isinstance(s, Assign) for name in assigned_names(s)}

        def at(block: Sequence[Statement], u: int) -> Block:
            return renamed(tuple(block), {name: f"{name}_u{u}" for name in ("k", *assigned)})

        step = UNROLL * groups
        out(f"unrolled = count // {step} * {step}")
        self._repeat(folds, inside)
        with out.block(f"for k in range(0, unrolled, {step}):", Role.GROUPS):
            for u in range(UNROLL):
                out(f"k_u{u} = k + {u * groups}", *at(before, u))
            self.fetch(bodies, step)
            with self._each_lane():
                self.place()
                for u in range(UNROLL):
                    out(*at(inside, u))
        if groups > 1:
            self._join_groups(folds)
        with out.block("for k in range(unrolled, count):", Role.ELEMENTS):
            out(*before)
            with each_column(out):
                self.place()
                out(*inside)

    def _each_lane(self) -> AbstractContextManager[object]:
        """A loop over columns that are walked together: of several elements where few rows lie side by side."""
        out = self.kernel.out
        return out.block("for m in range(lanes):") if self.kernel.cpu.groups > 1 else each_column(out)

    def _repeat(self, folds: Sequence[Fold], inside: Sequence[Statement]) -> None:
        """What differs from column to column alone, for every element of a group."""
        own = {local(name) for f in folds for name in f.names}
        read = [e.id for s in inside for root in expressions(s) for e in ast.walk(root) if isinstance(e, ast.Name)]
        shared = [name for name in dict.fromkeys(read) if name in self.kernel.per_column and name not in own]
        out = self.kernel.out
        if not shared or self.kernel.cpu.groups == 1:
            return
        out("known = COLUMNS")
        with out.block("while known < lanes:"):
            for name in shared:
                with out.block("for m in range(known):"):
                    out(f"{name}[known + m] = {name}[m]")
            out("known = known + known")

    def _join_groups(self, folds: Sequence[Fold]) -> None:
        """The elements of a group joined: each half of them with the other."""
        kernel, out = self.kernel, self.kernel.out
        out("half = lanes // 2")
        with out.block("while half >= COLUMNS:"):
            for f in folds:
                name, number = local(f.names[0]), self._kind(f.names[0])
                with out.block("for m in range(half):"):
                    out(f"{name}[m] = {joined(f.kind, number, kernel.real, f'{name}[m]', f'{name}[half + m]')}")
            out("half = half // 2")

    def fetch(self, bodies: Iterable[Node], each: int = 1) -> None:
        """Ask for elements a little ahead, which no processor foresees where columns are a part of a row in memory."""
        kernel, elements, columns = self.kernel, self.kernel.elements, len(self.columns)
        if kernel.cpu.turned or kernel.cpu.near:  # turning has brought them to the first-level cache
            return
        if kernel.cpu.groups > 1:  # all of memory in turn
            return
        for leaf in tensor_leaves(bodies):
            name = leaf.attr.name
            varies = len(leaf.axes & self.columns) == columns and leaf.axes & elements.stream
            if not varies or leaf in self.fetched or name not in kernel.layout.across:
                continue
            if not kernel.program.inner.keys().isdisjoint(leaf.axes):  # a loop inside of an element reads it
                continue
            if not kernel.access.walks_flat(leaf.attr.axes):
                continue
            self.fetched.add(leaf)
            line = LINE // STORAGE[kernel.access.operands[name].dtype]
            kernel.out(f"ahead = COLUMNS if first + k + {AHEAD + each} <= length else 0")
            with kernel.out.block(f"for m in range(0, ahead, {line}):", Role.AHEAD):
                self.place()
                for u in range(each):
                    index = elements.index_of(name, leaf.attr.axes, f"(first + k + {AHEAD + u})")
                    kernel.out(f"prefetch({kernel.access.array_names[name]}, {index})")

    def _start(self, f: Fold) -> None:
        kernel, out, names = self.kernel, self.kernel.out, [local(n) for n in f.names]
        self.array(f.names[0], self._kind(f.names[0]))
        if isinstance(f.op, Position):
            out(f"{names[1]}_spot = cuda.local.array(COLUMNS, {DTYPES[self._spot()]})")
            kernel.per_column.add(f"{names[1]}_spot")
        with self._each_lane():
            out(f"{names[0]}[m] = {kernel.folding.identities(f)[0]}")
            if isinstance(f.op, Position):
                out(f"{names[1]}_spot[m] = {self._spot()}(0)")

    def _spot(self) -> str:
        """The type of positions inside a tile: as wide as what is compared."""
        return "i32" if self.kernel.real == "f32" else "i64"

    def _places(self, f: Fold) -> None:
        name, out = local(f.names[1]), self.kernel.out
        self.array(f.names[1], "i")
        with each_column(out):
            out(f"{name}[m] = first + i64({name}_spot[m])")

    def told_scope(self, told: list[Node], nodes: list[Node]) -> Scalars:
        """The values of element `at` that do not vary along columns."""
        kernel, elements = self.kernel, self.kernel.elements
        inner = self.column_scope()
        inner.leaf = elements.element_leaf
        for i, node in enumerate(told):
            kernel.out(f"element{i + 1} = {elements.tiles_of[node]}[k]")
            inner.known[node] = f"element{i + 1}"
        inner.known |= self.settled | self.known
        position, axes = elements.needs(nodes)
        elements.places_along(axes if position else ())
        return inner

    def _add(self, folds: list[Fold], inner: Scalars) -> None:
        special = [f for f in folds if isinstance(f.op, Position | NumberExtremum)]
        self._keep([b for f in folds for b in f.bodies], inner)
        super()._add([f for f in folds if f not in special], inner)
        kernel = self.kernel
        inner.announce([b for f in special for b in f.bodies])
        for f in special:
            names, number = [local(n) for n in f.names], self._kind(f.names[0])
            item, best = inner.atom(f.bodies[0], number), f"{names[0]}[m]"
            kernel.flush(inner)
            if isinstance(f.op, NumberExtremum):
                kernel.out(f"{best} = {item} if {item} {f.op.relation} {best} else {best}")
                continue
            spot = f"{names[1]}_spot[m]"
            kernel.out(f"wins = {_wins(f.kind, number, item, best)}")
            kernel.out(f"{spot} = {self._spot()}(k) if wins else {spot}", f"{best} = {item} if wins else {best}")

    def _keep(self, bodies: list[Node], inner: Scalars) -> None:
        """The dear values of an element that results read again."""
        kernel = self.kernel
        for n in [n for n in walk(*bodies) if n in self.kept and n not in inner.known]:
            value = inner.define(n)
            kernel.flush(inner)
            kernel.out(f"{self.kept[n]}[{self.here}] = {value}")


class CpuColumnRows(ColumnRows):
    """The walk of one pass, and results, where the program has columns."""

    kernel: CpuKernel
    printer: CpuColumnPrinter

    def __init__(self, kernel: CpuKernel) -> None:
        super().__init__(kernel)
        self.printer = CpuColumnPrinter(kernel, kernel.row)

    def walk(self, p: Pass) -> None:
        if self.kernel.cpu.resident:
            self._whole(p)
            return
        kernel, out, elements = self.kernel, self.out, self.kernel.elements
        self._declare(p.parts)
        steps = p.update if p.update and p.absorbs else ()
        out("n = i64(0)")
        with elements.tiles(p.ordered):
            out("n_b = count", "n_new = n + n_b")
            self.printer.fetched = set()
            self.printer.scope = kernel.row.child()
            elements.load_tile([s for s in (steps or p.lift) if isinstance(s, Loop)])
            if steps:
                self.printer.steps(s for s in steps if getattr(s, "name", "") != "n_new")
                self._commit(p.parts, "_new")
                out("n = n_new")
            else:
                self.printer.steps(p.lift)
                self.join(p)
        out("n = length")

    def _whole(self, p: Pass) -> None:
        """All elements of the stream as one tile, whose state is that of the rows."""
        kernel, out, elements = self.kernel, self.out, self.kernel.elements
        out("first = i64(0)", "count = length", "n_b = length")
        elements.afresh()
        self.printer.fetched = set()
        self.printer.scope = kernel.row.child()
        reused = self._reused(p)
        for n, (name, _) in reused.items():
            self.out(f"{name} = cuda.local.array(length * width, {DTYPE.get(kernel.kinds.of(n), elements.real)})")
        self.printer.kept = {n: name for n, (name, _) in reused.items()}
        elements.load_tile([s for s in p.lift if isinstance(s, Loop)])
        self.printer.steps(p.lift)
        kernel.reused = {n: f"{name}[{self.printer.here}]" for name, n in reused.values()}
        out(*(f"{local(part.name)} = {local(part.name + '_b')}" for part in p.parts), "n = length")

    def _reused(self, p: Pass) -> dict[Node, tuple[str, Node]]:
        """The dear values that both the last pass and results compute: a buffer, and what they are to results."""
        program, columns = self.kernel.program, self.printer.columns
        if p is not program.passes[-1]:
            return {}
        names = {part.name: f"{part.name}_b" for part in p.parts}
        own = {restated(n, names): n for n in walk(*(r.node for r in program.results if r.keeps)) if is_dear(n)}
        folds = [f for s in p.lift if isinstance(s, Loop) for f in s.folds if f.axes]
        found = [n for n in walk(*(b for f in folds for b in f.bodies)) if n in own]
        moving = [n for n in found if n.axes & {*program.stream} and n.axes & columns]
        moving = [n for n in moving if not self.printer._contracts(n)]
        return {n: (f"value{at + 1}_block", own[n]) for at, n in enumerate(moving)}

    def join(self, p: Pass) -> None:
        """The state joined with the one at its side."""
        out = self.out
        with out.block("if n == 0:"):
            self._commit(p.parts, "_b")
        with out.block("else:"):
            out("n_new = n + n_b")
            self.printer.steps(s for s in p.combine if getattr(s, "name", "") != "n_new")
            self._commit(p.parts, "_new")
        out("n = n + n_b")

    def total(self, result: Result, node: Node, store: object) -> None:
        self.printer.scope = self.kernel.row
        with self.printer.each_column([node]) as inner:
            self.kernel.flush(inner)
            with self.out.block(conjunction(self._lacking(result))):
                store(inner)  # type: ignore[operator]

    def _lacking(self, result: Result) -> list[str]:
        return [f"i_{axis_name(a)} == 0" for a in self.kernel.program.columns if a not in result.axes]

    def kept(self, results: list[Result], nodes: list[Node], store: object) -> None:
        """Results along the stream and columns: the elements in turn, all columns of each."""
        kernel, out, elements, printer = self.kernel, self.out, self.kernel.elements, self.printer
        printer.scope, printer.known = kernel.row, dict(kernel.reused)
        printer.settle(nodes)
        with elements.tiles():
            printer.scope = kernel.row.child()
            printer.contracted(nodes)
            told = printer._told(nodes)
            elements.load_tile((), told)
            printer._store(told)
            printer.fetched = set()
            with printer._each_element():
                printer.fetch(nodes)
                inner = printer.told_scope(told, nodes)
                with each_column(out):
                    printer.place()
                    inner.announce(nodes)
                    for result, node in zip(results, nodes, strict=True):
                        store(inner, result, node, conjunction(self._lacking(result)))  # type: ignore[operator]
