# variance of float32, i=10000, j=500; cuda, Schedule(threads=32, rows=4, vector=4, tile=8)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import div_count_f32, fast_rcp_f32, is_finite_f32, max_nan_f32
from redalg.kernels.cuda.intrinsics import (
    and_i32, load_float32x4, shfl_xor_f32, store_float32, store_int64, store_uint8
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
THREADS = 32
ROWS = 4
TILE = 8
VECTOR = 4
MOST_2 = f32(2.0**64)


@cuda.jit(device=True)
def combine(n, A_x, avg_x, avg_x2, n_b, A_x_b, avg_x_b, avg_x2_b):
    """The state of a stream, followed by another's."""
    if n_b == 0:
        return n, A_x, avg_x, avg_x2
    if n == 0:
        return n_b, A_x_b, avg_x_b, avg_x2_b
    n_new = n + n_b
    t1 = A_x - A_x_b
    t2 = avg_x_b - (f32(0) if A_x == A_x_b else t1)
    fraction_b = div_count_f32(f32(n_b), f32(n_new))
    avg_x_seen = avg_x + (t2 - avg_x) * fraction_b
    avg_x_seen = avg_x_seen if is_finite_f32(avg_x_seen) else avg_x * (f32(1) - fraction_b) + t2 * fraction_b
    A_x_seen = A_x + avg_x_seen
    A_x_new = A_x_seen if (A_x_seen < INF) & (-INF < A_x_seen) else A_x
    t3 = A_x_new - A_x
    move_A_x = f32(0) if A_x_new == A_x else t3
    t4 = A_x_new - A_x_b
    move_A_x_b = f32(0) if A_x_new == A_x_b else t4
    t5 = avg_x - move_A_x
    t6 = avg_x_b - move_A_x_b
    avg_x_new = t5 + (t6 - t5) * fraction_b
    avg_x_new = avg_x_new if is_finite_f32(avg_x_new) else t5 * (f32(1) - fraction_b) + t6 * fraction_b
    t7 = -move_A_x
    t8 = t7 * t7 + avg_x2 - f32(2) * avg_x * move_A_x
    t9 = -move_A_x_b
    t10 = t9 * t9 + avg_x2_b - f32(2) * avg_x_b * move_A_x_b
    avg_x2_new = t8 + (t10 - t8) * fraction_b
    avg_x2_new = avg_x2_new if is_finite_f32(avg_x2_new) else t8 * (f32(1) - fraction_b) + t10 * fraction_b
    return n_new, A_x_new, avg_x_new, avg_x2_new


@cuda.jit
def var_kernel(x, var, marked, marks, size_i, size_j, var_s0, x_s0):
    """var along j; 32 threads per row, walked in tiles.

    sum1 = sum[j](x[i,j])
    sum2 = sum[j]((x[i,j] - sum1 / size[j])**2)
    var = sum2 / size[j]
    return var
    """
    # Grid: block b computes 4 rows (indices i), from 4 * b on.
    # Block: 128 threads; 32 threads share a row, 4 rows side by side.
    # Loop nest: for tiles of 256 elements, 8 of a thread, in loads of 4: fold into the thread's state (A_x,
    #   avg_x, avg_x2); then the states are merged.
    # Shared memory: none.
    # Which row, which of its threads, and where the row begins in memory.
    t = and_i32(cuda.threadIdx.x, THREADS - 1)
    r = cuda.threadIdx.x >> 5
    row = i64(cuda.blockIdx.x) * ROWS + r
    live = row < size_i
    row = row if live else size_i - 1  # threads beyond the last row repeat it and write nothing
    i_i = row
    length = size_j
    x_row = i_i * x_s0
    var_row = i_i * var_s0
    # The state of no element; each thread folds its own elements into a state of its own.
    A_x = f32(0)
    avg_x = f32(0)
    avg_x2 = f32(0)
    n = i64(0)
    first = t * VECTOR
    while first < length:
        n_b = min(2, (length - first + 127) // 128) * VECTOR
        x_tile = cuda.local.array(TILE, np.float32)
        for v in range(2):
            j = first + v * 128
            if j < length:
                k = v * VECTOR
                x_tile[k], x_tile[k + 1], x_tile[k + 2], x_tile[k + 3] = load_float32x4(x, x_row + j)
        A_x_first = x_tile[0]
        A_x_first = A_x_first if is_finite_f32(A_x_first) else f32(0)
        avg_x_first_sum = f32(0)
        for v in range(2):
            j = first + v * 128
            if j < length:
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    avg_x_first_sum = avg_x_first_sum + (x_tile[k] - A_x_first)
        avg_x_first = avg_x_first_sum * fast_rcp_f32(f32(n_b))
        A_x_seen_b = A_x_first + avg_x_first
        A_x_b = A_x_seen_b if (A_x_seen_b < INF) & (-INF < A_x_seen_b) else A_x_first
        avg_x_b_sum = f32(0)
        avg_x2_b_sum = f32(0)
        for v in range(2):
            j = first + v * 128
            if j < length:
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    t1 = x_tile[k] - A_x_b
                    avg_x_b_sum = avg_x_b_sum + t1
                    avg_x2_b_sum = avg_x2_b_sum + t1 * t1
        avg_x_b = div_count_f32(avg_x_b_sum, f32(n_b))
        avg_x2_b = div_count_f32(avg_x2_b_sum, f32(n_b))
        n, A_x, avg_x, avg_x2 = combine(n, A_x, avg_x, avg_x2, n_b, A_x_b, avg_x_b, avg_x2_b)
        first += THREADS * TILE
    # States of all threads of the row at once: to anchors that all know, then slot by slot.
    n_new = length
    t2 = 0 == n
    A_x_largest = -INF if t2 else A_x
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        A_x_largest = max_nan_f32(A_x_largest, shfl_xor_f32(A_x_largest, 1 << step))
    t3 = 0 == n_new
    A_x_common = f32(0) if t3 else A_x_largest
    t4 = div_count_f32(f32(n), f32(n_new))
    share = f32(0) if t3 else t4
    t5 = A_x_common - A_x
    t6 = share * (avg_x - (f32(0) if A_x_common == A_x else t5))
    avg_x_seen = f32(0) if t2 else t6
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        avg_x_seen = avg_x_seen + shfl_xor_f32(avg_x_seen, 1 << step)
    A_x_seen = A_x_common + avg_x_seen
    A_x_new = A_x_seen if (A_x_seen < INF) & (-INF < A_x_seen) else A_x_common
    t7 = A_x_new - A_x
    move_A_x_b = f32(0) if A_x_new == A_x else t7
    t8 = share * (avg_x - move_A_x_b)
    avg_x_new = f32(0) if t2 else t8
    t9 = -move_A_x_b
    t10 = share * (t9 * t9 + avg_x2 - f32(2) * avg_x * move_A_x_b)
    avg_x2_new = f32(0) if t2 else t10
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        avg_x_new = avg_x_new + shfl_xor_f32(avg_x_new, 1 << step)
        avg_x2_new = avg_x2_new + shfl_xor_f32(avg_x2_new, 1 << step)
    avg_x = avg_x_new
    avg_x2 = avg_x2_new
    # A row whose state left the range of the reals gets a mark: a cold branch, the same for a row.
    inside = (abs(avg_x) < MOST_2) & (abs(avg_x2) < INF)
    if not inside and t == 0 and live:
        slot = row % 4096 * 8
        if not (abs(avg_x) < MOST_2) & (abs(avg_x2) < INF):
            store_uint8(marks, slot + 0, 1)
        if not (abs(avg_x) < MOST_2) | (avg_x == 0) or not (abs(avg_x2) < INF) | (avg_x2 == 0):
            store_int64(marked, 0, row + 1)
    # Results of the row.
    if t == 0 and live:
        t11 = avg_x2 - avg_x * avg_x
        store_float32(var, var_row, t11)
