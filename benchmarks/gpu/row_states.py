"""Products whose rows are reduced in the epilogue, beside the same in parts, PyTorch and the model.

`python -m benchmarks.gpu.row_states [--only 'softmax*'] [--plans 3] [--out FILE] [--compile] [--drawn 24 --seed WORD]`:
a product and the softmax, norm or loss of its rows in one kernel (`redalg.kernels.gemm.row_states`), for each of the
tiles that the model ranks first among those of a number of warpgroups and of blocks, and in two kernels, a product and
one of rows; PyTorch's (and by `--compile` torch.compile's, max-autotune). Captured graphs on operands in turn that
exceed the L2. `--drawn`: sizes drawn by a seed instead. `--prepare` compiles what the same words time, by processes
side by side. Results are checked against float64 before they are timed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import redalg as ra
from benchmarks.gpu.chains import COLD, _captured, _count, _raced
from benchmarks.gpu.parts import _all, _error
from benchmarks.harness.processes import stamp
from redalg.kernels import pipeline
from redalg.kernels.gemm import passes, row_states
from redalg.kernels.gemm.narrow import Narrow
from redalg.kernels.gemm.tiles import GemmPlan
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.match import Outside

Arrays = dict[str, Any]
FOLDED = pipeline._rows_folded


def _softmax(x: Arrays) -> Any:
    import torch

    return torch.softmax(torch.nn.functional.linear(x["X"], x["W"]), -1)


def _root(x: Arrays) -> Any:
    import torch.nn.functional as F

    return F.rms_norm(F.linear(x["X"], x["W"]), x["g"].shape, x["g"], 1e-6)


def _layer(x: Arrays) -> Any:
    import torch.nn.functional as F

    h = F.linear(x["X"], x["W"], x["c"]) + x["R"]
    return h, F.layer_norm(h, x["g"].shape, x["g"], x["b"], 1e-5)


def _logsumexp(x: Arrays) -> Any:
    import torch

    return torch.logsumexp(torch.nn.functional.linear(x["X"], x["W"]), -1)


P = "p = sum[k](X[m,k]*W[l,k])"
SPECS: dict[
    str, tuple[str, int, bool, Callable[[Arrays], Any]]
] = {  # text, numbers of a state, broad, what users write
    "softmax": (f"{P}; q = max[l](p); return Y = exp(p - q)/sum[l](exp(p - q))", 2, True, _softmax),
    "rms norm": (f"{P}; return Y = p/sqrt(mean[l](p**2) + 1e-6)*g[l]", 1, True, _root),
    "layer norm": (
        f"{P} + c[l] + R[m,l]; u = mean[l](p); v = mean[l]((p - u)**2); "
        "return H = p, Y = (p - u)/sqrt(v + 1e-5)*g[l] + b[l]",
        3,
        False,
        _layer,
    ),
    "logsumexp": (f"{P}; return Y = logsumexp[l](p)", 2, True, _logsumexp),
}
SIZES = (
    (8192, 1024, 1024),
    (4096, 768, 768),
    (16384, 512, 512),
    (4096, 2048, 2048),
    (2048, 4096, 256),
    (256, 1024, 1024),
)


class Cell(NamedTuple):
    name: str
    rows: int
    terms: int
    columns: int

    @property
    def model(self) -> Narrow:
        return Narrow(("bfloat16", "bfloat16"), False, self.rows, self.columns, self.terms, 1, 1, H200)

    def plans(self, count: int) -> list[GemmPlan]:
        """The first of every number of warpgroups and of blocks."""
        _, states, broad, _ = SPECS[self.name]
        every = sorted(row_states.plans(self.model, states, broad), key=lambda p: row_states.seconds(self.model, p))
        return [*{(p.consumers, p.sharing.blocks): p for p in reversed(every)}.values()][::-1][:count]

    def operands(self) -> Arrays:
        import torch

        sizes, found = {"m": self.rows, "k": self.terms, "l": self.columns}, {}
        for t in ra.parse(SPECS[self.name][0]).tensors:
            shape = [sizes[a] for a in t.axes]
            scale = self.terms**-0.5 if t.name == "W" else 1.0
            found[t.name] = (torch.randn(shape, device="cuda") * scale).to(torch.bfloat16)
        return found

    def compiled(self, plan: GemmPlan | None) -> Any:
        """The one kernel by a plan, or both."""

        def apart(*given: Any) -> Any:
            raise Outside("in two kernels")

        def taken(*given: Any) -> Any:
            found = FOLDED(*given)
            return replace(found, choice=replace(found.choice, seconds=1e-9))

        pipeline._rows_folded = taken if plan is not None else apart
        passes.tiles_of_rows = lambda *given: plan
        return ra.derive_incremental(ra.parse(SPECS[self.name][0]), axis="l").compile("cuda")


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    parser.add_argument("--plans", type=int, default=3)
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--seed", default="2026-11-30")
    parser.add_argument("--compile", action="store_true", help="torch.compile, max-autotune, too")
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(words)
    cells = drawn(options.drawn, options.seed) if options.drawn else (Cell(n, *s) for s in SIZES for n in SPECS)
    every = [x for x in cells if fnmatch.fnmatch(x.name, options.only)]
    if options.prepare:
        with multiprocessing.get_context("spawn").Pool(max(1, (os.cpu_count() or 1) - 2)) as pool:
            pool.starmap(_prepared, [(x, p) for x in every for p in (None, *x.plans(options.plans))], chunksize=1)
        return
    for line in (_line(x, options.plans, options.compile) for x in every):
        print(json.dumps(line), flush=True)
        if options.out:
            with options.out.open("a") as f:
                f.write(json.dumps(line | stamp()) + "\n")


def drawn(count: int, seed: str) -> Iterator[Cell]:
    r, found = random.Random(seed), 0
    while found < count:
        rows, terms, columns = (int(2 ** r.uniform(*ends)) for ends in ((6, 15), (6, 12.5), (6, 11)))
        if rows * terms * columns < 1 << 37:
            yield Cell([*SPECS][found % len(SPECS)], rows, terms // 8 * 8, columns // 8 * 8)
            found += 1


def _prepared(made: Cell, plan: GemmPlan | None) -> None:
    try:
        made.compiled(plan)(**made.operands())
    except Exception as problem:  # told by the run that times it
        print(made, plan, repr(problem)[:200], flush=True)


def _line(made: Cell, count: int, compiled: bool) -> dict[str, Any]:
    import torch

    first, peer = made.operands(), SPECS[made.name][3]
    size = sum(x.numel() * x.element_size() for x in first.values())
    sets = [first, *(made.operands() for _ in range(max(1, min(60, COLD // size))))]
    expected = _all(peer({n: a.double() for n, a in first.items()}))
    line: dict[str, Any] = made._asdict() | {"torch error": _error(_all(peer(first)), expected), "plans": []}
    calls: dict[str, Callable[[Arrays], Any]] = {"torch": peer}
    if compiled:
        from benchmarks.gpu.lab import AUTOTUNE

        torch._dynamo.reset()
        calls["torch.compile"] = torch.compile(peer, dynamic=False, mode=AUTOTUNE)
    for k, plan in enumerate((None, *made.plans(count))):
        name = "in parts" if plan is None else f"plan {k}"
        try:
            run = made.compiled(plan)
            error = _error(_all(run(**first)), expected)
            assert plan is None or _count(run.planned) == 1
            predicted = run.planned.choice.seconds if plan is None else row_states.seconds(made.model, plan)
            line["plans"].append(
                {
                    "name": name,
                    "kernels": _count(run.planned),
                    "plan": None if plan is None else [plan.consumers, plan.columns, plan.sharing.blocks, plan.stages],
                    "error": error,
                    "predicted": round(predicted * 1e6, 2),
                }
            )
            calls[name] = lambda x, run=run: run(**x)
        except Exception as problem:
            line["plans"].append({"name": name, "failed": repr(problem)[:300]})
    line["us"] = _raced({who: _captured(call, sets) for who, call in calls.items()}, len(sets), 3, 0.01)
    torch.cuda.empty_cache()
    return line


if __name__ == "__main__":
    main()
