"""The table of contractions on tensor cores: what it says of times, rates, clocks and power."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.gpu_attention_report import text

LINE: dict[str, Any] = {
    "cell": "attention", "unit": "operations", "work": 4e12, "ms": {"ours": 8.0, "cuDNN": 10.0}, "wrong": [],
    "extra": {}, "device": "a GPU", "torch": "2", "cudnn": 9, "numba": "0", "numba_cuda": "0", "date": "2026-01-01",
}  # fmt: skip


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
