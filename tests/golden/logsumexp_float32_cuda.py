# logsumexp of float32, i=3, j=1000000; cuda, Schedule(threads=256, rows=1, vector=4, tile=16, split=44)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import exp_f32, log_f32, max_nan_f32
from redalg.kernels.cuda.intrinsics import (
    atomic_inc_acq_rel, div_u32, div_u64, load_float32x4, load_relaxed_float32, rem_u32, shfl_xor_f32,
    store_float32, store_uint32
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
THREADS = 256
TILE = 16
VECTOR = 4
SPLIT = 44


@cuda.jit(device=True)
def combine(max_x, sum_exp, max_x_b, sum_exp_b):
    """The state of a stream, followed by another's."""
    max_x_new = max_nan_f32(max_x, max_x_b)
    t1 = max_x_new - max_x
    move_A_x = f32(0) if max_x == max_x_new else t1
    t2 = max_x_new - max_x_b
    move_A_x_b = f32(0) if max_x_b == max_x_new else t2
    sum_exp_new = sum_exp * exp_f32(-move_A_x) + sum_exp_b * exp_f32(-move_A_x_b)
    return max_x_new, sum_exp_new


@cuda.jit
def y_kernel(x, y, counter, max_x_parts, sum_exp_parts, size_j, x_s0, y_s0):
    """y along j; 256 threads per row, walked in tiles.

    max1 = max[j](x[i,j])
    sum1 = sum[j](exp(x[i,j] - max1))
    y = log(sum1) + max1
    return y
    """
    # Grid: 44 consecutive blocks share a row (indices i); each has a split of j, leaves its state in
    #   scratch, and the last to finish merges.
    # Block: 256 threads; 256 threads share a row.
    # Loop nest: for tiles of 4096 elements, 16 of a thread, in loads of 4: fold into the thread's state
    #   (max_x, sum_exp); then the states are merged.
    # Shared memory: 72 bytes (max_x_new_warps 32, sum_exp_new_warps 32, arrived 8).
    # Barriers: __syncthreads at 6 places.
    # Which row, which of its threads, and where the row begins in memory.
    t = cuda.threadIdx.x
    split = rem_u32(cuda.blockIdx.x, 44)
    row = i64(div_u32(cuda.blockIdx.x, 44))
    i_i = row
    length = size_j
    x_row = i_i * x_s0
    y_row = i_i * y_s0
    # The state of no element; each thread folds its own elements into a state of its own.
    max_x = -INF
    sum_exp = f32(0)
    chunk = div_u64(length + 45055, 45056) * 1024  # per split, in whole vectors of all threads
    low = split * chunk
    stop = min(low + chunk, length)
    first = low + t * VECTOR
    while first < stop:
        x_tile = cuda.local.array(TILE, np.float32)
        for v in range(4):
            j = first + v * 1024
            if j < stop:
                k = v * VECTOR
                x_tile[k], x_tile[k + 1], x_tile[k + 2], x_tile[k + 3] = load_float32x4(x, x_row + j)
        max_x_b = -INF
        for v in range(4):
            j = first + v * 1024
            if j < stop:
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    max_x_b = max_nan_f32(max_x_b, x_tile[k])
        max_x_new = max_nan_f32(max_x, max_x_b)
        t1 = max_x_new - max_x
        move_A_x = f32(0) if max_x == max_x_new else t1
        t2 = f32(0) if max_x_new == -INF else max_x_new
        sum_exp_b = f32(0)
        for v in range(4):
            j = first + v * 1024
            if j < stop:
                for c in range(VECTOR):
                    k = v * VECTOR + c
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
    max_x_new_warps = cuda.shared.array(8, np.float32)
    # Block reduction: lane 0 of each of a row's 8 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 7
    if cuda.threadIdx.x & 31 == 0:
        max_x_new_warps[slot] = max_x_new
    cuda.syncthreads()
    max_x_new = max_x_new_warps[cuda.threadIdx.x & 7]
    # Warp reduction: 3 steps of shuffles over 8 lanes; all of them have the result.
    for step in range(3):
        max_x_new = max_nan_f32(max_x_new, shfl_xor_f32(max_x_new, 1 << step))
    t3 = max_x_new - max_x
    move_A_x_b = f32(0) if max_x == max_x_new else t3
    sum_exp_new = sum_exp * exp_f32(-move_A_x_b)
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        sum_exp_new = sum_exp_new + shfl_xor_f32(sum_exp_new, 1 << step)
    sum_exp_new_warps = cuda.shared.array(8, np.float32)
    # Block reduction: lane 0 of each of a row's 8 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 7
    if cuda.threadIdx.x & 31 == 0:
        sum_exp_new_warps[slot] = sum_exp_new
    cuda.syncthreads()
    sum_exp_new = sum_exp_new_warps[cuda.threadIdx.x & 7]
    # Warp reduction: 3 steps of shuffles over 8 lanes; all of them have the result.
    for step in range(3):
        sum_exp_new = sum_exp_new + shfl_xor_f32(sum_exp_new, 1 << step)
    max_x = max_x_new
    sum_exp = sum_exp_new
    # The state of this split to scratch, one of 44 of the row.
    if t == 0:
        store_float32(max_x_parts, row * SPLIT + split, max_x)
        store_float32(sum_exp_parts, row * SPLIT + split, sum_exp)
    # Who finds the counter full sees the states of all splits: one thread's atomic releases those of its
    #   block, and acquires the others'. The last block goes on.
    cuda.syncthreads()
    arrived = cuda.shared.array(1, np.int64)
    if cuda.threadIdx.x == 0:
        arrived[0] = atomic_inc_acq_rel(counter, cuda.blockIdx.x // SPLIT)
    cuda.syncthreads()
    if arrived[0] != SPLIT - 1:
        return
    if cuda.threadIdx.x == 0:
        store_uint32(counter, cuda.blockIdx.x // SPLIT, 0)
    # The states of all splits, in the order of the stream: a few to each thread, then as above.
    low = t * SPLIT // THREADS
    stop = (t + 1) * SPLIT // THREADS
    max_x = -INF
    sum_exp = f32(0)
    while low < stop:
        max_x_b = load_relaxed_float32(max_x_parts, row * SPLIT + low)
        sum_exp_b = load_relaxed_float32(sum_exp_parts, row * SPLIT + low)
        max_x, sum_exp = combine(max_x, sum_exp, max_x_b, sum_exp_b)
        low += 1
    # States of all threads of the row at once: to anchors that all know, then slot by slot.
    max_x_new = max_x
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        max_x_new = max_nan_f32(max_x_new, shfl_xor_f32(max_x_new, 1 << step))
    # Block reduction: lane 0 of each of a row's 8 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 7
    if cuda.threadIdx.x & 31 == 0:
        max_x_new_warps[slot] = max_x_new
    cuda.syncthreads()
    max_x_new = max_x_new_warps[cuda.threadIdx.x & 7]
    # Warp reduction: 3 steps of shuffles over 8 lanes; all of them have the result.
    for step in range(3):
        max_x_new = max_nan_f32(max_x_new, shfl_xor_f32(max_x_new, 1 << step))
    t4 = max_x_new - max_x
    move_A_x_b = f32(0) if max_x == max_x_new else t4
    sum_exp_new = sum_exp * exp_f32(-move_A_x_b)
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        sum_exp_new = sum_exp_new + shfl_xor_f32(sum_exp_new, 1 << step)
    # Block reduction: lane 0 of each of a row's 8 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 7
    if cuda.threadIdx.x & 31 == 0:
        sum_exp_new_warps[slot] = sum_exp_new
    cuda.syncthreads()
    sum_exp_new = sum_exp_new_warps[cuda.threadIdx.x & 7]
    # Warp reduction: 3 steps of shuffles over 8 lanes; all of them have the result.
    for step in range(3):
        sum_exp_new = sum_exp_new + shfl_xor_f32(sum_exp_new, 1 << step)
    max_x = max_x_new
    sum_exp = sum_exp_new
    # Results of the row.
    if t == 0:
        t5 = log_f32(sum_exp) + max_x
        store_float32(y, y_row, t5)
