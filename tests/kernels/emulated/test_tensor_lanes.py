"""Products by mma.sync on 32 lanes of NumPy (`tests/support/tensor_lanes.py`): fragments hold what each other
expect.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from redalg.kernels.cuda.intrinsics import mma as plain
from redalg.kernels.cuda.intrinsics import mma_types as typed
from redalg.kernels.emulate.fragments import tf32
from redalg.kernels.ir.tensor_cores import pitch_of
from tests.support.tensor_lanes import (
    LANES,
    Builder,
    Function,
    Machine,
    Pointer,
    gathered,
    laid,
    registers,
    spread,
)

KIND = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
# (left, right, what is multiplied)
CASES = [
    ("float32", "float32", "tf32"),
    ("bfloat16", "float8_e4m3fn", "bfloat16"),
    ("float16", "float8_e5m2", "float16"),
    ("float8_e5m2", "float8_e4m3fn", "float16"),
]
SHAPES = [(64, 64, 1), (32, 128, 2), (48, 16, 1), (16, 32, 2)]  # columns, terms, times 16 rows


def drawn(rows: int, columns: int, dtype: str, seed: int) -> np.ndarray:
    """Whole numbers that every type holds, so that sums are exact; float32 that is rounded to them, ties among it."""
    found = np.random.default_rng(seed).integers(-3, 4, (rows, columns)).astype(np.float32)
    return (found * (1 - 2.0**-12) if dtype == "float32" else found).astype(KIND[dtype])


def double(x: np.ndarray) -> np.ndarray:
    return tf32(x).astype(float) if x.dtype == np.float32 else x.astype(float)


def lane_of(monkeypatch: Any, name: str, address: int, pitch: int) -> np.ndarray:
    maker = (plain.MAKERS | typed.MAKERS)[name]
    found: np.ndarray = Function(monkeypatch, maker)(np.zeros(4), address, LANES, pitch)
    return found


@pytest.mark.parametrize("cc", [(8, 0), (9, 0)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_scores_of_rows_in_registers(
    monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, str], shape: tuple[int, int, int], cc: tuple[int, int]
) -> None:
    (left, right, kind), (columns, terms, tall) = case, shape
    A, B = drawn(16 * tall, terms, left, 1), drawn(columns, terms, right, 2)
    words: list[Any] = registers(2 * tall * terms // (4 if kind == "tf32" else 8))
    load = Function(monkeypatch, partial(typed.converted_load, terms, terms, left, kind, tall), cc)
    size, each = A.itemsize, 1 if kind == "tf32" else 4
    offset = (LANES >> 2) * terms + each * (LANES & 3)
    load(A, words, Pointer(np.zeros(32, np.int64), size), offset, np.full(32, terms), 16 * tall - (LANES >> 2))
    pitch = pitch_of(terms * B.itemsize)
    product = Function(monkeypatch, partial(typed.converted_product, columns, terms, kind, right, pitch, tall=tall), cc)
    tile = registers(columns * tall // 2)
    place = lane_of(monkeypatch, "right_lane" if kind == "tf32" else "row_lane", 0, pitch)
    product(padded(laid(B, pitch), pitch), tile, words, place)
    np.testing.assert_array_equal(gathered(tile, columns, tall), double(A) @ double(B).T)


def padded(memory: np.ndarray, pitch: int) -> np.ndarray:
    """With rows after it, at which lanes may point whose addresses are not used."""
    return np.concatenate([memory, np.full(32 * pitch, 0xFF, np.uint8)])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_scores_of_rows_in_shared_memory(
    monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, str], shape: tuple[int, int, int]
) -> None:
    (left, right, kind), (columns, terms, tall) = case, shape
    A, B = drawn(16 * tall, terms, left, 1), drawn(columns, terms, right, 2)
    pitch, a_pitch = pitch_of(terms * B.itemsize), pitch_of(terms * A.itemsize)
    stored = left if A.itemsize != 2 else ""
    product = Function(
        monkeypatch,
        partial(
            typed.converted_product,
            columns,
            terms,
            kind,
            right,
            pitch,
            left=stored,
            a="shared",
            a_pitch=a_pitch,
            fresh=False,
            tall=tall,
        ),
    )
    tile = [np.ones(32, np.float32) for _ in range(columns * tall // 2)]
    at = lane_of(monkeypatch, "left_lane" if stored else "quad_lane", 0, a_pitch)
    first = 16 * tall * a_pitch
    place = lane_of(monkeypatch, "right_lane" if kind == "tf32" else "row_lane", first, pitch)
    product(padded(np.concatenate([laid(A, a_pitch), laid(B, pitch)]), pitch), tile, at, place)
    np.testing.assert_array_equal(gathered(tile, columns, tall), 1 + double(A) @ double(B).T)


@pytest.mark.parametrize("shape", [(64, 32, 4), (32, 64, 2), (24, 16, 1)], ids=str)
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_products_of_rows_that_lie_either_way(
    monkeypatch: pytest.MonkeyPatch, transposed: tuple[bool, bool], shape: tuple[int, int, int]
) -> None:
    """Both operands in shared memory, by their rows or by their terms."""
    columns, terms, tall = shape
    A, B = drawn(16 * tall, terms, "bfloat16", 1), drawn(columns, terms, "bfloat16", 2)
    lying = [x.T if turned else x for x, turned in zip((A, B), transposed, strict=True)]
    a_pitch, pitch = (pitch_of(2 * x.shape[1]) for x in lying)
    made = partial(plain.tile_product, columns, terms, "bfloat16", pitch, a="shared", a_pitch=a_pitch, fresh=False)
    product = Function(monkeypatch, partial(made, transposed=transposed[1], tall=tall, a_transposed=transposed[0]))
    tile = [np.ones(32, np.float32) for _ in range(columns * tall // 2)]
    left = lane_of(monkeypatch, "right_lane" if transposed[0] else "left_lane", 0, a_pitch)
    first = len(lying[0]) * a_pitch
    right = lane_of(monkeypatch, "left_lane" if transposed[1] else "right_lane", first, pitch)
    memory = np.concatenate([laid(lying[0], a_pitch), laid(lying[1], pitch)])
    product(padded(memory, pitch), tile, left, right)
    np.testing.assert_array_equal(gathered(tile, columns, tall), 1 + double(A) @ double(B).T)


@pytest.mark.parametrize("inside", [0, 2, 30, 46, 64, 100])
@pytest.mark.parametrize("count", [0, 5, 8])
def test_copies_end_by_the_byte(monkeypatch: pytest.MonkeyPatch, inside: int, count: int) -> None:
    """Rows of 64 bytes, 80 of memory apart, by one warp: what lies behind them is zero, and is not read."""
    pitch, begin = pitch_of(64), 8 * pitch_of(64)
    source = np.arange(1, 1 + 8 * 80, dtype=np.int64).astype(np.uint8) | 1
    made = Function(monkeypatch, partial(plain.tile_copy, 8, 4, pitch, 32, ragged=True, exact=True))
    memory = np.concatenate([np.full(begin, 0xFF, np.uint8), source])
    machines: list[Any] = []
    monkeypatch.setattr(Machine, "copies", begin)
    own = Machine.__init__

    def kept(self: Machine, given: np.ndarray) -> None:
        own(self, given)
        machines.append(self)

    monkeypatch.setattr(Machine, "__init__", kept)
    made(memory, 0, Pointer(np.zeros(32, np.int64), 2), 0, 40, count, LANES, inside)
    found = machines[-1].memory[:begin].reshape(8, pitch)[:, :64]
    wanted = np.where(np.arange(64) < inside, source.reshape(8, 80)[:, :64], 0)
    wanted[count:] = 0
    np.testing.assert_array_equal(found, wanted)


VALUES = [("float32", "tf32"), ("float8_e4m3fn", "float16"), ("float8_e5m2", "bfloat16")]


@pytest.mark.parametrize("shape", [(64, 32, 1), (80, 16, 2), (16, 64, 1), (128, 48, 2)], ids=str)
@pytest.mark.parametrize("case", VALUES, ids=" ".join)
def test_weights_times_values(
    monkeypatch: pytest.MonkeyPatch, case: tuple[str, str], shape: tuple[int, int, int]
) -> None:
    """Weights as scores lie, V row by row; for 8 bits with the lanes in their order again."""
    (stored, kind), (lanes, terms, tall) = case, shape
    V = drawn(terms, lanes, stored, 3)
    weights = drawn(16 * tall, terms, "float32" if kind == "tf32" else kind, 4)
    tile = spread(double(weights), tall)
    words: list[Any]
    if kind == "tf32":
        words = [x.astype(np.float32).view(np.uint32) for x in tile]
    else:
        pairs = [np.stack(tile[k : k + 2], 1).astype(KIND[kind]) for k in range(0, len(tile), 2)]
        words = [np.ascontiguousarray(p).view(np.uint32)[:, 0] for p in pairs]
    pitch = pitch_of(lanes * V.itemsize)
    product = Function(
        monkeypatch,
        partial(typed.converted_product, lanes, terms, kind, stored, pitch, fresh=False, transposed=True, tall=tall),
    )
    sums = registers(lanes * tall // 2)
    place = lane_of(monkeypatch, "values_lane" if kind == "tf32" else "left_lane", 0, pitch)
    product(padded(laid(V, pitch), pitch), sums, words, place)
    if kind != "tf32":
        assert not np.array_equal(gathered(sums, lanes, tall), double(weights) @ double(V))
        Function(monkeypatch, partial(typed.lanes_sorted, lanes, tall))(np.zeros(4), sums)
    np.testing.assert_array_equal(gathered(sums, lanes, tall), double(weights) @ double(V))


def test_lanes_that_are_no_multiple_of_16(monkeypatch: pytest.MonkeyPatch) -> None:
    for lanes in (8, 24, 40):
        test_weights_times_values(monkeypatch, VALUES[0], (lanes, 16, 1))


@pytest.mark.parametrize("cc", [(8, 0), (8, 6), (8, 9), (9, 0)], ids=str)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", typed.NARROW)
def test_every_8_bit_float_is_converted_exactly(
    monkeypatch: pytest.MonkeyPatch, dtype: str, kind: str, cc: tuple[int, int]
) -> None:
    monkeypatch.setattr(typed, "inline", Machine(np.zeros(4)).inline)
    for crossed in (False, True):
        every = np.random.default_rng(5).permutation(np.arange(256, dtype=np.uint8)).reshape(2, 32, 4)
        for cells in every:
            words = typed.widened(
                Builder(), dtype, np.ascontiguousarray(cells).view(np.uint32)[:, 0], kind, crossed, cc
            )
            found = [np.asarray(w).astype(np.uint32).view(KIND[kind]).reshape(32, 2).astype(float) for w in words]
            order = [[0, 2], [1, 3]] if crossed else [[0, 1], [2, 3]]
            for x, at in zip(found, order, strict=True):
                true = cells.view(KIND[dtype])[:, at].astype(float)
                np.testing.assert_array_equal(x, true)
                np.testing.assert_array_equal(np.signbit(x)[~np.isnan(x)], np.signbit(true)[~np.isnan(x)])


def test_rows_that_do_not_exist_are_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    for left, kind in (("float32", "tf32"), ("float16", "float16"), ("float8_e4m3fn", "bfloat16")):
        A = drawn(16, 32, left, 1)
        words: list[Any] = registers(2 * 32 // (4 if kind == "tf32" else 8))
        load = Function(monkeypatch, partial(typed.converted_load, 32, 32, left, kind))
        offset = (LANES >> 2) * 32 + (1 if kind == "tf32" else 4) * (LANES & 3)
        load(A[:5], words, Pointer(np.zeros(32, np.int64), A.itemsize), offset, np.full(32, 32), 5 - (LANES >> 2))
        first = [k for k in range(len(words)) if not (k // 2 % 2 if kind == "tf32" else k % 2)]
        assert all(not np.any(words[k]) for k in range(len(words)) if k not in first)
        assert all(not np.any(words[k][LANES >> 2 >= 5]) for k in first)
        assert any(np.any(words[k]) for k in first)
