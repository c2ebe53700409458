"""Matrix products with a cascade on their input: how specs are cut, what is planned, printed and assembled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.kernels.gemm.match import Side, operand_types
from redalg.kernels.gemm.tiles import Rounds, blocks_of, shapes
from redalg.kernels.launch.ptx import assemble, ptxas
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.match import Outside
from redalg.kernels.tile.plan import MOST_SHARED
from tests.support.gemm_cases import BATCHED, BIASED, GEMMS, PLAIN, SCALED, cut_of, form_of, planned, why_not

LARGE = {"i": 4096, "j": 4096, "k": 4096, "b": 2}
E4M3 = "float8_e4m3fn"
SILU = "y = sum[j](x[i,j]*w[j,k])*s[i]*v[k] + c[k]; return z = y*sigmoid(y) + r[i,k]"
needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="ptxas was not found")


# --- the cut ---------------------------------------------------------------------------------------------------------


def test_the_cast_is_the_operand_and_its_scale_is_the_epilogue() -> None:
    made = cut_of("fp8_per_token_gemm", w=E4M3)
    assert (made.batch, made.rows, made.column, made.stream) == ((), ("i",), "k", "j")
    assert (made.left.format, made.right.format, made.right.bare) == (E4M3, E4M3, True)
    assert str(made.made(0)) == (
        "state1 = max[j](abs(x[i,j])); left = cast(448 * x[i,j] / state1, float8_e4m3fn); return left, state1"
    )
    assert set(made.outputs) == {"y"} and made.outputs["y"].axes == {"i", "k"}


def test_a_norm_is_rounded_with_its_factors_and_leaves_no_epilogue() -> None:
    for name in ("layer_norm_gemm", "rms_norm_gemm", "zero_point_gemm"):
        made = cut_of(name)
        assert made.left.format is None and not made.states and made.left.axes == ("i",)
        assert [n.op for n in made.outputs.values()] == ["state"]


def test_both_operands_may_be_casts_with_scales_of_their_own() -> None:
    made = cut_of("absmax_int8_gemm")
    assert (made.left.format, made.right.format) == ("int8", "int8")
    assert [len(names) for names in made.given] == [1, 1, 0]
    assert operand_types(made.left, made.right) == ("bfloat16", "bfloat16")  # every int8 is one


def test_factors_of_an_exact_operand_wait_as_they_stand() -> None:
    """a/a is not 1 where a is 0: nothing is cancelled when a factor leaves the sum."""
    made = cut_of(SCALED)
    assert made.left.bare and made.rows == ("b", "i") and not made.batch
    whole = made.outputs["y"]
    (chosen,) = (n for n in g.walk(whole) if n.op == "where")
    bounded, node, otherwise = chosen.args
    assert whole.op == "mul" and chosen in whole.args and len(whole.args) == 2
    assert {n.op for n in g.walk(node)} == {"mul", "pow", "const", "tensor", "state"}
    assert bounded.op == "and" and otherwise.attr == "nan"  # an infinite factor meets terms of either sign


def test_an_axis_of_both_operands_is_a_batch() -> None:
    made = cut_of(BATCHED)
    assert (made.batch, made.rows, made.column) == (("b",), ("i",), "k")


def test_outputs_without_the_product_are_made_before_it() -> None:
    text = (
        "a = max[j](abs(x[i,j])); q = cast(x[i,j]/a, float8_e4m3fn); y = sum[j](q*w[j,k])*a; "
        "return y, a, q, t = sum[j](w[j,k])"
    )
    made = cut_of(text)
    assert set(made.outputs) == {"y"} and [set(given) for given in made.given] == [{"state1", "a", "q"}, {"t"}, set()]


REFUSED = {
    "no fold": ("return y = max[j](x[i,j])", "no stage"),
    "no columns": ("return y = sum[j](x[i,j]*w[j])", "no stage"),
    "a later stage": ("y = sum[j](x[i,j]*w[j,k]); return z = sum[k](y**2)", "later stage"),
    "mixed elements": ("return y = sum[j](exp(x[i,j]*w[j,k]))", "no stage"),
    "a factor of both": ("return y = sum[j](x[i,j]*w[j,k]*v[i,j,k])", "do not part"),
    "scores beside a stage": ("attention", "stage of its own"),
    "an empty value": ("attention_masked", "no element is valid"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_product_says_why(name: str) -> None:
    text, word = REFUSED[name]
    try:
        why = why_not(text)
    except RedalgError:  # the axis is not j, or there is no form: cut the spec itself
        spec = ra.parse(text)
        with pytest.raises(Outside) as error:
            from redalg.kernels.gemm.match import cut

            cut(spec, ("j",), {t.name: "bfloat16" for t in spec.tensors})
        why = str(error.value)
    assert word in why


def test_types_that_hold_both_operands() -> None:
    def side(kind: str | None) -> Side:
        return Side("s", g.tensor("s", "ij"), ("i",), kind)

    for a, b, found in (
        (E4M3, "float8_e5m2", (E4M3, "float8_e5m2")),
        ("bfloat16", E4M3, ("bfloat16",) * 2),
        ("int8", "float16", ("float16",) * 2),
        (None, "float16", ("float16",) * 2),
        ("int8", "int8", ("bfloat16",) * 2),
    ):
        assert operand_types(side(a), side(b)) == found
    for c, d in (("float32", "bfloat16"), ("float16", "bfloat16"), (None, None), (None, E4M3), ("int32", "bfloat16")):
        with pytest.raises(Outside):
            operand_types(side(c), side(d))


# --- tiles -----------------------------------------------------------------------------------------------------------


def test_every_tile_fits_registers_and_shared_memory() -> None:
    for promoted in (False, True):
        for consumers, halves, columns in shapes(promoted):
            assert halves * columns // 2 + promoted * columns // 2 <= 200
            kinds = (E4M3, E4M3) if promoted else ("bfloat16", "bfloat16")
            p = Rounds(kinds, False, 64 * consumers * halves, columns, 512, 1, H200).best()
            assert p.size <= MOST_SHARED and p.stages >= 4 and p.barriers + 16 * p.stages <= p.barriers + 256


@pytest.mark.parametrize("rows", (1, 63, 65, 300, 4096, 100_000))
@pytest.mark.parametrize("columns", (1, 127, 4096, 50_257))
def test_tiles_cover_the_result_once(rows: int, columns: int) -> None:
    """Every block of a cluster's tile is one place, as the kernel computes it; together they cover rows and columns."""
    p = Rounds(("bfloat16", "bfloat16"), False, rows, columns, 1024, 1, H200).best()
    count, down, over = blocks_of(p, rows, columns, 1)
    if count > 20_000:
        count = 20_000
    seen = set()
    for tile in range(count):
        group = tile // (p.group * over)
        part = tile - group * p.group * over
        wide = min(p.group, down - group * p.group)
        across = part // wide
        seen.add((group * p.group + part - across * wide, across))
    assert len(seen) == count
    assert all(0 <= a < down and 0 <= b < over for a, b in seen)
    tall = p.rows * (p.cluster if p.shared == "right" else 1)
    assert tall * down >= rows > tall * (down - 1)


