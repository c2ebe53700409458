"""What calls from PyTorch cost beside their arithmetic: `python -m benchmarks.cpu.torch_overhead [--out FILE]`.

A softmax of 4 × 8 float32 on the CPU: the compiled form on arrays of NumPy and of PyTorch, its operator without a
gradient, with one, and with its backward pass, beside PyTorch's own softmax. Each figure is the least of many
batches, in microseconds.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redalg as ra
from benchmarks.cpu.call_overhead import microseconds


def figures() -> dict[str, float]:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    form = ra.derive_incremental(ra.catalog["softmax"])
    run, op = form.compile("cpu"), form.torch_op("benchmarks::softmax")
    x, cotangent = torch.randn(4, 8), torch.randn(4, 8)
    array, leaf = x.numpy(), x.clone().requires_grad_()

    def pulled(function: Any) -> None:
        function(leaf).backward(cotangent)
        leaf.grad = None

    def own(x: Any) -> Any:
        return torch.softmax(x, 1)

    calls = {
        "run, NumPy": lambda: run(x=array),
        "run, PyTorch": lambda: run(x=x),
        "operator": lambda: op(x),
        "operator through the dispatcher": lambda: op.plain(x),
        "operator, gradient wanted": lambda: op(leaf),
        "operator, forward and backward": lambda: pulled(op),
        "torch.softmax": lambda: own(x),
        "torch.softmax, gradient wanted": lambda: own(leaf),
        "torch.softmax, forward and backward": lambda: pulled(own),
    }
    return {name: microseconds(call) for name, call in calls.items()}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures to this file as JSON")
    asked = parser.parse_args(words)
    found = figures()
    for name, value in found.items():
        print(f"{name:40s} {value:8.1f} us")
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
