# softmax of bfloat16, i=4096, j=4096; cuda, Schedule(threads=128, rows=1, vector=8, tile=32, resident=True)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import fast_exp_f32, max_nan_f32
from redalg.kernels.cuda.intrinsics import load_early_bfloat16x8, shfl_xor_f32, store_bfloat16x8

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 32
VECTOR = 8


@cuda.jit
def y_kernel(x, y, size_j, x_s0, y_s0):
    """y along j; 128 threads per row, held in registers.

    max1 = max[j](x[i,j])
    t1 = exp(x[i,j] - max1)
    sum1 = sum[j](t1)
    y = t1 / sum1
    return y
    """
    # Grid: block b computes a row (indices i), number b.
    # Block: 128 threads; 128 threads share a row.
    # Loop nest: a thread loads its 32 elements once, in loads of 8, and keeps them in registers; every
    #   reduction over the whole row, one after the other; then results of every element.
    # Shared memory: 32 bytes (max_x_b_warps 16, sum_exp_b_warps 16).
    # Barriers: __syncwarp once, __syncthreads at 2 places.
    # Which row, which of its threads, and where the row begins in memory.
    t = cuda.threadIdx.x
    row = i64(cuda.blockIdx.x)
    i_i = row
    length = size_j
    x_row = i_i * x_s0
    y_row = i_i * y_s0
    # The row to registers; all of it is under way before anything waits.
    first = t * VECTOR
    x_tile = cuda.local.array(TILE, np.float32)
    if length > 0:
        for v in range(4):
            j = min(first + v * 1024, length - VECTOR)
            k = v * VECTOR
            (
                x_tile[k], x_tile[k + 1], x_tile[k + 2], x_tile[k + 3], x_tile[k + 4], x_tile[k + 5],
                x_tile[k + 6], x_tile[k + 7]
            ) = load_early_bfloat16x8(x, x_row + j)
    cuda.syncwarp()
    max_x_b = -INF
    for v in range(4):
        j = first + v * 1024
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                max_x_b = max_nan_f32(max_x_b, x_tile[k])
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        max_x_b = max_nan_f32(max_x_b, shfl_xor_f32(max_x_b, 1 << step))
    max_x_b_warps = cuda.shared.array(4, np.float32)
    # Block reduction: lane 0 of each of a row's 4 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 3
    if cuda.threadIdx.x & 31 == 0:
        max_x_b_warps[slot] = max_x_b
    cuda.syncthreads()
    max_x_b = max_x_b_warps[cuda.threadIdx.x & 3]
    # Warp reduction: 2 steps of shuffles over 4 lanes; all of them have the result.
    for step in range(2):
        max_x_b = max_nan_f32(max_x_b, shfl_xor_f32(max_x_b, 1 << step))
    t1 = f32(0) if max_x_b == -INF else max_x_b
    sum_exp_b = f32(0)
    value1_tile = cuda.local.array(TILE, np.float32)
    for v in range(4):
        j = first + v * 1024
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                value1_tile[k] = fast_exp_f32(x_tile[k] - t1)
                sum_exp_b = sum_exp_b + value1_tile[k]
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        sum_exp_b = sum_exp_b + shfl_xor_f32(sum_exp_b, 1 << step)
    sum_exp_b_warps = cuda.shared.array(4, np.float32)
    # Block reduction: lane 0 of each of a row's 4 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 3
    if cuda.threadIdx.x & 31 == 0:
        sum_exp_b_warps[slot] = sum_exp_b
    cuda.syncthreads()
    sum_exp_b = sum_exp_b_warps[cuda.threadIdx.x & 3]
    # Warp reduction: 2 steps of shuffles over 4 lanes; all of them have the result.
    for step in range(2):
        sum_exp_b = sum_exp_b + shfl_xor_f32(sum_exp_b, 1 << step)
    t2 = f32(1) / sum_exp_b
    # Results of every element.
    y_part = cuda.local.array(VECTOR, np.float32)
    for v in range(4):
        j = first + v * 1024
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                y_part[c] = t2 * value1_tile[k]
            store_bfloat16x8(
                y, y_row + j,
                (y_part[0], y_part[1], y_part[2], y_part[3], y_part[4], y_part[5], y_part[6], y_part[7])
            )
