# cross_entropy of float32, i=2048, j=32001; cpu, rows shared out among threads, each walked as one tile of at most 65536 elements
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import exp_f32, log_f32, max_nan_f32
from redalg.kernels.cpu.memory import (
    load_float32, load_int64, pointer_float32, pointer_int64, stack_float32, store_float32
)

f32 = np.float32
INF = f32(np.inf)


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def loss_rows(x, t, loss, loss_s0, size_j, t_s0, x_s0, low, high):
    """loss along j; a row is one tile.

    tensors x[i,j], t[i] integer
    sum1 = sum[j](where(t[i] == index[j], x[i,j], 0))
    max1 = max[j](x[i,j])
    sum2 = sum[j](exp(x[i,j] - max1))
    loss = log(sum2) + max1 - sum1
    return loss
    """
    x = pointer_float32(x)
    t = pointer_int64(t)
    loss = pointer_float32(loss)
    length = size_j
    rows_max_x_b = stack_float32(16)
    rows_sum_exp_b = stack_float32(16)
    rows_sum_if_t_x_b = stack_float32(16)
    rows_t4 = stack_float32(16)
    rows_size = max(1, min(16, 8192 // max(1, length)))
    rows_first = low
    while rows_first < high:
        rows_last = min(rows_first + rows_size, high)
        for row in range(rows_first, rows_last):
            i_i = row
            x_row = i_i * x_s0
            t_row = i_i * t_s0
            loss_row = i_i * loss_s0
            count = length
            first = 0
            t1 = load_int64(t, t_row)
            max_x_b = -INF
            sum_if_t_x_b = f32(0)
            for k in range(count):
                at = first + k
                t2 = load_float32(x, x_row + at)
                max_x_b = max_nan_f32(max_x_b, t2)
                sum_if_t_x_b = sum_if_t_x_b + (t2 if t1 == at else f32(0))
            t3 = f32(0) if max_x_b == -INF else max_x_b
            sum_exp_b = f32(0)
            for k in range(count):
                at = first + k
                sum_exp_b = sum_exp_b + exp_f32(load_float32(x, x_row + at) - t3)
            rows_max_x_b[row - rows_first] = max_x_b
            rows_sum_exp_b[row - rows_first] = sum_exp_b
            rows_sum_if_t_x_b[row - rows_first] = sum_if_t_x_b
        for rows_each in range(rows_last - rows_first):
            rows_t4[rows_each] = (
                log_f32(rows_sum_exp_b[rows_each]) + rows_max_x_b[rows_each] - rows_sum_if_t_x_b[rows_each]
            )
        for row in range(rows_first, rows_last):
            i_i = row
            x_row = i_i * x_s0
            t_row = i_i * t_s0
            loss_row = i_i * loss_s0
            count = length
            first = 0
            t4 = rows_t4[row - rows_first]
            store_float32(loss, loss_row, t4)
        rows_first = rows_last
