# masked_mean of float32, i=5000, j=30; cuda, Schedule(threads=1, rows=128, vector=2, tile=6)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import div_count_f32, fast_rcp_f32, is_finite_f32
from redalg.kernels.cuda.intrinsics import (
    load_boolx2, load_float32x2, store_float32, store_int64, store_uint8
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
ROWS = 128
TILE = 6
VECTOR = 2


@cuda.jit(device=True)
def combine(n, A_x, avg_k_x, sum_k, n_b, A_x_b, avg_k_x_b, sum_k_b):
    """The state of a stream, followed by another's."""
    if n_b == 0:
        return n, A_x, avg_k_x, sum_k
    if n == 0:
        return n_b, A_x_b, avg_k_x_b, sum_k_b
    n_new = n + n_b
    per_n_b = div_count_f32(f32(1), f32(n_b))
    t1 = A_x - A_x_b
    t2 = avg_k_x_b - f32(sum_k_b) * (f32(0) if A_x == A_x_b else t1) * per_n_b
    fraction_b = div_count_f32(f32(n_b), f32(n_new))
    avg_k_x_seen = avg_k_x + (t2 - avg_k_x) * fraction_b
    avg_k_x_seen = (
        avg_k_x_seen if is_finite_f32(avg_k_x_seen) else avg_k_x * (f32(1) - fraction_b) + t2 * fraction_b
    )
    sum_k_seen = sum_k + sum_k_b
    t3 = A_x + f32(n_new) * avg_k_x_seen / f32(sum_k_seen)
    A_x_seen = A_x if 0 == sum_k_seen else t3
    A_x_new = A_x_seen if (A_x_seen < INF) & (-INF < A_x_seen) else A_x
    t4 = A_x_new - A_x
    move_A_x = f32(0) if A_x_new == A_x else t4
    t5 = A_x_new - A_x_b
    move_A_x_b = f32(0) if A_x_new == A_x_b else t5
    t6 = avg_k_x - div_count_f32(f32(sum_k) * move_A_x, f32(n))
    t7 = avg_k_x_b - f32(sum_k_b) * move_A_x_b * per_n_b
    avg_k_x_new = t6 + (t7 - t6) * fraction_b
    avg_k_x_new = avg_k_x_new if is_finite_f32(avg_k_x_new) else t6 * (f32(1) - fraction_b) + t7 * fraction_b
    sum_k_new = sum_k + sum_k_b
    return n_new, A_x_new, avg_k_x_new, sum_k_new


@cuda.jit
def m_kernel(x, k_, m, k__s0, m_s0, marked, marks, size_i, size_j, x_s0):
    """m along j; 1 thread per row, walked in tiles.

    tensors x[i,j], k[i,j] bool
    sum1 = sum[j](where(k[i,j], x[i,j], 0))
    sum2 = sum[j](where(k[i,j], 1, 0))
    m = sum1 / sum2
    return m
    """
    # Grid: block b computes 128 rows (indices i), from 128 * b on.
    # Block: 128 threads; a thread has a row of its own, 128 rows side by side.
    # Loop nest: for tiles of 6 elements, 6 of a thread, in loads of 2: fold into the thread's state (A_x,
    #   avg_k_x, sum_k); then the states are merged.
    # Shared memory: none.
    # Which row, which of its threads, and where the row begins in memory.
    r = cuda.threadIdx.x
    row = i64(cuda.blockIdx.x) * ROWS + r
    live = row < size_i
    row = row if live else size_i - 1  # threads beyond the last row repeat it and write nothing
    i_i = row
    length = size_j
    k__row = i_i * k__s0
    x_row = i_i * x_s0
    m_row = i_i * m_s0
    # The state of no element; each thread folds its own elements into a state of its own.
    A_x = f32(0)
    avg_k_x = f32(0)
    sum_k = i64(0)
    n = i64(0)
    first = 0
    while first < length:
        n_b = min(3, (length - first + 1) // 2) * VECTOR
        k__tile = cuda.local.array(TILE, np.bool_)
        x_tile = cuda.local.array(TILE, np.float32)
        for v in range(3):
            j = min(first + v * 2, length - VECTOR)
            k = v * VECTOR
            k__tile[k], k__tile[k + 1] = load_boolx2(k_, k__row + j)
            x_tile[k], x_tile[k + 1] = load_float32x2(x, x_row + j)
        t1 = x_tile[0]
        A_x_first = t1 if k__tile[0] else f32(0)
        A_x_first = A_x_first if is_finite_f32(A_x_first) else f32(0)
        avg_k_x_first_sum = f32(0)
        sum_k_first = i64(0)
        sum_k_b = i64(0)
        for v in range(3):
            j = first + v * 2
            if j < length:
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    t2 = x_tile[k] - A_x_first
                    avg_k_x_first_sum = avg_k_x_first_sum + (t2 if k__tile[k] else f32(0))
                    t3 = 1 if k__tile[k] else 0
                    sum_k_first = sum_k_first + t3
                    sum_k_b = sum_k_b + t3
        avg_k_x_first = avg_k_x_first_sum * fast_rcp_f32(f32(n_b))
        A_x_seen_b = A_x_first + f32(n_b) * avg_k_x_first / f32(sum_k_first)
        A_x_b = A_x_seen_b if (A_x_seen_b < INF) & (-INF < A_x_seen_b) else A_x_first
        avg_k_x_b_sum = f32(0)
        for v in range(3):
            j = first + v * 2
            if j < length:
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    t4 = x_tile[k] - A_x_b
                    avg_k_x_b_sum = avg_k_x_b_sum + (t4 if k__tile[k] else f32(0))
        avg_k_x_b = div_count_f32(avg_k_x_b_sum, f32(n_b))
        n, A_x, avg_k_x, sum_k = combine(n, A_x, avg_k_x, sum_k, n_b, A_x_b, avg_k_x_b, sum_k_b)
        first += TILE
    n = length
    # A row whose state left the range of the reals gets a mark: a cold branch, the same for a row.
    inside = abs(avg_k_x) < INF
    if not inside and live:
        slot = row % 4096 * 8
        if not (abs(avg_k_x) < INF):
            store_uint8(marks, slot + 0, 1)
        if not (abs(avg_k_x) < INF) | (avg_k_x == 0):
            store_int64(marked, 0, row + 1)
    # Results of the row.
    if live:
        t5 = A_x + f32(n) * (avg_k_x / f32(sum_k))
        store_float32(m, m_row, t5)
