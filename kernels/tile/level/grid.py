"""Operations on arrays in memory that a launch writes and reads: who waits for whom, in a block and across the grid.

An array is written by a *prologue* of the launch (rows that all warpgroups share), by the product *before* this one in
the same kernel (blocks meet at a barrier of the grid), or by the *kernel before*, which may still be running. Nobody
reads it before a wait for it; what a launch writes itself is counted, after a fence, by everybody who writes; and
whoever waits last leaves the counters as they were (`redalg.kernels.tile.level.progress` holds programs to that).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from redalg.kernels.tile.level.program import Op

ONCE, DONE, LAST = "every warpgroup, before its tiles", "consumers, behind their tiles", "producer, behind its tiles"


class Writer(StrEnum):
    """Who writes an array that the launch reads."""

    PROLOGUE = "the prologue's rows"
    PRODUCT = "the first product, in all blocks"
    KERNEL = "the kernel before"


@dataclass(frozen=True)
class Prepare(Op):
    """Arrays are written row by row, which all warpgroups of the grid share out."""

    arrays: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield f"{', '.join(self.arrays)} <- its share of the rows"


@dataclass(frozen=True)
class Count(Op):
    """What this writer has written of arrays is there for all blocks: a fence, then a count that is released."""

    arrays: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield f"arrive written {', '.join(self.arrays)}"


@dataclass(frozen=True)
class Written(Op):
    """Until arrays are written: all that this tile reads of them."""

    arrays: tuple[str, ...]
    by: Writer

    def lines(self) -> Iterator[str]:
        yield f"wait written {', '.join(self.arrays)}, by {self.by.value}"


@dataclass(frozen=True)
class Reset(Op):
    """The last block that waits no more leaves the counters of the grid at zero, for the next launch."""

    def lines(self) -> Iterator[str]:
        yield "reset counters, by the last block"


@dataclass(frozen=True)
class Follow(Op):
    """The kernel behind may begin; it waits for this one's results itself."""

    def lines(self) -> Iterator[str]:
        yield "let the kernel behind begin"
