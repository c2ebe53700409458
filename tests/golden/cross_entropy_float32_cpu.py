# cross_entropy of float32, i=2048, j=32001; cpu, rows shared out among threads, each walked in tiles
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import exp_f32, log_f32, max_nan_f32
from redalg.kernels.cpu.memory import load_float32, load_int64, pointer_float32, pointer_int64, store_float32

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def loss_rows(x, t, loss, loss_s0, size_j, t_s0, x_s0, low, high):
    """loss along j; a row is walked in tiles.

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
        max_x = -INF
        sum_exp = f32(0)
        sum_if_t_x = f32(0)
        first = i64(0)
        while first < length:
            count = min(TILE, length - first)
            max_x_b = -INF
            for k in range(count):
                at = first + k
                max_x_b = max_nan_f32(max_x_b, load_float32(x, x_row + at))
            max_x_new = max_nan_f32(max_x, max_x_b)
            t1 = max_x_new - max_x
            move_A_x = f32(0) if max_x == max_x_new else t1
            t2 = load_int64(t, t_row)
            t3 = f32(0) if max_x_new == -INF else max_x_new
            sum_exp_b = f32(0)
            sum_if_t_x_b = f32(0)
            for k in range(count):
                at = first + k
                t4 = load_float32(x, x_row + at)
                sum_exp_b = sum_exp_b + exp_f32(t4 - t3)
                sum_if_t_x_b = sum_if_t_x_b + (t4 if t2 == at else f32(0))
            sum_exp_new = sum_exp * exp_f32(-move_A_x) + sum_exp_b
            sum_if_t_x_new = sum_if_t_x + sum_if_t_x_b
            max_x = max_x_new
            sum_exp = sum_exp_new
            sum_if_t_x = sum_if_t_x_new
            first += TILE
        t5 = log_f32(sum_exp) + max_x - sum_if_t_x
        store_float32(loss, loss_row, t5)
