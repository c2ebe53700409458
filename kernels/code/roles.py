"""What statements of a kernel are for: told when they are said, and asked for by passes, which look at no text."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import Enum

from redalg.source.builder import Builder


class Role(Enum):
    # rows that are walked element by element (`redalg.kernels.code.fused`)
    TILES = "a loop over the tiles of the stream"
    NEXT_TILE = "the step to the next tile"
    ELEMENTS = "a loop over the elements of a tile, or over those that `GROUPS` leaves"
    GROUPS = "a loop over groups of elements of a tile"
    AHEAD = "a loop over what is asked for ahead"
    COLUMNS = "a loop over the columns of a thread"
    ROWS = "the loop over the rows of a kernel (`redalg.kernels.code.in_turn`)"
    # places of a tile in a row (`redalg.kernels.code.whole`)
    PLACE = "the place of an element, at most the last one of the row"
    LEFT = "how many places are left of the row"
    INSIDE = "a branch for places inside the row"


def each_column(out: Builder) -> AbstractContextManager[object]:
    """A loop over the columns m of a thread."""
    return out.block("for m in range(COLUMNS):", Role.COLUMNS)
