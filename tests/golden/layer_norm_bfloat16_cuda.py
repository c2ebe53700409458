# layer_norm of bfloat16, i=4096, j=4096; cuda, Schedule(threads=256, rows=1, vector=8, tile=16, resident=True)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import div_count_f32, fast_rcp_f32, is_finite_f32, rcp_sqrt_f32
from redalg.kernels.cuda.intrinsics import (
    load_bfloat16, load_bfloat16x8, load_early_bfloat16x8, shfl_xor_f32, store_bfloat16x8, store_int64,
    store_uint8
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 16
VECTOR = 8
LEAST = f32(2.0 ** -126)
MOST_2 = f32(2.0**64)


@cuda.jit
def y_kernel(x, weight, bias, eps, y, marked, marks, size_j, x_s0, y_s0):
    """y along j; 256 threads per row, held in registers.

    tensors x[i,j], weight[j], bias[j], eps nonnegative
    sum1 = sum[j](x[i,j])
    t1 = x[i,j] - sum1 / size[j]
    sum2 = sum[j](t1**2)
    y = weight[j] * t1 / sqrt(eps + sum2 / size[j]) + bias[j]
    return y
    """
    # Grid: block b computes a row (indices i), number b.
    # Block: 256 threads; 256 threads share a row.
    # Loop nest: a thread loads its 16 elements once, in loads of 8, and keeps them in registers; every
    #   reduction over the whole row, one after the other; then results of every element.
    # Shared memory: 96 bytes (avg_x_first_sum_warps 32, avg_x_b_sum_warps 32,
    #   avg_x2_b_sum_warps 32).
    # Barriers: __syncwarp once, __syncthreads at 2 places.
    # Which row, which of its threads, and where the row begins in memory.
    t = cuda.threadIdx.x
    row = i64(cuda.blockIdx.x)
    i_i = row
    length = size_j
    x_row = i_i * x_s0
    y_row = i_i * y_s0
    n_b = length
    # The row to registers; all of it is under way before anything waits.
    first = t * VECTOR
    x_tile = cuda.local.array(TILE, np.float32)
    if length > 0:
        for v in range(2):
            j = min(first + v * 2048, length - VECTOR)
            k = v * VECTOR
            (
                x_tile[k], x_tile[k + 1], x_tile[k + 2], x_tile[k + 3], x_tile[k + 4], x_tile[k + 5],
                x_tile[k + 6], x_tile[k + 7]
            ) = load_early_bfloat16x8(x, x_row + j)
    cuda.syncwarp()
    A_x_first = load_bfloat16(x, x_row)
    A_x_first = A_x_first if is_finite_f32(A_x_first) else f32(0)
    n_some = min(length, 2048)
    avg_x_first_sum = f32(0)
    for v in range(1):
        j = first + v * 2048
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                avg_x_first_sum = avg_x_first_sum + (x_tile[k] - A_x_first)
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        avg_x_first_sum = avg_x_first_sum + shfl_xor_f32(avg_x_first_sum, 1 << step)
    avg_x_first_sum_warps = cuda.shared.array(8, np.float32)
    # Block reduction: lane 0 of each of a row's 8 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 7
    if cuda.threadIdx.x & 31 == 0:
        avg_x_first_sum_warps[slot] = avg_x_first_sum
    cuda.syncthreads()
    avg_x_first_sum = avg_x_first_sum_warps[cuda.threadIdx.x & 7]
    # Warp reduction: 3 steps of shuffles over 8 lanes; all of them have the result.
    for step in range(3):
        avg_x_first_sum = avg_x_first_sum + shfl_xor_f32(avg_x_first_sum, 1 << step)
    avg_x_first = avg_x_first_sum * fast_rcp_f32(f32(n_some))
    A_x_seen_b = A_x_first + avg_x_first
    A_x_b = A_x_seen_b if (A_x_seen_b < INF) & (-INF < A_x_seen_b) else A_x_first
    avg_x_b_sum = f32(0)
    avg_x2_b_sum = f32(0)
    for v in range(2):
        j = first + v * 2048
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                t1 = x_tile[k] - A_x_b
                avg_x_b_sum = avg_x_b_sum + t1
                avg_x2_b_sum = avg_x2_b_sum + t1 * t1
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        avg_x_b_sum = avg_x_b_sum + shfl_xor_f32(avg_x_b_sum, 1 << step)
        avg_x2_b_sum = avg_x2_b_sum + shfl_xor_f32(avg_x2_b_sum, 1 << step)
    avg_x_b_sum_warps = cuda.shared.array(8, np.float32)
    avg_x2_b_sum_warps = cuda.shared.array(8, np.float32)
    # Block reduction: lane 0 of each of a row's 8 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 7
    if cuda.threadIdx.x & 31 == 0:
        avg_x_b_sum_warps[slot] = avg_x_b_sum
        avg_x2_b_sum_warps[slot] = avg_x2_b_sum
    cuda.syncthreads()
    avg_x_b_sum = avg_x_b_sum_warps[cuda.threadIdx.x & 7]
    avg_x2_b_sum = avg_x2_b_sum_warps[cuda.threadIdx.x & 7]
    # Warp reduction: 3 steps of shuffles over 8 lanes; all of them have the result.
    for step in range(3):
        avg_x_b_sum = avg_x_b_sum + shfl_xor_f32(avg_x_b_sum, 1 << step)
        avg_x2_b_sum = avg_x2_b_sum + shfl_xor_f32(avg_x2_b_sum, 1 << step)
    avg_x_b = div_count_f32(avg_x_b_sum, f32(n_b))
    avg_x2_b = div_count_f32(avg_x2_b_sum, f32(n_b))
    # A row whose state left the range of the reals gets a mark: a cold branch, the same for a row.
    inside = (abs(avg_x_b) < MOST_2) & (LEAST <= abs(avg_x2_b)) & (abs(avg_x2_b) < INF)
    if not inside and t == 0:
        slot = row % 4096 * 8
        if not (abs(avg_x_b) < MOST_2) & (abs(avg_x2_b) < INF):
            store_uint8(marks, slot + 0, 1)
        if abs(avg_x2_b) < LEAST:
            store_uint8(marks, slot + 6, 1)
        if (
            not (abs(avg_x_b) < MOST_2) | (avg_x_b == 0)
            or not ((LEAST <= abs(avg_x2_b)) & (abs(avg_x2_b) < INF)) | (avg_x2_b == 0)
        ):
            store_int64(marked, 0, row + 1)
    t2 = rcp_sqrt_f32(avg_x2_b + f32(eps) - avg_x_b * avg_x_b)
    # Results of every element.
    y_part = cuda.local.array(VECTOR, np.float32)
    weight_part = cuda.local.array(8, np.float32)
    bias_part = cuda.local.array(8, np.float32)
    for v in range(2):
        j = first + v * 2048
        if j < length:
            (
                weight_part[0], weight_part[1], weight_part[2], weight_part[3], weight_part[4],
                weight_part[5], weight_part[6], weight_part[7]
            ) = load_bfloat16x8(weight, j)
            (
                bias_part[0], bias_part[1], bias_part[2], bias_part[3], bias_part[4], bias_part[5],
                bias_part[6], bias_part[7]
            ) = load_bfloat16x8(bias, j)
            for c in range(VECTOR):
                k = v * VECTOR + c
                y_part[c] = (x_tile[k] - A_x_b - avg_x_b) * t2 * weight_part[c] + bias_part[c]
            store_bfloat16x8(
                y, y_row + j,
                (y_part[0], y_part[1], y_part[2], y_part[3], y_part[4], y_part[5], y_part[6], y_part[7])
            )
