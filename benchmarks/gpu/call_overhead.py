"""What a call costs on the host: `python -m benchmarks.gpu.call_overhead` (needs a GPU and PyTorch).

A map of three contiguous tensors, output allocation included, and what it consists of, beside an empty kernel launched
by cuda.core and operations of PyTorch. Arrays are so small that the device is always waiting. Medians of 7 batches of
300 calls.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import redalg as ra
from redalg.kernels.cuda import quick


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


class Keywords:
    """What Python takes for a call of an object with three keywords, one dictionary handed on."""

    def __call__(self, *, out: Any = None, stream: Any = None, **arrays: Any) -> Any:
        return arrays


def parts(run: Any, given: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """The prepared call without the object around it, and its launch, guards and memory alone."""
    import torch

    call = run._quickly.call
    held = call.__globals__
    tensors = tuple(given.values())
    result, first, where = call(given), held["first"], quick._stream()(0)
    found = {
        "  the prepared function": lambda: call(given),
        "  its launch": lambda: first(where, *tensors, result),
    }
    if held.get("same") is not None:
        found["  its guards"] = lambda: held["same"](*tensors)
    if held.get("empty") is not None:
        found["  memory for its result"] = lambda: held["empty"](held["r0_shape"], held["r0_strides"], held["r0_dtype"])
    found["  the same by torch.empty_like"] = lambda: torch.empty_like(tensors[0])
    found["  three addresses"] = lambda: [x.data_ptr() for x in tensors]
    found["  the current stream"] = lambda: quick._stream()(0)
    keywords = Keywords()
    found["  an object called with three keywords"] = lambda: keywords(**given)
    return found


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
    for _ in range(2):
        run(x=a, y=b, z=c)
    calls = {
        "an empty kernel (cuda.core.launch)": lambda: launch(stream, config, empty),
        "run(x=, y=, z=), three tensors": lambda: run(x=a, y=b, z=c),
        **parts(run, {"x": a, "y": b, "z": c}),
        "torch.relu, one tensor": lambda: torch.relu(a),
        "torch.addcmul, three tensors": lambda: torch.addcmul(a, b, c),
    }
    print(f"{torch.cuda.get_device_name(0)}, Python {sys.version.split()[0]}, torch {torch.__version__}")
    for name, call in calls.items():
        print(f"{name:40s} {microseconds(call, wait):6.2f} us", flush=True)


if __name__ == "__main__":
    main()
