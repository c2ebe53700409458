"""The timing harness itself: it counts bytes rightly, goes on where it stopped, and never times what is wrong."""

from __future__ import annotations

import doctest
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import counters as gpu_counters
from benchmarks.gpu import kernels as gpu
from benchmarks.gpu import random_cells, random_table
from benchmarks.gpu import report as gpu_report
from benchmarks.gpu.cells import MIB, cell, every_cell, limit_us
from benchmarks.gpu.random_cells import RandomCell
from benchmarks.harness.measuring import Contender, Effort, Lines, WallClock, best_us, check, finished, measure, race
from benchmarks.harness.operations import ITEMSIZE, OPERATIONS, Operation

SIZES = {"i": 6, "j": 10}


@pytest.mark.parametrize(
    "name", ["harness.measuring", "harness.operations", "gpu.cells", "gpu.random_cells", "gpu.random_table"]
)
def test_the_examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"benchmarks.{name}")).failed == 0


# --- bytes -----------------------------------------------------------------------------------------------------------


def drawn(op: Operation, sizes: Mapping[str, int], dtype: str = "float32") -> dict[str, Any]:
    rng = np.random.default_rng(7)
    found: dict[str, Any] = {}
    for name, (shape, draw) in op.arguments(sizes).items():
        if not shape:
            found[name] = float(draw)
        elif draw.startswith("below:"):
            found[name] = rng.integers(0, sizes[draw.removeprefix("below:")], shape)
        else:
            array = rng.normal(size=shape) if draw == "normal" else rng.uniform(0.25, 2, size=shape)
            found[name] = array.astype(dtype)
    return found


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_count_of_bytes_is_that_of_the_arrays(name: str, dtype: str) -> None:
    op = OPERATIONS[name]
    arguments = drawn(op, SIZES, dtype)
    results = op.form.compile("numpy")(**arguments)
    results = results if isinstance(results, dict) else {next(iter(op.spec.outputs)): results}
    read, written = op.traffic(SIZES, dtype)
    assert read == sum(a.nbytes for a in arguments.values() if isinstance(a, np.ndarray))
    assert written == sum(a.nbytes for a in results.values())
    assert {n: (a.shape, a.dtype.name) for n, a in results.items()} == op.results(SIZES, dtype)


def test_cells_have_the_size_that_was_asked_for() -> None:
    cells = every_cell(512 * MIB)
    assert len({c.name for c in cells}) == len(cells)
    for c in cells:
        read, written = c.traffic
        if c.operation == "softmax_top8":
            assert read + written < 128 * MIB
        else:
            assert 256 * MIB <= read + written < 1600 * MIB, c.name
    lengths = {c.length for c in cells if c.operation == "column_variance"}
    assert lengths == {64, 256, 1024, 4096, 8192, 65536, 1 << 20}
    assert cells[0].name == "softmax_top8 float16 4096x4096"


def test_a_row_longer_than_the_whole_is_no_cell() -> None:
    assert cell("softmax", "float32", 1 << 20, 1 * MIB) is None


def test_the_limit_of_a_cell_lies_between_reading_and_copying() -> None:
    rates = {"read": 4.2e6, "copy": 4.0e6}
    assert limit_us(512, 512, rates) == pytest.approx(1024 / 4.0e6)
    assert 640 / 4.2e6 < limit_us(512, 128, rates) < 640 / 4.0e6


# --- only what is right is timed -------------------------------------------------------------------------------------

TRUE = np.arange(8.0)
EFFORT = Effort(repeats=3, seconds=1e-4)


def judge(results: Mapping[str, Any], strict: bool) -> float:
    return float(np.max(np.abs(results["y"] - TRUE))) / (1e-6 if strict else 1e-2)


def contender(name: str, result: Callable[[], Any], calls: list[str], ours: bool = True) -> Contender:
    return Contender(name, lambda n: calls.append(name), (lambda: {"y": result()},), ours)


def _fails() -> Any:
    raise MemoryError("out of memory")


def _unwritten() -> Any:
    out = np.full(8, np.nan)  # poisoned
    out[:7] = TRUE[:7]
    return out


