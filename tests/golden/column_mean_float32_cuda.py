# column_mean of float32, i=20000, j=4096; cuda, Schedule(threads=8, rows=32, vector=1, tile=8, column=True)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import div_count_f32, fast_rcp_f32, is_finite_f32
from redalg.kernels.cuda.intrinsics import and_i32, load_float32, store_float32, store_int64, store_uint8

f32, i32, i64 = np.float32, np.int32, np.int64
INF = f32(np.inf)
THREADS = 8
ROWS = 32
TILE = 8


@cuda.jit(device=True)
def combine(n, A_x, avg_x, n_b, A_x_b, avg_x_b):
    """The state of a stream, followed by another's."""
    if n_b == 0:
        return n, A_x, avg_x
    if n == 0:
        return n_b, A_x_b, avg_x_b
    n_new = n + n_b
    t1 = A_x - A_x_b
    t2 = avg_x_b - (f32(0) if A_x_b == A_x else t1)
    fraction_b = div_count_f32(f32(n_b), f32(n_new))
    avg_x_seen = avg_x + (t2 - avg_x) * fraction_b
    avg_x_seen = avg_x_seen if is_finite_f32(avg_x_seen) else avg_x * (f32(1) - fraction_b) + t2 * fraction_b
    A_x_seen = avg_x_seen + A_x
    A_x_new = A_x_seen if (-INF < A_x_seen) & (A_x_seen < INF) else A_x
    t3 = A_x_new - A_x
    move_A_x = f32(0) if A_x_new == A_x else t3
    t4 = A_x_new - A_x_b
    move_A_x_b = f32(0) if A_x_b == A_x_new else t4
    t5 = avg_x - move_A_x
    t6 = avg_x_b - move_A_x_b
    avg_x_new = t5 + (t6 - t5) * fraction_b
    avg_x_new = avg_x_new if is_finite_f32(avg_x_new) else t5 * (f32(1) - fraction_b) + t6 * fraction_b
    return n_new, A_x_new, avg_x_new


