"""Tiles of a tensor-core kernel: how large they are, where they lie in shared memory, and what the host has to pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from redalg.graph.node import Node, walk
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.ir.tensor_cores import CHUNK, STEP
from redalg.kernels.launch.planned import Map, Tile
from redalg.kernels.schedule.target import Target
from redalg.kernels.tile.match import TYPES, Class, Outside, operand_of

WIDEST = 256  # columns of one warpgroup
EXACT = 1 << 24  # positions that float32 tells apart
REGISTERS = 200  # of a thread, for tiles
NARROW = (64, 32)  # blocks where elements read tensors of their own: addresses take registers, too
PRODUCER, CONSUMER = 24, 240  # registers of a thread: as few as a producer needs, as many as products are printed for
OTHERS = 48  # registers of a consumer's thread for other things than sums
BESIDE = 32  # the same, of those at its launch, beside the sums of one product: ptxas assembles no more
MOST_SHARED = 227 << 10  # bytes of shared memory a block may have, on compute capability 9.0


def launched(consumers: int) -> int:
    """Registers of a thread at the launch of a block of a producer's warpgroup and consumers.

    >>> [launched(n) for n in (1, 2, 3, 4)]
    [256, 168, 128, 96]
    """
    return 65536 // (128 * (consumers + 1)) // 8 * 8


def shares(consumers: int, waiting: int = 0) -> tuple[int, int]:
    """Registers of a thread of the producer and of a consumer, of a block's 65,536, in eights (``setmaxnreg``): at its
    launch all warpgroups have the same. ``waiting``: those that each consumer leaves to the producer.

    >>> shares(2), shares(2, 8), shares(3), shares(4)
    ((24, 240), (40, 232), (32, 160), (32, 112))
    """
    every = launched(consumers) * (consumers + 1)
    consumer = min(CONSUMER, (every - PRODUCER) // consumers // 8 * 8) - waiting
    return min(every - consumers * consumer, CONSUMER), consumer


def sums_held(consumers: int) -> tuple[int, int]:
    """Sums that a consumer's thread has registers for: of one product, an instruction; and totals with them.

    >>> [sums_held(n) for n in (1, 2, 3, 4)]
    [(128, 192), (128, 192), (96, 112), (64, 64)]
    """
    return min(WIDEST // 2, launched(consumers) - BESIDE), shares(consumers)[1] - OTHERS


@dataclass(frozen=True)
class Running:
    """The maximum that exponents are shifted by is that of all blocks so far."""


@dataclass(frozen=True)
class Frozen:
    """It is that of the first block, and tiles with rows that fail the test are flagged. ``flags``: words of scratch
    for every row."""

    flags: int = 1


@dataclass(frozen=True)
class Fallback:
    """The flagged tiles of a frozen maximum once more, with a running one."""

    flags: int = 1


Anchor = Running | Frozen | Fallback


@dataclass(frozen=True)
class Contracted:
    """What is contracted. ``terms``: of all contractions side by side, as they are multiplied; ``widths``: lengths of
    the contracted axes, if there are several. By mma.sync, ``given``: terms there are, of which `terms` are a multiple
    of what an instruction adds, ``step``."""

    terms: int
    widths: tuple[int, ...] = ()
    given: int = 0
    step: int = STEP


@dataclass(frozen=True)
class TensorPlan:
    """Sizes of one kernel.

    ``consumers``: warpgroups of 64 rows each, which share a block's tiles of the stream, ``columns`` elements long, of
    which ``stages`` are on their way. ``value_columns``: the length of the column axis, that of values (0: none).
    ``in_registers``: the left operand is kept in registers. ``uneven``: a condition makes rows differ in length.
    ``staged``: the sums with columns are written by way of shared memory, 16 bytes at a time.
    ``anchor``: whether a maximum runs or is frozen.
    ``long``: no columns; both operands come in chunks of 64 terms. ``splits``: of the stream, for one tile of rows
    each. ``drawn``: blocks draw their tiles one by one from a counter, because tiles differ in work.
    """

    held = 2  # rows of one thread

    consumers: int
    columns: int
    stages: int
    contracted: Contracted
    value_columns: int
    in_registers: bool
    uneven: bool
    staged: bool = False
    anchor: Anchor = Running()
    long: bool = False
    splits: int = 1
    drawn: bool = False

    @property
    def terms(self) -> int:
        return self.contracted.terms

    @property
    def widths(self) -> tuple[int, ...]:
        return self.contracted.widths

    @property
    def rows(self) -> int:
        return 64 * self.consumers

    @property
    def span(self) -> int:
        """Elements of a block of the stream."""
        return self.columns

    @property
    def own_columns(self) -> int:
        """Columns of one warpgroup."""
        return self.value_columns

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1)

    @property
    def left_bytes(self) -> int:
        return _tile(self.rows, self.terms)

    @property
    def right_bytes(self) -> int:
        return _tile(self.columns, self.terms)

    @property
    def values_bytes(self) -> int:
        return _tile(self.columns, self.value_columns)

    @property
    def barriers(self) -> int:
        """Where barriers lie."""
        if self.long:
            return self.stages * 128 * (self.rows + self.columns)
        return self.left_bytes + self.stages * (self.right_bytes + self.values_bytes)

    @property
    def staging(self) -> int:
        """Where results are staged, after the barriers."""
        step = 1024 if self.staged else 16  # where a pattern of exchanged banks begins
        return self.barriers + -(-8 * (5 + 4 * self.stages) // step) * step

    @property
    def shared(self) -> int:
        """Bytes of shared memory, 1 KB of them for rounding its address."""
        return self.staging + self.staged * _tile(self.rows, self.value_columns) + 1024

    @property
    def registers(self) -> int:
        """Of a thread, for tiles."""
        if self.long:
            return self.columns // 2
        return (self.own_columns + self.columns) // 2 + (self.columns + self.terms * self.in_registers) // 4


STAGED = 16  # rows of a box of results: those of a warp


def _tile(rows: int, columns: int) -> int:
    return chunks(columns) * CHUNK * rows * 2


def chunks(length: int) -> int:
    return -(-length // CHUNK)


@dataclass(frozen=True)
class WidePlan(TensorPlan):
    """More columns than one warpgroup's registers hold: two share 64 rows.

    Each scores `columns` elements of a block of twice as many, and has half of the columns; what rows need of both
    is traded by way of shared memory, ``slots`` numbers a row, and so are weights. ``common``: the tensor with columns
    is the first contraction's right operand, and its tiles serve both.
    """

    common: bool = False
    slots: int = 1

    @property
    def rows(self) -> int:
        return 64

    @property
    def span(self) -> int:
        return 2 * self.columns

    @property
    def own_columns(self) -> int:
        return self.value_columns // 2

    @property
    def values_bytes(self) -> int:
        return 0 if self.common else _tile(self.columns, self.value_columns)

    @property
    def weights(self) -> int:
        """Where a warpgroup's weights lie in its tile: where terms lie that are not columns, else behind the tile."""
        used = _tile(self.columns, self.value_columns) if self.common else 0
        return used if self.right_bytes - used >= _tile(64, self.columns) else self.right_bytes

    @property
    def pair_bytes(self) -> int:
        """Of one warpgroup's part of a block: its right operand, and its weights if they do not fit in there."""
        return max(self.right_bytes, self.weights + _tile(64, self.columns))

    @property
    def barriers(self) -> int:
        return self.left_bytes + 2 * (self.pair_bytes + self.values_bytes)

    @property
    def trade(self) -> int:
        """Where numbers of rows are traded, after the barriers."""
        return self.barriers + -(-8 * (9 + 2 * chunks(self.terms)) // 16) * 16

    @property
    def shared(self) -> int:
        return self.trade + 512 * self.slots + 1024

    @property
    def registers(self) -> int:
        return (self.own_columns + self.columns) // 2 + self.columns // 4


def require_boxes(made: Class, sizes: Mapping[str, int], views: Mapping[str, View], target: Target) -> None:
    """Raises: Outside for shapes, strides, types or devices that wgmma and the accelerator do not take."""
    if target.cc < (9, 0) or target.cc >= (10, 0):
        raise Outside(f"it is written for compute capability 9.0, the device has {target.cc[0]}.{target.cc[1]}")
    if made.converted:
        kinds = " and ".join(sorted(set(made.stored)))
        raise Outside(f"wgmma multiplies what lies in shared memory, and {kinds} is converted on its way to registers")
    terms = terms_of(made, sizes)
    value_columns = sizes[made.column] if made.column else 0
    if max(sizes[made.row], sizes[made.stream]) >= EXACT:
        raise Outside(f"positions of {EXACT} and more are not told apart by float32")
    contracted = Contracted(terms, widths_of(made, sizes))
    for m in maps_of(made, TensorPlan(1, 64, 2, contracted, value_columns, True, False)):
        _require(made, m, sizes, views[m.operand])


def tiles_of(made: Class, sizes: Mapping[str, int], most_shared: int = MOST_SHARED) -> tuple[Class, TensorPlan]:
    """The tiles, and the class: without a scale where its sign would have no place to go.

    `most_shared`: bytes of shared memory that a block may have.

    The order in which a row is folded follows from the lengths of the stream, the terms and the columns.

    Raises: Outside where none fits.
    """
    terms = terms_of(made, sizes)
    value_columns = sizes[made.column] if made.column else 0
    return (
        fitted(made, sizes, terms, value_columns, most_shared)
        if value_columns
        else long_plan(made, sizes, terms, most_shared)
    )


def require_large(made: Class, sizes: Mapping[str, int]) -> None:
    """Raises: Outside where a tile would be nearly empty."""
    value_columns = sizes[made.column] if made.column else 0
    if sizes[made.row] * sizes[made.stream] * max(terms_of(made, sizes), value_columns) < 1 << 16:
        raise Outside("it is too small for tiles")


def long_plan(
    made: Class, sizes: Mapping[str, int], terms: int, most_shared: int = MOST_SHARED
) -> tuple[Class, TensorPlan]:
    """Tiles of a program without columns."""
    if len(made.products) > 1:
        raise Outside(f"without columns an element holds one contraction, not {len(made.products)}")
    plain = (made.scale is not None or made.shown is made.scores) and (made.condition is None or columnwise(made))
    consumers, columns = 2 if sizes[made.row] > 64 else 1, 256 if sizes[made.stream] > 128 and plain else 128
    stages = min(6, (most_shared - 2048) // (128 * (64 * consumers + columns)))
    apart = made.scale is not None and not positive(made)
    made = replace(made, scale=None) if apart else made
    if stages < 2:
        raise Outside(f"two chunks of {128 * (64 * consumers + columns)} bytes do not fit shared memory")
    return made, TensorPlan(consumers, columns, stages, Contracted(terms), 0, False, positional(made), long=True)


def splits_of(made: Class, plan: TensorPlan, sizes: Mapping[str, int], target: Target) -> int:
    """Splits of the stream for these tiles, where tiles of rows are fewer than multiprocessors."""
    tiles = prod(sizes[a] for a in made.batch) * -(-sizes[made.row] // plan.rows)
    blocks = -(-sizes[made.stream] // plan.span)
    if plan.value_columns:
        blocks = blocks // 2  # states with columns are large: a split of one block is not worth a merge
    return best_splits(tiles, blocks, target.multiprocessors)


def best_splits(tiles: int, blocks: int, multiprocessors: int) -> int:
    """Splits of the stream that leave the least of the device idle, and no more of them than that takes.

    >>> best_splits(64, 502, 132), best_splits(7648, 1, 132)
    (2, 1)
    """

    blocks = max(1, blocks)

    def idle(splits: int) -> float:
        rounds = -(-tiles * splits // multiprocessors)
        return rounds * -(-blocks // splits) * multiprocessors / (tiles * blocks)

    most = max(1, min(blocks, 64, 4 * multiprocessors // tiles))
    return min(range(1, most + 1), key=lambda n: (round(idle(n) / 0.03), n))


def fitted(
    made: Class, sizes: Mapping[str, int], terms: int, value_columns: int, most_shared: int = MOST_SHARED
) -> tuple[Class, TensorPlan]:
    """The largest tiles that fit registers and shared memory."""
    for found in _candidates(made, padded(terms), value_columns, widths_of(made, sizes)):
        if found.registers <= REGISTERS and found.shared <= most_shared:
            staged = replace(found, staged=stageable(made, value_columns) and not isinstance(found, WidePlan))
            found = staged if staged.shared <= most_shared else found
            if not isinstance(found, WidePlan):
                found = replace(
                    found, consumers=min(found.consumers, -(-sizes[made.row] // 64))
                )  # few rows change no order
            return made, found
    raise Outside(f"no tile of {terms} terms and {value_columns} columns fits registers and shared memory")


def _candidates(made: Class, terms: int, value_columns: int, widths: tuple[int, ...]) -> Iterator[TensorPlan]:
    """Tiles from the best on, whether they fit or not."""
    uneven, contracted = positional(made), Contracted(terms, widths)
    if value_columns <= WIDEST:
        for consumers in (2, 1):
            for columns in NARROW if reads(made) else (128, 96, 64, 32):
                for in_registers in (True, False):
                    yield TensorPlan(consumers, columns, 2, contracted, value_columns, in_registers, uneven)
    if value_columns % (2 * CHUNK) == 0 and value_columns <= 2 * WIDEST:
        slots = sum(not part.axes for part in made.walk.parts)
        for columns in (64, 32):
            yield WidePlan(2, columns, 1, contracted, value_columns, False, uneven, common=made.shared, slots=slots)


def widths_of(made: Class, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Lengths of the contracted axes."""
    return tuple(sizes[made.program.inner.get(p.terms, p.terms)] for p in made.products)


def terms_of(made: Class, sizes: Mapping[str, int]) -> int:
    """Terms of all contractions side by side: each but the last fills whole chunks."""
    *firsts, last = widths_of(made, sizes)
    return sum(chunks(n) * CHUNK for n in firsts) + last


def stageable(made: Class, value_columns: int) -> bool:
    """Whether there is one result with columns, in 16 bits, contiguous along them, that TMA boxes can be written to."""
    with_columns = [r for r in made.program.results if made.column in r.axes]
    if not value_columns or value_columns % 16 or len(with_columns) != 1:
        return False
    return with_columns[0].dtype in TYPES and with_columns[0].axes[-1] == made.column and len(with_columns[0].axes) <= 5


def reads(made: Class) -> bool:
    """Whether every element of a block reads a tensor beside the contraction's."""
    nodes = [made.shown, *([made.condition] if made.condition is not None else [])]
    return any(n.op == "tensor" and made.stream in n.axes for n in walk(*nodes, done={made.scores}))


def positional(made: Class) -> bool:
    """Whether rows differ in the elements a condition shows."""
    return made.condition is not None and any(n.op == "index" for n in walk(made.condition))


def columnwise(made: Class) -> bool:
    """Whether a condition is the same for all rows of a tile, and reads no scores."""
    if made.condition is None:
        return False
    return not any(
        n is made.scores or made.row in n.axes or n.op == "index" and n.attr == made.row for n in walk(made.condition)
    )


def positive(made: Class) -> bool:
    """Whether the scale is a number known to be positive."""
    return made.scale is not None and made.scale.op == "const" and made.scale.attr > 0


def padded(length: int) -> int:
    return -(-length // STEP) * STEP


def maps_of(made: Class, plan: TensorPlan) -> tuple[Map, ...]:
    """The tensors that TMA boxes are copied of, in the order of their maps."""
    found, first = [], 0
    for p, width in zip(made.products, plan.widths or (plan.terms,), strict=True):
        place = first, chunks(width)
        found.append(_map(made, p.left, p.terms, made.row, plan.rows, Tile.LEFT, *place))
        found.append(_map(made, p.right, p.terms, made.stream, plan.columns, Tile.RIGHT, *place))
        first += place[1]
    if made.summed is not None and plan.values_bytes:
        found.append(
            _map(
                made,
                made.summed.values,
                made.summed.column,
                made.stream,
                plan.columns,
                Tile.VALUES,
                0,
                chunks(plan.value_columns),
            )
        )
    if plan.staged:
        (result,) = (r for r in made.program.results if made.column in r.axes)
        axes = (*(a for a in result.axes if a not in (made.column, made.row)), made.row, result.axes[-1])
        found.append(Map(result.name, axes[::-1], STAGED, Tile.RESULT, 0, chunks(plan.value_columns)))
    return tuple(found)


def _map(made: Class, leaf: Node, inner: str, row: str, rows: int, tile: Tile, first: int, count: int) -> Map:
    operand = operand_of(made.program, leaf)
    own = dict(zip(leaf.attr.axes, operand.axes, strict=True))  # a sum's axis may have been given another name
    others = tuple(a for a in reversed(leaf.attr.axes) if a not in (inner, row))
    return Map(operand.name, tuple(own[a] for a in (inner, row, *others)), rows, tile, first, count)


def _require(made: Class, m: Map, sizes: Mapping[str, int], view: View) -> None:
    """What the accelerator asks of a tensor."""
    operand = next(o for o in made.program.operands if o.name == m.operand)
    strides = dict(zip(operand.axes, view.strides, strict=True))
    bytes_each = STORAGE[operand.dtype]
    if len(m.axes) > 5:
        raise Outside(f"{m.operand} has {len(m.axes)} axes, and boxes have at most 5")
    if strides[m.axes[0]] != 1:
        raise Outside(f"{m.operand} is not contiguous along {m.axes[0]}")
    for axis in m.axes[1:]:
        step = strides[axis] * bytes_each
        if sizes[axis] > 1 and (step % 16 or step <= 0):
            raise Outside(f"{m.operand} has a stride of {step} bytes along {axis}, not a positive multiple of 16")
    if view.align < 16 or sizes[m.axes[0]] % 8:
        raise Outside(f"rows of {m.operand} do not start at multiples of 16 bytes")


def fixed_of(made: Class, plan: TensorPlan, sizes: Mapping[str, int]) -> dict[str, int]:
    """The kernel's fixed arguments by name, and the blocks of its grid (`tiles`)."""
    batches = prod(sizes[a] for a in made.batch)
    blocks = -(-sizes[made.row] // plan.rows)
    terms = max(1, sizes[made.stream] * (plan.terms + plan.value_columns) * 2)
    section = max(1, min(batches, (32 << 20) // terms))  # whose tensors along the stream stay in L2 together
    return {"tiles": batches * blocks * plan.splits, "row_blocks": blocks, "batches": batches, "section": section}
