"""What printers of kernels on tiles share: how operands are read, names of arguments, a module from statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from redalg.graph.node import Node
from redalg.kernels.code.text import finished
from redalg.kernels.ir.kinds import program_kinds
from redalg.kernels.ir.program import Module, Param, Program
from redalg.kernels.ir.schedule import Layout, Schedule
from redalg.kernels.rows.access import Access
from redalg.kernels.rows.kernel import read
from redalg.source.builder import Builder
from redalg.source.names import axis_name
from redalg.source.statements import Block, Comment, expanded, parameters, reads, statements

QUICK = {"exp": "fast_exp", "tanh": "fast_tanh"}  # functions as exact as weights of 16 bits need them


class TilePrinter:
    """Statements of one kernel under way."""

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

    def about(self, how: str) -> list[str]:
        """The docstring's lines: what is computed, how, and the spec."""
        what, _, spec = self.program.title.partition(": ")
        return [f"{what}; {how}.", *spec.split("; ")]

    def header(self, names: frozenset[str]) -> Block:
        """Imports, constants and functions of the kernel's shapes, of those names that are used."""
        raise NotImplementedError

    def finished(self, name: str, about: list[str], threads: int, shared: int, scratch: Iterable[Param] = ()) -> Module:
        """The statements so far as a module."""
        found = [Param("number" if o.number else "operand", o.name, o.dtype) for o in self.program.operands]
        found += [Param("result", r.name, r.dtype) for r in self.program.results]
        params = {
            self._argument(p): p for p in (*self.first, *found, *scratch, *self.fixed.values(), *self.access.more())
        }
        made = self.out.function(name, params, about, "cuda.jit")
        made = replace(made, body=expanded(made.body, self.registers, statements("\n".join(self.arrays.values()))))
        used = reads([made])
        params = read(params, used)
        block = (*self.header(used), replace(made, parameters=parameters(params)))
        return finished(Module("", name, tuple(params.values()), threads, shared), block)

    @property
    def first(self) -> tuple[Param, ...]:
        """Parameters before the operands: tensor maps, where boxes are copied."""
        return (Param("maps", "maps", "uint64"),)

    def _argument(self, p: Param) -> str:
        results, arrays = self.access.result_names, self.access.array_names
        if p.role in ("stride", "stride_out"):
            return f"{(arrays if p.role == 'stride' else results)[p.name]}_s{p.dim}"
        if p.role in ("maps", "fixed", "scratch"):
            return p.name
        return f"size_{axis_name(p.name)}" if p.role == "size" else (results if p.role == "result" else arrays)[p.name]
