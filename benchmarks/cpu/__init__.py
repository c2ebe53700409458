"""What takes time on the CPU: generated kernels beside their peers, derivation, import, updates."""
