# moe_softmax_topk of float32, i=8192, j=128; cuda, Schedule(threads=32, rows=4, vector=4, tile=4, resident=True)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import exp_f32, max_nan_f32
from redalg.kernels.cuda.intrinsics import (
    and_i32, key_of, key_place, key_value, load_float32x4, shfl_xor_f32, shfl_xor_u64, store_float32,
    store_int64
)

f32, i64, u64 = np.float32, np.int64, np.uint64
INF = f32(np.inf)
THREADS = 32
ROWS = 4
TILE = 4
VECTOR = 4
NONE = u64(0)
K = 2


@cuda.jit(device=True)
def sort_keys2(keys):
    """Sort a list of 2 keys, the largest first."""
    key = max(keys[0], keys[1])
    keys[1] = min(keys[0], keys[1])
    keys[0] = key


@cuda.jit(device=True)
def keep_keys2(best, keys):
    """The 2 largest keys of two sorted lists, to the first."""
    best[0] = max(best[0], keys[1])
    best[1] = max(best[1], keys[0])
    key = max(best[0], best[1])
    best[1] = min(best[0], best[1])
    best[0] = key


@cuda.jit
def gates_experts_kernel(x, gates, experts, experts_s0, experts_s1, gates_s0, gates_s1, size_i, size_j, x_s0):
    """gates, experts along j; 32 threads per row, held in registers.

    max1 = max[j](x[i,j])
    t1 = exp(x[i,j] - max1)
    sum1 = sum[j](t1)
    t2 = t1 / sum1
    gates = topk[j:2:j_top](t2).values
    experts = topk[j:2:j_top](t2).indices
    return gates, experts
    """
    # Grid: block b computes 4 rows (indices i), from 4 * b on.
    # Block: 128 threads; 32 threads share a row, 4 rows side by side.
    # Loop nest: a thread loads its 4 elements once, in loads of 4, and keeps them in registers; every
    #   reduction over the whole row, one after the other.
    # Shared memory: 64 bytes (topk_x_key_b_top 64).
    # Barriers: __syncwarp at 2 places.
    # Which row, which of its threads, and where the row begins in memory.
    t = and_i32(cuda.threadIdx.x, THREADS - 1)
    r = cuda.threadIdx.x >> 5
    row = i64(cuda.blockIdx.x) * ROWS + r
    live = row < size_i
    row = row if live else size_i - 1  # threads beyond the last row repeat it and write nothing
    i_i = row
    length = size_j
    x_row = i_i * x_s0
    gates_row = i_i * gates_s0
    experts_row = i_i * experts_s0
    n_b = length
    # The row to registers; all of it is under way before anything waits.
    first = t * VECTOR
    x_tile = cuda.local.array(TILE, np.float32)
    for v in range(1):
        j = first + v * 128
        if j < length:
            k = v * VECTOR
            x_tile[k], x_tile[k + 1], x_tile[k + 2], x_tile[k + 3] = load_float32x4(x, x_row + j)
    cuda.syncwarp()
    max_x_b = -INF
    for v in range(1):
        j = first + v * 128
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                max_x_b = max_nan_f32(max_x_b, x_tile[k])
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        max_x_b = max_nan_f32(max_x_b, shfl_xor_f32(max_x_b, 1 << step))
    # The 2 largest: each thread sorts its elements 2 at a time and keeps the 2 largest; then 32 threads
    #   exchange their lists in a butterfly.
    topk_x_key_b_list = cuda.local.array(2, np.uint64)
    topk_x_key_b_keys = cuda.local.array(2, np.uint64)
    topk_x_key_b_list[0] = NONE
    k = 0
    at = first + 0
    if at < length:
        topk_x_key_b_list[0] = key_of(x_tile[k], at)
    topk_x_key_b_list[1] = NONE
    k = 1
    at = first + 1
    if at < length:
        topk_x_key_b_list[1] = key_of(x_tile[k], at)
    sort_keys2(topk_x_key_b_list)
    topk_x_key_b_keys[0] = NONE
    k = 2
    at = first + 2
    if at < length:
        topk_x_key_b_keys[0] = key_of(x_tile[k], at)
    topk_x_key_b_keys[1] = NONE
    k = 3
    at = first + 3
    if at < length:
        topk_x_key_b_keys[1] = key_of(x_tile[k], at)
    sort_keys2(topk_x_key_b_keys)
    keep_keys2(topk_x_key_b_list, topk_x_key_b_keys)
    for c in range(2):
        topk_x_key_b_keys[c] = shfl_xor_u64(topk_x_key_b_list[c], 1)
    keep_keys2(topk_x_key_b_list, topk_x_key_b_keys)
    for c in range(2):
        topk_x_key_b_keys[c] = shfl_xor_u64(topk_x_key_b_list[c], 2)
    keep_keys2(topk_x_key_b_list, topk_x_key_b_keys)
    for c in range(2):
        topk_x_key_b_keys[c] = shfl_xor_u64(topk_x_key_b_list[c], 4)
    keep_keys2(topk_x_key_b_list, topk_x_key_b_keys)
    for c in range(2):
        topk_x_key_b_keys[c] = shfl_xor_u64(topk_x_key_b_list[c], 8)
    keep_keys2(topk_x_key_b_list, topk_x_key_b_keys)
    for c in range(2):
        topk_x_key_b_keys[c] = shfl_xor_u64(topk_x_key_b_list[c], 16)
    keep_keys2(topk_x_key_b_list, topk_x_key_b_keys)
    topk_x_key_b_top = cuda.shared.array(8, np.uint64)
    if t == 0:
        topk_x_key_b_top[r * K + 0] = topk_x_key_b_list[0]
        topk_x_key_b_top[r * K + 1] = topk_x_key_b_list[1]
    cuda.syncwarp()
    t1 = f32(0) if max_x_b == -INF else max_x_b
    sum_exp_b = f32(0)
    for v in range(1):
        j = first + v * 128
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                sum_exp_b = sum_exp_b + exp_f32(x_tile[k] - t1)
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        sum_exp_b = sum_exp_b + shfl_xor_f32(sum_exp_b, 1 << step)
    # Results of the row.
    if t < 2 and live:
        t2 = f32(1) / sum_exp_b
        t3 = -max_x_b == -max_x_b
        i_j_top = t
        t4 = key_value(topk_x_key_b_top[r * K + i_j_top])
        t5 = exp_f32(t4 - max_x_b)
        t6 = t2 * (f32(0) if t3 & (t4 == -INF) else t5)
        store_float32(
            gates, gates_row + i_j_top * gates_s1,
            -INF if key_place(topk_x_key_b_top[r * K + i_j_top]) < 0 else t6
        )
    if t < 2 and live:
        t7 = (max_x_b < INF) & (sum_exp_b < INF) & (-INF < sum_exp_b)
        t8 = (max_x_b != max_x_b) | (sum_exp_b != sum_exp_b)
        i_j_top = t
        t9 = key_place(topk_x_key_b_top[r * K + i_j_top])
        t10 = i_j_top if i_j_top < n_b else -1
        t11 = t10 if t8 else -1
        store_int64(experts, experts_row + i_j_top * experts_s1, t9 if t7 else t11)
