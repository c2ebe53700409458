"""Kernels on tensor cores: wgmma and mma.sync, tiles of scores, frozen maxima, splits."""
