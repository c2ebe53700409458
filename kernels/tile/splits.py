"""Splits of the stream, where there are too few rows for all multiprocessors.

The states of splits go to memory, and a second kernel merges them by the derived merge, in the order of the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.kernels.ir.program import Join, Let, Part
from redalg.kernels.tile.results import TensorResults
from redalg.source.names import axis_name, local

if TYPE_CHECKING:
    from redalg.kernels.tile.kernel import TensorKernel


def finished(kernel: TensorKernel) -> None:
    """What is done with the state of a tile of rows: results are written, or the state of this split of the stream."""
    if kernel.plan.splits > 1:
        _kept(kernel)
    else:
        TensorResults(kernel).write()


def _kept(kernel: TensorKernel) -> None:
    out, made, p, results = kernel.out, kernel.made, kernel.plan, TensorResults(kernel)
    out.comment(
        "The state of this split of each row to scratch; a second kernel merges them in the order of the stream."
    )
    kernel.tile.top_k.exchange(kernel.element())
    if not kernel.wide:
        results.summed()
    with out.block(kernel.each_row):
        kernel.row_places()
        with out.block(f"if i_{axis_name(made.row)} < {kernel.access.size(made.row)}:"):
            index = f"i_{axis_name(kernel.program.rows[0])}"
            for axis in kernel.program.rows[1:]:
                index = f"({index}) * {kernel.access.size(axis)} + i_{axis_name(axis)}"
            out(f"index = ({index}) * {p.splits} + split")
            with out.block("if lane & 3 == 0:"):
                for part in (x for x in made.walk.parts if not x.axes):
                    dtype, count = kernel.tile.top_k.left(part)
                    for k in range(count):
                        at, entry = (f"{count} * index + {k}", f"{count} * r + {k}") if count > 1 else ("index", "r")
                        out(f"store_{dtype}({local(part.name)}_splits, {at}, {local(part.name)}[{entry}])")
            for part in (x for x in made.walk.parts if x.axes):
                assert made.column is not None  # parts with an axis are sums over it
                with results.pairs():
                    place = f"index * {p.value_columns} + i_{axis_name(made.column)}"
                    out(f"store_float32x2({local(part.name)}_splits, {place}, (sums[s], sums[s + 1]))")


def merging(kernel: TensorKernel) -> None:
    """The body of the second kernel: a thread for every row and column merges the states of its splits."""
    out, made, p = kernel.out, kernel.made, kernel.plan
    rows = kernel.program.rows
    total = " * ".join([*(kernel.access.size(a) for a in rows), *([str(p.value_columns)] if made.column else [])])
    column = f" and column of {axis_name(made.column)}" if made.column else ""
    out.comment(
        f"Grid: a thread for every row{column}; it merges the states of {p.splits} splits, in the order of the stream.",
        "No shared memory and no barriers: the kernel before it has written all states.",
    )
    out("index = i64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x")
    with out.block(f"if index < {total}:"):
        if made.column:
            out(f"i_{axis_name(made.column)} = index % {p.value_columns}", f"index = index // {p.value_columns}")
        rest = "index"
        for axis in reversed(rows[1:]):
            size = kernel.access.size(axis)
            out(f"i_{axis_name(axis)} = {rest} % {size}", f"outer_{axis_name(axis)} = {rest} // {size}")
            rest = f"outer_{axis_name(axis)}"
        out(f"i_{axis_name(rows[0])} = {rest}")
        out(kernel.registers)
        numbers = [x for x in made.walk.parts if x.name not in kernel.tile.top_k.lists]
        out(*(f"{local(x.name)} = {_loaded(kernel, x, '')}" for x in numbers))
        kernel.single = True
        kernel.tile.top_k.merge(p.splits)
        if numbers:
            _merge_numbers(kernel, numbers)
        TensorResults(kernel).totals()


def _merge_numbers(kernel: TensorKernel, numbers: list[Part]) -> None:
    """Parts that are numbers, by the derived merge."""
    out, made, lists = kernel.out, kernel.made, kernel.tile.top_k.lists
    with out.block(f"for split in range(1, {kernel.plan.splits}):"):
        out(*(f"{local(x.name)}_b = {_loaded(kernel, x, ' + split')}" for x in numbers))
        scope = kernel.row_scope()
        for step in made.walk.combine:
            if isinstance(step, Let) and step.name != "n_new":
                scope.lines.append(f"{local(step.name)} = {scope.converted(step.node, 'f')}")
            elif isinstance(step, Join) and step.names[0].removesuffix("_new") not in lists:
                kernel.tile.joined_row(step, scope)
        kernel.flush(scope)
        out(*(f"{local(x.name)} = {local(x.name)}_new" for x in numbers))


def _loaded(kernel: TensorKernel, part: Part, split: str) -> str:
    """The number of a state of a split of this row, and of this column."""
    p = kernel.plan
    at = f"index * {p.splits}{split}"
    if part.axes:
        assert kernel.made.column is not None
        at = f"({at}) * {p.value_columns} + i_{axis_name(kernel.made.column)}"
    return f"load_float32({local(part.name)}_splits, {at})"
