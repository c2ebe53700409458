"""A program as one Numba function for CPUs: the printers of CUDA kernels, with one thread that walks every row.

A row that is not too long is lifted as one tile, which stays in the first-level caches; a longer one is folded tile by
tile. Every walk over a tile is a loop over a buffer that LLVM vectorises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from redalg.graph import Node
from redalg.kernels.cuda_access import tensor_leaves
from redalg.kernels.cuda_element import Elements
from redalg.kernels.cuda_fold import Folding
from redalg.kernels.cuda_imports import CPU, imports
from redalg.kernels.cuda_text import definitions, local
from redalg.kernels.emit_cuda import Kernel, read
from redalg.kernels.ir import Fold, Loop, Module, Param, Program
from redalg.kernels.scalars import Scalars
from redalg.kernels.schedule import Layout, Schedule
from redalg.kernels.sweeping import called, names_read, swept
from redalg.kernels.wrapping import wrapped

TILE = 1024  # elements of a tile where a row is walked in tiles
WHOLE = 8192  # the longest row that is one tile
FLAGS = '@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})'


def emit_cpu(program: Program, layout: Layout, resident: bool) -> Module:
    """The function that computes rows `low` to `high`; arguments as `Module.params` says, then low and high.

    >>> import redalg as ra
    >>> from redalg.kernels.lower import lower
    >>> module = emit_cpu(lower(ra.derive_incremental(ra.catalog["logsumexp"]), {"x": "float32"}), Layout(), True)
    >>> module.entry, [p.name for p in module.params if p.role in ("operand", "result")]
    ('y_rows', ['x', 'y'])
    """
    schedule = Schedule(threads=1, rows=1, vector=1, tile=TILE, resident=resident and not program.lanes)
    return CpuKernel(program, schedule, layout).module()


class CpuElements(Elements):
    """Tiles are buffers as long as they need to be, and loops run over the elements they hold."""

    @contextmanager
    def each(self, position: bool = False, axes: Iterable[str] = ()) -> Iterator[None]:
        out = self.kernel.out
        with out.block("for k in range(count):"):
            if position:
                out("at = k" if self.kernel.schedule.resident else "at = first + k")
            self._places_along(axes if position else ())
            yield

    @contextmanager
    def tiles(self, ordered: bool = False) -> Iterator[None]:
        out = self.kernel.out
        self.tiles_of, self.stored, self.shared, self.stop = {}, set(), set(), "length"
        out("first = i64(0)")
        with out.block("while first < length:"):
            out("count = min(TILE, length - first)")
            yield
            out("first += TILE")

    def whole_tile(self, steps: object = (), bodies: object = ()) -> None:
        if self.kernel.schedule.resident:
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


class CpuKernel(Kernel):
    packs = False
    approximates = False  # all of `redalg.kernels.cpu_math` is as quick as it is exact

    def parts(self) -> tuple[type[Elements], type[Folding]]:
        return CpuElements, CpuFolding

    def module(self) -> Module:
        self.out.depth = 2
        self._where_am_i()
        self.write()
        length = " * ".join(self.access.size(a) for a in self.program.stream) or "1"
        lanes = self._lanes()
        params = {self.argument(p): p for p in self.params()}
        name = f"{local(self.program.name)}_rows"
        about = "\n".join(self.about())
        head = [f"    {n} = pointer_{p.dtype}({n})" for n, p in params.items() if p.role in ("operand", "result")]
        rows, buffers = _hoisted(self.out.lines, "length" if self.schedule.resident else "TILE")
        head += [*lanes, f"    length = {length}", *buffers, "    for row in range(low, high):", *rows, ""]
        body, names = swept("\n".join([f"def {name}({', '.join([*params, 'low', 'high'])}):", about, *head]))
        params = read(params, names)
        body = f"{FLAGS}\ndef {name}({', '.join([*params, 'low', 'high'])}):\n{body[body.index(about) :]}"
        functions = called(self.functions, names)
        names = names.union(*map(names_read, functions.values()))
        whole = "\n\n\n".join([self.header(names), *map(_as_njit, functions.values()), body])
        ends = (Param("low", "low", "int64"), Param("high", "high", "int64"))
        return Module(wrapped(whole), name, (*params.values(), *ends))

    def walk(self) -> str:
        return f"; a row {'is one tile' if self.schedule.resident else 'is walked in tiles'}"

    def _lanes(self) -> list[str]:
        if not self.program.lanes:
            return []
        return [f"    LANES = {' * '.join(self.access.size(a) for a in self.program.lanes)}"]

    def header(self, names: frozenset[str]) -> str:
        lines = ["import numpy as np", "from numba import njit", "", *imports(names, CPU), ""]
        constants = {
            "INF": f"{self.real}(np.inf)", "NAN": f"{self.real}(np.nan)", "PI": f"{self.real}(np.pi)",
            "E": f"{self.real}(np.e)", "TILE": TILE, "THREADS": 1, "MISSING": "i64(2**62)",
        }  # fmt: skip
        return "\n".join([*lines, *definitions(names, constants)])

    def _where_am_i(self) -> None:
        out, rows = self.out, self.program.rows
        out("t = 0")
        rest = "row"
        for axis in reversed(rows[1:]):
            out(f"i_{axis} = {rest} % {self.access.size(axis)}", f"rest = {rest} // {self.access.size(axis)}")
            rest = "rest"
        if rows:
            out(f"i_{rows[0]} = {rest}")
        self.elements.offsets()


_BUFFER = re.compile(r"^( *)(\w+) = cuda\.local\.array\((\w+), (.*)\)$")


def _hoisted(lines: list[str], tile: str) -> tuple[list[str], list[str]]:
    """Buffers are made once, before the rows; and what threads would tell each other, one thread knows."""
    body, buffers = [], {}
    for line in lines:
        found = _BUFFER.match(line)
        if found:
            _, name, size, dtype = found.groups()
            buffers[name] = f"    {name} = np.empty({tile if size == 'TILE' else size}, {dtype})"
        else:
            body.append(re.sub(r"shfl_idx_\w+\((.*), owner\)$", r"\1", line))
    return body, list(buffers.values())


def _as_njit(function: str) -> str:
    return function.replace("@cuda.jit(device=True)", FLAGS.replace("nogil=True, ", "")).rstrip()