@cuda.jit
def m_kernel(x, m, m_s0, marked, marks, size_i, size_j, x_s0, x_s1):
    """m along i; 8 threads per row, walked in tiles.

    sum1 = sum[i](x[i,j])
    m = sum1 / size[i]
    return m
    """
    # Grid: block b computes 32 rows (indices j), from 32 * b on.
    # Block: 256 threads; 8 threads share a row, 32 rows side by side; neighbouring threads have
    #   neighbouring rows, so that loads across rows are coalesced.
    # Loop nest: for tiles of 64 elements, 8 of a thread: fold into the thread's state (A_x, avg_x); then
    #   the states are merged.
    # Shared memory: 4096 bytes (n_threads 2048, A_x_threads 1024, avg_x_threads 1024).
    # Barriers: __syncthreads at 2 places.
    # Which row, which of its threads, and where the row begins in memory.
    t = cuda.threadIdx.x >> 5
    r = and_i32(cuda.threadIdx.x, ROWS - 1)
    row = i64(cuda.blockIdx.x) * ROWS + r
    live = row < size_j
    row = row if live else size_j - 1  # threads beyond the last row repeat it and write nothing
    i_j = row
    length = size_i
    x_row = i_j * x_s1
    m_row = i_j * m_s0
    # The state of no element; each thread folds its own elements into a state of its own.
    A_x = f32(0)
    avg_x = f32(0)
    n = i64(0)
    # 4 tiles at a time are summed about one anchor, which the first of them gives.
    n_b = i64(0)
    first = t
    while first < length:
        if first + 56 < length:
            n_tile = min(8, (length - first + 7) // 8)
            x_tile = cuda.local.array(TILE, np.float32)
            for k in range(TILE):
                at = first + k * 8
                x_tile[k] = load_float32(x, x_row + at * x_s0)
            if n_b == 0:
                n_b = n_tile
                A_x_first = x_tile[0]
                A_x_first = A_x_first if is_finite_f32(A_x_first) else f32(0)
                avg_x_first_sum = f32(0)
                for k in range(TILE):
                    avg_x_first_sum = avg_x_first_sum + (x_tile[k] - A_x_first)
                avg_x_first = avg_x_first_sum * fast_rcp_f32(f32(n_b))
                A_x_seen_b = avg_x_first + A_x_first
                A_x_b = A_x_seen_b if (-INF < A_x_seen_b) & (A_x_seen_b < INF) else A_x_first
                avg_x_b_sum = f32(0)
            else:
                n_b += n_tile
            for k in range(TILE):
                avg_x_b_sum = avg_x_b_sum + (x_tile[k] - A_x_b)
        else:
            left = i32(length - first)
            n_tile = min(8, (length - first + 7) // 8)
            x_tile = cuda.local.array(TILE, np.float32)
            for k in range(TILE):
                at = first + min(k * 8, left - 1)
                x_tile[k] = load_float32(x, x_row + at * x_s0)
            if n_b == 0:
                n_b = n_tile
                A_x_first = x_tile[0]
                A_x_first = A_x_first if is_finite_f32(A_x_first) else f32(0)
                avg_x_first_sum = f32(0)
                for k in range(TILE):
                    if k * 8 < left:
                        avg_x_first_sum = avg_x_first_sum + (x_tile[k] - A_x_first)
                avg_x_first = avg_x_first_sum * fast_rcp_f32(f32(n_b))
                A_x_seen_b = avg_x_first + A_x_first
                A_x_b = A_x_seen_b if (-INF < A_x_seen_b) & (A_x_seen_b < INF) else A_x_first
                avg_x_b_sum = f32(0)
            else:
                n_b += n_tile
            for k in range(TILE):
                if k * 8 < left:
                    avg_x_b_sum = avg_x_b_sum + (x_tile[k] - A_x_b)
        first += THREADS * TILE
        if n_b >= 4 * TILE or first >= length:
            avg_x_b = div_count_f32(avg_x_b_sum, f32(n_b))
            n, A_x, avg_x = combine(n, A_x, avg_x, n_b, A_x_b, avg_x_b)
            n_b = i64(0)
    # Block merge: a tree over the 8 threads of a row, which lie in different warps.
    n_threads = cuda.shared.array(256, np.int64)
    A_x_threads = cuda.shared.array(256, np.float32)
    avg_x_threads = cuda.shared.array(256, np.float32)
    n_threads[t * ROWS + r] = n
    A_x_threads[t * ROWS + r] = A_x
    avg_x_threads[t * ROWS + r] = avg_x
    cuda.syncthreads()
    step = 1
    while step < THREADS:
        if t % (2 * step) == 0:
            n_b = n_threads[(t + step) * ROWS + r]
            A_x_b = A_x_threads[(t + step) * ROWS + r]
            avg_x_b = avg_x_threads[(t + step) * ROWS + r]
            n, A_x, avg_x = combine(n, A_x, avg_x, n_b, A_x_b, avg_x_b)
            n_threads[t * ROWS + r] = n
            A_x_threads[t * ROWS + r] = A_x
            avg_x_threads[t * ROWS + r] = avg_x
        cuda.syncthreads()
        step *= 2
    A_x = A_x_threads[r]
    avg_x = avg_x_threads[r]
    # A row whose state left the range of the reals gets a mark: a cold branch, the same for a row.
    inside = abs(avg_x) < INF
    if not inside and t == 0 and live:
        slot = row % 4096 * 8
        if not (abs(avg_x) < INF):
            store_uint8(marks, slot + 0, 1)
        if not (abs(avg_x) < INF) | (avg_x == 0):
            store_int64(marked, 0, row + 1)
    # Results of the row.
    if t == 0 and live:
        t1 = A_x + avg_x
        store_float32(m, m_row, t1)
