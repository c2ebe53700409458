"""Printed matrix products run on the CPU by `gemm_simulated`: results, and that a broken protocol is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gemm_cases import BATCHED, BIASED, PLAIN, SCALED, example, planned
from gemm_simulated import Simulated

from redalg.kernels.target import H200

E4M3 = "float8_e4m3fn"
FEW, PAIR = replace(H200, multiprocessors=4), replace(H200, multiprocessors=2)
RUNS: dict[str, tuple[str, tuple[int, int, int], dict[str, Any]]] = {
    "pairs": (PLAIN, (500, 136, 504), {}),
    "pairs, major": (PLAIN, (500, 72, 512), {"major": ("w",)}),
    "pairs, float8": ("fp8_per_token_gemm", (500, 272, 512), {"w": E4M3, "major": ("w",)}),
    "float8": (PLAIN, (130, 272, 66), {"kind": E4M3, "major": ("w",)}),
    "few": (PLAIN, (40, 72, 64), {"kind": "float16"}),
    "odd": (PLAIN, (65, 64, 63), {}),
    "pairs, batched": (BATCHED, (130, 64, 72), {}),
    "two results": (BIASED, (70, 64, 130), {}),
    "several rows": (SCALED, (33, 72, 64), {}),
    "fp8 per token": ("fp8_per_token_gemm", (70, 130, 66), {"w": E4M3}),
}


@pytest.mark.parametrize("name", RUNS)
def test_printed_kernels_compute_the_product(name: str) -> None:
    text, (i, j, k), options = RUNS[name]
    sizes = {"i": i, "j": j, "k": k, "b": 2}
    found = planned(text, sizes, target=FEW, **options)
    given, true = example(text, sizes, found)
    made = Simulated(found, given, seed=len(name)).run()
    for result, value in made.items():
        kind = {r.name: r.dtype for r in found.program.results}[result]
        unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-20, E4M3: 2.0**-4}[kind]
        exact, size = true[result]
        assert (abs(value - exact) <= unit * abs(exact) + 2.0**-16 * size).all(), result
    assert found.geometry.cluster == (2 if name.startswith("pairs") else 1)


def damaged(old: str, new: str) -> str:
    """What goes wrong, in some order of threads, where a pair of blocks runs another line; "" if nothing does."""
    sizes = {"i": 200, "j": 328, "k": 256}
    found = planned(PLAIN, sizes, target=PAIR)
    assert found.geometry.cluster == 2
    assert old in found.module.source
    found = replace(found, module=replace(found.module, source=found.module.source.replace(old, new)))
    given, true = example(PLAIN, sizes, found)
    for seed in range(6):
        try:
            made = Simulated(found, given, seed).run()["y"]
        except AssertionError as problem:
            return str(problem).split("\n")[0]
        if not abs(made - true["y"][0]).max() <= 0.1 * true["y"][1].max():
            return "another result"
    return ""


def test_a_broken_protocol_is_seen() -> None:
    tail = "for last in range(STAGES):"
    assert "ended" in damaged(tail, "for last in range(0):")
    assert damaged("4 * TEAMS * CLUSTER", "4 * TEAMS") != ""
    assert damaged("arrive_pair(free + 8 * before, leader)", "arrive_pair(free + 8 * before, 0 * lane)") != ""
    assert damaged("barrier_wait(full + 8 * stage, phase)", "barrier_wait(full + 8 * stage, 1 - phase)") != ""
    assert "still reads" in damaged("sums_first(S)", "term = 0")
