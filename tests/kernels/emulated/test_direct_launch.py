"""A launch without bindings: the words the driver is given, by a stand-in that reads them as the driver would."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

from redalg.kernels.launch import driver
from redalg.kernels.launch.driver import Geometry


@pytest.mark.parametrize("cluster, waiting", [(1, 1), (4, 1), (1, 6), (2, 3)])
def test_the_driver_reads_what_the_geometry_says(cluster: int, waiting: int) -> None:
    seen: list[Any] = []

    def direct(config: int, function: int, buffer: int, extra: Any) -> int:
        raw = ctypes.string_at(config, 56)
        attributes, count = struct.unpack_from("<QI", raw, 40)
        told = [ctypes.string_at(attributes + 72 * n, 72) for n in range(count)]
        seen.append((struct.unpack_from("<7I", raw), struct.unpack_from("<Q", raw, 32)[0], function, buffer, extra))
        seen.append([(*struct.unpack_from("<i", t), *struct.unpack_from("<3I", t, 8)) for t in told])
        return 0

    geometry = Geometry(blocks=24, threads=96, cluster=cluster, waiting=waiting)
    where, launch, kept = driver._launching(direct, 0x1234567890, 0x77, 4096, geometry)
    for stream in (0, 1 << 40):
        where.value = stream
        assert launch() == 0
        attributes = [(4, cluster, 1, 1)] * (cluster > 1) + [(2, 1, 0, 0)] * (waiting > 1)
        assert seen == [((24, 1, 1, 96, 1, 1, 4096), stream, 0x1234567890, 0x77, None), attributes]
        seen.clear()
    assert kept


def test_a_refusal_is_handed_on() -> None:
    pytest.importorskip("cuda.bindings")
    _, launch, _ = driver._launching(lambda *_: 701, 1, 2, 0, Geometry(blocks=1, threads=32))
    assert driver._result(launch()).name == "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
