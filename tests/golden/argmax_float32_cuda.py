# argmax of float32, i=3, j=1000000; cuda, Schedule(threads=256, rows=1, vector=4, tile=16, cluster=4)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.gpu_math import max_nan_f32
from redalg.kernels.intrinsics import (
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
    t = cuda.threadIdx.x
    piece = cuda.blockIdx.x % 4
    row = i64(cuda.blockIdx.x // 4)
    i_i = row
    length = size_j
    x_row = i_i * x_s0
    position_row = i_i * position_s0
    argmax_x_key = NONE
    share = (length + 16383) // 16384 * 4096  # per piece, in whole tiles
    low = piece * share
    stop = min(low + share, length)
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
    step = 1
    while step < 32:
        argmax_x_key = combine(argmax_x_key, shfl_down_u64(argmax_x_key, step))
        step *= 2
    argmax_x_key_warps = cuda.shared.array(8, np.uint64)
    if t % 32 == 0:
        argmax_x_key_warps[t // 32] = argmax_x_key
    cuda.syncthreads()
    if t % 32 < 8:
        argmax_x_key = argmax_x_key_warps[t % 32]
    else:
        argmax_x_key = NONE
    step = 1
    while step < 8:
        argmax_x_key = combine(argmax_x_key, shfl_down_u64(argmax_x_key, step))
        step *= 2
    argmax_x_key_blocks = cuda.shared.array(1, np.uint64)
    if t == 0:
        argmax_x_key_blocks[0] = argmax_x_key
    cluster_sync()
    if t % 32 < 4:
        argmax_x_key = dsm_load_u64(argmax_x_key_blocks, 0, t % 32)
    else:
        argmax_x_key = NONE
    step = 1
    while step < 4:
        argmax_x_key = combine(argmax_x_key, shfl_down_u64(argmax_x_key, step))
        step *= 2
    argmax_x_key = shfl_idx_u64(argmax_x_key, 0)
    if t == 0 and piece == 0:
        t1 = key_place(argmax_x_key)
        store_int64(position, position_row, t1)
    cluster_sync()
