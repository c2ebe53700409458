"""What an epilogue reads beside the sums, in shared memory while its tile is computed.

Numbers along columns alone (a bias, the weights of a norm) are the same for all rows of a tile: every consumer
warpgroup has those of its tile in float32, asked for before it waits for the first chunk. A tensor that lies like the
result (a residual) comes by copies of 16 bytes to where rows of the result are staged, and leaves by the same way.
Read number by number from memory they would be waited for in every tile (8192 x 1024 x 1024 with both, H200: 42.6 us,
34.0 so), and their addresses take registers, so that tiles could not be as wide.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from redalg.graph.node import Node, walk
from redalg.kernels.gemm.match import TYPES
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Operand, Result
from redalg.source.names import axis_name, operand_name

if TYPE_CHECKING:
    from redalg.kernels.gemm.epilogue import Epilogue

BARRIER = 8  # of warpgroup 0; prologues have those before


class Held(NamedTuple):
    """Tensors along columns, and one that lies like the result."""

    vectors: tuple[Node, ...] = ()
    residual: Node | None = None

    @property
    def nodes(self) -> frozenset[Node]:
        return frozenset((*self.vectors, *([] if self.residual is None else [self.residual])))


NOTHING = Held()


def reads_columns(nodes: Sequence[Node], column: str, vectors: Collection[Node] = ()) -> bool:
    """Whether epilogues read more of a column than the sums, and `vectors` in shared memory: with wide tiles, that
    takes more registers than are."""
    return any(column in n.axes for n in walk(*nodes) if n.op in ("tensor", "index") and n not in vectors)


def vectors_of(
    nodes: Sequence[Node], rows: Collection[str], column: str, operands: Sequence[Operand]
) -> tuple[Node, ...]:
    """Tensors of the call that epilogues read along columns and not along rows, of floats that float32 holds."""
    floats = {o.name for o in operands if "float" in o.dtype and o.dtype != "float64" and not o.number}
    leaves = dict.fromkeys(n for n in walk(*nodes) if n.op == "tensor" and column in n.axes and n.attr.name in floats)
    return tuple(n for n in leaves if n.axes.isdisjoint(rows))


def residual_of(
    nodes: Sequence[Node], result: Result, column: str, dtypes: Mapping[str, str], views: Mapping[str, View]
) -> Node | None:
    """A tensor of the call of 16 bits with the axes of a result, whose rows copies of 16 bytes can read: the first."""
    for leaf in dict.fromkeys(n for n in walk(*nodes) if n.op == "tensor" and {*n.axes} == {*result.axes}):
        name = leaf.attr.name
        if dtypes.get(name) not in TYPES or name not in views or leaf.attr.dimensions:
            continue
        view = views[name]
        steps = dict(zip(leaf.attr.axes, view.strides, strict=True))
        lengths = dict(zip(leaf.attr.axes, view.shape, strict=True))
        others = [step for axis, step in steps.items() if axis != column]
        whole = steps[column] == 1 and lengths[column] % 8 == 0 and all(step % 8 == 0 for step in others)
        if whole and view.align >= 16 and not view.array:
            return leaf
    return None


class Bringing:
    """Prints how these come, and how they are read."""

    def __init__(self, epilogue: Epilogue) -> None:
        self.epilogue, self.kernel, self.out = epilogue, epilogue.kernel, epilogue.out
        self.made, self.plan, self.access = epilogue.made, epilogue.plan, epilogue.access
        self.vectors = {leaf: number for number, leaf in enumerate(self.made.held.vectors)}

    def text(self, node: Node) -> str:
        """The text of the number at register `s`."""
        if node in self.vectors:
            first = 4 * self.plan.columns * self.vectors[node]
            return f"shared_load_f32(own_vectors + {first} + 32 * (s >> 2) + 4 * (s & 1))"
        place = f"own_staged + {8 * self.plan.pitch * self.epilogue.row} + 16 * (s >> 2) + 2 * (s & 1)"
        return f"shared_load_{self.access.operands[node.attr.name].dtype}({place})"

    def wait(self) -> None:
        """Until what lanes have asked for is there for the warp."""
        if (residual := self.made.held.residual) is not None:
            self.out.comment(f"{operand_name(residual.attr.name)} has come, by copies of all lanes.")
            self.out("cp_async_wait_all()", "syncwarp()")

    def bring(self) -> None:
        """What is read along columns to shared memory, by each warpgroup for itself, before it waits for chunks."""
        out, p, column = self.out, self.plan, axis_name(self.made.column)
        if self.made.held.residual is not None:
            self._rows(self.made.held.residual)
        if not self.vectors:
            return
        barrier = f"named_barrier_sync({BARRIER} + warpgroup, 128)"
        names = ", ".join(operand_name(leaf.attr.name) for leaf in self.vectors)
        out.comment(f"{names} of the tile's columns to shared memory, while chunks are on their way.")
        out(barrier, f"vectors = left_tile + {p.vectors_at} + {4 * p.columns * p.vectors} * warpgroup")
        out("own_vectors = vectors + 8 * (lane & 3)")
        for first in range(0, p.columns, 128):
            out(f"across = {first} + (t & 127)")
            with out.block(f"if across < {p.columns}:" if first + 128 > p.columns else None):
                out(f"clamped_{column} = min(column_first + across, {self.access.size(self.made.column)} - 1)")
                for leaf, number in self.vectors.items():
                    place = f"vectors + 4 * across + {4 * p.columns * number}"
                    out(f"shared_store_f32({place}, {self.access.leaf(leaf, self.epilogue.index)})")
        out(barrier)

    def _rows(self, leaf: Node) -> None:
        """Rows of a tensor to where those of the result are staged: every warp asks for its 16, and waits for them when
        it has its sums."""
        out, p, column = self.out, self.plan, axis_name(self.made.column)
        across = p.own_columns // 8
        out.comment(f"{operand_name(leaf.attr.name)} of the warp's rows to where its results are staged.")
        out("tma_store_wait()", "syncwarp()", f"own_first = {self.kernel.own_first(0)}")
        out(f"staged = {self.kernel.staging()} * {16 * p.pitch}")
        out(f"own_staged = staged + {p.pitch} * (lane >> 2) + 4 * (lane & 3)")
        with out.block(f"for k in range({across // 2}):"):
            out("chunk = 32 * k + lane", f"line = chunk // {across}", f"place = chunk - {across} * line")
            size = self.access.size(self.made.column)
            out(f"clamped_{column} = min(column_first + 8 * place, {size} - 8)  # beyond the end: what nobody reads")
            self.epilogue.indices("own_first + line", True)
            index = self.access.place(leaf, self.epilogue.index)
            fetch, name = self.access.operands[leaf.attr.name].dtype, self.access.array_names[leaf.attr.name]
            out(f"fetch_{fetch}x8({name}, {index}, staged + {p.pitch} * line + 16 * place)")
