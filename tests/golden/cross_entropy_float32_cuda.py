# cross_entropy of float32, i=2048, j=32001; cuda, Schedule(threads=512, rows=1, vector=1, tile=8)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import exp_f32, log_f32, max_nan_f32
from redalg.kernels.cuda.intrinsics import load_float32, load_int64, shfl_xor_f32, store_float32

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
THREADS = 512
TILE = 8


@cuda.jit
def loss_kernel(x, t_, loss, loss_s0, size_j, t__s0, x_s0, x_s1):
    """loss along j; 512 threads per row, walked in tiles.

    tensors x[i,j], t[i] integer
    sum1 = sum[j](where(t[i] == index[j], x[i,j], 0))
    max1 = max[j](x[i,j])
    sum2 = sum[j](exp(x[i,j] - max1))
    loss = log(sum2) + max1 - sum1
    return loss
    """
    # Grid: block b computes a row (indices i), number b.
    # Block: 512 threads; 512 threads share a row.
    # Loop nest: for tiles of 4096 elements, 8 of a thread: fold into the thread's state (max_x, sum_exp);
    #   then the states are merged.
    # Shared memory: 128 bytes (max_x_new_warps 64, sum_exp_new_warps 64).
    # Barriers: __syncthreads at 2 places.
    # Which row, which of its threads, and where the row begins in memory.
    t = cuda.threadIdx.x
    row = i64(cuda.blockIdx.x)
    i_i = row
    length = size_j
    t__row = i_i * t__s0
    x_row = i_i * x_s0
    x_row2 = i_i * x_s0
    loss_row = i_i * loss_s0
    # The state of no element; each thread folds its own elements into a state of its own.
    max_x = -INF
    sum_exp = f32(0)
    first = t
    while first < length:
        x_tile = cuda.local.array(TILE, np.float32)
        for k in range(TILE):
            at = first + k * 512
            if at < length:
                x_tile[k] = load_float32(x, x_row2 + at)
        max_x_b = -INF
        for k in range(TILE):
            at = first + k * 512
            if at < length:
                max_x_b = max_nan_f32(max_x_b, x_tile[k])
        max_x_new = max_nan_f32(max_x, max_x_b)
        t1 = max_x_new - max_x
        move_A_x = f32(0) if max_x == max_x_new else t1
        t2 = f32(0) if max_x_new == -INF else max_x_new
        sum_exp_b = f32(0)
        for k in range(TILE):
            at = first + k * 512
            if at < length:
                sum_exp_b = sum_exp_b + exp_f32(x_tile[k] - t2)
        sum_exp_new = sum_exp * exp_f32(-move_A_x) + sum_exp_b
        max_x = max_x_new
        sum_exp = sum_exp_new
        first += THREADS * TILE
    # States of all threads of the row at once: to anchors that all know, then slot by slot.
    max_x_new = max_x
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        max_x_new = max_nan_f32(max_x_new, shfl_xor_f32(max_x_new, 1 << step))
    max_x_new_warps = cuda.shared.array(16, np.float32)
    # Block reduction: lane 0 of each of a row's 16 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 15
    if cuda.threadIdx.x & 31 == 0:
        max_x_new_warps[slot] = max_x_new
    cuda.syncthreads()
    max_x_new = max_x_new_warps[cuda.threadIdx.x & 15]
    # Warp reduction: 4 steps of shuffles over 16 lanes; all of them have the result.
    for step in range(4):
        max_x_new = max_nan_f32(max_x_new, shfl_xor_f32(max_x_new, 1 << step))
    t3 = max_x_new - max_x
    move_A_x_b = f32(0) if max_x == max_x_new else t3
    sum_exp_new = sum_exp * exp_f32(-move_A_x_b)
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        sum_exp_new = sum_exp_new + shfl_xor_f32(sum_exp_new, 1 << step)
    sum_exp_new_warps = cuda.shared.array(16, np.float32)
    # Block reduction: lane 0 of each of a row's 16 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 15
    if cuda.threadIdx.x & 31 == 0:
        sum_exp_new_warps[slot] = sum_exp_new
    cuda.syncthreads()
    sum_exp_new = sum_exp_new_warps[cuda.threadIdx.x & 15]
    # Warp reduction: 4 steps of shuffles over 16 lanes; all of them have the result.
    for step in range(4):
        sum_exp_new = sum_exp_new + shfl_xor_f32(sum_exp_new, 1 << step)
    max_x = max_x_new
    sum_exp = sum_exp_new
    # Results of the row.
    if t == 0:
        i_j_at = load_int64(t_, t__row)
        t4 = f32(0)
        if 0 <= i_j_at and i_j_at < size_j:
            t4 = load_float32(x, x_row + i_j_at * x_s1)
        t5 = log_f32(sum_exp) + max_x - t4
        store_float32(loss, loss_row, t5)
