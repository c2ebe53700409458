# moe_softmax_topk of float32, i=8192, j=128; cuda, Schedule(threads=32, rows=4, vector=4, tile=4, resident=True)
# Written by `make golden`.

import numpy as np
from numba import cuda

from redalg.kernels.cuda.intrinsics.math import exp_f32, max_nan_f32
from redalg.kernels.cuda.intrinsics import (
    key_of, key_place, key_value, load_float32, load_float32x4, shfl_xor_f32, shfl_xor_some_u64,
    store_float32, store_int64
)

f32, i64, u32, u64 = np.float32, np.int64, np.uint32, np.uint64
INF = f32(np.inf)
THREADS = 32
ROWS = 4
TILE = 4
VECTOR = 4
NONE = u64(0)
K = 2


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
    # Shared memory: 1104 bytes (topk_x_key_b_top 64, candidates 1024, counts 16).
    # Barriers: __syncwarp at 3 places.
    # Which row, which of its threads, and where the row begins in memory.
    t = cuda.threadIdx.x % THREADS
    r = cuda.threadIdx.x // THREADS
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
    max_x_b = -INF
    for v in range(1):
        j = first + v * 128
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                at = j + c
                max_x_b = max_nan_f32(max_x_b, x_tile[k])
    topk_x_key_b = max_x_b  # the largest value of this thread
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        max_x_b = max_nan_f32(max_x_b, shfl_xor_f32(max_x_b, 1 << step))
    # The 2 largest: no element below the smallest of 2 groups' maxima is one of them; the others are
    #   gathered in shared memory as keys, where each counts how many are larger: its rank.
    topk_x_key_b_top = cuda.shared.array(8, np.uint64)
    candidates = cuda.shared.array(128, np.uint64)
    counts = cuda.shared.array(4, np.int32)
    if t == 0:
        counts[r] = 0
    candidates[r * 32 + t] = NONE
    for i in range(t, K, 32):
        topk_x_key_b_top[r * K + i] = NONE
    for step in range(4):
        topk_x_key_b = max(topk_x_key_b, shfl_xor_f32(topk_x_key_b, 1 << step))
    for step in range(1):
        topk_x_key_b = min(topk_x_key_b, shfl_xor_f32(topk_x_key_b, 16 << step))
    cuda.syncwarp()
    mask = u32(0)
    for v in range(1):
        j = first + v * 128
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                at = j + c
                if not (x_tile[k] < topk_x_key_b):  # NaN comes first
                    mask = u32(mask | (1 << k))
    while mask != 0:
        k = cuda.ffs(mask) - 1
        mask = u32(mask & (mask - 1))
        at = first + k // VECTOR * 128 + k % VECTOR
        t1 = load_float32(x, x_row + at)
        place = cuda.atomic.add(counts, r, 1)
        if place < 32:
            candidates[r * 32 + place] = key_of(t1, at)
    cuda.syncwarp()
    count = counts[r]
    if count <= 32:
        if t < count:
            key = candidates[r * 32 + t]
            rank = 0
            for i in range(32):
                rank += 1 if candidates[r * 32 + i] > key else 0
            if rank < K:
                topk_x_key_b_top[r * K + rank] = key
    else:
        last = u64(2**64 - 1)
        for i in range(K):
            largest = NONE
            for at in range(t, length, THREADS):
                t2 = load_float32(x, x_row + at)
                key = key_of(t2, at)
                if key < last:
                    largest = max(largest, key)
            for step in range(5):
                largest = max(largest, shfl_xor_some_u64(largest, 1 << step, 32))
            if t == 0:
                topk_x_key_b_top[r * K + i] = largest
            last = largest
    cuda.syncwarp()
    t3 = f32(0) if max_x_b == -INF else max_x_b
    sum_exp_b = f32(0)
    for v in range(1):
        j = first + v * 128
        if j < length:
            for c in range(VECTOR):
                k = v * VECTOR + c
                sum_exp_b = sum_exp_b + exp_f32(x_tile[k] - t3)
    # Warp reduction: 5 steps of shuffles over 32 lanes; all of them have the result.
    for step in range(5):
        sum_exp_b = sum_exp_b + shfl_xor_f32(sum_exp_b, 1 << step)
    # Results of the row.
    if t < 2 and live:
        t4 = f32(1) / sum_exp_b
        t5 = -max_x_b == -max_x_b
        i_j_top = t
        t6 = key_value(topk_x_key_b_top[r * K + i_j_top])
        t7 = exp_f32(t6 - max_x_b)
        t8 = t4 * (f32(0) if t5 & (t6 == -INF) else t7)
        store_float32(
            gates, gates_row + i_j_top * gates_s1,
            -INF if key_place(topk_x_key_b_top[r * K + i_j_top]) < 0 else t8
        )
    if t < 2 and live:
        t9 = (max_x_b < INF) & (sum_exp_b < INF) & (-INF < sum_exp_b)
        t10 = (max_x_b != max_x_b) | (sum_exp_b != sum_exp_b)
        i_j_top = t
        t11 = key_place(topk_x_key_b_top[r * K + i_j_top])
        t12 = i_j_top if i_j_top < n_b else -1
        t13 = t12 if t10 else -1
        store_int64(experts, experts_row + i_j_top * experts_s1, t11 if t9 else t13)
