"""Blocks that share out a state along two axes: tables of shared memory, and tiles of entries in registers.

Every block of a row has a split of the stream. It brings a chunk of elements at a time to tables of shared memory, one
for each value that varies along one of the axes; a thread computes the same column of them for every element, so that
anchors and sums along one axis are in its registers. Then each thread adds functions of two columns to a square tile of
entries (register blocking, as in a matrix product), for a share of the chunk's elements, while the loads of the next
chunk are under way. At the end sums go to scratch, and the blocks of the row, which meet at a grid barrier, share out
the entries: a few threads to each of them add up what all splits have, in their order.

Anchors are those of the whole row, the same in all blocks, so that what splits have found is joined as what threads
have found is: by the operations of the reductions, not by merging states. Every block finds them from the same few
elements of the row, where these are not too few, else all blocks from what each has seen of its split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from math import gcd

from redalg.graph.node import Node, outermost, state, substitute
from redalg.kernels.code.scalars import Scalars
from redalg.kernels.code.text import conjunction, joined
from redalg.kernels.ir.program import BARRIER, First, Fold, Let, Loop, Module, Pass, Program, Result
from redalg.kernels.ir.schedule import Layout, Schedule
from redalg.kernels.rows import comments
from redalg.kernels.rows.element import DTYPE
from redalg.kernels.rows.kernel import Kernel
from redalg.kernels.rows.steps import StepPrinter
from redalg.kernels.schedule.outer import Outer, Side
from redalg.kernels.schedule.outer_cost import TOGETHER, Shape
from redalg.source.names import axis_name, local
from redalg.source.statements import Block

ALIGNED = 16  # bytes that tables start at a multiple of
WORDS = ("left", "right")


def emit(program: Program, schedule: Schedule, layout: Layout, found: Outer) -> Module:
    """The kernel's source, its entry and its arguments."""
    return OuterKernel(program, schedule, layout, found).module()


