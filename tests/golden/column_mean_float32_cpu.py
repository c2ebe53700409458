# column_mean of float32, i=20000, j=4096; cpu, blocks of 1024 rows side by side along j in splits, shared out among threads; their states are merged in the order of the stream
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import is_finite_f32
from redalg.kernels.cpu.memory import (
    load_float32, load_uint8, pointer_float32, pointer_int64, pointer_uint8, prefetch, stack_float32,
    store_float32, store_int64, store_uint8, unlikely
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 64
BLOCK = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def m_out_fold(
    x, m_out, marked, marks, A_x_parts, avg_x_parts, size_i, size_j, span, spare, width, x_s0, low, high
):
    """m along i; the state of every split of a row.

    sum1 = sum[i](x[i,j])
    m = sum1 / size[i]
    return m
    """
    x = pointer_float32(x)
    A_x_parts = pointer_float32(A_x_parts)
    avg_x_parts = pointer_float32(avg_x_parts)
    length = size_i
    splits = (length + span - 1) // span
    A_x = stack_float32(BLOCK)
    avg_x = stack_float32(BLOCK)
    A_x_first = stack_float32(BLOCK)
    avg_x_first_sum = stack_float32(BLOCK)
    avg_x_first = stack_float32(BLOCK)
    A_x_seen_b = stack_float32(BLOCK)
    A_x_b = stack_float32(BLOCK)
    avg_x_b_sum = stack_float32(BLOCK)
    avg_x_b = stack_float32(BLOCK)
    avg_x_seen = stack_float32(BLOCK)
    A_x_seen = stack_float32(BLOCK)
    A_x_new = stack_float32(BLOCK)
    move_A_x = stack_float32(BLOCK)
    move_A_x_b = stack_float32(BLOCK)
    avg_x_new = stack_float32(BLOCK)
    for job in range(low, high):
        unit = job // splits
        split = job % splits
        columns = size_j
        blocks = (columns + width - 1) // width
        origin = unit % blocks * width
        COLUMNS = min(width, columns - origin)
        for m in range(COLUMNS):
            A_x[m] = f32(0)
        for m in range(COLUMNS):
            avg_x[m] = f32(0)
        n = i64(0)
        first = split * span
        stop = min(first + span, length)
        while first < stop:
            count = min(TILE, stop - first)
            n_b = count
            for m in range(COLUMNS):
                column = origin + m
                guess = load_float32(x, column)
                A_x_first[m] = guess if is_finite_f32(guess) else f32(0)
            for m in range(COLUMNS):
                avg_x_first_sum[m] = f32(0)
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
                ahead = COLUMNS if first + k + 12 <= length else 0
                for m in range(0, ahead, 16):
                    column = origin + m
                    prefetch(x, (first + k + 8) * x_s0 + column)
                    prefetch(x, (first + k + 9) * x_s0 + column)
                    prefetch(x, (first + k + 10) * x_s0 + column)
                    prefetch(x, (first + k + 11) * x_s0 + column)
                for m in range(COLUMNS):
                    column = origin + m
                    avg_x_first_sum[m] = (
                        avg_x_first_sum[m] + (load_float32(x, at_u0 * x_s0 + column) - A_x_first[m])
                    )
                    avg_x_first_sum[m] = (
                        avg_x_first_sum[m] + (load_float32(x, at_u1 * x_s0 + column) - A_x_first[m])
                    )
                    avg_x_first_sum[m] = (
                        avg_x_first_sum[m] + (load_float32(x, at_u2 * x_s0 + column) - A_x_first[m])
                    )
                    avg_x_first_sum[m] = (
                        avg_x_first_sum[m] + (load_float32(x, at_u3 * x_s0 + column) - A_x_first[m])
                    )
            for k in range(unrolled, count):
                at = first + k
                for m in range(COLUMNS):
                    column = origin + m
                    avg_x_first_sum[m] = (
                        avg_x_first_sum[m] + (load_float32(x, at * x_s0 + column) - A_x_first[m])
                    )
            for m in range(COLUMNS):
                avg_x_first[m] = avg_x_first_sum[m] / f32(n_b)
            for m in range(COLUMNS):
                A_x_seen_b[m] = avg_x_first[m] + A_x_first[m]
            for m in range(COLUMNS):
                t1 = A_x_seen_b[m]
                t2 = A_x_first[m]
                A_x_b[m] = t1 if (-INF < A_x_seen_b[m]) & (A_x_seen_b[m] < INF) else t2
            for m in range(COLUMNS):
                avg_x_b_sum[m] = f32(0)
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
                    avg_x_b_sum[m] = avg_x_b_sum[m] + (load_float32(x, at_u0 * x_s0 + column) - A_x_b[m])
                    avg_x_b_sum[m] = avg_x_b_sum[m] + (load_float32(x, at_u1 * x_s0 + column) - A_x_b[m])
                    avg_x_b_sum[m] = avg_x_b_sum[m] + (load_float32(x, at_u2 * x_s0 + column) - A_x_b[m])
                    avg_x_b_sum[m] = avg_x_b_sum[m] + (load_float32(x, at_u3 * x_s0 + column) - A_x_b[m])
            for k in range(unrolled, count):
                at = first + k
                for m in range(COLUMNS):
                    column = origin + m
                    avg_x_b_sum[m] = avg_x_b_sum[m] + (load_float32(x, at * x_s0 + column) - A_x_b[m])
            for m in range(COLUMNS):
                avg_x_b[m] = avg_x_b_sum[m] / f32(n_b)
            if n == 0:
                for m in range(COLUMNS):
                    A_x[m] = A_x_b[m]
                for m in range(COLUMNS):
                    avg_x[m] = avg_x_b[m]
            else:
                n_new = n + n_b
                for m in range(COLUMNS):
                    t3 = avg_x[m]
                    t4 = A_x[m] - A_x_b[m]
                    t5 = avg_x_b[m] - (f32(0) if A_x_b[m] == A_x[m] else t4)
                    fraction_b = f32(n_b) / f32(n_new)
                    joined_column = t3 + (t5 - t3) * fraction_b
                    joined_column = (
                        joined_column
                        if is_finite_f32(joined_column)
                        else t3 * (f32(1) - fraction_b) + t5 * fraction_b
                    )
                    avg_x_seen[m] = joined_column
                for m in range(COLUMNS):
                    A_x_seen[m] = avg_x_seen[m] + A_x[m]
                for m in range(COLUMNS):
                    t6 = A_x_seen[m]
                    t7 = A_x[m]
                    A_x_new[m] = t6 if (-INF < A_x_seen[m]) & (A_x_seen[m] < INF) else t7
                for m in range(COLUMNS):
                    t8 = A_x_new[m] - A_x[m]
                    move_A_x[m] = f32(0) if A_x_new[m] == A_x[m] else t8
                for m in range(COLUMNS):
                    t9 = A_x_new[m] - A_x_b[m]
                    move_A_x_b[m] = f32(0) if A_x_b[m] == A_x_new[m] else t9
                for m in range(COLUMNS):
                    t10 = avg_x[m] - move_A_x[m]
                    t11 = avg_x_b[m] - move_A_x_b[m]
                    fraction_b = f32(n_b) / f32(n_new)
                    joined_column = t10 + (t11 - t10) * fraction_b
                    joined_column = (
                        joined_column
                        if is_finite_f32(joined_column)
                        else t10 * (f32(1) - fraction_b) + t11 * fraction_b
                    )
                    avg_x_new[m] = joined_column
                for m in range(COLUMNS):
                    A_x[m] = A_x_new[m]
                for m in range(COLUMNS):
                    avg_x[m] = avg_x_new[m]
            n = n + n_b
            first += TILE
        for m in range(COLUMNS):
            store_float32(A_x_parts, job * BLOCK + m, A_x[m])
        for m in range(COLUMNS):
            store_float32(avg_x_parts, job * BLOCK + m, avg_x[m])


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def m_out_merge(
    x, m_out, marked, marks, A_x_parts, avg_x_parts, size_i, size_j, span, spare, width, x_s0, low, high
):
    """m along i; the states of a row's splits, merged.

    sum1 = sum[i](x[i,j])
    m = sum1 / size[i]
    return m
    """
    m_out = pointer_float32(m_out)
    marked = pointer_int64(marked)
    marks = pointer_uint8(marks)
    A_x_parts = pointer_float32(A_x_parts)
    avg_x_parts = pointer_float32(avg_x_parts)
    length = size_i
    splits = (length + span - 1) // span
    A_x = stack_float32(BLOCK)
    avg_x = stack_float32(BLOCK)
    A_x_b = stack_float32(BLOCK)
    avg_x_b = stack_float32(BLOCK)
    avg_x_seen = stack_float32(BLOCK)
    A_x_seen = stack_float32(BLOCK)
    A_x_new = stack_float32(BLOCK)
    move_A_x = stack_float32(BLOCK)
    move_A_x_b = stack_float32(BLOCK)
    avg_x_new = stack_float32(BLOCK)
    for unit in range(low, high):
        columns = size_j
        blocks = (columns + width - 1) // width
        row = unit // blocks
        origin = unit % blocks * width
        COLUMNS = min(width, columns - origin)
        home = unit * splits
        for m in range(COLUMNS):
            A_x[m] = load_float32(A_x_parts, home * BLOCK + m)
        for m in range(COLUMNS):
            avg_x[m] = load_float32(avg_x_parts, home * BLOCK + m)
        n = min(span, length)
        for split in range(1, splits):
            for m in range(COLUMNS):
                A_x_b[m] = load_float32(A_x_parts, (home + split) * BLOCK + m)
            for m in range(COLUMNS):
                avg_x_b[m] = load_float32(avg_x_parts, (home + split) * BLOCK + m)
            n_b = min(span, length - split * span)
            if n == 0:
                for m in range(COLUMNS):
                    A_x[m] = A_x_b[m]
                for m in range(COLUMNS):
                    avg_x[m] = avg_x_b[m]
            else:
                n_new = n + n_b
                for m in range(COLUMNS):
                    t1 = avg_x[m]
                    t2 = A_x[m] - A_x_b[m]
                    t3 = avg_x_b[m] - (f32(0) if A_x_b[m] == A_x[m] else t2)
                    fraction_b = f32(n_b) / f32(n_new)
                    joined_column = t1 + (t3 - t1) * fraction_b
                    joined_column = (
                        joined_column
                        if is_finite_f32(joined_column)
                        else t1 * (f32(1) - fraction_b) + t3 * fraction_b
                    )
                    avg_x_seen[m] = joined_column
                for m in range(COLUMNS):
                    A_x_seen[m] = avg_x_seen[m] + A_x[m]
                for m in range(COLUMNS):
                    t4 = A_x_seen[m]
                    t5 = A_x[m]
                    A_x_new[m] = t4 if (-INF < A_x_seen[m]) & (A_x_seen[m] < INF) else t5
                for m in range(COLUMNS):
                    t6 = A_x_new[m] - A_x[m]
                    move_A_x[m] = f32(0) if A_x_new[m] == A_x[m] else t6
                for m in range(COLUMNS):
                    t7 = A_x_new[m] - A_x_b[m]
                    move_A_x_b[m] = f32(0) if A_x_b[m] == A_x_new[m] else t7
                for m in range(COLUMNS):
                    t8 = avg_x[m] - move_A_x[m]
                    t9 = avg_x_b[m] - move_A_x_b[m]
                    fraction_b = f32(n_b) / f32(n_new)
                    joined_column = t8 + (t9 - t8) * fraction_b
                    joined_column = (
                        joined_column
                        if is_finite_f32(joined_column)
                        else t8 * (f32(1) - fraction_b) + t9 * fraction_b
                    )
                    avg_x_new[m] = joined_column
                for m in range(COLUMNS):
                    A_x[m] = A_x_new[m]
                for m in range(COLUMNS):
                    avg_x[m] = avg_x_new[m]
            n = n + n_b
        inside = True
        for m in range(COLUMNS):
            inside = inside & (abs(avg_x[m]) < INF)
        if unlikely(not inside):
            found = i64(0)
            for m in range(COLUMNS):
                mark = load_uint8(marks, row * columns + origin + m)
                if not (abs(avg_x[m]) < INF):
                    mark = mark | 1
                store_uint8(marks, row * columns + origin + m, mark)
                found = found | mark
            if found != 0:
                store_int64(marked, 0, 1)
        for m in range(COLUMNS):
            column = origin + m
            store_float32(m_out, column, A_x[m] + avg_x[m])
