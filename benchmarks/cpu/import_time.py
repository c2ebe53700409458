"""Time of `import redalg` beside `import sympy`, in fresh processes: writes `import_time.md`.

Demanded: at most 0.1 s more than sympy, and neither numba nor CUDA loaded. `python -m benchmarks.cpu.import_time`
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from benchmarks.harness.processes import RECORDS, conditions, fresh

CODE = """
import json, sys, time
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
heavy = {{"numba", "cuda", "cupy", "torch", "jax", "sympy", "numpy"}}
print(json.dumps([seconds, sorted(heavy & set(sys.modules))]))
"""
STATEMENTS = {
    "import sympy": "import sympy",
    "import redalg": "import redalg",
    "import redalg and use a name": "import redalg; redalg.Spec; redalg.sum; redalg.derive_incremental",
}


def measure(statement: str, repetitions: int) -> tuple[float, list[str]]:
    """Median seconds and the heavy packages that were loaded."""
    runs = [fresh(CODE.format(statement=statement)) for _ in range(repetitions)]
    return statistics.median(s for s, _ in runs), runs[-1][1]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    repetitions = parser.parse_args(arguments).repetitions
    written = f"Median of {repetitions} fresh processes. Written by `python -m benchmarks.cpu.import_time`."
    lines = ["# Import times", "", written, conditions(), "", "| statement | seconds | loaded |", "|---|---|---|"]
    for name, statement in STATEMENTS.items():
        seconds, loaded = measure(statement, repetitions)
        lines.append(f"| `{name}` | {seconds:.3f} | {', '.join(loaded) or 'none of them'} |")
    text = "\n".join(lines) + "\n"
    (RECORDS / "import_time.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
