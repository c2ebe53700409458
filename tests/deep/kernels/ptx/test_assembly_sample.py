"""What ptxas makes of a sample of the catalog: no register is spilt by the schedule the library chooses.

The whole catalog, by every family of schedules: `python -m benchmarks.gpu.assembly`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import assembly, assembly_report
from benchmarks.gpu.assembly import CHOSEN, LENGTHS, Cell, every_cell, judged
from benchmarks.gpu.assembly_report import report, spill
from redalg.errors import RedalgError
from redalg.kernels.ir.schedule import FAMILIES
from redalg.kernels.launch.ptx import assemble, ptxas

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="ptxas is not installed (the package nvidia-cuda-nvcc)")

# Chosen schedules: every kind of state (maxima, averages, moments, lists, positions, lanes, contractions, two outputs),
# resident and walked, with and without a remainder; then one kernel of every family.
SAMPLE = [
    Cell("softmax", CHOSEN, "bfloat16", 4096),
    Cell("logsumexp", CHOSEN, "float32", 50_000),
    Cell("layer_norm", CHOSEN, "float32", 4096),
    Cell("kurtosis", CHOSEN, "float32", 4096),
    Cell("top_k", CHOSEN, "bfloat16", 256),
    Cell("attention", CHOSEN, "bfloat16", 4096),
    Cell("linear_regression", CHOSEN, "float32", 256),
    Cell("argmax", "thread", "float32", 32),
    Cell("variance", "warp", "bfloat16", 500),
    Cell("cross_entropy", "block", "float32", 4000),
    Cell("softmax", "cluster", "float32", 1 << 16),
    Cell("mean", "split", "bfloat16", 10**6),
    Cell("absmax", "column", "float32", 4096),
    Cell("layer_norm", "prefetch", "bfloat16", 1 << 14),
    Cell("softmax", "cooperative", "float32", 1 << 16),
]


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels are compiled here and now, whatever the cache on disk holds."""
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))


@needs_ptxas
@pytest.mark.parametrize("cell", SAMPLE, ids=lambda cell: cell.name)
def test_a_kernel_needs_no_more_registers_than_there_are(cell: Cell) -> None:
    record = judged(cell)
    assert "error" not in record and "refused" not in record, record
    assert 16 <= record["registers"] <= record["limit"] <= 255
    assert record["shared"] <= 48 << 10
    assert spill(record) == 0, f"{cell.name} spills {spill(record)} bytes with {record['schedule']}"


def test_the_sample_has_every_family_and_is_part_of_the_whole() -> None:
    assert {c.family for c in SAMPLE} == {CHOSEN, *FAMILIES, "prefetch", "cooperative"} == set(LENGTHS)
    whole = list(every_cell())
    assert set(SAMPLE) <= set(whole) and len({c.name for c in whole}) == len(whole)
    assert all(Cell.named(c.name) == c for c in whole)


@needs_ptxas
def test_a_kernel_that_spills_is_seen_to_do_so() -> None:
    choice, module = assembly.planned(Cell("softmax", "block", "float32", 4096))
    assert spill(vars(assemble(module, (9, 0)))) == 0
    assert spill(vars(assemble(module, (9, 0), limit=24))) > 0
    assert choice.schedule.family == "block"


def test_a_family_that_is_not_legal_is_recorded_with_its_reason() -> None:
    record = judged(Cell("softmax", "split", "float32", 10**4))
    assert "y keeps the axis j" in record["refused"] and "registers" not in record


def test_what_fails_to_compile_is_recorded_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RedalgError("the kernel", "ptxas", "line 3: syntax error", "report this")

    monkeypatch.setattr(assembly, "assemble", broken)
    record = judged(Cell("softmax", "warp", "float32", 500))
    assert "syntax error" in record["error"] and "schedule" in record


def test_the_table_counts_kernels_and_names_those_that_spill() -> None:
    made = {"registers": 40, "limit": 255, "shared": 8, "stack": 0, "schedule": "Schedule()"}
    spilling = made | {"registers": 255, "spill_stores": 12, "spill_loads": 20, "stack": 16}
    text = report(
        [
            {"cell": "a chosen float32 256", **made, "spill_stores": 0, "spill_loads": 0},
            {"cell": "b chosen float32 256", **spilling},
            {"cell": "c chosen float32 256", **made, "spill_stores": 0, "spill_loads": 0, "stack": 64},
            {"cell": "a split float32 1000", "refused": "it keeps j"},
            {"cell": "b split float32 1000", "refused": "it keeps j"},
            {"cell": "a warp float32 500", "schedule": "", "error": "RedalgError: no\nway"},
        ]
    )
    assert "| chosen | float32 | 3 | 0 | 0 | 255 | 8 | 64 | 1 | 32 |" in text
    assert "| b | chosen | float32 | 12 | 20 | 255 | 255 | Schedule() | 256 |" in text and "| a | chosen" not in text
    assert "| split | it keeps j | a, b |" in text and "* a warp float32 500: RedalgError: no way" in text
    assert "| c | chosen | float32 | 64 | 40 | Schedule() | 256 |" in text
    assert set(assembly_report.FAMILIES) == set(LENGTHS)
