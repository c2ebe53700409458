"""Products of few rows: every plan of a sample, timed as a captured graph beside cuBLAS and the model.

`python -m benchmarks.gpu.narrow [--only 'S*'] [--rows 128] [--plans 12] [--out FILE]`: for both products of every
workload of `benchmarks.gpu.chains`, the plan that the model ranks first among those of every shape of cluster, then
those it ranks first of all, with operands cold (sets in turn that exceed the L2). `--drawn 84 --seed WORD`: products
of 1 to 256 rows and 0.5 to 134 million weights instead, sizes in multiples of 8. `--prepare` compiles what the same
words time, by processes side by side. Results are checked against float64 before they are timed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import redalg as ra
from benchmarks.gpu.chains import CELLS, COLD, _captured, _drawn, _raced
from benchmarks.harness.processes import stamp
from redalg.kernels.gemm import passes
from redalg.kernels.gemm.narrow import ROWS, Narrow
from redalg.kernels.gemm.tiles import GemmPlan
from redalg.kernels.schedule.target import H200

ONE = "return E = relu(sum[k](A[m,k]*B[n,k]))"
GATE = "return E = silu(sum[k](A[m,k]*B[n,k]))*sum[k](A[m,k]*C[n,k])"


class Product(NamedTuple):
    cell: str
    gate: bool
    rows: int
    columns: int
    terms: int

    @property
    def model(self) -> Narrow:
        kinds = "bfloat16", "bfloat16"
        return Narrow(kinds, False, self.rows, self.columns, self.terms, 1, 1 + self.gate, H200)

    def plans(self, count: int) -> list[GemmPlan]:
        """The first of every shape of cluster, then the first of all."""
        ranked = sorted(self.model.plans(), key=self.model.seconds)
        chosen = list({(p.sharing.blocks, p.split): p for p in reversed(ranked)}.values())
        return [*sorted(chosen, key=self.model.seconds), *(p for p in ranked if p not in chosen)][:count]

    def operands(self) -> dict[str, Any]:
        weights = dict.fromkeys("BC"[: 1 + self.gate], (self.columns, self.terms))
        return _drawn({"A": (self.rows, self.terms)} | weights)

    def compiled(self, plan: GemmPlan) -> Any:
        passes.narrow = lambda made: plan
        return ra.derive_incremental(ra.parse(GATE if self.gate else ONE), axis="k").compile("cuda", schedule="tensor")


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--plans", type=int, default=12)
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--seed", default="2026-11-28")
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(words)
    every = list(drawn(options.drawn, options.seed) if options.drawn else workloads(options.only, options.rows))
    if options.prepare:
        with multiprocessing.get_context("spawn").Pool(max(1, (os.cpu_count() or 1) - 2)) as pool:
            pool.starmap(_prepared, [(x, p) for x in every for p in x.plans(options.plans)], chunksize=1)
        return
    for line in (line for x in every for line in _lines(x, options.plans)):
        print(json.dumps(line), flush=True)
        if options.out:
            with options.out.open("a") as f:
                f.write(json.dumps(line | stamp()) + "\n")


def workloads(only: str, rows: int) -> Iterator[Product]:
    for name, (n, k, width) in CELLS.items():
        if fnmatch.fnmatch(name, only):
            yield Product(name, name.startswith("S"), rows, n, k)
            yield Product(name, False, rows, width, n)


def drawn(count: int, seed: str) -> Iterator[Product]:
    """A third of them of more than 56 rows."""
    r, found = random.Random(seed), 0
    while found < count:
        rows = int(2 ** r.uniform(0, 8)) if found % 3 else r.randint(57, ROWS)
        gate, weights, terms = r.random() < 0.25, 2 ** r.uniform(19, 27), int(2 ** r.uniform(8, 14.2)) // 8 * 8
        columns = int(weights / terms / (2 + 2 * gate)) // 8 * 8
        if 64 <= columns <= 32768:
            yield Product(f"drawn {found}", gate, rows, columns, terms)
            found += 1


def _prepared(made: Product, plan: GemmPlan) -> None:
    try:
        made.compiled(plan)(**made.operands())
    except Exception as problem:  # told by the run that times it
        print(made, plan, repr(problem)[:200], flush=True)


def _lines(made: Product, count: int) -> Iterator[dict[str, Any]]:
    import torch

    first = made.operands()
    size = sum(x.numel() * x.element_size() for x in first.values())
    sets = [first, *(made.operands() for _ in range(max(1, min(120, COLD // size))))]
    expected = _torch({x: a.double() for x, a in first.items()})
    base = {"cell": made.cell, "m": made.rows, "n": made.columns, "k": made.terms, "gate": made.gate}
    yield base | {"torch": _raced({"t": _captured(_torch, sets)}, len(sets), 3, 0.005)["t"]}
    for p in made.plans(count):
        plan = [p.consumers, p.columns, p.sharing.blocks, p.split, p.deep, p.stages]
        line = base | {"plan": plan, "model": made.model.seconds(p) * 1e6}
        try:
            run = made.compiled(p)
            line["error"] = float(((run(**first).double() - expected).abs().max() / expected.abs().max()).item())
            line["us"] = _raced({"o": _captured(lambda x, run=run: run(**x), sets)}, len(sets), 3, 0.005)["o"]
        except Exception as problem:
            line["failed"] = repr(problem)[:200]
        yield line
    torch.cuda.empty_cache()


def _torch(x: dict[str, Any]) -> Any:
    import torch.nn.functional as F

    g = F.linear(x["A"], x["B"])
    return F.relu(g) if "C" not in x else F.silu(g) * F.linear(x["A"], x["C"])


if __name__ == "__main__":
    main()
