# variance of float32, i=10000, j=500; cpu, rows shared out among threads, each walked as one tile of at most 8192 elements
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import is_finite_f32
from redalg.kernels.cpu.memory import load_float32, pointer_float32, store_float32

f32 = np.float32
INF = f32(np.inf)


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def var_rows(x, var, size_j, var_s0, x_s0, low, high):
    """var along j; a row is one tile.

    sum1 = sum[j](x[i,j])
    sum2 = sum[j]((x[i,j] - sum1 / size[j])**2)
    var = sum2 / size[j]
    return var
    """
    x = pointer_float32(x)
    var = pointer_float32(var)
    length = size_j
    for row in range(low, high):
        i_i = row
        x_row = i_i * x_s0
        var_row = i_i * var_s0
        n_b = length
        count = length
        first = 0
        A_x_first = load_float32(x, x_row)
        A_x_first = A_x_first if is_finite_f32(A_x_first) else f32(0)
        avg_x_first_sum = f32(0)
        for k in range(count):
            at = first + k
            avg_x_first_sum = avg_x_first_sum + (load_float32(x, x_row + at) - A_x_first)
        avg_x_first = avg_x_first_sum / f32(n_b)
        A_x_seen_b = A_x_first + avg_x_first
        A_x_b = A_x_seen_b if (A_x_seen_b < INF) & (-INF < A_x_seen_b) else A_x_first
        avg_x_b_sum = f32(0)
        avg_x2_b_sum = f32(0)
        for k in range(count):
            at = first + k
            t1 = load_float32(x, x_row + at) - A_x_b
            avg_x_b_sum = avg_x_b_sum + t1
            avg_x2_b_sum = avg_x2_b_sum + t1 * t1
        avg_x_b = avg_x_b_sum / f32(n_b)
        avg_x2_b = avg_x2_b_sum / f32(n_b)
        t2 = avg_x2_b - avg_x_b * avg_x_b
        store_float32(var, var_row, t2)
