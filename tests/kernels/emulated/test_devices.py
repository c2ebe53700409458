"""Devices: facts from the driver, what plans may take of them, and what comes after a plan that a device refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cuda import run as cuda_run
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch import driver
from redalg.kernels.launch.driver import NotLaunched, facts_of, with_bandwidth
from redalg.kernels.launch.planned import Planned
from redalg.kernels.launch.store import Disk
from redalg.kernels.pipeline import plan, plans, situation
from redalg.kernels.schedule.calibration import MEASURED, calibration_of
from redalg.kernels.schedule.case import Case, prefetch_bytes, states_bytes
from redalg.kernels.schedule.families import candidates_of
from redalg.kernels.schedule.legality import refusals
from redalg.kernels.schedule.target import A100, H200, TABLE, Target
from tests.support.gpu_standins import Tensor, host_marks, launches_of_nothing
from tests.support.sample import deep

SMALL = [
    Target.of({"name": name, "cc": cc, "multiprocessors": count})
    for name, cc, count in (("A10", "8.6", 72), ("L4", "8.9", 58), ("RTX 5090", "12.0", 170), ("unknown", "13.7", 100))
]
SPECS = {"attention": 2048, "softmax": 1 << 16, "layer_norm": 1 << 16, "splade": 2048, "layer_norm_gemm": 2048}


class Device:
    """A driver with one device, of which it tells attributes by name; copies take `seconds` each."""

    def __init__(self, name: str, seconds: float = 0.5e-3, **facts: int) -> None:
        names = {f"CU_DEVICE_ATTRIBUTE_{word}": word for word in facts}
        self.CUdevice_attribute = SimpleNamespace(**names)
        self.name, self.facts, self.seconds, self.copies, self.taken = name, facts, seconds, 0, 0
        self.fails = False

    def cuDeviceGet(self, device: int) -> Any:
        return 0, device

    def cuDeviceGetName(self, length: int, handle: int) -> Any:
        return 0, self.name.encode().ljust(length, b"\0")

    def cuDeviceGetAttribute(self, kind: str, handle: int) -> Any:
        return 0, self.facts[kind]

    def cuMemAlloc(self, size: int) -> Any:
        self.taken += 1
        return (2, None) if self.fails else (0, self.taken)

    def cuMemFree(self, place: int) -> Any:
        self.taken -= 1
        return (0,)

    def cuMemcpyDtoDAsync(self, *_: Any) -> Any:
        self.copies += 1
        return (0,)

    def cuEventElapsedTime(self, *_: Any) -> Any:
        return 0, self.seconds * 1e3

    def __getattr__(self, name: str) -> Any:
        return lambda *_: (0, 1) if "Create" in name else (0,)


ADA = {
    "COMPUTE_CAPABILITY_MAJOR": 8,
    "COMPUTE_CAPABILITY_MINOR": 9,
    "MULTIPROCESSOR_COUNT": 58,
    "L2_CACHE_SIZE": 48 << 20,
    "CLOCK_RATE": 2_040_000,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_THREADS_PER_MULTIPROCESSOR": 1536,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 24,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 << 10,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 99 << 10,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 100 << 10,
    "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": 64,
}


def test_facts_are_read_from_the_driver() -> None:
    found = Target.of(facts_of(Device("NVIDIA L4", **ADA), 0))
    assert (found.cc, found.multiprocessors, found.clock, found.l2) == ((8, 9), 58, 2.04e9, 48 << 20)
    assert (found.block.optin_shared, found.most_shared, found.multiprocessor.shared) == (99 << 10, 99 << 10, 100 << 10)
    assert found.multiprocessor == (65536, 1536, 24, 100 << 10) and found.double == 1 / 64


def test_what_a_driver_does_not_say_is_what_the_guide_says() -> None:
    known = {k: v for k, v in ADA.items() if k.startswith(("COMPUTE", "MULTI"))}
    found = Target.of(facts_of(Device("NVIDIA L4", **known), 0))
    assert (found.most_shared, *found.multiprocessor[1:]) == (99 << 10, 1536, 24, 100 << 10)


@pytest.mark.parametrize("part", TABLE, ids=lambda t: t.name)
def test_the_driver_changes_nothing_for_devices_of_the_table(part: Target) -> None:
    """Schedules and plans are chosen by the same facts, but for the clock and L2 that a part was sold with."""
    facts = {
        "COMPUTE_CAPABILITY_MAJOR": part.cc[0],
        "COMPUTE_CAPABILITY_MINOR": part.cc[1],
        "MULTIPROCESSOR_COUNT": part.multiprocessors,
        "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": part.most_shared,
        "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": part.multiprocessor.shared,
        "MAX_BLOCKS_PER_MULTIPROCESSOR": part.multiprocessor.blocks,
        "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": round(1 / part.double),
    }
    found = Target.of(facts_of(Device(f"NVIDIA {part.name}", **facts), 0))
    assert found.listed and found.having(name=part.name, optin_shared=0) == part


# --- bandwidth -------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "activate", lambda device: None)


def test_bandwidth_is_measured_once_and_kept(tmp_path: Path, no_context: None) -> None:
    disk, device, target = Disk(tmp_path / "kept"), Device("NVIDIA L4", 1e-3, **ADA), SMALL[1]
    found = with_bandwidth(device, 0, target, disk)
    assert found.reachable == pytest.approx(2 * (1 << 28) / 1e-3) and device.copies > 1 and device.taken == 0
    silent = Device("NVIDIA L4", 7.0, **ADA)
    assert with_bandwidth(silent, 0, target, disk) == found and silent.copies == 0
    assert with_bandwidth(silent, 0, replace(target, name="L40"), disk).reachable < found.reachable


def test_bandwidth_that_cannot_be_measured_is_guessed_and_not_kept(tmp_path: Path, no_context: None) -> None:
    disk, device = Disk(tmp_path / "kept"), Device("NVIDIA L4", **ADA)
    device.fails = True
    assert with_bandwidth(device, 0, SMALL[1], disk) == SMALL[1]
    device.fails = False
    assert with_bandwidth(device, 0, SMALL[1], disk) != SMALL[1]


def test_every_device_has_a_record_of_constants() -> None:
    assert all(calibration_of(t.name) in MEASURED.values() for t in (*TABLE, *SMALL))


# --- shared memory ---------------------------------------------------------------------------------------------------


def everything(made: Planned) -> Iterator[Planned]:
    yield made
    for part in made.before:
        yield from everything(part)


def views_of(name: str, length: int) -> tuple[ra.Form, dict[str, Any], dict[str, View]]:
    form = ra.derive_incremental(ra.catalog[name], max_passes=2)
    sizes = {a: {"i": 1024, "j": length, "d": 128, "e": 128}.get(a, 64) for t in form.spec.tensors for a in t.axes}
    dtypes = {t.name: "bfloat16" if t.axes else float for t in form.spec.tensors}
    return form, dtypes, {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors if t.axes}


@pytest.mark.filterwarnings("ignore:slow")
@pytest.mark.parametrize("target", [SMALL[0], *deep(SMALL[1:])], ids=lambda t: f"{t.name} {t.cc}")
@pytest.mark.parametrize("name", SPECS)
def test_no_plan_takes_more_shared_memory_than_a_block_may_have(name: str, target: Target) -> None:
    assert target.most_shared == 99 << 10
    about = views_of(name, SPECS[name])
    for made in everything(plan(*about, target)):
        assert made.module.shared <= 99 << 10, made.choice.schedule
    case = Case.of(*situation(*about), target)
    for s in candidates_of(case):
        assert states_bytes(case.work, s) + prefetch_bytes(case.work, s) <= 99 << 10, s


@pytest.mark.parametrize("shared", [227 << 10, 99 << 10, *deep([163 << 10, 112 << 10])])
@pytest.mark.parametrize("name", ["attention", "splade", "layer_norm_gemm"])
def test_tiles_fit_what_the_driver_says(name: str, shared: int) -> None:
    """Of one compute capability, whatever a block may have."""
    target = H200.having(optin_shared=shared)
    for made in everything(plan(*views_of(name, 2048), target)):
        assert made.module.shared <= shared


def test_prefetched_rows_that_do_not_fit_are_refused() -> None:
    form, dtypes, views = views_of("softmax", 1 << 16)
    about = situation(form, dtypes, views)
    case = Case.of(*about, replace(A100, cc=(8, 0)))
    large = next(s for s in candidates_of(case) if s.prefetch and prefetch_bytes(case.work, s) > 99 << 10)
    assert next(refusals(case, large), None) is None
    assert any("shared memory" in why for why, _ in refusals(Case.of(*about, replace(A100, cc=(8, 6))), large))


# --- products ---------------------------------------------------------------------------------------------------------


def test_a_product_without_tensor_cores_warns_in_four_parts() -> None:
    with pytest.warns(UserWarning, match="slow: .* without tensor cores on A100") as told:
        plan(*views_of("layer_norm_gemm", 2048), A100.having(cc=(7, 5)))
    assert [line.split(":")[0] for line in str(told[0].message).splitlines()] == ["slow", "where", "why", "try"]


# --- launches that fail ----------------------------------------------------------------------------------------------


def compiled(monkeypatch: pytest.MonkeyPatch, fails: int, loading: bool, schedule: Any = None) -> Any:
    """A run whose first launches fail, and its plans' block sizes as they are tried."""
    launches_of_nothing(monkeypatch)
    tried: list[int] = []

    def launch(module: Any, cc: Any, limit: Any, geometry: Any, fixed: Any) -> Any:
        tried.append(geometry.threads)
        refused = NotLaunched("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)", f"launching {module.entry}", "why", "fix")
        number = len(tried)

        def go(values: Any, stream: int) -> None:
            if number <= fails:
                raise refused

        if loading and number <= fails:
            raise refused
        return go

    monkeypatch.setattr(cuda_run, "Launch", launch)
    host_marks(monkeypatch)
    run = ra.derive_incremental(ra.catalog["softmax"]).compile("cuda", schedule=schedule)
    return run, tried


