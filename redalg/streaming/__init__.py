"""The NumPy runtime: streaming accumulators and one-shot runs of forms."""

from redalg.streaming.accumulator import Accumulator
from redalg.streaming.run import run_numpy, run_wide
from redalg.streaming.state import repeats

__all__ = ["Accumulator", "repeats", "run_numpy", "run_wide"]