@pytest.mark.parametrize(
    "broken", [lambda: TRUE + 1e-3, _unwritten, _fails, lambda: None], ids=["off", "unwritten", "raises", "none"]
)
def test_who_is_wrong_is_reported_and_never_timed(broken: Callable[[], Any]) -> None:
    calls: list[str] = []
    both = [contender("redalg", broken, calls), contender("peer", lambda: TRUE, calls, ours=False)]
    records = measure(both, judge, WallClock(), sets=2, effort=EFFORT, graph=WallClock())
    assert "error" in records["redalg"] and "us" not in records["redalg"] and best_us(records["redalg"]) is None
    assert set(calls) == {"peer"}
    assert best_us(records["peer"]) is not None


def test_every_way_to_call_is_checked() -> None:
    tries = (lambda: {"y": TRUE}, lambda: {"y": TRUE + 1})
    assert "wrong" in check(Contender("redalg", lambda n: None, tries, ours=True), judge)


def test_peers_are_held_to_the_loose_tolerance() -> None:
    results = [check(contender("a", lambda: TRUE + 1e-3, [], ours), judge) for ours in (True, False)]
    assert "wrong" in results[0] and "error" not in results[1]


def test_what_goes_wrong_while_timed_is_reported() -> None:
    state = {"calls": 0}

    def call(n: int) -> None:
        state["calls"] += 1

    racy = Contender("redalg", call, (lambda: {"y": TRUE + (state["calls"] > 3)},), ours=True)
    record = measure([racy], judge, WallClock(), sets=2, effort=EFFORT)["redalg"]
    assert record["error"].startswith("after timing") and best_us(record) is None


def test_contenders_alternate_and_sets_rotate() -> None:
    order: list[tuple[str, int]] = []

    class Clock:
        def batch(self, call: Callable[[int], Any], sets: int, count: int) -> tuple[float, float]:
            for n in range(count):
                call(n % sets)
            return 1.0 * count, 0.9 * count

    calls = {name: (lambda n, name=name: order.append((name, n))) for name in "ab"}
    times = race(calls, Clock(), sets=3, effort=Effort(repeats=2))  # type: ignore[arg-type]
    rounds = [order[i][0] for i in range(12, len(order), 3)]
    assert rounds == ["a", "b", "b", "a"]
    assert [n for name, n in order if name == "a"][:6] == [0, 1, 2, 0, 1, 2]
    assert times["a"].median == 1.0 and times["a"].bound_by_calls


# --- going on --------------------------------------------------------------------------------------------------------


def options(tmp_path: Path, *words: str) -> Any:
    return gpu.arguments_of(["--out", str(tmp_path / "cells.jsonl"), "--mib", "1", *words])


def test_finished_cells_are_skipped(tmp_path: Path) -> None:
    given = options(tmp_path, "--only", "softmax float32,argmax*x4096")
    lines = Lines(given.out)
    before = gpu.pending(given, lines)
    assert {c.operation for c in before} == {"softmax", "log_softmax", "argmax"}
    good, bad = before[0], before[1]
    lines.add({"cell": good.name, "when": 1.0, "results": {"redalg": {"us": 1.0}}})
    lines.add({"cell": bad.name, "when": 1.0, "results": {"redalg": {"error": "wrong"}, "torch": {"us": 1.0}}})
    assert gpu.pending(given, lines) == before[2:]
    assert gpu.pending(options(tmp_path, "--only", given.only, "--again"), lines) == before[1:]


def test_a_line_that_was_cut_off_counts_as_absent(tmp_path: Path) -> None:
    given = options(tmp_path)
    lines = Lines(given.out)
    names = [c.name for c in gpu.pending(given, lines)[:2]]
    lines.add({"cell": names[0], "results": {}})
    with lines.path.open("a") as file:
        file.write(json.dumps({"cell": names[1], "results": {}})[:-9])
    assert [c.name for c in gpu.pending(given, lines)][0] == names[1]
    lines.add({"ceiling": "copy", "bytes": 4, "us": 1.0})
    assert len(list(lines)) == 2


