"""What was measured of devices, for the cost model: one record for each device, with where every number comes from.

A device without a record of its own is taken to be like the one that was measured, an H200 (2026-11-20 to 2026-11-22):
most numbers are latencies in cycles and shares, which differ less between devices than their bandwidths, and those are
facts of `redalg.kernels.schedule.target`. To calibrate another device, add its record to `MEASURED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


class Memory(NamedTuple):
    """How far reads and writes reach what a data sheet says."""

    reachable: float  # of the data sheet's bandwidth, by a copy
    l2_bytes: float  # a cycle from L2, for every multiprocessor
    l2_alone: float  # the same of one multiprocessor, where few others read
    in_flight: int  # loads of a thread that are under way
    bounded: float  # of those, where every one of them is behind a test of bounds
    unbuffered: float  # times what is folded before the next tile is asked for
    page: int  # bytes' worth of time to open a place in memory: what is read there in one go is 1 + page/bytes as dear
    kept_page: float  # part of that for rows side by side that are kept in shared memory
    l2_kept: float  # of L2, that holds what was read last when it is read again
    refetched: float  # part of the sectors shared by blocks of neighbouring rows that each reads from memory
    astride: float  # more time where pairs of rows that are walked once are put together from two words
    single: float  # more time where rows are read element by element, each behind a bound


class FirstLevel(NamedTuple):
    """The first-level cache of a multiprocessor."""

    size: int  # bytes that all rows read are found there, at
    found: float  # of the reads
    kept: float  # of the cache, one memory with the shared one, for the end of the rows in work


class Exchange(NamedTuple):
    """What exchanges between threads and between blocks cost."""

    shuffle: int  # cycles
    barrier: int  # cycles
    cluster_barrier: int  # cycles
    distributed: int  # cycles of a load from another block of a cluster
    sent: int  # cycles until values of all blocks of a cluster have come, which are waited for by an mbarrier
    atomic: float  # seconds: a fence, an atomic on one counter, and reading the states of the other splits
    met: float  # seconds more where no copies are on their way meanwhile
    # Seconds more until splits of columns are merged, and for every word of their states beyond the first; less of
    # fewer than twice so many rows, none of so many.
    column_split: float
    column_word: float
    column_rows: int


class Blocks(NamedTuple):
    """What blocks cost beside their work."""

    start: float  # seconds to start one and to find its place
    warp_start: float  # seconds more for each of its warps
    # Seconds more until all blocks of a cluster run, and until the last may leave; half of rows, and half less where
    # all clusters run at the same time.
    cluster_start: float
    reached: Mapping[int, float]  # part of the multiprocessors that clusters of a size reach
    alone: float  # more time for a resident row where one block is alone on a multiprocessor
    held_alone: float  # more time where a block that holds rows side by side is alone on a multiprocessor
    held_cluster: float  # times that where it is one of a cluster
    walked_twice: float  # times that where it walks them and reads them again
    per_block: float  # more of that for every block more on a multiprocessor
    asked: int  # bytes that the threads of a multiprocessor have to ask for at a time there
    crowd: int  # rows for every multiprocessor, from which on a block for each fills the device
    tail: float  # later end of rows whose blocks all begin at once


class Issue(NamedTuple):
    """How often blocks and instructions begin."""

    block: float  # seconds between two blocks that start on a multiprocessor, where others end
    begun: float  # the same in the first wave
    stalled: float  # cycles between two instructions of a warp that has its scheduler for itself


class Lines(NamedTuple):
    """Columns that are walked line by line."""

    waits: float  # of those of a thread, the part that others do not fill
    several: float  # more time where a thread has several rows, or several that start anywhere
    kept: float  # the same where rows are kept in shared memory
    four: float  # times that where it has four
    cut: float  # more time for columns that begin inside sectors, by the part of two lines that a block leaves
    along: float  # times that of memory where warps lie along the columns that they reduce and write


class Turned(NamedTuple):
    """Results that turn in shared memory."""

    walked: float  # times that of memory where rows are walked and their results written in long lines
    alone: float  # more of it where a block is alone on a multiprocessor
    line: int  # bytes of a line from which on longer ones are no faster
    short: float  # power of how much longer shorter ones take
    held: float  # times that of memory where it holds them side by side
    thread: float  # the same where every row has one thread
    narrow: float  # the same of elements of 16 bits that clusters hold


class KeptSplits(NamedTuple):
    """Splits of rows side by side that keep them in shared memory and meet, round after round of a grid's blocks."""

    copy: float  # times a copy
    narrow: float  # bytes' worth of time to read a piece of neighbouring rows, beside what any place in memory takes
    idle: float  # power of how much longer memory takes where the last round does not fill the device
    turned: float  # of lines of results shorter than two sectors, for each such line more
    meeting: float  # seconds of a round for each split: with more of them, fewer groups fill each other's waits


class Cooperative(NamedTuple):
    """Blocks of a cooperative launch that prefetch their rows."""

    copy: float  # times a copy
    unfilled: float  # more of it where they leave shared memory unused


class TensorCores(NamedTuple):
    rate: float  # operations a second of wgmma on 16 bits
    float8: float  # times that, on 8 bits


