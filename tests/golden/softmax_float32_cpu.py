# softmax of float32, i=4096, j=4096; cpu, rows shared out among threads, each walked as one tile of at most 8192 elements; results go past the caches
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import exp_f32
from redalg.kernels.cpu.memory import (
    drained, largest_float32, load_float32, pointer_float32, stack_float32, store_float32, stream_float32
)

f32 = np.float32
INF = f32(np.inf)
TILE = 8192
STRIPE = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def y_rows(x, y, size_j, x_s0, y_s0, y_s1, low, high):
    """y along j; a row is one tile.

    max1 = max[j](x[i,j])
    t1 = exp(x[i,j] - max1)
    sum1 = sum[j](t1)
    y = t1 / sum1
    return y
    """
    x = pointer_float32(x)
    y = pointer_float32(y)
    length = size_j
    value1_tile = stack_float32(TILE)
    y_stripe = stack_float32(STRIPE)
    for row in range(low, high):
        i_i = row
        x_row = i_i * x_s0
        y_row = i_i * y_s0
        count = length
        first = 0
        max_x_b = largest_float32(x, x_row + first, count)
        t1 = f32(0) if max_x_b == -INF else max_x_b
        sum_exp_b = f32(0)
        for k in range(count):
            at = first + k
            value1_tile[k] = exp_f32(load_float32(x, x_row + at) - t1)
            sum_exp_b = sum_exp_b + value1_tile[k]
        t2 = f32(1) / sum_exp_b
        for stripe in range(0, count, STRIPE):
            edge = min(stripe + STRIPE, count)
            for k in range(stripe, edge):
                store_float32(y_stripe, k - stripe, t2 * value1_tile[k])
            stream_float32(y, y_row + (first + stripe) * y_s1, y_s1, y_stripe, edge - stripe)
    drained()
