"""Measurements: accuracy against 50 digits, times of derivation, import and update. `python -m benchmarks` runs all."""
