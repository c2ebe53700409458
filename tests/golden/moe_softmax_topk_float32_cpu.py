# moe_softmax_topk of float32, i=8192, j=128; cpu, rows shared out among threads, each walked as one tile of at most 8192 elements
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import exp_f32, max_nan_f32
from redalg.kernels.cpu.memory import (
    largest_float32, load_float32, pointer_float32, pointer_int64, stack_float32, stack_int64, store_float32,
    store_int64
)

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
MISSING = i64(2**62)


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def insert_top2(values, places, value, place):
    """Put an element into a list of 2, largest first; the lowest position among equals."""
    i = 2
    while (
        i > 0
        and (value > values[i - 1])
            | ((value != value) & (values[i - 1] == values[i - 1]))
            | (
                ((value == values[i - 1]) | ((value != value) & (values[i - 1] != values[i - 1])))
                & (place < places[i - 1])
            )
    ):
        if i < 2:
            values[i] = values[i - 1]
            places[i] = places[i - 1]
        i -= 1
    if i < 2:
        values[i] = value
        places[i] = place


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def gates_experts_rows(
    x, gates, experts, experts_s0, experts_s1, gates_s0, gates_s1, size_j, x_s0, low, high
):
    """gates, experts along j; a row is one tile.

    max1 = max[j](x[i,j])
    t1 = exp(x[i,j] - max1)
    sum1 = sum[j](t1)
    t2 = t1 / sum1
    gates = topk[j:2:j_top](t2).values
    experts = topk[j:2:j_top](t2).indices
    return gates, experts
    """
    x = pointer_float32(x)
    gates = pointer_float32(gates)
    experts = pointer_int64(experts)
    length = size_j
    topk_x_values_b = stack_float32(2)
    topk_x_indices_b = stack_int64(2)
    for row in range(low, high):
        i_i = row
        x_row = i_i * x_s0
        gates_row = i_i * gates_s0
        experts_row = i_i * experts_s0
        n_b = length
        count = length
        first = 0
        max_x_b = largest_float32(x, x_row + first, count)
        for i in range(2):
            topk_x_values_b[i] = -INF
            topk_x_indices_b[i] = MISSING
        full = count // 16 * 16
        for strip in range(0, full, 16):
            largest = -INF
            for c in range(16):
                k = strip + c
                at = first + k
                t1 = load_float32(x, x_row + at)
                largest = max_nan_f32(largest, t1)
            if not (largest <= topk_x_values_b[1]) or topk_x_indices_b[1] == MISSING:
                for k in range(strip, strip + 16):
                    at = first + k
                    t2 = load_float32(x, x_row + at)
                    if not (t2 <= topk_x_values_b[1]) or topk_x_indices_b[1] == MISSING:
                        at = first + k
                        insert_top2(topk_x_values_b, topk_x_indices_b, t2, i64(at))
        for k in range(full, count):
            at = first + k
            t3 = load_float32(x, x_row + at)
            at = first + k
            insert_top2(topk_x_values_b, topk_x_indices_b, t3, i64(at))
        t4 = f32(0) if max_x_b == -INF else max_x_b
        sum_exp_b = f32(0)
        for k in range(count):
            at = first + k
            sum_exp_b = sum_exp_b + exp_f32(load_float32(x, x_row + at) - t4)
        t5 = f32(1) / sum_exp_b
        t6 = -max_x_b == -max_x_b
        for i_j_top in range(2):
            t7 = exp_f32(topk_x_values_b[i_j_top] - max_x_b)
            t8 = t5 * (f32(0) if t6 & (topk_x_values_b[i_j_top] == -INF) else t7)
            store_float32(
                gates, gates_row + i_j_top * gates_s1,
                -INF
                if (-1 if topk_x_indices_b[i_j_top] == MISSING else topk_x_indices_b[i_j_top]) < 0
                else t8
            )
        t9 = (max_x_b < INF) & (sum_exp_b < INF) & (-INF < sum_exp_b)
        t10 = (max_x_b != max_x_b) | (sum_exp_b != sum_exp_b)
        for i_j_top in range(2):
            t11 = -1 if topk_x_indices_b[i_j_top] == MISSING else topk_x_indices_b[i_j_top]
            t12 = i_j_top if i_j_top < n_b else -1
            t13 = t12 if t10 else -1
            store_int64(experts, experts_row + i_j_top * experts_s1, t11 if t9 else t13)
