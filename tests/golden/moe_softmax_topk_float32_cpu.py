# moe_softmax_topk of float32, i=8192, j=128; cpu, rows
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu_math import exp_f32, max_nan_f32
from redalg.kernels.cpu_memory import load_float32, pointer_float32, pointer_int64, store_float32, store_int64

f32, i64 = np.float32, np.int64
INF = f32(np.inf)
MISSING = i64(2**62)


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def insert_top2(values, places, value, place):
    """Put an element into a list of 2, largest first; the lowest position among equals."""
    if (
        (value > values[1])
        | (value != value) & (values[1] == values[1])
        | ((value == values[1]) | (value != value) & (values[1] != values[1])) & (place < places[1])
    ):
        values[1] = value
        places[1] = place
        for step in range(1):
            i = 1 - step
            if (
                (values[i] > values[i - 1])
                | (values[i] != values[i]) & (values[i - 1] == values[i - 1])
                | ((values[i] == values[i - 1]) | (values[i] != values[i]) & (values[i - 1] != values[i - 1]))
                    & (places[i] < places[i - 1])
            ):
                values[i - 1], values[i] = values[i], values[i - 1]
                places[i - 1], places[i] = places[i], places[i - 1]


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
    topk_x_values_b = np.empty(2, np.float32)
    topk_x_indices_b = np.empty(2, np.int64)
    for row in range(low, high):
        i_i = row
        x_row = i_i * x_s0
        gates_row = i_i * gates_s0
        experts_row = i_i * experts_s0
        count = length
        max_x_b = -INF
        for i in range(2):
            topk_x_values_b[i] = -INF
            topk_x_indices_b[i] = MISSING
        for k in range(count):
            at = k
            t1 = load_float32(x, x_row + at)
            max_x_b = max_nan_f32(max_x_b, t1)
            insert_top2(topk_x_values_b, topk_x_indices_b, t1, i64(at))
        t2 = f32(0) if (max_x_b == -INF) else max_x_b
        sum_exp_b = f32(0)
        for k in range(count):
            at = k
            sum_exp_b = sum_exp_b + exp_f32(load_float32(x, x_row + at) - t2)
        t3 = f32(1) / sum_exp_b
        t4 = -max_x_b == -max_x_b
        for i_j_top in range(2):
            t5 = exp_f32(topk_x_values_b[i_j_top] - max_x_b)
            t6 = t3 * (f32(0) if (t4 & (topk_x_values_b[i_j_top] == -INF)) else t5)
            store_float32(
                gates, gates_row + i_j_top * gates_s1,
                (-INF)
                if ((-1 if topk_x_indices_b[i_j_top] == MISSING else topk_x_indices_b[i_j_top]) < 0)
                else t6
            )
        for i_j_top in range(2):
            store_int64(
                experts, experts_row + i_j_top * experts_s1,
                (-1 if topk_x_indices_b[i_j_top] == MISSING else topk_x_indices_b[i_j_top])
            )
