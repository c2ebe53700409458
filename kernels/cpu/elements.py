"""Tiles of a row in CPU kernels: loops that LLVM vectorises, over elements in place or in buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from redalg.graph.node import Node, state
from redalg.graph.operators import Extremum, Position, TopK
from redalg.kernels.code.roles import Role
from redalg.kernels.code.scalars import Scalars
from redalg.kernels.code.text import better, joined, literal
from redalg.kernels.cpu.math.vectors import OPERATIONS as VECTORS
from redalg.kernels.ir.compensated import COMPENSATED
from redalg.kernels.ir.program import Fold, Loop
from redalg.kernels.rows.access import tensor_leaves
from redalg.kernels.rows.element import Elements
from redalg.kernels.rows.fold import Folding
from redalg.source.names import local
from redalg.source.statements import function

if TYPE_CHECKING:
    from redalg.kernels.cpu.kernel import CpuKernel

QUICK = ("float16", "bfloat16")  # formats that are widened as quickly as a buffer is read
GROUP = 16  # elements of which one comparison tells whether any enters a list


class CpuElements(Elements):
    """Tiles are buffers as long as they need to be, and loops run over the elements they hold."""

    kernel: CpuKernel
    loads_first = False

    @contextmanager
    def each(self, position: bool = False, axes: Iterable[str] = (), where: str = "count") -> Iterator[None]:
        out = self.kernel.out
        with out.block(f"for k in range({where}):", Role.ELEMENTS if where == "count" else None):
            if position:
                out("at = first + k")
            self.places_along(axes if position else ())
            yield

    @contextmanager
    def tiles(
        self, ordered: bool = False, backwards: bool = False, then: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """From the first tile to the last in every walk: rows that are walked twice lie in the caches here."""
        out = self.kernel.out
        self.afresh()
        if self.kernel.stage.counts == "splits":
            out("first = split * span", "stop = min(first + span, length)")
            self.stop = "stop"
        else:
            out("first = i64(0)")
        with out.block(f"while first < {self.stop}:", Role.TILES):
            out(f"count = min(TILE, {self.stop} - first)")
            yield
            out("first += TILE", role=Role.NEXT_TILE)
            if then is not None:
                then()

    def clamps(self, leaves: object) -> bool:
        """Buffers hold no more than the row has."""
        return False

    def afresh(self) -> None:
        """No tile holds anything yet."""
        self.tiles_of, self.stored, self.shared, self.stop = {}, set(), set(), "length"

    def whole_tile(self, steps: object = (), bodies: object = ()) -> None:
        self.kernel.out("count = length")
        super().whole_tile(steps, bodies)  # type: ignore[arg-type]

    def _load_leaves(self, nodes: Sequence[Node]) -> None:
        """What lies side by side in the type it is computed in is read where it is; the rest is copied to a buffer."""
        super()._load_leaves([n for n in tensor_leaves(nodes) if not self.in_place(n)])

    def _load_single(self, leaves: list[Node]) -> None:
        """Of rows that lie in one another, whole vectors are read, and the elements of the others left out."""
        apart = [leaf for leaf in leaves if self.kernel.cpu.interleaved and self._every(leaf)]
        self.kernel.out(*map(self._every, apart))
        super()._load_single([leaf for leaf in leaves if leaf not in apart])

    def _every(self, leaf: Node) -> str:
        """The statement that brings elements in steps to their tile, if there is one for such numbers."""
        name, axes = leaf.attr.name, leaf.attr.axes
        dtype, step = self.access.operands[name].dtype, self.access.step(name, axes)
        alike = dtype == {"f": self.program.real, "i": "int64"}.get(self.kernel.kinds.of(leaf))
        widened = self.program.real == "float32" and dtype in QUICK
        if (
            step is None
            or not (alike or widened)
            or not self.access.walks_flat(axes)
            or f"every_{dtype}" not in VECTORS
        ):
            return ""
        place = self.index_of(name, axes, "first")
        return f"every_{dtype}({self.access.array_names[name]}, {place}, {step}, {self.tiles_of[leaf]}, count)"

    def in_place(self, leaf: Node) -> bool:
        """Whether a node is an element that is read where it lies."""
        if leaf.op != "tensor":
            return False
        name, real = leaf.attr.name, self.program.real
        dtype = self.access.operands[name].dtype
        return name in self.kernel.layout.unit and (dtype == real or real == "float32" and dtype in QUICK)

    def lies(self, node: Node, number: str, at: str) -> tuple[str, str, str] | None:
        """The format of a value, the array in which it lies side by side with those of the elements that follow, and
        its index for element `at` of the tile, where it does and is what is to be compared."""
        kind = self.kernel.kinds.of(node)
        if node in self.tiles_of:
            dtype = {"f": self.program.real, "i": "int64"}.get(kind)
            found = (dtype, self.tiles_of[node], at) if dtype and kind == number else None
        elif self.in_place(node) and kind == number and self.access.walks_flat(node.attr.axes):
            name, axes = node.attr.name, node.attr.axes
            place = "first" if at == "0" else f"(first + {at})"
            found = self.access.operands[name].dtype, self.access.array_names[name], self.index_of(name, axes, place)
        else:
            found = None
        return found if found is not None and f"place_{found[0]}" in VECTORS else None

    def count(self) -> str:
        return "count"

    def begun(self) -> None:
        self.kernel.out("count = n_b")


class CpuFolding(Folding):
    """A position is searched for only where the extremum lies: in tiles, or strips of a row, that improve on it."""

    kernel: CpuKernel

    def _add(self, fold: Fold, inner: Scalars) -> None:
        if not isinstance(fold.op, Position):
            return super()._add(fold, inner)
        name, number = self._running(fold), self._number(fold)
        item = inner.atom(fold.bodies[0], number)
        word = fold.op.extremum.kind
        text = f"{word}({name}, {item})" if number == "i" else f"{word}_nan_{self.kernel.real}({name}, {item})"
        inner.lines.append(f"{name} = {text}")
        return None

    def _running(self, fold: Fold) -> str:
        """The extremum of the elements that are walked: of a strip, or of the tile."""
        return local(fold.names[0]) + ("_strip" if self.kernel.schedule.resident else "")

    def _walked(self, loop: Loop, position: bool, axes: Iterable[str]) -> AbstractContextManager[None]:
        args = [f for f in loop.folds if isinstance(f.op, Position)]
        return self._strips(args, position, axes) if args and self._resident else super()._walked(loop, position, axes)

    @property
    def _resident(self) -> bool:
        return self.kernel.schedule.resident

    def _visit(self, loop: Loop, folds: Sequence[Fold], position: bool, axes: Iterable[str], scope: Scalars) -> None:
        """Extrema of what lies in memory are found by vectors (`cpu.math.vectors`); compensated sums run in
        LANES pairs side by side, which LLVM vectorises, and what is left over goes on alone."""
        if self._in_vectors(folds):
            return self._by_vectors(folds)
        lanes = {f: self._lanes_of(f) for f in folds if f.op == COMPENSATED}
        if not lanes or any(isinstance(f.op, Position) for f in loop.folds):
            return super()._visit(loop, folds, position, axes, scope)
        out, elements, bodies = self.kernel.out, self.kernel.elements, [b for f in loop.folds for b in f.bodies]
        stored, tiles, known = set(elements.stored), dict(elements.tiles_of), dict(scope.known)
        out("full = count // LANES * LANES if count >= 4 * LANES else 0")
        with out.block("if full > 0:"), self._side_by_side(lanes, scope):
            out("k = strip + d", *(["at = first + k"] if position else []))
            elements.places_along(axes if position else ())
            self._elements([lanes.get(f, f) for f in folds], bodies, scope, not loop.part)
        elements.stored, elements.tiles_of, scope.known = stored, tiles, known  # the rest computes its values itself
        with elements.each(position, axes, "full, count"):
            self._elements(folds, bodies, scope, not loop.part)
        return None

    def _in_vectors(self, folds: Sequence[Fold]) -> bool:
        """Whether folds are extrema of what lies in memory, and nothing else is walked for."""
        elements = self.kernel.elements
        return not self._fresh([b for f in folds for b in f.bodies]) and all(
            isinstance(f.op, Position | Extremum) and not f.axes and elements.lies(f.bodies[0], self._number(f), "0")
            for f in folds
        )

    def _by_vectors(self, folds: Sequence[Fold]) -> None:
        """Of the tile; with positions in a row that is one tile, strip by strip."""
        args = [f for f in folds if isinstance(f.op, Position)]
        if not (args and self._resident):
            return self._ends(folds, "0", "count")
        with self._strip_by_strip(args):
            self._ends(folds, "strip", "edge - strip")

    def _ends(self, folds: Sequence[Fold], at: str, count: str) -> None:
        """The extrema of so many elements from `at` on; those of the same values are found once."""
        known: dict[tuple[str, Node, str], str] = {}
        for fold in sorted(folds, key=lambda f: not isinstance(f.op, Position)):
            number, word = self._number(fold), "smallest" if fold.kind.endswith("min") else "largest"
            position, key = isinstance(fold.op, Position), (word, fold.bodies[0], number)
            name = self._running(fold) if position else local(fold.names[0])
            if key not in known:
                found = self.kernel.elements.lies(fold.bodies[0], number, at)
                assert found is not None
                dtype, array, index = found
                known[key] = f"{word}_{dtype}({array}, {index}, {count})"
            if not position and at != "0":
                self.kernel.out(f"{name} = {joined(fold.kind, number, self.kernel.real, name, known[key])}")
                continue
            self.kernel.out(f"{name} = {known[key]}")
            known[key] = name

    @contextmanager
    def _side_by_side(self, lanes: Mapping[Fold, Fold], scope: Scalars) -> Iterator[None]:
        """A loop over strips, and in it one over lanes; then the sums of all lanes, in order."""
        out, rooms = self.kernel.out, [name for lane in lanes.values() for name in lane.names]
        out(*(f"{local(name)}s = cuda.local.array(LANES, {self.kernel.elements.real})" for name in rooms))
        with out.block("for d in range(LANES):"):
            out(*(f"{local(name)}s[d] = {literal(0.0, 'f', self.kernel.real)}" for name in rooms))
        with out.block("for strip in range(0, full, LANES):"), out.block("for d in range(LANES):"):
            out(*(f"{local(name)} = {local(name)}s[d]" for name in rooms))
            yield
            out(*(f"{local(name)}s[d] = {local(name)}" for name in rooms))
        with out.block("for d in range(LANES):"):
            for fold, lane in lanes.items():
                self._joined_lane(fold, lane, scope)

    def _lanes_of(self, fold: Fold) -> Fold:
        names = tuple(f"{name}~lane" for name in fold.names)
        self.kernel.kinds.names |= dict.fromkeys(names, "f")
        return replace(fold, names=names)

    def _joined_lane(self, fold: Fold, lane: Fold, scope: Scalars) -> None:
        """Lane d, added to the sum."""
        self.kernel.out(*(f"{local(name)} = {local(name)}s[d]" for name in lane.names))
        inner = scope.child()
        self._add(replace(fold, bodies=tuple(map(state, lane.names))), inner)
        self.kernel.flush(inner)

    def loop(self, loop: Loop, scope: Scalars) -> None:
        elements = self.kernel.elements
        args = [f for f in loop.folds if isinstance(f.op, Position)]
        lists = {f: f.op.k for f in loop.folds if isinstance(f.op, TopK)}
        twice = [
            n for f in (*args, *lists) for n in f.bodies if n not in elements.tiles_of and not elements.in_place(n)
        ]
        # What is compared must be the very number that was found.
        elements.shared |= {n for n in twice if n.axes & elements.stream}
        rest = tuple(f for f in loop.folds if f not in lists)
        if rest:
            super().loop(Loop(rest), scope)
        for fold in args:
            self._search(fold, scope)
        for fold, k in lists.items():
            self._list(fold, k, scope)

    # --- sorted lists ------------------------------------------------------------------------------------------------

    def _list(self, fold: Fold, k: int, scope: Scalars) -> None:
        """Elements enter a list one by one, from the groups whose extremum says that one of them does."""
        out, kernel, body = self.kernel.out, self.kernel, fold.bodies[0]
        values, places = (local(n) for n in fold.names)
        number, last = self._number(fold), k - 1
        self._start(fold)
        if body in kernel.elements.shared and body not in kernel.elements.stored:
            self._keep(body, scope)
        entry = f"{self.insertion(k, number)}({values}, {places}, {{}}, i64(at))"
        out(f"full = count // {GROUP} * {GROUP}")
        with out.block(f"for strip in range(0, full, {GROUP}):"):
            out(f"largest = {self.identity('max', number)}")
            with out.block(f"for c in range({GROUP}):"):
                out("k = strip + c")
                item = self._item(body, number, scope)
                out("largest = " + joined("max", number, kernel.real, "largest", item))
            test = f"if not ({{}} <= {values}[{last}]) or {places}[{last}] == MISSING:"
            with out.block(test.format("largest")):
                with out.block(f"for k in range(strip, strip + {GROUP}):"):
                    item = self._item(body, number, scope)
                    with out.block(test.format(item)):
                        out("at = first + k", entry.format(item))
        with out.block("for k in range(full, count):"):
            item = self._item(body, number, scope)
            out("at = first + k", entry.format(item))

    def insertion(self, k: int, number: str) -> str:
        """The name of the function that puts an element into a sorted list of k: what it precedes moves down."""
        name = f"insert_top{k}{'' if number == 'f' else '_' + number}"
        better_first = better("topk", number, "values[i - 1]", "value", "places[i - 1]", "place")
        self.kernel.functions[name] = function(
            "\n".join(
                [
                    "@cuda.jit(device=True)",
                    f"def {name}(values, places, value, place):",
                    f'    """Put an element into a list of {k}, largest first; the lowest position among equals."""',
                    f"    i = {k}",
                    f"    while i > 0 and ({better_first}):",
                    f"        if i < {k}:",
                    "            values[i] = values[i - 1]",
                    "            places[i] = places[i - 1]",
                    "        i -= 1",
                    f"    if i < {k}:",
                    "        values[i] = value",
                    "        places[i] = place",
                ]
            )
        )
        return name

    def _item(self, body: Node, number: str, scope: Scalars) -> str:
        """Element k, computed here."""
        kernel, elements = self.kernel, self.kernel.elements
        position, axes = elements.needs([body])
        if position:
            kernel.out("at = first + k")
        elements.places_along(axes if position else ())
        inner = self.element_scope(scope)
        inner.announce([body])
        item = inner.atom(body, number)
        kernel.flush(inner)
        return item

    def _keep(self, body: Node, scope: Scalars) -> None:
        """Compute what is compared once, for all elements of the tile."""
        kernel, elements = self.kernel, self.kernel.elements
        scope.hoist([body], kernel.program.stream)
        kernel.flush(scope)
        self._declare_shared([body])
        position, axes = elements.needs([body])
        with elements.each(position, axes):
            inner = self.element_scope(scope)
            inner.announce([body])
            self.keep_shared(inner, [body])

    @contextmanager
    def _strips(self, args: list[Fold], position: bool, axes: Iterable[str]) -> Iterator[None]:
        """Strip by strip, noting the first one that holds the extremum or NaN."""
        out, elements = self.kernel.out, self.kernel.elements
        with self._strip_by_strip(args):
            for fold in args:
                out(f"{self._running(fold)} = {self.identity(fold.kind, self._number(fold))}")
            with elements.each(position, axes, "strip, edge"):
                yield

    @contextmanager
    def _strip_by_strip(self, args: list[Fold]) -> Iterator[None]:
        """A loop over strips, inside of which the extremum of each is found."""
        out = self.kernel.out
        with out.block("for strip in range(0, count, STRIP):"):
            out("edge = min(strip + STRIP, count)")
            yield
            for fold in args:
                value, place = (local(n) for n in fold.names)
                found, sign = self._running(fold), "<=" if fold.kind == "argmax" else ">="
                better = f"not ({found} {sign} {value})"
                better += f" and {value} == {value}" if self._number(fold) == "f" else ""
                with out.block(f"if strip == 0 or {better}:"):
                    out(f"{value} = {found}", f"{place} = strip")

    def _held(self) -> set[str]:
        """What tiles before this one have left."""
        return {local(part.name) for p in self.kernel.program.passes for part in p.parts}

    def _search(self, fold: Fold, scope: Scalars) -> None:
        """The first place of the extremum, or of NaN: a minimum of positions, which needs no branch."""
        out, elements = self.kernel.out, self.kernel.elements
        value, place = (local(n) for n in fold.names)
        best, known = value.removesuffix("_b"), place.removesuffix("_b")
        test, where = "", "count"
        if self._resident:
            where = f"{place}, min({place} + STRIP, count)"
        elif not self.kernel.cpu.resident and known in self._held():
            relation = "<=" if fold.kind == "argmax" else ">="
            test = f"if not ({value} {relation} {best}) or {known} == MISSING:"
        begin, count = (place, f"min(STRIP, count - {place})") if self._resident else ("0", "count")
        found = elements.lies(fold.bodies[0], self._number(fold), begin)
        with out.block(test or None):
            if found is not None:
                dtype, array, index = found
                nearest = f"place_{dtype}({array}, {index}, {count}, {value})"
                out(f"{place} = {' + '.join(x for x in ('first', begin, nearest) if x != '0')}")
                return
            out("nearest = np.int32(2147483647)")
            position, axes = elements.needs(list(fold.bodies))
            with elements.each(position, axes, where):
                inner = self.element_scope(scope)
                inner.announce(fold.bodies)
                item = inner.atom(fold.bodies[0], self._number(fold))
                self.kernel.flush(inner)
                hit = f"({item} == {value}) | ({item} != {item})"
                out(f"nearest = min(nearest, np.int32(k) if {hit} else np.int32(2147483647))")
            out(f"{place} = first + i64(nearest)")
