"""Tiles of a matrix product on tensor cores, where they lie in shared memory, and which operands are read in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from redalg.kernels.intrinsics_tensor import TYPE
from redalg.kernels.ir import STORAGE
from redalg.kernels.layouts import View
from redalg.kernels.target import Target
from redalg.kernels.tensor_gemm_class import FLOAT8, Cut, Side
from redalg.kernels.tensor_plan import ROOM

PITCH = 144  # bytes from one staged row of 64 results to the next: neighbours start in other banks


@dataclass(frozen=True)
class Place:
    """Where an operand's matrix is read: a tensor of the call, or scratch that a kernel before this one fills.

    ``flat``: the axis that numbers rows lies contiguous, not the stream. ``why``: it is not read in place; "" if it is.
    ``strides``: in elements, of the batch, the rows (one axis) and the stream.
    """

    name: str
    dtype: str
    strides: tuple[int, ...]
    flat: bool = False
    why: str = ""


@dataclass(frozen=True)
class GemmPlan:
    """Sizes of one kernel.

    ``teams`` warpgroups of 64·``halves`` rows each, tiles ``columns`` wide, ``stages`` chunks of 128 bytes ahead.
    ``cluster``: blocks that share ``shared``, the operand ("left" or "right") each brings a part of. ``promoted``: sums
    of a chunk are added to sums in float32, since products of float8 are added to about 14 bits by the tensor cores.
    ``group``: rows of blocks that are computed before the next columns. ``staged``: results are written by way of
    shared memory, 16 bytes at a time; ``vector``: pairs of neighbours, else single numbers.
    """

    kinds: tuple[str, str]
    flat: bool
    terms: int
    teams: int
    halves: int
    columns: int
    promoted: bool
    cluster: int = 1
    shared: str = "right"
    group: int = 8
    staged: bool = False
    vector: bool = False

    @property
    def rows(self) -> int:
        return 64 * self.teams * self.halves

    @property
    def threads(self) -> int:
        return 128 * (self.teams + 1)

    @property
    def chunk(self) -> int:
        """Terms that lie in 128 bytes."""
        return 128 // STORAGE[self.kinds[0]]

    @property
    def chunks(self) -> int:
        return -(-self.terms // self.chunk)

    @property
    def left_bytes(self) -> int:
        return 128 * self.rows

    @property
    def right_bytes(self) -> int:
        return 128 * self.columns

    @property
    def staging(self) -> int:
        """Bytes for results on their way."""
        return 4 * self.teams * 16 * PITCH if self.staged else 0

    @property
    def stages(self) -> int:
        room = ROOM - 1024 - 256 - self.staging
        return min(8, room // (self.left_bytes + self.right_bytes))

    @property
    def barriers(self) -> int:
        """Where barriers lie; results are staged after them."""
        return self.stages * (self.left_bytes + self.right_bytes)

    @property
    def size(self) -> int:
        """Bytes of shared memory, 1 KB of them for rounding its address."""
        return self.barriers + 256 + self.staging + 1024

    @property
    def dtype(self) -> str:
        """The type of operands as `tile_product` takes it."""
        return "/".join(dict.fromkeys(self.kinds)) if self.kinds[0] != self.kinds[1] else self.kinds[0]


# --- operands --------------------------------------------------------------------------------------------------------


def place_of(cut: Cut, side: Side, kind: str, sizes: Mapping[str, int], views: Mapping[str, View]) -> Place:
    """The operand in place if the tensor memory accelerator can read it there, else in scratch."""
    why = _not_in_place(cut, side, kind, sizes, views)
    own = side.axes[len(cut.batch) :]
    if isinstance(why, Place):
        return why
    each = STORAGE[kind]
    pitch = -(-sizes[cut.stream] * each // 16) * 16 // each
    rows = prod(sizes[a] for a in own)
    shape = [sizes[a] for a in cut.batch]
    outer = [prod(shape[d + 1 :]) * rows * pitch for d in range(len(shape))]
    return Place(side.name, kind, (*outer, pitch, 1), False, why)


def _not_in_place(cut: Cut, side: Side, kind: str, sizes: Mapping[str, int], views: Mapping[str, View]) -> Place | str:
    if not side.bare:
        return "it is computed"
    leaf = side.node.attr
    if side.format != kind:
        return f"{leaf.name} is {side.format}, and {kind} is multiplied"
    axes = [*side.axes, cut.stream]
    own = side.axes[len(cut.batch) :]
    if set(axes) != set(leaf.axes) or len(own) != 1 or len(axes) > 5:
        return f"{leaf.name} has other axes than {', '.join(axes)}"
    view = views[leaf.name]
    strides = dict(zip(leaf.axes, view.strides, strict=True))
    row, stream = own[0], cut.stream
    flat = strides[stream] != 1 or sizes[stream] == 1 and strides[row] == 1
    inner = row if flat else stream
    if strides[inner] != 1 and sizes[inner] > 1:
        return f"{leaf.name} is contiguous along neither {row} nor {stream}"
    if flat and (kind in FLOAT8 or side is cut.left):
        return f"{leaf.name} is not contiguous along {stream}"
    for axis in axes:
        step = strides[axis] * STORAGE[kind]
        if axis != inner and sizes[axis] > 1 and (step % 16 or step <= 0):
            return f"{leaf.name} has a stride of {step} bytes along {axis}, not a positive multiple of 16"
    if view.align < 16:
        return f"{leaf.name} does not start at a multiple of 16 bytes"
    return Place(leaf.name, kind, tuple(strides[a] for a in axes), flat)


# --- tiles -----------------------------------------------------------------------------------------------------------

Shape = tuple[int, int, int]  # warpgroups, halves, columns


def shapes(promoted: bool, broad: bool = True) -> Iterator[Shape]:
    """Tiles whose sums fit registers, the largest first: these where the epilogue takes few, `broad`."""
    if broad and promoted:
        yield 2, 2, 128
    elif broad:
        yield 2, 1, 256
    for columns in (128, 64):
        for teams in (2, 1):
            yield teams, 1, columns


def tiles_of(
    kinds: tuple[str, str], flat: bool, rows: int, columns: int, terms: int, batches: int, target: Target,
    promoted: bool = True, cluster: bool = True, broad: bool = True,
) -> GemmPlan:  # fmt: skip
    """The tiles that take the least time, by a model of rounds: every multiprocessor computes one tile at a time.

    ``promoted``, whatever the types of a spec: sums of float8 products that stay with the tensor cores are off by up to
    33·2^-13 of their largest for every 32 terms, K/32·33·2^-13 of Σ|L·R| in all, which at K = 4096 is half of it. No
    rounding of the spec bounds that: operands are exact (their casts are part of the spec), and results are rounded by
    2^-9 of themselves, not of Σ|L·R|. Promoted, it is 4·33·2^-13, whatever K is.

    >>> from redalg.kernels.target import H200
    >>> kinds = "bfloat16", "bfloat16"
    >>> p = tiles_of(kinds, False, 4096, 4096, 4096, 1, H200)
    >>> (p.rows, p.columns, p.cluster, p.stages), tiles_of(kinds, False, 300, 200, 4096, 1, H200).columns
    ((128, 256, 2, 4), 64)
    """
    promoted = promoted and kinds[0] in FLOAT8

    def made(shape: Shape) -> GemmPlan:
        teams, halves, wide = shape
        plan = GemmPlan(kinds, flat, terms, teams, halves, wide, promoted, staged=True)
        down, over = -(-rows // plan.rows), -(-columns // wide)
        shared = "left" if halves == 2 else "right"
        pairs = (over if shared == "left" else down) > 1 and wide * plan.rows >= 128 * 128
        size = 2 if cluster and pairs and batches * down * over > target.multiprocessors // 2 else 1
        side = (target.multiprocessors / size) ** 0.5
        tall = plan.rows * (size if shared == "right" else 1)
        broad = wide * (size if shared == "left" else 1)
        return GemmPlan(
            kinds, flat, terms, teams, halves, wide, promoted, size, shared,
            max(1, round(side * (broad / tall) ** 0.5)), True,
        )  # fmt: skip

    def time(plan: GemmPlan) -> float:
        rounds = -(-blocks_of(plan, rows, columns, batches)[0] // (target.multiprocessors // plan.cluster))
        area = plan.rows * plan.columns
        slow = 1.0 if area >= 128 * 256 else 1.15 if area >= 128 * 128 else 1.4 if area >= 64 * 128 else 1.8
        return rounds * (area * slow * (plan.chunks + 4))

    return min(map(made, shapes(promoted, broad)), key=time)


def blocks_of(plan: GemmPlan, rows: int, columns: int, batches: int) -> tuple[int, int, int]:
    """Tiles of clusters in all, and how many of them lie below and beside each other."""
    tall = plan.rows * (plan.cluster if plan.shared == "right" else 1)
    wide = plan.columns * (plan.cluster if plan.shared == "left" else 1)
    down, over = -(-rows // tall), -(-columns // wide)
    return batches * down * over, down, over


assert set(FLOAT8) < set(TYPE)
