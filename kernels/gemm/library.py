"""A product of a chain left to the vendor's library: whether that computes the same, and whether it takes less time.

Products of a chain that follow each other through memory are kernels of ours or, for PyTorch's arrays, calls of what
PyTorch multiplies by: cuBLAS for matrices, cuDNN for windows and for a relu of the sums. `laws` has one entry for each
condition, with its reason. Where they hold, the library's numbers are those of a kernel of ours but for the order of
additions: products of 16-bit numbers added in float32, a relu of the sums, one rounding to the operands' type. What a
library would have to copy first is not left to it.

`seconds` predicts the library's time by constants that were measured over a grid of sizes, as for kernels of ours:
no call times anything, and the same shapes on the same device always take the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import NamedTuple

from redalg.kernels.gemm.match import TYPES, Cut
from redalg.kernels.gemm.narrow import ROWS
from redalg.kernels.gemm.places import Place
from redalg.kernels.ir.program import Result
from redalg.kernels.launch.planned import Lying, Pixels, Vendor, Window
from redalg.kernels.lower.draft import Call
from redalg.kernels.schedule.choose import micro
from redalg.kernels.schedule.target import Target
from redalg.text.nodes import short

TORCH = "torch"  # whose arrays these libraries take
FEW = 128  # rows up to which a product takes as long as its weights take to arrive
MARGIN, WALKED = 1.03, 1.15  # how much longer than the library's a kernel of ours may take, and one of windows


@dataclass(frozen=True)
class Shared:
    """A product as a library would be told of it: the cut, types, where operands lie, results, and lengths."""

    made: Cut
    kinds: tuple[str, str]
    places: tuple[Place, ...]
    results: tuple[Result, ...]
    sizes: Mapping[str, int]

    @property
    def rows(self) -> int:
        return prod(self.sizes[a] for a in self.made.rows)

    @property
    def columns(self) -> int:
        return self.sizes[self.made.column]

    @property
    def terms(self) -> int:
        """Without zeros behind channels."""
        return self.sizes[self.made.stream]

    @property
    def relu(self) -> bool:
        return self.results[0].node.op == "relu"

    @property
    def pixels(self) -> Pixels | None:
        return self.places[0].pixels

    @property
    def taps(self) -> int:
        """Elements of a window; 0 where rows are no windows."""
        return prod(n for _, n in self.pixels.taps) if self.pixels is not None else 0

    @property
    def name(self) -> str:
        return "cuDNN" if self.relu or self.pixels is not None else "cuBLAS"


def refusal(made: Shared, call: Call) -> str:
    """Which law stands against it; empty if none does."""
    return next((why for holds, why in chain(laws(made, call), _lying(made)) if not holds), "")


def laws(made: Shared, call: Call) -> Iterator[tuple[bool, str]]:
    """Whether a library takes the product and keeps to the numbers, and what is wrong where it does not."""
    kind, result = made.kinds[0], made.results[0]
    yield call.library == TORCH, "the libraries are PyTorch's, and take its arrays"
    yield (9, 0) <= call.target.cc < (10, 0), "its times are known on compute capability 9.0 alone"
    yield not call.deterministic, "the order of its additions follows from the number of rows"
    yield made.rows > FEW, f"of {FEW} rows or fewer weights take the time, which a kernel of ours streams"
    yield made.kinds[1] == kind and kind in TYPES, f"it multiplies {' and '.join(dict.fromkeys(made.kinds))}"
    yield len(made.places) == 2, "it would read the left operand once for each product"
    yield not made.made.batch, "there is a batch"
    yield len(made.results) == 1, "there are several results"
    yield result.dtype == kind, f"the result is {result.dtype}, and the library rounds to {kind}"
    bare = result.node.op == "state" or made.relu and result.node.args[0].op == "state"
    yield bare, f"{short(result.node)} would be computed of sums that are rounded already"
    yield result.axes == (*made.made.rows, made.made.column), "the result lies otherwise"
    yield made.columns % 8 == 0, "rows of the result are padded"


def _lying(made: Shared) -> Iterator[tuple[bool, str]]:
    """Whether operands lie as the library takes them."""
    left, right = made.places
    if made.name == "cuBLAS":
        return
    copied = "the library would copy it"
    if made.pixels is None:
        yield left.strides == (made.terms, 1), f"rows of {left.name} are padded: {copied}"
        yield right.strides == (made.terms, 1), f"the terms of {right.name} do not lie together: {copied}"
        return
    spatial, channels = made.pixels.spatial, made.pixels.channels
    yield len(spatial) == 2, f"images have {len(spatial)} dimensions"
    lengths = made.pixels.lengths
    strides = tuple(prod(lengths[:k]) for k in range(len(lengths)))
    yield made.pixels.strides == strides, f"{left.name} is a part of images: {copied}"
    taps = [n for _, n in made.pixels.taps]
    each = tuple(channels * prod(taps[k + 1 :]) for k in range(len(taps)))
    whole = right.strides == (channels * prod(taps), 1) and right.taps == each
    yield whole, f"the terms of {right.name} do not lie together: {copied}"
    walked = [s.tap for s in reversed(spatial) if s.tap]
    yield [a for a, _ in made.pixels.taps] == walked, "taps come in another order than the dimensions they move along"
    for s in spatial:
        last = s.length - 2 * s.lower - s.reach - 1
        yield s.lower <= 0 and last // s.step + 1 == made.sizes[s.row] and last >= 0, f"windows along {s.row} end early"


def vendor(made: Shared) -> Vendor:
    """The call of the library."""
    left, right = made.places
    rows, columns, terms = made.rows, made.columns, made.terms
    if made.name == "cuBLAS":
        operands = (
            Lying(left.name, (rows, terms), left.strides),
            Lying(right.name, (terms, columns), right.strides[::-1]),
        )
        return Vendor(*operands, made.results[0].name, (rows, columns))
    if made.pixels is None:
        images = Lying(left.name, (1, terms, rows, 1), (rows * terms, 1, terms, terms))
        weights = Lying(right.name, (columns, terms, 1, 1), (terms, 1, terms, terms))
        return Vendor(images, weights, made.results[0].name, (1, columns, rows, 1), made.relu, (Window(), Window()))
    p, spatial = made.pixels, tuple(reversed(made.pixels.spatial))
    down, across = (s.length for s in spatial)
    images = Lying(left.name, (p.images[0], p.channels, down, across), (p.strides[3], 1, p.strides[2], p.strides[1]))
    steps = dict(zip((a for a, _ in p.taps), right.taps, strict=True))
    taps, whole = dict(p.taps), terms
    shape = columns, p.channels, *(taps.get(s.tap, 1) for s in spatial)
    weights = Lying(right.name, shape, (whole, 1, *(steps.get(s.tap, whole) for s in spatial)))
    result = p.images[0], columns, *(made.sizes[s.row] for s in spatial)
    windows = tuple(Window(-s.lower, s.step, s.dilation) for s in spatial)
    return Vendor(images, weights, made.results[0].name, result, made.relu, windows)


# --- which is faster -------------------------------------------------------------------------------------------------


class Rates(NamedTuple):
    """Of the libraries on a device of compute capability 9.0: fitted to 231 products of an H100, off by 6 % in the
    median and by 17 % in one of ten, and to 30 convolutions, off by 16 and 38 % (benchmarks/records/libraries.md)."""

    launch: float = 2.1e-6
    multiprocessor: float = 6.0e12  # operations a second
    small: float = 0.92  # times that, of tiles of 128 by 64, and once more of 64 by 64
    fill: int = 192  # terms that a tile takes longer
    split: float = 4.1e-6  # of blocks that take a part of the terms each
    moved: float = 1.17  # times a copy's rate, of operands and results
    relu: float = 1.0e-6  # of the sums
    windows: float = 1.5  # times a matrix product
    walked: float = 1.2e-6  # and so much more


RATES = Rates()
MANY = tuple(ROWS << k for k in range(1, 10))  # numbers of rows between which ways are compared
SIDES = (64, 128, 256)
TILES = tuple((a, b) for a in SIDES for b in SIDES if a * b < 256 * 256)  # sums of 256 by 256 fit no registers


def seconds(rows: int, columns: int, terms: int, target: Target, relu: bool = False, taps: int = 0) -> float:
    """The time predicted for the library, a launch included; ``taps`` of a window, 0 of a matrix product.

    >>> from redalg.kernels.schedule.target import H100
    >>> [round(1e6 * seconds(rows, 1024, 256, H100), 1) for rows in (256, 6272, 25088)]
    [2.8, 9.4, 31.5]
    """
    whole = min(_tiled(rows, columns, terms, target, a, b, split) for a, b in TILES for split in (1, 2, 4, 8))
    moved = 2 * (rows * terms // max(1, taps) + columns * terms + rows * columns)
    whole = max(whole, moved / (RATES.moved * target.reachable)) + RATES.relu * relu
    return RATES.launch + (whole if not taps else RATES.windows * whole + RATES.walked)


def _tiled(rows: int, columns: int, terms: int, target: Target, tall: int, wide: int, split: int) -> float:
    """In rounds of tiles of this size, of which several blocks take a part of the terms each."""
    rounds = -(-(-(-rows // tall) * -(-columns // wide) * split) // target.multiprocessors)
    slower = RATES.small ** max(0, 14 - (tall * wide).bit_length() + 1)
    one = 2 * tall * wide * (terms / split + RATES.fill) / (RATES.multiprocessor * slower)
    return rounds * one + RATES.split * (split > 1)


def chosen(made: Shared, call: Call, own: float, own_of: Callable[[int], float]) -> tuple[Vendor | None, float, str]:
    """What the library computes, if the product is left to it; the seconds predicted, and a line for `explain`. `own`:
    seconds of a kernel of ours; ``own_of(rows)``: of one of so many rows."""
    if why := refusal(made, call):
        return None, own, f"not left to {made.name}: {why}"
    margin = WALKED if made.taps else MARGIN

    def theirs_of(rows: int) -> float:
        return seconds(rows, made.columns, made.terms, call.target, made.relu, made.taps)

    theirs = theirs_of(made.rows)
    told = f"{micro(theirs)} are predicted for it, and {micro(own)} for a kernel of ours"
    first = even(lambda rows: own_of(rows) > margin * theirs_of(rows))
    told += f"; it is faster from about {first} rows on" if first else "; it is faster at no number of rows"
    if own <= margin * theirs:
        return None, own, f"not left to {made.name}: {told}"
    how = "torch.mm" if made.name == "cuBLAS" else "torch.cudnn_convolution" + "_relu" * made.relu
    return vendor(made), theirs, f"left to {made.name} ({how}, sums in float32, rounded once): {told}"


def even(faster: Callable[[int], bool]) -> int | None:
    """The number of rows from which on the library is faster at every power of two that is looked at, if it is at the
    last of them.

    >>> even(lambda rows: rows > 3000), even(lambda rows: rows < 3000)
    (4096, None)
    """
    slower = [rows for rows in MANY if not faster(rows)]
    later = [rows for rows in MANY if rows > max(slower, default=0)]
    return min(later, default=None)
