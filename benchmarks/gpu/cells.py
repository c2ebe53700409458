"""The cells of the GPU table, the most important first: which operation, dtype and sizes, and against whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.operations import ITEMSIZE, OPERATIONS, Operation

MIB = 1 << 20
ROWS = (
    "softmax",
    "log_softmax",
    "logsumexp",
    "layer_norm",
    "rms_norm",
    "var_mean",
    "cross_entropy",
    "fp8_quantise",
    "argmax",
    "kl_divergence",
    "cosine_similarity",
    "column_variance",
)
DTYPES = ("float32", "bfloat16")
# the order is that of importance; True: Inductor runs there also with `--inductor chosen`, which saves its compiling
LENGTHS = {4096: True, 1024: True, 65536: True, 8192: False, 256: True, 1 << 20: False, 64: False}
LONG = 16 << 20
TOPS = ((4096, 4096), (65536, 128), (16384, 256))
SCHEDULES: dict[str, dict[str, Any]] = {
    "redalg deterministic": {"deterministic": True},
    "redalg measured": {"schedule": "measure"},
    "redalg split": {"schedule": "split"},
    "redalg cluster": {"schedule": "cluster"},
}


@dataclass(frozen=True)
class Cell:
    """One line of the table. `variants`: keys of `SCHEDULES` that run beside the schedule the library chooses."""

    operation: str
    dtype: str
    sizes: tuple[tuple[str, int], ...]
    inductor: bool = False
    variants: tuple[str, ...] = ()

    @property
    def op(self) -> Operation:
        return OPERATIONS[self.operation]

    @property
    def lengths(self) -> dict[str, int]:
        return dict(self.sizes)

    @property
    def length(self) -> int:
        return self.lengths[self.op.length]

    @property
    def traffic(self) -> tuple[int, int]:
        """Least bytes read, least bytes written."""
        return self.op.traffic(self.lengths, self.dtype)

    @property
    def name(self) -> str:
        return f"{self.operation} {self.dtype} {'x'.join(str(n) for _, n in self.sizes)}"

    def __str__(self) -> str:
        return self.name


def cell(operation: str, dtype: str, length: int, total: int, **options: Any) -> Cell | None:
    """The cell with `total` bytes in the largest argument; None where a row is longer than that."""
    elements = total // ITEMSIZE[dtype]
    if length > elements:
        return None
    other = elements // length
    i, j = (length, other) if OPERATIONS[operation].length == "i" else (other, length)
    return Cell(operation, dtype, (("i", i), ("j", j)), **options)


def top_cells(total: int) -> Iterator[Cell]:
    """Softmax, then the eight largest: expert routing. The published sizes, which are below 128 MiB."""
    for (i, j), dtype in [(TOPS[0], "float16"), *((shape, dtype) for shape in TOPS for dtype in DTYPES)]:
        yield Cell("softmax_top8", dtype, (("i", min(i, total // (4 * j))), ("j", j)), inductor=True)


def long_cells(total: int) -> Iterator[Cell | None]:
    """Eight rows of 16 M: too few for one block each."""
    for dtype in DTYPES:
        size = 8 * LONG * ITEMSIZE[dtype]
        for name in ("logsumexp", "variance", "softmax"):
            if size <= total:
                op = OPERATIONS[name]
                keeps = any(op.length in axes for axes in op.spec.output_axes.values())  # every split needs the state
                variants = tuple(v for v in SCHEDULES if not keeps or v != "redalg split")
                yield cell(name, dtype, LONG, size, inductor=True, variants=variants)


def every_cell(total: int) -> list[Cell]:
    """All cells; `total`: bytes of the largest argument."""
    found: list[Cell | None] = list(top_cells(total))

    def rows(length: int) -> None:
        variants = ("redalg deterministic",) if length in (4096, 65536) else ()
        for dtype in DTYPES:
            found.extend(cell(n, dtype, length, total, inductor=LENGTHS[length], variants=variants) for n in ROWS)

    rows(4096)
    maps = ("log_relu", "log_relu_broadcast")
    found += [cell(name, dtype, 4096, total, inductor=True) for dtype in DTYPES for name in maps]
    found += long_cells(total)
    for length in LENGTHS:
        if length != 4096:
            rows(length)
        if length == 65536:
            logits = "kl_divergence_of_logits"
            found += [cell(logits, dtype, n, total, inductor=True) for dtype in DTYPES for n in (4096, length)]
    return [c for c in found if c is not None]


# --- what the memory allows ------------------------------------------------------------------------------------------

SMALL = 128 * MIB  # below this, kernels are as short as calls
BLOCK = 4 * MIB


def rounded(size: int) -> int:
    """The size at which ceilings are measured: a whole number of blocks near it."""
    return max(1, round(size / BLOCK)) * BLOCK


def limit_us(read: int, written: int, rates: Mapping[str, float]) -> float:
    """The least time of a cell: the bytes that are matched by writes at the rate of a copy, the rest at that of a read.

    `rates`: "read" and "copy" (which counts both ways) in bytes per microsecond, measured at the cell's size.

    >>> limit_us(1000, 1000, {"read": 5.0, "copy": 4.0}), limit_us(1000, 0, {"read": 5.0, "copy": 4.0})
    (500.0, 200.0)
    """
    matched = min(read, written)
    return (read + written - 2 * matched) / rates["read"] + 2 * matched / rates["copy"]
