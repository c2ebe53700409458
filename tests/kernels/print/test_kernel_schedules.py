"""Schedules: that every choice is legal, what is refused, what strides allow, and targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.kernels.ir.layouts import View, Walk, walk_of
from redalg.kernels.ir.schedule import FAMILIES, Layout, Schedule
from redalg.kernels.programs import lower
from redalg.kernels.schedule.case import Case, exact, registers
from redalg.kernels.schedule.choose import Choice, choose
from redalg.kernels.schedule.cost import estimate
from redalg.kernels.schedule.families import candidates_of
from redalg.kernels.schedule.legality import refusals
from redalg.kernels.schedule.target import H200, TABLE, Target
from tests.support.kernel_cases import NAMES, case_of, chosen, program
from tests.support.profiles import examples
from tests.support.sample import deep

# --- legality --------------------------------------------------------------------------------------------------------


def check_legal(case: Case, s: Schedule) -> None:
    """The limits, written out once more."""
    length = case.work.length
    assert s.threads * s.rows <= 1024 and s.threads & (s.threads - 1) == 0 and s.rows & (s.rows - 1) == 0
    assert s.tile % s.vector == 0 and s.tile <= 64 and (s.vector == 1 or s.peel or length % s.vector == 0)
    if s.peel:  # every element beside vectors has a thread, and no row is without a vector
        assert s.threads >= 2 * (s.vector - 1) and length >= 2 * s.vector - 1 and not (s.exact or s.column)
    sizes = {a.name: a.size for a in case.walk.arrays}
    assert all(s.vector * sizes[name] <= 16 or s.vector == 1 for name in case.walk.layout(s.vector, peel=s.peel).unit)
    assert s.cluster <= case.target.block.cluster_limit <= 16
    columns = s.column and s.resident  # rows that lie side by side, held by a block or a cluster
    assert s.cluster == 1 or (s.split == 1 and (columns or s.rows == 1 and s.threads >= 32 and not s.column))
    if s.resident:
        held = s.cluster * s.threads * s.tile * (s.split if s.persistent else 1)
        assert length - (length % s.vector if s.peel else 0) <= held
        assert registers(case, s) * s.block <= case.target.multiprocessor.registers or s.block < 32
    if s.exact:
        whole = s.cluster * s.threads * s.tile * s.split
        assert length == whole if s.resident else length % whole == 0
    if s.split > 1:
        assert len(case.program.passes) <= 1 and (s.persistent or not (case.program.passes and case.program.keeps))
        assert not s.persistent or (s.column or s.rows == 1) and s.split <= case.target.multiprocessors
    if case.ordered:
        assert s.threads == 1 or (not s.resident and s.vector == 1)


@examples(60)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(["float32", "bfloat16", "float64"]),
    st.one_of(st.integers(0, 70), st.integers(1, 2**20)),
    st.one_of(st.integers(0, 70), st.integers(1, 2**24), st.integers(0, 24).map(lambda k: 2**k)),
    st.sampled_from(["C", "F"]),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([0, 1, 2, 4]),
    st.sampled_from(TABLE),
    st.booleans(),
)
def test_every_choice_is_legal(
    name: str, dtype: str, rows: int, length: int, order: str, align: int, pad: int, target: Target, fixed: bool
) -> None:
    p = program(name, dtype)
    sizes, walk, case = case_of(p, rows, length, target, order=order, align=align, pad=pad)
    choice = choose(p, sizes, walk, target, deterministic=fixed)
    check_legal(case, choice.schedule)
    assert next(refusals(case, choice.schedule), None) is None
    assert choice.seconds > 0 and choice.schedule.deterministic == fixed
    assert choice.schedule.exact == (exact(case.work, choice.schedule) and not p.columns)
    assert choice.layout.unit <= {a.name for a in walk.arrays if a.pattern == "stream"}
    check_limit(case, choice)


def check_limit(case: Case, choice: Choice) -> None:
    """A compiler that keeps to the limit leaves room for the blocks that are to run at once, or for 64 registers."""
    limit, threads, own = choice.registers, max(32, choice.schedule.block), case.target.multiprocessor
    assert limit is not None
    cost = estimate(case, choice.schedule)
    wanted = min(cost.resident_blocks, -(-cost.blocks // case.target.multiprocessors))
    assert limit % 8 == 0 or limit == 255
    assert limit * threads <= own.registers
    assert limit == 64 or limit * threads * wanted <= own.registers


FEW = ("logsumexp", "top_k", "map", "attention")


@pytest.mark.parametrize("name", [*FEW, *deep(n for n in NAMES if n not in FEW)])
@pytest.mark.parametrize("target", [H200, *deep(t for t in TABLE if t != H200)], ids=lambda t: t.name)
def test_calls_of_no_rows_have_a_legal_choice(name: str, target: Target) -> None:
    """With every length that one family or another takes: nothing is divided by the number of rows."""
    p = program(name)
    for length in (0, 1, 33, 4096, 32769, 1 << 20, 1 << 24):
        for fixed in (False, True):
            sizes, walk, case = case_of(p, 0, length, target)
            check_legal(case, choose(p, sizes, walk, target, deterministic=fixed).schedule)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows, length", [(7, 4096), (5000, 100), (3, 10**6)])
def test_every_candidate_is_legal(name: str, rows: int, length: int) -> None:
    _, _, case = case_of(program(name), rows, length)
    found = candidates_of(case)
    assert len(found) == len(set(found)) and (len(found) > 10 or case.program.columns)
    for s in found:
        check_legal(case, s)


def _pair(a: Any, b: Any) -> Any:
    return (a[0] * b[0], b[0] * a[1] + b[1])


def test_a_monoid_that_does_not_commute_keeps_the_order_of_the_stream() -> None:
    affine = ra.Monoid("affine", _pair, (1, 0))
    x, y = ra.tensors("x[i,j] y[i,j]")
    form = ra.derive_incremental(ra.Spec(s=ra.reduce((x, y), "j", monoid=affine)[1]))
    p = lower(form, {"x": "float32", "y": "float32"})
    assert p.passes[0].ordered
    for rows, length in ((4096, 4096), (2, 1 << 22), (1000000, 8)):
        _, _, case = case_of(p, rows, length)
        for s in candidates_of(case):
            assert s.threads == 1 or (not s.resident and s.vector == 1)
    with pytest.raises(ra.RedalgError, match="not commutative"):
        chosen(p, 4096, 4096, override=Schedule(128, 1, 1, 32, resident=True))


REFUSED = [
    ("softmax", Schedule(96, 1, 1, 4), "power of two", "threads=128"),
    ("softmax", Schedule(1024, 2, 1, 4), "at most 1024 threads", "rows=1"),
    ("softmax", Schedule(128, 1, 4, 4, split=8), "y keeps the axis j", "cluster"),
    (
        "softmax",
        Schedule(128, 1, 4, 8, resident=True),
        "128·8 = 1024 is less than the length 4096 of j",
        "resident=False",
    ),
    ("softmax", Schedule(128, 1, 8, 8), "more than 16 bytes", "vector=4"),
    ("softmax", Schedule(128, 1, 4, 6), "not a multiple of vector=4", "tile=8"),
    ("softmax", Schedule(128, 1, 4, 24, exact=True), "not what the threads hold", "exact=False"),
    ("softmax", Schedule(128, 1, 4, 4, cluster=32), "clusters of at most 16", "cluster=16"),
    ("softmax", Schedule(16, 8, 4, 4, cluster=2), "whole warps", "rows=1"),
    ("logsumexp", Schedule(128, 1, 4, 4, cluster=2, split=2), "not both", "split=1"),
    ("logsumexp", Schedule(2, 32, 1, 4, column=True, resident=True, cluster=4), "one each", "threads=4"),
    ("logsumexp", Schedule(8, 32, 1, 4, column=True, cluster=2), "whose states a cluster exchanges", "resident=True"),
    ("logsumexp", Schedule(128, 1, 4, 128), "at most 64 elements", "tile=64"),
    ("attention", Schedule(128, 1, 1, 4), "arrays along e", "warp"),
    ("softmax", "tree", "names no family", "thread, warp"),
    ("softmax", 128, "none of the ways", "Schedule"),
    ("softmax", {"threads": "128"}, "its type is int", "give one"),
    ("softmax", {"threads": [1]}, "its type is int", "give one"),
    ("softmax", "split", "y keeps the axis j", "cluster"),
    ("softmax", {"threads": 128, "colour": 1}, "there is none", "threads"),
    ("softmax", {"split": 4}, "y keeps the axis j", "cluster"),
    ("map", "cluster", "no states", "split"),
]


@pytest.mark.parametrize("name, override, why, fix", REFUSED)
def test_a_schedule_that_breaks_a_law_or_a_limit_is_refused(name: str, override: Any, why: str, fix: str) -> None:
    with pytest.raises(ra.RedalgError) as raised:
        chosen(program(name), 4096, 4096, override=override)
    assert why in raised.value.why and fix in raised.value.fix
    assert raised.value.what and raised.value.where


def test_a_pass_that_needs_another_is_not_split() -> None:
    p = replace(program("logsumexp"), passes=program("logsumexp").passes * 2)
    with pytest.raises(ra.RedalgError, match="pass 2 of 2"):
        chosen(p, 8, 1 << 20, override="split")
    assert chosen(p, 8, 1 << 20).split == 1


# --- schedule= -------------------------------------------------------------------------------------------------------


def test_words_and_fields_pick_the_best_schedule_that_has_them() -> None:
    p = program("logsumexp")
    for word in FAMILIES:
        assert chosen(p, 64, 1 << 16, override=word).family == word
    s = chosen(p, 4096, 4096, override={"threads": 512, "resident": True})
    assert (s.threads, s.resident) == (512, True) and s.exact
    s = chosen(p, 4096, 4096, override={"tile": 12})
    assert s.tile == 12 and not s.exact
    mine = Schedule(64, 2, 4, 8)
    assert chosen(p, 4096, 4096, override=mine) == mine


def test_the_choice_is_explained_in_words_with_numbers() -> None:
    p = program("softmax")
    sizes, walk, _ = case_of(p, 8192, 8192)
    text = str(choose(p, sizes, walk, H200))
    for part in ("8192 rows of 8192 along j", "512.0 MiB moved", "occupancy", "registers", "µs", "4.32 TB/s", "launch"):
        assert part in text
    assert "split: not considered; y keeps the axis j" in text and "cluster: " in text
    assert "asked for by schedule=" in str(choose(p, sizes, walk, H200, override="warp"))


# --- layouts ---------------------------------------------------------------------------------------------------------


def test_layouts_have_no_sizes() -> None:
    p = program("softmax")
    found = {case_of(p, rows, length)[1] for rows, length in ((4, 64), (1000, 4096), (3, 160))}
    assert len(found) == 1 and hash(found.pop())


def test_composite_streams_are_flat_where_one_stride_fits() -> None:
    p = program("everything")
    s = View((), ())

    def walk(view: View) -> Walk:
        return walk_of(p, {"x": view, "s made": s})

    assert walk(View.contiguous((8, 64))).layout(4) == Layout(frozenset({"x"}), True)
    assert walk(View((8, 64), (128, 2))) == Walk((replace(walk(View((8, 64), (128, 2))).arrays[0], width=1),), True)
    assert not walk(View((8, 64), (80, 1))).flat and not walk(View((8, 64), (1, 8))).flat
    assert walk(View((1, 64), (7, 1))).flat  # an axis of length 1 has no say
    assert not walk(View((64, 1), (5, 1))).flat  # but the stride a kernel would step by is the last axis's
    assert walk(View((64, 1), (1, 1))).layout(4).unit == {"x"}


def test_broadcast_and_strided_operands() -> None:
    p = program("map")
    views = {"x": View((8, 64), (0, 1)), "b": View((64,), (0,)), "y made": View((8, 64), (128, 2))}
    walk = walk_of(p, views)
    assert {a.name: a.pattern for a in walk.arrays} == {"x": "stream", "b": "same", "y made": "apart"}
    assert walk.layout(4).unit == {"x"}


# --- targets ---------------------------------------------------------------------------------------------------------


def test_targets_come_from_the_table_and_from_the_device() -> None:
    live = {"name": "NVIDIA H200", "cc": (9, 0), "multiprocessors": 120, "unknown": 1, "l2": None}
    assert Target.of(live) == replace(H200, name="NVIDIA H200", multiprocessors=120)
    assert Target.of({"name": "NVIDIA L40S"}).multiprocessor.threads == 1536
    new = Target.of({"name": "NVIDIA B200", "cc": "10.0", "multiprocessors": 148})
    assert new.block.cluster_limit == 16 and new.bandwidth > H200.bandwidth
    assert Target.of({"name": "Tesla T4", "cc": "7.5", "multiprocessors": 40}).block.cluster_limit == 1
