# layer_norm of bfloat16, i=4096, j=4096; cpu, rows shared out among threads, each walked as one tile of at most 8192 elements; results go past the caches
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import is_finite_f32, sqrt_f32
from redalg.kernels.cpu.memory import (
    drained, load_bfloat16, pointer_bfloat16, stack_bfloat16, store_bfloat16, stream_bfloat16
)

f32 = np.float32
INF = f32(np.inf)
STRIPE = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def y_rows(x, weight, bias, eps, y, size_j, x_s0, y_s0, y_s1, low, high):
    """y along j; a row is one tile.

    tensors x[i,j], weight[j], bias[j], eps nonnegative
    sum1 = sum[j](x[i,j])
    t1 = x[i,j] - sum1 / size[j]
    sum2 = sum[j](t1**2)
    y = weight[j] * t1 / sqrt(eps + sum2 / size[j]) + bias[j]
    return y
    """
    x = pointer_bfloat16(x)
    weight = pointer_bfloat16(weight)
    bias = pointer_bfloat16(bias)
    y = pointer_bfloat16(y)
    length = size_j
    y_stripe = stack_bfloat16(STRIPE)
    for row in range(low, high):
        i_i = row
        x_row = i_i * x_s0
        y_row = i_i * y_s0
        n_b = length
        count = length
        first = 0
        A_x_first = load_bfloat16(x, x_row)
        A_x_first = A_x_first if is_finite_f32(A_x_first) else f32(0)
        avg_x_first_sum = f32(0)
        for k in range(count):
            at = first + k
            avg_x_first_sum = avg_x_first_sum + (load_bfloat16(x, x_row + at) - A_x_first)
        avg_x_first = avg_x_first_sum / f32(n_b)
        A_x_seen_b = A_x_first + avg_x_first
        A_x_b = A_x_seen_b if (A_x_seen_b < INF) & (-INF < A_x_seen_b) else A_x_first
        avg_x_b_sum = f32(0)
        avg_x2_b_sum = f32(0)
        for k in range(count):
            at = first + k
            t1 = load_bfloat16(x, x_row + at) - A_x_b
            avg_x_b_sum = avg_x_b_sum + t1
            avg_x2_b_sum = avg_x2_b_sum + t1 * t1
        avg_x_b = avg_x_b_sum / f32(n_b)
        avg_x2_b = avg_x2_b_sum / f32(n_b)
        t2 = f32(1) / sqrt_f32(avg_x2_b + f32(eps) - avg_x_b * avg_x_b)
        for stripe in range(0, count, STRIPE):
            edge = min(stripe + STRIPE, count)
            for k in range(stripe, edge):
                at = first + k
                store_bfloat16(
                    y_stripe, k - stripe,
                    (load_bfloat16(x, x_row + at) - A_x_b - avg_x_b) * t2 * load_bfloat16(weight, at)
                    + load_bfloat16(bias, at)
                )
            stream_bfloat16(y, y_row + (first + stripe) * y_s1, y_s1, y_stripe, edge - stripe)
    drained()
