# masked_mean of float32, i=5000, j=30; cpu, rows shared out among threads, each walked as one tile of at most 8192 elements
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import is_finite_f32
from redalg.kernels.cpu.memory import (
    load_bool, load_float32, pointer_bool, pointer_float32, stack_bool, store_float32
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 8192


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def m_rows(x, k_, m, k__s0, m_s0, size_j, x_s0, low, high):
    """m along j; a row is one tile.

    tensors x[i,j], k[i,j] bool
    sum1 = sum[j](where(k[i,j], x[i,j], 0))
    sum2 = sum[j](where(k[i,j], 1, 0))
    m = sum1 / sum2
    return m
    """
    x = pointer_float32(x)
    k_ = pointer_bool(k_)
    m = pointer_float32(m)
    length = size_j
    k__tile = stack_bool(TILE)
    for row in range(low, high):
        i_i = row
        x_row = i_i * x_s0
        k__row = i_i * k__s0
        m_row = i_i * m_s0
        n_b = length
        count = length
        first = 0
        for k in range(count):
            at = first + k
            k__tile[k] = load_bool(k_, k__row + at)
        A_x_first = load_float32(x, x_row)
        A_x_first = A_x_first if is_finite_f32(A_x_first) else f32(0)
        avg_k_x_first_sum = f32(0)
        sum_k_first = i64(0)
        sum_k_b = i64(0)
        for k in range(count):
            at = first + k
            t1 = load_float32(x, x_row + at) - A_x_first
            avg_k_x_first_sum = avg_k_x_first_sum + (t1 if k__tile[k] else f32(0))
            t2 = 1 if k__tile[k] else 0
            sum_k_first = sum_k_first + t2
            sum_k_b = sum_k_b + t2
        avg_k_x_first = avg_k_x_first_sum / f32(n_b)
        A_x_seen_b = A_x_first + f32(n_b) * avg_k_x_first / f32(sum_k_first)
        A_x_b = A_x_seen_b if (A_x_seen_b < INF) & (-INF < A_x_seen_b) else A_x_first
        avg_k_x_b_sum = f32(0)
        for k in range(count):
            at = first + k
            t3 = load_float32(x, x_row + at) - A_x_b
            avg_k_x_b_sum = avg_k_x_b_sum + (t3 if k__tile[k] else f32(0))
        avg_k_x_b = avg_k_x_b_sum / f32(n_b)
        t4 = A_x_b + f32(n_b) * (avg_k_x_b / f32(sum_k_b))
        store_float32(m, m_row, t4)
