"""The functions of `redalg.kernels.cpu.math.table` for Numba, by name: what a printed kernel imports.

>>> import numpy as np
>>> [float(exp_f32(np.float32(v))) for v in (0, -np.inf)], float(max_nan_f64(1.0, np.nan))
([1.0, 0.0], nan)
"""

from __future__ import annotations

from typing import Any

from redalg.errors import RedalgError
from redalg.kernels.cpu.math.jitted import jitted
from redalg.kernels.cpu.math.table import OPERATIONS

FUNCTIONS = {name: jitted(name, operation) for name, operation in OPERATIONS.items()}
globals().update(FUNCTIONS)


def __getattr__(name: str) -> Any:
    """Only for names that are not there."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise RedalgError(
        f"the function {name!r}", "redalg.kernels.cpu.math.functions", "there is none", f"one of {sorted(FUNCTIONS)}"
    )