@dataclass(frozen=True, eq=False)
class Calibration:
    """Constants of `redalg.kernels.schedule.cost` and of the tensor cores. Cycles, seconds, bytes, or shares."""

    memory: Memory
    first_level: FirstLevel
    exchange: Exchange
    blocks: Blocks
    issue: Issue
    lines: Lines
    turned: Turned
    cooperative: Cooperative
    kept_splits: KeptSplits
    tensor_cores: TensorCores


H200 = Calibration(
    Memory(
        reachable=0.9,  # 4.30 of 4.8 TB/s, 0.896 (2026-11-20)
        # 6.0 TB/s on an H100: 5.5-5.7 TB/s are measured there by Chips and Cheese, "Nvidia's H100: Microbenchmarks"
        # (2023); LayerNorm of rows of 65536 bfloat16 takes 6.7 TB/s on an H200 at 1.98 GHz (2026-11-21)
        l2_bytes=26,
        # Softmax of 5740x17 float16 down its columns takes 13.3 us by 9 blocks, each of which brings a sector for every
        # element, and 6.8 by clusters side by side; 40 to 44 choose best among what was swept (H100, 2026-11-27).
        l2_alone=42,
        # Two tensors of 128 rows of 1 M float32 are read in 414 us with 16 loads of 16 bytes a thread and about 256
        # threads a multiprocessor (cosine similarity), in 250 with 8 loads and 1024 (KL divergence; 2026-11-21).
        in_flight=8,
        bounded=0.8,
        unbuffered=1.08,  # variance of 8192 float32 takes 74 us in tiles, 63 us resident (2026-11-21)
        page=8,
        # 211 schedules of 13 cells that keep rows (H100, 2026-11-27): the choice among them and others takes 1.08 times
        # as long as the best. LayerNorm of a transposed 16635x4869 float16 takes 269 us by one block of 512 threads and
        # 16 rows on a multiprocessor, log_softmax of 21399x4330 float16 255 by two of 256 and 8; copies 108 and 124.
        kept_page=0.5,
        # RMSNorm of 4001 rows of 3003 float32 takes 54 us in single loads, argmax of 12345 of 6789 117: 1.5 to 1.6
        # times a copy of as many bytes (2026-11-22).
        single=1.45,
        # Softmax of a transposed 36x1818081 bfloat16 takes 411 us by blocks of 8 rows and 565 of 64: 1720 and 406 of
        # memory alone, if every block fetched the sectors of 4 rows for itself (H100, 2026-11-27).
        refetched=0.2,
        # Variance of columns 695469x305 bfloat16: 321 us by pairs, 183 by single elements, as many bytes under way; of
        # 6781x29081 and 184x581871 float16 by pairs 1.3 times what is said without (H100, 2026-11-27).
        astride=1.35,
        # Of 35 MB of rows in work, a third is read again past the 60 MiB of L2 (H200). 0.30 to 0.33 choose best among
        # the schedules of 213 cells (H100); that all which fits 0.42 of L2 is found again chose worse.
        l2_kept=0.3,
    ),
    FirstLevel(size=64 << 10, found=0.7, kept=0.8),
    # Measured 2026-11-20; splits of columns on an H100 (2026-11-25): variance of 6500x512 bfloat16 takes 14.6 us by 16
    # splits, 11.0 by none, where 9.6 and 9.8 were predicted.
    # `met`: of schedules swept for 60 cells, those that split were taken too often without (H100, 2026-11-27).
    Exchange(
        shuffle=30,
        barrier=40,
        cluster_barrier=600,
        distributed=200,
        # argmax of 9x11593 bfloat16: 2.4 us by clusters of 8, 2.7 by one block; variance and mean of 8x29491 3.0 and
        # 3.8 (H200, 2026-11-27).
        sent=250,
        atomic=0.8e-6,
        met=0.25e-6,
        # Splits of columns: the largest element of 62x8088 float16 3.9 us by 32, 6.1 by none, and the variance of
        # 2589x427 float16 9.7 by 14, 5.8 by none. Of 500 schedules of 50 cells the choice takes 1.066 times the best,
        # 1.088 with 4 us for all of them (H200, 2026-11-30).
        column_split=0.6e-6,
        column_word=1.4e-6,
        column_rows=32,
    ),
    Blocks(
        start=0.3e-6,
        # The largest element of a row of 88881 float16 by clusters of 16: 3.4 us by blocks of 128 threads, 3.9 of 256,
        # 4.2 of 512 and 1024 (H100, 2026-11-27).
        warp_start=20e-9,
        # LayerNorm of 3x11269 bfloat16: 3.2 us by clusters of 8, 6.3 by blocks of 256 threads (H200, 2026-11-27).
        cluster_start=3e-6,
        reached={1: 1.0, 2: 1.0, 4: 0.97, 8: 0.94, 16: 0.7},  # they lie in groups of up to 18, some of 16 or fewer
        alone=0.5,  # softmax of 65536 float32 takes 236 us with one block of 512 a processor, 157 with three of 256
        # Rows side by side in registers: softmax of a transposed 4000x8192 float32 124, 153 and 183 us with 4, 2 and 1
        # blocks of a cluster on a processor, of columns 2000x8000 float32 53 with 2 blocks (2026-11-24).
        held_alone=0.7,
        held_cluster=1.15,
        walked_twice=1.35,  # softmax of columns 470x12448 bfloat16 17 us, 2000x8000 float32 80 (2026-11-24)
        # Softmax of columns 9094x19886 bfloat16: 634 us by 2 blocks on a processor, 739 by 6 (H100, 2026-11-25).
        per_block=0.05,
        asked=32 << 10,
        crowd=4,
        tail=0.06,  # rows of 65536 whose blocks all begin at once end 4 to 15 % later than in four waves and more
    ),
    Issue(
        # Variance of columns 4x36411993 float32: 345 us by blocks of 64 threads, 254 by 128 (H100, 2026-11-26).
        block=75e-9,
        # RMSNorm of 5043x11 bfloat16: 1.6 us by 158 and 316 blocks, 1.75 by 631, 2.0 by 1261. Of 520 schedules of 61
        # cells of rows the choice takes 1.029 times the best with 30 to 45 ns, 1.045 without (H200, 2026-11-30).
        begun=40e-9,
        # log_softmax of 74 rows of 942 float32: 3.1 us by 32 elements a thread, 2.4 by 4 (H100, 2026-11-26).
        stalled=2.0,
    ),
    # Of 1360 schedules of 44 cells, most of which walk columns, the choice takes 1.13 times as long as the best with
    # these and what ptxas is known to need of registers (24 cells on an H200, 20 on an H100, 2026-11-27). Gradients of
    # log_softmax 73896x47 float32: 11.6 us by one row of a thread, 12.2 by two, 16.1 by four (H200, 2026-11-28).
    Lines(
        waits=0.9,
        several=1.1,
        # RMSNorm of a transposed 51486x1167 float16 takes 180 us kept and 126 walked twice, 138 and 158 said with 1.05;
        # of 667 schedules of 57 cells the choice takes 1.05 times the best, 1.08 with 1.05 and a line of 128 bytes for
        # `cut` (H200, 2026-11-29).
        kept=1.15,
        # Variance of columns 1954x4544 float16: 12.5 us by two columns of a thread, 16.4 by four, said to take 11.2
        # without (H200, 2026-11-29).
        four=1.2,
        # Softmax down columns of 450x81428 float32 takes 107 us by blocks of 32 columns, 146 of 16, and of 2125x18478
        # 135 and 192 by clusters of these, where 70 and 75 are a copy's. 0.2 to 0.45 choose best in 103 cells: 1.044
        # times the best, 1.067 without. Splits, and columns that begin at sectors, are as said without it (2026-11-28).
        cut=0.3,
        # Softmax of columns 2336x94902 bfloat16 takes 935 us so, said to take 481, and 439 by warps across them; of
        # 81x559056 float16 86 and 59. Of 393 schedules of 34 cells the choice takes 1.04 times the best with this and
        # `four`, 1.10 without; 1.2 to 1.4 choose alike (H200, 2026-11-29).
        along=1.3,
    ),
    Turned(
        # 62 schedules of six cells, a standard deviation of 15 %, the choice among them 1.04 of the best where rows are
        # not kept: RMSNorm of a transposed 2681x65892 bfloat16 takes 657 us with lines of 1024 bytes and 740 to 1240
        # with lines of 32 to 128, softmax of 807x51760 float32 188 (H200, 2026-11-28).
        walked=1.2,
        alone=0.3,
        line=1024,
        short=0.33,
        # By 2 to 8 threads, log_softmax of a transposed 251779x115 float32 takes 149 to 215 us, a copy of as much 89;
        # by one thread that of 163104x20 float16 12.5 to 17, a copy 5 (H100, 2026-11-26).
        held=1.45,
        thread=2.2,
        # Softmax of a transposed 5877x6273 float16 takes 177 us by clusters, 105 said without this, and 111 by blocks
        # that keep 8 rows in shared memory; RMSNorm of 947122x347 1125 and 733 (2026-11-28).
        narrow=1.4,
    ),
    # Rows of 65536 bfloat16 and 1 M float32 and bfloat16 that are prefetched to shared memory (2026-11-22): blocks of a
    # cooperative launch take a fifth longer than the copy, and more where they leave shared memory unused.
    Cooperative(copy=1.2, unfilled=0.3),
    # 186 schedules of 12 cells: a standard deviation of 16 %, the choice among them is 1.08 of the best (H200,
    # 2026-11-27).
    KeptSplits(copy=1.53, narrow=15.8, idle=0.67, turned=0.166, meeting=0.39e-6),
    # bfloat16 products of 8192² by cuBLAS (2026-11-20); that of float8 is a guess, not measured.
    TensorCores(rate=740e12, float8=1.75),
)
MEASURED: Mapping[str, Calibration] = {"H200": H200}  # by a part of the device's name


@lru_cache(maxsize=64)
def calibration_of(name: str) -> Calibration:
    """The record of a device, or that of the one that was measured."""
    return next((record for part, record in MEASURED.items() if part in name), H200)