class OuterKernel(Kernel):
    def __init__(self, program: Program, schedule: Schedule, layout: Layout, found: Outer) -> None:
        super().__init__(program, schedule, layout)
        self.found, self.shape = found, Shape(found, schedule)
        self.state: Pass = program.passes[0]
        self.placed: dict[Node, Node] = {}  # what entries read of an element: names that stand for values of sides
        for word, side in zip(WORDS, found.sides, strict=True):
            for i, n in enumerate(side.values):
                name = f"{word} {i}"
                self.placed[n] = state(
                    name, (side.axis, *program.stream), n.attr.domain if n.op == "tensor" else frozenset()
                )
                self.kinds.names[name] = self.kinds.of(n)

    # --- the frame ---------------------------------------------------------------------------------------------------

    @property
    def own_rows(self) -> tuple[str, ...]:
        return tuple(a for a in self.program.rows if a not in self.found.axes)

    def module(self) -> Module:
        s, out, shape = self.schedule, self.out, self.shape
        out("t = cuda.threadIdx.x", "split = cuda.blockIdx.x % SPLIT")
        for side in self.found.made:
            self.constants |= {
                f"{self.word(side).upper()}_PAD": shape.pitch(side),
                f"{self.word(side).upper()}_THREADS": shape.across(side),
            }
        self.constants |= {"TILES": shape.tiles, "SHARES": shape.shares, "CHUNK": shape.chunk, "LANES": shape.lanes}
        self.constants["LINES"] = shape.lines
        self._places()
        with self._groups():
            self._of_group()
            out(f"length = {self.row_length()}", "chunk = (length + SPLIT - 1) // SPLIT")
            if shape.pace > 1 and s.split > 1:
                out(f"chunk = (chunk + {shape.pace - 1}) // {shape.pace} * {shape.pace}  # runs begin at vectors")
            out("low = min(split * chunk, length)", "stop = min(low + chunk, length)")
            self._one_row()
            out("cuda.syncthreads()")
        assert s.rows == 1
        return self._finished()

    def _places(self) -> None:
        """Which columns a thread brings, and which tile of entries it adds to."""
        out, T = self.out, self.schedule.entries
        for side in self.found.made:
            word, vector = self.word(side), self.schedule.vector
            across = f"{word.upper()}_THREADS"
            mine = f"t % {across}" + (f" * {vector}" if vector > 1 else "")
            out(f"{word}_line = t // {across}", f"{word}_column = min({mine}, {side.width - vector})")
        self.comment(
            f"Tile t % {self.shape.tiles} of {T} x {T} entries, for one of {self.shape.shares} shares of a chunk."
        )
        out("rest = t % TILES", "share = t // TILES")
        count = self.shape.count(self.found.sides[1])
        if self.shape.warps:
            self.comment(
                "A warp has 4 by 8 tiles: its loads from tables are of 64 and 128 bytes, which banks give at once."
            )
            out(f"tile_left = rest // 32 // {self.shape.warps} * 4 + rest % 32 // 8")
            out(f"tile_right = rest // 32 % {self.shape.warps} * 8 + rest % 8")
            return
        if not self.found.symmetric:
            out(f"tile_left = rest // {count}", f"tile_right = rest % {count}")
            return
        out("tile_left = 0")
        with out.block(f"while rest >= {count} - tile_left:  # tiles on and above the diagonal, line by line"):
            out(f"rest -= {count} - tile_left", "tile_left += 1")
        out("tile_right = tile_left + rest")

    @property
    def total(self) -> str:
        """Groups of blocks: one for each row and area."""
        areas = self.found.areas
        return f"({super().total}) * {areas}" if areas > 1 else super().total

    def _of_group(self) -> None:
        """The row, and which area of its state: the first of its columns, and those that a thread brings."""
        out, areas, (a, b) = self.out, self.found.areas, self.found.sides
        if areas == 1:
            out("row = group")
            self.row_axes()
            return
        out(f"row = group // {areas}", f"area = group - row * {areas}")
        self.row_axes()
        if self.found.turned is None:
            out(f"area_left = area // {b.areas}", f"area_right = area % {b.areas}")
        else:
            out("area_left = 0")
            with out.block(f"while area >= {a.areas} - area_left:  # areas on and above the diagonal, line by line"):
                out(f"area -= {a.areas} - area_left", "area_left += 1")
            out("area_right = area_left + area")
        out(f"left_first = area_left * {a.width}", f"right_first = area_right * {b.width}")
        for side, word in zip(self.found.sides, WORDS, strict=True):
            out(f"{word}_at = min({word}_first + {word}_column, {side.whole - self.schedule.vector})")
        out("row = group")

    def _within(self, side: Side, place: str) -> str:
        """A column of the axis, by its place in the area."""
        return f"{self.word(side)}_first + {place}" if self.found.areas > 1 else place

    def word(self, side: Side) -> str:
        return WORDS[self.found.sides.index(side)]

    def header(self, body: Block) -> Iterator[str]:
        s, T = self.schedule, self.schedule.entries
        a, b = map(axis_name, self.found.axes)
        merged = (
            f"{s.split} blocks together take one row after another{self._areas_told()}; each has a "
            f"split of {axis_name(self.program.stream[0])}, leaves its state in scratch, and all of them merge."
        )
        alone = f"a block takes one row after another{self._areas_told()}; threads write the results of their tiles."
        yield f"Grid: persistent; {alone if self.shape.alone else merged}"
        yield (
            f"Block: {s.threads} threads; {self.shape.tiles} tiles of {T} by {T} entries along {a} and {b}, each for "
            f"{self.shape.shares} shares of the elements."
        )
        yield (
            f"Loop nest: for chunks of {self.shape.chunk} elements, double buffered in shared memory: for the elements "
            f"of a share: add to a tile of entries in registers."
        )
        yield from comments.memory(body, 0)

    def _areas_told(self) -> str:
        a, b = self.found.sides
        return f", and one of {self.found.areas} areas of {a.width} by {b.width} entries" * (self.found.areas > 1)

    def walk(self) -> str:
        return f"; {self.schedule.threads} threads share out the entries of a state"

    # --- one row -----------------------------------------------------------------------------------------------------

    def _one_row(self) -> None:
        out, made = self.out, self.found.made
        for side in made:
            self._declare_tables(side)
            self._declare_raw(side, "next")
        for side in made:
            self._fetch(side, "low", "stop")
        for side in made:
            if side.guesses:
                self._guess(side)
        self._start()
        out("buffer = 0", "base = low")
        self.comment("Double buffering: the loads of the next chunk are under way while this one is added up.")
        with out.block("while base < stop:"):
            for side in made:
                self._keep(side)
            out("cuda.syncthreads()", "count = min(stop - base, CHUNK)", "base += CHUNK")
            for side in made:
                self._fetch(side, "base", "stop")
            self._add()
            out("buffer = 1 - buffer")
        if self.shape.alone:
            for side in (side for side in made if side.folds):
                self._over_lines(side, side.folds)
                self._publish(side, [f.names[0] for f in side.folds])
            self._write_tiles()
            return
        self._leave()
        self._merge()

    @contextmanager
    def _bringing(self, side: Side) -> Iterator[None]:
        """What the threads do that have a column of a side."""
        active = self.shape.lines * self.shape.across(side)
        whole = active == self.schedule.threads or self.shape.quads(side)
        with self.out.block(None if whole else f"if t < {active}:"):
            yield

    def _column(self, side: Side, number: int = 0) -> None:
        """The index of one of the columns that a thread brings."""
        if self.shape.quads(side):
            first = f"{self.word(side)}_first + " if self.found.areas > 1 else ""
            column = f"min({first}min({self._woven(side)}, {side.width - 1}), {side.whole - 1})"
            self.out(f"i_{axis_name(side.axis)} = {column}")
            return
        column = f"{self.word(side)}_{'at' if self.found.areas > 1 else 'column'}"
        self.out(f"i_{axis_name(side.axis)} = {column}" + (f" + {number}" if number else ""))

    def _woven(self, side: Side) -> str:
        """The column of element k of a thread, where neighbouring threads bring the runs of one."""
        quads = self.shape.quads(side)
        return f"t // {quads} + k // {side.run} * {self.schedule.threads // quads}"

    def _own(self, name: str, number: int) -> str:
        """What a name along an axis goes by, for one of the columns that a thread brings."""
        return local(name) + (f"_{number}" if self.schedule.vector > 1 else "")

    @property
    def columns(self) -> range:
        return range(self.schedule.vector)

    def _raw(self, side: Side, when: str) -> dict[Node, str]:
        """The arrays of registers that hold elements on their way, by what is read."""
        return {n: f"{self.word(side)}_{i}_{when}" for i, n in enumerate(self._read(side))}

    def _read(self, side: Side) -> list[Node]:
        return [n for n in side.leaves if n.axes & self.elements.stream]

    def _declare_raw(self, side: Side, when: str) -> None:
        for n, name in self._raw(side, when).items():
            size = "TILE" if self._common(side, n) else f"{self.schedule.vector * self.schedule.tile}"
            self.out(f"{name} = cuda.local.array({size}, {self._dtype(self.kinds.of(n))})")

    def _common(self, side: Side, node: Node) -> bool:
        """Whether an element is one for all columns of a thread."""
        return self.schedule.vector == 1 or side.axis not in node.axes

    def _line(self, side: Side) -> str:
        """Which element of a chunk is the k-th of a thread: one of a run along the stream, or of every line."""
        word, quads = self.word(side), self.shape.quads(side)
        if quads:
            return f"t % {quads} * {side.run} + k % {side.run}"
        return f"{word}_line * TILE + k" if side.run else f"{word}_line + k * LINES"

    def _fetch(self, side: Side, first: str, end: str, when: str = "next", pace: str = "") -> None:
        """Start the loads of a chunk, or of elements `pace` apart."""
        out, vector = self.out, self.schedule.vector
        with self._bringing(side):
            self._column(side)
            if side.run > 1 and not pace:
                self._fetch_runs(side, first, end, when)
                return
            with out.block("for k in range(TILE):"):
                line = self._line(side)
                out(f"at = {first} + ({line}) * {pace}" if pace else f"at = {first} + {line}")
                with out.block(f"if at < {end}:"):
                    for node, name in self._raw(side, when).items():
                        if self._common(side, node):
                            out(f"{name}[k] = {self.access.leaf(node, self._index)}")
                            continue
                        places = ", ".join(f"{name}[k * {vector} + {q}]" for q in self.columns)
                        operand = self.access.operands[node.attr.name]
                        terms = [
                            self._index(a) + ("" if a == side.axis else f" * {self.access.stride(operand.name, d)}")
                            for d, a in enumerate(node.attr.axes)
                        ]
                        out(f"{places} = {self.access.load(operand, ' + '.join(terms), vector)}")

    def _fetch_runs(self, side: Side, first: str, end: str, when: str) -> None:
        """The same, of runs along the stream: neighbours in memory come as a vector, the last ones one by one."""
        out, run, quads = self.out, side.run, self.shape.quads(side)
        out(f"run = {first} + " + (f"t % {quads} * {run}" if quads else f"{self.word(side)}_line * TILE"))
        for k in range(0, self.shape.brought(side) if quads else self.schedule.tile, run):
            if quads:
                out(f"k = {k}")
                self._column(side)
            out(f"at = run + {0 if quads else k}")
            with out.block(f"if at + {run - 1} < {end}:"):
                for node, name in self._raw(side, when).items():
                    if side.axis not in node.axes:
                        self._fetch_singly(side, node, name, k)
                        continue
                    operand = self.access.operands[node.attr.name]
                    terms = [
                        f"{self._index(a)} * {self.access.stride(operand.name, d)}"
                        for d, a in enumerate(node.attr.axes)
                        if a not in self.program.stream
                    ]
                    places = ", ".join(f"{name}[{k + q}]" for q in range(run))
                    out(f"{places} = {self.access.load(operand, ' + '.join([*terms, 'at']), run)}")
            if self.found.length % run == 0:
                continue
            with out.block("else:"):
                for node, name in self._raw(side, when).items():
                    self._fetch_singly(side, node, name, k, end)

    def _fetch_singly(self, side: Side, node: Node, name: str, k: int, end: str = "") -> None:
        """The elements of a run from k on, one by one; `end`: as far as there are."""
        out = self.out
        for q in range(side.run):
            out(f"at = run + {q if self.shape.quads(side) else k + q}")
            with out.block(f"if at < {end}:" if end else None):
                out(f"{name}[{k + q}] = {self.access.leaf(node, self._index)}")

    def _index(self, axis: str) -> str:
        return "at" if axis in self.program.stream else self.access.index(axis)

    def _scope(self, side: Side, nodes: Iterable[Node], number: int, when: str) -> Scalars:
        """The values of an element k on its way, in one of a thread's columns."""
        raw = self._raw(side, when)
        scope = self.row.child([side.axis, *self.program.stream])
        vector = self.schedule.vector

        def leaf(node: Node) -> str:
            if node in raw:
                return f"{raw[node]}[k]" if self._common(side, node) else f"{raw[node]}[k * {vector} + {number}]"
            if node.op == "tensor":
                return self.access.leaf(node, self._index)
            return "at" if node.op == "index" and node.attr in self.program.stream else self._name(side, node, number)

        scope.leaf = leaf
        scope.announce(nodes)
        return scope

    def _name(self, side: Side, node: Node, number: int) -> str:
        """A leaf that does not vary along the stream, in one of a thread's columns."""
        if node.op == "state" and side.axis in node.axes:
            return self._own(node.attr.name, number)
        return self.elements.row_leaf(node)

    # --- anchors -----------------------------------------------------------------------------------------------------

    def _guess(self, side: Side) -> None:
        """Anchors of the row: its first element, moved by the mean of a few that lie evenly spaced in it."""
        out = self.out
        self.comment("Anchors of the row, the same in all blocks: its first element, moved by the mean of some.")
        self._declare_raw(side, "some")
        if self.shape.seen:
            out("n_some = min(length, CHUNK)", "n_here = n_some", "pace = max(1, length // CHUNK)")
        else:
            out("n_here = min(stop - low, CHUNK)", "pace = max(1, (stop - low) // CHUNK)")
            out("n_some = length // chunk * min(chunk, CHUNK) + min(length % chunk, CHUNK)")
        out("n_b = length")
        for step in side.guesses:
            if isinstance(step, Loop):
                self._sample(side, step)
                continue
            for q in self.columns:
                self._column(side, q)
                if isinstance(step, First):
                    self._first(side, step, q)
                elif isinstance(step, Let):
                    scope = self.row.child([side.axis])
                    scope.leaf = lambda n, q=q: self._name(side, n, q)  # type: ignore[misc]
                    text = scope.converted(step.node, self.kinds.names[step.name])
                    self.flush(scope)
                    out(f"{self._own(step.name, q)} = {text}")
        self._publish(side, self._kept(side))

    def _first(self, side: Side, step: First, number: int) -> None:
        out, name = self.out, self._own(step.name, number)
        out("at = 0")
        scope = self.row.child([side.axis, *self.program.stream])
        scope.leaf = lambda n: self.access.leaf(n, self._index) if n.op == "tensor" else self._name(side, n, number)
        text = scope.converted(step.node, "f")
        self.flush(scope)
        out(f"{name} = {text}", f"{name} = {name} if is_finite_{self.real}({name}) else {self.real}(0)")

    def _sample(self, side: Side, loop: Loop) -> None:
        out = self.out
        first, end = ("0", "length") if self.shape.seen else ("low", "stop")
        for f in loop.folds:
            out(*(f"{self._own(f.names[0], q)} = {self.folding.identities(f)[0]}" for q in self.columns))
        if loop.part:
            self._fetch(side, first, end, "some", "pace")
            self._walked(side, loop)
        else:
            out("base = low")
            with out.block("while base < stop:"):
                self._fetch(side, "base", "stop", "some")
                self._walked(side, loop)
                out("base += CHUNK")
        self._over_lines(side, loop.folds)
        if self.schedule.split > 1 and not (loop.part and self.shape.seen):
            self._store_sums(side, loop.folds)
            self._meet()
            self._over_splits(side, loop.folds)
        for f in (f for f in loop.folds if self.schedule.vector > 1 and side.axis not in f.bodies[0].axes):
            out(f"{local(f.names[0])} = {self._own(f.names[0], 0)}  # the same in all columns")

    def _walked(self, side: Side, loop: Loop) -> None:
        """What has come, added to reductions."""
        first = "0" if self.shape.seen else "low"
        with self._bringing(side), self.out.block("for k in range(TILE):"):
            line = self._line(side)
            self.out(f"at = {first} + ({line}) * pace" if loop.part else f"at = base + {line}")
            with self.out.block(f"if {line} < n_here:" if loop.part else "if at < stop:"):
                self._folded(side, loop.folds, (), "some")

    def _publish(self, side: Side, names: Iterable[str]) -> None:
        """Values of all columns to tables of shared memory, for those who merge entries."""
        out, vector = self.out, self.schedule.vector
        for name in names:
            out(f"{local(name)}_all = cuda.shared.array({side.width}, {self._dtype(self.kinds.names[name])})")
        with out.block(f"if t < {side.width // vector}:"):
            for name in names:
                for q in self.columns:
                    place = "t" + f" * {vector}" * (vector > 1) + f" + {q}" * (q > 0)
                    out(f"{local(name)}_all[{place}] = {self._own(name, q)}")

    def _over_splits(self, side: Side, folds: Iterable[Fold]) -> None:
        """What all splits have found in a thread's columns, in one order: neighbours load neighbouring columns."""
        out, width = self.out, side.width
        lines = self.schedule.threads // width
        every = [(f, f"total_{i}", self._place_of(f, f"{local(f.names[0])}_found", i)) for i, f in enumerate(folds)]
        for f, name, _ in every:
            out(f"{name}_some = cuda.local.array({TOGETHER}, {self._dtype(self._number(f))})")
            out(f"{name} = {self.folding.identities(f)[0]}")
        with out.block(f"for first_split in range(t // {width}, SPLIT, {TOGETHER * lines}):"):
            with out.block(f"for k in range({TOGETHER}):"):
                out(f"other = min(first_split + k * {lines}, SPLIT - 1)")
                for f, name, _ in every:
                    table = self._table(f.names[0], self._number(f), width)
                    load = f"load_relaxed_{self._stored(self._number(f))}"
                    out(f"{name}_some[k] = {load}({table}, (row * SPLIT + other) * {width} + t % {width})")
            with out.block(f"for k in range({TOGETHER}):"), out.block(f"if first_split + k * {lines} < SPLIT:"):
                for f, name, _ in every:
                    out(f"{name} = {joined(f.kind, self._number(f), self.real, name, f'{name}_some[k]')}")
        out("cuda.syncthreads()", *(f"{place}t] = {name}" for _, name, place in every), "cuda.syncthreads()")
        with out.block(f"if t < {width}:"):
            for f, name, place in every:
                with out.block(f"for k in range(1, {lines}):"):
                    out(f"{name} = {joined(f.kind, self._number(f), self.real, name, f'{place}t + k * {width}]')}")
                out(f"{place}t] = {name}")
        out("cuda.syncthreads()")
        column = f"{self.word(side)}_column"
        for f, _, place in every:
            out(*(f"{self._own(f.names[0], q)} = {place}{column}" + f" + {q}" * (q > 0) + "]" for q in self.columns))
        out("cuda.syncthreads()")

    def _leave_alone(self, table: str, number: str, names: list[str]) -> None:
        """The entries of a tile that one thread has."""
        width = 4 if number == "f" and len(names) % 4 == 0 else 1
        kind = self._stored(number) + f"x{width}" * (width > 1)
        with self.out.block(f"if t < {self.shape.tiles}:"):
            for i in range(0, len(names), width):
                value = f"({', '.join(names[i : i + width])})" if width > 1 else names[i]
                at = f"(row * SPLIT + split) * {self.shape.cells} + t * {len(names)} + {i}"
                self.out(f"store_{kind}({table}, {at}, {value})")

    def _meet(self) -> None:
        """All blocks of the row meet; what they wrote is seen."""
        barrier = self.group.scratch(BARRIER, "uint32", self.found.areas)
        self.out(f"splits_sync({barrier}, row, SPLIT)" if self.schedule.split > 1 else "cuda.syncthreads()")

    def _folded(self, side: Side, folds: Iterable[Fold], values: Iterable[Node], when: str) -> None:
        """An element k in every column: what is kept of it to its tables, and what is reduced."""
        word, vector = self.word(side), self.schedule.vector
        nodes = [*values, *(b for f in folds for b in f.bodies)]
        kept: list[list[str]] = []
        for q in self.columns:
            self._column(side, q)
            scope = self._scope(side, nodes, q, when)
            kept.append([scope.atom(n) for n in values])
            self.flush(scope)
            for f in folds:
                self._added(self._own(f.names[0], q), f, f.bodies[0], scope)
        step = ("" if side.run else "LINES * ") + f"{word.upper()}_PAD"
        place = f"{word}_place + k * {step}"
        if quads := self.shape.quads(side):
            more = self.schedule.threads // quads
            place = f"{word}_place + k % {side.run} * {step} + k // {side.run} * {more}"
        for i, (n, texts) in enumerate(zip(values, zip(*kept, strict=True), strict=True)):
            if vector > 1 and self.kinds.of(n) == "f":
                self.out(f"store_shared_float32x{vector}({word}_{i}, {place}, ({', '.join(texts)}))")
            elif self.kinds.of(n) == "f":
                self.out(f"store_shared_float32({word}_{i}, {place}, {texts[0]})")
            else:
                self.out(*(f"{word}_{i}[{place} + {q}] = {text}" for q, text in enumerate(texts)))

    def _over_lines(self, side: Side, folds: Iterable[Fold]) -> None:
        """What the threads of a column have found, in one order, for all of them: a thread to each column adds up."""
        out, lines, across = self.out, self.shape.lines, self.shape.across(side)
        pad, first = self.shape.pad(side), f"t % {self.word(side).upper()}_THREADS"
        every = [(f, i * self.schedule.vector) for i, f in enumerate(folds)]
        places = [self._place_of(f, f"{local(f.names[0])}_lines", i, self.schedule.vector) for f, i in every]
        out("cuda.syncthreads()")
        for place, (f, _) in zip(places, every, strict=True):
            out(*(f"{place}{q} * THREADS + t] = {self._own(f.names[0], q)}" for q in self.columns))
        out("cuda.syncthreads()")
        with out.block(f"for column in range(t, {pad}, THREADS):" if pad > self.schedule.threads else f"if t < {pad}:"):
            column = "column" if pad > self.schedule.threads else "t"
            out(f"line = {column} // {across} * THREADS + {column} % {across}")
            for place, (f, _) in zip(places, every, strict=True):
                out(f"total = {place}line]")
                with out.block(f"for k in range(1, {lines}):"):
                    other = f"{place}line + k * {across}]"
                    out(f"total = {joined(f.kind, self._number(f), self.real, 'total', other)}")
                out(f"{place}line] = total")
        out("cuda.syncthreads()")
        for place, (f, _) in zip(places, every, strict=True):
            out(*(f"{self._own(f.names[0], q)} = {place}{q} * THREADS + {first}]" for q in self.columns))
        out("cuda.syncthreads()")

    def _place_of(self, f: Fold, name: str, number: int = 0, count: int = 1) -> str:
        """A table of `count` values of every thread: in the first table of a side while that is free, behind `number`
        others, else one of its own."""
        values = self.found.made[0].values
        if self._number(f) == "f" and values and self.kinds.of(values[0]) == "f" and number + count <= self.shape.slots:
            return f"{WORDS[0]}_0[{f'{number} * THREADS + ' if number else ''}"
        self.out(f"{name} = cuda.shared.array({count * self.schedule.threads}, {self._dtype(self._number(f))})")
        return f"{name}["

    # --- chunks ------------------------------------------------------------------------------------------------------

    def _number(self, f: Fold) -> str:
        return self.folding._number(f)

    def _dtype(self, kind: str) -> str:
        return DTYPE.get(kind, self.elements.real)

    def _added(self, name: str, f: Fold, body: Node, scope: Scalars) -> None:
        item = scope.converted(body, self._number(f), 4 if f.kind in ("any", "all") else 2)
        self.flush(scope)
        self.out(f"{name} = {joined(f.kind, self._number(f), self.real, name, item)}")

    def _cells(self, f: Fold) -> list[list[str]]:
        """The names of a thread's entries."""
        T = range(self.schedule.entries)
        return [[f"{local(f.names[0])}_{u}_{v}" for v in T] for u in T]

    def _start(self) -> None:
        """Reductions of no element, and what entries read that no element changes."""
        out = self.out
        for side in self.found.made:
            for f in side.folds:
                out(*(f"{self._own(f.names[0], q)} = {self.folding.identities(f)[0]}" for q in self.columns))
        for f in self.found.cells:
            out(*(f"{n} = {self.folding.identities(f)[0]}" for line in self._cells(f) for n in line))
        self.fixed = self._constants()

    def _constants(self) -> dict[Node, list[list[str]]]:
        """Names of nodes that vary along the axes and not along the stream, for every entry of a tile."""
        known = {n for side in self.found.sides for n in side.values}
        bodies = [b for f in self.found.cells for b in f.bodies]

        def wanted(n: Node) -> bool:
            return not (n.axes & self.elements.stream or n.axes.isdisjoint(self.found.axes))

        found = outermost(wanted, *bodies, done=known)
        return {n: self._constant(n, f"fixed_{number}") for number, n in enumerate(found)}

    def _constant(self, node: Node, word: str) -> list[list[str]]:
        """The names of a node's values in a tile, which are computed here."""
        T, (a, b) = range(self.schedule.entries), (x in node.axes for x in self.found.axes)
        for u in T if a else (0,):
            for v in T if b else (0,):
                for side, w, k in zip(self.found.sides, WORDS, (u, v), strict=True):
                    column = self._within(side, self._entry(side, w, k))
                    self.out(f"i_{axis_name(side.axis)} = min({column}, {side.whole - 1})")
                scope = self.row.child(self.found.axes)
                scope.leaf = self._fixed_leaf
                text = scope.converted(node, self.kinds.of(node))
                self.flush(scope)
                self.out(f"{word}{f'_{u}' * a}{f'_{v}' * b} = {text}")
        return [[f"{word}{f'_{u}' * a}{f'_{v}' * b}" for v in T] for u in T]

    def _fixed_leaf(self, node: Node) -> str:
        return self.access.leaf(node, self._index) if node.op == "tensor" else self.elements.row_leaf(node)

    def _declare_tables(self, side: Side) -> None:
        out, word, shape = self.out, self.word(side), self.shape
        for i, n in enumerate(side.values):
            size = 2 * shape.chunk * shape.pitch(side)
            out(f"{word}_{i} = cuda.shared.array({size}, {self._dtype(self.kinds.of(n))}, {ALIGNED})")

    def _keep(self, side: Side) -> None:
        """The values of the chunk that has come, to the tables; what is reduced along one axis alone."""
        out, word, vector = self.out, self.word(side), self.schedule.vector
        with self._bringing(side):
            if quads := self.shape.quads(side):
                first, place = f"t % {quads} * {side.run}", f"t // {quads}"
            else:
                first = f"{word}_line * TILE" if side.run else f"{word}_line"
                place = f"t % {word.upper()}_THREADS" + (f" * {vector}" if vector > 1 else "")
            out(f"{word}_place = (buffer * CHUNK + {first}) * {word.upper()}_PAD + {place}")
            with out.block(f"for k in range({self.shape.brought(side) if quads else 'TILE'}):"):
                out(f"at = base + {self._line(side)}")
                # What no element came for is never read again, and may lie in a table; no sum may have it.
                with out.block("if at < stop:" if side.folds else None):
                    self._folded(side, side.folds, side.values, "next")

    def _entry(self, side: Side, word: str, k: int) -> str:
        """The column of an entry of a tile: tiles of 8 are two vectors of 4, so that neighbouring tiles read
        neighbouring vectors, from different banks."""
        T = self.schedule.entries
        if T != 8:
            return f"tile_{word} * {T} + {k}"
        return f"tile_{word} * 4 + {k % 4 + (self.shape.pad(side) // 2 if k > 3 else 0)}"

    def _add(self) -> None:
        """A tile of entries for every element of the thread's share: other warps go on while it is loaded."""
        out = self.out
        active = self.shape.tiles * self.shape.shares
        bodies = [substitute(f.bodies[0], self.placed, raw=True) for f in self.found.cells]
        names = [{self.placed[n]: self._names(i, n) for n in s.values} for i, s in enumerate(self.found.sides)]
        with out.block(None if active == self.schedule.threads else f"if t < {active}:"):
            out("place = buffer * CHUNK + share", "end = buffer * CHUNK + count")
            with out.block("while place < end:"):
                self._load()
                for at in product(range(self.schedule.entries), range(self.schedule.entries)):
                    self._add_entry(at, names, bodies)
                out("place += SHARES")

    def _add_entry(self, at: tuple[int, int], names: list[dict[Node, list[str]]], bodies: list[Node]) -> None:
        """An element added to one entry of the thread's tile."""
        u, v = at
        scope = self.row.child(self.program.stream)
        for side, k in zip(names, at, strict=True):
            scope.known |= {n: own[k] for n, own in side.items()}
        scope.known |= {n: x[u][v] for n, x in self.fixed.items()}
        scope.announce(bodies)
        for f, body in zip(self.found.cells, bodies, strict=True):
            self._added(self._cells(f)[u][v], f, body, scope)

    def _names(self, number: int, node: Node) -> list[str]:
        """The names of a value in the columns of a tile."""
        i = self.found.sides[number].values.index(node)
        return [f"{WORDS[number]}_{i}_{k}" for k in range(self.schedule.entries)]

    def _load(self) -> None:
        """The values of the element at `place` in the columns of a tile, from their tables."""
        out, T = self.out, self.schedule.entries
        width = 4 if T % 4 == 0 else 2 if T % 2 == 0 else 1
        for number, side in enumerate(self.found.sides):
            for node in side.values:
                of = self.found.mirror.get(node, node) if number else node
                own = self.found.made[min(number, len(self.found.made) - 1)]
                table, names = f"{self.word(own)}_{own.values.index(of)}", self._names(number, node)
                if own.axis not in of.axes:
                    self._load_one(table, names, f"place * {self.word(own).upper()}_PAD", self.kinds.of(node))
                    continue
                for k in range(0, T, width):
                    place = f"place * {self.word(own).upper()}_PAD + {self._entry(own, WORDS[number], k)}"
                    if self.kinds.of(node) == "f":
                        call = f"load_shared_float32{f'x{width}' if width > 1 else ''}"
                        out(f"{', '.join(names[k : k + width])} = {call}({table}, {place})")
                    else:
                        out(*(f"{n} = {table}[{place} + {i}]" for i, n in enumerate(names[k : k + width])))

    def _load_one(self, table: str, names: list[str], place: str, kind: str) -> None:
        """A value that is the same in all columns."""
        self.out(f"{names[0]} = " + (f"load_shared_float32({table}, {place})" if kind == "f" else f"{table}[{place}]"))
        self.out(*(f"{n} = {names[0]}" for n in names[1:]))

    # --- states of splits --------------------------------------------------------------------------------------------

    def _table(self, name: str, kind: str, size: int) -> str:
        return self.group.scratch(
            f"{local(name)}_parts", self._stored(kind), self.found.areas * self.schedule.split * size
        )

    def _stored(self, kind: str) -> str:
        return {"i": "int64", "b": "bool"}.get(kind, self.program.real)

    def _leave(self) -> None:
        """Sums of this split to scratch: those along one axis, then the entries, a few at a time."""
        self.comment("The state of this split to scratch, added up over lines and shares in their order.")
        for side in self.found.made:
            if side.folds:
                self._over_lines(side, side.folds)
                self._store_sums(side, side.folds)
        for f in self.found.cells:
            self._leave_cells(f)

    def _kept(self, side: Side) -> list[str]:
        return self._kept_along(self.found.sides.index(side))

    def _kept_along(self, number: int) -> list[str]:
        return [n for n in self.found.kept if self.found.side_of(n) == number]

    def _store_sums(self, side: Side, folds: Iterable[Fold]) -> None:
        """What this split has found along one axis."""
        vector = self.schedule.vector
        at = f"(row * SPLIT + split) * {side.width} + t" + (f" * {vector}" if vector > 1 else "")
        with self.out.block(f"if t < {side.width // vector}:"):
            for f in folds:
                name, kind = f.names[0], self._number(f)
                table = self._table(name, kind, side.width)
                for q in self.columns:
                    more = f" + {q}" if q else ""
                    self.out(f"store_{self._stored(kind)}({table}, {at}{more}, {self._own(name, q)})")

    def _leave_cells(self, f: Fold) -> None:
        out, shape, number = self.out, self.shape, self._number(f)
        names = [n for line in self._cells(f) for n in line]
        table = self._table(f.names[0], number, shape.cells)
        if shape.shares == 1:
            self._leave_alone(table, number, names)
            return
        values = self.found.made[0].values
        if number == "f" and values and self.kinds.of(values[0]) == "f" and shape.slots:
            name, each = f"{WORDS[0]}_0", shape.together
        else:
            name, each = f"{local(f.names[0])}_shares", min(8, len(names))
            out(f"{name} = cuda.shared.array({each * self.schedule.threads}, {self._dtype(number)})")
        for first in range(0, len(names), each):
            some = names[first : first + each]
            out("cuda.syncthreads()")
            # Neighbours read neighbouring entries of one tile: from different banks, as entries lie turned in them.
            out(*(f"{name}[{i} * THREADS + (t ^ {i % 32})] = {n}" for i, n in enumerate(some)))
            out("cuda.syncthreads()")
            with out.block(f"for entry in range(t, {len(some)} * TILES, THREADS):"):
                out(f"tile = entry // {len(some)}", f"place = entry % {len(some)}")
                at = f"{name}[place * THREADS + ({{}} ^ (place & 31))]"
                out(f"total = {at.format('tile')}")
                with out.block("for k in range(1, SHARES):"):
                    other = at.format("(tile + k * TILES)")
                    out(f"total = {joined(f.kind, number, self.real, 'total', other)}")
                at = f"(row * SPLIT + split) * {shape.cells} + tile * {len(names)} + place + {first}"
                out(f"store_{self._stored(number)}({table}, {at}, total)")

    def _merge(self) -> None:
        """Entry by entry: what all splits have found, and results."""
        out, s, shape = self.out, self.schedule, self.shape
        self._meet()
        each = s.threads // shape.lanes
        self.comment(
            f"Entries of the state are shared out among the blocks, {shape.lanes} threads to each: they add up splits."
        )
        for side in (side for side in self.found.made if side.folds):
            self._over_splits(side, side.folds)
            self._publish(side, [f.names[0] for f in side.folds])
        out("cuda.syncthreads()")
        out(f"lane = t // {each}", f"first_cell = split * {each}")
        with out.block(f"while first_cell < {shape.cells}:"):
            out(f"cell = min(first_cell + t % {each}, {shape.cells - 1})")
            self._over_cells(each)
            self._place_of_entry()
            live = [f"first_cell + t % {each} < {shape.cells}", *(["lane == 0"] if shape.lanes > 1 else [])]
            with out.block(conjunction(live)):
                if self.found.symmetric:
                    with out.block("for turn in range(1 if tile_a == tile_b else 2):  # and its mirror image"):
                        self._entry_of_results(("entry_b if turn else entry_a", "entry_a if turn else entry_b"))
                else:
                    self._entry_of_results(("entry_a", "entry_b"))
                if self.found.turned is not None:
                    with out.block("if area_left != area_right:  # and its mirror image"):
                        self._entry_of_results(("entry_b", "entry_a"), True)
            out(f"first_cell += SPLIT * {each}")

    def _over_cells(self, each: int) -> None:
        """An entry's reductions over all splits: a range of them to each lane, several loads under way at a time."""
        out, shape, cells = self.out, self.shape, self.found.cells
        for f in cells:
            name = local(f.names[0])
            out(f"{name}_some = cuda.local.array({TOGETHER}, {self._dtype(self._number(f))})")
            out(f"{name} = {self.folding.identities(f)[0]}")
        if shape.lanes > 1:
            out("end = (lane + 1) * SPLIT // LANES")
        low, end = ("lane * SPLIT // LANES", "end") if shape.lanes > 1 else ("0", "SPLIT")
        with out.block(f"for other in range({low}, {end}, {TOGETHER}):"):
            with out.block(f"for k in range({TOGETHER}):"):
                for f in cells:
                    kind = self._number(f)
                    table = self._table(f.names[0], kind, shape.cells)
                    at = f"(row * SPLIT + min(other + k, {end} - 1)) * {shape.cells} + cell"
                    out(f"{local(f.names[0])}_some[k] = load_relaxed_{self._stored(kind)}({table}, {at})")
            with out.block(f"for k in range({TOGETHER}):"), out.block(f"if other + k < {end}:"):
                for f in cells:
                    name = local(f.names[0])
                    out(f"{name} = {joined(f.kind, self._number(f), self.real, name, f'{name}_some[k]')}")
        if shape.lanes > 1:
            places = [(f, self._place_of(f, f"{local(f.names[0])}_lanes", i)) for i, f in enumerate(cells)]
            out("cuda.syncthreads()", *(f"{place}t] = {local(f.names[0])}" for f, place in places))
            out("cuda.syncthreads()", *(f"{local(f.names[0])} = {place}t % {each}]" for f, place in places))
            with out.block("for k in range(1, LANES):"):
                for f, place in places:
                    name, other = local(f.names[0]), f"{place}k * {each} + t % {each}]"
                    out(f"{name} = {joined(f.kind, self._number(f), self.real, name, other)}")

    def _place_of_entry(self) -> None:
        """Where an entry of a tile lies in the state."""
        out, T = self.out, self.schedule.entries
        count = self.shape.count(self.found.sides[1])
        out(f"tile_b = cell // {T * T}", f"place = cell % {T * T}")
        if self.found.symmetric:
            out("tile_a = 0")
            with out.block(f"while tile_b >= {count} - tile_a:"):
                out(f"tile_b -= {count} - tile_a", "tile_a += 1")
            out("tile_b += tile_a")
        else:
            out(f"tile_a = tile_b // {count}", f"tile_b = tile_b % {count}")
        for word, side, k in zip("ab", self.found.sides, (f"place // {T}", f"place % {T}"), strict=True):
            half = self.shape.pad(side) // 2
            within = f"tile_{word} * 4 + {k} % 4 + {k} // 4 * {half}" if T == 8 else f"tile_{word} * {T} + {k}"
            out(f"entry_{word} = {within}")

    def _entry_of_results(self, places: tuple[str, str], turned: bool = False) -> None:
        """The state of the row at an entry, exports and results; `turned`: where the axes have changed places."""
        self._at(places, turned)
        with self.out.block(self._inside(places)):
            around, self.row = self.row, self.row.child()
            self._ended(places, turned)
            self._write()
            self.row = around

    def _at(self, places: tuple[str, str], turned: bool = False) -> None:
        """The indices of an entry."""
        sides = self.found.sides
        for side, other, place in zip(sides, sides[::-1] if turned else sides, places, strict=True):
            self.out(f"i_{axis_name(side.axis)} = {self._within(other, place)}")

    def _inside(self, places: tuple[str, str]) -> str | None:
        """Whether there is such an entry."""
        sides, several = self.found.sides, self.found.areas > 1
        padded = [(side, place) for side, place in zip(sides, places, strict=True) if self.shape.pad(side) > side.width]
        inside = [f"{place if several else f'i_{axis_name(side.axis)}'} < {side.width}" for side, place in padded]
        inside += [f"i_{axis_name(x.axis)} < {x.whole}" for x in sides if x.areas * x.width > x.whole]
        return conjunction(inside)

    def _ended(self, places: tuple[str, str], turned: bool = False) -> None:
        """The state at an entry whose reductions are known."""
        self.elements.offsets()
        several = self.found.areas > 1
        for number, side in enumerate(self.found.sides):
            at = places[number] if several else f"i_{axis_name(side.axis)}"
            for name in [*self._kept_along(number), *(f.names[0] for f in side.folds)]:
                self.out(f"{local(name)} = {local(self._table_of(name, turned))}_all[{at}]")
        self.out("n_b = length")
        StepPrinter(self, self.row.child()).steps(self.found.ends)
        self.out(*(f"{local(part.name)} = {local(part.name)}_b" for part in self.state.parts), "n = length")

    def _write_tiles(self) -> None:
        """Results of every thread's tile, where it has all elements of the entries."""
        out, T, tiles = self.out, range(self.schedule.entries), self.shape.tiles
        self.comment("Every thread has all elements of its tile: results are written from registers.")
        (a, b), width = self.found.sides, gcd(self.found.stored, self.schedule.entries)
        if any(side.guesses or side.folds for side in self.found.made):
            out("cuda.syncthreads()")
        with out.block(None if tiles == self.schedule.threads else f"if t < {tiles}:"):
            for u, v in product(T, T[::width]):
                out(f"entry_a = {self._entry(a, WORDS[0], u)}", f"entry_b = {self._entry(b, WORDS[1], v)}")
                places = "entry_a", "entry_b"
                self._at(places)
                with out.block(self._inside(places)):
                    self._write_run(u, v, width)

    def _write_run(self, u: int, v: int, width: int) -> None:
        """Entries beside each other, the first one last: its place is that of the vector."""
        out, around, made = self.out, self.row, dict[Result, list[str]]()
        for q in reversed(range(width)):
            places = "entry_a", f"entry_b + {q}" if q else "entry_b"
            self.row = around.child()
            self._at(places)
            out(*(f"{local(f.names[0])} = {self._cells(f)[u][v + q]}" for f in self.found.cells))
            self._ended(places)
            if width == 1:
                self._write()
                continue
            self._export()
            for number, result in enumerate(self.program.results):
                value = self.results._value(self.row, result, result.node, {})
                self.flush(self.row)
                out(f"made_{number}_{q} = {value}")
                made.setdefault(result, []).insert(0, f"made_{number}_{q}")
        for result, names in made.items():
            out(self.access.store(result, self.results._place(result, None), names))
        self.row = around

    def _table_of(self, name: str, turned: bool) -> str:
        """The name whose table holds what varies along one axis; the other one's where these have changed places."""
        if not turned:
            return self.found.same.get(name, name)
        pairs = self.found.turned or {}
        return {**pairs, **{m: n for n, m in pairs.items()}}.get(name, name)

    def _write(self) -> None:
        """Exports and results of an entry; a result that lacks an axis is written where its index is 0."""
        out = self.out
        self._export()
        for result in self.program.results:
            missing = [f"i_{axis_name(a)} == 0" for a in self.program.rows if a not in result.axes]
            with out.block(conjunction(missing)):
                self.results._total(result, {})

    def _export(self) -> None:
        self.row.announce([let.node for let in self.state.exports])
        for let in self.state.exports:
            self.row.assign(local(let.name), let.node)
        self.flush(self.row)
