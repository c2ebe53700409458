"""Where the elements of arrays lie: row offsets, steps along the stream, loads and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from redalg.graph.node import Node, walk
from redalg.kernels.ir.program import Operand, Param, Program, Result, result_key
from redalg.kernels.ir.schedule import Layout, Schedule
from redalg.source.names import axis_name, operand_name, plain, result_name


class Access:
    """Addresses of one program under a layout. Collects the parameters it needs."""

    def __init__(self, program: Program, schedule: Schedule, layout: Layout) -> None:
        self.program, self.schedule, self.layout = program, schedule, layout
        self.operands = {o.name: o for o in program.operands}
        self.real = "f32" if program.real == "float32" else "f64"
        self.used: dict[str, Param] = {}
        self.outputs = {r.name: r for r in program.results}
        self.array_names = {o.name: operand_name(o.name) for o in program.operands}
        self.result_names = {n: result_name(n) for n in self.outputs}

    # --- parameters --------------------------------------------------------------------------------------------------

    def size(self, axis: str) -> str:
        axis = self.program.inner.get(axis, axis)
        if axis in self.program.lengths:
            return str(self.program.lengths[axis])
        name = f"size_{axis_name(axis)}"
        self.used.setdefault(name, Param("size", axis, "int64"))
        return name

    def stride(self, array: str, dim: int, result: bool = False) -> str:
        name = f"{(self.result_names if result else self.array_names)[array]}_s{dim}"
        self.used.setdefault(name, Param("stride_out" if result else "stride", array, "int64", dim))
        return name

    def indices(self, number: str, axes: tuple[str, ...]) -> list[str]:
        """Lines that give the index along every axis from a number, the last axis running first."""
        lines: list[str] = []
        for axis in reversed(axes[1:]):
            lines += [f"i_{axis_name(axis)} = {number} % {self.size(axis)}", f"rest = {number} // {self.size(axis)}"]
            number = "rest"
        return [*lines, *(f"i_{axis_name(axis)} = {number}" for axis in axes[:1])]

    def places(self, flat: str, axes: tuple[str, ...]) -> list[str]:
        """Lines that give the index along every axis from the number `flat` of 32 bits, the last axis running first."""
        lines: list[str] = []
        for axis in reversed(axes[1:]):
            size = self.size(axis)
            outer = f"outer_{axis_name(axis)}"
            lines += [f"{outer} = quotient({flat}, {size})", f"i_{axis_name(axis)} = {flat} - {outer} * {size}"]
            flat = outer
        return [*lines, f"i_{axis_name(axes[0])} = {flat}"] if axes else []

    def more(self) -> list[Param]:
        """Sizes, strides and scratch memory that were asked for, by their names."""
        return [p for _, p in sorted(self.used.items(), key=lambda item: plain(item[0]))]

    # --- offsets -----------------------------------------------------------------------------------------------------

    def offset(self, array: str, axes: Iterable[str], wanted: Iterable[str], result: bool = False) -> list[str]:
        """The terms of an element's offset along the wanted axes."""
        wanted = set(wanted)
        found = ((self.index(a), d) for d, a in enumerate(axes) if a in wanted)
        return [f"{i} * {self.stride(array, d, result)}" for i, d in found if i != "0"]

    def index(self, axis: str) -> str:
        """The text of the index along an axis."""
        place = self.program.places.get(axis)
        if place is None:
            return f"i_{axis_name(axis)}"
        if not place.outer:
            return str(place.number)
        text = f"i_{axis_name(place.outer)} * {place.tile} + {place.number}"
        return f"({text})" if place.exact else f"min({text}, {self.size(place.axis)} - 1)"

    def beyond(self, axes: Iterable[str]) -> list[str]:
        """Conditions under which places of a tile lie inside their axis."""
        places = (self.program.places[a] for a in axes if a in self.program.places)
        return [f"i_{axis_name(p.outer)} * {p.tile} + {p.number} < {self.size(p.axis)}" for p in places if not p.exact]

    def step(self, array: str, axes: tuple[str, ...], result: bool = False) -> str | None:
        """The stride along the flattened stream; None where it is 1."""
        key = result_key(array) if result else array
        if key in self.layout.unit or key in self.layout.shifted:
            return None
        last = max(axes.index(a) for a in axes if a in self.program.stream)
        return self.stride(array, last, result)

    def walks_flat(self, axes: tuple[str, ...]) -> bool:
        """Whether the flattened position alone says where along the stream an element lies."""
        return len(self.program.stream) == 1 or self.layout.flat

    def along(self, array: str, axes: tuple[str, ...], position: str, result: bool = False) -> str:
        """The text of the offset along the stream at a position, which has a name."""
        if not any(a in self.program.stream for a in axes):
            return ""
        if not self.walks_flat(axes):
            return " + ".join(self.offset(array, axes, self.program.stream, result))
        step = self.step(array, axes, result)
        return position if step is None else f"{position} * {step}"

    def load(self, operand: Operand, index: str, width: int = 1, way: str = "") -> str:
        shifted = "shifted_" if width > 1 and operand.name in self.layout.shifted else ""
        name = f"load_{way}{shifted}{operand.dtype}" + (f"x{width}" if width > 1 else "")
        text = f"{name}({self.array_names[operand.name]}, {index})"
        return text if width > 1 else self.as_real(operand.dtype, text)

    def leaf(self, node: Node, at: Callable[[str], str]) -> str:
        """The text of a tensor's element, with `at` for the index along an axis; of a number, in the kernel's type."""
        operand = self.operands[node.attr.name]
        if operand.number:
            name = self.array_names[operand.name]
            return {"float64": f"f32({name})", "int64": name, "bool": name}[operand.dtype]
        return self.load(operand, self.place(node, at))

    def place(self, node: Node, at: Callable[[str], str]) -> str:
        """The text of where a tensor's element lies, with `at` for the index along an axis."""
        terms = (f"{at(a)} * {self.stride(node.attr.name, d)}" for d, a in enumerate(node.attr.axes))
        return " + ".join(terms) or "0"

    def as_real(self, dtype: str, text: str) -> str:
        floats = dtype.startswith(("float", "bfloat"))
        return f"f64({text})" if self.real == "f64" and floats and dtype != "float64" else text

    def store(self, result: Result, index: str, values: list[str]) -> str:
        # A row that is read twice should be found in the cache the second time: what is written need not stay there.
        twice = result.keeps and self.program.passes and not self.schedule.resident
        name = f"store_{'stream_' if twice else ''}{result.dtype}" + (f"x{len(values)}" if len(values) > 1 else "")
        value = values[0] if len(values) == 1 else f"({', '.join(values)})"
        return f"{name}({self.result_names[result.name]}, {index}, {value})"


def tensor_leaves(nodes: Iterable[Node]) -> list[Node]:
    return [n for n in walk(*nodes) if n.op == "tensor"]
