"""Reductions along the columns of a product, in its epilogue: softmax, norms and losses of rows that it has just made.

The product's tiles lie side by side in the blocks of a cluster, so that a cluster has whole rows. Every block lifts the
state of its columns from sums in registers, by the program of the form (`redalg.kernels.ir.program`), and sends it to
all blocks through distributed shared memory, once; each of them merges the states of all, in the order of the columns,
by the form's own combine. What merges is derived, as everywhere: moments move to a new mean, sums of exponentials to a
new maximum. Results are written from the sums, which never left the registers.

>>> from redalg.kernels.schedule.target import H200
>>> made = Narrow(("bfloat16", "bfloat16"), False, 4096, 1024, 1024, 1, 1, H200)
>>> p = chosen(made, 2, True)
>>> p.sharing.blocks * p.columns >= 1024, p.states, p.exchanged > 0
(True, 2, True)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from redalg.graph.node import Node, substitute, walk
from redalg.graph.operators import Average, Extremum, NumberExtremum, Product, Sum
from redalg.kernels.gemm.match import SUMS
from redalg.kernels.gemm.narrow import Narrow
from redalg.kernels.gemm.tiles import GemmPlan, Sharing, blocks_of
from redalg.kernels.ir.program import First, FoldOperator, Join, Loop, Pass, Program, Result, Step, step_nodes
from redalg.kernels.launch.planned import Tile
from redalg.kernels.tile.match import Outside

BLOCKS = (1, 2, 4, 8)  # of a cluster, as far as the device has them: side by side, with all columns of their rows
BROAD = 128  # columns of a tile, at most, where elements read more of a column than the sums
FOLD = 1.2e-6  # seconds of a tile: what is folded from registers, and what becomes of it
MEET = 1.6e-6  # of a tile of several blocks: from sending states until all are merged
NUMBER = (Sum, Average, Extremum, Product)  # operators of single numbers, which a thread folds from registers


@dataclass(frozen=True)
class RowStates:
    """What becomes of a product's rows in its epilogue. ``program``: of the rows, whose stream is the product's
    columns; ``tensor``: what it reads the product as, ``value``: what that is of the sums (None until it is known);
    ``others``: results that are the product itself; ``whole``: the last block has no columns beyond the end."""

    program: Program
    tensor: str
    value: Node | None = None
    others: tuple[Result, ...] = ()
    whole: bool = False

    @property
    def walk(self) -> Pass:
        return self.program.passes[0]

    def over(self, results: Sequence[Result]) -> RowStates:
        """With what the tensor is of the sums, by the product's own results. Raises: Outside."""
        nodes = {r.name: r.node for r in results}
        if self.tensor not in nodes or not any(_is_sums(n) for n in walk(nodes[self.tensor])):
            raise Outside("what its rows read is not made of the product's sums")
        value, others = nodes[self.tensor], [r for r in results if r.name in {b.name for b in self.others}]
        if any(r.node is not value for r in others):
            raise Outside("another result is made of the product, by a map of its own")
        return replace(self, value=value, others=tuple(replace(r, node=_sums_of(value)) for r in others))

    def results(self) -> tuple[Result, ...]:
        """All results, over sums in whose place the tensor's values have come."""
        own = (replace(r, node=self._read(r.node), keeps=False) for r in self.program.results)
        return (*self.others, *own)

    def steps(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Steps over these sums."""
        return tuple(self._step(s) for s in steps)

    def _step(self, step: Step) -> Step:
        if isinstance(step, Loop):
            folds = (replace(f, bodies=tuple(map(self._read, f.bodies))) for f in step.folds)
            return replace(step, folds=tuple(folds))
        return step if isinstance(step, Join) else replace(step, node=self._read(step.node))

    def _read(self, node: Node) -> Node:
        assert self.value is not None
        leaves = {n: _sums_of(self.value) for n in walk(node) if n.op == "tensor" and n.attr.name == self.tensor}
        return substitute(node, dict(leaves), raw=True)

    def elements(self) -> tuple[Node, ...]:
        """What is computed of elements: the tensor, what is folded, and results with columns."""
        assert self.value is not None
        folded = (n for s in self.steps(self.walk.lift) if isinstance(s, Loop | First) for n in step_nodes(s))
        return (self.value, *folded, *(r.node for r in self.results()))


def _sums_of(value: Node) -> Node:
    """The leaf that stands for the values, once they are in the place of the sums."""
    return next(filter(_is_sums, walk(value)))


def _is_sums(n: Node) -> bool:
    return n.op == "state" and n.attr.name == SUMS


def require_folds(program: Program, column: str) -> None:
    """Raises: Outside for rows whose reductions an epilogue does not have."""
    for refused, why in (
        (program.stream != (column,), "its rows are reduced along another axis"),
        (len(program.passes) != 1, "its rows take several passes"),
        (bool(program.columns or program.places or program.inner), "states of its rows are arrays, or elements fold"),
        (program.real != "float32", "it accumulates in float64"),
        (any(map(_is_masked, program.results)), "a result says what it is of no element, or is added over rows"),
    ):
        if refused:
            raise Outside(why)
    walked = program.passes[0]
    if walked.exports or any(p.kind != "f" or p.top is not None for p in walked.parts):
        raise Outside("the state of its rows is not of single numbers")
    for step in (*walked.lift, *walked.combine):
        _require_numbers(step)


def _is_masked(result: Result) -> bool:
    return result.masked is not None or result.summed


def _require_numbers(step: Step) -> None:
    """Raises: Outside where a step is not of all elements, or joins more than numbers."""
    for op in _operators(step):
        if not isinstance(op, NUMBER) or isinstance(op, NumberExtremum):
            raise Outside(f"its rows are folded by {op.kind}")
    if isinstance(step, Loop) and step.part:
        raise Outside("its rows are sampled")


def _operators(step: Step) -> Iterator[FoldOperator]:
    if isinstance(step, Loop):
        yield from (f.op for f in step.folds)
    elif isinstance(step, Join):
        yield step.op


# --- tiles -----------------------------------------------------------------------------------------------------------


def space(made: Narrow, states: int) -> Iterator[GemmPlan]:
    """Every tile that is looked at. `states`: numbers of a row's state."""
    for consumers, blocks, columns in product((2, 1), BLOCKS, made.widths()):
        yield GemmPlan(
            made.kinds,
            made.flat,
            made.terms,
            consumers,
            1,
            columns,
            False,
            Sharing(blocks, Tile.LEFT),
            1,
            staged=True,
            most_shared=made.target.most_shared,
            left_flat=made.left_flat,
            joined=made.joined,
            states=states,
        )


def plans(made: Narrow, states: int, broad: bool) -> Iterator[GemmPlan]:
    """Tiles of clusters that have all columns. `broad`: elements read nothing of columns but the sums."""
    return (plan for plan in space(made, states) if all(holds for holds, _ in laws(plan, made, broad)))


def laws(plan: GemmPlan, made: Narrow, broad: bool) -> Iterator[tuple[bool, str]]:
    """Whether each law holds, and what is wrong where it does not."""
    blocks = plan.sharing.blocks
    yield blocks <= made.target.block.cluster_limit, "a cluster of more blocks than the device takes"
    yield (blocks - 1) * plan.columns < made.columns <= blocks * plan.columns, "a cluster has not just all columns"
    least = 64 if plan.left_flat else 8
    yield plan.left_rows % (least * blocks) == 0, "a block brings no whole patterns of 64 rows, or of 8"
    yield plan.stages >= 2, "no two stages fit shared memory"
    yield broad or plan.columns <= BROAD, "elements read more of columns than registers hold"
    yield made.rows > 64 * (plan.consumers - 1), "a warpgroup without rows"


def chosen(made: Narrow, states: int, broad: bool) -> GemmPlan:
    """The tiles that take the least time. Raises: Outside where no cluster has all columns."""
    best = min(plans(made, states, broad), key=lambda p: seconds(made, p), default=None)
    if best is None:
        raise Outside(f"no cluster of the device has all {made.columns} columns of a row in registers")
    return best


def seconds(made: Narrow, plan: GemmPlan) -> float:
    """The time without a launch."""
    rounds = -(-blocks_of(plan, made.rows, made.columns, made.batches)[0] // made.running(plan))
    return made.seconds(plan) + rounds * (FOLD + MEET * (plan.sharing.blocks > 1))


def told(states: RowStates, plan: GemmPlan) -> str:
    """How rows are reduced, in words."""
    parts, blocks = ", ".join(p.name for p in states.walk.parts), plan.sharing.blocks
    meeting = f", merged over the {blocks} blocks of a cluster" if blocks > 1 else ""
    return f"rows are reduced in the epilogue, from sums in registers: {parts}{meeting}"


__all__ = ["RowStates", "chosen", "laws", "plans", "require_folds", "seconds", "told"]
