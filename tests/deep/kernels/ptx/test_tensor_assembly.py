"""What ptxas makes of kernels for tensor cores: a sample held to benchmarks/records/tensor_assembly.md.

The whole: `make bench-tensor-assembly`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu.tensor_assembly import ANCHORS, HEADS, Cell, every_cell, judged, planned, recorded, report
from benchmarks.harness.processes import RECORDS
from redalg.kernels.launch.ptx import assemble, ptxas
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.plan import MOST_SHARED
from tests.support.tensor_cases import CLASS, OPTIMISTIC

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="ptxas is not installed (the package nvidia-cuda-nvcc)")
TABLE = recorded((RECORDS / "tensor_assembly.md").read_text())
# Both kinds of scale, conditions, loads per element, every anchor, no columns; both dtypes; one and two teams.
SAMPLE = [
    Cell("attention_causal", "128", "bfloat16", "running"),
    Cell("attention_causal", "128", "float16", "frozen"),
    Cell("attention_alibi", "128", "bfloat16", "running"),
    Cell("attention_bias", "128", "bfloat16", "fallback"),
    Cell("attention_with_lse", "192/128", "bfloat16", "running"),
    Cell("attention_relu", "256", "bfloat16", "running"),
    Cell("splade", "64", "float16", "running"),
]


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels are compiled here and now, whatever the cache on disk holds."""
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))


@needs_ptxas
@pytest.mark.usefixtures("nothing_known")
@pytest.mark.parametrize("cell", SAMPLE, ids=lambda cell: cell.name)
def test_a_kernel_needs_no_more_than_was_recorded(cell: Cell) -> None:
    record = judged(cell)
    assert "registers" in record, record
    registers, spilt, stack = TABLE[cell.name]
    assert record["registers"] <= (168 if record["threads"] == 384 else 255)
    assert record["registers"] <= registers and record["stack"] <= stack
    assert record["stores"] + record["loads"] <= spilt, f"{cell.name} spills more than the table says"
    assert 0 < record["shared"] <= MOST_SHARED


def test_the_table_is_whole() -> None:
    cells = {c.name for c in every_cell()}
    assert set(TABLE) == cells and {c.name for c in SAMPLE} <= cells
    assert {Cell.named(n).spec for n in cells} == set(CLASS)
    assert {Cell.named(n).spec for n in cells if n.endswith("frozen")} == set(OPTIMISTIC)
    assert all(Cell.named(n).name == n for n in cells)
    assert {Cell.named(n).head for n in cells} == set(HEADS) and {Cell.named(n).anchor for n in cells} == set(ANCHORS)


def test_registers_at_the_launch_and_spills_of_the_table() -> None:
    """A launch of 384 threads has 168 registers for each. What spills today is listed, and may become less."""
    assert all(registers <= 168 for registers, _, _ in TABLE.values())
    for name, (_, spilt, stack) in TABLE.items():
        assert spilt <= SPILT.get(Cell.named(name).spec, 0), name
        assert stack <= 200, name
    for name in ("attention", "attention_scaled", "attention_causal", "attention_with_lse"):
        for head in ("64", "128"):
            assert TABLE[f"{name} {head} bfloat16 running"][1:] == (0, 0)


SPILT = {  # bytes of stores and loads in the worst of a spec's kernels
    "attention_bias": 328,
    "attention_masked": 328,
    "attention_softcap": 24,
    "attention": 16,
    "attention_scaled": 16,
    "attention_grouped_query": 16,
    "attention_with_lse": 16,
    "attention_window": 8,
}


@needs_ptxas
@pytest.mark.usefixtures("nothing_known")
def test_a_kernel_that_spills_is_seen_to_do_so() -> None:
    """Those that compute raise their registers to 240; with 168 there is no room for the scores and the sums."""
    _, module = planned(Cell("attention", "128", "bfloat16", "running"))
    assert "setmaxnreg(240, True)" in module.source
    found = assemble(
        replace(module, source=module.source.replace("setmaxnreg(240, True)", "setmaxnreg(168, True)")), H200.cc
    )
    assert found.spill_stores > 0 and found.stack > 0


def test_the_table_has_a_line_for_every_record() -> None:
    made = {"tile": "128 × 128", "threads": 384, "registers": 168, "stores": 4, "loads": 8, "stack": 16, "shared": 9}
    text = report(
        [
            {"cell": "b 64 float16 stays", **made},
            {"cell": "a 64 float16 moves", "refused": "too\nsmall"},
            {"cell": "b 128 float16 moves", **made, "stores": 0, "loads": 0},
        ]
    )
    assert "2 kernels, 1 of which spill." in text and "| a | 64 | float16 | moves | too small |" in text
    assert recorded(text) == {"b 64 float16 stays": (168, 12, 16), "b 128 float16 moves": (168, 0, 16)}
    assert text.index("| b | 128 ") < text.index("| b | 64 ")
