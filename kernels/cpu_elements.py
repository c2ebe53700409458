"""Tiles of a row in CPU kernels: loops that LLVM vectorises, over elements in place or in buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redalg.graph import Node
from redalg.kernels.cuda_access import tensor_leaves
from redalg.kernels.cuda_element import Elements
from redalg.kernels.cuda_fold import Folding
from redalg.kernels.cuda_text import local
from redalg.kernels.ir import Fold, Loop
from redalg.kernels.scalars import Scalars

if TYPE_CHECKING:
    from redalg.kernels.emit_numba import CpuKernel


class CpuElements(Elements):
    """Tiles are buffers as long as they need to be, and loops run over the elements they hold."""

    kernel: CpuKernel

    @contextmanager
    def each(self, position: bool = False, axes: Iterable[str] = ()) -> Iterator[None]:
        out = self.kernel.out
        with out.block("for k in range(count):"):
            if position:
                out("at = first + k")
            self._places_along(axes if position else ())
            yield

    @contextmanager
    def tiles(self, ordered: bool = False) -> Iterator[None]:
        out = self.kernel.out
        self.tiles_of, self.stored, self.shared, self.stop = {}, set(), set(), "length"
        if self.kernel.stage.counts == "pieces":
            out("first = piece * span", "stop = min(first + span, length)")
            self.stop = "stop"
        else:
            out("first = i64(0)")
        with out.block(f"while first < {self.stop}:"):
            out(f"count = min(TILE, {self.stop} - first)")
            yield
            out("first += TILE")

    def whole_tile(self, steps: object = (), bodies: object = ()) -> None:
        self.kernel.out("count = length")
        super().whole_tile(steps, bodies)  # type: ignore[arg-type]

    def _load_leaves(self, nodes: Sequence[Node]) -> None:
        """What lies side by side in the type it is computed in is read where it is; the rest is copied to a buffer."""
        super()._load_leaves([n for n in tensor_leaves(nodes) if not self._in_place(n)])

    def _in_place(self, leaf: Node) -> bool:
        name = leaf.attr.name
        return name in self.kernel.layout.unit and self.access.operands[name].dtype == self.program.real

    def count(self) -> str:
        return "count"

    def begun(self) -> None:
        self.kernel.out("count = n_b")


class CpuFolding(Folding):
    """Positions of extrema are searched for only in tiles that improve on what is known."""

    def _add(self, fold: Fold, inner: Scalars) -> None:
        if fold.kind not in ("argmax", "argmin"):
            return super()._add(fold, inner)
        name, number = local(fold.names[0]), self._number(fold)
        item = inner.atom(fold.bodies[0], number)
        word = fold.kind[3:]
        text = f"{word}({name}, {item})" if number == "i" else f"{word}_nan_{self.kernel.real}({name}, {item})"
        inner.lines.append(f"{name} = {text}")
        return None

    def loop(self, loop: Loop, scope: Scalars) -> None:
        searched = [f.bodies[0] for f in loop.folds if f.kind in ("argmax", "argmin")]
        held = self.kernel.elements.tiles_of  # what is compared must be the very number that was found
        self.kernel.elements.shared |= {n for n in searched if n not in held and n.axes & self.kernel.elements.stream}
        super().loop(loop, scope)
        for fold in loop.folds:
            if fold.kind in ("argmax", "argmin"):
                self._search(fold, scope)

    def _search(self, fold: Fold, scope: Scalars) -> None:
        """The first place of the extremum, or of NaN: a minimum of positions, which needs no branch."""
        out, elements = self.kernel.out, self.kernel.elements
        value, place = (local(n) for n in fold.names)
        best, known = value.removesuffix("_b"), place.removesuffix("_b")
        test = ""
        if not self.kernel.schedule.resident and known in {
            local(x.name) for p in self.kernel.program.passes for x in p.parts
        }:
            relation = "<=" if fold.kind == "argmax" else ">="
            test = f"if not ({value} {relation} {best}) or {known} == MISSING:"
        with out.block(test or None):
            out("nearest = np.int32(2147483647)")
            _, axes = elements.needs(list(fold.bodies))
            with elements.each(bool(axes), axes):
                inner = self.element_scope(scope)
                inner.announce(fold.bodies)
                item = inner.atom(fold.bodies[0], self._number(fold))
                self.kernel.flush(inner)
                hit = f"({item} == {value}) | ({item} != {item})"
                out(f"nearest = min(nearest, np.int32(k) if {hit} else np.int32(2147483647))")
            out(f"{place} = first + i64(nearest)")
