"""Programs as functions in the words of Numba: printed, translated for LLVM, scheduled over threads, called."""
