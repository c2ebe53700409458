# column_softmax of bfloat16, i=1000, j=4096; cuda, Schedule(threads=8, rows=32, vector=1, tile=8, column=True, coarsen=2)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import exp_f32, fast_exp_f32, max_nan_f32
from redalg.kernels.cuda.intrinsics import and_i32, load_bfloat16x2, store_stream_bfloat16x2

f32, i32, i64 = np.float32, np.int32, np.int64
INF = f32(np.inf)
THREADS = 8
ROWS = 32
TILE = 8
COARSEN = 2


@cuda.jit(device=True)
def combine(max_x, sum_exp, max_x_b, sum_exp_b):
    """The state of a stream, followed by another's."""
    max_x_new = max_nan_f32(max_x, max_x_b)
    t1 = max_x_new - max_x
    move_A_x = f32(0) if max_x_new == max_x else t1
    t2 = max_x_new - max_x_b
    move_A_x_b = f32(0) if max_x_b == max_x_new else t2
    sum_exp_new = sum_exp * exp_f32(-move_A_x) + exp_f32(-move_A_x_b) * sum_exp_b
    return max_x_new, sum_exp_new


@cuda.jit
def y_kernel(x, y, size_i, size_j, x_s0, x_s1, y_s0, y_s1):
    """y along i; 8 threads per row, walked in tiles.

    max1 = max[i](x[i,j])
    t1 = exp(x[i,j] - max1)
    sum1 = sum[i](t1)
    y = t1 / sum1
    return y
    """
    # Grid: block b computes 64 rows (indices j), from 64 * b on.
    # Block: 256 threads; 8 threads share a row, 32 rows side by side; neighbouring threads have
    #   neighbouring rows, so that loads across rows are coalesced; a thread walks 2 neighbouring rows at
    #   once.
    # Loop nest: for tiles of 64 elements, 8 of a thread: fold into the thread's state (max_x, sum_exp);
    #   then the states are merged; then for tiles of 64 elements, 8 of a thread: results of every element.
    # Shared memory: 4096 bytes (max_x_threads_c0 1024, max_x_threads_c1 1024, sum_exp_threads_c0
    #   1024, sum_exp_threads_c1 1024).
    # Barriers: __syncthreads at 2 places.
    # Which row, which of its threads, and where the row begins in memory.
    t = cuda.threadIdx.x >> 5
    r = and_i32(cuda.threadIdx.x, ROWS - 1)
    first_row = (i64(cuda.blockIdx.x) * ROWS + r) * COARSEN
    live = first_row < size_j
    # threads beyond the last rows repeat them and write nothing
    first_row = first_row if live else size_j - COARSEN
    row_c0 = first_row + 0
    row_c1 = first_row + 1
    i_j_c0 = row_c0
    i_j_c1 = row_c1
    length = size_i
    x_row_c0 = i_j_c0 * x_s1
    x_row_c1 = i_j_c1 * x_s1
    y_row_c0 = i_j_c0 * y_s1
    y_row_c1 = i_j_c1 * y_s1
    # The state of no element; each thread folds its own elements into a state of its own.
    max_x_c0 = -INF
    max_x_c1 = -INF
    sum_exp_c0 = f32(0)
    sum_exp_c1 = f32(0)
    first = t
    while first < length:
        if first + 56 < length:
            x_tile_c0 = cuda.local.array(TILE, np.float32)
            x_tile_c1 = cuda.local.array(TILE, np.float32)
            for k in range(TILE):
                at = first + k * 8
                x_tile_c0[k], x_tile_c1[k] = load_bfloat16x2(x, x_row_c0 + at * x_s0)
            max_x_b_c0 = -INF
            max_x_b_c1 = -INF
            for k in range(TILE):
                max_x_b_c0 = max_nan_f32(max_x_b_c0, x_tile_c0[k])
                max_x_b_c1 = max_nan_f32(max_x_b_c1, x_tile_c1[k])
            max_x_new_c0 = max_nan_f32(max_x_c0, max_x_b_c0)
            max_x_new_c1 = max_nan_f32(max_x_c1, max_x_b_c1)
            t1_c0 = max_x_new_c0 - max_x_c0
            t1_c1 = max_x_new_c1 - max_x_c1
            move_A_x_c0 = f32(0) if max_x_new_c0 == max_x_c0 else t1_c0
            move_A_x_c1 = f32(0) if max_x_new_c1 == max_x_c1 else t1_c1
            t2_c0 = f32(0) if -INF == max_x_new_c0 else max_x_new_c0
            t2_c1 = f32(0) if -INF == max_x_new_c1 else max_x_new_c1
            sum_exp_b_c0 = f32(0)
            sum_exp_b_c1 = f32(0)
            for k in range(TILE):
                sum_exp_b_c0 = sum_exp_b_c0 + fast_exp_f32(x_tile_c0[k] - t2_c0)
                sum_exp_b_c1 = sum_exp_b_c1 + fast_exp_f32(x_tile_c1[k] - t2_c1)
            sum_exp_new_c0 = sum_exp_c0 * fast_exp_f32(-move_A_x_c0) + sum_exp_b_c0
            sum_exp_new_c1 = sum_exp_c1 * fast_exp_f32(-move_A_x_c1) + sum_exp_b_c1
            max_x_c0 = max_x_new_c0
            max_x_c1 = max_x_new_c1
            sum_exp_c0 = sum_exp_new_c0
            sum_exp_c1 = sum_exp_new_c1
        else:
            left = i32(length - first)
            x_tile_c0 = cuda.local.array(TILE, np.float32)
            x_tile_c1 = cuda.local.array(TILE, np.float32)
            for k in range(TILE):
                at = first + min(k * 8, left - 1)
                x_tile_c0[k], x_tile_c1[k] = load_bfloat16x2(x, x_row_c0 + at * x_s0)
            max_x_b_c0 = -INF
            max_x_b_c1 = -INF
            for k in range(TILE):
                if k * 8 < left:
                    max_x_b_c0 = max_nan_f32(max_x_b_c0, x_tile_c0[k])
                    max_x_b_c1 = max_nan_f32(max_x_b_c1, x_tile_c1[k])
            max_x_new_c0 = max_nan_f32(max_x_c0, max_x_b_c0)
            max_x_new_c1 = max_nan_f32(max_x_c1, max_x_b_c1)
            t1_c0 = max_x_new_c0 - max_x_c0
            t1_c1 = max_x_new_c1 - max_x_c1
            move_A_x_c0 = f32(0) if max_x_new_c0 == max_x_c0 else t1_c0
            move_A_x_c1 = f32(0) if max_x_new_c1 == max_x_c1 else t1_c1
            t2_c0 = f32(0) if -INF == max_x_new_c0 else max_x_new_c0
            t2_c1 = f32(0) if -INF == max_x_new_c1 else max_x_new_c1
            sum_exp_b_c0 = f32(0)
            sum_exp_b_c1 = f32(0)
            for k in range(TILE):
                if k * 8 < left:
                    sum_exp_b_c0 = sum_exp_b_c0 + fast_exp_f32(x_tile_c0[k] - t2_c0)
                    sum_exp_b_c1 = sum_exp_b_c1 + fast_exp_f32(x_tile_c1[k] - t2_c1)
            sum_exp_new_c0 = sum_exp_c0 * fast_exp_f32(-move_A_x_c0) + sum_exp_b_c0
            sum_exp_new_c1 = sum_exp_c1 * fast_exp_f32(-move_A_x_c1) + sum_exp_b_c1
            max_x_c0 = max_x_new_c0
            max_x_c1 = max_x_new_c1
            sum_exp_c0 = sum_exp_new_c0
            sum_exp_c1 = sum_exp_new_c1
        first += THREADS * TILE
    # Block merge: a tree over the 8 threads of a row, which lie in different warps.
    max_x_threads_c0 = cuda.shared.array(256, np.float32)
    max_x_threads_c1 = cuda.shared.array(256, np.float32)
    sum_exp_threads_c0 = cuda.shared.array(256, np.float32)
    sum_exp_threads_c1 = cuda.shared.array(256, np.float32)
    max_x_threads_c0[t * ROWS + r] = max_x_c0
    max_x_threads_c1[t * ROWS + r] = max_x_c1
    sum_exp_threads_c0[t * ROWS + r] = sum_exp_c0
    sum_exp_threads_c1[t * ROWS + r] = sum_exp_c1
    cuda.syncthreads()
    step = 1
    while step < THREADS:
        if t % (2 * step) == 0:
            max_x_b_c0 = max_x_threads_c0[(t + step) * ROWS + r]
            max_x_b_c1 = max_x_threads_c1[(t + step) * ROWS + r]
            sum_exp_b_c0 = sum_exp_threads_c0[(t + step) * ROWS + r]
            sum_exp_b_c1 = sum_exp_threads_c1[(t + step) * ROWS + r]
            max_x_c0, sum_exp_c0 = combine(max_x_c0, sum_exp_c0, max_x_b_c0, sum_exp_b_c0)
            max_x_c1, sum_exp_c1 = combine(max_x_c1, sum_exp_c1, max_x_b_c1, sum_exp_b_c1)
            max_x_threads_c0[t * ROWS + r] = max_x_c0
            max_x_threads_c1[t * ROWS + r] = max_x_c1
            sum_exp_threads_c0[t * ROWS + r] = sum_exp_c0
            sum_exp_threads_c1[t * ROWS + r] = sum_exp_c1
        cuda.syncthreads()
        step *= 2
    max_x_c0 = max_x_threads_c0[r]
    max_x_c1 = max_x_threads_c1[r]
    sum_exp_c0 = sum_exp_threads_c0[r]
    sum_exp_c1 = sum_exp_threads_c1[r]
    t3_c0 = f32(1) / sum_exp_c0
    t3_c1 = f32(1) / sum_exp_c1
    t4_c0 = f32(0) if -INF == max_x_c0 else max_x_c0
    t4_c1 = f32(0) if -INF == max_x_c1 else max_x_c1
    # Results of every element.
    if live:
        first = t
        begin = first
        first += (length - 1 - begin) // (THREADS * TILE) * (THREADS * TILE)
        while first >= begin:
            if first + 56 < length:
                x_tile_c0 = cuda.local.array(TILE, np.float32)
                x_tile_c1 = cuda.local.array(TILE, np.float32)
                for k in range(TILE):
                    at = first + k * 8
                    x_tile_c0[k], x_tile_c1[k] = load_bfloat16x2(x, x_row_c0 + at * x_s0)
                for k in range(TILE):
                    at = first + k * 8
                    store_stream_bfloat16x2(
                        y, y_row_c0 + at * y_s0,
                        (
                            t3_c0 * fast_exp_f32(x_tile_c0[k] - t4_c0),
                            t3_c1 * fast_exp_f32(x_tile_c1[k] - t4_c1)
                        )
                    )
            else:
                left = i32(length - first)
                x_tile_c0 = cuda.local.array(TILE, np.float32)
                x_tile_c1 = cuda.local.array(TILE, np.float32)
                for k in range(TILE):
                    at = first + min(k * 8, left - 1)
                    x_tile_c0[k], x_tile_c1[k] = load_bfloat16x2(x, x_row_c0 + at * x_s0)
                for k in range(TILE):
                    at = first + k * 8
                    if k * 8 < left:
                        store_stream_bfloat16x2(
                            y, y_row_c0 + at * y_s0,
                            (
                                t3_c0 * fast_exp_f32(x_tile_c0[k] - t4_c0),
                                t3_c1 * fast_exp_f32(x_tile_c1[k] - t4_c1)
                            )
                        )
            first -= THREADS * TILE
