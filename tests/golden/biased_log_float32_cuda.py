# biased_log of float32, i=512, j=1000; cuda, Schedule(threads=32, rows=4, vector=4, tile=4)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import log_f32, max_nan_f32
from redalg.kernels.cuda.intrinsics import and_i32, load_float32x4, store_float32x4

f32, i64 = np.float32, np.int64
THREADS = 32
ROWS = 4
TILE = 4
VECTOR = 4


@cuda.jit
def y_kernel(x, b, y, size_i, size_j, x_s0, y_s0):
    """y; 32 threads per row, walked in tiles.

    y = log(relu(x[i,j] + b[j]))
    return y
    """
    # Grid: block b computes 4 rows (indices i), from 4 * b on.
    # Block: 128 threads; 32 threads share a row, 4 rows side by side.
    # Loop nest: for tiles of 128 elements, 4 of a thread, in loads of 4: every element by itself.
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
    y_row = i_i * y_s0
    # Results of every element.
    if live:
        first = t * VECTOR
        while first < length:
            x_tile = cuda.local.array(TILE, np.float32)
            b_tile = cuda.local.array(TILE, np.float32)
            for v in range(1):
                j = first + v * 128
                if j < length:
                    k = v * VECTOR
                    x_tile[k], x_tile[k + 1], x_tile[k + 2], x_tile[k + 3] = load_float32x4(x, x_row + j)
                    b_tile[k], b_tile[k + 1], b_tile[k + 2], b_tile[k + 3] = load_float32x4(b, j)
            y_part = cuda.local.array(VECTOR, np.float32)
            for v in range(1):
                j = first + v * 128
                if j < length:
                    for c in range(VECTOR):
                        k = v * VECTOR + c
                        y_part[c] = log_f32(max_nan_f32(x_tile[k] + b_tile[k], f32(0)))
                    store_float32x4(y, y_row + j, (y_part[0], y_part[1], y_part[2], y_part[3]))
            first += THREADS * TILE
