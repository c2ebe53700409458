# log_softmax of bfloat16, i=4096, j=65536; cuda, Schedule(threads=512, rows=1, vector=8, tile=32, exact=True, persistent=True, room=65536, lead=3)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.gpu_math import exp_f32, fast_exp_f32, fast_log_f32, max_nan_f32
from redalg.kernels.intrinsics import (
    copies_left_3, copies_sent, copy_bfloat16x8, load_shared_bfloat16x8, shfl_down_f32, shfl_idx_f32,
    store_stream_bfloat16x8
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
THREADS = 512
TILE = 32
VECTOR = 8


@cuda.jit(device=True)
def bring(row, first, spot, x, x_room, x_s0):
    """Start to copy this thread's elements of a tile to shared memory."""
    i_i = row
    x_row = i_i * x_s0
    for v in range(4):
        j = first + v * 4096
        copy_bfloat16x8(x_room, spot + v * 4096, x, x_row + j)


@cuda.jit(device=True)
def combine(max_x, sum_exp, max_x_b, sum_exp_b):
    """The state of a stream, followed by another's."""
    max_x_new = max_nan_f32(max_x, max_x_b)
    t1 = max_x_new - max_x
    move_A_x = f32(0) if (max_x == max_x_new) else t1
    t2 = max_x_new - max_x_b
    move_A_x_b = f32(0) if (max_x_b == max_x_new) else t2
    sum_exp_new = sum_exp * exp_f32(-move_A_x) + sum_exp_b * exp_f32(-move_A_x_b)
    return max_x_new, sum_exp_new


@cuda.jit
def y_kernel(x, y, size_i, size_j, x_s0, y_s0):
    """y along j; 512 threads per row, brought to shared memory ahead and walked in tiles.

    max1 = max[j](x[i,j])
    sum1 = sum[j](exp(x[i,j] - max1))
    y = x[i,j] - max1 - log(sum1)
    return y
    """
    group = i64(cuda.blockIdx.x)
    between = i64(cuda.gridDim.x)
    groups = size_i
    t = cuda.threadIdx.x
    x_room = cuda.shared.array(0, np.uint16, 16)
    length = size_j
    mine = t * VECTOR
    turn = 0
    for k in range(7):
        coming = group + k // 4 * between
        first = k % 4 * (THREADS * TILE) + t * VECTOR
        if coming < groups:
            bring(coming, first, mine + k * (THREADS * TILE), x, x_room, x_s0)
        copies_sent()
    while group < groups:
        row = i64(group)
        i_i = row
        y_row = i_i * y_s0
        copies_left_3()
        max_x = -INF
        sum_exp = f32(0)
        first = t * VECTOR
        slot = turn
        while first < length:
            spot = slot + mine
            x_tile = cuda.local.array(TILE, np.float32)
            for v in range(4):
                k = v * VECTOR
                (
                    x_tile[k], x_tile[k + 1], x_tile[k + 2], x_tile[k + 3], x_tile[k + 4], x_tile[k + 5],
                    x_tile[k + 6], x_tile[k + 7]
                ) = load_shared_bfloat16x8(x_room, spot + v * 4096)
            max_x_b = -INF
            for v in range(4):
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    max_x_b = max_nan_f32(max_x_b, x_tile[k])
            max_x_new = max_nan_f32(max_x, max_x_b)
            t1 = max_x_new - max_x
            move_A_x = f32(0) if (max_x == max_x_new) else t1
            t2 = f32(0) if (max_x_new == -INF) else max_x_new
            sum_exp_b = f32(0)
            for v in range(4):
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    sum_exp_b = sum_exp_b + fast_exp_f32(x_tile[k] - t2)
            sum_exp_new = sum_exp * fast_exp_f32(-move_A_x) + sum_exp_b
            max_x = max_x_new
            sum_exp = sum_exp_new
            slot = slot + 16384 if slot + 16384 < 114688 else slot - 98304
            first += THREADS * TILE
        step = 1
        while step < 32:
            max_x, sum_exp = combine(max_x, sum_exp, shfl_down_f32(max_x, step), shfl_down_f32(sum_exp, step))
            step *= 2
        max_x_warps = cuda.shared.array(16, np.float32)
        sum_exp_warps = cuda.shared.array(16, np.float32)
        if t % 32 == 0:
            max_x_warps[t // 32] = max_x
            sum_exp_warps[t // 32] = sum_exp
        cuda.syncthreads()
        if t % 32 < 16:
            max_x = max_x_warps[t % 32]
            sum_exp = sum_exp_warps[t % 32]
        else:
            max_x = -INF
            sum_exp = f32(0)
        step = 1
        while step < 16:
            max_x, sum_exp = combine(max_x, sum_exp, shfl_down_f32(max_x, step), shfl_down_f32(sum_exp, step))
            step *= 2
        max_x = shfl_idx_f32(max_x, 0)
        sum_exp = shfl_idx_f32(sum_exp, 0)
        t3 = fast_log_f32(sum_exp)
        first = t * VECTOR
        slot = turn
        while first < length:
            spot = slot + mine
            x_tile = cuda.local.array(TILE, np.float32)
            for v in range(4):
                k = v * VECTOR
                (
                    x_tile[k], x_tile[k + 1], x_tile[k + 2], x_tile[k + 3], x_tile[k + 4], x_tile[k + 5],
                    x_tile[k + 6], x_tile[k + 7]
                ) = load_shared_bfloat16x8(x_room, spot + v * 4096)
            coming = group + between
            further = first + 49152
            if further >= length:
                coming += between
                further -= 65536
            if coming < groups:
                bring(coming, further, spot, x, x_room, x_s0)
            copies_sent()
            y_part = cuda.local.array(VECTOR, np.float32)
            for v in range(4):
                j = first + v * 4096
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    y_part[c] = x_tile[k] - max_x - t3
                store_stream_bfloat16x8(
                    y, y_row + j,
                    (y_part[0], y_part[1], y_part[2], y_part[3], y_part[4], y_part[5], y_part[6], y_part[7])
                )
            slot = slot + 16384 if slot + 16384 < 114688 else slot - 98304
            first += THREADS * TILE
        cuda.syncthreads()
        turn = turn + 65536 if turn + 65536 < 114688 else turn - 49152
        group += between
