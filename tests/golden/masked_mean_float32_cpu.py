# masked_mean of float32, i=5000, j=30; cpu, blocks of short rows, turned so that they lie side by side, shared out among threads, each walked as one tile of at most 1024 elements
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import is_finite_f32
from redalg.kernels.cpu.memory import (
    load_bool, load_float32, load_uint8, pointer_bool, pointer_float32, pointer_int64, pointer_uint8,
    stack_float32, stack_int64, store_float32, store_int64, store_uint8, unlikely
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
BLOCK = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def m_out_rows(x, k_, m_out, k__s1, marked, marks, size_i, size_j, spare, width, x_s1, low, high):
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
    marked = pointer_int64(marked)
    marks = pointer_uint8(marks)
    length = size_j
    A_x_first = stack_float32(BLOCK)
    avg_k_x_first_sum = stack_float32(BLOCK)
    sum_k_first = stack_int64(BLOCK)
    sum_k_b = stack_int64(BLOCK)
    avg_k_x_first = stack_float32(BLOCK)
    A_x_seen_b = stack_float32(BLOCK)
    A_x_b = stack_float32(BLOCK)
    avg_k_x_b_sum = stack_float32(BLOCK)
    avg_k_x_b = stack_float32(BLOCK)
    for unit in range(low, high):
        columns = size_i
        blocks = (columns + width - 1) // width
        row = unit // blocks
        origin = unit % blocks * width
        COLUMNS = min(width, columns - origin)
        first = i64(0)
        count = length
        n_b = length
        for m in range(COLUMNS):
            column = origin + m
            t1 = load_float32(x, column)
            guess = t1 if load_bool(k_, column) else f32(0)
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
            for m in range(COLUMNS):
                column = origin + m
                t2 = load_bool(k_, at_u0 * k__s1 + column)
                t3 = load_float32(x, at_u0 * x_s1 + column) - A_x_first[m]
                avg_k_x_first_sum[m] = avg_k_x_first_sum[m] + (t3 if t2 else f32(0))
                t4 = 1 if t2 else 0
                sum_k_first[m] = sum_k_first[m] + t4
                sum_k_b[m] = sum_k_b[m] + t4
                t2 = load_bool(k_, at_u1 * k__s1 + column)
                t3 = load_float32(x, at_u1 * x_s1 + column) - A_x_first[m]
                avg_k_x_first_sum[m] = avg_k_x_first_sum[m] + (t3 if t2 else f32(0))
                t4 = 1 if t2 else 0
                sum_k_first[m] = sum_k_first[m] + t4
                sum_k_b[m] = sum_k_b[m] + t4
                t2 = load_bool(k_, at_u2 * k__s1 + column)
                t3 = load_float32(x, at_u2 * x_s1 + column) - A_x_first[m]
                avg_k_x_first_sum[m] = avg_k_x_first_sum[m] + (t3 if t2 else f32(0))
                t4 = 1 if t2 else 0
                sum_k_first[m] = sum_k_first[m] + t4
                sum_k_b[m] = sum_k_b[m] + t4
                t2 = load_bool(k_, at_u3 * k__s1 + column)
                t3 = load_float32(x, at_u3 * x_s1 + column) - A_x_first[m]
                avg_k_x_first_sum[m] = avg_k_x_first_sum[m] + (t3 if t2 else f32(0))
                t4 = 1 if t2 else 0
                sum_k_first[m] = sum_k_first[m] + t4
                sum_k_b[m] = sum_k_b[m] + t4
        for k in range(unrolled, count):
            at = first + k
            for m in range(COLUMNS):
                column = origin + m
                t2 = load_bool(k_, at * k__s1 + column)
                t3 = load_float32(x, at * x_s1 + column) - A_x_first[m]
                avg_k_x_first_sum[m] = avg_k_x_first_sum[m] + (t3 if t2 else f32(0))
                t4 = 1 if t2 else 0
                sum_k_first[m] = sum_k_first[m] + t4
                sum_k_b[m] = sum_k_b[m] + t4
        for m in range(COLUMNS):
            avg_k_x_first[m] = avg_k_x_first_sum[m] / f32(n_b)
        for m in range(COLUMNS):
            A_x_seen_b[m] = A_x_first[m] + f32(n_b) * avg_k_x_first[m] / f32(sum_k_first[m])
        for m in range(COLUMNS):
            t5 = A_x_seen_b[m]
            t6 = A_x_first[m]
            A_x_b[m] = t5 if (A_x_seen_b[m] < INF) & (-INF < A_x_seen_b[m]) else t6
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
                t7 = load_float32(x, at_u0 * x_s1 + column) - A_x_b[m]
                avg_k_x_b_sum[m] = (
                    avg_k_x_b_sum[m] + (t7 if load_bool(k_, at_u0 * k__s1 + column) else f32(0))
                )
                t7 = load_float32(x, at_u1 * x_s1 + column) - A_x_b[m]
                avg_k_x_b_sum[m] = (
                    avg_k_x_b_sum[m] + (t7 if load_bool(k_, at_u1 * k__s1 + column) else f32(0))
                )
                t7 = load_float32(x, at_u2 * x_s1 + column) - A_x_b[m]
                avg_k_x_b_sum[m] = (
                    avg_k_x_b_sum[m] + (t7 if load_bool(k_, at_u2 * k__s1 + column) else f32(0))
                )
                t7 = load_float32(x, at_u3 * x_s1 + column) - A_x_b[m]
                avg_k_x_b_sum[m] = (
                    avg_k_x_b_sum[m] + (t7 if load_bool(k_, at_u3 * k__s1 + column) else f32(0))
                )
        for k in range(unrolled, count):
            at = first + k
            for m in range(COLUMNS):
                column = origin + m
                t7 = load_float32(x, at * x_s1 + column) - A_x_b[m]
                avg_k_x_b_sum[m] = avg_k_x_b_sum[m] + (t7 if load_bool(k_, at * k__s1 + column) else f32(0))
        for m in range(COLUMNS):
            avg_k_x_b[m] = avg_k_x_b_sum[m] / f32(n_b)
        A_x = A_x_b
        avg_k_x = avg_k_x_b
        sum_k = sum_k_b
        n = length
        inside = True
        for m in range(COLUMNS):
            inside = inside & (abs(avg_k_x[m]) < INF)
        if unlikely(not inside):
            found = i64(0)
            for m in range(COLUMNS):
                mark = load_uint8(marks, row * columns + origin + m)
                if not (abs(avg_k_x[m]) < INF):
                    mark = mark | 1
                store_uint8(marks, row * columns + origin + m, mark)
                found = found | mark
            if found != 0:
                store_int64(marked, 0, 1)
        for m in range(COLUMNS):
            column = origin + m
            store_float32(m_out, column, A_x[m] + f32(n) * (avg_k_x[m] / f32(sum_k[m])))
