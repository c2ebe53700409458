"""Matrix products by mma.sync: results are the definition in float64 wherever operands lie and tiles end, on every
device; what is multiplied by wgmma alone says so.

`tests/deep/kernels/emulated/test_mma_gemm_tiles.py` runs every shape of a tile.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from redalg.errors import RedalgError
from redalg.graph.functions import FUNCTIONS
from redalg.kernels.schedule.target import A100, H200
from tests.support import chain_cases
from tests.support.gemm_cases import BATCHED, BIASED, PLAIN, SCALED, planned, views_of
from tests.support.gemm_emulated import product_of
from tests.support.mma_gemm_cases import GELU, TARGETS, check, drawn, near
from tests.support.sample import deep

E4M3 = "float8_e4m3fn"
MAJOR = {"rows": (), "left": ("x",), "right": ("w",), "both": ("x", "w")}
EACH = [*zip(MAJOR, TARGETS, strict=True)]  # every layout, and every device
EDGES = ((1, 1, 1), (70, 1, 9), (16, 33, 66))  # rows, terms, columns


@pytest.mark.parametrize("major, device", [*EACH, *deep(pair for pair in product(MAJOR, TARGETS) if pair not in EACH)])
def test_a_product_is_its_definition(major: str, device: str) -> None:
    made = check(PLAIN, {"i": 41, "j": 77, "k": 53}, TARGETS[device], major=MAJOR[major], apart=11)
    assert made.module.shared <= TARGETS[device].most_shared
    check(PLAIN, {"i": 72, "j": 40, "k": 136}, TARGETS[device], major=MAJOR[major], kind="float16")


@pytest.mark.parametrize("sizes", EDGES, ids=str)
def test_tiles_end_anywhere(sizes: tuple[int, int, int]) -> None:
    i, j, k = sizes
    check(PLAIN, {"i": i, "j": j, "k": k}, major=("x",), apart=-i % 8)


@pytest.mark.parametrize("text", [BIASED, GELU])
def test_epilogues(text: str) -> None:
    for k in (56, 57):  # by way of shared memory, and straight to memory
        check(text, {"i": 70, "j": 40, "k": k}, loose=0.02 if text == GELU else 0.0)


def test_results_of_float32_and_products_of_what_is_computed() -> None:
    check(BIASED, {"i": 33, "j": 24, "k": 20}, s="float32")
    check(SCALED, {"b": 3, "i": 9, "j": 40, "k": 24}, loose=0.1)
    made = check("y = sum[j](x[i,j]*w[j,k]); return y", {"i": 33, "j": 40, "k": 24}, w=E4M3)
    assert made.before and "prepared before the product" in made.choice.reasons[3]


@pytest.mark.parametrize("major", MAJOR)
def test_batches(major: str) -> None:
    check(BATCHED, {"b": 3, "i": 21, "j": 40, "k": 19}, major=MAJOR[major], apart=5 if major == "both" else 0)


@pytest.mark.deep
def test_blocks_take_tiles_in_turns() -> None:
    target = replace(A100, multiprocessors=1)
    made = check(PLAIN, {"i": 200, "j": 40, "k": 136}, target)
    assert made.fixed["tiles"] > made.geometry.blocks


@pytest.mark.parametrize("name", ["relu", "gated", "batched", "three"])
def test_chains_are_one_kernel_after_the_other(name: str) -> None:
    sizes = {"m": 20, "k": 24, "n": 40, "l": 16, "o": 16, "p": 2}
    made, given = chain_cases.planned(name, sizes, target=A100), chain_cases.drawn(name, sizes)
    assert all("mma.sync" in p.choice.reasons[0] for p in (made, *made.before))
    found, true = chain_cases.emulated(made, given), chain_cases.truth(name, given)
    for result, x in found.items():
        assert abs(x - true[result]).max() <= 0.01 * abs(true[result]).max()


def test_a_chunk_is_waited_for_and_kept_until_it_is_read() -> None:
    sizes = {"i": 40, "j": 200, "k": 40}
    made = planned(PLAIN, sizes, target=A100, schedule="mma")
    for old in ("            cp_async_wait_stage()\n", "            cuda.syncthreads()\n"):
        assert old in made.module.source
        module = replace(made.module, source=made.module.source.replace(old, ""))
        broken = replace(made, kernel=made.kernel._replace(module=module))
        given = drawn(PLAIN, sizes)
        with pytest.raises((RedalgError, AssertionError)):
            for seed in range(6):
                found = product_of(broken, given, views_of(PLAIN, sizes)).run(seed)["y"]
                true = given["x"] @ given["w"]
                assert (abs(found - true) <= 2.0**-8 * abs(true)).all()


# --- what is refused --------------------------------------------------------------------------------------------------


def test_float8_is_multiplied_by_wgmma_alone() -> None:
    sizes = {"i": 512, "j": 512, "k": 512}
    with pytest.raises(RedalgError) as error:
        planned(PLAIN, sizes, kind=E4M3, major=("w",), target=A100)
    assert "float8" in error.value.why and "9.0" in error.value.why
    with pytest.warns(UserWarning, match="float8 are multiplied by wgmma alone"):
        found = planned(PLAIN, sizes, kind=E4M3, major=("w",), target=A100, schedule=None)
    assert any("not on tensor cores: products of float8" in line for line in found.choice.reasons)


def test_what_runs_inside_a_kernel_does_so_by_wgmma_alone() -> None:
    sizes = {"i": 40, "j": 72, "k": 56}
    with pytest.raises(RedalgError) as error:
        planned("rms_norm_gemm", sizes, target=A100, schedule="fused_prologue")
    assert "wgmma alone" in error.value.why
    found = planned("rms_norm_gemm", sizes, target=A100)
    assert len(found.before) == 1 and not found.inside


def test_a_call_that_is_faster_without_tensor_cores_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    found = planned("rms_norm_gemm", {"i": 2, "j": 64, "k": 8}, target=A100, schedule=None)
    assert "are predicted" in found.choice.reasons[-1] and not recwarn.list


def test_wgmma_stays_where_it_is() -> None:
    sizes = {"i": 512, "j": 512, "k": 512}
    assert planned(PLAIN, sizes, target=H200).maps and planned(PLAIN, sizes, target=H200, schedule=None).maps
    assert not planned(PLAIN, sizes, target=H200, schedule="mma").maps


ARGUMENT = {  # numbers of a domain, of sums from -36 to 36
    "": "y/8",
    "positive": "1 + abs(y)/8",
    "above_one": "1 + abs(y)/8",
    "above_minus_one": "y/64",
    "unit": "y/64",
    "open_unit": "y/64",
}


@pytest.mark.parametrize("schedule", ["mma", *deep(["tensor"])])
def test_every_function_is_applied_to_sums(schedule: str) -> None:
    """Those too that kernels compute by a formula of others."""
    words = [f for f in FUNCTIONS.values() if f.word]
    sizes = {"i": 9, "j": 4, "k": 5}
    given = drawn(PLAIN, sizes)
    results = ", ".join(f"r{k} = {f.name}({ARGUMENT[f.domain]})" for k, f in enumerate(words))
    text = f"y = sum[j](x[i,j]*w[j,k]); return {results}"
    made = planned(text, sizes, schedule=schedule)
    assert made.module.threads
    near(chain_cases.emulated(made, given), text, given, made, 2.0**-12)
