"""What is chosen for the workloads of the benchmarks, in words and numbers, and what the model predicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import redalg as ra
from redalg.kernels.ir.layouts import View, walk_of
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.pipeline import plan, situation
from redalg.kernels.schedule.case import Case, spills, states_bytes
from redalg.kernels.schedule.choose import choose, rank
from redalg.kernels.schedule.cost import estimate
from redalg.kernels.schedule.cost_terms import work_of
from redalg.kernels.schedule.families import candidates_of
from redalg.kernels.schedule.legality import refusals
from redalg.kernels.schedule.target import A100, H100, H200, L40S, RESERVED, Target
from tests.support.kernel_cases import NAMES, case_of, chosen, program, sizes_of, views_of

# --- the workloads of the benchmarks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["softmax", "logsumexp", "layer_norm", "rms_norm", "variance", "argmax", "fp8_quantise"]
)
@pytest.mark.parametrize("dtype, vector", [("float32", 4), ("bfloat16", 8)])
def test_short_rows_lie_side_by_side_in_blocks_and_are_read_once(name: str, dtype: str, vector: int) -> None:
    for rows, length in ((1 << 20, 64), (65536, 128), (16384, 256)):
        s = chosen(program(name, dtype), rows, length)
        # fp8_quantise writes float32 whatever it reads
        assert s.resident and s.exact and s.threads <= 32 and s.rows > 1 and s.vector in (vector, vector // 2, 4)
        assert 128 <= s.block <= 256 and s.threads * s.tile == length


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows, length", [(65536, 1024), (4096, 4096), (8192, 8192), (4096, 16384)])
def test_rows_that_fit_registers_are_read_once(name: str, dtype: str, rows: int, length: int) -> None:
    s = chosen(program(name, dtype), rows, length)
    assert s.resident and s.exact and s.split == 1 and s.family in ("warp", "block", "cluster")
    assert s.block >= 64 and s.tile <= 64


def test_rows_too_long_for_one_block_are_kept_by_a_cluster() -> None:
    for rows in (1024, 2048):
        s = chosen(program("softmax"), rows, 65536)
        assert s.family == "cluster" and 1 < s.cluster <= 16 and s.resident


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "rms_norm", "max_abs_scaling"])
@pytest.mark.parametrize("dtype, rows", [("float32", 128), ("bfloat16", 256)])
def test_rows_too_long_for_a_cluster_are_brought_ahead_to_blocks_that_wait(name: str, dtype: str, rows: int) -> None:
    """Measured: softmax of 128 rows of 1 M float32 takes 327 us so, and 392 where every row is read twice."""
    s = chosen(program(name, dtype), rows, 1 << 20)
    assert s.split > 1 and s.persistent and s.prefetch * s.split == 1 << 20 and s.prefetch_distance and s.exact
    other = chosen(program(name, dtype), rows, 10**6)  # bounds are tested, which is dear where elements are converted
    assert (
        other.prefetch * other.split >= 10**6 and not other.prefetch_distance
        if dtype == "float32"
        else not other.prefetch
    )


def test_many_shared_operands_and_dear_merges_are_not_worth_it() -> None:
    """Measured: layer norm of such rows takes 517 us so, and 410 where every row is read twice."""
    for dtype, rows in (("float32", 128), ("bfloat16", 256)):
        assert not chosen(program("layer_norm", dtype), rows, 1 << 20).prefetch


def test_without_clusters_long_rows_are_brought_ahead_and_longer_ones_read_twice() -> None:
    s = chosen(program("softmax"), 1024, 1 << 17, A100)
    assert s.cluster == 1 and s.prefetch and s.split > 1 and s.persistent
    s = chosen(program("softmax"), 512, 1 << 23, A100)
    assert s.family == "block" and s.cluster == 1 and not s.resident


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "standard_scores"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows, length", [(1, 1 << 26), (8, 1 << 24), (3, 10**6)])
def test_few_long_rows_that_are_kept_are_walked_by_blocks_that_wait(
    name: str, dtype: str, rows: int, length: int
) -> None:
    s = chosen(program(name, dtype), rows, length)
    assert s.persistent and s.split * rows >= 64 and not s.resident
    many = chosen(program(name, dtype), 128, 1 << 20)  # enough rows for a block each
    assert many.prefetch or not many.persistent


@pytest.mark.parametrize("name", ["softmax", "rms_norm", "layer_norm"])  # of RMSNorm both take as long, by the model
def test_rows_of_16_bits_that_one_processor_holds_are_brought_there_ahead_or_walked_twice(name: str) -> None:
    """Measured: softmax of 4096 such rows takes 283 us prefetched and 320 walked twice; layer norm 400 and 343."""
    s = chosen(program(name, "bfloat16"), 4096, 65536)
    if name != "rms_norm":
        assert s.family == "block" and not s.resident and s.threads >= 512
        assert bool(s.prefetch) == (name != "layer_norm")
    assert chosen(program("softmax", "float32"), 2048, 65536).resident


@pytest.mark.parametrize(
    "dtype, rows, length", [("float32", 393, 151737), ("float32", 700, 120001), ("float16", 141, 74540)]
)
def test_long_rows_that_begin_anywhere_are_held_by_clusters(dtype: str, rows: int, length: int) -> None:
    """Measured: 128, 170 and 17 us; 192, 221 and 28 walked twice, in splits and prefetched."""
    s = chosen(program("softmax", dtype), rows, length)
    assert s.resident and s.cluster >= 8 and s.threads <= 256


@pytest.mark.parametrize("name", ["logsumexp", "variance", "argmax", "cross_entropy"])
@pytest.mark.parametrize("dtype, rows", [("float32", 2048), ("bfloat16", 4096)])
def test_many_long_rows_are_read_by_a_block_each(name: str, dtype: str, rows: int) -> None:
    s = chosen(program(name, dtype), rows, 65536)
    assert (s.blocks_per_row, s.resident, s.prefetch) == (1, False, 0)
    if dtype == "float32":
        assert (s.threads, s.tile) == (256, 32)
    else:  # as many bytes at a time: 123 to 134 us, and 125 to 138 with tiles of 32
        assert s.threads in (128, 256) and s.tile == 64


@pytest.mark.parametrize("name", ["logsumexp", "variance", "cosine_similarity", "kl_divergence", "cross_entropy"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows, length", [(8, 1 << 24), (1, 1 << 26), (1, 10**7)])
def test_few_long_rows_are_split_over_the_device(name: str, dtype: str, rows: int, length: int) -> None:
    p = program(name, dtype)
    s = chosen(p, rows, length)
    assert s.family == "split" and rows * s.split >= H200.multiprocessors and s.vector > 1
    assert length // s.split >= s.threads * s.vector
    assert chosen(p, rows, length, override="cluster").cluster > 1


def test_splits_come_near_the_bandwidth_on_few_long_rows_and_clusters_do_not() -> None:
    """Measured: 89 % of it by splits, 61 % by clusters of 16 (`benchmarks/records/gpu.md`)."""
    p = program("logsumexp")
    sizes, walk, _ = case_of(p, 8, 1 << 24)
    split, cluster = (choose(p, sizes, walk, H200, override=family) for family in ("split", "cluster"))
    assert split.bytes / (split.seconds - H200.launch) > 0.87 * H200.reachable
    assert cluster.schedule.cluster == 16 and 1.05 < cluster.seconds / split.seconds < 2


def test_a_reduction_of_everything_is_split() -> None:
    p = program("everything")
    sizes = {"i": 4096, "j": 4096}
    s = choose(p, sizes, walk_of(p, {"x": View.contiguous((4096, 4096)), "s made": View((), ())}), H200).schedule
    assert s.family == "split" and s.vector == 4


@pytest.mark.parametrize("rows, length", [(4096, 4096), (64, 1 << 20), (1000000, 64), (128, 65536)])
def test_columns_are_walked_with_rows_side_by_side(rows: int, length: int) -> None:
    s = chosen(program("variance"), rows, length, order="F")
    assert s.family == "column" and s.rows_per_block >= 16 and s.vector == 1
    if rows < 1000:
        assert s.split > 1 and s.threads > 1
    assert chosen(program("variance"), rows, length).family != "column"


@pytest.mark.parametrize(
    "dtype, length, columns, across, along",
    [  # measured: 439 and 935 us, 59 and 86
        (
            "bfloat16",
            2336,
            94902,
            Schedule(8, 64, 1, 8, column=True, split=4, persistent=True, coarsen=2, kept=640),
            Schedule(2, 128, 1, 8, exact=True),
        ),
        (
            "float16",
            81,
            559056,
            Schedule(8, 8, 1, 12, resident=True, column=True, coarsen=4),
            Schedule(2, 64, 1, 48, resident=True),
        ),
    ],
)
def test_columns_that_are_written_are_walked_by_warps_across_them(
    dtype: str, length: int, columns: int, across: Schedule, along: Schedule
) -> None:
    case = Case.of(*situation(_column_softmax(), {"x": dtype}, {"x": View.contiguous((length, columns))}), H200)
    assert 1.1 * estimate(case, across).seconds < estimate(case, along).seconds
    assert rank(case)[0][0].column


def test_columns_of_few_splits_that_meet_are_read_in_two_steps() -> None:
    """Measured: 36 us by 44 splits of 64 threads that hold their parts in registers, 27 in two steps."""
    planned = plan(_column_softmax(), {"x": "float16"}, {"x": View.contiguous((43722, 192))}, H200)
    assert len(planned.before) == 2


def _column_softmax() -> Any:
    x = ra.tensors("x[i,j]")
    e = ra.exp(x - ra.max(x, "i"))
    return ra.derive_incremental(ra.Spec(y=e / ra.sum(e, "i")))


def test_a_middle_axis_is_walked_as_columns() -> None:
    p = program("middle")
    views = {"y": View.contiguous((64, 512, 1024)), "s made": View.contiguous((64, 1024))}
    choice = choose(p, {"i": 64, "j": 512, "k": 1024}, walk_of(p, views), H200)
    assert choice.schedule.column and choice.layout.unit == frozenset() and choice.layout.flat


@pytest.mark.parametrize("rows, length", [(65536, 128), (4096, 4096), (16384, 256)])
def test_routing_keeps_rows_in_registers_or_walks_them_in_warps(rows: int, length: int) -> None:
    s = chosen(program("top8", "float32"), rows, length)
    assert s.split == s.cluster == 1 and s.threads <= 256


def test_a_map_is_one_walk_and_may_be_split() -> None:
    p = program("map")
    assert chosen(p, 8192, 8192).vector == 4
    s = chosen(p, 1, 1 << 26)
    assert s.family == "split" and not s.resident


@pytest.mark.parametrize("name", ["attention", "attention_causal"])
def test_lanes_are_shared_out_to_a_warp(name: str) -> None:
    p = program(name)
    sizes = sizes_of(p, 8, 1024, other=64)
    s = choose(p, sizes, walk_of(p, views_of(p, sizes)), H200).schedule
    assert (s.threads, s.resident, s.vector, s.columns_per_thread) == (32, False, 1, 2)


def test_rows_of_odd_length_are_loaded_in_whole_vectors() -> None:
    made = chosen(program("softmax"), 4096, 1001)
    assert made.vector == 4 and made.peel
    s = chosen(program("softmax"), 4096, 1000)
    assert s.vector == 4 and not s.exact and s.threads * s.tile >= 1000
    for layout in ({"align": 4}, {"pad": 1}, {"pad": 2}):
        made = chosen(program("softmax"), 4096, 4096, **layout)
        assert made.vector == 4 and made.peel
    assert (
        chosen(program("softmax"), 4096, 1001, deterministic=True).vector == 1
    )  # the same order wherever a row begins


# --- deterministic ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_deterministic_schedules_do_not_see_rows_or_the_size_of_a_device(name: str, order: str) -> None:
    p, small = program(name), replace(H200, multiprocessors=78, bandwidth=1e12)
    for length in (1, 100, 4096, 10**6):
        found = {
            chosen(p, rows, length, target, order=order, deterministic=True)
            for rows, target in ((2, small), (37, H200), (65536, H100))
        }
        assert len(found) == 1
        assert (
            chosen(p, 37, length, order="C", align=4, deterministic=True).vector
            == chosen(p, 37, length, order="C", deterministic=True).vector
        )


def test_deterministic_splits_follow_from_the_length() -> None:
    p = program("logsumexp")
    assert chosen(p, 4096, 4096, deterministic=True).split == 1
    for rows in (1, 8, 1000):
        s = chosen(p, rows, 1 << 24, deterministic=True)
        assert s.split > 16 and s.deterministic


# --- the model -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "variance"])
def test_more_work_and_slower_devices_never_look_faster(name: str) -> None:
    def seconds(rows: int, length: int, target: Target = H200) -> float:
        sizes, walk, _ = case_of(program(name), rows, length, target)
        return choose(program(name), sizes, walk, target).seconds

    for length in (64, 4096, 1 << 20):
        times = [seconds(2**k, length) for k in range(0, 15, 3) if 2**k * length <= 2**30]
        assert all(b > 0.97 * a for a, b in zip(times, times[1:], strict=False))
    times = [seconds(256, 2**k) for k in range(4, 22, 2)]
    assert all(b > 0.95 * a for a, b in zip(times, times[1:], strict=False))
    assert seconds(8192, 8192) < seconds(8192, 8192, H100) < seconds(8192, 8192, A100) < seconds(8192, 8192, L40S)
    slow = replace(H200, bandwidth=H200.bandwidth / 2)
    assert 1.6 < seconds(8192, 8192, slow) / seconds(8192, 8192) < 2.1


def test_predictions_are_near_what_is_known() -> None:
    """Softmax of 8192×8192 in registers took 133.5 µs on an H200; a copy of as much 129.5 µs (2026-11-20)."""
    sizes, walk, _ = case_of(program("softmax"), 8192, 8192)
    assert choose(program("softmax"), sizes, walk, H200).seconds == pytest.approx(133.5e-6, rel=0.06)
    twice = estimate(case_of(program("softmax"), 256, 1 << 20)[2], Schedule(256, 1, 4, 16))
    assert twice.moved == 2 * 4 * 256 << 20  # L2 does not hold the rows, the first-level cache only their ends
    assert 2.9 * 4 * 256 * 2**20 < twice.bytes < 3 * 4 * 256 << 20


def test_bytes_are_those_of_the_arrays() -> None:
    p = program("layer_norm", "bfloat16")
    sizes, walk, case = case_of(p, 1000, 4096)
    choice = choose(p, sizes, walk, H200)
    assert choice.bytes == 2 * (2 * 1000 * 4096 + 2 * 4096)
    assert work_of(p, sizes).element_bytes == 6 and not spills(case, choice.schedule)


def test_a_choice_is_made_once() -> None:
    p = program("softmax")
    sizes, walk, _ = case_of(p, 4096, 4096)
    assert choose(p, sizes, walk, H200) is choose(p, sizes, walk, H200)


@pytest.mark.parametrize("text", ["return v = sum[i](x[i,j]*m[i])", "return v = sum[i](x[i,j]*x[i,j]/sqrt(1 + m[i]))"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows, length", [(4096, 16384), (768, 50000)])
def test_what_columns_share_costs_little_beside_them(text: str, dtype: str, rows: int, length: int) -> None:
    """Gradients of weights: a factor of the stream is at one place for a warp, and loaded once for rows of a thread."""
    form, sizes = ra.derive_incremental(ra.parse(text)), {"i": length, "j": rows}
    views = {"x": View.contiguous((length, rows)), "m": View.contiguous((length,))}
    planned = plan(form, {"x": dtype, "m": "float32"}, views, H200)
    assert planned.choice.schedule.column
    _, lengths, walk = situation(form, {"x": dtype, "m": "float32"}, views)
    cost = estimate(Case.of(planned.program, lengths, walk, H200), planned.choice.schedule)
    least = sizes["i"] * sizes["j"] * (4 if dtype == "float32" else 2) / H200.reachable
    assert cost.seconds <= 2.5 * least and cost.compute <= 1.5 * least


# --- rows side by side, and short ones -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "variance", "argmax", "absmax"])
def test_transposed_operands_of_any_shape_have_a_schedule(name: str, dtype: str) -> None:
    """Where only what rows share lies along the stream, vectors of rows are one element wide."""
    form = ra.derive_incremental(ra.catalog[name])
    for rows, length in ((1, 1001), (2, 413), (37, 413), (40, 1001), (101, 5003), (1000, 129), (4001, 777)):
        sizes = {"i": rows, "j": length}
        views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors if t.axes}
        dtypes = {t.name: dtype if t.axes else float for t in form.spec.tensors}
        turned = plan(form, dtypes, views | {"x": View((rows, length), (1, rows))}, H200)
        assert turned.choice.seconds > 0 and turned.module.source


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_rows_side_by_side_that_are_read_again_are_held(name: str) -> None:
    """Measured: softmax of a transposed 4000x8192 float32 takes 220 us walked twice and 124 held by clusters of 8."""
    short = chosen(program(name), 8192, 512, order="F")
    assert short.resident or short.kept
    s = chosen(program(name), 4096, 8192, order="F")
    assert s.column and (name == "layer_norm" or s.kept or s.resident and s.cluster > 1)  # of it all take as long
    assert not chosen(program(name), 4096, 8192, order="F", deterministic=True).resident


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "variance"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [3, 7, 19])
def test_short_rows_pass_through_shared_memory(name: str, dtype: str, length: int) -> None:
    """Measured: RMSNorm of 6200801 rows of 19 bfloat16 takes 126 us so, 244 by vectors of 4 bytes; or a thread has
    several of them in flight (LayerNorm of 1653455 rows of 54 float16: 146 us, 199 without)."""
    s = chosen(program(name, dtype), 1 << 20, length)
    assert s.staged or s.coarsen > 1
    if name == "variance":  # rows with gaps, and no results that lie otherwise
        assert not chosen(program(name, dtype), 1 << 20, length, pad=1).staged
    assert not chosen(program(name, dtype), 1 << 20, 64).staged


@pytest.mark.parametrize("rows, length", [(13149, 6993), (500, 300_000), (100, 1 << 20), (2000, 100)])
def test_columns_that_splits_keep_fit_shared_memory(rows: int, length: int) -> None:
    """By as few splits as one or two blocks of which fill a multiprocessor, in whole tiles of their threads."""
    *_, case = case_of(program("softmax"), rows, length, H200, order="F")
    found = [s for s in candidates_of(case) if s.kept and s.split > 1]
    assert bool(found) == (length < 1 << 20)
    for s in found:
        span = s.threads * s.tile
        fewer = replace(s, split=s.split - 1, kept=-(-length // ((s.split - 1) * span)) * span)

        def fits(t: Schedule, blocks: int) -> bool:
            taken = RESERVED + states_bytes(case.work, t) + case.turned_bytes(t) + case.kept_bytes(t)
            return blocks * taken <= case.target.multiprocessor.shared

        assert s.kept % span == 0 and s.kept * s.split >= length > (s.kept - span) * s.split
        assert any(fits(s, blocks) and (s.split == 2 or not fits(fewer, blocks)) for blocks in (1, 2))


def test_devices_without_asynchronous_copies_keep_no_columns_in_splits() -> None:
    s = Schedule(16, 32, 1, 8, column=True, split=11, persistent=True, kept=640)
    old = replace(A100, name="V100", cc=(7, 0))
    for target, refused in ((A100, False), (old, True)):
        *_, case = case_of(program("softmax"), 13149, 6993, target, order="F")
        assert any("asynchronous copies" in why for why, _ in refusals(case, s)) == refused
        assert any(c.kept and c.split > 1 for c in candidates_of(case)) != refused
