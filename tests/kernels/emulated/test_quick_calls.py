"""Second calls of a kind on a GPU: what they launch beside what the first, general one does, and what they refuse."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.cuda import quick
from redalg.kernels.cuda.counters import Counters
from redalg.kernels.cuda.run import CudaRun
from redalg.kernels.launch import driver
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.tensor_maps import TensorMaps
from tests.support import gpu_standins
from tests.support.forms import Forms
from tests.support.gpu_standins import BASE, Place, Tensor
from tests.support.sample import deep, one_in

SPECS = {
    "softmax": ra.catalog["softmax"],
    "two outputs": ra.parse("return s = sum[j](x[i,j]), m = max[j](x[i,j])"),
    "scalars": ra.parse("tensors x[i,j], eps, k integer; return y = x[i,j] / sqrt(eps + sum[j](x[i,j]**2)) + k"),
    "row weights": ra.parse("return y = x[i,j] * w[j] / max[j](abs(x[i,j]))"),
}
NUMBERS = {"eps": 0.5, "k": 3}
COLUMN_SOFTMAX = ra.parse("m = max[t](x[t,c]); e = exp(x[t,c] - m); return y = e/sum[t](e)")
LONG = {  # kernels with scratch, counters, descriptors of tensors, several launches
    "split": (ra.catalog["logsumexp"], {"i": 1, "j": 1 << 22}, "float32"),
    "waiting": (ra.catalog["softmax"], {"i": 2, "j": 1 << 21}, "float32"),
    "attention": (ra.catalog["attention"], {"h": 16, "i": 512, "j": 1024, "d": 128, "e": 128}, "bfloat16"),
    "decoding": (ra.catalog["attention"], {"h": 4, "i": 1, "j": 1 << 15, "d": 128, "e": 128}, "bfloat16"),
    "columns": (ra.catalog["batch_norm"], None, "float32"),
    "two steps": (COLUMN_SOFTMAX, {"t": (1 << 16) + 3, "c": 33}, "float32"),
}


class Launched(NamedTuple):
    kernel: int
    blocks: int
    threads: int
    stream: int
    values: tuple[int, ...]


class On(Tensor):
    """A tensor on a device that is asked as PyTorch's are."""

    def get_device(self) -> int:
        return self.device.index or 0

    def new_empty(self, shape: tuple[int, ...], dtype: Any) -> On:
        return fresh(shape, dtype)


On.__module__, On.__name__ = "torch", "Tensor"
MADE: list[On] = []


def fresh(shape: tuple[int, ...], dtype: Any = "float32", device: Any = None, strides: Any = None) -> On:
    MADE.append(On(tuple(shape), str(dtype).removeprefix("torch."), strides, BASE + (len(MADE) + 1 << 24)))
    return MADE[-1]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launched]:
    """What reaches the driver: the arguments are read where the driver would read them."""
    found: list[Launched] = []
    counts: dict[int, int] = {}

    def loaded(module: Any, cc: Any, limit: Any) -> int:
        counts[id(module)] = len(module.params)
        return id(module)

    def launch_together(config: Any, function: int, buffer: int, _: int) -> Any:
        grid = config.gridDimX, 1, 1, config.blockDimX, 1, 1, config.sharedMemBytes, int(config.hStream)
        return launch(function, *grid, buffer, 0)

    def launch(function: int, blocks: int, _y: int, _z: int, threads: int, *rest: Any) -> Any:
        stream, buffer = rest[3], rest[4]
        places = (ctypes.c_void_p * counts[function]).from_address(buffer)
        values = tuple(ctypes.c_uint64.from_address(p).value for p in places)
        found.append(Launched(function, blocks, threads, stream, values))
        return (0,)

    dtypes = {n: gpu_standins.Dtype(n) for n in ("float32", "float64", "float16", "bfloat16", "int32", "int64", "bool")}
    torch = SimpleNamespace(
        empty=fresh,
        empty_like=lambda x: fresh(x.shape, x.dtype, None, x.stride()),
        empty_strided=lambda shape, strides, dtype, device: fresh(shape, dtype, device, strides),
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 77),
        **dtypes,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setattr(gpu_standins, "Dtype", lambda text: dtypes[text])
    monkeypatch.setattr(driver, "require", lambda: None)
    monkeypatch.setattr(driver, "activate", lambda device: None)
    monkeypatch.setattr(driver, "target_of", lambda device: H200)
    monkeypatch.setattr(driver, "_loaded", loaded)
    gpu_standins.host_marks(monkeypatch)
    monkeypatch.setattr(driver, "_LAUNCH", launch)
    monkeypatch.setattr(driver, "_LAUNCH_EX", launch_together)
    monkeypatch.setattr(driver, "_running", lambda function, geometry, module: geometry.blocks)
    monkeypatch.setattr(driver, "clear", lambda at, count, stream: found.append(Launched(0, count, 0, stream, (at,))))
    monkeypatch.setattr(Counters, "at", lambda self, stream: 1000 + stream)
    monkeypatch.setattr(TensorMaps, "_written", lambda self, pointers: hash(pointers) >> 8)
    return found


