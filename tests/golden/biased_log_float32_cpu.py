# biased_log of float32, i=512, j=1000; cpu, rows
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu_math import log_f32, max_nan_f32
from redalg.kernels.cpu_memory import load_float32, pointer_float32, store_float32

f32, i64 = np.float32, np.int64
TILE = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def y_rows(x, b, y, size_j, x_s0, y_s0, y_s1, low, high):
    """y; a row is walked in tiles.

    y = log(relu(x[i,j] + b[j]))
    return y
    """
    x = pointer_float32(x)
    b = pointer_float32(b)
    y = pointer_float32(y)
    length = size_j
    for row in range(low, high):
        i_i = row
        x_row = i_i * x_s0
        y_row = i_i * y_s0
        first = i64(0)
        while first < length:
            count = min(TILE, length - first)
            for k in range(count):
                at = first + k
                store_float32(
                    y, y_row + at * y_s1,
                    log_f32(max_nan_f32(load_float32(x, x_row + at) + load_float32(b, at), f32(0)))
                )
            first += TILE
