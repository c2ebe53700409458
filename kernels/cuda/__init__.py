"""Programs as CUDA kernels: planned, launched, measured, called."""
