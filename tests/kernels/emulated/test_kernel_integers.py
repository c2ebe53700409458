"""Integers of calls on a GPU: which are looked at, what is found, and what is computed elsewhere. No GPU is needed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cuda import integers as cuda_integers
from redalg.kernels.cuda.integers import extrema
from redalg.kernels.cuda.run import CudaRun
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch import driver
from redalg.numeric.integer_bounds import Integers
from redalg.numeric.integers import magnitude
from tests.support import simulated
from tests.support.gpu_standins import BASE, Tensor, launches_of_nothing

MEMORY: dict[int, np.ndarray] = {}


class Held(Tensor):
    """A tensor on a GPU that holds something: `read` and `cpu` see it."""

    def __init__(self, values: Any, dtype: str = "int64") -> None:
        self.values = np.array(values, dtype)
        super().__init__(self.values.shape, dtype, at=BASE + 4096 * len(MEMORY))
        MEMORY[self.at] = self.values

    def cpu(self) -> np.ndarray:
        return self.values


Held.__module__ = "torch"


class Device:
    """What was asked of a device."""

    def __init__(self) -> None:
        self.launched: list[Any] = []
        self.reads: list[tuple[int, int]] = []  # address, stream
        self.waits: list[int] = []
        self.capturing = False

    def read(self, source: int, size: int, stream: int) -> bytes:
        self.reads.append((source, stream))
        return MEMORY[source].tobytes()[:size]

    def is_capturing(self, stream: int) -> bool:
        return self.capturing


def _ends(k: Held, stream: Any) -> dict[str, Held]:
    values = k.values.view("int64") if k.values.dtype == "uint64" else k.values  # as kernels read it
    return {"high": Held(values.max(), values.dtype.name), "low": Held(values.min(), values.dtype.name)}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()
    found.launched = launches_of_nothing(monkeypatch)
    MEMORY.clear()
    for name in ("read", "is_capturing"):
        monkeypatch.setattr(driver, name, getattr(found, name))
    monkeypatch.setattr(driver, "wait", found.waits.append)
    monkeypatch.setattr(cuda_integers, "extrema_run", lambda order: _ends)

    def from_numpy(values: np.ndarray) -> Any:
        return SimpleNamespace(to=lambda device, dtype: Held(values, str(dtype)))

    monkeypatch.setattr(sys.modules["torch"], "from_numpy", from_numpy, raising=False)
    return found


def compiled(text: str) -> CudaRun:
    return CudaRun(ra.derive_incremental(ra.parse(text)))


SUM, SQUARES, DOT = "return y = sum[j](k[j])", "return y = sum[j](k[j]**2)", "return y = sum[j](k[j]*h[j])"
VARIANCE = "u = mean[j](k[j]); return y = mean[j]((k[j]-u)**2)"
LARGEST = "return y = max[j](k[j])"
POWERS = "return y = prod[j](where(k[j] > 0, 2, 1))"
COUNTS = "return y = sum[j](where(k[j] > 3, 1, 0)), n = argmax[j](k[j])"


@pytest.mark.parametrize(
    "text, dtype, looked",
    [
        *((SUM, dtype, False) for dtype in ("int8", "uint8", "int16", "int32", "uint32", "float32", "float64", "bool")),
        (SUM, "int64", True),
        (SUM, "uint64", True),
        (SQUARES, "int8", False),
        (SQUARES, "int16", False),
        (SQUARES, "int32", True),
        (SQUARES, "float32", False),
        (VARIANCE, "int32", False),
        (VARIANCE, "int64", True),
        (LARGEST, "int64", False),
        (LARGEST, "uint64", True),
        (POWERS, "float32", True),
        (COUNTS, "int64", False),
        (COUNTS, "float32", False),
        (VARIANCE, "bfloat16", False),
    ],
)
def test_dtypes_and_lengths_decide_which_calls_are_looked_at(
    device: Device, text: str, dtype: str, looked: bool
) -> None:
    run = compiled(text)
    ready = run._prepared({"k": Tensor((1000,), dtype)}, None)
    assert (ready.looking is not None) == looked and ("leave int64" in run.explain()) == looked
    if not looked:
        run(k=Tensor((1000,), dtype))
        assert len(device.launched) == 1 and not device.reads and not device.waits


def test_specs_of_floats_are_never_looked_at() -> None:
    """Not by the lengths of a million either: counts, positions and powers of lengths are integers there."""
    for name in ra.catalog:
        spec = ra.catalog.entry(name).spec
        found = Integers(list(spec.outputs.values()), {t.name: np.dtype("float32") for t in spec.tensors})
        assert found.certain(dict.fromkeys(spec.axes, 1 << 20)), name


def test_what_surely_fits_is_launched(device: Device) -> None:
    run = compiled(SUM)
    assert run(k=Held([2**40, -(2**50), 3]), stream=5) is not None
    assert len(device.launched) == 1 and {stream for _, stream in device.reads} == {5}
    run(k=Held([1, 2, 3]))
    assert len(device.launched) == 2 and device.reads[-1][1] == 77


@pytest.mark.parametrize("text", [SUM, SQUARES, DOT, "return y = prod[j](k[j])", "return y = sum[j](k[j])*c"])
def test_what_leaves_int64_raises_and_writes_nothing(device: Device, text: str) -> None:
    run, out = compiled(text), Tensor((), "int64")
    column = Held([2**62, 2**62, 2**62])
    arrays = {"k": column, "h": column, "c": 5}
    for more in ({}, {"out": out}):
        with pytest.raises(RedalgError, match="int64") as caught:
            run(**{t.name: arrays[t.name] for t in run.form.spec.tensors}, **more)
        assert caught.value.why and caught.value.fix
    assert not device.launched and out.written is None


@pytest.mark.parametrize("stream", [None, 5])
def test_what_is_near_the_limit_is_computed_on_the_host(device: Device, stream: Any) -> None:
    run, out = compiled(SUM), Tensor((), "int64")
    column = [2**63 - 1, -(2**62), -1]
    found = run(k=Held(column), stream=stream)
    assert found.values.dtype == np.int64 and found.values.shape == () and int(found.values) == sum(column)
    assert run(k=Held(column), out=out, stream=stream) is out and int(out.written.values) == sum(column)
    assert not device.launched and device.waits.count(77) == 2
    assert device.waits.count(5) == (0 if stream is None else 2)


def test_numbers_are_known_without_the_device(device: Device) -> None:
    run = compiled("tensors k[j] integer, c integer; return y = c * sum[j](k[j])")
    run(k=Tensor((1000,), "int16"), c=2**20)
    assert len(device.launched) == 1 and not device.reads
    assert int(run(k=Held([2, 3, 4], "int16"), c=2**59).values) == 9 * 2**59
    run(k=Held([1, 0, 0], "int16"), c=2**57)
    assert len(device.launched) == 2
    with pytest.raises(RedalgError, match="int64"):
        run(k=Held([2, 3, 4], "int16"), c=2**60)


def test_arrays_of_no_axes_are_read_where_they_are(device: Device) -> None:
    run = compiled("tensors k[j] integer, c integer; return y = c * sum[j](k[j])")
    c = Held(2**20)
    run(k=Held([1, 2], "int8"), c=c)
    assert len(device.launched) == 1 and (c.at, 77) in device.reads


def test_unsigned_integers_beyond_int64_are_refused_as_elsewhere(device: Device) -> None:
    for text in (SUM, LARGEST):
        run = compiled(text)
        run(k=Held([1, 2**60], "uint64"))
        with pytest.raises(RedalgError, match="uint64"):
            run(k=Held([1, 2**64 - 1], "uint64"))
    assert len(device.launched) == 2


def test_a_captured_stream_is_refused_where_the_data_would_be_looked_at(device: Device) -> None:
    device.capturing = True
    with pytest.raises(RedalgError, match="captured") as caught:
        compiled(SUM)(k=Held([1, 2]))
    assert "k" in caught.value.what and caught.value.fix and not device.launched and not device.reads
    compiled(SUM)(k=Held([1, 2], "int32"))
    compiled(SUM)(k=Tensor((5,), "float32"))
    assert len(device.launched) == 2


def test_integers_that_meet_floats_are_exact_there(device: Device) -> None:
    """A float64 holds integers up to 2^53: a variance of larger ones would be that of what rounding left of them."""
    run = compiled(VARIANCE)
    run(k=Held([2**52, 2**52 + 1]))
    assert len(device.launched) == 1
    found = run(k=Held([2**57, 2**57 + 1, 2**57 + 2]))
    assert len(device.launched) == 1 and abs(float(found.values) - 2 / 3) < 1e-15


def test_constants_and_lengths_leave_int64_too(device: Device) -> None:
    run = compiled(POWERS)
    run(k=Tensor((50,), "float32"))
    assert len(device.launched) == 1
    assert int(run(k=Held(np.arange(70) < 62, "float32")).values) == 2**62
    with pytest.raises(RedalgError, match="int64"):
        run(k=Held(np.ones(70), "float32"))


def test_arrays_on_the_host_are_looked_at_there(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.capturing = True  # of no stream that they are on
    found = compiled(SUM)
    looking = cuda_integers.looking(
        found.form, cuda_integers.NUMPY, 0, {"k": "int64"}, {"k": View.contiguous((3,))}, "float64"
    )
    assert looking is not None and looking.fits({"k": np.array([1, 2, 2**50])}, 5)
    assert not looking.fits({"k": [1, 2, 2**62]}, 5)


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint16"])
@pytest.mark.parametrize("shape, order", [((37,), (0,)), ((5, 33), (0, 1)), ((5, 33), (1, 0)), ((3, 1, 17), (1, 2, 0))])
def test_the_extrema_found_on_a_device_are_those_of_the_array(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: str
) -> None:
    info = np.iinfo(dtype)
    drawn = np.random.default_rng(len(shape)).integers(info.min, info.max, shape, dtype, endpoint=True)
    inner = tuple(sorted(range(len(shape)), key=order.index))
    lying = np.ascontiguousarray(drawn.transpose(order)).transpose(inner) if len(shape) < 3 else drawn
    found, _, _ = simulated.run(extrema(order), {"k": lying})
    assert (int(found["high"]), int(found["low"])) == (int(drawn.max()), int(drawn.min()))
    assert max(abs(int(v)) for v in found.values()) == magnitude(drawn)


def test_unsigned_integers_beyond_int64_are_seen_by_their_sign() -> None:
    found, _, _ = simulated.run(extrema((0,)), {"k": np.array([5, 2**64 - 1, 7], np.uint64)})
    assert int(found["low"].view(np.int64)) == -1


WIDTHS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("name", WIDTHS)
def test_casts_of_integers_saturate_at_both_ends(name: str) -> None:
    text = f"c = cast(k[i,j], {name}); return s = sum[j](c), low = min[j](c), at = topk[j:4:t](c).indices"
    form = ra.derive_incremental(ra.parse(text))
    k = np.array([[-8, 10, 6, -3, 300, -300], [2**40, -(2**40), 0, 1, 2, -1]])
    c = np.clip(k, np.iinfo(name).min, min(np.iinfo(name).max, 2**63 - 1))
    wanted = {"s": c.sum(1), "low": c.min(1), "at": np.argsort(-c, axis=1, kind="stable")[:, :4]}
    emulated, _, _ = simulated.run(form, {"k": k})
    for found in (emulated, form.compile("cpu")(k=k)):
        for output, value in wanted.items():
            np.testing.assert_array_equal(found[output], value, output)


@pytest.mark.parametrize(
    "text, looks",
    [
        ("return y = sum[j](where(t[i] == index[j], x[i,j], 0))", False),
        ("return y = logsumexp[j](x[i,j]) - sum[j](where(index[j] == t[i], x[i,j], 0))", False),
        ("tensors t[i] integer, x[i,j]; return y = sum[j](where(x[i,j] < t[i], x[i,j], 0))", False),
        ("return y = argmax[j](x[i,j] + t[i])", True),
        ("return y = sum[j](where(x[i,j]*t[i] > 7, 1, 0))", True),
    ],
)
def test_kernels_in_float32_look_at_integers_that_decide_in_floats(device: Device, text: str, looks: bool) -> None:
    """Comparisons are of float64 there, and integers that choose elements meet no float: neither costs a look."""
    form = ra.derive_incremental(ra.parse(text), axis="j")
    views = {"t": View.contiguous((3,)), "x": View.contiguous((3, 5))}
    for dtype in ("int32", "int16"):
        given = {"t": dtype, "x": "float32"}
        found = cuda_integers.looking(form, cuda_integers.NUMPY, 0, given, views, "float32")
        assert (found is not None) == (looks and dtype == "int32")
        if found is not None:
            assert found.fits({"t": np.int32([5, 2**20, 0]), "x": 1.0}, 5)
            assert not found.fits({"t": np.int32([5, 2**24, 0]), "x": 1.0}, 5)


def test_kernels_compare_integers_with_float32_exactly() -> None:
    form = ra.derive_incremental(ra.parse("return n = sum[j](where(x[i,j] < t[i], 1, 0))"), axis="j")
    t, x = np.array([2**24 + 1, 2**24 - 1, 2**30 + 1], np.int32), np.full((3, 5), 2.0**24, np.float32)
    x[2] = 2.0**30
    emulated, _, _ = simulated.run(form, {"t": t, "x": x})
    np.testing.assert_array_equal(emulated["n"], [5, 0, 5])
