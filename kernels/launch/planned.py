"""What is known of a kind of call when its kernel has been printed: everything a launch needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import NamedTuple

from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Module, Operand, Program
from redalg.kernels.launch.driver import Geometry
from redalg.kernels.schedule.choose import Choice


class Tile(StrEnum):
    """What a tile in shared memory is for: an operand of the contraction, the tensor with columns, or results on their
    way to memory. The words are parts of names in printed kernels."""

    LEFT = "left"
    RIGHT = "right"
    VALUES = "values"
    RESULT = "result"

    def __repr__(self) -> str:
        return repr(self.value)


class Spatial(NamedTuple):
    """A dimension of pixels: the axis that counts windows, `step` elements apart, from `lower` to the array's end plus
    `upper`; elements of the array, and the stride from one to the next; the axis of a window's elements, if it has one,
    `dilation` apart."""

    row: str
    length: int
    stride: int
    step: int
    lower: int
    upper: int
    tap: str
    dilation: int

    @property
    def reach(self) -> int:
        """From the first element of a window to its last."""
        return -self.lower - self.upper if self.tap else 0


@dataclass(frozen=True)
class Pixels:
    """Rows of a matrix that are windows of an array, for a map in im2col mode.

    ``channels``: elements of a pixel; ``spatial``: the dimensions of an image, the innermost first; ``images``: how
    many, and the stride; ``taps``: axes of a window's elements and their lengths, in the order of the terms.
    """

    channels: int
    spatial: tuple[Spatial, ...]
    images: tuple[int, int]
    taps: tuple[tuple[str, int], ...] = ()

    @property
    def padded(self) -> int:
        """Terms of a tap: whole chunks of channels."""
        return -(-self.channels // 64) * 64

    @property
    def terms(self) -> int:
        return prod(n for _, n in self.taps) * self.padded

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of the array, the innermost dimension first."""
        return self.channels, *(s.length for s in self.spatial), self.images[0]

    @property
    def strides(self) -> tuple[int, ...]:
        return 1, *(s.stride for s in self.spatial), self.images[1]


@dataclass(frozen=True)
class Map:
    """A tensor as the tensor memory accelerator is told of it: axes from the innermost on, and rows of a box.

    ``tile``: what it is for; ``first``: the chunk of it that
    it begins at; ``count``: of chunks. ``steps``: strides of the axes in elements, where they are not those of the
    tensor's own axes; ``pixels``: rows of a box are pixels.
    """

    operand: str
    axes: tuple[str, ...]
    rows: int
    tile: Tile
    first: int
    count: int
    steps: tuple[int, ...] = ()
    pixels: Pixels | None = None

    @property
    def rank(self) -> int:
        return len(self.axes) if self.pixels is None else len(self.pixels.lengths)


class Lying(NamedTuple):
    """An array as a library is told of it: its name, lengths, and strides in elements."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Window(NamedTuple):
    """How windows of a convolution walk along a dimension: zeros around it, and elements from one to the next."""

    padding: int = 0
    step: int = 1
    dilation: int = 1


@dataclass(frozen=True)
class Vendor:
    """A product that a vendor's library computes in the place of a kernel.

    ``shape``: of the result as the library gives it. ``windows``: of a convolution, whose operands are images and
    weights, their channels second; ``relu``: of its sums, before they are rounded. Without them it is a product of
    two matrices.
    """

    left: Lying
    right: Lying
    result: str
    shape: tuple[int, ...]
    relu: bool = False
    windows: tuple[Window, ...] = ()


class Portion(NamedTuple):
    """An array of a call as one kernel sees it: from which element on, and with which lengths and strides."""

    first: int
    view: View


class Seen(NamedTuple):
    """What a kernel sees otherwise than the call: arrays, operands by name and results by `Result.key`, and lengths of
    axes."""

    arrays: Mapping[str, Portion] = {}
    lengths: Mapping[str, int] = {}


class Kernel(NamedTuple):
    """What is launched, and by how many blocks and threads; or, in its place, the product that a library computes."""

    module: Module
    geometry: Geometry
    vendor: Vendor | None = None
    seen: Seen = Seen()


@dataclass(frozen=True)
class Planned:
    """Everything that is decided about a kind of call before its first launch."""

    program: Program
    choice: Choice
    kernel: Kernel
    sizes: Mapping[str, int]
    maps: tuple[Map, ...] = ()
    fixed: Mapping[str, int] = field(default_factory=dict)
    second: Kernel | None = None  # it merges splits, or computes anew the rows that the first kernel flagged
    before: tuple[Planned, ...] = ()  # kernels that fill `scratch`, and write what is not this one's to write
    scratch: Mapping[str, tuple[Operand, View]] = field(default_factory=dict)
    results: Mapping[str, View] = field(default_factory=dict)  # of results that are not contiguous
    over: Mapping[str, frozenset[str]] = field(default_factory=dict)  # result -> operands it may overwrite
    inside: tuple[Planned, ...] = ()  # kernels that are part of this one, as they would be apart

    @property
    def module(self) -> Module:
        return self.kernel.module

    @property
    def source(self) -> str:
        """The source of all kernels, in the order they are launched in."""
        every = [(p.source, p) for p in self.before] + [(self.module.source, self)]
        if len(every) == 1:
            return self.module.source
        heads = (f"# Kernel {k} of {len(every)}, {p.lengths}.\n\n{text}" for k, (text, p) in enumerate(every, 1))
        return "\n\n".join(heads)

    @property
    def lengths(self) -> str:
        """The lengths of its axes as the kernel sees them, in words."""
        own = {**self.sizes, **self.kernel.seen.lengths}
        return ", ".join(f"{a} {own[a]}" for a in (*self.program.rows, *self.program.stream))

    @property
    def vendor(self) -> Vendor | None:
        return self.kernel.vendor

    @property
    def geometry(self) -> Geometry:
        return self.kernel.geometry

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of results, by name."""
        own = {r.name: tuple(self.sizes[a] for a in r.axes) for r in self.program.results}
        return own | {r.name: self.results[r.name].shape for r in self.program.summed}
