# log_softmax of bfloat16, i=4096, j=65536; cpu, rows shared out among threads, each walked as one tile of at most 65536 elements; results go past the caches
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import exp_f32, log_f32
from redalg.kernels.cpu.memory import (
    drained, largest_bfloat16, load_bfloat16, pointer_bfloat16, stack_bfloat16, store_bfloat16,
    stream_bfloat16
)

f32 = np.float32
INF = f32(np.inf)
STRIPE = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def y_rows(x, y, size_j, x_s0, y_s0, y_s1, low, high):
    """y along j; a row is one tile.

    max1 = max[j](x[i,j])
    sum1 = sum[j](exp(x[i,j] - max1))
    y = x[i,j] - max1 - log(sum1)
    return y
    """
    x = pointer_bfloat16(x)
    y = pointer_bfloat16(y)
    length = size_j
    y_stripe = stack_bfloat16(STRIPE)
    for row in range(low, high):
        i_i = row
        x_row = i_i * x_s0
        y_row = i_i * y_s0
        count = length
        first = 0
        max_x_b = largest_bfloat16(x, x_row + first, count)
        t1 = f32(0) if max_x_b == -INF else max_x_b
        sum_exp_b = f32(0)
        for k in range(count):
            at = first + k
            sum_exp_b = sum_exp_b + exp_f32(load_bfloat16(x, x_row + at) - t1)
        t2 = log_f32(sum_exp_b)
        for stripe in range(0, count, STRIPE):
            edge = min(stripe + STRIPE, count)
            for k in range(stripe, edge):
                at = first + k
                store_bfloat16(y_stripe, k - stripe, load_bfloat16(x, x_row + at) - max_x_b - t2)
            stream_bfloat16(y, y_row + (first + stripe) * y_s1, y_s1, y_stripe, edge - stripe)
    drained()
