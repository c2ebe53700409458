"""Split-K: a product with few tiles and many terms, whose terms are shared out among blocks all over the device.

Every tile is computed in parts, each of a run of chunks of terms; a part writes its sums in float32, and a kernel of
rows behind the product adds those of all parts and computes the epilogue. Each sum is added in the same order in every
call, whatever blocks run first. Where few rows are multiplied, clusters share out terms, too
(`redalg.kernels.gemm.narrow`), and exchange sums in shared memory; there are at most 8 blocks of a cluster, and these
parts take as many as there are.

`laws` has one entry for each condition, with its reason; `seconds` predicts both kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from redalg import _hooks
from redalg.graph.node import fresh, reduction, state, substitute, tensor, walk
from redalg.kernels.gemm.match import TYPES, Cut, sums_of
from redalg.kernels.gemm.narrow import Rates
from redalg.kernels.gemm.tiles import FILL, GemmPlan, Sharing, blocks_of, slowed
from redalg.kernels.ir.program import STORAGE, Result
from redalg.kernels.schedule.calibration import calibration_of
from redalg.kernels.schedule.choose import micro
from redalg.kernels.schedule.target import Target
from redalg.language.spec import Spec

if TYPE_CHECKING:
    from redalg.form import Form

OVER = 1.06  # predicted over measured of one kernel of few rows, in the median (57 to 256 rows)
GAIN = 0.9  # of the time of one kernel, that both together have to stay below
LEAST = 4  # chunks of a part, at least
# With tiles by rounds, of which the longest part decides; few rows, whose parts overlap, have fitted ones of their own.
KNOWN = Rates(filled=6.2e12, each=117e9, fill=0.54e-6, couple=0.9e-6)


@dataclass(frozen=True)
class Splitting:
    """A product whose terms may be shared out: its rows, columns and batches, and the device."""

    rows: int
    columns: int
    batches: int
    target: Target

    def parted(self, plan: GemmPlan) -> Iterator[GemmPlan]:
        """The plan with its terms in so many parts that they make one round of the multiprocessors, or two; also by
        pairs of blocks that share the right operand."""
        for blocks, rounds in product((1, 2) if self.rows > plan.rows else (1,), (1, 2)):
            made = replace(plan, sharing=Sharing(blocks), bulk=False)
            alone = blocks * blocks_of(made, self.rows, self.columns, self.batches)[0]
            parts = min(rounds * self.target.multiprocessors // alone, plan.chunks // LEAST)
            if parts > 1:
                made = replace(made, parts=parts)
                yield replace(made, parts=-(-plan.chunks // made.own_chunks))

    def seconds(self, plan: GemmPlan) -> float:
        """Of one kernel, or of both, launches included."""
        blocks, target = plan.cluster * blocks_of(plan, self.rows, self.columns, self.batches)[0], self.target
        rounds, known = -(-blocks // target.multiprocessors), calibration_of(target.name)
        chunk, area = plan.left_bytes + plan.right_bytes, plan.rows * plan.columns * plan.products
        brought = plan.left_bytes + plan.right_bytes / plan.sharing.blocks
        each = plan.own_chunks + FILL
        computing = 2 * area * slowed(area) * plan.chunk * target.multiprocessors / known.tensor_cores.rate
        once = STORAGE[plan.kinds[0]] * plan.terms * self.batches * (self.rows + plan.products * self.columns)
        moved = max(
            rounds * each * max(computing, chunk / KNOWN.each),
            blocks * plan.own_chunks * brought / KNOWN.filled,
            once / target.reachable,
        )
        alone = target.launch + moved + KNOWN.fill + KNOWN.couple * (plan.sharing.blocks > 1)
        if plan.parts == 1:
            return alone
        sums = 4 * plan.parts * self.batches * self.rows * self.columns * plan.products
        return alone + target.launch + 2 * sums / KNOWN.filled


def chosen(plans: Sequence[GemmPlan], made: Splitting, alone: float) -> GemmPlan | str:
    """Tiles in parts, where both kernels take less than `alone`, of one kernel; else why there are none, empty where
    every multiprocessor has a tile anyway."""
    found = [parted for plan in plans for parted in made.parted(plan)]
    best = min(found, key=made.seconds, default=None)
    if best is None:
        return ""
    seconds = made.seconds(best)
    return best if seconds <= GAIN * alone else f"{micro(seconds)} are predicted with it, and {micro(alone)} without"


def laws(cut: Cut, kinds: tuple[str, str], pixels: bool, part: bool, whole: bool) -> Iterator[tuple[bool, str]]:
    """Whether each law holds, and what is wrong where it does not. `part`: another product reads this one; `whole`: one
    launch, or one order of additions is asked for."""
    yield not whole, "one launch, or one order of additions whatever the number of rows, is asked for"
    yield {*kinds} <= {*TYPES}, "sums of float8 leave the tensor cores chunk by chunk"
    yield not pixels, "terms are taps of windows"
    yield not (part or any(cut.chained)), "it is a part of a chain"
    yield not any(cut.given), "kernels before it write results, or stages of the epilogue"


def refusal(cut: Cut, kinds: tuple[str, str], pixels: bool, part: bool, whole: bool) -> str:
    """Which law stands against it; empty if none does."""
    return next((why for holds, why in laws(cut, kinds, pixels, part, whole) if not holds), "")


# --- what is handed on -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Partial:
    """Sums on their way: the axis of the parts, the array of each product's sums, and the spec that adds them."""

    axis: str
    names: tuple[str, ...]
    spec: Spec

    def results(self, cut: Cut) -> tuple[Result, ...]:
        """What the product writes in the place of its results."""
        axes = (*cut.batch, *cut.rows, cut.column)
        nodes = [state(sums_of(k), axes) for k in range(len(self.names))]
        return tuple(Result(n, (self.axis, *axes), "float32", node) for n, node in zip(self.names, nodes, strict=True))


