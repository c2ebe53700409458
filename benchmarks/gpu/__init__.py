"""Generated CUDA kernels beside their peers, counters of the hardware, and what ptxas makes of the kernels."""
