# argmax of float32, i=3, j=1000000; cuda, Schedule(threads=256, rows=1, vector=4, tile=16, cluster=4)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.intrinsics import (
    cluster_sync, dsm_load_u64, key_of, key_place, load_float32x4, shfl_down_u64, shfl_idx_u64, store_int64
)

i64, u64 = np.int64, np.uint64
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
        argmax_x_key_b = NONE
        for v in range(4):
            j = first + v * 1024
            if j < stop:
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    at = j + c
                    argmax_x_key_b = max(argmax_x_key_b, key_of(x_tile[k], at))
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
