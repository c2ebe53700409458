"""What tensor cores take: facts that planners, printers and the functions of `redalg.kernels.cuda.intrinsics` share."""

from __future__ import annotations

CHUNK = 64  # columns of 16 bits of a tile for `wgmma` that lie in one row of 128 bytes
STEP = 16  # terms of 16 bits that one instruction adds
UNIT = 16  # bytes of one copy to a tile for `mma.sync`
TF32 = "tf32"  # what float32 is rounded to before it multiplies, where it is asked for
TERMS = {TF32: 8}  # that one instruction adds, of what has not 16 bits
FORMAT = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}  # dtype -> its name in PTX
TYPE = {"bfloat16": "bf16", "float16": "f16", **FORMAT}
BF16, FP8 = (8, 0), (8, 9)  # compute capabilities from which on instructions convert these formats


def terms_of(kind: str) -> int:
    """Terms of a sum of products that one instruction adds."""
    return TERMS.get(kind, STEP)


def pitch_of(size: int) -> int:
    """Bytes from one row of a tile to the next, where a row has `size` bytes: an odd number of units.

    >>> pitch_of(256), pitch_of(160), pitch_of(16)
    (272, 176, 16)
    """
    return UNIT * (-(-size // UNIT) | 1)
