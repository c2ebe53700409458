"""Two convolutions, one behind the other, the second of them 1×1, beside cuDNN, in one run.

`python -m benchmarks.gpu.convolutions [--only 'C*'] [--batches 1,32] [--out FILE] [--prepare]`: FlashFuser's C1-C8,
NHWC, bfloat16, weights with their channels in last (as PyTorch keeps them for channels_last): a convolution (1×1, or
3×3 with zeros around), relu, a 1×1 convolution. Ours is one call of one spec, "kernels" the same without what it leaves
to cuBLAS and cuDNN; PyTorch's is conv2d, relu, conv2d on channels_last tensors with cudnn.benchmark; "fused relu": the
first by one call of cuDNN; "matmul", where both are 1×1: by cuBLAS. All as captured graphs, in turns: 20 calls on one
set of operands (warm), and one call on each of as many sets as exceed the L2 (cold). Ours is checked
against float64 first. "first" is the first convolution alone, without relu. The floor is the larger of two times:
operands and result once at a copy's rate in the same run, and the products at 750 TFLOP/s. `--prepare` compiles and
checks, and times nothing.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import redalg as ra
from benchmarks.gpu.chains import COLD, _captured, _copy_rate, _count, _raced
from benchmarks.harness.processes import stamp
from redalg.kernels.cuda.library import name as vendor
from redalg.kernels.gemm import library

TABLE = """
C1 64 56 256 64 1; C2 128 28 512 128 1; C3 256 14 1024 256 1; C4 512 7 2048 512 1;
C5 64 56 64 256 3; C6 128 28 128 512 3; C7 256 14 256 1024 3; C8 512 7 512 2048 3
"""  # name, channels in, side, channels between, channels out, window of the first convolution
CELLS = {words[0]: tuple(map(int, words[1:])) for words in map(str.split, TABLE.split(";"))}
ONE, WINDOW = "sum[c](x[b,h,w,c]*U[n,c])", "sum[r,s,c](x[b,h+r-1,w+s-1,c]*U[n,r,s,c])"
WARM = 20  # calls of a graph


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--prepare", action="store_true", help="compile and check, without times")
    options = parser.parse_args(words)
    for batch in map(int, options.batches.split(",")):
        for name, sizes in CELLS.items():
            if fnmatch.fnmatch(name, options.only):
                line = _line(name, batch, sizes, options.prepare)
                print(json.dumps(line), flush=True)
                if options.out:
                    with options.out.open("a") as f:
                        f.write(json.dumps(line | stamp()) + "\n")


def _line(name: str, batch: int, sizes: tuple[int, ...], prepare: bool) -> dict[str, Any]:
    import torch

    torch.backends.cudnn.benchmark = True
    c, side, n, m, k = sizes
    shapes = {"x": (batch, side, side, c), "U": (n, k, k, c) if k > 1 else (n, c), "V": (m, n)}
    pixels, size = batch * side * side, 2 * (batch * side * side * c + k * k * c * n + n * m)
    sets = [_drawn(shapes) for _ in range(2 if prepare else max(2, 1 + COLD // size))]
    line: dict[str, Any] = {"cell": name, "batch": batch, "device": torch.cuda.get_device_name()}
    product = WINDOW if k > 1 else ONE
    form = ra.derive_incremental(ra.parse(f"return z = sum[n](relu({product})*V[m,n])"), axis="n")
    run, kernels = form.compile("cuda"), form.compile("cuda")
    alone = ra.derive_incremental(ra.parse(f"return y = {product}")).compile("cuda")
    given = [({t: x[t] for t in "xUV"}, {t: x[t] for t in "xU"}) for x in sets]
    try:
        line["error"] = _error(run(**given[0][0]), sets[0])
        with mock.patch.object(library, "seconds", lambda *product: 1.0):
            line["error of kernels"] = _error(kernels(**given[0][0]), sets[0])
        alone(**given[0][1])
        line["left"] = [vendor(p.vendor) if p.vendor else "" for p in (*run.planned.before, run.planned)]
        line["kernels"], line["predicted"] = _count(run.planned), round(run.planned.choice.seconds * 1e6, 2)
        line["plan"] = run.planned.choice.reasons[0][:90]
        if prepare:
            return line
        calls: dict[str, Callable[[Any], Any]] = {
            "ours": lambda x: run(**x[0]),
            "kernels": lambda x: kernels(**x[0]),
            "torch": lambda x: _torch(x[1]),
            "fused relu": lambda x: _fused(x[1]),
            "first, ours": lambda x: alone(**x[2]),
            "first, torch": lambda x: torch.nn.functional.conv2d(x[1]["nchw"], x[1]["oihw"], padding="same"),
        }
        if k == 1:
            calls["matmul"] = lambda x: torch.relu_(x[0]["x"] @ x[0]["U"].t()) @ x[0]["V"].t()
        every = [(x, y, z) for (x, z), y in zip(given, sets, strict=True)]
        for warmth, used in (("warm", every[:1] * WARM), ("cold", every)):
            line[warmth] = _raced({who: _captured(call, used) for who, call in calls.items()}, len(used), 3)
    except Exception as problem:
        line["failed"] = repr(problem)[:300]
    least = max((size + 2 * pixels * m) / _copy_rate(), 2 * pixels * n * (k * k * c + m) / 7.5e14)
    line["floor"] = round(1e6 * least, 2)
    torch.cuda.empty_cache()
    return line


def _drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Operands as we read them, and views of them, or copies, as PyTorch's convolutions do."""
    import torch

    found: dict[str, Any] = {}
    for name, shape in shapes.items():
        terms = 1
        for length in shape[1:] if name != "x" else ():
            terms *= length
        found[name] = (torch.randn(shape, device="cuda") / terms**0.5).bfloat16()
    kernel = found["U"] if found["U"].dim() == 4 else found["U"][:, None, None]
    last = torch.channels_last
    found["nchw"] = found["x"].permute(0, 3, 1, 2)
    found["oihw"] = kernel.permute(0, 3, 1, 2).contiguous(memory_format=last)
    found["bias"] = torch.zeros(kernel.shape[0], device="cuda").bfloat16()
    found["second"] = found["V"][:, :, None, None].contiguous(memory_format=last)
    return found


def _torch(x: dict[str, Any]) -> Any:
    import torch.nn.functional as F

    first = F.conv2d(x["nchw"], x["oihw"], padding=x["oihw"].shape[-1] // 2)
    return F.conv2d(F.relu_(first), x["second"])


def _fused(x: dict[str, Any]) -> Any:
    """Convolution, bias and relu as one call of cuDNN."""
    import torch

    pad = [x["oihw"].shape[-1] // 2] * 2
    first = torch.cudnn_convolution_relu(x["nchw"], x["oihw"], x["bias"], [1, 1], pad, [1, 1], 1)
    return torch.nn.functional.conv2d(first, x["second"])


def _error(found: Any, x: dict[str, Any]) -> float:
    expected = _torch({n: a.double() for n, a in x.items()}).permute(0, 2, 3, 1)
    return float(((found.double() - expected).abs().max() / expected.abs().max()).item())


if __name__ == "__main__":
    main()
