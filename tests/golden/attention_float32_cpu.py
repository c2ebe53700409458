# attention of float32, h=16, i=1024, j=1000, d=64, e=64; cpu, rows shared out among threads, each walked in tiles
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import exact_sum_f32, exp_f32, max_nan_f32
from redalg.kernels.cpu.memory import (
    free, heap_float32, load_float32, missing, pointer_float32, prefetch, stack_float32, store_float32
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
TILE = 1024


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def O_rows(
    Q, K, V, O, K_s0, K_s1, K_s2, O_s0, O_s1, Q_s0, Q_s1, Q_s2, V_s0, V_s1, size_d, size_e, size_i, size_j,
    low, high
):
    """O along j; a row is walked in tiles.

    sum1 = sum[d](Q[h,i,d] * K[h,j,d])
    max1 = max[j](sum1)
    t1 = exp(sum1 - max1)
    sum2 = sum[j](t1)
    sum3 = sum[j](t1 * V[h,j,e])
    O = sum3 / sum2
    return O
    """
    Q = pointer_float32(Q)
    K = pointer_float32(K)
    V = pointer_float32(V)
    O = pointer_float32(O)
    COLUMNS = size_e
    length = size_j
    sum_V_exp = heap_float32(COLUMNS)
    value1_tile = stack_float32(TILE)
    value2_tile = stack_float32(TILE)
    sum_V_exp_b = heap_float32(COLUMNS)
    sum_V_exp_new = heap_float32(COLUMNS)
    if missing(sum_V_exp) or missing(sum_V_exp_b) or missing(sum_V_exp_new):
        raise MemoryError
    for row in range(low, high):
        i_i = row % size_i
        rest = row // size_i
        i_h = rest
        Q_row = i_h * Q_s0 + i_i * Q_s1
        K_row = i_h * K_s0
        V_row = i_h * V_s0
        O_row = i_h * O_s0 + i_i * O_s1
        max_u = -INF
        for m in range(COLUMNS):
            sum_V_exp[m] = f32(0)
        sum_exp = f32(0)
        first = i64(0)
        while first < length:
            count = min(TILE, length - first)
            max_u_b = -INF
            for k in range(count):
                at = first + k
                t1 = f32(0)
                for i_d in range(size_d):
                    t1 = (
                        t1
                        + load_float32(Q, Q_row + i_d * Q_s2)
                            * load_float32(K, K_row + at * K_s1 + i_d * K_s2)
                    )
                value1_tile[k] = t1
                max_u_b = max_nan_f32(max_u_b, t1)
            max_u_new = max_nan_f32(max_u, max_u_b)
            t2 = max_u_new - max_u
            move_A_u = f32(0) if max_u == max_u_new else t2
            t3 = f32(0) if max_u_new == -INF else max_u_new
            for k in range(count):
                value2_tile[k] = exp_f32(exact_sum_f32(value1_tile[k], -t3))
            for m in range(COLUMNS):
                sum_V_exp_b[m] = f32(0)
            unrolled = count // 4 * 4
            for k in range(0, unrolled, 4):
                k_u0 = k + 0
                at_u0 = first + k_u0
                element1_u0 = value2_tile[k_u0]
                k_u1 = k + 1
                at_u1 = first + k_u1
                element1_u1 = value2_tile[k_u1]
                k_u2 = k + 2
                at_u2 = first + k_u2
                element1_u2 = value2_tile[k_u2]
                k_u3 = k + 3
                at_u3 = first + k_u3
                element1_u3 = value2_tile[k_u3]
                ahead = COLUMNS if first + k + 12 <= length else 0
                for m in range(0, ahead, 16):
                    column = m
                    prefetch(V, V_row + (first + k + 8) * V_s1 + column)
                    prefetch(V, V_row + (first + k + 9) * V_s1 + column)
                    prefetch(V, V_row + (first + k + 10) * V_s1 + column)
                    prefetch(V, V_row + (first + k + 11) * V_s1 + column)
                for m in range(COLUMNS):
                    column = m
                    sum_V_exp_b[m] = (
                        sum_V_exp_b[m] + load_float32(V, V_row + at_u0 * V_s1 + column) * element1_u0
                    )
                    sum_V_exp_b[m] = (
                        sum_V_exp_b[m] + load_float32(V, V_row + at_u1 * V_s1 + column) * element1_u1
                    )
                    sum_V_exp_b[m] = (
                        sum_V_exp_b[m] + load_float32(V, V_row + at_u2 * V_s1 + column) * element1_u2
                    )
                    sum_V_exp_b[m] = (
                        sum_V_exp_b[m] + load_float32(V, V_row + at_u3 * V_s1 + column) * element1_u3
                    )
            for k in range(unrolled, count):
                at = first + k
                element1 = value2_tile[k]
                for m in range(COLUMNS):
                    column = m
                    sum_V_exp_b[m] = sum_V_exp_b[m] + load_float32(V, V_row + at * V_s1 + column) * element1
            sum_exp_b = f32(0)
            for k in range(count):
                sum_exp_b = sum_exp_b + value2_tile[k]
            t4 = exp_f32(-move_A_u)
            for m in range(COLUMNS):
                sum_V_exp_new[m] = t4 * sum_V_exp[m] + sum_V_exp_b[m]
            sum_exp_new = t4 * sum_exp + sum_exp_b
            max_u = max_u_new
            for m in range(COLUMNS):
                sum_V_exp[m] = sum_V_exp_new[m]
            sum_exp = sum_exp_new
            first += TILE
        t5 = f32(1) / sum_exp
        for m in range(COLUMNS):
            column = m
            store_float32(O, O_row + column, t5 * sum_V_exp[m])
    free(sum_V_exp)
    free(sum_V_exp_b)
    free(sum_V_exp_new)