def arrays_of(spec: ra.Spec, at: int = BASE) -> dict[str, Any]:
    shape = {"i": 3, "j": 64}
    tensors = {d.name: d.axes for d in spec.tensors}
    held = {n: On(tuple(shape[a] for a in axes), at=at + (k << 16)) for k, (n, axes) in enumerate(tensors.items())}
    return {n: NUMBERS.get(n, x) for n, x in held.items()}


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every call that might be quick, whether it was."""
    found: list[bool] = []
    written = quick._written

    def noted(quickly: quick.Quick) -> quick.Quick:
        def call(arrays: Any) -> Any:
            found.append(False)
            result = quickly(arrays)
            found[-1] = result is not quick.MISS
            return result

        return call

    monkeypatch.setattr(quick, "_written", lambda ready, arrays: noted(written(ready, arrays)))
    monkeypatch.setattr(quick.Quickly, "call", staticmethod(noted(quick._missed)))
    return found


FORMS = Forms(SPECS)


def run_of(name: str) -> CudaRun:
    return CudaRun(FORMS[name])


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("name", SPECS)
def test_a_second_call_launches_what_a_first_one_does(
    name: str, alone: bool, launches: list[Launched], hits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    activated: list[int] = []
    monkeypatch.setattr(driver, "is_only", lambda device: alone)
    monkeypatch.setattr(driver, "activate", activated.append)
    run, results = run_of(name), []
    for number in range(3):
        MADE.clear()  # results lie where those of the other calls did
        activated.clear()
        results.append(run(**arrays_of(SPECS[name], BASE + (number % 2 << 20))))
    assert hits == [False, True, True] and len(launches) == 3
    assert launches[0] == launches[2] and launches[0] != launches[1]  # every tensor lies elsewhere
    assert [a - b for a, b in zip(launches[1].values, launches[0].values, strict=True) if a != b] == [1 << 20] * len(
        [x for x in arrays_of(SPECS[name]).values() if isinstance(x, Tensor)]
    )
    assert bool(activated) is not alone
    for first, other in zip(_tensors(results[0]), _tensors(results[2]), strict=True):
        assert (first.shape, first.dtype, first.at) == (other.shape, other.dtype, other.at)
    assert type(results[0]) is type(results[2]) and (not isinstance(results[0], dict) or [*results[0]] == [*results[2]])


@pytest.mark.parametrize("name", LONG)
def test_so_does_one_that_takes_scratch_counters_maps_or_two_launches(
    name: str, launches: list[Launched], hits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "is_only", lambda device: True)
    spec, sizes, dtype = LONG[name]
    entry = next((ra.catalog.entry(n) for n in ra.catalog if ra.catalog[n] == spec), None)
    shapes = {n: np.shape(a) for n, a in entry.sample(1).items()} if entry and sizes is None else {}
    run, counts = CudaRun(ra.derive_incremental(spec, entry.axis if entry else "t")), []
    for number in range(3):
        MADE.clear()
        at, arrays = BASE + (number % 2 << 36), {}
        for k, d in enumerate(spec.tensors):
            shape = shapes[d.name] if sizes is None else tuple(sizes[a] for a in d.axes)
            arrays[d.name] = On(shape, dtype, at=at + (k << 30)) if shape else 0.25
        run(**arrays)
        counts.append(len(launches))
    assert hits == [False, True, True]
    each = counts[0]
    first, second, third = launches[:each], launches[each : 2 * each], launches[2 * each :]
    assert first == third and len(second) == each
    assert [(x.kernel, x.blocks, x.threads, x.stream) for x in first] == [
        (x.kernel, x.blocks, x.threads, x.stream) for x in second
    ]
    assert first != second
    assert (each > 4) is (name == "two steps"), "one kernel, or one and what merges or clears"


def _tensors(result: Any) -> list[On]:
    return list(result.values()) if isinstance(result, dict) else [result]


CHANGES: dict[str, Callable[[On], Any]] = {
    "another shape": lambda x: On((5, 64)),
    "another stride": lambda x: On((3, 64), strides=(128, 1)),
    "another dtype": lambda x: On((3, 64), "float16"),
    "another alignment": lambda x: On((3, 64), at=BASE + 4),
    "negated": lambda x: _with(x, negated=True),
}
REFUSED: dict[str, Callable[[On], Any]] = {
    "a gradient": lambda x: _with(x, requires_grad=True),
    "another rank": lambda x: On((3, 64, 1)),
    "on the host": lambda x: _with(x, device=Place("cpu", -1)),
    "no array": lambda x: "text",
    "nothing": lambda x: None,
}


def _with(x: On, **fields: Any) -> On:
    made = On((3, 64))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_of_another_kind_goes_the_general_way(change: str, launches: list[Launched], hits: list[bool]) -> None:
    run = run_of("softmax")
    run(x=On((3, 64)))
    run(x=CHANGES[change](On((3, 64))))
    run(x=On((3, 64)))
    fresh_run = run_of("softmax")
    fresh_run(x=CHANGES[change](On((3, 64))))
    assert hits == [False, False, False, False]  # the third is of another kind than the second
    assert launches[1].blocks == launches[3].blocks and launches[1].values[0] == launches[3].values[0]


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_refused_is_refused_after_a_call_too(change: str, launches: list[Launched]) -> None:
    run = run_of("softmax")
    run(x=On((3, 64)))
    for arrays in ({"x": REFUSED[change](On((3, 64)))}, {"x": On((3, 64)), "z": On((3,))}, {}, {"z": On((3, 64))}):
        with pytest.raises(ra.RedalgError):
            run(**arrays)
    assert len(launches) == 1


@pytest.mark.parametrize("number", [7, True, 1 << 70, -(1 << 63) - 1, np.float64(1.0)])
def test_numbers_of_another_type_or_outside_int64_go_the_general_way(
    number: Any, launches: list[Launched], hits: list[bool]
) -> None:
    run, given = run_of("scalars"), arrays_of(SPECS["scalars"])
    run(**given)
    run(**{**given, "k": -7})
    assert hits == [False, True] and (1 << 64) - 7 in launches[1].values
    try:
        run(**{**given, "eps": number} if isinstance(number, np.float64 | bool) else {**given, "k": number})
    except ra.RedalgError:
        assert len(launches) == 2
    assert hits[2] is (number.__class__ is int and number == 7)


def test_out_and_streams_go_the_general_way(launches: list[Launched], hits: list[bool]) -> None:
    run, out = run_of("softmax"), On((3, 64), at=BASE + (1 << 30))
    run(x=On((3, 64)))
    assert run(x=On((3, 64)), out=out) is out
    x = On((3, 64))
    run(x=x, stream=5)
    assert hits == [False] and BASE + (1 << 30) in launches[1].values
    assert [found.stream for found in launches] == [77, 77, 5]


@pytest.mark.parametrize(
    ("name", "alone"),
    [*one_in(2, ["scalars", "row weights"], [True, False]), *deep(product(["softmax"], [True, False]))],
)
def test_results_lie_as_operands_do(
    name: str, alone: bool, launches: list[Launched], hits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As x, without its gaps; in `out` as that does."""
    monkeypatch.setattr(driver, "is_only", lambda device: alone)
    run, others = run_of(name), {n: x for n, x in arrays_of(SPECS[name]).items() if n != "x"}
    for steps, wanted in (
        ((1, 3), (1, 3)),
        ((1, 8), (1, 3)),
        ((64, 1), (64, 1)),
        ((128, 1), (64, 1)),
        ((128, 2), (64, 1)),
    ):
        results = [run(x=On((3, 64), strides=steps), **others) for _ in range(2)]
        assert [r.stride() for r in results] == [wanted, wanted] and hits[-2:] == [False, True]
        assert launches[-1].kernel == launches[-2].kernel
        out = On((3, 64), at=BASE + (1 << 30))
        assert run(x=On((3, 64), strides=steps), out=out, **others) is out
        assert (launches[-1].kernel, *launches[-1].values) != (launches[-2].kernel, *launches[-2].values)
        assert run(x=On((3, 64), strides=steps), **others).stride() == wanted and hits[-1]  # whatever `out` was before