@lru_cache(maxsize=256)
def summed(spec: Spec, axis: str) -> Form:
    """The form that adds the sums of all parts."""
    return _hooks.derive(spec, axis=axis, max_passes=2)


def partial_of(cut: Cut) -> Partial:
    """The spec of the kernel behind the product: its outputs, of sums over parts.

    >>> from redalg.kernels.gemm.match import cut
    >>> import redalg as ra
    >>> spec = ra.parse("return y = relu(sum[t](x[t,i]*w[t,k]) + c[k])")
    >>> made = partial_of(cut(spec, ("t",), dict.fromkeys("xwc", "bfloat16")))
    >>> from redalg.text.nodes import short
    >>> print(short(made.spec.outputs["y"]), made.axis, made.names)
    relu(sum[part](partial[part,i,k]) + c[k]) part ('partial',)
    """
    taken = {t.name for t in cut.spec.tensors} | {*cut.spec.outputs} | {*cut.spec.axes}
    axes = (*cut.batch, *cut.rows, cut.column)
    axis, names = fresh("part", taken), tuple(fresh("partial", taken) for _ in range(len(cut.sides) - 1))
    leaves = {state(sums_of(k), axes): reduction("sum", (axis,), tensor(n, (axis, *axes))) for k, n in enumerate(names)}
    outputs = {n: substitute(x, dict(leaves), raw=True) for n, x in cut.outputs.items()}
    read = {n.attr for n in walk(*outputs.values()) if n.op == "tensor"}
    counted = {n.attr for n in walk(*outputs.values()) if n.op == "size" and n.attr in cut.along}
    # A length of the stream (a mean) is that of a tensor that nothing else is read of.
    read |= {next(t for t in cut.spec.tensors if a in t.axes) for a in counted}
    order = {n: cut.spec.output_axes[n] for n in outputs}
    return Partial(axis, names, Spec.from_nodes(outputs, tensors=sorted(read, key=lambda t: t.name), order=order))
