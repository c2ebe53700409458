"""Printed matrix products run by emulation: results, and that a broken protocol is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from redalg.errors import RedalgError
from redalg.kernels.gemm import passes, tiles
from redalg.kernels.launch.planned import Planned
from redalg.kernels.schedule.target import H200
from tests.support.gemm_cases import BATCHED, BIASED, PLAIN, SCALED, example, planned
from tests.support.gemm_emulated import Product, numbers, product_of

E4M3 = "float8_e4m3fn"
FEW, PAIR = replace(H200, multiprocessors=4), replace(H200, multiprocessors=2)
RUNS: dict[str, tuple[str, tuple[int, int, int], dict[str, Any]]] = {
    "pairs": (PLAIN, (600, 136, 504), {}),
    "pairs, major": (PLAIN, (600, 72, 512), {"major": ("w",)}),
    "pairs, float8": ("fp8_per_token_gemm", (600, 272, 512), {"w": E4M3, "major": ("w",)}),
    "float8": (PLAIN, (130, 272, 66), {"kind": E4M3, "major": ("w",)}),
    "few": (PLAIN, (40, 72, 64), {"kind": "float16"}),
    "odd": (PLAIN, (65, 64, 63), {}),
    "pairs, both major": (PLAIN, (600, 72, 512), {"major": ("x", "w")}),
    "left major": (PLAIN, (136, 200, 66), {"major": ("x",)}),
    "both major": (PLAIN, (72, 130, 72), {"kind": "float16", "major": ("x", "w")}),
    "both major, batched": (BATCHED, (72, 70, 72), {"major": ("x", "w")}),
    "pairs, batched": (BATCHED, (600, 64, 72), {}),
    "two results": (BIASED, (70, 64, 130), {}),
    "several rows": (SCALED, (33, 72, 64), {}),
    "fp8 per token": ("fp8_per_token_gemm", (70, 130, 66), {"w": E4M3}),
    "pairs, one launch": ("fp8_per_token_gemm", (900, 272, 300), {"w": E4M3, "major": ("w",), "launches": 1}),
    "one launch": ("fp8_per_token_gemm", (70, 128, 66), {"w": E4M3, "major": ("w",), "launches": 1}),
    "one launch, two": ("fp8_per_token_gemm", (70, 128, 66), {"w": E4M3, "major": ("w",), "launches": 2}),
    "one launch, right": (PLAIN, (65, 64, 320), {"w": E4M3, "launches": 1}),
    "one launch, left": (PLAIN, (320, 64, 64), {"x": E4M3, "launches": 1}),
    "one launch, odd": (PLAIN, (65, 65, 64), {"x": E4M3, "launches": 1}),
    "one launch, batched": (BATCHED, (80, 64, 72), {"x": E4M3, "launches": 1}),
    "one launch, batched right": (BATCHED, (80, 64, 72), {"w": E4M3, "launches": 1}),
    "one launch, several rows": (SCALED, (33, 72, 64), {"x": E4M3, "launches": 1}),
}


@pytest.fixture(autouse=True)
def wide_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles and pairs as for many rows and chunks: those of few rows are in `test_narrow`."""
    monkeypatch.setattr(passes, "narrow", lambda made: None)
    monkeypatch.setattr(tiles, "SHORT", 0)


@pytest.mark.parametrize("name", RUNS)
def test_printed_kernels_compute_the_product(name: str) -> None:
    text, (i, j, k), options = RUNS[name]
    sizes = {"i": i, "j": j, "k": k, "b": 2}
    found = planned(text, sizes, target=FEW, **options)
    given, true = example(text, sizes, found)
    product = product_of(found, given)
    made = product.run(seed=len(name))
    if found.inside and text == "fp8_per_token_gemm":
        true = with_prepared(product, given, true)
    for result, value in made.items():
        kind = {r.name: r.dtype for r in found.program.results}[result]
        unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-20, E4M3: 2.0**-4}[kind]
        exact, size = true[result]
        assert (abs(value - exact) <= unit * abs(exact) + 2.0**-16 * size).all(), result
    assert found.geometry.cluster == (2 if name.startswith("pairs") else 1)
    if "launches" in options:
        assert len(found.before) + 1 == options["launches"]


