# masked_mean of float32, i=5000, j=30; cpu, blocks of short rows, turned so that they lie side by side, shared out among threads, each walked in tiles
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import is_finite_f32
from redalg.kernels.cpu.memory import (
    load_bool, load_float32, pointer_bool, pointer_float32, prefetch, stack_float32, stack_int64,
    store_float32
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 64
BLOCK = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def m_out_rows(x, k_, m_out, k__s1, size_i, size_j, x_s1, low, high):
    """m along j; rows side by side, walked together.

    tensors x[i,j], k[i,j] bool
    sum1 = sum[j](where(k[i,j], x[i,j], 0))
    sum2 = sum[j](where(k[i,j], 1, 0))
    m = sum1 / sum2
    return m
    """
    x = pointer_float32(x)
    k_ = pointer_bool(k_)
    m_out = pointer_float32(m_out)
    length = size_j
    A_x = stack_float32(BLOCK)
    avg_k_x = stack_float32(BLOCK)
    sum_k = stack_int64(BLOCK)
    A_x_first = stack_float32(BLOCK)
    avg_k_x_first_sum = stack_float32(BLOCK)
    sum_k_first = stack_int64(BLOCK)
    sum_k_b = stack_int64(BLOCK)
    avg_k_x_first = stack_float32(BLOCK)
    A_x_seen_b = stack_float32(BLOCK)
    A_x_b = stack_float32(BLOCK)
    avg_k_x_b_sum = stack_float32(BLOCK)
    avg_k_x_b = stack_float32(BLOCK)
    avg_k_x_seen = stack_float32(BLOCK)
    sum_k_seen = stack_int64(BLOCK)
    A_x_seen = stack_float32(BLOCK)
    A_x_new = stack_float32(BLOCK)
    move_A_x = stack_float32(BLOCK)
    move_A_x_b = stack_float32(BLOCK)
    avg_k_x_new = stack_float32(BLOCK)
    sum_k_new = stack_int64(BLOCK)
    for unit in range(low, high):
        columns = size_i
        blocks = (columns + BLOCK - 1) // BLOCK
        origin = unit % blocks * BLOCK
        COLUMNS = min(BLOCK, columns - origin)
        for m in range(COLUMNS):
            A_x[m] = f32(0)
        for m in range(COLUMNS):
            avg_k_x[m] = f32(0)
        for m in range(COLUMNS):
            sum_k[m] = i64(0)
        n = i64(0)
        first = i64(0)
        while first < length:
            count = min(TILE, length - first)
            n_b = count
            for m in range(COLUMNS):
                column = origin + m
                guess = load_float32(x, column)
                A_x_first[m] = guess if is_finite_f32(guess) else f32(0)
            for m in range(COLUMNS):
                avg_k_x_first_sum[m] = f32(0)
            for m in range(COLUMNS):
                sum_k_first[m] = i64(0)
            for m in range(COLUMNS):
                sum_k_b[m] = i64(0)
            unrolled = count // 4 * 4
            for k in range(0, unrolled, 4):
                k_u0 = k + 0
                at_u0 = first + k_u0
                k_u1 = k + 1
                at_u1 = first + k_u1
                k_u2 = k + 2
                at_u2 = first + k_u2
                k_u3 = k + 3
                at_u3 = first + k_u3
                for m in range(0, COLUMNS, 64):
                    column = origin + m
                    prefetch(k_, (first + k + 8) * k__s1 + column)
                    prefetch(k_, (first + k + 9) * k__s1 + column)
                    prefetch(k_, (first + k + 10) * k__s1 + column)
                    prefetch(k_, (first + k + 11) * k__s1 + column)
                for m in range(0, COLUMNS, 16):
                    column = origin + m
                    prefetch(x, (first + k + 8) * x_s1 + column)
                    prefetch(x, (first + k + 9) * x_s1 + column)
                    prefetch(x, (first + k + 10) * x_s1 + column)
                    prefetch(x, (first + k + 11) * x_s1 + column)
                for m in range(COLUMNS):
                    column = origin + m
                    t1 = load_bool(k_, at_u0 * k__s1 + column)
                    t2 = load_float32(x, at_u0 * x_s1 + column) - A_x_first[m]
                    avg_k_x_first_sum[m] = avg_k_x_first_sum[m] + (t2 if t1 else f32(0))
                    t3 = 1 if t1 else 0
                    sum_k_first[m] = sum_k_first[m] + t3
                    sum_k_b[m] = sum_k_b[m] + t3
                    t1 = load_bool(k_, at_u1 * k__s1 + column)
                    t2 = load_float32(x, at_u1 * x_s1 + column) - A_x_first[m]
                    avg_k_x_first_sum[m] = avg_k_x_first_sum[m] + (t2 if t1 else f32(0))
                    t3 = 1 if t1 else 0
                    sum_k_first[m] = sum_k_first[m] + t3
                    sum_k_b[m] = sum_k_b[m] + t3
                    t1 = load_bool(k_, at_u2 * k__s1 + column)
                    t2 = load_float32(x, at_u2 * x_s1 + column) - A_x_first[m]
                    avg_k_x_first_sum[m] = avg_k_x_first_sum[m] + (t2 if t1 else f32(0))
                    t3 = 1 if t1 else 0
                    sum_k_first[m] = sum_k_first[m] + t3
                    sum_k_b[m] = sum_k_b[m] + t3
                    t1 = load_bool(k_, at_u3 * k__s1 + column)
                    t2 = load_float32(x, at_u3 * x_s1 + column) - A_x_first[m]
                    avg_k_x_first_sum[m] = avg_k_x_first_sum[m] + (t2 if t1 else f32(0))
                    t3 = 1 if t1 else 0
                    sum_k_first[m] = sum_k_first[m] + t3
                    sum_k_b[m] = sum_k_b[m] + t3
            for k in range(unrolled, count):
                at = first + k
                for m in range(COLUMNS):
                    column = origin + m
                    t1 = load_bool(k_, at * k__s1 + column)
                    t2 = load_float32(x, at * x_s1 + column) - A_x_first[m]
                    avg_k_x_first_sum[m] = avg_k_x_first_sum[m] + (t2 if t1 else f32(0))
                    t3 = 1 if t1 else 0
                    sum_k_first[m] = sum_k_first[m] + t3
                    sum_k_b[m] = sum_k_b[m] + t3
            for m in range(COLUMNS):
                avg_k_x_first[m] = avg_k_x_first_sum[m] / f32(n_b)
            for m in range(COLUMNS):
                A_x_seen_b[m] = A_x_first[m] + f32(n_b) * avg_k_x_first[m] / f32(sum_k_first[m])
            for m in range(COLUMNS):
                t4 = A_x_seen_b[m]
                t5 = A_x_first[m]
                A_x_b[m] = t4 if (A_x_seen_b[m] < INF) & (-INF < A_x_seen_b[m]) else t5
            for m in range(COLUMNS):
                avg_k_x_b_sum[m] = f32(0)
            unrolled = count // 4 * 4
            for k in range(0, unrolled, 4):
                k_u0 = k + 0
                at_u0 = first + k_u0
                k_u1 = k + 1
                at_u1 = first + k_u1
                k_u2 = k + 2
                at_u2 = first + k_u2
                k_u3 = k + 3
                at_u3 = first + k_u3
                for m in range(COLUMNS):
                    column = origin + m
                    t6 = load_float32(x, at_u0 * x_s1 + column) - A_x_b[m]
                    avg_k_x_b_sum[m] = (
                        avg_k_x_b_sum[m] + (t6 if load_bool(k_, at_u0 * k__s1 + column) else f32(0))
                    )
                    t6 = load_float32(x, at_u1 * x_s1 + column) - A_x_b[m]
                    avg_k_x_b_sum[m] = (
                        avg_k_x_b_sum[m] + (t6 if load_bool(k_, at_u1 * k__s1 + column) else f32(0))
                    )
                    t6 = load_float32(x, at_u2 * x_s1 + column) - A_x_b[m]
                    avg_k_x_b_sum[m] = (
                        avg_k_x_b_sum[m] + (t6 if load_bool(k_, at_u2 * k__s1 + column) else f32(0))
                    )
                    t6 = load_float32(x, at_u3 * x_s1 + column) - A_x_b[m]
                    avg_k_x_b_sum[m] = (
                        avg_k_x_b_sum[m] + (t6 if load_bool(k_, at_u3 * k__s1 + column) else f32(0))
                    )
            for k in range(unrolled, count):
                at = first + k
                for m in range(COLUMNS):
                    column = origin + m
                    t6 = load_float32(x, at * x_s1 + column) - A_x_b[m]
                    avg_k_x_b_sum[m] = (
                        avg_k_x_b_sum[m] + (t6 if load_bool(k_, at * k__s1 + column) else f32(0))
                    )
            for m in range(COLUMNS):
                avg_k_x_b[m] = avg_k_x_b_sum[m] / f32(n_b)
            if n == 0:
                for m in range(COLUMNS):
                    A_x[m] = A_x_b[m]
                for m in range(COLUMNS):
                    avg_k_x[m] = avg_k_x_b[m]
                for m in range(COLUMNS):
                    sum_k[m] = sum_k_b[m]
            else:
                n_new = n + n_b
                for m in range(COLUMNS):
                    t7 = avg_k_x[m]
                    t8 = A_x[m] - A_x_b[m]
                    t9 = avg_k_x_b[m] - f32(sum_k_b[m]) * (f32(0) if A_x[m] == A_x_b[m] else t8) / f32(n_b)
                    fraction_b = f32(n_b) / f32(n_new)
                    joined_column = t7 + (t9 - t7) * fraction_b
                    joined_column = (
                        joined_column
                        if is_finite_f32(joined_column)
                        else t7 * (f32(1) - fraction_b) + t9 * fraction_b
                    )
                    avg_k_x_seen[m] = joined_column
                for m in range(COLUMNS):
                    sum_k_seen[m] = sum_k[m] + sum_k_b[m]
                for m in range(COLUMNS):
                    t10 = A_x[m]
                    t11 = t10 + f32(n_new) * avg_k_x_seen[m] / f32(sum_k_seen[m])
                    A_x_seen[m] = t10 if 0 == sum_k_seen[m] else t11
                for m in range(COLUMNS):
                    t12 = A_x_seen[m]
                    t13 = A_x[m]
                    A_x_new[m] = t12 if (A_x_seen[m] < INF) & (-INF < A_x_seen[m]) else t13
                for m in range(COLUMNS):
                    t14 = A_x_new[m] - A_x[m]
                    move_A_x[m] = f32(0) if A_x_new[m] == A_x[m] else t14
                for m in range(COLUMNS):
                    t15 = A_x_new[m] - A_x_b[m]
                    move_A_x_b[m] = f32(0) if A_x_new[m] == A_x_b[m] else t15
                for m in range(COLUMNS):
                    t16 = avg_k_x[m] - f32(sum_k[m]) * move_A_x[m] / f32(n)
                    t17 = avg_k_x_b[m] - f32(sum_k_b[m]) * move_A_x_b[m] / f32(n_b)
                    fraction_b = f32(n_b) / f32(n_new)
                    joined_column = t16 + (t17 - t16) * fraction_b
                    joined_column = (
                        joined_column
                        if is_finite_f32(joined_column)
                        else t16 * (f32(1) - fraction_b) + t17 * fraction_b
                    )
                    avg_k_x_new[m] = joined_column
                for m in range(COLUMNS):
                    sum_k_new[m] = sum_k[m] + sum_k_b[m]
                for m in range(COLUMNS):
                    A_x[m] = A_x_new[m]
                for m in range(COLUMNS):
                    avg_k_x[m] = avg_k_x_new[m]
                for m in range(COLUMNS):
                    sum_k[m] = sum_k_new[m]
            n = n + n_b
            first += TILE
        n = length
        for m in range(COLUMNS):
            column = origin + m
            store_float32(m_out, column, A_x[m] + f32(n) * (avg_k_x[m] / f32(sum_k[m])))
