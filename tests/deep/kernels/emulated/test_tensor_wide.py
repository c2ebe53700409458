"""Sums of contractions and wide tiles: which programs have them, how they are laid out, and that they assemble."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.explore import kernel
from redalg.graph.node import walk
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.ptx import assemble
from redalg.kernels.pipeline import wgmma_tiles
from redalg.kernels.programs import lower
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.level.cascade_print import emit_merge, emit_tensor
from redalg.kernels.tile.match import Class, Outside, classified, folds
from redalg.kernels.tile.plan import TensorPlan, WidePlan, maps_of
from tests.support.tensor_cases import ANCHORS, form_of
from tests.support.tensor_emulated import Emulated
from tests.support.tensor_wide_cases import BIASED, LATENT, PLAIN, ROPE, WINDOW

TWO = """tensors Q[b,h,d], Qr[b,h,r], K[b,j,d], Kr[b,j,r];
y = max[j](sum[d](Q[b,h,d] * K[b,j,d]) + sum[r](Qr[b,h,r] * Kr[b,j,r]));
return y"""
APART = """tensors Q[b,h,d], Qr[b,h,r], K[b,j,d], Kr[b,j,r], V[b,j,e];
s = sum[d](Q[b,h,d] * K[b,j,d]);
p = exp(s - max[j](s));
O = sum[j](p * sum[r](Qr[b,h,r] * Kr[b,j,r]) * V[b,j,e]) / sum[j](p);
return O"""
ALONE = """tensors Q[b,h,d], K[b,j,d], V[b,j,e], scale;
s = sum[d](Q[b,h,d] * K[b,j,d]) * scale;
p = exp(s - max[j](s));
return O = sum[j](p * V[b,j,e]) / sum[j](p)"""
SIZES = {"b": 2, "h": 128, "i": 300, "j": 1000, "c": 512, "d": 576, "r": 64, "e": 512}


def made_of(text: str) -> Class:
    spec = form_of(text).spec
    kinds: dict[str, Any] = {t.name: "float32" if t.name == "bias" else "bfloat16" for t in spec.tensors if t.axes}
    kinds |= {t.name: int if "integer" in t.domain else float for t in spec.tensors if not t.axes}
    return classified(lower(form_of(text), kinds))


def planned(text: str, deterministic: bool = True, **sizes: int) -> tuple[Class, TensorPlan]:
    every = SIZES | sizes
    views = {t.name: View.contiguous(tuple(every[a] for a in t.axes)) for t in form_of(text).spec.tensors if t.axes}
    return wgmma_tiles(made_of(text), every, views, H200, deterministic)


@pytest.mark.parametrize("text", [LATENT, ROPE, BIASED], ids=["latent", "rope", "biased"])
def test_products_of_a_sum(text: str) -> None:
    made = made_of(text)
    found = [(p.left.attr.name, p.right.attr.name, p.terms) for p in made.products]
    if text == LATENT:  # what serves as values, too, comes first
        assert found == [("Q", "C", "c_inner"), ("Qr", "Kr", "r")]
    else:
        assert sorted(found) == [("Q", "K", "d"), ("Qr", "Kr", "r")]
    assert made.row == "h"
    assert made.shared == (text == LATENT)


def test_the_tensor_with_columns_comes_first_wherever_it_stands() -> None:
    turned = LATENT.replace(
        "sum[c](Q[b,h,c] * C[b,j,c]) + sum[r](Qr[b,h,r] * Kr[b,j,r])",
        "sum[r](Qr[b,h,r] * Kr[b,j,r]) + sum[c](Q[b,h,c] * C[b,j,c])",
    )
    assert made_of(turned).products[0].right.attr.name == "C"


def test_contractions_apart_are_refused() -> None:
    with pytest.raises(Outside, match="2 contractions, not their sum alone"):
        made_of(APART)


def test_without_columns_one_contraction_is_taken() -> None:
    with pytest.raises(Outside, match="without columns an element holds one contraction, not 2"):
        planned(TWO)


def test_tiles_of_latent_attention() -> None:
    made, plan = planned(LATENT)
    assert isinstance(plan, WidePlan) and plan.common and (plan.rows, plan.columns, plan.span) == (64, 64, 128)
    assert plan.own_columns == 256 and plan.terms == 576 and plan.widths == (512, 64)
    assert plan.weights == 512 // 64 * 64 * 128  # behind the chunks of columns, in place of the turned part
    maps = maps_of(made, plan)
    assert [(m.operand, m.tile, m.first, m.count) for m in maps] == [
        ("Q", "left", 0, 8),
        ("C", "right", 0, 8),
        ("Qr", "left", 8, 1),
        ("Kr", "right", 8, 1),
    ]


@pytest.mark.parametrize(
    "text, sizes",
    [
        (LATENT, {}),
        (LATENT, {"r": 40}),
        (PLAIN, {}),
        (PLAIN, {"d": 64, "e": 384}),
        (WINDOW, {"c": 384}),
        (LATENT, {"c": 384, "r": 128}),
    ],
)
def test_nothing_overlaps_in_shared_memory(text: str, sizes: dict[str, int]) -> None:
    """Left operand, both parts with their weights, values, barriers, what is traded: one after the other."""
    _, plan = planned(text, **sizes)
    assert isinstance(plan, WidePlan)
    chunks = -(-plan.terms // 64)
    used = plan.columns * 128 * -(-plan.value_columns // 64) if plan.common else 0
    assert plan.weights >= used and plan.weights % 1024 == 0  # values are read while weights are there
    assert plan.weights + 64 * 128 <= plan.pair_bytes and plan.right_bytes <= plan.pair_bytes
    ends = [0, plan.left_bytes, plan.left_bytes + 2 * plan.pair_bytes, plan.barriers, plan.trade]
    assert all(a <= b for a, b in pairwise(ends)) and plan.trade - plan.barriers >= 8 * (6 + 2 * chunks + 3)
    assert plan.trade + 512 * plan.slots + 1024 <= plan.shared <= 227 << 10


@pytest.mark.parametrize("terms", [40])
def test_wide_heads_with_terms_of_one_chunk(terms: int) -> None:
    """A warp of each warpgroup, thread by thread: terms are one box, which is waited for like one of several."""
    sizes = SIZES | {"b": 1, "h": 9, "j": 70, "d": terms, "e": 384}
    made, plan = planned(ALONE, **sizes)
    assert isinstance(plan, WidePlan)
    rng, spec = np.random.default_rng(terms), form_of(ALONE).spec
    given = {t.name: rng.standard_normal([sizes[a] for a in t.axes]) if t.axes else 0.2 for t in spec.tensors}
    given = {name: np.float32(x) if np.ndim(x) else x for name, x in given.items()}
    found = Emulated(made, plan, given).run([(0, 0, 0), (1, 0, 0)])["O"]
    assert not np.isnan(found).any()
    np.testing.assert_allclose(found, ra.reference(spec, **given), rtol=1e-4, atol=1e-4)


def test_columns_two_warpgroups_cannot_halve() -> None:
    with pytest.raises(Outside, match="320 columns fits"):
        planned(PLAIN, e=320)
    made = kernel(form_of(PLAIN), SIZES | {"e": 640}, "H200", dtype="bfloat16", schedule="tensor")  # by products apart
    assert made.reasons[0].startswith("in parts: ") and any("640 columns fits" in line for line in made.reasons)


@pytest.mark.parametrize("anchor", ["running", "frozen", "fallback"])
@pytest.mark.parametrize("text", [LATENT, PLAIN, WINDOW], ids=["latent", "plain", "window"])
def test_wide_kernels_assemble_without_spills(text: str, anchor: str) -> None:
    if anchor != "running" and text is not LATENT:
        pytest.skip("one of a kind")
    made, plan = planned(text, c=512 if text is LATENT else 384)
    found = assemble(emit_tensor(made, replace(plan, anchor=ANCHORS[anchor])), H200.cc)
    assert (found.spill_stores, found.spill_loads, found.stack) == (0, 0, 0)


def test_splits_and_their_merge_assemble() -> None:
    made, plan = planned(LATENT, False, b=1, j=5000)
    assert plan.splits > 1
    for module in (emit_tensor(made, plan), emit_merge(made, plan)):
        assert assemble(module, H200.cc).spill_stores == 0


def test_splits_follow_from_the_number_of_rows_unless_deterministic() -> None:
    assert planned(LATENT, False, b=1, j=5000)[1].splits > planned(LATENT, False, b=64, j=5000)[1].splits == 1
    assert planned(LATENT, True, b=1, j=5000)[1].splits == 1
    assert planned(LATENT, False, b=1, j=17)[1].splits == 1  # one block is not cut
    assert planned(ROPE, True, d=128, e=128, h=8)[1].columns == planned(ROPE, True, d=128, e=128, h=4000)[1].columns


def test_where_each_part_comes_from() -> None:
    lines = kernel(form_of(LATENT), SIZES, "H200", dtype="bfloat16", schedule="tensor").reasons
    assert any("two trade maxima, sums and weights" in line for line in lines)
    assert any(line.startswith("C is loaded once") for line in lines)
    lines = kernel(form_of(PLAIN), SIZES, "H200", dtype="bfloat16", schedule="tensor").reasons
    assert not any("loaded once" in line for line in lines)


@pytest.mark.parametrize("scale", [0.5, 0.0, -1.0, np.inf])
def test_sums_under_a_scale_are_guarded_once_a_row(scale: float) -> None:
    """exp((a + b)·scale - max): u = -inf everywhere is a row without elements, but not because of the scale."""
    spec = ra.parse(
        "tensors a[i,j], b[i,j], scale; s = (a[i,j] + b[i,j]) * scale; return y = sum[j](exp(s - max[j](s)))"
    )
    form = ra.derive_incremental(spec, axis="j")
    program = lower(form, {"a": "float32", "b": "float32", "scale": float})
    bodies = [f.bodies[0] for f in folds(program.passes[0])]
    assert bodies and not any(n.op == "where" and "j" in n.axes for n in walk(*bodies))  # no test per element
    a = np.array([[1.0, -np.inf, 2.0], [-np.inf, -np.inf, -np.inf], [0.0, 1.0, np.nan], [-1.0, -2.0, -3.0]], np.float32)
    b = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 2.0]], np.float32)
    with np.errstate(all="ignore"):
        found, true = form.compile("cpu")(a=a, b=b, scale=scale), ra.reference(spec, a=a, b=b, scale=scale)
    np.testing.assert_allclose(found, true, rtol=2.0**-21)
