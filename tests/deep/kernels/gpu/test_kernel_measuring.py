"""``schedule="measure"``: which schedules are timed, who wins, what is remembered, with clocks that are made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.cpu import measure as cpu_measuring
from redalg.kernels.cpu.run import CpuRun
from redalg.kernels.cuda import measure as measuring
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.schedule import MMA, TENSOR, Schedule
from redalg.kernels.pipeline import plan, situation
from redalg.kernels.schedule.choose import choose, rank
from redalg.kernels.schedule.target import A100, H100, H200
from redalg.kernels.schedule.tuning import MOST, Time, Way, candidates, digest, key_of, measure, race
from tests.support.kernel_cases import NAMES, case_of, program


class Kept(dict):
    def put(self, key: str, value: Any) -> None:
        self[key] = value


def never(ways: Sequence[Way]) -> list[Time]:
    raise AssertionError("measured again")


# --- which schedules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_candidates_begin_with_the_models_choice_and_hold_the_best_of_every_family(name: str) -> None:
    p = program(name)
    sizes, walk, case = case_of(p, 512, 4096)
    found, ranked = candidates(p, sizes, walk, H200), rank(case)
    assert found[0] == choose(p, sizes, walk, H200).schedule == ranked[0][0]
    assert len(found) == len(set(found)) <= MOST and (len(found) == MOST or len(found) == len(ranked))
    least = min(e.seconds for _, e in ranked)
    for s, e in ranked:
        if e.seconds <= 2.9 * least and s.family not in {f.family for f in found}:
            pytest.fail(f"no {s.family} among them")


def test_few_candidates_are_the_first_of_many() -> None:
    p = program("softmax")
    sizes, walk, _ = case_of(p, 512, 512)
    assert candidates(p, sizes, walk, H200, 6) == candidates(p, sizes, walk, H200)[:6]
    assert len(candidates(p, sizes, walk, H200, 0)) == 1


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "variance", "argmax", "attention"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_deterministic_candidates_differ_in_nothing_that_changes_the_order_of_a_sum(name: str, order: str) -> None:
    p = program(name)
    sizes, walk, _ = case_of(p, 512, 4096, order=order)
    found = candidates(p, sizes, walk, H200, deterministic=True)
    assert found[0] == choose(p, sizes, walk, H200, deterministic=True).schedule
    assert {replace(s, rows=1, persistent=False) for s in found} == {replace(found[0], rows=1, persistent=False)}
    assert all(s.deterministic for s in found)


# --- races -----------------------------------------------------------------------------------------------------------


def test_medians_are_taken_in_turns_and_the_first_run_does_not_count() -> None:
    called: list[str] = []

    def run(name: str) -> Callable[[], str]:
        return lambda: name

    times = {"a": iter([99.0, 1, 50, 2, 1, 1, 2, 2, 2, 2]), "b": iter([99.0, 3, 3, 2.9, 3, 3, 3, 3, 3, 3])}

    def seconds(done: Callable[[], str]) -> float:
        called.append(done())
        return next(times[called[-1]]) * 1e-3

    assert race([run("a"), run("b")], seconds) == [2e-3, 3e-3]
    assert called == ["a", "b"] * 10


def test_the_hopeless_are_run_three_times_and_the_slow_are_not_run_often() -> None:
    called: list[float] = []

    def seconds(run: Callable[[], float]) -> float:
        called.append(run())
        return called[-1]

    assert race([lambda: 1e-3, lambda: 1e-2], seconds) == [1e-3, 1e-2]
    assert called.count(1e-2) == 4 and called.count(1e-3) == 10
    called.clear()
    assert race([lambda: 2.0, lambda: 2.5], seconds) == [2.0, 2.5] and len(called) == 8
    called.clear()
    assert race([lambda: 2e-6, lambda: 4e-6], seconds) == [2e-6, 4e-6]  # events tell half a microsecond apart
    assert called.count(2e-6) > 50 and called.count(4e-6) == 4


def test_what_cannot_run_has_its_error_as_its_time() -> None:
    def broken() -> None:
        raise RuntimeError("too many resources requested")

    refused = ValueError("refused")
    found = race([broken, refused, lambda: None], lambda run: (run(), 1.0)[1])  # type: ignore[func-returns-value]
    assert isinstance(found[0], RuntimeError) and found[1:] == [refused, 1.0]


# --- winners ---------------------------------------------------------------------------------------------------------

A, B, C = (Schedule(threads=t) for t in (32, 64, 128))


def test_the_fastest_wins_and_the_models_choice_where_it_is_as_fast() -> None:
    assert measure([A, B, C], lambda ways: [3.0, 1.0, 2.0]).way == B
    assert measure([A, B, C], lambda ways: [1.009, 1.0, 2.0]).way == A
    assert measure([A, B, C], lambda ways: [1.02, 1.0, 2.0]).way == B
    assert measure([A, TENSOR], lambda ways: [2.0, 1.0]).way == TENSOR


def test_ways_that_fail_are_passed_over_and_the_last_error_is_raised_if_all_do() -> None:
    found = measure([A, B], lambda ways: [RuntimeError("one"), 2e-6])
    assert found.way == B and found.times == ((B, 2e-6),) and "the only one" in found.lines()[0]
    with pytest.raises(RuntimeError, match="two"):
        measure([A, B], lambda ways: [RuntimeError("one"), RuntimeError("two")])


def test_winners_are_remembered_and_damaged_or_illegal_entries_measured_anew() -> None:
    store = Kept()
    first = measure([A, B], lambda ways: [2e-6, 1e-6], "k", store)
    again = measure([A, B], never, "k", store)
    assert again == replace(first, remembered=True) and again.lines()[0].startswith("measured by an earlier call: 1.0")
    whole = dict(store["k"])
    damaged: list[Any] = [None, {}, {"way": "x"}, {**whole, "times": []}, {**whole, "way": {"threads": 1}}]
    damaged += [{**whole, "times": [["tensor", "fast"]]}, {**whole, "way": {**asdict(B), "threads": "many"}}]
    for entry in damaged:
        store["k"] = entry
        assert not measure([A, B], lambda ways: [1e-6, 2e-6], "k", store).remembered
    assert measure([A, B], lambda ways: [2e-6, 1e-6], "k", store, legal=lambda way: way == B).way == B


def test_keys_tell_programs_lengths_strides_devices_and_versions_apart() -> None:
    p = program("softmax")
    sizes, walk, _ = case_of(p, 512, 512)
    key = key_of(p, sizes, walk, H200)
    assert key == key_of(p, {**sizes, "i": 1000}, walk, H200) == key_of(replace(p), sizes, walk, H200)
    others = [
        key_of(p, {**sizes, "i": 1024}, walk, H200),
        key_of(p, {**sizes, "j": 513}, walk, H200),
        key_of(p, sizes, case_of(p, 512, 512, pad=1)[1], H200),
        key_of(p, sizes, walk, H100),
        key_of(p, sizes, walk, replace(H200, multiprocessors=78)),
        key_of(p, sizes, walk, H200, True),
        key_of(p, sizes, walk, H200, False, "0.2"),
        key_of(program("log_softmax"), sizes, walk, H200),
    ]
    assert len({key, *others}) == 1 + len(others)
    assert digest(p) == digest(replace(p)) != digest(program("logsumexp"))


# --- calls -----------------------------------------------------------------------------------------------------------


def softmax(rows: int, length: int) -> tuple[Any, ...]:
    form = ra.derive_incremental(ra.catalog["softmax"])
    return form, {"x": "float32"}, {"x": View.contiguous((rows, length))}, H200


def fake(about: tuple[Any, ...], way: Way) -> Any:
    return SimpleNamespace(planned=plan(*about, schedule=way))


def test_a_call_takes_the_winner_and_says_what_was_measured() -> None:
    about, store = softmax(512, 512), Kept()
    ways, key = measuring.ways_of(*about)
    times = {w: 1e-6 * (5 + i) for i, w in enumerate(ways)} | {ways[3]: 2e-6}
    made: list[Way] = []

    def make(way: Way) -> Any:
        made.append(way)
        if way == ways[1]:
            raise RuntimeError("no room")
        return fake(about, way)

    def timed(several: Sequence[Any]) -> list[Time]:
        return [r if isinstance(r, Exception) else times[r.planned.choice.schedule] for r in several]

    legal = measuring.is_legal(*about)
    found = measuring.fastest(ways, key, make, timed, store, legal)
    assert found.planned.choice.schedule == ways[3] and made == ways
    reasons = found.planned.choice.reasons
    assert "2.0 µs, the fastest of 15" in reasons[1] and str(ways[3]) in reasons[2] and str(ways[0]) in reasons[3]
    assert not any(line.startswith("asked for") for line in reasons)
    made.clear()
    again = measuring.fastest(ways, key, make, never, store, legal)  # type: ignore[arg-type]
    assert made == [ways[3]] and again.planned.choice.reasons[1].startswith("measured by an earlier call")
    assert not legal(replace(ways[0], tile=99)) and not legal(TENSOR) and all(map(legal, ways))


def test_tensor_cores_are_one_way_and_slow_kernels_no_others() -> None:
    form = ra.derive_incremental(ra.catalog["attention"])
    views = {n: View.contiguous((4, 256, 64)) for n in "QKV"}
    dtypes = {"Q": "bfloat16", "K": "bfloat16", "V": "bfloat16", "scale": float}
    ways, _ = measuring.ways_of(form, dtypes, views, H200)
    assert ways[:2] == [TENSOR, MMA] and len(ways) <= MOST
    assert measuring.ways_of(form, dtypes, views, A100)[0][0] == TENSOR
    assert MMA not in measuring.ways_of(form, dtypes, views, A100)[0]  # there it is the same kernel
    assert measuring.ways_of(form, dtypes, views, H200, deterministic=True)[0] == [TENSOR]
    big = {n: View.contiguous((16, 4096, 128)) for n in "QKV"}
    assert measuring.ways_of(form, dtypes, big, H200)[0] == [TENSOR, MMA]
    program, sizes, walk = situation(form, dtypes, views)
    assert sizes["i"] == 256 and candidates(program, sizes, walk, H200)


# --- CPU -------------------------------------------------------------------------------------------------------------


def test_a_cpu_run_measures_once_and_computes_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    form, x = ra.derive_incremental(ra.catalog["softmax"]), np.random.default_rng(1).normal(size=(3, 200000))
    counted: list[int] = []

    def clock(run: Callable[[], Any]) -> float:
        run()
        counted.append(1)
        return 1.0 if len(counted) % 2 else 0.5  # ways take turns: the second is the faster one

    monkeypatch.setattr(cpu_measuring.fastest, "__defaults__", (None, clock))
    for number in (1, 2):
        run = form.compile("cpu", schedule="measure")
        assert "chosen by the first call" in run.schedule
        np.testing.assert_allclose(run(x=x), ra.reference(form.spec, x=x), rtol=1e-12)
        told = run.explain().rpartition("schedule:")[2]
        assert ("measured by an earlier call" in told) == (number == 2) and "the fastest of 2" in told
        assert told.strip().startswith("rows shared out") and len(counted) == 8
    fixed = CpuRun(form, "measure", True)
    fixed(x=x)
    assert "in splits" in fixed.schedule and "nothing to measure" in fixed.explain() and len(counted) == 8


# --- GPU -------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["softmax", "logsumexp", "argmax"])
def test_a_gpu_run_measures_once(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    form, x = ra.derive_incremental(ra.catalog[name]), torch.randn(300, 1000, device="cuda")
    kept = x.clone()
    run = form.compile("cuda", schedule="measure")
    assert run.source and "measured" not in run.explain()
    with pytest.raises(ra.RedalgError, match="before the capture"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            run(x=x)
    torch.testing.assert_close(run(x=x).double(), form.compile("cuda")(x=x).double(), rtol=1e-5, atol=1e-6)
    assert "measured on the arrays of the first call" in run.explain() and torch.equal(x, kept)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        run(x=x)
    again = form.compile("cuda", schedule="measure")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):  # the winner is known: nothing is timed
        again(x=x)
    assert "measured by an earlier call" in again.explain() and again.schedule == run.schedule
    out = np.zeros(form.compile("cpu")(x=kept.cpu().numpy()).shape, "int64" if name == "argmax" else "float32")
    np.testing.assert_allclose(run(x=kept.cpu().numpy(), out=out), form.compile("cpu")(x=kept.cpu().numpy()), rtol=1e-5)
    fixed = form.compile("cuda", schedule="measure", deterministic=True)
    assert torch.equal(fixed(x=x), form.compile("cuda", deterministic=True)(x=x))
