"""What a GPU can do, in numbers with their sources: the facts the choice of a schedule rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from redalg.kernels.schedule.calibration import calibration_of

DEPENDENT = (9, 0)  # the compute capability from which on a kernel may be launched before the last one has ended
# Seconds that a small kernel behind another one of the same call takes less than the model says of it alone: sums over
# 31 rows of 2 take 1.5 to 2.5 us one after the other, where 3.8 to 4.1 are predicted, column variances of 96 rows of
# 1223 float16 and of 8 of 236799 float32 2.1 and 4.6 for 3.7 and 6.1 (captured graphs, H100, 2026-11-26).
EARLIER = 1.3e-6
RESERVED = 1 << 10  # bytes of shared memory that every block takes beside its own; CUDA C++ Programming Guide 13


class Limits(NamedTuple):
    """What blocks of a compute capability may have: bytes of shared memory of a multiprocessor and, asked for, of one
    block; threads and blocks of a multiprocessor."""

    shared: int
    most_shared: int
    threads: int
    blocks: int


# CUDA C++ Programming Guide 13, table "Technical Specifications per Compute Capability".
LIMITS = {
    (7, 5): Limits(64 << 10, 64 << 10, 1024, 16),
    (8, 0): Limits(164 << 10, 163 << 10, 2048, 32),
    (8, 6): Limits(100 << 10, 99 << 10, 1536, 16),
    (8, 7): Limits(164 << 10, 163 << 10, 1536, 16),
    (8, 9): Limits(100 << 10, 99 << 10, 1536, 24),
    (9, 0): Limits(228 << 10, 227 << 10, 2048, 32),
    (10, 0): Limits(228 << 10, 227 << 10, 2048, 32),
    (10, 3): Limits(228 << 10, 227 << 10, 2048, 32),
    (11, 0): Limits(228 << 10, 227 << 10, 1536, 24),
    (12, 0): Limits(100 << 10, 99 << 10, 1536, 24),
    (12, 1): Limits(100 << 10, 99 << 10, 1536, 24),
}
LEAST = LIMITS[8, 6]  # of a compute capability that is not listed


def limits_of(cc: tuple[int, int]) -> Limits:
    return LIMITS.get(cc, LEAST)


class Multiprocessor(NamedTuple):
    """What the blocks of one multiprocessor share: registers, threads, blocks, bytes of shared memory."""

    registers: int = 65536
    threads: int = 2048
    blocks: int = 32
    shared: int = 228 << 10


class Block(NamedTuple):
    """What one block may have: threads, bytes of static shared memory and of what it asks for (as the driver says; 0:
    nobody was asked), and blocks of a cluster: that every device of its compute capability takes, and with the
    non-portable attribute."""

    threads: int = 1024
    shared: int = 48 << 10
    optin_shared: int = 0
    cluster: int = 1
    cluster_limit: int = 1


# Facts as drivers and records name them -> group of `Target` and field of it; any other is a field of `Target`.
GROUPED = {
    "registers": ("multiprocessor", "registers"),
    "threads": ("multiprocessor", "threads"),
    "blocks": ("multiprocessor", "blocks"),
    "shared": ("multiprocessor", "shared"),
    "block_threads": ("block", "threads"),
    "block_shared": ("block", "shared"),
    "optin_shared": ("block", "optin_shared"),
    "cluster": ("block", "cluster"),
    "cluster_limit": ("block", "cluster_limit"),
}


@dataclass(frozen=True)
class Target:
    """Facts of a device. Bytes, seconds, hertz; `bandwidth` is the data sheet's, `reachable` what a copy gets of it.

    >>> H200.multiprocessors, round(H200.reachable / 1e12, 2)
    (132, 4.32)
    """

    name: str
    cc: tuple[int, int]
    multiprocessors: int
    bandwidth: float
    l2: int
    clock: float
    multiprocessor: Multiprocessor = Multiprocessor()
    block: Block = Block()
    launch: float = 2.5e-6  # of an empty kernel, between two others in a stream
    latency: float = 700e-9  # of a load from memory under load
    double: float = 0.5  # float64 operations for one in float32

    def having(self, **facts: Any) -> Target:
        """The target with other facts, by the names that drivers and records have for them.

        >>> H200.having(block_threads=512, clock=1e9).block.threads, H200.having(shared=100 << 10).multiprocessor.shared
        (512, 102400)
        """
        own = {name: value for name, value in facts.items() if name not in GROUPED}
        for name, value in facts.items():
            if name in GROUPED:
                group, field = GROUPED[name]
                own[group] = own.get(group, getattr(self, group))._replace(**{field: value})
        return replace(self, **own)

    @property
    def reachable(self) -> float:
        return self.bandwidth * calibration_of(self.name).memory.reachable

    @property
    def most_shared(self) -> int:
        """Bytes of shared memory that a block may have: what the driver says, else what the guide says.

        >>> [t.most_shared >> 10 for t in (H200, A100, RTX_4090)], A100.having(cc=(8, 6)).most_shared >> 10
        ([227, 163, 99], 99)
        """
        own = self.multiprocessor.shared - RESERVED
        return self.block.optin_shared or min(own, limits_of(self.cc).most_shared)

    @property
    def l2_bandwidth(self) -> float:
        """Bytes per second from L2."""
        return calibration_of(self.name).memory.l2_bytes * self.clock * self.multiprocessors

    @property
    def issue(self) -> float:
        """Instructions of single threads per second: four warps a cycle on every multiprocessor."""
        return 128 * self.clock * self.multiprocessors

    @property
    def own_bandwidth(self) -> float:
        """Bytes per second one multiprocessor can take from memory alone: 64 bytes a cycle from L2."""
        return 64 * self.clock

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Target:
        """The target of a device as it describes itself: the table's part of that name, corrected by what is read.

        `facts`: as drivers and records name them, fields of `Target` (a string for `cc` may read "9.0") and names of
        `GROUPED`; others are ignored. A part the table lacks is taken to be like the newest one of the table that is
        not newer, at its bandwidth per multiprocessor, within the limits of its own compute capability.

        >>> Target.of({"name": "NVIDIA H200", "multiprocessors": 132}).bandwidth
        4800000000000.0
        >>> Target.of({"name": "NVIDIA H100 PCIe", "cc": "9.0", "multiprocessors": 114}).block.cluster
        8
        """
        known = {f.name for f in fields(Target)} - {group for group, _ in GROUPED.values()} | GROUPED.keys()
        given = {k: v for k, v in facts.items() if k in known and v}
        if "cc" in given:
            given["cc"] = _capability(given["cc"])
        name = str(given.get("name", ""))
        for part in TABLE:
            if part.name in name:
                return part.having(**given)
        cc = given.get("cc", A100.cc)
        like = max((p for p in TABLE if p.cc <= cc), key=lambda p: p.cc, default=A100)
        share = given.get("multiprocessors", like.multiprocessors) / like.multiprocessors
        most = limits_of(cc)
        assumed = {"bandwidth": like.bandwidth * share, "name": name or like.name, "shared": most.shared}
        assumed |= {"threads": most.threads, "blocks": most.blocks}
        return like.having(**(assumed | given))

    @property
    def listed(self) -> bool:
        """Whether the table knows its bandwidth."""
        return any(part.name in self.name for part in TABLE)


def _capability(value: Any) -> tuple[int, int]:
    if isinstance(value, str):
        value = value.split(".")
    return int(value[0]), int(value[1])


# Multiprocessors, L2, clock, bandwidth: NVIDIA H100 Tensor Core GPU Architecture (2022), table "H100 SXM5", and the
# data sheet of the H200 (2024). Threads, blocks, registers, shared memory: CUDA C++ Programming Guide 13, table
# "Technical Specifications per Compute Capability", 9.0. Clusters: the same, section "Thread Block Clusters": 8 blocks
# are portable, 16 are not.
H100 = Target("H100", (9, 0), 132, 3.35e12, 50 << 20, 1.755e9, block=Block(cluster=8, cluster_limit=16))
H200 = replace(H100, name="H200", bandwidth=4.8e12)
# NVIDIA A100 Tensor Core GPU Architecture (2020): 108 multiprocessors, 40 MB L2, 1.41 GHz; data sheet of the A100 80GB
# SXM (2021): 2.039 TB/s. The guide's table, 8.0: 164 KB of shared memory.
A100 = Target("A100", (8, 0), 108, 2.039e12, 40 << 20, 1.41e9, Multiprocessor(shared=164 << 10))
# NVIDIA Ada GPU Architecture (2022), AD102: L40S 142 multiprocessors, 96 MB L2, 864 GB/s (data sheet 2023); RTX 4090
# 128 multiprocessors, 72 MB L2, 1008 GB/s; both boost to 2.52 GHz, float64 at 1/64. The guide's table, 8.9: 1536
# threads, 24 blocks, 100 KB of shared memory.
ADA = Multiprocessor(threads=1536, blocks=24, shared=100 << 10)
L40S = Target("L40S", (8, 9), 142, 864e9, 96 << 20, 2.52e9, ADA, double=1 / 64)
RTX_4090 = replace(L40S, name="RTX 4090", multiprocessors=128, bandwidth=1008e9, l2=72 << 20)

TABLE = (H200, H100, A100, L40S, RTX_4090)
