"""Tiles of a kernel for the tensor cores of Ampere and Ada: warps of 16 rows, tiles of the stream prefetched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from redalg.graph.node import Node
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.ir.tensor_cores import FP8, pitch_of, terms_of
from redalg.kernels.schedule.target import LEAST, Target
from redalg.kernels.tile.match import Class, Outside, operand_of
from redalg.kernels.tile.plan import EXACT, Contracted, TensorPlan, best_splits, positional, positive, reads, widths_of
from redalg.kernels.tile.top_k import top_k_folds

LONGEST = 256  # terms, or columns, of one row
CHUNK = 64  # terms that come together where there are no columns
LONG_COLUMNS = 128  # of a block of the stream there, where shared memory holds it
REGISTERS = 216  # of a thread, for tiles
TALL = 192  # the same where a warp multiplies 32 rows, but for the left operand, which lies in shared memory
CONVERTED = 176  # the same where 8 bits become 16 on their way
LEAST_SHARED = LEAST.most_shared  # of a block, where tensor cores are slow enough to be fed by one load for one product


@dataclass(frozen=True)
class MmaPlan(TensorPlan):
    """Sizes of one kernel. ``warps`` share a block's tiles of the stream, of which ``stages`` lie in shared memory; all
    of them copy and all of them multiply. ``tall``: times 16 rows of one warp, which multiply what it loads.
    ``bytes_each``: of an element of the left operand, the right one and the tensor with columns. Everything else is as
    in `TensorPlan`."""

    warps: int = 8
    tall: int = 1
    bytes_each: tuple[int, int, int] = (2, 2, 2)

    @property
    def given(self) -> int:
        return self.contracted.given

    @property
    def parts(self) -> tuple[tuple[int, int, int], ...]:
        """Of each contraction: where its terms begin in a row of a tile, how many there are, and as a multiple."""
        found, first = [], 0
        for given in self.widths or (self.given,):
            wide = self.terms_wide if not self.widths else -(-given // self.contracted.step) * self.contracted.step
            found.append((first, given, wide))
            first += wide
        return tuple(found)

    @property
    def held(self) -> int:  # type: ignore[override]
        return 2 * self.tall

    @property
    def rows(self) -> int:
        return 16 * self.tall * self.warps

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def terms_wide(self) -> int:
        """Terms of one row of a tile."""
        return CHUNK if self.long else self.terms

    @property
    def left_pitch(self) -> int:
        """Bytes from a row of the left operand to the next."""
        return pitch_of(self.bytes_each[0] * self.terms_wide)

    @property
    def right_pitch(self) -> int:
        return pitch_of(self.bytes_each[1] * self.terms_wide)

    @property
    def values_pitch(self) -> int:
        return pitch_of(self.bytes_each[2] * self.value_columns)

    @property
    def left_bytes(self) -> int:
        return 0 if self.in_registers else self.rows * self.left_pitch

    @property
    def right_bytes(self) -> int:
        return self.columns * self.right_pitch

    @property
    def values_bytes(self) -> int:
        return self.columns * self.values_pitch if self.value_columns else 0

    @property
    def stage_bytes(self) -> int:
        return self.right_bytes + self.values_bytes + self.left_bytes * self.long

    @property
    def needed(self) -> int:
        """Registers of a thread, for tiles; weights take those of scores where there are two times 16 rows."""
        if self.tall > 1:
            return self.tall * (self.value_columns + self.columns) // 2
        words = self.terms * self.in_registers * max(2, self.bytes_each[0]) // 8
        return (self.value_columns + self.columns) // 2 + self.columns // 4 + words

    @property
    def left_place(self) -> int:
        """Where the left operand lies: in every stage, or after all of them."""
        return self.right_bytes if self.long else self.stages * self.stage_bytes

    @property
    def shared(self) -> int:
        return self.stages * self.stage_bytes + self.left_bytes * (not self.long)


def rate_of(target: Target) -> float:
    """Operations a second of mma.sync: 2048 a cycle for every multiprocessor where shared memory is large, 1024 else.

    Sources: A100 Tensor Core GPU Architecture (2020), 312 TFLOP/s; NVIDIA Ada GPU Architecture (2022), L40S 362.

    >>> from redalg.kernels.schedule.target import A100, L40S
    >>> round(rate_of(A100) / 1e12), round(rate_of(L40S) / 1e12)
    (312, 366)
    """
    return (2048 if has_large_shared(target) else 1024) * target.multiprocessors * target.clock


def require_copies(made: Class, sizes: Mapping[str, int], views: Mapping[str, View], target: Target) -> None:
    """Raises: Outside for shapes, strides or devices that mma.sync and copies of 16 bytes do not take."""
    if target.cc < (8, 0):
        raise Outside(
            f"it is written for compute capability 8.0 and later, the device has {target.cc[0]}.{target.cc[1]}"
        )
    if len(made.products) > 1 and not made.column:
        raise Outside(f"without columns an element holds one contraction, not {len(made.products)}")
    terms = sum(widths_of(made, sizes))
    value_columns = sizes[made.column] if made.column else 0
    if value_columns and max(terms, value_columns) > LONGEST:
        raise Outside(f"{max(terms, value_columns)} terms or columns are more than {LONGEST}")
    if max(sizes[made.row], sizes[made.stream]) >= EXACT:
        raise Outside(f"positions of {EXACT} and more are not told apart by float32")
    for p in made.products:
        _require(made, p.left, p.terms, sizes, views)
        _require(made, p.right, p.terms, sizes, views)
    if made.summed is not None:
        _require(made, made.summed.values, made.summed.column, sizes, views)


def mma_tiles_of(made: Class, sizes: Mapping[str, int], target: Target) -> tuple[Class, MmaPlan]:
    """The tiles, and the class: without a scale where its sign would have no place to go.

    The order in which a row is folded follows from the lengths of the stream, the terms and the columns.

    Raises: Outside where none fits.
    """
    if made.summed is None:
        return long_mma(made, sizes, sum(widths_of(made, sizes)), target)
    return made, fitted_mma(made, sizes, sizes[made.summed.column], target)


def mma_splits_of(made: Class, found: MmaPlan, sizes: Mapping[str, int], target: Target) -> int:
    """Splits of the stream, where tiles of rows are fewer than there are places for blocks."""
    tiles = prod(sizes[a] for a in made.batch) * -(-sizes[made.row] // found.rows)
    blocks = -(-sizes[made.stream] // (LONG_COLUMNS if found.long else found.columns))
    if not found.long:
        blocks = blocks // 2  # a split of a block is not worth a merge
    places = _places(found, target) if made.converted else 1 + _twice(found, target)
    return best_splits(tiles, blocks, places * target.multiprocessors)


def _places(plan: MmaPlan, target: Target) -> int:
    """Blocks that share a multiprocessor, whose threads have 255 registers each."""
    own = target.multiprocessor
    return max(1, min(own.shared // (plan.shared + 1024), own.registers // (256 * plan.threads)))


def fitted_mma(made: Class, sizes: Mapping[str, int], value_columns: int, target: Target) -> MmaPlan:
    """The largest tiles that fit registers and shared memory; two blocks, or one of twice the warps, share it."""
    for found in _offered(made, sizes, value_columns, target):
        most = REGISTERS if found.tall == 1 else CONVERTED if 1 in found.bytes_each else TALL
        if found.shared <= target.most_shared and found.needed <= most:
            break
    else:
        raise Outside("no tile fits registers and shared memory")
    rows = sizes[made.row]  # few of them change no order
    if rows <= 64 and made.converted:
        return _few(found, rows)
    if rows <= 64:
        return replace(found, warps=4, tall=1)
    return replace(found, warps=4) if rows <= found.rows // 2 else found


def _few(found: MmaPlan, rows: int) -> MmaPlan:
    """No more warps than there are rows for, since each converts what it reads."""
    found = replace(found, warps=1 if rows <= 16 else 2 if rows <= 32 else 4, tall=1)
    kept = replace(found, in_registers=True)
    return kept if kept.needed <= REGISTERS else found


def _offered(made: Class, sizes: Mapping[str, int], value_columns: int, target: Target) -> Iterator[MmaPlan]:
    uneven, each = positional(made), (32,) if reads(made) else (64, 32)
    step, widths = terms_of(made.multiplied), widths_of(made, sizes)
    several = widths if len(widths) > 1 else ()
    plain = MmaPlan(
        1,
        0,
        2,
        Contracted(sum(-(-n // step) * step for n in widths), several, sum(widths), step),
        value_columns,
        False,
        uneven,
        warps=4,
        bytes_each=bytes_of(made),
    )
    if has_large_shared(target) and not (
        1 in plain.bytes_each and target.cc < FP8
    ):  # without instructions converting is long
        for columns in each:
            found = replace(plain, columns=columns, tall=2)
            yield from (x for x in (found, replace(found, warps=8)) if x.warps == 8 or _twice(x, target))
    for columns in (64, 32, 16):
        for in_registers in (True, False):
            found = replace(plain, columns=columns, in_registers=in_registers)
            yield from (replace(found, warps=8), found) if not _twice(found, target) else (found,)


def bytes_of(made: Class) -> tuple[int, int, int]:
    left, right, values = (STORAGE[dtype] for dtype in made.stored)
    return left, right, values


def has_large_shared(target: Target) -> bool:
    """Whether shared memory holds two times 16 rows of a warp: where it does, tensor cores are so fast that
    reading it would bind them, were what a warp loads not multiplied twice."""
    return target.most_shared > LEAST_SHARED


def _twice(plan: MmaPlan, target: Target) -> bool:
    """Whether two blocks share a multiprocessor, each of whose blocks takes 1 KB more than it asks for."""
    return 2 * (plan.shared + 1024) <= target.multiprocessor.shared


def long_mma(made: Class, sizes: Mapping[str, int], terms: int, target: Target) -> tuple[Class, MmaPlan]:
    """Tiles of a program without columns."""
    many = sizes[made.row] > 64
    tall, warps = (2, 4) if many and has_large_shared(target) and not top_k_folds(made.walk) else (1, 8 if many else 4)
    found = MmaPlan(
        1,
        LONG_COLUMNS,
        2,
        Contracted(terms, given=terms),
        0,
        False,
        positional(made),
        long=True,
        warps=warps,
        tall=tall,
        bytes_each=bytes_of(made),
    )
    if found.shared > target.most_shared:  # of float32: few rows have to have the same blocks
        found = replace(found, warps=4)
        found = found if found.shared <= target.most_shared else replace(found, columns=64)
    if found.shared > target.most_shared:
        raise Outside("no tile fits shared memory")
    apart = made.scale is not None and not positive(made)
    return replace(made, scale=None) if apart else made, found


def _require(made: Class, leaf: Node, inner: str, sizes: Mapping[str, int], views: Mapping[str, View]) -> None:
    """What copies of 16 bytes ask of a tensor."""
    operand = operand_of(made.program, leaf)
    view, own = views[operand.name], dict(zip(leaf.attr.axes, operand.axes, strict=True))
    strides = dict(zip(operand.axes, view.strides, strict=True))
    bytes_each = STORAGE[operand.dtype]
    if strides[own[inner]] != 1:
        raise Outside(f"{operand.name} is not contiguous along {own[inner]}")
    for axis in operand.axes:
        step = strides[axis] * bytes_each
        if axis != own[inner] and sizes[axis] > 1 and step % 16:
            raise Outside(f"{operand.name} has a stride of {step} bytes along {axis}, not a multiple of 16")
    if view.align < 16 or sizes[own[inner]] % max(8, 16 // bytes_each):
        raise Outside(f"rows of {operand.name} do not start at multiples of 16 bytes")


def described(plan: MmaPlan, stream: str) -> str:
    """The line of `run.explain()`."""
    kept = "in registers" if plan.in_registers else "in shared memory"
    warps = f"{plan.warps} warps of {16 * plan.tall} rows"
    return (
        f"tensor cores by mma.sync: {warps}, blocks of {plan.columns} along {stream}, {plan.stages} tiles in shared "
        f"memory by cp.async" + ("" if plan.long else f", the left operand {kept}")
    )
