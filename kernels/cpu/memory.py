"""The operations of `redalg.kernels.cpu.cells` for Numba, by name: what a printed kernel imports."""

from __future__ import annotations

from redalg.kernels.cpu.cells import OPERATIONS
from redalg.kernels.cpu.math.jitted import jitted

globals().update({name: jitted(name, operation) for name, operation in OPERATIONS.items()})
