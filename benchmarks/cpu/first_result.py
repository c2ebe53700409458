"""Processor seconds up to the first result of `compile("cpu")`: writes `first_result.md`.

Every figure is of processes of their own, the least of several: with an empty cache on disk, where code is compiled,
and with a filled one. Counted are `compile` and one call on small arrays; `import redalg` and the derivation come
before. What of it goes into importing modules (those of redalg, llvmlite; Numba where it is used) is told apart. Time
of the processor does not count what else runs on the machine.
`python -m benchmarks.cpu.first_result [--repetitions 3] [--out FILE]`
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.processes import RECORDS, conditions, fresh, provenance, stamp, timed_imports, versions

CODE = (
    timed_imports("time.process_time")
    + """
import json
import numpy as np, ml_dtypes
import redalg as ra

name, dtype = sys.argv[1:]
form = ra.derive_incremental(ra.catalog[name])
rng, sizes, arrays = np.random.default_rng(0), {"j": 32}, {}
for t in form.spec.tensors:
    shape = tuple(sizes.setdefault(a, (3, 5, 16)[len(sizes) % 3]) for a in t.axes)
    integer = "integer" in str(t.domain)
    x = rng.integers(0, 3, shape) if integer else abs(rng.normal(size=shape)) + 0.25
    arrays[t.name] = float(x) if not t.axes else x if integer else x.astype(getattr(ml_dtypes, dtype, None) or dtype)

watch()
begin = time.process_time()
form.compile("cpu")(**arrays)
print(json.dumps([time.process_time() - begin, spent, "numba" in sys.modules]))
"""
)
CASES = [
    ("softmax", "float32"),
    ("softmax", "bfloat16"),
    ("logsumexp", "float32"),
    ("variance", "float64"),
    ("layer_norm", "float32"),
    ("layer_norm", "bfloat16"),
    ("argmax", "float32"),
    ("top_k", "float32"),
    ("moe_softmax_topk", "float32"),
    ("fp8_quantise", "float32"),
    ("cosine_similarity", "float32"),
    ("cross_entropy", "float32"),
    ("attention", "float32"),
    ("attention", "bfloat16"),
]


def measure(name: str, dtype: str, repetitions: int) -> dict[str, float]:
    """The least seconds, imports included and left out, compiled and from disk."""
    found: dict[str, list[tuple[float, float]]] = {"compiled": [], "disk": []}
    numba = False
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["REDALG_CACHE_DIR"] = cache
            for way, runs in found.items():
                seconds, imports, used = fresh(CODE, name, dtype)
                runs.append((seconds, seconds - imports))
                numba |= used and way == "compiled"
    return {
        **{way: min(r[0] for r in runs) for way, runs in found.items()},
        **{f"{way}, no imports": min(r[1] for r in runs) for way, runs in found.items()},
        "numba": numba,
    }


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the figures to this file as JSON, and no table")
    asked = parser.parse_args(words)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:  # bytecode of installed packages that come without it
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        measure(*CASES[0], 1)
        figures = {f"{name} of {dtype}": measure(name, dtype, asked.repetitions) for name, dtype in CASES}
    if asked.out:
        asked.out.write_text(json.dumps(figures, indent=1) + "\n")
        return
    numba = "Numba is imported." if any(f["numba"] for f in figures.values()) else "Numba is not imported."
    lines = [
        "# First results on the CPU",
        "",
        f'Processor seconds of `compile("cpu")` and one call, the least of {asked.repetitions} fresh processes,',
        f"`import redalg` and the derivation excluded. {numba} Written by `python -m benchmarks.cpu.first_result`.",
        f"{conditions()} {versions('llvmlite', 'numba')}.",
        provenance([stamp()]),
        "",
        "| spec | compiled | without imports | from disk | without imports |",
        "|---|---|---|---|---|",
    ]
    for name, f in figures.items():
        row = (f["compiled"], f["compiled, no imports"], f["disk"], f["disk, no imports"])
        lines.append(f"| {name} | {' | '.join(f'{seconds:.3f}' for seconds in row)} |")
    text = "\n".join(lines) + "\n"
    (RECORDS / "first_result.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