@pytest.mark.parametrize("name", ["softmax", "row weights"])
def test_results_lie_as_operands_do_after_calls_with_out(name: str, launches: list[Launched], hits: list[bool]) -> None:
    run, x = run_of(name), On((3, 64), strides=(1, 3))
    others = {n: a for n, a in arrays_of(SPECS[name]).items() if n != "x"}
    for _ in range(2):
        run(x=x, out=On((3, 64), at=BASE + (1 << 30)), **others)
    assert [run(x=x, **others).stride() for _ in range(3)] == [(1, 3)] * 3
    assert hits == [False, True, True]


def test_threads_have_arguments_of_their_own(launches: list[Launched], hits: list[bool]) -> None:
    run = run_of("softmax")
    run(x=On((3, 64)))
    buffers: list[int] = []
    inner = driver._LAUNCH

    def launch(*arguments: Any) -> Any:
        buffers.append(arguments[-2])
        return inner(*arguments)

    driver._LAUNCH = launch  # type: ignore[assignment]
    try:
        threads = [threading.Thread(target=lambda: [run(x=On((3, 64))) for _ in range(3)]) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        driver._LAUNCH = inner
    assert len(launches) == 10 and hits.count(False) == 4 and len(set(buffers)) >= 3


def test_a_launch_that_is_refused_goes_to_the_next_plan(
    launches: list[Launched], hits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, inner = run_of("softmax"), driver._LAUNCH
    run(x=On((3, 64)))
    bad = launches[0].kernel

    class Refusal(int):
        name = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"

    def launch(function: int, *rest: Any) -> Any:
        return (Refusal(701),) if function == bad else inner(function, *rest)

    monkeypatch.setattr(driver, "_LAUNCH", launch)
    run(x=On((3, 64)))
    run(x=On((3, 64)))
    assert [x.kernel != bad for x in launches] == [False, True, True] and hits[-1]
