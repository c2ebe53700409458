"""What a call costs on the host: `python -m benchmarks.gpu.call_overhead` (needs a GPU and PyTorch).

A map of three contiguous tensors, output allocation included, beside an empty kernel launched by cuda.core and one
operation of PyTorch. Arrays are so small that the device is always waiting. Medians of 7 batches of 300 calls.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import redalg as ra


def microseconds(call: Callable[[], object], synchronise: Callable[[], None]) -> float:
    for _ in range(100):
        call()
    found = []
    for _ in range(7):
        synchronise()
        start = time.perf_counter()
        for _ in range(300):
            call()
        found.append((time.perf_counter() - start) / 300 * 1e6)
    synchronise()
    return statistics.median(found)


def main(words: Sequence[str] | None = None) -> None:
    import torch
    from cuda.core import Device, LaunchConfig, Program, launch

    class Current:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, torch.cuda.current_stream().cuda_stream

    device = Device(0)
    device.set_current()
    stream = device.create_stream(Current())
    empty = Program('extern "C" __global__ void empty() {}', "c++").compile("cubin").get_kernel("empty")
    config = LaunchConfig(grid=1, block=32)
    a, b, c = (torch.randn(64, 256, device="cuda") for _ in range(3))
    x, y, z = ra.tensors("x[i,j] y[i,j] z[i,j]")
    run = ra.derive_incremental(ra.Spec(r=ra.log(ra.relu(x + y)) + z)).compile("cuda")
    wait = torch.cuda.synchronize
    figures = {
        "an empty kernel (cuda.core.launch)": microseconds(lambda: launch(stream, config, empty), wait),
        "run(x=, y=, z=), three tensors": microseconds(lambda: run(x=a, y=b, z=c), wait),
        "torch.relu, one tensor": microseconds(lambda: torch.relu(a), wait),
    }
    print(f"{torch.cuda.get_device_name(0)}, Python {sys.version.split()[0]}, torch {torch.__version__}")
    for name, value in figures.items():
        print(f"{name:40s} {value:6.2f} us")


if __name__ == "__main__":
    main()
