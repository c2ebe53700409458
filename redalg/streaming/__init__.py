"""The NumPy runtime: streaming accumulators and one-shot runs of forms."""

from redalg.streaming.accumulator import Accumulator
from redalg.streaming.run import run_numpy, run_wide

__all__ = ["Accumulator", "run_numpy", "run_wide"]
