# column_softmax of bfloat16, i=1000, j=4096; cpu, blocks of 1024 rows side by side along j shared out among threads, each walked as one tile of at most 1024 elements
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import exp_f32, max_nan_f32
from redalg.kernels.cpu.memory import load_bfloat16, pointer_bfloat16, stack_float32, store_stream_bfloat16

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 1024
BLOCK = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def y_rows(x, y, size_i, size_j, width, x_s0, y_s0, low, high):
    """y along i; rows side by side, walked together.

    max1 = max[i](x[i,j])
    t1 = exp(x[i,j] - max1)
    sum1 = sum[i](t1)
    y = t1 / sum1
    return y
    """
    x = pointer_bfloat16(x)
    y = pointer_bfloat16(y)
    length = size_i
    max_x_b = stack_float32(BLOCK)
    settled_t2 = stack_float32(BLOCK)
    sum_exp_b = stack_float32(BLOCK)
    settled_t3 = stack_float32(BLOCK)
    settled_t5 = stack_float32(BLOCK)
    for unit in range(low, high):
        columns = size_j
        blocks = (columns + width - 1) // width
        origin = unit % blocks * width
        COLUMNS = min(width, columns - origin)
        first = i64(0)
        count = length
        for m in range(COLUMNS):
            max_x_b[m] = -INF
        unrolled = count // 4 * 4
        for k in range(0, unrolled, 4):
            k_u0 = k + 0
            at_u0 = first + k_u0
            k_u1 = k + 1
            at_u1 = first + k_u1
            k_u2 = k + 2
            at_u2 = first + k_u2
            k_u3 = k + 3
            at_u3 = first + k_u3
            for m in range(COLUMNS):
                column = origin + m
                max_x_b[m] = max_nan_f32(max_x_b[m], load_bfloat16(x, at_u0 * x_s0 + column))
                max_x_b[m] = max_nan_f32(max_x_b[m], load_bfloat16(x, at_u1 * x_s0 + column))
                max_x_b[m] = max_nan_f32(max_x_b[m], load_bfloat16(x, at_u2 * x_s0 + column))
                max_x_b[m] = max_nan_f32(max_x_b[m], load_bfloat16(x, at_u3 * x_s0 + column))
        for k in range(unrolled, count):
            at = first + k
            for m in range(COLUMNS):
                column = origin + m
                max_x_b[m] = max_nan_f32(max_x_b[m], load_bfloat16(x, at * x_s0 + column))
        for m in range(COLUMNS):
            t1 = max_x_b[m]
            t2 = f32(0) if -INF == max_x_b[m] else t1
            settled_t2[m] = t2
        for m in range(COLUMNS):
            sum_exp_b[m] = f32(0)
        unrolled = count // 4 * 4
        for k in range(0, unrolled, 4):
            k_u0 = k + 0
            at_u0 = first + k_u0
            k_u1 = k + 1
            at_u1 = first + k_u1
            k_u2 = k + 2
            at_u2 = first + k_u2
            k_u3 = k + 3
            at_u3 = first + k_u3
            for m in range(COLUMNS):
                column = origin + m
                sum_exp_b[m] = sum_exp_b[m] + exp_f32(load_bfloat16(x, at_u0 * x_s0 + column) - settled_t2[m])
                sum_exp_b[m] = sum_exp_b[m] + exp_f32(load_bfloat16(x, at_u1 * x_s0 + column) - settled_t2[m])
                sum_exp_b[m] = sum_exp_b[m] + exp_f32(load_bfloat16(x, at_u2 * x_s0 + column) - settled_t2[m])
                sum_exp_b[m] = sum_exp_b[m] + exp_f32(load_bfloat16(x, at_u3 * x_s0 + column) - settled_t2[m])
        for k in range(unrolled, count):
            at = first + k
            for m in range(COLUMNS):
                column = origin + m
                sum_exp_b[m] = sum_exp_b[m] + exp_f32(load_bfloat16(x, at * x_s0 + column) - settled_t2[m])
        max_x = max_x_b
        sum_exp = sum_exp_b
        for m in range(COLUMNS):
            t3 = f32(1) / sum_exp[m]
            t4 = max_x[m]
            t5 = f32(0) if -INF == max_x[m] else t4
            settled_t3[m] = t3
            settled_t5[m] = t5
        first = i64(0)
        while first < length:
            count = min(TILE, length - first)
            for k in range(count):
                at = first + k
                for m in range(COLUMNS):
                    column = origin + m
                    store_stream_bfloat16(
                        y, at * y_s0 + column,
                        settled_t3[m] * exp_f32(load_bfloat16(x, at * x_s0 + column) - settled_t5[m])
                    )
            first += TILE
