# argmax of float32, i=3, j=1000000; cuda, Schedule(threads=256, rows=1, vector=4, tile=16, cluster=4)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import max_nan_f32
from redalg.kernels.cuda.intrinsics import (
    cluster_sync, dsm_load_u64, key_of, key_place, load_float32x4, shfl_down_u64, shfl_idx_u64, store_int64
)

f32, i32, i64, u64 = np.float32, np.int32, np.int64, np.uint64
INF = f32(np.inf)
THREADS = 256
TILE = 16
VECTOR = 4
NONE = u64(0)


@cuda.jit(device=True)
def combine(argmax_x_key, argmax_x_key_b):
    """The state of a stream, followed by another's."""
    argmax_x_key_new = max(argmax_x_key, argmax_x_key_b)
    return argmax_x_key_new


@cuda.jit
def position_kernel(x, position, position_s0, size_j, x_s0):
    """position along j; 256 threads per row, walked in tiles.

    position = argmax[j](x[i,j])
    return position
    """
    # Grid: 4 consecutive blocks share a row (indices i); they are a cluster, each with a part of j, and
    #   trade states by distributed shared memory.
    # Block: 256 threads; 256 threads share a row.
    # Loop nest: for tiles of 4096 elements, 16 of a thread, in loads of 4: fold into the thread's state
    #   (argmax_x_key); then the states are merged.
    # Shared memory: 72 bytes (argmax_x_key_warps 64, argmax_x_key_blocks 8).
    # Barriers: __syncthreads once, barrier of the cluster at 2 places.
    # Which row, which of its threads, and where the row begins in memory.
    t = cuda.threadIdx.x
    split = cuda.blockIdx.x % 4
    row = i64(cuda.blockIdx.x // 4)
    i_i = row
    length = size_j
    x_row = i_i * x_s0
    position_row = i_i * position_s0
    # The state of no element; each thread folds its own elements into a state of its own.
    argmax_x_key = NONE
    chunk = (length + 4095) // 4096 * 1024  # per split, in whole vectors of all threads
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
        argmax_x_key_b_value = -INF  # the largest value of this thread
        for v in range(4):
            j = first + v * 1024
            if j < stop:
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    argmax_x_key_b_value = max_nan_f32(argmax_x_key_b_value, x_tile[k])
        place = i32(-1)
        if argmax_x_key_b_value == argmax_x_key_b_value:
            for w in range(4):
                v = 3 - w
                if first + v * 1024 < stop:
                    for d in range(VECTOR):
                        k = v * VECTOR + VECTOR - 1 - d
                        if x_tile[k] == argmax_x_key_b_value:
                            place = i32(k)
        else:
            for w in range(4):
                v = 3 - w
                if first + v * 1024 < stop:
                    for d in range(VECTOR):
                        k = v * VECTOR + VECTOR - 1 - d
                        if x_tile[k] != x_tile[k]:
                            place = i32(k)
        argmax_x_key_b = (
            key_of(argmax_x_key_b_value, first + place // VECTOR * 1024 + place % VECTOR)
            if place >= 0
            else NONE
        )
        argmax_x_key_new = max(argmax_x_key, argmax_x_key_b)
        argmax_x_key = argmax_x_key_new
        first += THREADS * TILE
    # Warp merge: a tree over 32 lanes by shuffles; lane 0 has the state of all, in order.
    step = 1
    while step < 32:
        argmax_x_key = combine(argmax_x_key, shfl_down_u64(argmax_x_key, step))
        step *= 2
    # Block merge: the states of a row's 8 warps by shared memory; every warp merges all of them.
    argmax_x_key_warps = cuda.shared.array(8, np.uint64)
    if t % 32 == 0:
        argmax_x_key_warps[t // 32] = argmax_x_key
    cuda.syncthreads()
    if t % 32 < 8:
        argmax_x_key = argmax_x_key_warps[t % 32]
    else:
        argmax_x_key = NONE
    # Warp merge: a tree over 8 lanes by shuffles; lane 0 has the state of all, in order.
    step = 1
    while step < 8:
        argmax_x_key = combine(argmax_x_key, shfl_down_u64(argmax_x_key, step))
        step *= 2
    # Cluster merge: every block reads the states of all 4 by distributed shared memory.
    argmax_x_key_blocks = cuda.shared.array(1, np.uint64)
    if t == 0:
        argmax_x_key_blocks[0] = argmax_x_key
    cluster_sync()
    if t % 32 < 4:
        argmax_x_key = dsm_load_u64(argmax_x_key_blocks, 0, t % 32)
    else:
        argmax_x_key = NONE
    # Warp merge: a tree over 4 lanes by shuffles; lane 0 has the state of all, in order.
    step = 1
    while step < 4:
        argmax_x_key = combine(argmax_x_key, shfl_down_u64(argmax_x_key, step))
        step *= 2
    # The row's state to all of its lanes.
    argmax_x_key = shfl_idx_u64(argmax_x_key, 0)
    # Results of the row.
    if t == 0 and split == 0:
        t1 = key_place(argmax_x_key)
        store_int64(position, position_row, t1)
    # Shared memory stays as it is until nobody reads it any more.
    cluster_sync()
