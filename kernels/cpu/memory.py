"""The operations of `redalg.kernels.cpu.cells` and `…math.vectors` for Numba, by name: what printed kernels import."""

from __future__ import annotations

from redalg.kernels.cpu.cells import OPERATIONS
from redalg.kernels.cpu.math.jitted import jitted
from redalg.kernels.cpu.math.vectors import OPERATIONS as VECTORS

globals().update({name: jitted(name, operation) for name, operation in (OPERATIONS | VECTORS).items()})