@pytest.mark.parametrize("loading", [False, True], ids=["launching", "loading"])
@pytest.mark.parametrize("fails", [1, *deep([2])])
def test_a_launch_that_fails_falls_back_to_the_next_plan(
    monkeypatch: pytest.MonkeyPatch, fails: int, loading: bool
) -> None:
    run, tried = compiled(monkeypatch, fails, loading)
    x = Tensor((4096, 4096))
    run(x=x)
    assert len(tried) == fails + 1 and sorted(set(tried), reverse=True) == tried, "smaller and smaller blocks"
    assert run.explain().count("instead of a plan that the device refused") == fails
    run(x=x)
    assert len(tried) == fails + 1, "the plan that ran is remembered"


def test_after_the_last_plan_the_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run, tried = compiled(monkeypatch, 99, False)
    with pytest.raises(RedalgError, match="OUT_OF_RESOURCES"):
        run(x=Tensor((4096, 4096)))
    assert 2 <= len(tried) <= 5


def test_a_schedule_by_name_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    run, tried = compiled(monkeypatch, 1, False, "warp")
    with pytest.raises(NotLaunched):
        run(x=Tensor((4096, 4096)))
    assert len(tried) == 1


def test_attention_falls_back_to_mma_and_to_rows() -> None:
    found = list(plans(*views_of("attention", 2048), H200))
    assert ["intrinsics.mma import" in p.module.source or "mma.sync" in p.choice.reasons[0] for p in found[:2]] == [
        False,
        True,
    ]
    assert found[0].module.threads and not found[2].module.threads and len(found) >= 3
