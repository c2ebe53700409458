# absmax_quantise of float32, i=4096, j=4096; cuda, Schedule(threads=256, rows=1, vector=4, tile=16, resident=True)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import abs_f32, max_nan_f32, round_int8_f32
from redalg.kernels.cuda.intrinsics import load_float32x4, shfl_xor_f32, store_float32, store_float32x4

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 16
VECTOR = 4


@cuda.jit
def q_scale_kernel(x, q, scale, q_s0, scale_s0, size_j, x_s0):
    """q, scale along j; 256 threads per row, held in registers.

    max1 = max[j](abs(x[i,j]))
    q = cast(127 * x[i,j] / max1, int8)
    scale = 1/127 * max1
    return q, scale
    """
    # Grid: block b computes a row (indices i), number b.
    # Block: 256 threads; 256 threads share a row.
    # Loop nest: a thread loads its 16 elements once, in loads of 4, and keeps them in registers; every
    #   reduction over the whole row, one after the other; then results of every element.
    # Shared memory: 32 bytes (max_abs_x_b_warps 32).
    # Barriers: __syncwarp once, __syncthreads once.
    # Which row, which of its threads, and where the row begins in memory.
    t = cuda.threadIdx.x
    row = i64(cuda.blockIdx.x)
    i_i = row
    length = size_j
    x_row = i_i * x_s0
    q_row = i_i * q_s0
    scale_row = i_i * scale_s0
    # The row to registers; all of it is under way before anything waits.
    first = t * VECTOR
    x_tile = cuda.local.array(TILE, np.float32)
    for v in range(4):
        j = first + v * 1024
        if j < length:
            k = v * VECTOR
            x_tile[k], x_tile[k + 1], x_tile[k + 2], x_tile[k + 3] = load_float32x4(x, x_row + j)
    cuda.syncwarp()
    max_abs_x_b = -INF
    for v in range(4):
        j = first + v * 1024
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                max_abs_x_b = max_nan_f32(max_abs_x_b, abs_f32(x_tile[k]))
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        max_abs_x_b = max_nan_f32(max_abs_x_b, shfl_xor_f32(max_abs_x_b, 1 << step))
    max_abs_x_b_warps = cuda.shared.array(8, np.float32)
    # Block reduction: lane 0 of each of a row's 8 warps to shared memory, then every warp reads all.
    slot = (cuda.threadIdx.x >> 5) & 7
    if cuda.threadIdx.x & 31 == 0:
        max_abs_x_b_warps[slot] = max_abs_x_b
    cuda.syncthreads()
    max_abs_x_b = max_abs_x_b_warps[cuda.threadIdx.x & 7]
    # Warp reduction: 3 steps of shuffles over 8 lanes; all of them have the result.
    for step in range(3):
        max_abs_x_b = max_nan_f32(max_abs_x_b, shfl_xor_f32(max_abs_x_b, 1 << step))
    # Results of the row.
    if t == 0:
        t1 = max_abs_x_b / f32(127)
        store_float32(scale, scale_row, t1)
    t2 = f32(127) / max_abs_x_b
    # Results of every element.
    q_part = cuda.local.array(VECTOR, np.float32)
    for v in range(4):
        j = first + v * 1024
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                q_part[c] = round_int8_f32(t2 * x_tile[k])
            store_float32x4(q, q_row + j, (q_part[0], q_part[1], q_part[2], q_part[3]))
