"""Products of cuBLAS and cuDNN, captured: what the constants of `redalg.kernels.gemm.library` are fitted to.

`python -m benchmarks.gpu.libraries [--out FILE]`: `torch.mm` and `torch.cudnn_convolution_relu` of 1×1 convolutions
over a grid of rows, columns and terms, and convolutions of wider windows, in bfloat16 with warm caches.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.gpu.chains import _captured, _raced
from benchmarks.harness.processes import stamp

ROWS = (256, 784, 1568, 3136, 6272, 12544, 25088)
SHAPES = ((128, 512), (512, 128), (256, 1024), (1024, 256), (512, 2048), (2048, 512), (2048, 2048))  # columns, terms
WINDOWS = ((56, 64, 64, 3), (28, 128, 128, 3), (14, 256, 256, 3), (7, 512, 512, 3), (24, 128, 256, 5))
BATCHES = (1, 8, 32)
CALLS = 20  # in one graph


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(words)
    for line in _lines():
        print(json.dumps(line), flush=True)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(line | stamp()) + "\n")


def _lines() -> Iterator[dict[str, Any]]:
    import torch

    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    for rows, (columns, terms) in product(ROWS, SHAPES):
        a, b = _random(rows, terms), _random(terms, columns)
        out = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
        found = {"mm": _microseconds(lambda _, a=a, b=b, out=out: torch.mm(a, b, out=out))}
        x, w = a[None, None].permute(0, 3, 1, 2), b.t()[:, :, None, None].contiguous(memory_format=torch.channels_last)
        yield {"rows": rows, "columns": columns, "terms": terms, **found, "relu": _convolved(x, w, 0)}
    for batch, (side, inside, outside, taps) in product(BATCHES, WINDOWS):
        x = _random(batch, side, side, inside).permute(0, 3, 1, 2)
        w = _random(outside, taps, taps, inside).permute(0, 3, 1, 2)
        shape = {"batch": batch, "side": side, "inside": inside, "outside": outside, "taps": taps}
        yield {**shape, "relu": _convolved(x, w, taps // 2)}


def _random(*shape: int) -> Any:
    import torch

    return torch.randn(*shape, device="cuda").bfloat16()


def _convolved(x: Any, w: Any, padding: int) -> float:
    import torch

    return _microseconds(lambda _: torch.cudnn_convolution_relu(x, w, None, [1, 1], [padding] * 2, [1, 1], 1))


def _microseconds(call: Any) -> float:
    return _raced({"one": _captured(call, [{}] * CALLS)}, CALLS, rounds=2, seconds=0.002)["one"]


if __name__ == "__main__":
    main()