def with_prepared(product: Product, given: dict[str, Any], true: dict[str, Any]) -> dict[str, Any]:
    """The product of the rows as the launch has prepared them: in float32, an element near a tie of float8 is rounded
    to the other side of it. `test_tensor_gemm_launches` holds their bits; here they are near what they should be."""
    left, top = numbers(product, "left"), numbers(product, "state1")
    wanted = np.asarray(given["left"])
    assert (abs(left.reshape(wanted.shape) - wanted) <= 2.0**-3 * abs(wanted) + 2.0**-9).all()
    np.testing.assert_array_equal(top.reshape(-1), np.asarray(given["state1"]).reshape(-1))
    left, factor = left[:, : given["w"].shape[0]], top.reshape(-1, 1) / 448
    return {"y": ((left @ given["w"]) * factor, (abs(left) @ abs(given["w"])) * factor)}


def test_counters_are_zero_when_a_launch_ends() -> None:
    """Also where a warpgroup lags behind, which counts parts without rows that no tile waits for."""
    sizes = {"i": 320, "j": 128, "k": 64}
    found = planned("fp8_per_token_gemm", sizes, target=PAIR, w=E4M3, major=("w",), launches=1)
    given, _ = example("fp8_per_token_gemm", sizes, found)
    for seed in range(3):
        product = product_of(found, given)
        product.run(seed)
        assert not product.finished.any()


def damaged(old: str, new: str, found: Planned, text: str, sizes: dict[str, int], seeds: int = 6) -> str:
    """What goes wrong, in some order of threads, where another line is run; "" if nothing does."""
    assert old in found.module.source
    module = replace(found.module, source=found.module.source.replace(old, new))
    found = replace(found, kernel=found.kernel._replace(module=module))
    given, true = example(text, sizes, found)
    for seed in range(seeds):
        try:
            made = product_of(found, given).run(seed)["y"]
        except (RedalgError, AssertionError) as problem:
            return str(problem)
        if not abs(made - true["y"][0]).max() <= 0.1 * true["y"][1].max():
            return "another result"
    return ""


def test_a_broken_protocol_is_seen() -> None:
    sizes = {"i": 600, "j": 328, "k": 256}
    found = planned(PLAIN, sizes, target=PAIR)
    assert found.geometry.cluster == 2

    def broken(old: str, new: str) -> str:
        return damaged(old, new, found, PLAIN, sizes)

    tail = "for last in range(STAGES):"
    assert "ended" in broken(tail, "for last in range(0):")
    assert broken("4 * CONSUMERS * CLUSTER", "4 * CONSUMERS") != ""
    assert (
        broken("mbarrier_arrive_pair(empty + 8 * before, leader)", "mbarrier_arrive_pair(empty + 8 * before, 0 * lane)")
        != ""
    )
    assert broken("mbarrier_wait(full + 8 * stage, phase)", "mbarrier_wait(full + 8 * stage, 1 - phase)") != ""
    assert "still reads" in broken("sums_wait_1(S)", "term = 0")


def test_tiles_wait_for_their_rows() -> None:
    sizes = {"i": 320, "j": 128, "k": 64}
    options: dict[str, Any] = {"target": PAIR, "w": E4M3, "major": ("w",), "launches": 1}
    found = planned("fp8_per_token_gemm", sizes, **options)
    wait = "counter_wait_acquire(finished, needed, grid_warpgroups)"
    seen = "another result", "a counter is left"

    def broken(old: str, new: str) -> str:
        return damaged(old, new, found, "fp8_per_token_gemm", sizes, 3)

    assert broken(wait, "ready = needed") in seen
    assert broken(wait, "counter_wait_acquire(finished, needed, grid_warpgroups - 1)") in seen
    assert broken("needed > ready", "needed > ready + 1") in seen
    assert "waits" in broken(wait, "counter_wait_acquire(finished, needed, grid_warpgroups + 1)")
    assert "left" in broken("store_int32(finished, part, 0)", "part = 0")
    assert broken("row_first", "row_first") == ""
    several = {**sizes, "i": 800}  # rows in more than one part
    found = planned("fp8_per_token_gemm", several, **options)
    longer = "span = opaque(waves * grid_warpgroups", "span = opaque(4 * waves * grid_warpgroups"
    assert damaged(*longer, found, "fp8_per_token_gemm", several, 3) in seen
