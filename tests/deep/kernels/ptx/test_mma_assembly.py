"""What ptxas makes of a sample of the kernels for mma.sync, of each type and head, for Ampere and Ada.

All of them: `python -m benchmarks.gpu.mma_assembly`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu.mma_assembly import TARGETS, TYPES, Cell, every_cell, judged, report
from redalg.kernels.launch.ptx import ptxas

SAMPLE = [
    Cell("attention_scaled", "128", "bfloat16", "8.0"),
    Cell("attention_with_lse", "64", "float16", "8.9"),
    Cell("attention_causal", "64", "tf32", "8.0"),
    Cell("attention_grouped_query", "128", "float8", "8.9"),
]


@pytest.mark.skipif(ptxas() is None, reason="ptxas is not installed (the package nvidia-cuda-nvcc)")
@pytest.mark.parametrize("cell", SAMPLE, ids=lambda cell: cell.name)
def test_common_kernels_spill_nothing(cell: Cell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    record = judged(cell)
    assert "error" not in record and "refused" not in record, record
    assert 64 <= record["registers"] <= 255 and record["spilt"] == record["stack"] == 0
    assert record["shared"] <= {"8.0": 163 << 10, "8.9": 99 << 10}[cell.cc]


def test_the_sample_is_part_of_the_whole() -> None:
    whole = list(every_cell())
    assert set(SAMPLE) <= set(whole) and len({c.name for c in whole}) == len(whole)
    assert {c.types for c in whole} == {*TYPES} and {c.cc for c in whole} == {*TARGETS}


def test_the_table_counts_and_lists_what_spills() -> None:
    made = {"tile": "64 × 64", "threads": 128, "registers": 200, "spilt": 0, "stack": 0, "shared": 1024}
    lines = [
        {"cell": "attention 64 tf32 8.0"} | made,
        {"cell": "splade 64 tf32 8.0", "refused": "why"},
        {"cell": "attention_causal 64 tf32 8.0"} | made | {"spilt": 12, "registers": 255},
    ]
    text = report(lines)
    assert "| 64 | tf32 | 8.0 | 2 | 1 | 0 | 255 | 1024 | 1 |" in text
    assert "| attention_causal | 64 | tf32 | 8.0 | 64 × 64 | 128 | 255 | 12 |" in text
