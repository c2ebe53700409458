"""The CPU harness: its competitors compute what they are said to, and a wrong one is found."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.cpu import kernels as cpu
from benchmarks.cpu import random_table
from benchmarks.cpu import report as cpu_report
from benchmarks.cpu.peers import NUMPY, copies, in_place, numexpr_versions, reads, torch_versions
from benchmarks.cpu.random_cells import DTYPES, LAYOUTS, TEXTS, Cell
from benchmarks.harness.measuring import Effort, WallClock, best_us, check, measure
from benchmarks.harness.operations import OPERATIONS
from tests.support.sample import deep

SIZES = {"i": 24, "j": 24}


@pytest.mark.parametrize("version", ["numpy", "in place", "numexpr", "torch"])
@pytest.mark.parametrize("name", cpu.CHOSEN)
def test_peers_compute_the_operation(name: str, version: str) -> None:
    if version in ("numexpr", "torch"):
        pytest.importorskip(version)
    made = {
        "numpy": lambda: NUMPY,
        "in place": lambda: in_place((24, 24), "float32"),
        "numexpr": lambda: numexpr_versions(1),
        "torch": lambda: torch_versions(1),
    }[version]()
    if name not in made:
        pytest.skip("there is no such version")
    op = OPERATIONS[name]
    arguments = cpu.drawn(op, SIZES, seed=1)
    peer = cpu.contender(version, made[name], op, SIZES, arguments)
    assert "error" not in check(peer, cpu.judge_of(op, arguments, SIZES))


@pytest.mark.parametrize("name", cpu.CHOSEN)
def test_our_results_are_accepted(name: str) -> None:
    op = OPERATIONS[name]
    arguments = cpu.drawn(op, SIZES, seed=2)
    record = check(cpu.ours(op, "numpy", SIZES, arguments), cpu.judge_of(op, arguments, SIZES))
    assert "error" not in record, record


def _halves(out: Mapping[str, Any], x: np.ndarray) -> None:
    """Forgets the second half of the rows."""
    NUMPY["softmax"]({"y": out["y"][:12]}, x[:12])


def _wide(out: Mapping[str, Any], x: np.ndarray) -> None:
    """Accurate to 4 digits only."""
    NUMPY["softmax"](out, x)
    out["y"] *= np.float32(1.0001)


@pytest.mark.parametrize("broken", [_halves, _wide])
def test_a_broken_kernel_is_wrong_and_never_timed(broken: Any) -> None:
    op = OPERATIONS["softmax"]
    arguments = cpu.drawn(op, SIZES, seed=3)
    timed: list[int] = []
    bad = replace(cpu.contender("redalg", broken, op, SIZES, arguments), ours=True, call=timed.append)
    good = cpu.contender("numpy", NUMPY["softmax"], op, SIZES, arguments)
    judge = cpu.judge_of(op, arguments, SIZES)
    records = measure([bad, good], judge, WallClock(), sets=1, effort=Effort(2, 1e-4))
    assert "wrong" in records["redalg"] and not timed and best_us(records["redalg"]) is None
    assert best_us(records["numpy"]) is not None


def test_positions_must_be_equal() -> None:
    a = np.array([1, 2, 3])
    assert cpu.worst(a, a, 1.0, 1.0) == 0.0 and cpu.worst(a + 1, a, 1.0, 1.0) == float("inf")
    with pytest.raises(ValueError, match="dtype"):
        cpu.worst(a.astype(np.float32), a, 1.0, 1.0)


def test_infinities_agree_and_nan_never_does() -> None:
    true = np.array([1.0, -np.inf])
    assert cpu.worst(true, true, 1e-6, 0.0) == 0.0
    assert not cpu.worst(np.array([1.0, np.nan]), true, 1e-6, 0.0) <= 1


def test_ceilings_move_all_bytes() -> None:
    source = np.random.default_rng(0).normal(size=(64, 33)).astype(np.float32)
    with ThreadPoolExecutor(2) as pool:
        for name, way in copies(source, target := np.zeros_like(source), 2, pool).items():
            target.fill(np.nan)
            way()
            assert np.array_equal(source, target), name
        for way in reads(source, 2, pool).values():
            way()


def _record(**us: float) -> dict[str, Any]:
    results = {name.replace("_", " "): {"us": t, "low_us": t} for name, t in us.items()}
    return {"operation": "softmax", "limit_us": 70.0, "results": results}


def test_missed_goals_are_said() -> None:
    assert cpu_report.goals([_record(redalg=100, numpy=400, torch=100)]) == ["every goal is met"]
    missed = " ".join(cpu_report.goals([_record(redalg=200, numpy=400, torch=100)]))
    assert "2.00 times numpy" in missed and "0.50 times torch" in missed and "35% of the ceiling" in missed


def test_the_table_shows_ratios() -> None:
    whole = {
        "size": 24,
        "conditions": "a machine.",
        "operations": [_record(redalg=2000, numpy_in_place=3000)],
        "ceilings": [{"ceiling": "copy", "bytes": 2 << 20, "ms": {"np.copyto": 1.0}}],
    }
    assert "| softmax | 0.07 | 2.00 | 4 % | - | 3.00 (1.50x) | - | - | - |" in cpu_report.markdown(whole)


@pytest.mark.parametrize(
    "number, operation", [*list(enumerate(TEXTS))[::3], *deep(t for t in enumerate(TEXTS) if t[0] % 3)]
)
def test_random_cells_are_judged(number: int, operation: str) -> None:
    """Everybody computes what a cell says; a result that is shifted by a row is found."""
    dtype = [d for d in DTYPES if d != "bfloat16"][number % 3]
    cell = Cell(operation, 7, 19, dtype, LAYOUTS[number % 3])
    arrays = cell.drawn(1)
    judge = random_table.judge_of(cell, arrays)
    for one in random_table.contenders(cell, arrays, alone=True):
        assert "error" not in check(one, judge), one.name
        (attempt,) = one.tries
        shifted = {"y": np.roll(attempt()["y"], 1, axis=0)}
        assert not judge(shifted, True) <= 1, one.name


def test_a_random_table_goes_on_and_is_reported(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seed", "2026-01-01", "--only", "sum", "--cells", "6", "--repeats", "1", "--alone"]
    words += ["--out", str(tmp_path / "cells.jsonl"), "--threads", "64"]
    assert random_table.main(words) == 0
    first = (tmp_path / "cells.jsonl").read_text()
    assert random_table.main(words) == 0 and (tmp_path / "cells.jsonl").read_text() == first
    assert random_table.main([*words, "--report"]) == 0
    table = (tmp_path / "cells.md").read_text()
    assert all(record["cell"] in table for record in random_table.Lines(tmp_path / "cells.jsonl"))
    assert "at worst" in capsys.readouterr().out
