"""Seconds on the wall up to the first result of `compile("cuda")`, in fresh processes.

`python -m benchmarks.gpu.first_result [--repetitions 3]`: with an empty cache on disk, where kernels are compiled, and
with a filled one; the least of several. Counted are `compile` and one call on small PyTorch tensors until the device
has ended; `import torch`, a context of the device, `import redalg` and the derivation come before. Bytecode is cached
beforehand, as it is on a machine where the library ran once. What of the call goes into importing Numba is told apart.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence

from benchmarks.harness.processes import conditions, fresh, timed_imports, versions

CODE = (
    timed_imports("time.perf_counter")
    + """
import json
import torch
import redalg as ra

name, dtype = sys.argv[1:]
form, sizes, arrays = ra.derive_incremental(ra.catalog[name]), {}, {}
for t in form.spec.tensors:
    shape = tuple(sizes.setdefault(a, (64, 256, 128)[len(sizes) % 3]) for a in t.axes)
    arrays[t.name] = torch.rand(shape, device="cuda").add_(0.25).to(getattr(torch, dtype)) if t.axes else 1.0
torch.cuda.synchronize()
watch()
begin = time.perf_counter()
run = form.compile("cuda")
run(**arrays)
torch.cuda.synchronize()
print(json.dumps([time.perf_counter() - begin, spent, "numba" in sys.modules]))
"""
)
CASES = [
    ("softmax", "float32"),
    ("layer_norm", "bfloat16"),
    ("rms_norm", "bfloat16"),
    ("logsumexp", "float32"),
    ("moe_softmax_topk", "float32"),
    ("attention", "bfloat16"),
    ("attention_causal", "float16"),
]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    asked = parser.parse_args(words)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print(f"{conditions()} {versions('numba', 'numba-cuda', 'torch')}.\n")
    print("| spec | compiled | of it, imports | from disk | of it, imports |\n|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        _measured(*CASES[0], 1), _measured(*CASES[-1], 1)  # writes the bytecode
        for name, dtype in CASES:
            row = " | ".join(f"{seconds:.2f}" for seconds in _measured(name, dtype, asked.repetitions))
            print(f"| {name} of {dtype} | {row} |", flush=True)


def _measured(name: str, dtype: str, repetitions: int) -> list[float]:
    """The least seconds, compiled and from disk, each with what of them went into imports."""
    found: dict[str, list[tuple[float, float]]] = {"compiled": [], "disk": []}
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["REDALG_CACHE_DIR"] = cache
            for way, runs in found.items():
                seconds, imports, used = fresh(CODE, name, dtype)
                assert used is (way == "compiled"), "Numba is imported to compile, and only then"
                runs.append((seconds, imports))
    return [x for runs in found.values() for x in min(runs)]


if __name__ == "__main__":
    main()
