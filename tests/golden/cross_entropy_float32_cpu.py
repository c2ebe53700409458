# cross_entropy of float32, i=2048, j=32001; cpu, rows shared out among threads, each walked as one tile of at most 65536 elements
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import exp_f32, log_f32, max_nan_f32
from redalg.kernels.cpu.memory import load_float32, load_int64, pointer_float32, pointer_int64, store_float32

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
    for row in range(low, high):
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
        t4 = log_f32(sum_exp_b) + max_x_b - sum_if_t_x_b
        store_float32(loss, loss_row, t4)
