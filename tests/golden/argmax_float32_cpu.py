# argmax of float32, i=3, j=1000000; cpu, rows
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu_math import max_nan_f32
from redalg.kernels.cpu_memory import load_float32, pointer_float32, pointer_int64, store_int64

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 1024
MISSING = i64(2**62)


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def position_rows(x, position, position_s0, size_j, x_s0, low, high):
    """position along j; a row is walked in tiles.

    position = argmax[j](x[i,j])
    return position
    """
    x = pointer_float32(x)
    position = pointer_int64(position)
    length = size_j
    value1_tile = np.empty(TILE, np.float32)
    for row in range(low, high):
        i_i = row
        x_row = i_i * x_s0
        position_row = i_i * position_s0
        argmax_x_value = -INF
        argmax_x = MISSING
        first = i64(0)
        while first < length:
            count = min(TILE, length - first)
            argmax_x_value_b = -INF
            argmax_x_b = MISSING
            for k in range(count):
                at = first + k
                value1_tile[k] = load_float32(x, x_row + at)
                argmax_x_value_b = max_nan_f32(argmax_x_value_b, value1_tile[k])
            if not (argmax_x_value_b <= argmax_x_value) or argmax_x == MISSING:
                nearest = np.int32(2147483647)
                for k in range(count):
                    nearest = min(
                        nearest,
                        np.int32(k)
                        if (value1_tile[k] == argmax_x_value_b) | (value1_tile[k] != value1_tile[k])
                        else np.int32(2147483647)
                    )
                argmax_x_b = first + i64(nearest)
            t1 = (
                (argmax_x_value_b > argmax_x_value)
                | (argmax_x_value_b != argmax_x_value_b) & (argmax_x_value == argmax_x_value)
                | (
                    (argmax_x_value_b == argmax_x_value)
                    | (argmax_x_value_b != argmax_x_value_b) & (argmax_x_value != argmax_x_value)
                )
                    & (argmax_x_b < argmax_x)
            )
            argmax_x_value_new = argmax_x_value_b if t1 else argmax_x_value
            argmax_x_new = argmax_x_b if t1 else argmax_x
            argmax_x_value = argmax_x_value_new
            argmax_x = argmax_x_new
            first += TILE
        store_int64(position, position_row, argmax_x)