def test_a_cell_that_takes_its_process_along_is_tried_without_its_schedules(tmp_path: Path) -> None:
    given = options(tmp_path, "--only", "argmax float32*x4096")
    lines = Lines(given.out)
    (before,) = gpu.pending(given, lines)
    assert before.variants
    gpu.lost(lines, before, "an illegal access")
    (after,) = gpu.pending(given, lines)
    assert after.name == before.name and not after.variants
    assert gpu.suspects(given, lines)[after.name]["variants"] == list(before.variants)
    assert gpu.pending(options(tmp_path, "--only", given.only, "--again"), lines) == [before]
    gpu.lost(lines, after, "an illegal access")
    assert gpu.pending(given, lines) == [] and lines.cells()[after.name]["error"] == "an illegal access"


def test_what_failed_in_this_run_is_not_repeated_again() -> None:
    record = {"cell": "a", "when": time.time(), "error": "no answer", "results": {}}
    assert finished(record, failed_before=time.time() - 60) and not finished(record, failed_before=time.time() + 60)


def test_a_cell_that_never_ends_is_given_up(tmp_path: Path) -> None:
    given = options(tmp_path, "--patience", "0.1")
    Path(f"{given.out}.now").write_text(json.dumps({"cell": "a", "since": time.time()}))
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert gpu._attended(process, given) is None
    assert process.poll() is not None


# --- the table -------------------------------------------------------------------------------------------------------


def _record(ours: dict[str, Any], **peers: float) -> dict[str, Any]:
    results = {"redalg": ours, **{name: {"us": us} for name, us in peers.items()}}
    return {
        "cell": "softmax float32 4x8",
        "operation": "softmax",
        "dtype": "float32",
        "length": 8,
        "limit_us": 95.0,
        "sizes": {"i": 4, "j": 8},
        "read": 128,
        "written": 128,
        "results": results,
    }


def test_the_table_says_what_was_missed(tmp_path: Path) -> None:
    reached = "\n".join(gpu_report.goals([_record({"us": 100.0}, torch=210.0, inductor=100.5)]))
    assert "1 reach 95%" in reached and "faster in 0" in reached
    missed = "\n".join(gpu_report.goals([_record({"us": 200.0}, torch=210.0, inductor=100.0)]))
    assert "0 reach" in missed and "48%" in missed and "inductor, 0.50 of our time" in missed
    wrong = "\n".join(gpu_report.goals([_record({"error": "wrong: 3 times the tolerance", "wrong": "3.0"}, torch=1.0)]))
    assert "0 cells timed" in wrong and "failed" in wrong
    lines = Lines(tmp_path / "cells.jsonl")
    lines.add({"conditions": "a device."})
    lines.add(_record({"us": 200.0, "graph_us": 100.0, "schedule": "Schedule(threads=32, exact=True)"}, torch=210.0))
    text = gpu_report.markdown(lines)
    assert "| 100.0 | 95 % | 210.0 (2.10x) | - | - | threads=32, exact |" in text and "a device." in text


# --- the judge of the GPU's results, where PyTorch is installed ------------------------------------------------------


def judged(name: str, dtype: str, change: Callable[[dict[str, Any]], Any], strict: bool = True) -> float:
    """The judge's number for the float64 reference, rounded to the dtype and then changed."""
    torch = pytest.importorskip("torch")
    from benchmarks.gpu.lab import Lab
    from benchmarks.gpu.peers import PEERS

    made = cell(name, dtype, 64, 1 << 14)
    assert made is not None
    lab = Lab("numpy", torch.device("cpu"))
    arguments = lab.sets(made, seed=3)[0]
    wide = {n: a.double() if torch.is_tensor(a) and a.is_floating_point() else a for n, a in arguments.items()}
    true = PEERS[name](**wide)
    results = {n: t if t.dtype == torch.int64 else t.to(getattr(torch, dtype)) for n, t in true.items()}
    change(results)
    return float(lab.judge(made, arguments)(results, strict))


