# absmax_quantise of float32, i=4096, j=4096; cpu, rows shared out among threads, each walked as one tile of at most 8192 elements; results go past the caches
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import abs_f32, max_nan_f32, round_int8_f32
from redalg.kernels.cpu.memory import (
    drained, load_float32, pointer_float32, stack_float32, store_float32, stream_float32
)

f32 = np.float32
INF = f32(np.inf)
STRIPE = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def q_scale_rows(x, q, scale, q_s0, q_s1, scale_s0, size_j, x_s0, low, high):
    """q, scale along j; a row is one tile.

    max1 = max[j](abs(x[i,j]))
    q = cast(127 * x[i,j] / max1, int8)
    scale = 1/127 * max1
    return q, scale
    """
    x = pointer_float32(x)
    q = pointer_float32(q)
    scale = pointer_float32(scale)
    length = size_j
    q_stripe = stack_float32(STRIPE)
    for row in range(low, high):
        i_i = row
        x_row = i_i * x_s0
        q_row = i_i * q_s0
        scale_row = i_i * scale_s0
        count = length
        first = 0
        max_abs_x_b = -INF
        for k in range(count):
            at = first + k
            max_abs_x_b = max_nan_f32(max_abs_x_b, abs_f32(load_float32(x, x_row + at)))
        t1 = max_abs_x_b / f32(127)
        store_float32(scale, scale_row, t1)
        t2 = f32(127) / max_abs_x_b
        for stripe in range(0, count, STRIPE):
            edge = min(stripe + STRIPE, count)
            for k in range(stripe, edge):
                at = first + k
                store_float32(q_stripe, k - stripe, round_int8_f32(t2 * load_float32(x, x_row + at)))
            stream_float32(q, q_row + (first + stripe) * q_s1, q_s1, q_stripe, edge - stripe)
    drained()
