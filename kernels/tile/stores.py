"""From registers to shared memory, as 16-bit numbers: results on their way to memory, weights to a product."""

from __future__ import annotations

ROW = "(lane & 7) + ((lane >> 3) & 1) * 8"  # of a warp's 16, whose address a lane gives for matrices of 8 by 8


def matrices(place: str, dtype: str, tile: str, k: int | None = None) -> str:
    """Columns 8·k to 8·k + 15 of a warp's 16 rows of a tile, rounded, where the lanes' places say; without a number,
    of the loop over `k`.

    >>> matrices("place", "float16", "S", 2)[:66]
    'stmatrix_x4(place, pack_float16(S[8], S[9]), pack_float16(S[10], S'
    """
    at = [f"4 * k + {j}" if k is None else str(4 * k + j) for j in range(8)]
    pairs = (f"pack_{dtype}({tile}[{at[j]}], {tile}[{at[j + 1]}])" for j in range(0, 8, 2))
    return f"stmatrix_x4({place}, {', '.join(pairs)})"


def words(place: str, dtype: str, tile: str, at: int, below: str) -> tuple[str, str]:
    """The same of 8 columns, by stores of every thread's words (before compute capability 9.0): of the lane's row, and
    of the one 8 rows `below`, from element `at` of the tile on."""
    first, second = (f"pack_{dtype}({tile}[{at + k}], {tile}[{at + k + 1}])" for k in (0, 2))
    return f"shared_store_b32({place}, {first})", f"shared_store_b32({place}{below}, {second})"
