# log_softmax of bfloat16, i=4096, j=65536; cuda, Schedule(threads=512, rows=1, vector=8, tile=32, exact=True, persistent=True, prefetch=65536, prefetch_distance=3)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import fast_exp_f32, fast_log_f32, max_nan_f32
from redalg.kernels.cuda.intrinsics import (
    copy_bfloat16x8, cp_async_commit, cp_async_wait_3, load_shared_bfloat16x8, shfl_xor_f32,
    store_stream_bfloat16x8
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
THREADS = 512
TILE = 32
VECTOR = 8


@cuda.jit(device=True)
def prefetch_tile(row, first, smem_index, x, x_shared, x_s0):
    """Start to copy this thread's elements of a tile to shared memory."""
    i_i = row
    x_row = i_i * x_s0
    for v in range(4):
        j = first + v * 4096
        copy_bfloat16x8(x_shared, smem_index + v * 4096, x, x_row + j)


@cuda.jit
def y_kernel(x, y, size_i, size_j, x_s0, y_s0):
    """y along j; 512 threads per row, prefetched to shared memory and walked in tiles.

    max1 = max[j](x[i,j])
    sum1 = sum[j](exp(x[i,j] - max1))
    y = x[i,j] - max1 - log(sum1)
    return y
    """
    # Grid: persistent; a block takes one row (indices i) after another.
    # Block: 512 threads; 512 threads share a row.
    # Loop nest: for tiles of 16384 elements, 32 of a thread, in loads of 8: fold into the thread's state
    #   (max_x, sum_exp); then the states are merged; then for tiles of 16384 elements, 32 of a thread, in
    #   loads of 8: results of every element; meanwhile cp.async brings the next row and 3 tiles beyond it
    #   to shared memory.
    # Shared memory: 229504 bytes (229376 of prefetched rows, max_x_new_warps 64, sum_exp_new_warps 64).
    # Barriers: __syncthreads at 3 places.
    group = i64(cuda.blockIdx.x)
    group_stride = i64(cuda.gridDim.x)
    groups = size_i
    # Prologue of the pipeline: the first row to shared memory.
    t = cuda.threadIdx.x
    x_shared = cuda.shared.array(0, np.uint16, 16)
    length = size_j
    ring_thread = t * VECTOR
    ring_row = 0
    for k in range(7):
        prefetch_group = group + k // 4 * group_stride
        first = k % 4 * (THREADS * TILE) + t * VECTOR
        if prefetch_group < groups:
            prefetch_tile(prefetch_group, first, ring_thread + k * (THREADS * TILE), x, x_shared, x_s0)
        cp_async_commit()
    while group < groups:
        # Which row, which of its threads, and where the row begins in memory.
        row = i64(group)
        i_i = row
        y_row = i_i * y_s0
        # cp.async.wait_group: this thread's elements are there; it reads only what it copied, so no barrier
        #   is needed.
        cp_async_wait_3()
        # The state of no element; each thread folds its own elements into a state of its own.
        max_x = -INF
        sum_exp = f32(0)
        first = t * VECTOR
        ring_tile = ring_row
        while first < length:
            smem_index = ring_tile + ring_thread
            x_tile = cuda.local.array(TILE, np.float32)
            for v in range(4):
                k = v * VECTOR
                (
                    x_tile[k], x_tile[k + 1], x_tile[k + 2], x_tile[k + 3], x_tile[k + 4], x_tile[k + 5],
                    x_tile[k + 6], x_tile[k + 7]
                ) = load_shared_bfloat16x8(x_shared, smem_index + v * 4096)
            max_x_b = -INF
            for v in range(4):
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    max_x_b = max_nan_f32(max_x_b, x_tile[k])
            max_x_new = max_nan_f32(max_x, max_x_b)
            t1 = max_x_new - max_x
            move_A_x = f32(0) if max_x == max_x_new else t1
            t2 = f32(0) if max_x_new == -INF else max_x_new
            sum_exp_b = f32(0)
            for v in range(4):
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    sum_exp_b = sum_exp_b + fast_exp_f32(x_tile[k] - t2)
            sum_exp_new = sum_exp * fast_exp_f32(-move_A_x) + sum_exp_b
            max_x = max_x_new
            sum_exp = sum_exp_new
            ring_tile = ring_tile + 16384 if ring_tile + 16384 < 114688 else ring_tile - 98304
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
        sum_exp_new = sum_exp * fast_exp_f32(-move_A_x_b)
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
        t4 = fast_log_f32(sum_exp)
        # Results of every element.
        first = t * VECTOR
        ring_tile = ring_row
        while first < length:
            smem_index = ring_tile + ring_thread
            x_tile = cuda.local.array(TILE, np.float32)
            for v in range(4):
                k = v * VECTOR
                (
                    x_tile[k], x_tile[k + 1], x_tile[k + 2], x_tile[k + 3], x_tile[k + 4], x_tile[k + 5],
                    x_tile[k + 6], x_tile[k + 7]
                ) = load_shared_bfloat16x8(x_shared, smem_index + v * 4096)
            # This tile has been read for the last time: cp.async of a later row's takes its place.
            prefetch_group = group + group_stride
            prefetch_first = first + 49152
            if prefetch_first >= length:
                prefetch_group += group_stride
                prefetch_first -= 65536
            if prefetch_group < groups:
                prefetch_tile(prefetch_group, prefetch_first, smem_index, x, x_shared, x_s0)
            cp_async_commit()
            y_part = cuda.local.array(VECTOR, np.float32)
            for v in range(4):
                j = first + v * 4096
                for c in range(VECTOR):
                    k = v * VECTOR + c
                    y_part[c] = x_tile[k] - max_x - t4
                store_stream_bfloat16x8(
                    y, y_row + j,
                    (y_part[0], y_part[1], y_part[2], y_part[3], y_part[4], y_part[5], y_part[6], y_part[7])
                )
            ring_tile = ring_tile + 16384 if ring_tile + 16384 < 114688 else ring_tile - 98304
            first += THREADS * TILE
        # Shared memory stays as it is until nobody reads it any more.
        cuda.syncthreads()
        ring_row = ring_row + 65536 if ring_row + 65536 < 114688 else ring_row - 49152
        group += group_stride
