# logsumexp of float32, i=3, j=1000000; cpu, rows in splits, shared out among threads; their states are merged in the order of the stream
# Written by `make golden`.

import numpy as np
from numba import njit

from redalg.kernels.cpu.math.functions import exp_f32, log_f32, max_nan_f32
from redalg.kernels.cpu.memory import largest_float32, load_float32, pointer_float32, store_float32

f32 = np.float32
INF = f32(np.inf)
TILE = 4096


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def combine(max_x, sum_exp, max_x_b, sum_exp_b):
    """The state of a stream, followed by another's."""
    max_x_new = max_nan_f32(max_x, max_x_b)
    t1 = max_x_new - max_x
    move_A_x = f32(0) if max_x == max_x_new else t1
    t2 = max_x_new - max_x_b
    move_A_x_b = f32(0) if max_x_b == max_x_new else t2
    sum_exp_new = sum_exp * exp_f32(-move_A_x) + sum_exp_b * exp_f32(-move_A_x_b)
    return max_x_new, sum_exp_new


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def y_fold(x, y, max_x_parts, sum_exp_parts, size_j, span, x_s0, y_s0, low, high):
    """y along j; the state of every split of a row.

    max1 = max[j](x[i,j])
    sum1 = sum[j](exp(x[i,j] - max1))
    y = log(sum1) + max1
    return y
    """
    x = pointer_float32(x)
    max_x_parts = pointer_float32(max_x_parts)
    sum_exp_parts = pointer_float32(sum_exp_parts)
    length = size_j
    splits = (length + span - 1) // span
    for job in range(low, high):
        row = job // splits
        split = job % splits
        i_i = row
        x_row = i_i * x_s0
        max_x = -INF
        sum_exp = f32(0)
        first = split * span
        stop = min(first + span, length)
        while first < stop:
            count = min(TILE, stop - first)
            max_x_b = largest_float32(x, x_row + first, count)
            max_x_new = max_nan_f32(max_x, max_x_b)
            t1 = max_x_new - max_x
            move_A_x = f32(0) if max_x == max_x_new else t1
            t2 = f32(0) if max_x_new == -INF else max_x_new
            sum_exp_b = f32(0)
            for k in range(count):
                at = first + k
                sum_exp_b = sum_exp_b + exp_f32(load_float32(x, x_row + at) - t2)
            sum_exp_new = sum_exp * exp_f32(-move_A_x) + sum_exp_b
            max_x = max_x_new
            sum_exp = sum_exp_new
            first += TILE
        store_float32(max_x_parts, job, max_x)
        store_float32(sum_exp_parts, job, sum_exp)


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def y_merge(x, y, max_x_parts, sum_exp_parts, size_j, span, x_s0, y_s0, low, high):
    """y along j; the states of a row's splits, merged.

    max1 = max[j](x[i,j])
    sum1 = sum[j](exp(x[i,j] - max1))
    y = log(sum1) + max1
    return y
    """
    y = pointer_float32(y)
    max_x_parts = pointer_float32(max_x_parts)
    sum_exp_parts = pointer_float32(sum_exp_parts)
    length = size_j
    splits = (length + span - 1) // span
    for row in range(low, high):
        i_i = row
        y_row = i_i * y_s0
        home = row * splits
        max_x = load_float32(max_x_parts, home)
        sum_exp = load_float32(sum_exp_parts, home)
        for split in range(1, splits):
            max_x_b = load_float32(max_x_parts, home + split)
            sum_exp_b = load_float32(sum_exp_parts, home + split)
            max_x, sum_exp = combine(max_x, sum_exp, max_x_b, sum_exp_b)
        t1 = log_f32(sum_exp) + max_x
        store_float32(y, y_row, t1)
