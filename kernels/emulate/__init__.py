"""Printed CUDA kernels run on the CPU, thread by thread: every intrinsic in plain Python."""
