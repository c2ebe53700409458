"""Where cells are run: PyTorch tensors on a GPU (or, to try the harness, on the CPU), poisoned memory, clocks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from benchmarks.gpu.cells import SCHEDULES, Cell
from benchmarks.gpu.peers import PEERS, Judge
from benchmarks.harness.measuring import Call, Clock, Contender, Record, WallClock
from benchmarks.harness.processes import conditions

Arguments = dict[str, Any]
INTEGER_POISON = -(1 << 62)
AUTOTUNE = "max-autotune-no-cudagraphs"  # of `torch.compile`; captured graphs are timed for all alike
ROTATE = 256 << 20  # bytes that pass between two uses of the same argument; the L2 of an H200 holds 60 MB
SPIN = 400_000  # cycles that the device is kept busy while the first calls of a batch are enqueued, 0.2 ms


class EventClock:
    """Device time between two CUDA events around calls that are enqueued without waiting."""

    def batch(self, call: Call, sets: int, count: int) -> tuple[float, float]:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(SPIN)
        start.record()
        begin = time.perf_counter()
        for n in range(count):
            call(n % sets)
        host = time.perf_counter() - begin
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e-3, host


class GraphClock:
    """Device time of a CUDA graph that holds one call for every set, replayed: the caller's time does not count."""

    def __init__(self) -> None:
        self.graphs: dict[Call, Any] = {}

    def batch(self, call: Call, sets: int, count: int) -> tuple[float, float]:
        graph = self.graphs.get(call)
        if graph is None:
            graph = self.graphs[call] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for n in range(sets):
                    call(n)
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(SPIN)
        start.record()
        for _ in range(max(1, count // sets)):
            graph.replay()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e-3, 0.0


def _drawn(draw: str, shape: tuple[int, ...], dtype: Any, device: Any, lengths: Mapping[str, int], rng: Any) -> Any:
    if not shape:
        return float(draw)
    if draw.startswith("below:"):
        return torch.randint(0, lengths[draw.removeprefix("below:")], shape, device=device, generator=rng)
    wide = torch.empty(shape, device=device, dtype=torch.float32)
    if draw == "normal":
        return wide.normal_(0.5, 2.0, generator=rng).to(dtype)
    wide.uniform_(0.25, 2.0, generator=rng)
    if draw == "probability":
        wide.div_(wide.sum(-1, keepdim=True))
    return wide.to(dtype)


@dataclass
class Lab:
    """A device and the target our forms are compiled for."""

    target: str
    device: Any
    compiled: Any = None  # torch.compile, or what stands for it

    @classmethod
    def here(cls, target: str) -> Lab:
        return cls(target, torch.device("cuda" if target == "cuda" else "cpu"), torch.compile)

    @property
    def on_gpu(self) -> bool:
        return bool(self.device.type == "cuda")

    def clocks(self) -> tuple[Clock, Clock | None]:
        """For calls as they are, and without the caller's own time (None where there is no such thing)."""
        return (EventClock(), GraphClock()) if self.on_gpu else (WallClock(), None)

    def finish(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def sets(self, cell: Cell, seed: int, count: int | None = None) -> list[Arguments]:
        """Fresh random arguments, as many sets as it takes to keep the cache cold; at least two."""
        rotate = ROTATE if self.on_gpu else 0
        made = max(2, 1 + rotate // max(1, cell.traffic[0])) if count is None else count
        rng = torch.Generator(device=self.device).manual_seed(seed)
        dtype = getattr(torch, cell.dtype)
        shapes = cell.op.arguments(cell.lengths)
        return [
            {name: _drawn(d, s, dtype, self.device, cell.lengths, rng) for name, (s, d) in shapes.items()}
            for _ in range(made)
        ]

    def judge(self, cell: Cell, arguments: Arguments) -> Judge:
        return Judge(cell.operation, cell.dtype, cell.op.results(cell.lengths, cell.dtype), arguments)

    def poisoned(self, cell: Cell) -> dict[str, Any]:
        """Results as they must not stay: NaN, and integers that are no position."""
        return {
            name: torch.full(
                shape,
                INTEGER_POISON if dtype == "int64" else float("nan"),
                dtype=getattr(torch, dtype),
                device=self.device,
            )
            for name, (shape, dtype) in cell.op.results(cell.lengths, cell.dtype).items()
        }

    # --- contenders --------------------------------------------------------------------------------------------------

    def ours(self, cell: Cell, name: str, sets: list[Arguments]) -> Contender:
        """The form, compiled with the options of `SCHEDULES[name]`.

        Checked with poisoned results given, and without, in memory that was poisoned and freed.
        """
        run: Any = None

        def made() -> Any:
            nonlocal run
            if run is None:
                run = cell.op.form.compile(self.target, **SCHEDULES.get(name, {}))
            return run

        def given() -> Mapping[str, Any]:
            into = self.poisoned(cell)
            made()(**sets[0], out=into if len(into) > 1 else next(iter(into.values())))
            self.finish()
            return into

        def alone() -> Mapping[str, Any]:
            names = list(self.poisoned(cell))  # freed at once: the allocator hands the same memory out again
            found = made()(**sets[0])
            self.finish()
            return found if isinstance(found, dict) else {names[0]: found}

        def notes() -> Record:
            return {"schedule": repr(made().schedule)}

        def call(n: int) -> Any:
            return run(**sets[n])

        return Contender(name, call, (given, alone), ours=True, notes=notes)

    def eager(self, cell: Cell, sets: list[Arguments]) -> Contender:
        return self._peer("torch", PEERS[cell.operation], sets)

    def inductor(self, cell: Cell, sets: list[Arguments], mode: str = "default") -> Contender:
        """torch.compile with static shapes, in its default mode or another.

        Caches of compiled functions are emptied, so that no cell meets a limit.
        """
        torch._dynamo.reset()
        function = self.compiled(PEERS[cell.operation], dynamic=False, fullgraph=True, mode=mode)
        return self._peer("inductor" if mode == "default" else "inductor max-autotune", function, sets)

    def _peer(self, name: str, function: Any, sets: list[Arguments]) -> Contender:
        def first() -> Mapping[str, Any]:
            found: Mapping[str, Any] = function(**sets[0])
            self.finish()
            return found

        return Contender(name, lambda n: function(**sets[n]), (first,))

    def contenders(self, cell: Cell, sets: list[Arguments], inductor: bool) -> list[Contender]:
        """Ours first: what the library chooses, then the schedules that the cell asks for; then the peers."""
        found = [self.ours(cell, name, sets) for name in ("redalg", *cell.variants)]
        found.append(self.eager(cell, sets))
        if inductor:
            found += [self.inductor(cell, sets), self.inductor(cell, sets, AUTOTUNE)]
        return found

    def describe(self) -> str:
        """Date, device and versions."""
        parts = [conditions().rstrip(".")]
        if self.on_gpu:
            facts = torch.cuda.get_device_properties(self.device)
            cache = facts.L2_cache_size >> 20
            parts.insert(0, f"{facts.name}, {facts.multi_processor_count} multiprocessors, {cache} MiB of L2")
        names = ("torch", "triton", "numba", "numba-cuda", "cuda-bindings", "redalg")
        return ", ".join([*parts, *(f"{n} {_version(n)}" for n in names)]) + "."


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
