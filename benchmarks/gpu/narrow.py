"""Products of few rows: every plan of a sample, timed as a captured graph beside cuBLAS and the model.

`python -m benchmarks.gpu.narrow [--only 'S*'] [--rows 128] [--plans 12] [--out FILE]`: for both products of every
workload of `benchmarks.gpu.chains`, the plan that the model ranks first among those of every shape of cluster, then
those it ranks first of all, with operands cold (sets in turn that exceed the L2). Results are checked against float64
before they are timed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from pathlib import Path
from typing import Any

import redalg as ra
from benchmarks.gpu.chains import CELLS, COLD, _captured, _drawn, _raced
from benchmarks.harness.processes import stamp
from redalg.kernels.gemm import passes
from redalg.kernels.gemm.narrow import Narrow
from redalg.kernels.gemm.tiles import GemmPlan

ONE = "return E = relu(sum[k](A[m,k]*B[n,k]))"
GATE = "return E = silu(sum[k](A[m,k]*B[n,k]))*sum[k](A[m,k]*C[n,k])"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--plans", type=int, default=12)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(words)
    for name, (n, k, width) in CELLS.items():
        if fnmatch.fnmatch(name, options.only):
            for text, shape in ((GATE if name.startswith("S") else ONE, (n, k)), (ONE, (width, n))):
                for line in _lines(name, text, options.rows, *shape, options.plans):
                    print(json.dumps(line), flush=True)
                    if options.out:
                        with options.out.open("a") as f:
                            f.write(json.dumps(line | stamp()) + "\n")


def _lines(cell: str, text: str, rows: int, n: int, k: int, count: int) -> Any:
    import torch

    shapes = {"A": (rows, k), "B": (n, k)} | ({"C": (n, k)} if "C[" in text else {})
    size = 2 * sum(a * b for a, b in shapes.values())
    sets = [_drawn(shapes) for _ in range(max(2, 1 + COLD // size))]
    form = ra.derive_incremental(ra.parse(text), axis="k")
    own, found = passes.narrow, []

    def note(made: Narrow) -> GemmPlan | None:
        found.append(made)
        return own(made)

    passes.narrow = note
    form.compile("cuda", schedule="tensor")(**sets[0])
    made = found[-1]
    ranked = sorted(made.plans(), key=made.seconds)
    chosen = list({(p.sharing.blocks, p.split): p for p in reversed(ranked)}.values())  # the first of each cluster
    chosen = sorted(chosen, key=made.seconds) + [p for p in ranked if p not in chosen]
    expected = _torch({x: a.double() for x, a in sets[0].items()})
    base = {"cell": cell, "m": rows, "n": n, "k": k, "gate": "C" in shapes}
    yield base | {"torch": _raced({"t": _captured(_torch, sets)}, len(sets), 3, 0.005)["t"]}
    for p in chosen[:count]:
        passes.narrow = lambda made, p=p: p
        line = base | {"plan": [p.consumers, p.columns, p.sharing.blocks, p.split], "model": made.seconds(p) * 1e6}
        try:
            fresh = ra.derive_incremental(ra.parse(text), axis="k").compile("cuda", schedule="tensor")
            got = fresh(**sets[0])
            line["error"] = float(((got.double() - expected).abs().max() / expected.abs().max()).item())
            line["us"] = _raced({"o": _captured(lambda x, f=fresh: f(**x), sets)}, len(sets), 3, 0.005)["o"]
        except Exception as problem:
            line["failed"] = repr(problem)[:200]
        yield line
    passes.narrow = own
    torch.cuda.empty_cache()


def _torch(x: dict[str, Any]) -> Any:
    import torch.nn.functional as F

    g = F.linear(x["A"], x["B"])
    return F.relu(g) if "C" not in x else F.silu(g) * F.linear(x["A"], x["C"])


if __name__ == "__main__":
    main()
