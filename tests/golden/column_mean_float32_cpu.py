# column_mean of float32, i=20000, j=4096; cpu, rows
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu_math import is_finite_f32
from redalg.kernels.cpu_memory import load_float32, pointer_float32, store_float32

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 1024


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def combine(n, A_x, avg_x, n_b, A_x_b, avg_x_b):
    """The state of a stream, followed by another's."""
    if n_b == 0:
        return n, A_x, avg_x
    if n == 0:
        return n_b, A_x_b, avg_x_b
    n_new = n + n_b
    t1 = A_x - A_x_b
    t2 = avg_x_b - (f32(0) if (A_x_b == A_x) else t1)
    share_b = f32(n_b) / f32(n_new)
    avg_x_seen = avg_x + (t2 - avg_x) * share_b
    avg_x_seen = avg_x_seen if is_finite_f32(avg_x_seen) else avg_x * (f32(1) - share_b) + t2 * share_b
    A_x_seen = avg_x_seen + A_x
    A_x_new = A_x_seen if ((-INF < A_x_seen) & (A_x_seen < INF)) else A_x
    t3 = A_x_new - A_x
    move_A_x = f32(0) if (A_x_new == A_x) else t3
    t4 = A_x_new - A_x_b
    move_A_x_b = f32(0) if (A_x_b == A_x_new) else t4
    t5 = avg_x - move_A_x
    t6 = avg_x_b - move_A_x_b
    avg_x_new = t5 + (t6 - t5) * share_b
    avg_x_new = avg_x_new if is_finite_f32(avg_x_new) else t5 * (f32(1) - share_b) + t6 * share_b
    return n_new, A_x_new, avg_x_new


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def m__rows(x, m_, m__s0, size_i, x_s0, x_s1, low, high):
    """m along i; a row is walked in tiles.

    sum1 = sum[i](x[i,j])
    m = sum1 / size[i]
    return m
    """
    x = pointer_float32(x)
    m_ = pointer_float32(m_)
    length = size_i
    x_tile = np.empty(TILE, np.float32)
    for row in range(low, high):
        i_j = row
        x_row = i_j * x_s1
        m__row = i_j * m__s0
        A_x = f32(0)
        avg_x = f32(0)
        n = i64(0)
        first = i64(0)
        while first < length:
            count = min(TILE, length - first)
            n_b = count
            for k in range(count):
                at = first + k
                x_tile[k] = load_float32(x, x_row + at * x_s0)
            A_x_first = x_tile[0]
            A_x_first = A_x_first if is_finite_f32(A_x_first) else f32(0)
            avg_x_first_sum = f32(0)
            for k in range(count):
                avg_x_first_sum = avg_x_first_sum + (x_tile[k] - A_x_first)
            avg_x_first = avg_x_first_sum / f32(n_b)
            A_x_seen_b = avg_x_first + A_x_first
            A_x_b = A_x_seen_b if ((-INF < A_x_seen_b) & (A_x_seen_b < INF)) else A_x_first
            avg_x_b_sum = f32(0)
            for k in range(count):
                avg_x_b_sum = avg_x_b_sum + (x_tile[k] - A_x_b)
            avg_x_b = avg_x_b_sum / f32(n_b)
            n, A_x, avg_x = combine(n, A_x, avg_x, n_b, A_x_b, avg_x_b)
            first += TILE
        t1 = A_x + avg_x
        store_float32(m_, m__row, t1)
