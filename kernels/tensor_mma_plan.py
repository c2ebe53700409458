"""Tiles of a kernel for the tensor cores of Ampere and Ada: warps of 16 rows, tiles of the stream copied ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from redalg.graph import Node
from redalg.kernels.gpu_convert import FP8
from redalg.kernels.intrinsics_mma import pitch_of
from redalg.kernels.intrinsics_mma_types import terms_of
from redalg.kernels.ir import STORAGE
from redalg.kernels.layouts import View
from redalg.kernels.target import Target
from redalg.kernels.tensor_class import Class, Outside, operand_of
from redalg.kernels.tensor_picks import picked
from redalg.kernels.tensor_plan import EXACT, TensorPlan, best_pieces, positional, positive, reads, widths_of

LONGEST = 256  # terms, or lanes, of one row
CHUNK = 64  # terms that come together where there are no lanes
REGISTERS = 216  # of a thread, for tiles
TALL = 192  # the same where a warp multiplies 32 rows, but for the left operand, which lies in shared memory
CONVERTED = 176  # the same where 8 bits become 16 on their way
# Shared memory a block may have, in KB: CUDA C++ Programming Guide 13, "Technical Specifications per Compute
# Capability". Devices that are not listed are taken to have the least of these.
ROOM = {(8, 0): 163, (8, 7): 163, (9, 0): 227, (10, 0): 227, (10, 3): 227, (11, 0): 227}
LEAST_ROOM = 99


@dataclass(frozen=True)
class MmaPlan(TensorPlan):
    """Sizes of one kernel. ``warps`` share a block's tiles of the stream, of which ``stages`` lie in
    shared memory; all of them copy and all of them multiply. ``given``: terms there are, of which `terms` are a
    multiple of what an instruction adds, ``step``. ``tall``: times 16 rows of one warp, which multiply what it loads.
    ``bytes_each``: of an element of the left operand, the right one and the tensor with lanes. Everything else is as in
    `TensorPlan`."""

    warps: int = 8
    given: int = 0
    tall: int = 1
    bytes_each: tuple[int, int, int] = (2, 2, 2)
    step: int = 16

    @property
    def parts(self) -> tuple[tuple[int, int, int], ...]:
        """Of each contraction: where its terms begin in a row of a tile, how many there are, and as a multiple."""
        found, first = [], 0
        for given in self.widths or (self.given,):
            wide = self.terms_wide if not self.widths else -(-given // self.step) * self.step
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
        return pitch_of(self.bytes_each[2] * self.lanes)

    @property
    def left_bytes(self) -> int:
        return 0 if self.in_registers else self.rows * self.left_pitch

    @property
    def right_bytes(self) -> int:
        return self.columns * self.right_pitch

    @property
    def values_bytes(self) -> int:
        return self.columns * self.values_pitch if self.lanes else 0

    @property
    def stage_bytes(self) -> int:
        return self.right_bytes + self.values_bytes + self.left_bytes * self.long

    @property
    def needed(self) -> int:
        """Registers of a thread, for tiles; weights take those of scores where there are two times 16 rows."""
        if self.tall > 1:
            return self.tall * (self.lanes + self.columns) // 2
        words = self.terms * self.in_registers * max(2, self.bytes_each[0]) // 8
        return (self.lanes + self.columns) // 2 + self.columns // 4 + words

    @property
    def left_place(self) -> int:
        """Where the left operand lies: in every stage, or after all of them."""
        return self.right_bytes if self.long else self.stages * self.stage_bytes

    @property
    def shared(self) -> int:
        return self.stages * self.stage_bytes + self.left_bytes * (not self.long)


def room_of(target: Target) -> int:
    """Bytes of shared memory a block of the device may have."""
    return ROOM.get(target.cc, LEAST_ROOM) << 10


def rate_of(target: Target) -> float:
    """Operations a second of mma.sync: 2048 a cycle for every multiprocessor where shared memory is large, 1024 else.

    Sources: A100 Tensor Core GPU Architecture (2020), 312 TFLOP/s; NVIDIA Ada GPU Architecture (2022), L40S 362.

    >>> from redalg.kernels.target import A100, L40S
    >>> round(rate_of(A100) / 1e12), round(rate_of(L40S) / 1e12)
    (312, 366)
    """
    return (2048 if roomy(target) else 1024) * target.multiprocessors * target.clock


def mma_plan_of(
    made: Class, sizes: Mapping[str, int], views: Mapping[str, View], target: Target, deterministic: bool = False
) -> tuple[Class, MmaPlan]:
    """The tiles for arrays of these shapes, and the class: without a scale where its sign would have no place to go.

    The order in which a row is folded follows from the lengths of the stream, the terms and the lanes; but for pieces
    of the stream, of which there are none if `deterministic`.

    Raises: Outside for shapes, strides or devices it does not fit.
    """
    if target.cc < (8, 0):
        raise Outside(
            f"it is written for compute capability 8.0 and later, the device has {target.cc[0]}.{target.cc[1]}"
        )
    if len(made.products) > 1 and not made.lane:
        raise Outside(f"without lanes an element holds one contraction, not {len(made.products)}")
    terms = sum(widths_of(made, sizes))
    lanes = sizes[made.lane] if made.lane else 0
    if lanes and max(terms, lanes) > LONGEST:
        raise Outside(f"{max(terms, lanes)} terms or lanes are more than {LONGEST}")
    if max(sizes[made.row], sizes[made.stream]) >= EXACT:
        raise Outside(f"positions of {EXACT} and more are not told apart by float32")
    for p in made.products:
        _require(made, p.left, p.terms, sizes, views)
        _require(made, p.right, p.terms, sizes, views)
    if made.values is None or made.lane is None:
        return long_mma(made, sizes, terms, target, deterministic)
    _require(made, made.values, made.lane, sizes, views)
    found = fitted_mma(made, sizes, lanes, target)
    blocks = -(-sizes[made.stream] // found.columns) // 2  # a piece of a block is not worth a merge
    return made, replace(found, pieces=1 if deterministic else _pieces(made, sizes, found, blocks, target))


def _pieces(made: Class, sizes: Mapping[str, int], found: MmaPlan, blocks: int, target: Target) -> int:
    """Pieces of the stream, where tiles of rows are fewer than there are places for blocks."""
    tiles = prod(sizes[a] for a in made.batch) * -(-sizes[made.row] // found.rows)
    places = _places(found, target) if made.converted else 1 + _twice(found, target)
    return best_pieces(tiles, blocks, places * target.multiprocessors)


def _places(plan: MmaPlan, target: Target) -> int:
    """Blocks that share a multiprocessor, whose threads have 255 registers each."""
    return max(1, min(target.shared // (plan.shared + 1024), target.registers // (256 * plan.threads)))


def fitted_mma(made: Class, sizes: Mapping[str, int], lanes: int, target: Target) -> MmaPlan:
    """The largest tiles that fit registers and shared memory; two blocks, or one of twice the warps, share it."""
    for found in _offered(made, sizes, lanes, target):
        most = REGISTERS if found.tall == 1 else CONVERTED if 1 in found.bytes_each else TALL
        if found.shared <= room_of(target) and found.needed <= most:
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


def _offered(made: Class, sizes: Mapping[str, int], lanes: int, target: Target) -> Iterator[MmaPlan]:
    uneven, each = positional(made), (32,) if reads(made) else (64, 32)
    step, widths = terms_of(made.multiplied), widths_of(made, sizes)
    plain = MmaPlan(
        1, 0, 2, sum(-(-n // step) * step for n in widths), lanes, False, uneven, warps=4, given=sum(widths),
        widths=widths if len(widths) > 1 else (), step=step, bytes_each=bytes_of(made),
    )  # fmt: skip
    if roomy(target) and not (1 in plain.bytes_each and target.cc < FP8):  # without instructions converting is long
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


def roomy(target: Target) -> bool:
    """Whether shared memory has room for two times 16 rows of a warp: where it has, tensor cores are so fast that
    reading it would bind them, were what a warp loads not multiplied twice."""
    return room_of(target) > LEAST_ROOM << 10


def _twice(plan: MmaPlan, target: Target) -> bool:
    """Whether two blocks share a multiprocessor, each of whose blocks takes 1 KB more than it asks for."""
    return 2 * (plan.shared + 1024) <= target.shared


def long_mma(
    made: Class, sizes: Mapping[str, int], terms: int, target: Target, deterministic: bool
) -> tuple[Class, MmaPlan]:
    """Tiles of a program without lanes; the stream is cut where tiles of rows are fewer than multiprocessors."""
    columns, uneven, many = 128, positional(made), sizes[made.row] > 64
    tall, warps = (2, 4) if many and roomy(target) and not picked(made.walk) else (1, 8 if many else 4)
    found = MmaPlan(1, columns, 2, terms, 0, False, uneven, long=True, warps=warps, given=terms, tall=tall,
                    bytes_each=bytes_of(made))  # fmt: skip
    if found.shared > room_of(target):  # of float32: few rows have to have the same blocks
        found = replace(found, warps=4)
        found = found if found.shared <= room_of(target) else replace(found, columns=64)
    apart = made.scale is not None and not positive(made)
    made = replace(made, scale=None) if apart else made
    blocks = -(-sizes[made.stream] // columns)
    return made, replace(found, pieces=1 if deterministic else _pieces(made, sizes, found, blocks, target))


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
