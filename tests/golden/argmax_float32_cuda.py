# argmax of float32, i=3, j=1000000; cuda, Schedule(threads=256, rows=1, vector=4, tile=16, cluster=4)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import max_nan_f32
from redalg.kernels.cuda.intrinsics import (
    cluster_arrive, cluster_wait, div_u32, div_u64, dsm_send_u64, key_of, key_place, load_float32x4, rem_u32,
    shfl_xor_u64, store_int64, tx_expect, tx_init, tx_wait
)

f32, i32, i64, u64 = np.float32, np.int32, np.int64, np.uint64
INF = f32(np.inf)
THREADS = 256
TILE = 16
VECTOR = 4
NONE = u64(0)
EXCHANGES = 1


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
    # Shared memory: 96 bytes (argmax_x_key_new_warps 64, argmax_x_key_new_blocks 32).
    # Barriers: __syncthreads once, wait for the other blocks of the cluster once, mbarrier of an exchange
    #   once.
    # Which row, which of its threads, and where the row begins in memory.
    t = cuda.threadIdx.x
    split = rem_u32(cuda.blockIdx.x, 4)
    row = i64(div_u32(cuda.blockIdx.x, 4))
    i_i = row
    length = size_j
    x_row = i_i * x_s0
    position_row = i_i * position_s0
    # An mbarrier for each exchange of the cluster.
    arrivals = cuda.shared.array(EXCHANGES, np.int64)
    if cuda.threadIdx.x == 0:
        for e in range(EXCHANGES):
            tx_init(arrivals, e)
    # This block has begun: the others of its cluster may write to its shared memory.
    cluster_arrive()
    # The state of no element; each thread folds its own elements into a state of its own.
    argmax_x_key = NONE
    chunk = div_u64(length + 4095, 4096) * 1024  # per split, in whole vectors of all threads
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
    # States of all threads of the row at once: to anchors that all know, then slot by slot.
    argmax_x_key_new = argmax_x_key
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        argmax_x_key_new = max(argmax_x_key_new, shfl_xor_u64(argmax_x_key_new, 1 << step))
    argmax_x_key_new_warps = cuda.shared.array(8, np.uint64)
    # Block reduction: lane 0 of each of a row's 8 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 7
    if cuda.threadIdx.x & 31 == 0:
        argmax_x_key_new_warps[slot] = argmax_x_key_new
    cuda.syncthreads()
    argmax_x_key_new = argmax_x_key_new_warps[cuda.threadIdx.x & 7]
    # Warp reduction: 3 steps of shuffles over 8 lanes; all of them have the result.
    for step in range(3):
        argmax_x_key_new = max(argmax_x_key_new, shfl_xor_u64(argmax_x_key_new, 1 << step))
    # Cluster reduction: every block writes its value to all 4 by distributed shared memory.
    argmax_x_key_new_blocks = cuda.shared.array(4, np.uint64)
    cluster_wait()
    if t == 0:
        tx_expect(arrivals, 0, 32)
    if t < 4:
        dsm_send_u64(argmax_x_key_new_blocks, split, t, argmax_x_key_new, arrivals, 0)
    tx_wait(arrivals, 0)
    argmax_x_key_new = argmax_x_key_new_blocks[cuda.threadIdx.x & 3]
    # Warp reduction: 2 steps of shuffles over 4 lanes; all of them have the result.
    for step in range(2):
        argmax_x_key_new = max(argmax_x_key_new, shfl_xor_u64(argmax_x_key_new, 1 << step))
    argmax_x_key = argmax_x_key_new
    # Results of the row.
    if t == 0 and split == 0:
        t1 = key_place(argmax_x_key)
        store_int64(position, position_row, t1)
