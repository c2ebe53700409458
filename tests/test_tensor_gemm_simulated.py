"""Printed matrix products run on the CPU by `gemm_simulated`: results, and that a broken protocol is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gemm_cases import BATCHED, BIASED, PLAIN, SCALED, example, planned
from gemm_simulated import Simulated

from redalg.kernels.planning import Planned
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
    if "launches" in options:
        assert len(found.before) + 1 == options["launches"]


def damaged(old: str, new: str, found: Planned, text: str, sizes: dict[str, int], seeds: int = 6) -> str:
    """What goes wrong, in some order of threads, where another line is run; "" if nothing does."""
    assert old in found.module.source
    found = replace(found, module=replace(found.module, source=found.module.source.replace(old, new)))
    given, true = example(text, sizes, found)
    for seed in range(seeds):
        try:
            made = Simulated(found, given, seed).run()["y"]
        except AssertionError as problem:
            return str(problem).split("\n")[0]
        if not abs(made - true["y"][0]).max() <= 0.1 * true["y"][1].max():
            return "another result"
    return ""


def test_a_broken_protocol_is_seen() -> None:
    sizes = {"i": 200, "j": 328, "k": 256}
    found = planned(PLAIN, sizes, target=PAIR)
    assert found.geometry.cluster == 2

    def broken(old: str, new: str) -> str:
        return damaged(old, new, found, PLAIN, sizes)

    tail = "for last in range(STAGES):"
    assert "ended" in broken(tail, "for last in range(0):")
    assert broken("4 * TEAMS * CLUSTER", "4 * TEAMS") != ""
    assert broken("arrive_pair(free + 8 * before, leader)", "arrive_pair(free + 8 * before, 0 * lane)") != ""
    assert broken("barrier_wait(full + 8 * stage, phase)", "barrier_wait(full + 8 * stage, 1 - phase)") != ""
    assert "still reads" in broken("sums_first(S)", "term = 0")


def test_tiles_wait_for_their_rows() -> None:
    sizes = {"i": 320, "j": 128, "k": 64}
    found = planned("fp8_per_token_gemm", sizes, target=PAIR, w=E4M3, major=("w",), launches=1)
    wait = "count_wait(finished, needed, workers)"

    def broken(old: str, new: str) -> str:
        return damaged(old, new, found, "fp8_per_token_gemm", sizes, 3)

    assert broken(wait, "ready = needed") == "another result"
    assert broken(wait, "count_wait(finished, needed, workers - 1)") == "another result"
    assert broken("span = opaque(every * workers", "span = opaque(4 * every * workers") == "another result"
    assert broken("needed > ready", "needed > ready + 1") == "another result"
    assert "waits" in broken(wait, "count_wait(finished, needed, workers + 1)")
    assert "left" in broken("store_int32(finished, part, 0)", "part = 0")
    assert broken("row_first", "row_first") == ""
