"""Matrix products of bfloat16: our kernel by wgmma, ours by mma.sync, and torch.matmul, as captured graphs in turns.

    python -m benchmarks.gpu.mma_gemm [--sizes 4096x4096x4096 ...] [--shapes] [--out FILE]

Sizes are rows x terms x columns. Every result is compared with float64 before it is timed. `--shapes`: the kernel by
mma.sync in tiles of every shape and depth, too, with what the model predicts for each: what its constants
(`redalg.kernels.gemm.mma_tiles`) are fitted to. On devices without wgmma both of ours are by mma.sync.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redalg as ra
from benchmarks.gpu.chains import COLD, _captured, _raced
from benchmarks.harness.processes import stamp
from redalg.errors import RedalgError
from redalg.kernels.gemm import mma_tiles

SIZES = ("4096x4096x4096", "1024x4096x4096", "333x1000x777")
TEXT = "y = sum[j](x[i,j]*w[j,k]); return y"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(words)
    for text in options.sizes:
        i, j, k = map(int, text.split("x"))
        for line in lines(i, j, k, options.shapes):
            print(json.dumps(line), flush=True)
            if options.out:
                with options.out.open("a") as f:
                    f.write(json.dumps(line | stamp()) + "\n")


def lines(i: int, j: int, k: int, shapes: bool) -> Iterator[dict[str, Any]]:
    """Microseconds of a call, and what it computes of 10^12 operations a second."""
    import torch

    count = max(2, 1 + COLD // (2 * (i * j + j * k + i * k)))
    sets = [{"x": drawn(i, j), "w": drawn(j, k)} for _ in range(count)]
    form = ra.derive_incremental(ra.parse(TEXT), axis="j")
    runs = {"wgmma": form.compile("cuda", schedule="tensor"), "mma": form.compile("cuda", schedule="mma")}
    calls = {"torch": _captured(lambda a: torch.matmul(a["x"], a["w"]), sets)}
    base: dict[str, Any] = {"rows": i, "terms": j, "columns": k, "device": torch.cuda.get_device_name()}
    for name, run in runs.items():
        try:
            require_right(run, sets[0])
            calls[name] = _captured(lambda a, run=run: run(**a), sets)
        except RedalgError as why:
            yield base | {"by": name, "refused": str(why)}
    for name, us in _raced(calls, len(sets)).items():
        more = {"predicted": runs[name].planned.choice.seconds * 1e6} if name in runs else {}
        yield base | {"by": name, "us": us, "tflops": round(2e-6 * i * j * k / us, 1)} | more
    for shape, depth in ((s, d) for s in mma_tiles.SHAPES for d in mma_tiles.DEPTHS if shapes):
        yield base | {"by": f"mma {tuple(shape)} {depth}"} | of_shape(form, sets, shape, depth)


def of_shape(form: Any, sets: list[dict[str, Any]], shape: mma_tiles.Warps, depth: int) -> dict[str, Any]:
    """The kernel by mma.sync in tiles of this shape, or why there is none."""
    every = mma_tiles.SHAPES, mma_tiles.DEPTHS
    mma_tiles.SHAPES, mma_tiles.DEPTHS = (shape,), (depth,)
    try:
        run = form.compile("cuda", schedule="mma")
        require_right(run, sets[0])
        us = _raced({"mma": _captured(lambda a: run(**a), sets)}, len(sets), 3, 0.01)["mma"]
        made = run.planned
        found: dict[str, Any] = {"us": us, "predicted": made.choice.seconds * 1e6, "shared": made.module.shared}
        return found | {"blocks": made.geometry.blocks}
    except RedalgError as why:
        return {"refused": str(why)}
    finally:
        mma_tiles.SHAPES, mma_tiles.DEPTHS = every


def drawn(*shape: int) -> Any:
    import torch

    return torch.randn(shape, device="cuda").bfloat16()


def require_right(run: Any, a: dict[str, Any]) -> None:
    """The result is the product in float64, rounded once, but for the order of additions."""
    found, x, w = run(**a), a["x"].double(), a["w"].double()
    off = (found.double() - x @ w).abs()
    bound = 2.0**-8 * (x @ w).abs() + x.shape[1] * 2.0**-22 * (x.abs() @ w.abs())
    assert bool((off <= bound).all()), f"off by {float((off - bound).max())}"


if __name__ == "__main__":
    main()