@pytest.mark.parametrize("name", [n for n in OPERATIONS if n != "column_variance"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_reference_itself_is_right(name: str, dtype: str) -> None:
    assert judged(name, dtype, lambda results: None, strict=name != "argmax") <= 1


def _swap(results: dict[str, Any]) -> None:
    results["experts"][0, :2] = results["experts"][0, :2].flip(0)


def _repeat(results: dict[str, Any]) -> None:
    results["experts"][3, 7] = results["experts"][3, 6]


def _outside(results: dict[str, Any]) -> None:
    results["experts"][1, 1] = 64


@pytest.mark.parametrize("change", [_swap, _repeat, _outside])
def test_wrong_experts_are_found(change: Callable[[dict[str, Any]], None]) -> None:
    assert not judged("softmax_top8", "float32", change) <= 1


def _poisoned(results: dict[str, Any]) -> None:
    next(iter(results.values()))[-1] = float("nan")


def _one_ulp(results: dict[str, Any]) -> None:
    out = next(iter(results.values()))
    out[0] = out[0] * (1 + 2.0**-6)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "logsumexp", "fp8_quantise", "log_relu"])
@pytest.mark.parametrize("change", [_poisoned, _one_ulp])
def test_errors_of_one_row_are_found(name: str, change: Callable[[dict[str, Any]], None]) -> None:
    assert not judged(name, "float32", change) <= 1
    if change is _poisoned:
        assert not judged(name, "bfloat16", change, strict=False) <= 1


def test_a_later_maximum_is_wrong() -> None:
    def later(results: dict[str, Any]) -> None:
        results["position"][0] += 1

    assert not judged("argmax", "float32", later) <= 1


# --- counters --------------------------------------------------------------------------------------------------------


def test_kernels_are_counted_with_the_call_that_launched_them() -> None:
    counters = [gpu_counters.READ, gpu_counters.WRITTEN, gpu_counters.TIME, *gpu_counters.SHARES]
    head = ",".join(f'"{c}"' for c in ("ID", "Kernel Name", *counters))
    units = ",".join('"x"' for _ in range(len(counters) + 2))
    names = ["a_kernel", "void FillFunctor<float>", "a_kernel", "b_kernel", "void FillFunctor<float>"]
    numbers = [1, 99, 2, 3, 99]
    rows = [
        ",".join(f'"{c}"' for c in (k, name, *(f"{number},000" for _ in counters)))
        for k, (name, number) in enumerate(zip(names, numbers, strict=True))
    ]
    said = ["==PROF== Connected", 'cell {"cell": "one", "moved": 2000}', '50%cell {"cell": "two", "moved": 3000}']
    one, two = gpu_counters.lines("\n".join([*said, head, units, *rows]), counters)
    assert (one["kernels"], one["read"], one["us"]) == (1, 1000.0, 1.0)
    assert (two["kernels"], two["read"], two["written"], two["shares"]["L2"]) == (2, 5000.0, 5000.0, 3000.0)
    missing = list(gpu_counters.lines("\n".join(said), counters))
    assert missing == []  # the profiler was refused the counters


# --- the random table ------------------------------------------------------------------------------------------------


def test_random_cells_are_checked_timed_and_resumed_with_their_layouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    cells = [
        RandomCell("softmax", "float32", (("i", 5), ("j", 13)), transposed=True),
        RandomCell("absmax", "float16", (("i", 7), ("j", 9))),
    ]
    monkeypatch.setattr(random_table, "known", lambda: iter(cells))
    words = ["--out", str(tmp_path / "t.jsonl"), "--cells", "known", "--peers", "1", "--modes", "", "--target", "numpy"]
    random_table.main(words)
    lines = Lines(tmp_path / "t.jsonl")
    found = lines.cells()
    assert set(found) == {"softmax float32 5x13 transposed", "absmax float16 7x9"}
    for record in found.values():
        assert {"redalg", "torch"} == set(record["results"]) and record["limit_us"] > 0
        assert "error" not in record["results"]["redalg"], record
    random_table.main(words)
    assert len([r for r in lines if "cell" in r]) == 2
    assert "| softmax float32 5x13 transposed |" in random_table.report(lines)


def test_random_cells_have_the_sizes_that_are_promised() -> None:
    cells = random_cells.drawn("a day", 60)
    assert len({c.name for c in cells}) == 60
    for c in cells:
        size = ITEMSIZE[c.dtype] * c.lengths["i"] * c.lengths["j"]
        assert size <= random_cells.MOST and random_cells.SHORTEST <= c.length <= random_cells.LONGEST
    assert {c.operation for c in cells} >= {"softmax", "argmax"} and {c.dtype for c in cells} == {*random_cells.DTYPES}
