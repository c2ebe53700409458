"""What printers of kernels on tiles share: how operands are read, names of arguments, a module from statements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import count

from redalg.graph.node import Node
from redalg.kernels.code.imports import MMA, WGMMA, brought, imports
from redalg.kernels.code.scalars import Scalars
from redalg.kernels.code.text import definitions, finished
from redalg.kernels.ir.kinds import program_kinds
from redalg.kernels.ir.program import Module, Param, Program
from redalg.kernels.ir.schedule import Layout, Schedule
from redalg.kernels.rows.access import Access
from redalg.kernels.rows.kernel import read
from redalg.kernels.tile.bounds import Bounds, bounds
from redalg.source.builder import Builder
from redalg.source.names import axis_name
from redalg.source.statements import Block, Comment, Function, Import, expanded, parameters, reads, statements

QUICK = {"exp": "fast_exp", "tanh": "fast_tanh"}  # functions as exact as weights of 16 bits need them
NUMBERS = {
    "INF": "f32(np.inf)",
    "NAN": "f32(np.nan)",
    "LOG2E": "f32(1.4426950408889634)",
    "PI": "f32(np.pi)",
    "E": "f32(np.e)",
}


class TilePrinter:
    """Statements of one kernel under way."""

    real = "f32"
    boxed = True  # whether the copy engine brings boxes, by tensor maps

    def __init__(self, program: Program) -> None:
        self.program = program
        self.access = Access(program, Schedule(), Layout())
        self.kinds = program_kinds(program)
        self.out = Builder()
        self.registers = Comment("registers")  # where `arrays` are made
        self.arrays: dict[str, str] = {}
        self.fixed: dict[str, Param] = {}
        self.counter = count(1)

    def array(self, name: str, size: int, dtype: str = "np.float32") -> None:
        """Registers of a thread by a name."""
        self.arrays[name] = f"{name} = cuda.local.array({size}, {dtype})"

    def fix(self, name: str) -> str:
        """An argument that is the same in every call."""
        self.fixed.setdefault(name, Param("fixed", name, "int64"))
        return name

    def is_clamped(self, axis: str) -> bool:
        """Whether a tile may reach beyond the end of an axis here, where nothing must be read."""
        raise NotImplementedError

    def leaf(self, node: Node) -> str:
        """The text of a leaf that is no state."""
        if node.op == "size":
            return self.access.size(node.attr)
        if node.op == "index":
            return f"i_{axis_name(node.attr)}"
        return self.access.leaf(node, lambda a: f"{'clamped' if self.is_clamped(a) else 'i'}_{axis_name(a)}")

    # --- tiles of the result -----------------------------------------------------------------------------------------

    def bounded(
        self,
        condition: Node | None,
        row: str,
        stream: str,
        scope: Callable[[], Scalars],
        leaf: Callable[[Node], str] | None = None,
    ) -> Bounds:
        """Which blocks of the stream a condition leaves, as texts over the ends of a tile's rows."""
        if condition is None:
            return Bounds(None, None, "True")
        plain = leaf or self.leaf

        def prints(node: Node, row_text: str, stream_text: str) -> str:
            made, names = scope(), {row: row_text, stream: stream_text}
            made.leaf = lambda n: names.get(n.attr, f"i_{axis_name(n.attr)}") if n.op == "index" else plain(n)
            return made.text(node, 2)

        return bounds(condition, row, stream, prints)

    def located(self, batch: tuple[str, ...], axis: str, tile: str = "tile", across: str = "") -> None:
        """Which batch a tile is of, and its rows. `across`: which rows, of those of a section of the batches that is
        taken row by row, where a condition makes rows differ in length."""
        out, row, blocks = self.out, axis_name(axis), self.fix("row_blocks")
        batches = self.fix("batches")
        if across:
            section = self.fix("section")
            out(f"part = quotient({tile}, {section} * {blocks})", f"rest = {tile} - part * ({section} * {blocks})")
            out(f"wide = min({section}, {batches} - part * {section})", "across = quotient(rest, wide)")
            out(f"batch = part * {section} + (rest - across * wide)")
            out(f"{row}_first = {across} * ROWS")
        else:
            out(f"batch = quotient({tile}, {blocks})", f"{row}_first = ({tile} - batch * {blocks}) * ROWS")
        out(*self.access.places("batch", batch))
        out(f"{row}_last = min({row}_first + (ROWS - 1), {self.access.size(axis)} - 1)")

    def visited(self, b: Bounds, length: str, span: str) -> None:
        """The blocks of the stream that a tile visits."""
        high = f"min({length}, {b.high})" if b.high else length
        self.out(f"last = max((({high}) + ({span} - 1)) // {span}, 1) - 1")
        self.out(f"low = min(max({b.low}, 0) // {span}, last)" if b.low else "low = 0")

    @property
    def descending(self) -> str:
        """Rows from the last on, which are the longest."""
        return f"({self.fix('row_blocks')} - 1 - across)"

    # --- the module --------------------------------------------------------------------------------------------------

    def about(self, how: str) -> list[str]:
        """The docstring's lines: what is computed, how, and the spec."""
        what, _, spec = self.program.title.partition(": ")
        return [f"{what}; {how}.", *spec.split("; ")]

    def constants(self) -> Mapping[str, object]:
        """Numbers above the kernel, by name."""
        return NUMBERS

    def makers(self) -> Mapping[str, str]:
        """Functions of the kernel's shapes, by name, and what makes them."""
        raise NotImplementedError

    def header(self, names: frozenset[str]) -> Block:
        """Imports, constants and functions of the kernel's shapes, of those names that are used."""
        makers = statements("\n".join(f"{n} = {text}" for n, text in self.makers().items() if n in names))
        found, sought = list[Import](), reads(makers) | names
        for module, functions in (WGMMA if self.boxed else MMA).items():
            own = sought & functions
            found += [brought(f"redalg.kernels.{module}", own)] if own else []
            sought -= own
        return (*imports(names), *found, *definitions(names, self.constants()), *makers)

    def params(self) -> dict[str, Param]:
        """What the kernel takes, by the names it reads."""
        maps = [Param("maps", "maps", "uint64")] if self.boxed else []
        found = (*maps, *self.arguments(), *self.fixed.values(), *self.access.more())
        return {self._argument(p): p for p in found}

    def arguments(self) -> list[Param]:
        """Operands and results."""
        found = [Param("number" if o.number else "operand", o.name, o.dtype) for o in self.program.operands]
        return found + [Param("result", r.name, r.dtype) for r in self.program.results]

    def finished(
        self, name: str, about: list[str], threads: int, shared: int, functions: Collection[Function] = ()
    ) -> Module:
        """The statements so far as a module, with functions before the kernel."""
        params = self.params()
        made = self.out.function(name, params, about, "cuda.jit")
        made = replace(made, body=expanded(made.body, self.registers, statements("\n".join(self.arrays.values()))))
        params = read(params, reads([made]))
        made = replace(made, parameters=parameters(params))
        block = (*self.header(reads([*functions, made])), *functions, made)
        return finished(Module("", name, tuple(params.values()), threads, shared), block)

    def _argument(self, p: Param) -> str:
        results, arrays = self.access.result_names, self.access.array_names
        if p.role in ("stride", "stride_out"):
            return f"{(arrays if p.role == 'stride' else results)[p.name]}_s{p.dim}"
        if p.role in ("maps", "fixed", "scratch"):
            return p.name
        return f"size_{axis_name(p.name)}" if p.role == "size" else (results if p.role == "result" else arrays)[p.name]
