# biased_log of float32, i=512, j=1000; cpu, rows in splits, shared out among threads; their states are merged in the order of the stream
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import log_f32, max_nan_f32
from redalg.kernels.cpu.memory import load_float32, pointer_float32, store_float32

f32 = np.float32
TILE = 4096


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def y_write(x, b, y, size_j, span, x_s0, y_s0, low, high):
    """y; what keeps the axis, split by split.

    y = log(relu(x[i,j] + b[j]))
    return y
    """
    x = pointer_float32(x)
    b = pointer_float32(b)
    y = pointer_float32(y)
    length = size_j
    splits = (length + span - 1) // span
    for job in range(low, high):
        row = job // splits
        split = job % splits
        i_i = row
        x_row = i_i * x_s0
        y_row = i_i * y_s0
        first = split * span
        stop = min(first + span, length)
        while first < stop:
            count = min(TILE, stop - first)
            for k in range(count):
                at = first + k
                store_float32(
                    y, y_row + at,
                    log_f32(max_nan_f32(load_float32(x, x_row + at) + load_float32(b, at), f32(0)))
                )
            first += TILE
