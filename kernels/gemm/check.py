"""Invariants of a matrix product under way: what every `GemmDraft` keeps, tested after every pass of `GEMM`.

A draft that breaks one is a defect of this package and never of a spec, so that `check` raises an error that says so,
before anything is printed. The invariants, by the word each error begins with::

    axes      the batch, the rows, the column and the stream are different axes of length 1 or more
    operands  an operand has the batch's axes and its own, is of a type that is multiplied, and lies where copies of 16
              bytes can start: one stride is 1, the others are multiples of 16 bytes
    epilogue  results read the sums, tensors of the call and states that are prepared, and each is written once
    tiles     sums fit the registers of a thread, stages and results the shared memory of a block
    boxes     a tile is copied by TMA boxes of at most 256 in each direction, of tensors of at most 5 axes
    views     scratch is filled by a kernel before the product, as large as its axes are long, rows apart
    grid      tiles cover the results, and blocks, in whole clusters, are no more than multiprocessors
    library   what a library multiplies is what the kernel would read, and it writes a result of it
    operations  the tile program keeps its laws (`redalg.kernels.tile.level.check`)
    launches  every argument of the kernel is known, and so are the seconds it takes
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isfinite, prod
from typing import TYPE_CHECKING, NoReturn

from redalg.errors import RedalgError
from redalg.graph.node import Node, walk
from redalg.kernels.gemm.match import Cut, sums_of
from redalg.kernels.gemm.places import Place
from redalg.kernels.gemm.prologue import GROUP
from redalg.kernels.gemm.tiles import SIDES, blocks_of
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.ir.tensor_cores import TYPE
from redalg.kernels.launch.planned import Map, Planned
from redalg.kernels.tile.level.check import broken
from redalg.kernels.tile.plan import sums_held

if TYPE_CHECKING:
    from redalg.kernels.gemm.passes import GemmDraft

BARRIERS = 256  # bytes for the barriers of all stages, 16 for each
MOST_STAGES = 8
BOX, AXES = 256, 5  # rows of a TMA box, axes of its tensor; CUDA driver API, cuTensorMapEncodeTiled
ALIGNED = 16  # bytes that copies start at multiples of


def check(draft: GemmDraft) -> None:
    """Nothing, if the draft keeps every invariant of what its passes have written so far.

    Raises: RedalgError that names the invariant; it is a defect of redalg, whatever the spec.
    """
    _Checker(draft).run()


class _Checker:
    def __init__(self, draft: GemmDraft) -> None:
        self.draft, self.target, self.sizes = draft, draft.call.target, draft.sizes

    def fail(self, what: str, why: str) -> NoReturn:
        where = f"the matrix product of {self.draft.program.name}"
        raise RedalgError(what, where, why, "this is a defect of redalg, not of the spec: please report the spec")

    def require(self, holds: bool, what: str, why: str) -> None:
        if not holds:
            self.fail(what, why)

    def run(self) -> None:
        """Every part of the draft that there is, in the order of the passes."""
        draft = self.draft
        if draft.made is not None:
            self.axes(draft.made)
            self.epilogue(draft.made)
        if draft.operands is not None:
            self.operands()
        if draft.tiles is not None:
            self.registers()
            self.shared()
        if draft.product is not None:
            if draft.product.plan.instruction == "wgmma":
                left, right = self.box_rows()
                for k, m in enumerate(draft.product.maps):
                    whole = k % 2 if draft.product.plan.joined else k
                    self.boxes(m, right if whole else left)
            self.views()
            self.grid()
        self.vendor()
        for why in broken(self.draft.operations) if self.draft.operations is not None else ():
            self.fail(f"operations: {why}", "a tile program keeps its laws")
        self.launches()

    # --- what is multiplied ------------------------------------------------------------------------------------------

    def axes(self, made: Cut) -> None:
        every = (*made.batch, *made.rows, made.column, made.stream, *{x.stream for x in made.joined} - {made.stream})
        self.require(len({*every}) == len(every), f"axes: {', '.join(every)}", "an axis plays one part")
        for axis in every:
            length = self.sizes.get(axis, 0)
            self.require(length > 0, f"axes: {axis} of length {length}", "a product of nothing is no launch")

    def epilogue(self, made: Cut) -> None:
        known = (
            {sums_of(k) for k in range(len(made.parallel) + 1)}
            | {o.name for o in self.draft.program.operands}
            | {*made.states}
        )
        given = {name for names in made.given for name in names}
        for name in made.states:
            self.require(name in given, f"epilogue: the state {name}", "neither operand's kernel makes it")
        for name, node in made.outputs.items():
            self.leaves(name, node, known, {*made.batch, *made.rows, made.column})
        wanted, made_here = [r.name for r in self.draft.program.results], [*made.outputs, *given - {*made.states}]
        self.require(
            sorted(wanted) == sorted(made_here),
            f"epilogue: results {', '.join(made_here)}",
            f"the spec has {', '.join(wanted)}",
        )

    def leaves(self, name: str, node: Node, known: Collection[str], axes: Collection[str]) -> None:
        for leaf in walk(node):
            if leaf.op in ("state", "tensor"):
                self.require(leaf.attr.name in known, f"epilogue: {name} reads {leaf.attr.name}", "nothing makes it")
                self.require(
                    leaf.axes <= {*axes},
                    f"epilogue: {name} reads {leaf.attr.name} along {', '.join(sorted(leaf.axes - {*axes}))}",
                    f"a result has the axes {', '.join(axes)}",
                )

    def operands(self) -> None:
        made, operands = self.draft.made, self.draft.operands
        assert made is not None and operands is not None
        kinds = (*operands.kinds, *operands.kinds[1:] * len(made.parallel))
        for product, places in zip((made, *made.joined), (operands.places, *operands.joined), strict=True):
            self.places(product, kinds, places)
        written, states = [r.name for r in operands.results], self.draft.states
        wanted = made.outputs if states is None else [r.name for r in states.results()]
        self.require(sorted(written) == sorted(wanted), f"epilogue: writes {written}", "each result once")

    def places(self, made: Cut, kinds: Sequence[str], places: Sequence[Place]) -> None:
        for side, kind, place in zip(made.sides, kinds, places, strict=True):
            self.require(kind in TYPE, f"operands: {side.name} of {kind}", f"tensor cores multiply {', '.join(TYPE)}")
            self.require(place.dtype == kind, f"operands: {place.name} of {place.dtype}", f"{kind} is multiplied")
            apart = len(place.strides) - len(made.batch) - 2
            self.require(not apart, f"operands: {place.name} has strides {place.strides}", "of batch, rows and stream")
            lengths = (*(self.sizes[a] for a in made.batch), self.rows_of(side.axes), self.sizes[made.stream])
            inner = -2 if place.flat else -1
            steps = [s * STORAGE[kind] for k, s in enumerate(place.strides) if k != len(lengths) + inner]
            long = [n for k, n in enumerate(lengths) if k != len(lengths) + inner]
            contiguous = place.strides[inner] == 1 or lengths[inner] == 1
            aligned = all(n == 1 or s > 0 and s % ALIGNED == 0 for n, s in zip(long, steps, strict=True))
            self.require(
                contiguous and aligned,
                f"operands: {place.name} has strides {place.strides}",
                "copies are of 16 bytes",
            )

    def rows_of(self, axes: tuple[str, ...]) -> int:
        """How many rows an operand's matrix has."""
        made = self.draft.made
        assert made is not None
        return prod(self.sizes[a] for a in axes[len(made.batch) :])

    # --- tiles -------------------------------------------------------------------------------------------------------

    def registers(self) -> None:
        plan, operands, made = self.draft.tiles, self.draft.operands, self.draft.made
        assert plan is not None and operands is not None and made is not None
        one, held = sums_held(plan.consumers)
        self.require(plan.sums <= held, f"tiles: {plan.sums} sums a thread", f"registers hold {held}")
        self.require(
            plan.promoted or plan.instruction != "wgmma" or plan.sums <= one,
            f"tiles: {plan.sums} sums of a product",
            f"one of {plan.consumers} warpgroups has {one}",
        )
        self.require(
            plan.promoted or plan.halves == 1,
            f"tiles: {plan.halves} halves",
            "other sums are of one half",
        )
        self.require(
            (plan.kinds, plan.terms, plan.left_flat, plan.flat)
            == (operands.kinds, self.draft.terms, *(p.flat for p in operands.places[:2])),
            f"tiles: {plan.terms} terms of {'/'.join(plan.kinds)}",
            "they are those of the operands",
        )

    def shared(self) -> None:
        plan, most = self.draft.tiles, self.target.most_shared
        assert plan is not None
        self.require(plan.size <= most, f"tiles: {plan.size} bytes of shared memory", f"a block has {most}")
        self.require(2 <= plan.stages <= MOST_STAGES, f"tiles: {plan.stages} stages", f"from 2 to {MOST_STAGES}")
        used = 2 * 8 * plan.stages + 8 * (plan.split > 1) + 16 * (plan.meeting > 1)
        self.require(used <= BARRIERS, f"tiles: barriers of {used} bytes", f"there are {BARRIERS}")
        most = self.target.block.threads
        self.require(plan.threads <= most, f"tiles: {plan.threads} threads", f"a block has at most {most}")
        most = self.target.block.cluster_limit
        self.require(1 <= plan.cluster <= most, f"tiles: clusters of {plan.cluster}", f"the device has {most}")

    def box_rows(self) -> tuple[int, int]:
        """How long a box is: what a block brings of a tile, in boxes of 64 where the stream is not contiguous."""
        plan, operands = self.draft.tiles, self.draft.operands
        assert plan is not None and operands is not None
        shares = [plan.sharing.blocks if plan.shared is side else 1 for side in SIDES]
        left, right = (
            64 if place.flat else rows // share
            for place, rows, share in zip(operands.places[:2], (plan.left_rows, plan.columns), shares, strict=True)
        )
        return left, right

    def boxes(self, m: Map, length: int) -> None:
        self.require(0 < m.rows <= BOX, f"boxes: {m.rows} rows of {m.operand}", f"a box has at most {BOX}")
        self.require(m.rows == length, f"boxes: {m.rows} rows of {m.operand}", f"a block brings {length}")
        self.require(2 <= m.rank <= AXES, f"boxes: {m.operand} along {m.axes}", f"a tensor has 2 to {AXES} axes")
        made = self.draft.product
        assert made is not None
        for axis in m.axes:
            self.require(axis in made.sizes, f"boxes: {m.operand} along {axis}", "the axis has no length")

    # --- what is launched --------------------------------------------------------------------------------------------

    def views(self) -> None:
        made = self.draft.product
        assert made is not None
        filled = {name for first in made.firsts for name in first.results}
        own = {o.name for o in self.draft.program.operands}
        for m in made.maps:
            self.require(m.operand in own | {*made.scratch}, f"views: {m.operand}", "no array holds it")
        for name, (operand, view) in made.scratch.items():
            self.require(name in filled, f"views: {name}", "no kernel before the product fills it")
            shape = tuple(made.sizes[a] for a in operand.axes)
            self.require(view.shape == shape, f"views: {name} of shape {view.shape}", f"its axes make {shape}")
            steps, inner = view.strides, [s * n for s, n in zip(view.strides, shape, strict=True)][1:]
            self.require(
                all(s >= n for s, n in zip(steps, [*inner, 1], strict=False)),
                f"views: {name} has strides {steps}",
                "its rows lie over each other",
            )

    def grid(self) -> None:
        made, plan, draft = self.draft.product, self.draft.tiles, self.draft
        assert made is not None and plan is not None and draft.made is not None
        count, down, over = blocks_of(plan, draft.rows, self.sizes[draft.made.column], draft.batches)
        wanted: Mapping[str, int] = {"tiles": count, "down": down, "over": over, "all_rows": draft.rows}
        self.require(dict(made.fixed) == wanted, f"grid: {dict(made.fixed)}", f"the results take {wanted}")
        most = self.target.multiprocessors * plan.resident
        self.require(0 < made.blocks <= most, f"grid: {made.blocks} blocks", f"from 1 to {most} run at once")
        self.require(
            made.blocks % plan.cluster == 0, f"grid: {made.blocks} blocks", f"they come in clusters of {plan.cluster}"
        )

    def vendor(self) -> None:
        draft = self.draft
        if draft.vendor is None or draft.product is None or draft.operands is None:
            return
        read = {m.operand for m in draft.product.maps}
        for lying in (draft.vendor.left, draft.vendor.right):
            self.require(lying.name in read, f"library: reads {lying.name}", f"the kernel reads {', '.join(read)}")
            least = len(lying.shape) == len(lying.strides) and min(lying.strides) > 0
            self.require(least, f"library: {lying.name} has strides {lying.strides}", f"its shape is {lying.shape}")
        written, size = {r.name for r in draft.operands.results}, draft.rows * draft.sizes[draft.product.gemm.column]
        self.require(draft.vendor.result in written, f"library: writes {draft.vendor.result}", "it is no result")
        self.require(prod(draft.vendor.shape) == size, f"library: writes {draft.vendor.shape}", f"{size} numbers are")

    def launches(self) -> None:
        draft = self.draft
        for kernel in draft.before:
            self.kernel(kernel)
        rows = getattr(draft.joined, "inside", None)  # of a prologue; a chain has none
        if rows is not None:
            threads = rows.schedule.block
            self.require(threads == GROUP, f"launches: {threads} threads prepare rows", f"a warpgroup has {GROUP}")
        if draft.choice is not None:
            seconds = draft.choice.seconds
            self.require(isfinite(seconds) and seconds > 0, f"launches: {seconds} seconds", "a launch takes time")
        if draft.planned is not None:
            self.kernel(draft.planned)
            self.arguments(draft.planned)

    def kernel(self, made: Planned) -> None:
        name, most = made.module.entry, self.target.most_shared
        self.require(made.geometry.blocks > 0, f"launches: {name} of no block", "a grid has one at least")
        self.require(made.module.shared <= most, f"launches: {name}, {made.module.shared} bytes", f"a block has {most}")
        threads = made.module.threads
        self.require(
            threads in (0, made.geometry.threads),
            f"launches: {name} by {made.geometry.threads} threads",
            f"it is written for {threads}",
        )

    def arguments(self, made: Planned) -> None:
        results = {*made.shapes, *made.scratch}
        known = {
            "operand": {o.name for o in self.draft.program.operands} | {*made.scratch},
            "number": {o.name for o in self.draft.program.operands},
            "result": results,
            "size": {*made.sizes},
            "fixed": {*made.fixed},
        }
        for p in made.module.params:
            self.require(
                p.name in known.get(p.role, (p.name,)), f"launches: the {p.role} {p.name}", "the call does not know it"
            )
