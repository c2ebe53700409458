"""Tiles and clusters of products of few rows: the laws each refuse something, and the choice is the least of all."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from redalg.kernels.gemm.narrow import RATES, Narrow, laws, narrow, refusal, taken
from redalg.kernels.gemm.tiles import GemmPlan, Sharing
from redalg.kernels.launch.planned import Tile
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.plan import launched, shares

KINDS = "bfloat16", "bfloat16"
COLUMNS = (8, *range(16, 272, 16), 288)
SMALL = replace(H200, multiprocessors=12)


def every(made: Narrow) -> list[GemmPlan]:
    """Plans of a space larger than what is searched: odd splits, columns and clusters of more blocks."""
    found = []
    blocks, few = (1, 2, 4, 8, 16), made.rows <= 56
    ways = [Sharing(), *(Sharing(n, Tile.LEFT) for n in blocks[1:]), Sharing(2)]
    for consumers, columns, shared, split, deep in product(range(1, 5), COLUMNS, ways, blocks, (1, 2, 4, 8)):
        if deep in (1, 2, 4, 8)[: 4 if few and consumers == 1 else 1]:
            plan = GemmPlan(KINDS, made.flat, made.terms, consumers, 1, columns, False, shared, staged=True)
            brought = -(-made.rows // 8) * 8 if few and consumers == 1 else 0
            found.append(replace(plan, products=made.products, split=split, deep=deep, brought=brought))
    return found


@pytest.mark.parametrize(
    "shape", [(40, 400, 320, 1, 1), (128, 512, 96, 1, 2), (1, 96, 4096, 2, 1), (200, 400, 320, 1, 1)]
)
def test_the_choice_is_the_least_of_all_legal_plans(shape: tuple[int, ...]) -> None:
    made = Narrow(KINDS, False, *shape, SMALL)
    chosen = narrow(made)
    assert chosen is not None
    legal = [p for p in every(made) if not refusal(p, made) and p.columns % 16 == 0 and p.deep < 8]
    assert {(p.consumers, p.columns, p.sharing, p.split, p.deep) for p in legal} == {
        (p.consumers, p.columns, p.sharing, p.split, p.deep) for p in made.plans()
    }
    assert made.seconds(chosen) == min(map(made.seconds, filter(taken, legal)))


def test_every_law_refuses_a_plan_that_no_other_refuses() -> None:
    alone: set[str] = set()
    for shape in ((40, 400, 320, 1, 1), (8, 400, 96, 1, 1), (128, 512, 1024, 1, 2)):
        for target in (SMALL, H200):
            for made in (Narrow(KINDS, False, *shape, target, pixels=walked) for walked in (False, True)):
                for plan in every(made):
                    broken = [why for holds, why in laws(plan, made) if not holds]
                    if len(broken) == 1:
                        alone.add(broken[0])
    made = Narrow(KINDS, False, 128, 2048, 2048, 1, 1, H200)
    assert alone == {why for _, why in laws(next(made.plans()), made)}


@pytest.mark.parametrize(("rows", "most"), [(64, 1), (65, 2), (129, 3), (192, 3), (193, 4), (256, 4)])
def test_a_tile_of_all_rows_has_as_many_warpgroups_as_they_take(rows: int, most: int) -> None:
    """Or two tiles have them, whose blocks bring halves of the right operand to each other."""
    plans = [*Narrow(KINDS, False, rows, 8192, 8184, 1, 1, H200).plans()]
    assert {p.consumers for p in plans} == {*range(1, most + 1)}
    pairs = [p for p in plans if p.sharing == Sharing(2, Tile.RIGHT)]
    assert bool(pairs) == (most > 1) and all(p.rows < rows for p in pairs)


@pytest.mark.parametrize("consumers", [1, 2, 3, 4])
def test_warpgroups_share_the_registers_of_a_block(consumers: int) -> None:
    producer, consumer = shares(consumers)
    assert producer % 8 == consumer % 8 == 0 and producer >= 24 and consumer <= 256
    assert 128 * (producer + consumers * consumer) <= 128 * (consumers + 1) * launched(consumers) <= 65536


def test_other_models_decide_for_many_rows_and_float8() -> None:
    assert narrow(Narrow(KINDS, False, 512, 2048, 2048, 1, 1, H200)) is None
    assert narrow(Narrow(("float8_e4m3fn",) * 2, False, 128, 2048, 2048, 1, 1, H200)) is None


def test_sums_of_a_plan_cover_the_terms_once() -> None:
    """Pieces of a split: each has chunks, and together they are all."""
    for terms in (64, 100, 704, 8192):
        made = Narrow(KINDS, False, 128, 2048, terms, 1, 1, H200)
        for plan in made.plans():
            pieces = [min(plan.own_chunks, plan.chunks - k * plan.own_chunks) for k in range(plan.split)]
            assert min(pieces) >= 1 and sum(pieces) == plan.chunks
            assert plan.own_columns * plan.split == plan.columns


def test_more_bytes_take_longer() -> None:
    made = [Narrow(KINDS, False, 128, n, 4096, 1, 1, H200) for n in (1024, 2048, 4096, 8192)]
    times = [m.seconds(p) for m in made if (p := narrow(m)) is not None]
    assert times == sorted(times) and times[0] > RATES.fill


@pytest.mark.parametrize("rows", [1, 7, 64, 128])
def test_terms_are_added_in_one_order_where_that_is_asked_for(rows: int) -> None:
    """`deterministic`: no split of the terms, whose number would follow from that of the rows."""
    made = Narrow(("bfloat16", "bfloat16"), False, rows, 512, 2048, 1, 1, H200)
    found, whole = narrow(made), narrow(replace(made, whole=True))
    assert found is not None and whole is not None
    assert found.split > 1 and whole.split == 1 and made.seconds(found) <= made.seconds(whole)
