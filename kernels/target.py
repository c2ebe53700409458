"""What a GPU can do, in numbers with their sources: the facts the choice of a schedule rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

# A copy reaches 0.896 of the data sheet's bandwidth on an H200 (4.30 of 4.8 TB/s, measured 2026-11-20).
REACHABLE = 0.9


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
    registers: int = 65536  # per multiprocessor
    threads: int = 2048  # per multiprocessor
    blocks: int = 32  # per multiprocessor
    block_threads: int = 1024
    block_shared: int = 48 << 10  # static shared memory of a block, without asking for more
    shared: int = 228 << 10  # per multiprocessor
    launch: float = 2.5e-6  # of an empty kernel, between two others in a stream
    latency: float = 700e-9  # of a load from memory under load
    cluster: int = 1  # blocks of a cluster that every device of this cc takes
    cluster_limit: int = 1  # with the non-portable attribute
    double: float = 0.5  # float64 operations for one in float32

    @property
    def reachable(self) -> float:
        return self.bandwidth * REACHABLE

    @property
    def l2_bandwidth(self) -> float:
        """Bytes per second from L2: 26 bytes a cycle for every multiprocessor, which is 6.0 TB/s on an H100.

        Source: 5.5-5.7 TB/s are measured there by Chips and Cheese, "Nvidia's H100: Microbenchmarks" (2023); LayerNorm
        of rows of 65536 bfloat16 takes 6.7 TB/s on an H200 at 1.98 GHz (2026-11-21).
        """
        return 26 * self.clock * self.multiprocessors

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

        `facts`: any fields of `Target` by name (a string for `cc` may read "9.0"); others are ignored. A part the table
        lacks is taken to be like the newest one of the table that is not newer, at its bandwidth per multiprocessor.

        >>> Target.of({"name": "NVIDIA H200", "multiprocessors": 132}).bandwidth
        4800000000000.0
        >>> Target.of({"name": "NVIDIA H100 PCIe", "cc": "9.0", "multiprocessors": 114}).cluster
        8
        """
        known = {f.name for f in fields(Target)}
        given = {k: v for k, v in facts.items() if k in known and v}
        if "cc" in given:
            given["cc"] = _capability(given["cc"])
        name = str(given.get("name", ""))
        for part in TABLE:
            if part.name in name:
                return replace(part, **given)
        cc = given.get("cc", A100.cc)
        like = max((p for p in TABLE if p.cc <= cc), key=lambda p: p.cc, default=A100)
        share = given.get("multiprocessors", like.multiprocessors) / like.multiprocessors
        return replace(like, **{"bandwidth": like.bandwidth * share, "name": name or like.name} | given)


def _capability(value: Any) -> tuple[int, int]:
    if isinstance(value, str):
        value = value.split(".")
    return int(value[0]), int(value[1])


# Multiprocessors, L2, clock, bandwidth: NVIDIA H100 Tensor Core GPU Architecture (2022), table "H100 SXM5", and the
# data sheet of the H200 (2024). Threads, blocks, registers, shared memory: CUDA C++ Programming Guide 13, table
# "Technical Specifications per Compute Capability", 9.0. Clusters: the same, section "Thread Block Clusters": 8 blocks
# are portable, 16 are not.
H100 = Target("H100", (9, 0), 132, 3.35e12, 50 << 20, 1.755e9, cluster=8, cluster_limit=16)
H200 = replace(H100, name="H200", bandwidth=4.8e12)
# NVIDIA A100 Tensor Core GPU Architecture (2020): 108 multiprocessors, 40 MB L2, 1.41 GHz; data sheet of the A100 80GB
# SXM (2021): 2.039 TB/s. The guide's table, 8.0: 164 KB of shared memory.
A100 = Target("A100", (8, 0), 108, 2.039e12, 40 << 20, 1.41e9, shared=164 << 10)
# NVIDIA Ada GPU Architecture (2022), AD102: L40S 142 multiprocessors, 96 MB L2, 864 GB/s (data sheet 2023); RTX 4090
# 128 multiprocessors, 72 MB L2, 1008 GB/s; both boost to 2.52 GHz, float64 at 1/64. The guide's table, 8.9: 1536
# threads, 24 blocks, 100 KB of shared memory.
L40S = Target(
    "L40S", (8, 9), 142, 864e9, 96 << 20, 2.52e9, threads=1536, blocks=24, shared=100 << 10, double=1 / 64
)  # fmt: skip
RTX_4090 = replace(L40S, name="RTX 4090", multiprocessors=128, bandwidth=1008e9, l2=72 << 20)

TABLE = (H200, H100, A100, L40S, RTX_4090)