# --- plans -----------------------------------------------------------------------------------------------------------


def test_operands_are_read_in_place_where_the_accelerator_can() -> None:
    for text, options, befores in (
        (PLAIN, {}, 0),
        (PLAIN, {"major": ("w",)}, 0),
        (PLAIN, {"major": ("x",)}, 0),
        (PLAIN, {"major": ("x", "w")}, 0),
        (BATCHED, {}, 0),
        ("fp8_per_token_gemm", {"w": E4M3, "major": ("w",)}, 1),
        ("fp8_per_token_gemm", {"w": E4M3}, 2),
        ("layer_norm_gemm", {}, 1),
        ("absmax_int8_gemm", {}, 2),
        (PLAIN, {"w": E4M3}, 1),
    ):
        found = planned(text, LARGE, **options)  # type: ignore[arg-type]
        assert len(found.before + found.inside) == befores, (text, options)
        assert len(found.maps) == 2 and found.geometry.cluster in (1, 2)


def test_rows_that_do_not_start_at_16_bytes_are_copied() -> None:
    found = planned(PLAIN, {"i": 100, "j": 63, "k": 127})
    assert [r.name for made in found.before for r in made.program.results] == ["left", "right"]
    assert [view.strides for _, view in found.scratch.values()] == [(64, 1), (128, 1)]  # w's columns stay side by side
    reasons = "\n".join(found.choice.reasons)
    assert "x has a stride of 126 bytes" in reasons and "w has a stride of 254 bytes" in reasons


def test_states_stay_in_float32() -> None:
    found = planned("fp8_per_token_gemm", LARGE, w=E4M3)
    assert {r.name: r.dtype for r in found.before[0].program.results} == {"left": E4M3, "state1": "float32"}
    assert {r.name: r.dtype for r in found.program.results} == {"y": "bfloat16"}


def test_explanations_name_where_each_part_comes_from() -> None:
    how: dict[str, Any] = {"w": E4M3, "major": ("w",), "launches": 2}
    reasons = "\n".join(planned("fp8_per_token_gemm", LARGE, **how).choice.reasons)
    for words in (
        "the fold sum[j]",
        "exact: prepared before the product, since it is computed",
        "right = w[j,k] as float8_e4m3fn",
        "read in place",
        "state1 = max[j](abs(x[i,j])), a stage that the epilogue reads",
        "epilogue: y = 1/448 * sums[i,k] * state1[i]",
        "sums of 128 terms are added in float32",
        "before it, left, state1: 4096 rows",
    ):
        assert words in reasons
    assert "rounded once to bfloat16" in "\n".join(planned("rms_norm_gemm", LARGE).choice.reasons)


