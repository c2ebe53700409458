"""Products with what comes behind them in one kernel, beside PyTorch: a bias, a residual, GELU.

`python -m benchmarks.gpu.epilogues [--only 'gelu*'] [--out FILE] [--compile]`: captured graphs, in turns, on operands
in turn that exceed the L2; PyTorch's (cuBLAS with its own bias, and kernels of elements) and by `--compile`
torch.compile's, max-autotune. The error is relative to the largest value, of float64.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redalg as ra
from benchmarks.gpu.chains import COLD, _captured, _raced
from benchmarks.harness.processes import stamp

Arrays = dict[str, Any]
P = "sum[k](X[m,k]*W[l,k])"
SIZES = ((8192, 1024, 1024), (4096, 4096, 4096), (128, 4096, 4096), (2048, 768, 3072))


def _linear(x: Arrays) -> Any:
    import torch

    return torch.nn.functional.linear(x["X"], x["W"], x.get("c"))


def _added(x: Arrays) -> Any:
    import torch

    return torch.addmm(x["R"], x["X"], x["W"].T)


def _gelu(x: Arrays) -> Any:
    import torch

    return torch.nn.functional.gelu(_linear(x))


SPECS: dict[str, tuple[str, Callable[[Arrays], Any]]] = {
    "product": (f"return Y = {P}", _linear),
    "bias": (f"return Y = {P} + c[l]", _linear),
    "residual": (f"return Y = {P} + R[m,l]", _added),
    "bias and residual": (f"return Y = {P} + c[l] + R[m,l]", lambda x: _linear(x) + x["R"]),
    "gelu of a bias": (f"return Y = gelu({P} + c[l])", _gelu),
}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    parser.add_argument("--compile", action="store_true", help="torch.compile, max-autotune, too")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(words)
    for sizes in SIZES:
        for name in (n for n in SPECS if fnmatch.fnmatch(n, options.only)):
            line = {"cell": name, "sizes": sizes} | _line(name, dict(zip("mkl", sizes, strict=True)), options.compile)
            print(json.dumps(line), flush=True)
            if options.out:
                with options.out.open("a") as f:
                    f.write(json.dumps(line | stamp()) + "\n")


def _line(name: str, lengths: dict[str, int], compiled: bool) -> dict[str, Any]:
    import torch

    text, peer = SPECS[name]
    form = ra.derive_incremental(ra.parse(text), axis="k")

    def operands() -> Arrays:
        found = {}
        for t in form.spec.tensors:
            x = torch.randn([lengths[a] for a in t.axes], device="cuda")
            found[t.name] = (x * lengths["k"] ** -0.5 if t.name == "W" else x).to(torch.bfloat16)
        return found

    first = operands()
    size = sum(x.numel() * x.element_size() for x in first.values())
    sets = [first, *(operands() for _ in range(max(1, min(20, COLD // size))))]
    run = form.compile("cuda")
    expected = peer({n: x.double() for n, x in first.items()})
    calls: dict[str, Callable[[Arrays], Any]] = {"ours": lambda x: run(**x), "torch": peer}
    if compiled:
        from benchmarks.gpu.lab import AUTOTUNE

        torch._dynamo.reset()
        calls["torch.compile"] = torch.compile(peer, dynamic=False, mode=AUTOTUNE)
    line = {
        who: float(((call(first).double() - expected).abs().max() / expected.abs().max()).item())
        for who, call in calls.items()
    }
    us = _raced({who: _captured(call, sets) for who, call in calls.items()}, len(sets), 3, 0.01)
    torch.cuda.empty_cache()
    return {"errors": line, "us": us, "plan": run.planned.choice.reasons[0]}


if __name__ == "__main__":
    main()
