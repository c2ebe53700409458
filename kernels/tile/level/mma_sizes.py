"""The same for mma.sync: warps that share what all of them copy, in rows an odd number of 16-byte units apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from redalg.graph.node import walk
from redalg.kernels.ir.tensor_cores import pitch_of
from redalg.kernels.schedule.target import RESERVED, Target
from redalg.kernels.tile.level.derive import Parts
from redalg.kernels.tile.level.sizes import Sizes
from redalg.kernels.tile.mma_sync_plan import has_large_shared

REGISTERS = 208  # of a thread, of 255, for tiles
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


def warp_candidates(
    parts: Parts, wide: Mapping[str, int], vectors: int, rows: int, target: Target
) -> Iterator[WarpSizes]:
    """Sizes from the best on, whether they fit or not: 32 rows of a warp where tensor cores are so fast that reading
    shared memory would bind them, were what a warp loads not multiplied twice."""
    own = {parts.program.inner.get(a, a): n for a, n in wide.items()}
    columns = COLUMNS[1:] if _reads(parts) else COLUMNS
    shapes = [(8, 2), (4, 2), (8, 1), (4, 1)] if has_large_shared(target) else [(8, 1), (4, 1)]
    for warps, tall in shapes:
        if 16 * tall * warps >= 2 * rows and (warps, tall) != (4, 1):
            continue  # few rows need no large tiles
        for each in columns:
            base = WarpSizes(each, 2, own, (), vectors, 0, REGISTERS, warps, tall)
            boxes, pitches = [], []
            for b in parts.boxes.values():
                outer, inner = (base.length(a, parts) for a in b.axes)
                pitches.append((b.name, pitch_of(2 * inner)))
                boxes.append((b.name, pitch_of(2 * inner) * outer, b.streamed))
            held = tall * _held(parts, base) // 4
            yield replace(base, boxes=tuple(boxes), pitches=tuple(pitches), registers=held)


def _held(parts: Parts, sizes: Sizes) -> int:
    """Numbers of two rows, four threads each: of sums, of scores and weights beside them, and of weights as products
    read them while others are still to be made."""
    several = len(parts.weights) > 1
    tiles = max(len(parts.scores), len(parts.weights)) * sizes.columns
    sums = sum(sizes.length(parts.part[s.tile][1], parts) for s in parts.sums)
    return 2 * (sums + tiles) + sizes.columns * several


def _reads(parts: Parts) -> bool:
    """Whether weights read tensors of their own along both axes, whose addresses take registers, too."""
    both = {parts.row, parts.stream}
    return any(n.op == "tensor" and both <= n.axes for w in parts.weights.values() for n in walk(w))


def resident(sizes: Sizes, target: Target) -> int:
    """Blocks that share a multiprocessor."""
    own = target.multiprocessor
    return max(1, min(own.shared // (sizes.shared + RESERVED), own.registers // (256 * sizes.threads)))
