"""How large the tiles of a tile program are, and what they take of registers and of shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from redalg.kernels.ir.tensor_cores import CHUNK
from redalg.kernels.tile.level.derive import Parts

CONSUMERS = 2
COLUMNS = (128, 64, 32, 16)  # of a block of the stream; 96 and 80 take longer (H200, dK and dV of 64 dimensions)
MOST = 224  # registers of a consumer's thread, of 240, for tiles
ALIGN = 1024


@dataclass(frozen=True)
class Sizes:
    """``columns``: elements of a block of the stream, of which ``stages`` are on their way; ``wide``: lengths of the
    other axes; ``vectors``: values of the stream that threads compute; ``registers`` of a thread that tiles take."""

    columns: int
    stages: int
    wide: Mapping[str, int]
    boxes: tuple[tuple[str, int, bool], ...]  # name, bytes, streamed
    vectors: int
    registers: int
    most_registers: int = MOST

    @property
    def rows(self) -> int:
        raise NotImplementedError

    @property
    def threads(self) -> int:
        raise NotImplementedError

    @property
    def thread_rows(self) -> int:
        """Rows that a thread has numbers of."""
        return 2

    @property
    def shared(self) -> int:
        raise NotImplementedError

    @property
    def asked(self) -> tuple[int, int, int]:
        """What somebody may choose."""
        raise NotImplementedError

    @property
    def facts(self) -> dict[str, Any]:
        """Who multiplies."""
        raise NotImplementedError

    def place(self, name: str) -> int:
        """Where a box lies."""
        raise NotImplementedError

    def length(self, axis: str, parts: Parts) -> int:
        if axis == parts.row:
            return self.rows
        return self.columns if axis == parts.stream else self.wide[parts.program.inner.get(axis, axis)]

    def bytes_of(self, name: str) -> int:
        return next(size for n, size, _ in self.boxes if n == name)

    def is_streamed(self, name: str) -> bool:
        return next(streamed for n, _, streamed in self.boxes if n == name)

    def before(self, name: str) -> int:
        """Bytes of the boxes before it, of those that stay, or of those of a stage."""
        at = 0
        for other, size, streamed in self.boxes:
            if other == name:
                return at
            at += size if streamed == self.is_streamed(name) else 0
        raise KeyError(name)

    @property
    def stage_bytes(self) -> int:
        return sum(size for _, size, streamed in self.boxes if streamed)

    @property
    def stay_bytes(self) -> int:
        return sum(size for _, size, streamed in self.boxes if not streamed)

    @property
    def vector_bytes(self) -> int:
        return 4 * self.columns * self.vectors


@dataclass(frozen=True)
class WarpgroupSizes(Sizes):
    """``consumers``: warpgroups of 64 rows each."""

    consumers: int = CONSUMERS

    @property
    def rows(self) -> int:
        return 64 * self.consumers

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1)

    @property
    def asked(self) -> tuple[int, int, int]:
        return self.consumers, self.columns, self.stages

    @property
    def facts(self) -> dict[str, Any]:
        return {"consumers": self.consumers}

    @property
    def value_warps(self) -> int:
        """Warps of the producer's warpgroup, beside the first, that compute values of the stream."""
        return min(3, -(-self.columns // 32))

    @property
    def values_at(self) -> int:
        """Where values of the stream lie, behind the boxes."""
        return self.stay_bytes + self.stages * self.stage_bytes

    @property
    def barriers_at(self) -> int:
        return self.values_at + self.stages * self.vector_bytes

    @property
    def barriers(self) -> int:
        """Two for what stays, and for every stage: one for each box, one for values, one free."""
        return 2 + self.stages * (sum(streamed for _, _, streamed in self.boxes) + 2)

    @property
    def shared(self) -> int:
        return self.barriers_at + 8 * self.barriers + ALIGN

    def place(self, name: str) -> int:
        """Behind those that stay, within a ring of its own."""
        if not self.is_streamed(name):
            return self.before(name)
        return self.stay_bytes + self.stages * self.before(name)


def candidates(parts: Parts, wide: Mapping[str, int], vectors: int) -> Iterator[WarpgroupSizes]:
    """Sizes from the best on, whether they fit or not."""
    own = {parts.program.inner.get(a, a): n for a, n in wide.items()}
    for consumers in (CONSUMERS, 1):
        for columns in COLUMNS:
            base = WarpgroupSizes(columns, 2, own, (), vectors, 0, consumers=consumers)
            boxes = []
            for b in parts.boxes.values():
                outer, inner = (base.length(a, parts) for a in b.axes)
                boxes.append((b.name, -(-inner // CHUNK) * CHUNK * outer * 2, b.streamed))
            held = sum(base.length(parts.part[s.tile][1], parts) for s in parts.sums) // 2
            extra = max(0, len(parts.weights) - len(parts.scores))
            held += (len(parts.scores) + extra) * columns // 2 + len(parts.weights) * columns // 4
            for stages in (4, 3, 2):
                yield replace(base, boxes=tuple(boxes), registers=held, stages=stages)
