"""Kernels of specs ending in a GEMM: prologue, tiles, epilogue."""
