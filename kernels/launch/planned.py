"""What is known of a kind of call when its kernel has been printed: everything a launch needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
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


@dataclass(frozen=True)
class Map:
    """A tensor as the tensor memory accelerator is told of it: axes from the innermost on, and rows of a box.

    ``tile``: what it is for; ``first``: the chunk of it that
    it begins at; ``count``: of chunks.
    """

    operand: str
    axes: tuple[str, ...]
    rows: int
    tile: Tile
    first: int
    count: int


class Kernel(NamedTuple):
    """What is launched, and by how many blocks and threads."""

    module: Module
    geometry: Geometry


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
    def geometry(self) -> Geometry:
        return self.kernel.geometry

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of results, by name."""
        own = {r.name: tuple(self.sizes[a] for a in r.axes) for r in self.program.results}
        return own | {r.name: self.results[r.name].shape for r in self.program.summed}
