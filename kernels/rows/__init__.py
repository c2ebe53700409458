"""Kernels that reduce rows: what CPU and CUDA share."""
