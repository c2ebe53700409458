"""From operations to what prints them: one method for each, in the order that the tile program has them."""

from __future__ import annotations

from collections.abc import Sequence

from redalg.kernels.tile.level.cascade import Mask, PingPong, Reduce, Rows, Scale
from redalg.kernels.tile.level.grid import Count, Follow, Prepare, Reset, Written
from redalg.kernels.tile.level.program import (
    Arrive,
    Clear,
    Convert,
    Exchange,
    For,
    Load,
    Map,
    Meet,
    Mma,
    Op,
    Own,
    Store,
    Wait,
)

METHODS: dict[type[Op], str] = {  # what prints an operation
    Arrive: "arrive",
    Clear: "clear",
    Convert: "convert",
    Exchange: "exchange",
    For: "loop",
    Load: "load",
    Map: "map",
    Meet: "meet",
    Mma: "multiply",
    Reduce: "reduce",
    Rows: "rows",
    Scale: "scale",
    Mask: "mask",
    Store: "store",
    PingPong: "turns",
    Wait: "wait",
    Prepare: "prepare",
    Count: "count",
    Written: "written",
    Reset: "reset",
    Follow: "follow",
}


class Lowering:
    """What prints the operations of a body: a method of `METHODS` for each; results are stored together."""

    @staticmethod
    def step() -> tuple[str, ...]:
        """To the next stage of a ring whose barriers are one full and one free for each."""
        return "stage += 1", "phase ^= stage == STAGES", "stage = 0 if stage == STAGES else stage"

    def consume(self, body: Sequence[Op]) -> None:
        stored = False
        for op in body:
            if not isinstance(op, Own) and not (isinstance(op, Store) and stored):
                getattr(self, METHODS[type(op)])(op)
            stored = stored or isinstance(op, Store)
