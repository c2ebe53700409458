"""The table of contractions on tensor cores: what it says of times, rates, clocks and power."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu.attention_cells import sampled
from benchmarks.gpu.attention_report import text
from benchmarks.harness.measuring import Lines
from benchmarks.harness.processes import provenance

LINE: dict[str, Any] = {
    "cell": "attention",
    "unit": "operations",
    "work": 4e12,
    "ms": {"ours": 8.0, "cuDNN": 10.0},
    "wrong": [],
    "extra": {},
    "device": "a GPU",
    "torch": "2",
    "cudnn": 9,
    "numba": "0",
    "numba_cuda": "0",
    "date": "2026-01-01",
}


def written(**more: Any) -> str:
    return text([LINE | more], Path("file.jsonl"))


def test_rates_and_ratios() -> None:
    assert "| attention | 8.0000 ms, 500 TFLOP/s | – | cuDNN 10.0000 ms, 400 TFLOP/s | 1.25 | – |" in written()


def test_operations_a_clock_and_multiprocessor() -> None:
    """4e12 in 8 ms are 5e14 a second: 2500 for each of 1e9 clocks a second on 200 multiprocessors."""
    found = written(state={"ours": [1000.0, 690.4], "cuDNN": [1250.0, 700.0]}, multiprocessors=200)
    assert "| attention | ours 1000, 690, 2500; cuDNN 1250, 700, 1600 |" in found
    assert "clock" not in written() and "clock" not in written(state={})


def test_a_cell_that_failed_says_so() -> None:
    assert "| attention | failed: no memory | | | | |" in written(failed="no memory")


def test_a_result_of_another_shape_is_no_result() -> None:
    assert sampled(np.ones((4, 2)), (4, 2), lambda x: x[:1]).shape == (1, 2)
    for shape in ((2, 4), (4, 2, 1), (8,), (1, 2)):
        with pytest.raises(ValueError, match="is wanted"):
            sampled(np.ones(shape), (4, 2), lambda x: x)


def test_recorded_lines_have_commit_and_time_and_reports_show_them(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "cells.jsonl")
    lines.add({"cell": "a"})
    (record,) = lines.cells().values()
    assert record["commit"] and record["time"][:2] == "20"
    assert provenance([record]).startswith(f"Measured at {record['commit']} (1 line")
    assert "1 line without commit and time" in written() and "Measured" not in written()
    assert f"Measured at {record['commit']}" in written(**record)