def test_the_default_takes_tensor_cores_where_they_are_as_exact_as_the_results() -> None:
    def on_tensor_cores(text: str, **options: Any) -> bool:
        return bool(planned(text, LARGE, schedule=None, **options).maps)

    assert on_tensor_cores("layer_norm_gemm") and on_tensor_cores("fp8_per_token_gemm", w=E4M3)
    assert not on_tensor_cores("layer_norm_gemm", x="float32")  # the result is float32, and the norm would be bfloat16
    assert not on_tensor_cores("layer_norm_gemm", kind="float16")  # a norm has no bound below 65504
    assert on_tensor_cores(PLAIN, kind="float16")


def test_the_default_takes_what_is_predicted_to_be_faster() -> None:
    few = {"i": 2, "j": 64, "k": 8}
    found = planned("rms_norm_gemm", few, schedule=None)
    assert not found.maps and "are predicted" in found.choice.reasons[-1]
    assert planned("rms_norm_gemm", few).maps
    assert planned("rms_norm_gemm", few, schedule=None, deterministic=True).maps  # whatever the number of rows
    assert planned("rms_norm_gemm", {"i": 64, "j": 4096, "k": 4096}, schedule=None).maps


@pytest.mark.parametrize("cc", [(8, 0), (10, 0), (12, 0)])
def test_other_devices_take_another_kernel(cc: tuple[int, int]) -> None:
    target = replace(H200, cc=cc)
    for schedule in (None, "tensor"):
        found = planned("layer_norm_gemm", LARGE, schedule=schedule, target=target)
        assert not found.maps and "tensor cores by mma.sync" in found.choice.reasons[0]
    with pytest.raises(RedalgError) as error:
        planned("layer_norm_gemm", LARGE, target=target.having(cc=(7, 5)))
    assert "7.5, below 8.0" in error.value.why


@pytest.mark.parametrize(
    ("text", "options", "word"),
    [
        (PLAIN, {"kind": "float32"}, "float32"),
        (PLAIN, {"kind": "float64"}, "float64"),
        (PLAIN, {"w": "float16"}, "float16"),
        ("softmax", {}, "keeps the stream"),
        ("layer_norm_gemm", {"W": E4M3}, "may be rounded to"),
    ],
)
def test_what_is_asked_for_and_does_not_fit_is_refused(text: str, options: Any, word: str) -> None:
    with pytest.raises(RedalgError) as error:
        planned(text, LARGE, **options)
    assert word in error.value.why and "tensor" in error.value.what and error.value.where and error.value.fix


# --- assembly --------------------------------------------------------------------------------------------------------

CELLS: dict[str, tuple[str, dict[str, int], dict[str, Any]]] = {
    **{name: (name, LARGE, {}) for name in GEMMS},
    "fp8": ("fp8_per_token_gemm", LARGE, {"w": E4M3, "major": ("w",)}),
    "fp8 small": ("fp8_per_token_gemm", {"i": 100, "j": 63, "k": 127}, {"w": E4M3}),
    "k-major": (PLAIN, LARGE, {"major": ("w",)}),
    "batched": (BATCHED, LARGE, {"kind": "float16"}),
    "two results": (BIASED, LARGE, {}),
    "odd": (PLAIN, {"i": 1000, "j": 1001, "k": 1001}, {}),
    "float32 results": (BIASED, LARGE, {"s": "float32"}),
    "several rows": (SCALED, LARGE, {}),
    "silu": (SILU, LARGE, {}),
    "fp8 silu": (SILU, LARGE, {"x": E4M3, "w": E4M3, "major": ("w",)}),
    "fp8 two results": (BIASED, LARGE, {"x": E4M3, "w": E4M3, "major": ("w",)}),
}


@needs_ptxas
@pytest.mark.parametrize("name", CELLS)
def test_kernels_assemble_without_spills(name: str) -> None:
    text, sizes, options = CELLS[name]
    found = planned(text, sizes, **options)
    assert found.maps
    made = assemble(found.module, H200.cc)
    assert (made.spill_stores, made.spill_loads, made.stack) == (0, 0, 0)
    assert made.registers <= 168 or found.geometry.threads == 256
    assert found.module.shared <= MOST_SHARED


def test_forms_are_the_same_whatever_they_are_derived_with() -> None:
    """The cut is of the spec: a form of one pass under an assumption and one of two passes give one kernel."""
    one = planned("fp8_per_token_gemm", LARGE, w=E4M3)
    form = ra.derive_incremental(ra.catalog["fp8_per_token_gemm"], axis="j", max_passes=2)
    assert form.spec == form_of("fp8_per_token_gemm").spec and not form.assumptions
    assert "cast" in one.before[0].module.source or "narrow" in one.before[0].module.source or one.before
