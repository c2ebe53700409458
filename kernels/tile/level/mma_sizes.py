"""Sizes of tile programs by mma.sync: warps that share what all of them copy, rows an odd number of units apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from redalg.graph.node import walk
from redalg.kernels.ir.tensor_cores import pitch_of
from redalg.kernels.schedule.target import RESERVED, Target
from redalg.kernels.tile.level.derive import Parts, assuming
from redalg.kernels.tile.level.sizes import Sizes
from redalg.kernels.tile.mma_sync_plan import has_large_shared

REGISTERS = 192  # of a thread, of 255, for tiles
COLUMNS = (64, 32, 16)  # of a block of the stream


@dataclass(frozen=True)
class WarpSizes(Sizes):
    """``warps`` of a block, of 16·``tall`` rows each; all of them copy and all of them multiply. ``pitches``: bytes
    from a row of a box to the next."""

    warps: int = 8
    tall: int = 1
    pitches: tuple[tuple[str, int], ...] = ()

    @property
    def rows(self) -> int:
        return 16 * self.tall * self.warps

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def thread_rows(self) -> int:
        return 2 * self.tall

    @property
    def asked(self) -> tuple[int, int, int]:
        return self.warps, self.tall, self.columns

    @property
    def facts(self) -> dict[str, Any]:
        return {"instruction": "mma.sync", "warps": self.warps}

    @property
    def stage_bytes(self) -> int:
        """With the values of the stream, behind the boxes."""
        return super().stage_bytes + self.vector_bytes

    @property
    def values_at(self) -> int:
        """Where values of the stream lie in the first stage."""
        return self.stay_bytes + super().stage_bytes

    @property
    def shared(self) -> int:
        return self.stay_bytes + self.stages * self.stage_bytes

    def pitch(self, name: str) -> int:
        return dict(self.pitches)[name]

    def place(self, name: str) -> int:
        """In the first stage: all of them are filled alike."""
        return self.before(name) + self.stay_bytes * self.is_streamed(name)


def warp_candidates(parts: Parts, wide: Mapping[str, int], vectors: int, rows: int, target: Target) -> list[WarpSizes]:
    """Sizes from the best on, whether they fit or not: eight warps of a multiprocessor where shared memory has room for
    them, in two blocks rather than in one; then what reads least of it for a number of a score. `rows`: few of them
    need no large tiles."""
    columns, most = (COLUMNS[1:], REGISTERS - 32) if _places(parts) else (COLUMNS, REGISTERS)
    own = {parts.program.inner.get(a, a): n for a, n in wide.items()}
    tall = (2, 1) if has_large_shared(target) else (1,)
    found = [
        _sized(parts, WarpSizes(each, 2, own, (), vectors, 0, most, warps, t))
        for warps in (8, 4)
        for t in tall
        for each in columns
        if (warps, t) == (4, 1) or 16 * t * warps < 2 * rows
    ]

    def rank(s: WarpSizes) -> tuple[float, ...]:
        return -min(8, s.warps * resident(s, target)), _read(parts, s), -s.columns, s.warps

    return sorted(found, key=rank)


def _sized(parts: Parts, base: WarpSizes) -> WarpSizes:
    boxes, pitches = [], []
    for b in parts.boxes.values():
        outer, inner = (base.length(a, parts) for a in b.axes)
        pitches.append((b.name, pitch_of(2 * inner)))
        boxes.append((b.name, pitch_of(2 * inner) * outer, b.streamed))
    held = base.tall * _held(parts, base) // 2
    return replace(base, boxes=tuple(boxes), pitches=tuple(pitches), registers=held)


def _read(parts: Parts, sizes: WarpSizes) -> float:
    """Bytes that a warp reads of shared memory for a number of a score: of left operands once for all columns of a
    block, of right ones once for all rows of the warp."""
    terms = sum(sizes.length(s.over, parts) for s in parts.scores)
    columns = sum(sizes.length(parts.part[s.tile][1], parts) for s in parts.sums)
    return 2 * terms / sizes.columns + 2 * (terms + columns) / (16 * sizes.tall)


def _held(parts: Parts, sizes: Sizes) -> int:
    """Numbers of a row that four threads share: of sums, of scores and weights beside them."""
    tiles = max(len(parts.scores), len(parts.weights)) * sizes.columns
    return tiles + sum(sizes.length(parts.part[s.tile][1], parts) for s in parts.sums)


def _places(parts: Parts) -> bool:
    """Whether weights depend on where an element is, apart from the condition: positions and addresses take registers,
    too."""
    whole = (w if parts.condition is None else assuming(w, parts.condition, True) for w in parts.weights.values())
    both = {parts.row, parts.stream}
    return any(n.op == "index" or n.op == "tensor" and both <= n.axes for w in whole for n in walk(w))


def resident(sizes: Sizes, target: Target) -> int:
    """Blocks that share a multiprocessor."""
    own = target.multiprocessor
    return max(1, min(own.shared // (sizes.shared + RESERVED), own.registers // (256 * sizes.threads)))
