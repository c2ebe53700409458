"""Which thread holds what of a matrix that tensor cores multiply, and how numbers are rounded for them.

Written out from the PTX ISA 9.0 ("Matrix Fragments for mma.m16n8k16", "for mma.m16n8k8", "Register Fragments for
wgmma.mma_async.m64nNk16", "ldmatrix"), not from the functions that print instructions: those are compared with it.

>>> score_row(2, 1), [int(c) for c in score_columns(8, 1, 3)]
(1, [6, 7, 6, 7])
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np


def tf32(x: Any) -> Any:
    """To nearest with 10 bits of fraction, ties away from zero (``cvt.rna.tf32.f32``); float32 in, float32 out."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    found = ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(x), found, x)


# --- tiles of numbers ------------------------------------------------------------------------------------------------
# Element k of a thread's tile lies in row ``lane/4 + 8·(k/2 mod 2·tall)`` of its warp's 16·tall rows, and in column
# ``8·(k/(4·tall)) + 2·(lane mod 4) + k mod 2``. Words of two numbers are the left operand's fragments in that order.


def score_row(k: int, tall: int) -> int:
    """Which of a thread's 2·tall rows element k of its tile is in."""
    return k // 2 % (2 * tall)


@lru_cache(maxsize=64)
def rows_of(columns: int, tall: int) -> Any:
    """The row among a thread's own (`score_row`) of every element of its tile."""
    return np.array([score_row(k, tall) for k in range(columns * tall // 2)])


@lru_cache(maxsize=256)
def score_columns(columns: int, tall: int, part: int) -> Any:
    """The column of every element of a thread's tile; `part`: its lane modulo 4."""
    k = np.arange(columns * tall // 2)
    return 8 * (k // (4 * tall)) + 2 * part + k % 2


def mixed(column: Any) -> Any:
    """The column of the matrix that stands where `column` should: of 16 the even ones come first, then the odd ones.

    ``ldmatrix.trans`` moves pairs of bytes: two neighbouring columns of 8 bits come in one word, and go to two
    products.
    """
    return column // 16 * 16 + 2 * (column % 8) + column // 8 % 2


# --- fragments of the left operand -----------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def left_terms(order: str, tall: int, words: int, part: int) -> tuple[Any, Any]:
    """(row among a thread's own, terms of its numbers) of every word of a left operand; `part`: the lane modulo 4.

    `order`: "pairs" (two numbers of 16 bits, as instructions take them), "fours" (a thread has terms 4·part to
    4·part + 3 of 16: operands of 8 bits are read so), "single" (tf32: terms part and part + 4 of 8), or "scores" (tf32
    weights where the scores were: terms 2·part and 2·part + 1 of 8).
    """
    k = np.arange(words)
    if order in ("single", "scores"):
        step, half = k // (4 * tall), k % 2
        terms = 8 * step + (part + 4 * half if order == "single" else 2 * part + half)
        return k // 2 % (2 * tall), terms[:, None]
    step, half = k // (4 * tall), k // (2 * tall) % 2
    first = 16 * step + (4 * part + 2 * half if order == "fours" else 8 * half + 2 * part)
    return k % (2 * tall), first[:, None] + np.arange(2)
