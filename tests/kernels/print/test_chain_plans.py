"""Pairs of plans of a chain in one kernel: laws that each refuse something, a pruned search that keeps the optimum."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import pytest

from redalg.kernels.gemm.chain_plan import Chain, best, homes, joint, laws, refused
from redalg.kernels.gemm.narrow import Narrow
from redalg.kernels.schedule.target import H200
from tests.support.chain_cases import form_of, planned

KINDS = "bfloat16", "bfloat16"
SMALL = replace(H200, multiprocessors=12)


def chain(rows: int, k: int, n: int, width: int, products: int = 1) -> Chain:
    return Chain(
        Narrow(KINDS, False, rows, n, k, 1, products, SMALL), Narrow(KINDS, False, rows, width, n, 1, 1, SMALL)
    )


@pytest.mark.parametrize("shape", [(8, 192, 208, 96, 1), (40, 320, 160, 176, 2), (128, 96, 208, 96, 1)])
def test_the_pruned_search_finds_what_every_pair_gives(shape: tuple[int, ...]) -> None:
    made = chain(*shape)
    found = best(made)
    assert found is not None
    firsts, seconds = ([p for p in x.plans() if p.sharing.blocks == 1] for x in (made.first, made.second))
    every = (joint(p, q) for p, q in product(firsts, seconds))
    least = min(made.seconds(x) for x in every if not refused(x, made))
    assert made.seconds(found) == least


def test_every_law_of_a_pair_refuses_one_that_no_other_refuses() -> None:
    made, alone = chain(128, 512, 400, 208), set()
    plans = [[*x.plans()][::3] for x in (made.first, made.second)]
    wide = [replace(p, columns=p.columns + 8 * p.split) for p in plans[0][:40]]
    for pair in (joint(p, q) for p, q in product((*plans[0], *wide), plans[1])):
        broken = [why for holds, why in laws(pair, made) if not holds]
        if len(broken) == 1:
            alone.add(broken[0])
    found = best(made)
    assert found is not None
    assert {why for _, why in laws(found, made)} - alone <= {
        "no two stages fit shared memory, each as large as the larger product's"
    }


def test_stages_of_both_products_lie_in_one_ring() -> None:
    """Of both plans a stage, the barriers and the room for partial sums have the same places and lengths."""
    made = chain(8, 192, 208, 96)
    for p, q in made.legal():
        assert (p.stages, p.stage, p.barriers, p.size) == (q.stages, q.stage, q.barriers, q.size)
        assert p.size <= SMALL.most_shared and p.stage >= max(x.left_bytes + x.right_bytes for x in (p, q))


def test_explain_says_nest_homes_and_what_was_refused() -> None:
    sizes = {"m": 16, "k": 1024, "n": 4096, "l": 1024, "o": 8, "p": 1}
    lines = " ".join(planned("gated", sizes, schedule="fused_prologue").choice.reasons)
    for words in ("loop nest: for", "barrier of the grid", "second-level cache: taken", "not taken", "pairs of plans"):
        assert words in lines
    assert len([*homes(best(chain(8, 192, 208, 96)) or (), chain(8, 192, 208, 96))]) == 3


APART = [(name, "tensor", rows) for name in ("relu", "gated", "biased", "three") for rows in (16, 4096)]
IN_ONE = [(name, "fused_prologue", 16) for name in ("relu", "gated", "biased")]


@pytest.mark.parametrize(("name", "schedule", "rows"), APART + IN_ONE)
def test_bytes_are_those_of_arrays_once_and_of_what_lies_between_twice(name: str, schedule: str, rows: int) -> None:
    sizes = {"m": rows, "k": 192, "n": 512, "l": 320, "o": 96, "p": 1}
    spec, made = form_of(name).spec, planned(name, sizes, schedule=schedule)
    arrays = [t.axes for t in spec.tensors] + [(("m", "o") if name == "three" else ("m", "l"))]
    between = [("m", "n")] + [("m", "l")] * (name == "three")
    assert made.choice.bytes == 2 * sum(prod(sizes[a] for a in axes) for axes in (*arrays, *between, *between))
