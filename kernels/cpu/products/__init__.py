"""Products of matrices on the CPU: tiles of sums in registers, calls that are one, and calls in blocks of rows."""
