# attention of float32, h=16, i=1024, j=1000, d=64, e=64; cuda, Schedule(threads=32, rows=4, vector=1, tile=2, columns_per_thread=2)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import exact_sum_f32, exp_f32, max_nan_f32
from redalg.kernels.cuda.intrinsics import and_i32, load_float32, shfl_idx_f32, shfl_xor_f32, store_float32

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
THREADS = 32
ROWS = 4
TILE = 2
COLUMNS = 2


@cuda.jit
def O_kernel(
    Q, K, V, O, K_s0, K_s1, K_s2, O_s0, O_s1, O_s2, Q_s0, Q_s1, Q_s2, V_s0, V_s1, V_s2, size_d, size_e,
    size_h, size_i, size_j
):
    """O along j; 32 threads per row, walked in tiles.

    sum1 = sum[d](Q[h,i,d] * K[h,j,d])
    max1 = max[j](sum1)
    t1 = exp(sum1 - max1)
    sum2 = sum[j](t1)
    sum3 = sum[j](t1 * V[h,j,e])
    O = sum3 / sum2
    return O
    """
    # Grid: block b computes 4 rows (indices h, i), from 4 * b on.
    # Block: 128 threads; 32 threads share a row, 4 rows side by side; columns (e) are shared out among
    #   the threads, 2 to each.
    # Loop nest: for tiles of 64 elements, 2 of a thread: fold into the thread's state (max_u, sum_V_exp,
    #   sum_exp); then the states are merged.
    # Shared memory: none.
    # Which row, which of its threads, and where the row begins in memory.
    t = and_i32(cuda.threadIdx.x, THREADS - 1)
    r = cuda.threadIdx.x >> 5
    row = i64(cuda.blockIdx.x) * ROWS + r
    live = row < size_h * size_i
    row = row if live else size_h * size_i - 1  # threads beyond the last row repeat it and write nothing
    i_i = row % size_i
    rest = row // size_i
    i_h = rest
    length = size_j
    Q_row = i_h * Q_s0 + i_i * Q_s1
    K_row = i_h * K_s0
    V_row = i_h * V_s0
    O_row = i_h * O_s0 + i_i * O_s1
    max_u = -INF
    sum_V_exp = cuda.local.array(COLUMNS, np.float32)
    for m in range(COLUMNS):
        sum_V_exp[m] = f32(0)
    sum_exp = f32(0)
    base = i64(0)
    while base < length:
        first = base + t
        max_u_b = -INF
        value1_tile = cuda.local.array(TILE, np.float32)
        for k in range(TILE):
            at = first + k * 32
            if at < length:
                t1 = f32(0)
                for i_d in range(size_d):
                    t1 = (
                        t1
                        + load_float32(Q, Q_row + i_d * Q_s2)
                            * load_float32(K, K_row + at * K_s1 + i_d * K_s2)
                    )
                value1_tile[k] = t1
                max_u_b = max_nan_f32(max_u_b, t1)
        # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
        for step in range(5):
            max_u_b = max_nan_f32(max_u_b, shfl_xor_f32(max_u_b, 1 << step))
        max_u_new = max_nan_f32(max_u, max_u_b)
        t2 = max_u_new - max_u
        move_A_u = f32(0) if max_u == max_u_new else t2
        t3 = f32(0) if max_u_new == -INF else max_u_new
        sum_exp_b = f32(0)
        for k in range(TILE):
            at = first + k * 32
            if at < length:
                sum_exp_b = sum_exp_b + exp_f32(exact_sum_f32(value1_tile[k], -t3))
        # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
        for step in range(5):
            sum_exp_b = sum_exp_b + shfl_xor_f32(sum_exp_b, 1 << step)
        value2_tile = cuda.local.array(TILE, np.float32)
        for k in range(TILE):
            at = first + k * 32
            if at < length:
                value2_tile[k] = exp_f32(exact_sum_f32(value1_tile[k], -t3))
        sum_V_exp_b = cuda.local.array(COLUMNS, np.float32)
        for m in range(COLUMNS):
            sum_V_exp_b[m] = f32(0)
        for owner in range(THREADS):
            for k in range(TILE):
                at = base + owner + k * THREADS
                if at < length:
                    element1 = shfl_idx_f32(value2_tile[k], owner)
                    for m in range(COLUMNS):
                        column = min(t + m * THREADS, size_e - 1)
                        i_e = column
                        sum_V_exp_b[m] = (
                            sum_V_exp_b[m] + load_float32(V, V_row + at * V_s1 + i_e * V_s2) * element1
                        )
        sum_V_exp_new = cuda.local.array(COLUMNS, np.float32)
        t4 = exp_f32(-move_A_u)
        for m in range(COLUMNS):
            sum_V_exp_new[m] = t4 * sum_V_exp[m] + sum_V_exp_b[m]
        sum_exp_new = t4 * sum_exp + sum_exp_b
        max_u = max_u_new
        for m in range(COLUMNS):
            sum_V_exp[m] = sum_V_exp_new[m]
        sum_exp = sum_exp_new
        base += THREADS * TILE
    t5 = f32(1) / sum_exp
    for m in range(COLUMNS):
        column = min(t + m * THREADS, size_e - 1)
        i_e = column
        if live and t + m * THREADS < size_e:
            store_float32(O, O_row + i_e * O_s2, t5 * sum_V_exp[m])
