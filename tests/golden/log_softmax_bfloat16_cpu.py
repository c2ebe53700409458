# log_softmax of bfloat16, i=4096, j=65536; cpu, rows shared out among threads, each walked in tiles; results go past the caches
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import exp_f32, log_f32, max_nan_f32
from redalg.kernels.cpu.memory import (
    drained, load_bfloat16, pointer_bfloat16, stack_bfloat16, stack_float32, store_bfloat16, stream_bfloat16
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 1024
STRIPE = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def y_rows(x, y, size_j, x_s0, y_s0, y_s1, low, high):
    """y along j; a row is walked in tiles.

    max1 = max[j](x[i,j])
    sum1 = sum[j](exp(x[i,j] - max1))
    y = x[i,j] - max1 - log(sum1)
    return y
    """
    x = pointer_bfloat16(x)
    y = pointer_bfloat16(y)
    length = size_j
    x_tile = stack_float32(TILE)
    y_stripe = stack_bfloat16(STRIPE)
    for row in range(low, high):
        i_i = row
        x_row = i_i * x_s0
        y_row = i_i * y_s0
        max_x = -INF
        sum_exp = f32(0)
        first = i64(0)
        while first < length:
            count = min(TILE, length - first)
            for k in range(count):
                at = first + k
                x_tile[k] = load_bfloat16(x, x_row + at)
            max_x_b = -INF
            for k in range(count):
                max_x_b = max_nan_f32(max_x_b, x_tile[k])
            max_x_new = max_nan_f32(max_x, max_x_b)
            t1 = max_x_new - max_x
            move_A_x = f32(0) if max_x == max_x_new else t1
            t2 = f32(0) if max_x_new == -INF else max_x_new
            sum_exp_b = f32(0)
            for k in range(count):
                sum_exp_b = sum_exp_b + exp_f32(x_tile[k] - t2)
            sum_exp_new = sum_exp * exp_f32(-move_A_x) + sum_exp_b
            max_x = max_x_new
            sum_exp = sum_exp_new
            first += TILE
        t3 = log_f32(sum_exp)
        first = i64(0)
        while first < length:
            count = min(TILE, length - first)
            for k in range(count):
                at = first + k
                x_tile[k] = load_bfloat16(x, x_row + at)
            for stripe in range(0, count, STRIPE):
                edge = min(stripe + STRIPE, count)
                for k in range(stripe, edge):
                    store_bfloat16(y_stripe, k - stripe, x_tile[k] - max_x - t3)
                stream_bfloat16(y, y_row + (first + stripe) * y_s1, y_s1, y_stripe, edge - stripe)
            first += TILE
    drained()
