# argmax of float32, i=3, j=1000000; cpu, rows in splits, shared out among threads; their states are merged in the order of the stream
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.memory import (
    largest_float32, load_float32, load_int64, place_float32, pointer_float32, pointer_int64, store_float32,
    store_int64
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 4096
MISSING = i64(2**62)


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def combine(argmax_x_value, argmax_x, argmax_x_value_b, argmax_x_b):
    """The state of a stream, followed by another's."""
    t1 = (
        (argmax_x_value_b > argmax_x_value)
        | ((argmax_x_value_b != argmax_x_value_b) & (argmax_x_value == argmax_x_value))
        | (
            (
                (argmax_x_value_b == argmax_x_value)
                | ((argmax_x_value_b != argmax_x_value_b) & (argmax_x_value != argmax_x_value))
            )
            & (argmax_x_b < argmax_x)
        )
    )
    argmax_x_value_new = argmax_x_value_b if t1 else argmax_x_value
    argmax_x_new = argmax_x_b if t1 else argmax_x
    return argmax_x_value_new, argmax_x_new


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def position_fold(
    x, position, position_s0, argmax_x_parts, argmax_x_value_parts, size_j, span, x_s0, low, high
):
    """position along j; the state of every split of a row.

    position = argmax[j](x[i,j])
    return position
    """
    x = pointer_float32(x)
    argmax_x_parts = pointer_int64(argmax_x_parts)
    argmax_x_value_parts = pointer_float32(argmax_x_value_parts)
    length = size_j
    splits = (length + span - 1) // span
    for job in range(low, high):
        row = job // splits
        split = job % splits
        i_i = row
        x_row = i_i * x_s0
        argmax_x_value = -INF
        argmax_x = MISSING
        first = split * span
        stop = min(first + span, length)
        while first < stop:
            count = min(TILE, stop - first)
            argmax_x_b = MISSING
            argmax_x_value_b = largest_float32(x, x_row + first, count)
            if not (argmax_x_value_b <= argmax_x_value) or argmax_x == MISSING:
                argmax_x_b = first + place_float32(x, x_row + first, count, argmax_x_value_b)
            t1 = (
                (argmax_x_value_b > argmax_x_value)
                | ((argmax_x_value_b != argmax_x_value_b) & (argmax_x_value == argmax_x_value))
                | (
                    (
                        (argmax_x_value_b == argmax_x_value)
                        | ((argmax_x_value_b != argmax_x_value_b) & (argmax_x_value != argmax_x_value))
                    )
                    & (argmax_x_b < argmax_x)
                )
            )
            argmax_x_value_new = argmax_x_value_b if t1 else argmax_x_value
            argmax_x_new = argmax_x_b if t1 else argmax_x
            argmax_x_value = argmax_x_value_new
            argmax_x = argmax_x_new
            first += TILE
        store_float32(argmax_x_value_parts, job, argmax_x_value)
        store_int64(argmax_x_parts, job, argmax_x)


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def position_merge(
    x, position, position_s0, argmax_x_parts, argmax_x_value_parts, size_j, span, x_s0, low, high
):
    """position along j; the states of a row's splits, merged.

    position = argmax[j](x[i,j])
    return position
    """
    position = pointer_int64(position)
    argmax_x_parts = pointer_int64(argmax_x_parts)
    argmax_x_value_parts = pointer_float32(argmax_x_value_parts)
    length = size_j
    splits = (length + span - 1) // span
    for row in range(low, high):
        i_i = row
        position_row = i_i * position_s0
        home = row * splits
        argmax_x_value = load_float32(argmax_x_value_parts, home)
        argmax_x = load_int64(argmax_x_parts, home)
        for split in range(1, splits):
            argmax_x_value_b = load_float32(argmax_x_value_parts, home + split)
            argmax_x_b = load_int64(argmax_x_parts, home + split)
            argmax_x_value, argmax_x = combine(argmax_x_value, argmax_x, argmax_x_value_b, argmax_x_b)
        store_int64(position, position_row, argmax_x)
