"""Intrinsics: the instructions they become, for several targets, and what their emulations do under emulation."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numba.core.errors import TypingError

from redalg.errors import RedalgError
from redalg.kernels.cuda import intrinsics
from redalg.kernels.cuda.intrinsics.memory import Shape
from redalg.kernels.emulate import intrinsics as emulated
from redalg.kernels.emulate.run import run
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.launch.ptx import assemble, ptx_of, ptxas
from tests.support.kernel_sources import (
    APART,
    DTYPE,
    KEYS,
    LAST,
    VOTES,
    WHOLE,
    Kernel,
    all_kernels,
    cluster,
    copies,
    kernel,
    sent,
    shuffles,
)

KINDS = list(DTYPE)
WIDTHS = (1, 2, 4, 8, 16)


def ran(k: Kernel, seed: int | None = 0) -> tuple[list[Any], list[Any]]:
    inputs, outputs = k.arrays()
    run(k.module(), [*inputs, *outputs], k.blocks, k.threads, k.cluster, seed=seed)
    return inputs, outputs


def ptx(k: Kernel, cc: tuple[int, int] = (9, 0)) -> str:
    return ptx_of(k.module(), cc)[0]


def test_every_intrinsic_has_an_emulation_of_its_name() -> None:
    assert set(emulated.EMULATED) == set(intrinsics.names())


def test_an_unknown_name_is_no_attribute() -> None:
    for module in (intrinsics, emulated):
        with pytest.raises(AttributeError):
            _ = module.load_float128


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", STORAGE)
def test_loads_widen_and_stores_narrow_every_pattern_they_are_given(dtype: str) -> None:
    import ml_dtypes

    (cells,), (copied, wide) = ran(copies(dtype))
    kind = {"bool": "bool"}.get(dtype, dtype)
    values = cells.view(getattr(ml_dtypes, kind, None) or kind).astype(wide.dtype)
    start = 0
    for width in (w for w in WIDTHS if w * STORAGE[dtype] <= 32):
        for way in ("", "stream", "shared"):
            part, count = slice(start, start + 64 * width), 64 * width
            same = copied[part] == cells[:count]
            assert np.all(same | (values[:count] != values[:count])), (width, way)
            if way != "shared":
                np.testing.assert_array_equal(wide[part], values[:count])
            start += 64 * 32


@pytest.mark.parametrize("dtype", STORAGE)
def test_sixteen_bytes_move_in_one_instruction(dtype: str) -> None:
    text = ptx(copies(dtype))
    expected: dict[int, int] = {}  # bytes of an instruction -> how many
    for width in (w for w in WIDTHS if w * STORAGE[dtype] <= 32):
        shape = Shape(dtype, width)
        for words in shape.parts:
            size = words * shape.word.width // 8
            expected[size] = expected.get(size, 0) + 1
    for head in (r"ld\.global", r"ld\.global\.nc\.L1::no_allocate", r"st\.global\.cs", r"ld\.shared", r"st\.shared"):
        found: dict[int, int] = {}
        for many, bits in re.findall(rf"\b{head}(?:\.v([248]))?\.[bfus](\d+)\s", text):
            size = int(many or 1) * int(bits) // 8
            found[size] = found.get(size, 0) + 1
        times = 2 if head.endswith("ld\\.global") else 1  # what goes through shared memory comes from there, too
        assert found == {size: times * count for size, count in expected.items()}, head


def test_values_exchanged_between_blocks_bypass_the_caches_that_are_not_coherent() -> None:
    text = ptx(LAST)
    for instruction in (
        "ld.relaxed.gpu.global.b32",
        "ld.acquire.gpu.global.b32",
        "st.release.gpu.global.b32",
        "atom.acq_rel.gpu.global.add.u32",
    ):
        assert instruction in text


def test_a_float64_is_rounded_once_on_its_way_into_a_narrow_format() -> None:
    x = np.array([1 + 2**-9 + 2**-40, 1 + 2**-8 + 2**-40, 1e300, np.nan])
    k = kernel(
        "once",
        "t = cuda.threadIdx.x\nstore_bfloat16(y, t, load_float64(x, t))",
        [("x", "float64", x)],
        [("y", "bfloat16", 4)],
        threads=4,
    )
    _, (y,) = ran(k)
    assert [hex(v) for v in y[:3]] == ["0x3f80", "0x3f81", "0x7f80"]
    text = ptx(k)
    assert "cvt.rn.f32.f64" in text and "setp.ne.f64" in text


def test_a_float_is_not_stored_as_an_integer() -> None:
    k = kernel(
        "wrong",
        "store_int32(y, 0, load_float32(x, 0))",
        [("x", "float32", np.zeros(1, np.float32))],
        [("y", "int32", 1)],
        threads=1,
    )
    with pytest.raises(TypingError, match="store_int32 takes int64, and float32 was given"):
        ptx(k)


# --- lanes -----------------------------------------------------------------------------------------------------------


def test_shuffles_by_every_mode_amount_and_group() -> None:
    k = shuffles("i32")
    (x,), (y,) = ran(k)
    start = 0
    for mode in ("xor", "down", "up", "idx"):
        for by in (0, 1, 3, 8, 17, 31):
            for width in (32, *(w for w in (4, 8, 16, 32) if by < w)):
                np.testing.assert_array_equal(
                    y[start : start + 64], [x[_source(t, mode, by, width)] for t in range(64)]
                )
                start += 64
    assert start == len(y)


def _source(t: int, mode: str, by: int, width: int) -> int:
    first = t // width * width
    other = {"xor": t % width ^ by, "down": t % width + by, "up": t % width - by, "idx": by}[mode]
    return first + other if 0 <= other < width else t


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_value_is_exchanged(kind: str) -> None:
    (x,), (y,) = ran(shuffles(kind))
    np.testing.assert_array_equal(y[:64], x)
    np.testing.assert_array_equal(y[64 * 5 : 64 * 6], x[np.arange(64) ^ 1])
    text, words = ptx(shuffles(kind)), 2 if kind.endswith("64") else 1
    for mode in ("bfly", "down", "up", "idx"):
        assert (
            len(re.findall(rf"shfl\.sync\.{mode}\.b32 \S+ \S+ \S+ {0 if mode == 'up' else 31}, -1;", text)) == 6 * words
        )


def test_groups_of_lanes_may_leave_a_loop_at_different_times() -> None:
    (x,), (y, mask) = ran(APART)
    for t in range(64):
        a, b = x[t], x[t ^ 1]
        for _ in range(t // 8 + 1):
            a, b = a + b * np.float32(0.5), b + a * np.float32(0.5)
        assert y[t] == a and mask[t] == 0xFF << t % 32 // 8 * 8


def test_votes_and_extremes() -> None:
    (x, z), (y,) = ran(VOTES)
    for t in (0, 37):
        lanes = range(t // 32 * 32, t // 32 * 32 + 32)
        bits = sum(1 << k % 32 for k in lanes if k % 3 == 0)
        assert y[t] == bits and y[64 + t] == bits & 0xFF << t % 32 // 8 * 8
        assert y[128 + t] == x[lanes].max() and y[192 + t] == x[lanes].min()
        assert y[256 + t].astype(np.int32) == z[lanes].max() and y[320 + t].astype(np.int32) == z[lanes].min()
        assert y[384 + t] == t % 32


def test_whole_quotients_of_numbers_that_are_not_negative() -> None:
    (x,), (y,) = ran(WHOLE)
    for t, n in enumerate(map(int, x)):
        small = n & 0x7FFFFFFF
        assert (y[t], y[64 + t], y[128 + t], y[192 + t]) == (small // 27, small % 27, n // 3584, t % 32)


def test_whole_quotients_correct_no_remainder() -> None:
    assert not re.search(r"(div|rem)\.|shr\.s|selp", ptx(WHOLE))


def test_redux_is_one_instruction_where_there_is_one() -> None:
    assert ptx(VOTES).count("redux.sync") == 4
    old = ptx(VOTES, (7, 5))
    assert "redux" not in old and old.count("shfl.sync.bfly") == 20


# --- blocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_a_cluster_exchange_values(kind: str) -> None:
    (x,), (y, z) = ran(cluster(kind))
    x = x.reshape(2, 4, 32)
    np.testing.assert_array_equal(y.reshape(2, 4, 32), np.roll(x, 1, axis=1))
    np.testing.assert_array_equal(z.reshape(2, 4, 32), np.roll(x, 1, axis=1)[:, :, ::-1])
    text = ptx(cluster(kind))
    for instruction in (
        "mapa.shared::cluster.u32",
        "ld.shared::cluster",
        "st.shared::cluster",
        "barrier.cluster.arrive",
    ):
        assert instruction in text


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "b1"])
def test_values_are_sent_to_blocks_of_a_cluster(kind: str) -> None:
    for seed in (None, 1, 2):
        (x,), (y, z) = ran(sent(kind), seed)
        x = x.reshape(2, 4, 32)
        np.testing.assert_array_equal(y.reshape(2, 4, 32), np.roll(x, 1, axis=1)[:, :, ::-1])
        np.testing.assert_array_equal(z.reshape(2, 4, 32), np.roll(x, 2, axis=1)[:, :, ::-1])
    text = ptx(sent(kind))
    assert "st.async.shared::cluster" in text and "barrier.cluster.arrive.relaxed" in text
    assert "arrive.release" not in text and text.count("mbarrier.try_wait.parity.acquire.cluster") == 2


def test_what_was_sent_is_waited_for() -> None:
    k = sent("f32")
    early = replace(k, source=re.sub(r" *tx_wait\(bars, 0\)\n", "", k.source))
    with pytest.raises(RedalgError, match="has not waited for its bytes"):
        ran(early)


def test_the_last_block_adds_what_all_have_left() -> None:
    for seed in (None, 1, 2):
        (x,), (_, counter, y) = ran(LAST, seed)
        assert counter[0] == 64 and y[0] == x.sum()


def test_keys_order_like_values_then_positions() -> None:
    (x,), (y, v, p) = ran(KEYS)
    np.testing.assert_array_equal(np.where(np.isnan(x), np.nan, v[:64]), x)
    assert list(p[:64]) == [2 * t for t in range(64)] and np.all(v[64:] == -np.inf) and np.all(p[64:] == -1)
    order = sorted(range(64), key=lambda t: (not np.isnan(x[t]), -x[t] if not np.isnan(x[t]) else 0, t))
    assert sorted(range(64), key=lambda t: -int(y[t])) == order


# --- assembly --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("k", all_kernels(), ids=lambda k: k.name)
def test_ptxas_takes_every_kernel(k: Kernel) -> None:
    found = assemble(k.module(), (9, 0))
    assert found.spill_stores == found.spill_loads == found.stack == 0


OLDER = [(k, (7, 5)) for k in (VOTES, KEYS, copies("bfloat16"), copies("float8_e4m3fn"), copies("float8_e5m2"))]
OLDER += [(k, (8, 0)) for k in (VOTES, copies("bfloat16"))]


@pytest.mark.skipif(ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize(("k", "cc"), OLDER, ids=lambda x: getattr(x, "name", str(x)))
def test_older_targets_do_without_newer_instructions(k: Kernel, cc: tuple[int, int]) -> None:
    text = ptx(k, cc)
    assert "e4m3x2" not in text and "e5m2x2" not in text
    assert ("bf16" in text) == (k.name == "copy_bfloat16" and cc >= (8, 0))
    assert assemble(k.module(), cc).spill_stores == 0
