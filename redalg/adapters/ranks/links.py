"""What a collective costs: a model of latency, bandwidth and merging that chooses how states are merged.

The constants are data: `GLOO` was fitted to the least times of collectives between two processes of one machine (two
cores of an AMD EPYC), `NCCL` to all-reduces of four H200 that are joined by NVLink, whose states NumPy merges, `NVLINK`
to collectives of two H200 in CUDA graphs, whose states kernels merge; its step between nodes is assumed, not measured.
Pass your own ``links=`` elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf, log2


@dataclass(frozen=True)
class Links:
    """Seconds of collectives among `ranks`.

    `call`: seconds of any collective; `step`: of each of its messages one after the other; `bandwidth`: bytes a second
    that a rank sends; `merge`: seconds to merge one state, `transport`: to carry one to given anchors, packing
    included; `merge_bandwidth`: bytes of states a second beside these two.

    `node`: how many ranks are joined by these links; a step between nodes takes `far_step`. Nodes are taken to have
    network adapters enough that their bandwidth is not less than that of the links.

    All-reduce, over a tree: call + 2⌈log2 p⌉·step + 2(p-1)/p·B/bandwidth. All-gather, around a ring: call + (p-1)·step
    + (p-1)·B/bandwidth. ⌈log2(p/node)⌉ steps of the tree and p/node of the ring are far ones.

    >>> links = Links("example", call=1e-4, step=1e-5, bandwidth=1e9, merge=1e-4, merge_bandwidth=1e9, transport=2e-4)
    >>> round(links.all_reduce(1000, 8) * 1e6, 2), round(links.all_gather(1000, 8) * 1e6, 2)
    (161.75, 177.0)
    >>> links.choose(first=8, second=16, gathered=48, ranks=2), links.choose(8, 16, 48, ranks=1024)
    ('gather', 'reduce')
    """

    name: str
    call: float
    step: float
    bandwidth: float
    merge: float
    merge_bandwidth: float
    transport: float
    node: float = inf
    far_step: float = 0.0

    def all_reduce(self, nbytes: int, ranks: int) -> float:
        """Seconds of an all-reduce of so many bytes."""
        if ranks < 2:
            return self.call
        near = int(min(ranks, self.node))
        steps = _steps(near) * self.step + _steps(ceil(ranks / near)) * self.far_step
        return self.call + 2 * steps + 2 * (ranks - 1) / ranks * nbytes / self.bandwidth

    def all_gather(self, nbytes: int, ranks: int) -> float:
        """Seconds of an all-gather of so many bytes from each rank."""
        far = ceil(ranks / self.node) if ranks > self.node else 0
        steps = (ranks - 1 - far) * self.step + far * self.far_step
        return self.call + steps + (ranks - 1) * nbytes / self.bandwidth

    def reduce_seconds(self, first: int, second: int, ranks: int) -> float:
        """Seconds of the two all-reduces, the first of which is left out where it has no bytes."""
        rounds = [nbytes for nbytes in (first, second) if nbytes]
        moving = self.transport + (first + second) / self.merge_bandwidth
        return sum(self.all_reduce(nbytes, ranks) for nbytes in rounds) + moving

    def gather_seconds(self, gathered: int, ranks: int) -> float:
        """Seconds of the all-gather and of merging in the order of positions."""
        merging = (ranks - 1) * (self.merge + gathered / self.merge_bandwidth)
        return self.all_gather(gathered, ranks) + merging

    def choose(self, first: int, second: int, gathered: int, ranks: int) -> str:
        """The faster way: "reduce" or "gather"."""
        faster = self.reduce_seconds(first, second, ranks) < self.gather_seconds(gathered, ranks)
        return "reduce" if faster else "gather"


@dataclass(frozen=True)
class Choice:
    """How the states of one pass were merged: `way`, why, the bytes of each way and what the model predicts."""

    way: str
    why: str
    ranks: int
    state_bytes: int
    reduce_bytes: tuple[int, int] | None
    seconds: Mapping[str, float]

    def __str__(self) -> str:
        times = ", ".join(f"{way} {s * 1e6:.0f} µs" for way, s in self.seconds.items())
        sent = f"{self.state_bytes} bytes of state from each of {self.ranks} ranks"
        if self.reduce_bytes is not None:
            sent += f", or {' + '.join(map(str, filter(None, self.reduce_bytes)))} bytes all-reduced"
        return f"{self.way}: {self.why}; {sent}; predicted: {times}"


def _steps(ranks: int) -> int:
    return ceil(log2(ranks)) if ranks > 1 else 0


MERGING = {"merge": 5.5e-5, "merge_bandwidth": 1e8, "transport": 1.5e-5}  # by NumPy, of states of attention
GLOO = Links("gloo, one machine", call=1e-4, step=6.5e-5, bandwidth=1e9, **MERGING)
NCCL = Links("NCCL, NVLink", call=3e-5, step=2e-6, bandwidth=3.4e11, **MERGING)
NVLINK = Links(
    "NCCL in a CUDA graph, NVLink in nodes of 8",
    call=8.2e-6,
    step=7e-7,
    bandwidth=2.4e11,
    merge=1e-8,
    merge_bandwidth=2e12,
    transport=6e-6,
    node=8,
    far_step=5e-6,
)

__all__ = ["GLOO", "NCCL", "NVLINK", "Choice", "Links"]
