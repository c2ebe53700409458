"""A launch without bindings: the words the driver is given, by a stand-in that reads them as the driver would."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.kernels.launch import driver
from redalg.kernels.launch.driver import Geometry
from redalg.kernels.launch.written import MOVED, Prepared, written

KERNEL = 0x1234567890
CALLED = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
POINTER = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.py_object)
WORDS = st.integers(-(1 << 63), (1 << 63) - 1)
GIVEN = {"i64": WORDS, "double": st.floats(allow_nan=False), "i8": st.booleans()}
PACKED = {"i64": "<q", "double": "<d", "i8": "<?"}


@contextmanager
def launches(
    values: list[Any], geometry: Geometry, tensors: dict[int, int] | None = None, error: int = 0
) -> Iterator[tuple[Callable[..., int], list[Any]]]:
    """A launch, and what its driver saw: configuration, attributes, kernel, and bytes of every parameter."""
    seen: list[Any] = []

    def direct(config: int, function: int, places: int, extra: Any) -> int:
        raw = ctypes.string_at(config, 56)
        at, count = struct.unpack_from("<QI", raw, 40)
        told = [ctypes.string_at(at + 72 * n, 72) for n in range(count)]
        attributes = [(*struct.unpack_from("<i", t), *struct.unpack_from("<3I", t, 8)) for t in told]
        held = (ctypes.c_void_p * len(values)).from_address(places)
        read = [
            ctypes.string_at(p, struct.calcsize(PACKED.get(v, "<q"))) for p, v in zip(held, values, strict=True) if p
        ]
        seen.append((struct.unpack_from("<7I", raw), struct.unpack_from("<Q", raw, 32)[0], attributes, function, read))
        assert extra is None
        return error

    called, pointer = CALLED(direct), POINTER(lambda tensor: tensor.at)
    addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (called, pointer)]
    config, kept = driver._configuration(4096, geometry)
    yield written(Prepared(addresses[0], KERNEL, config, values, tensors or {}, addresses[1]), kept), seen
    del called, pointer


@pytest.mark.parametrize("cluster, waiting", [(1, 1), (4, 1), (1, 6), (2, 3)])
def test_the_driver_reads_what_the_geometry_says(cluster: int, waiting: int) -> None:
    geometry = Geometry(blocks=24, threads=96, cluster=cluster, waiting=waiting)
    attributes = [(4, cluster, 1, 1)] * (cluster > 1) + [(2, 1, 0, 0)] * (waiting > 1)
    with launches([], geometry) as (launch, seen):
        for stream in (0, 1 << 40):
            assert launch(stream) == 0
            assert seen.pop() == ((24, 1, 1, 96, 1, 1, 4096), stream, attributes, KERNEL, [])


@given(st.data(), st.lists(st.one_of(WORDS, st.sampled_from([*GIVEN])), max_size=12))
def test_it_reads_every_argument_where_it_looks_for_it(data: Any, values: list[Any]) -> None:
    with launches(values, Geometry(blocks=1, threads=32)) as (launch, seen):
        for _ in range(2):
            held = [data.draw(GIVEN[v]) if isinstance(v, str) else v for v in values]
            launch(7, *[h for h, v in zip(held, values, strict=True) if isinstance(v, str)])
            assert seen.pop()[-1] == [struct.pack(PACKED.get(v, "<q"), h) for h, v in zip(held, values, strict=True)]


class At:
    def __init__(self, at: int) -> None:
        self.at = at


def test_tensors_say_where_they_lie_and_those_that_moved_are_not_launched() -> None:
    with launches(["i64", 5, "i64"], Geometry(blocks=1, threads=32), {0: 0, 2: 4}) as (launch, seen):
        assert launch(7, At(1 << 50), At(36)) == 0
        assert seen.pop()[-1] == [struct.pack("<q", v) for v in (1 << 50, 5, 36)]
        assert [launch(7, At(8), At(36)), launch(7, At(16), At(32)), seen] == [MOVED, MOVED, []]


def test_what_is_no_number_raises_and_nothing_is_launched() -> None:
    with launches(["i64", "double"], Geometry(blocks=1, threads=32)) as (launch, seen):
        for wrong in ((1.5, 1.0), (1, "text"), (None, 1.0)):
            with pytest.raises(TypeError):
                launch(7, *wrong)
        assert not seen


def test_threads_that_launch_at_once_do_not_meet() -> None:
    """The driver gives the interpreter's lock to others while it reads."""
    with launches(["i64"] * 3, Geometry(blocks=1, threads=32)) as (launch, seen):
        threads = [threading.Thread(target=lambda k=k: [launch(k, k, n, k) for n in range(200)]) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    found = sorted((stream, *[struct.unpack("<q", v)[0] for v in read]) for _, stream, _, _, read in seen)
    assert found == [(k, k, n, k) for k in range(4) for n in range(200)]


def test_a_refusal_is_handed_on() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    with launches([], Geometry(blocks=1, threads=32), error=701) as (launch, _):
        assert driver._result(launch(0)) == bindings.CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
