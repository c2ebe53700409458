"""Measurements: accuracy against 50 digits, times of derivation, import and update, kernels on CPU and GPU."""

from importlib.util import find_spec
from pathlib import Path

import redalg

if find_spec("redalg.kernels") is None:  # a bare checkout: the folders lie beside the package, not in it
    redalg.__path__.append(str(Path(__file__).resolve().parent.parent))
