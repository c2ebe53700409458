"""Run the benchmarks: `python -m benchmarks` (all) or `python -m benchmarks accuracy derivation_time …`."""

from __future__ import annotations

import importlib
import sys

ALL = {
    "import_time": "benchmarks.cpu.import_time",
    "derivation_time": "benchmarks.cpu.derivation_time",
    "accuracy": "benchmarks.accuracy.cells",
    "accumulator_update": "benchmarks.cpu.accumulator_update",
}

for name in sys.argv[1:] or ALL:
    if name not in ALL:
        raise SystemExit(f"no benchmark named {name!r}; there are {', '.join(ALL)}")
    print(f"== {name}")
    importlib.import_module(ALL[name]).main([])
