"""Random cells of the GPU: operations on rows of shapes that nobody has chosen, and the shapes that were slow before.

Rows and lengths are drawn log-uniformly and not rounded; sizes lie between 64 KiB and 700 MB. The same seed draws the
same cells.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.gpu.cells import Cell
from benchmarks.harness.operations import ITEMSIZE, OPERATIONS

LEAST, MOST = 64 << 10, 700 * 10**6  # bytes of the tensor that is reduced
SHORTEST, LONGEST = 3, 3_000_000  # elements of a row
ON_CHIP = 8 * (227 << 10)  # bytes of a row that a cluster of 8 blocks can hold in shared memory
DTYPES = ("float32", "bfloat16", "float16")
OPERATIONS_OF_ROWS = (
    "softmax",
    "log_softmax",
    "logsumexp",
    "layer_norm",
    "rms_norm",
    "variance",
    "var_mean",
    "argmax",
    "absmax",
    "column_variance",
    "column_softmax",
)
TURNED = ("softmax", "log_softmax", "logsumexp", "layer_norm", "rms_norm", "argmax", "absmax")  # by transposed inputs


@dataclass(frozen=True)
class RandomCell(Cell):
    """A cell whose tensors of two axes may lie transposed in memory."""

    transposed: bool = False

    @property
    def name(self) -> str:
        return super().name + (" transposed" if self.transposed else "")

    def __str__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        """What a plan has to move: every argument and result once; of rows that fit on no cluster and are read again
        for results, the arguments twice.

        >>> RandomCell("softmax", "float32", (("i", 2), ("j", 8))).bytes
        128
        >>> RandomCell("softmax", "float32", (("i", 2), ("j", 4_000_000))).bytes // (4 * 8_000_000)
        3
        """
        read, written = self.traffic
        keeps = any(self.op.length in axes for axes in self.op.spec.output_axes.values())
        again = keeps and self.length * ITEMSIZE[self.dtype] > ON_CHIP
        return read * (2 if again else 1) + written


def _log_uniform(rng: random.Random, low: float, high: float) -> int:
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def drawn(seed: str, count: int) -> list[RandomCell]:
    """Cells of a seed (a date, say).

    >>> [c.name for c in drawn("2026-11-24", 3)] == [c.name for c in drawn("2026-11-24", 60)[:3]]
    True
    """
    rng, found = random.Random(seed), dict[str, RandomCell]()
    while len(found) < count:
        operation, dtype = rng.choice(OPERATIONS_OF_ROWS), rng.choice(DTYPES)
        size = _log_uniform(rng, LEAST, MOST) // ITEMSIZE[dtype]
        length = _log_uniform(rng, SHORTEST, min(LONGEST, size))
        rows = max(1, size // length)
        i, j = (length, rows) if OPERATIONS[operation].length == "i" else (rows, length)
        turned = operation in TURNED and rng.random() < 0.2
        made = RandomCell(operation, dtype, (("i", i), ("j", j)), transposed=turned)
        found.setdefault(made.name, made)
    return list(found.values())


KNOWN = """
softmax float32 777 33333
softmax bfloat16 5000 50257
softmax float32 50 300007
softmax float32 3 40000003
softmax float32 4000 8192 transposed
logsumexp float32 20011 777
rms_norm float32 4001 3003
layer_norm bfloat16 8192 12288
column_variance float32 100003 300
var_mean float32 3000 100003
argmax float32 12345 6789
softmax_top8 bfloat16 8192 256
softmax_top8 bfloat16 65536 128
variance float16 9333 8659
rms_norm bfloat16 273 412
column_softmax bfloat16 470 12448
layer_norm bfloat16 331 50961
argmax float32 1 406056
absmax float32 329334 26
layer_norm float32 44868 466
"""


def known() -> Iterator[RandomCell]:
    """Shapes that ran at 4 to 82 % of the limit on 2026-11-22.

    >>> len(list(known()))
    20
    """
    for line in KNOWN.strip().splitlines():
        operation, dtype, i, j, *layout = line.split()
        yield RandomCell(operation, dtype, (("i", int(i)), ("j", int(j))), transposed=bool(layout))
