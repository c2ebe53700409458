"""Kernels for derived forms, installed as ``redalg.kernels`` (the import name ``kernels`` is another project's).

The home of everything between a form and machine code: a small IR, the schedules, the passes that lower one to the
other, and the emitters for NumPy, Numba and CUDA. It sees forms, never how they were derived.
"""

if __name__ != "redalg.kernels":
    raise ImportError(
        f"refused: this folder cannot be imported as {__name__!r}\n"
        "where:   kernels/__init__.py of redalg\n"
        "why:     it is the package redalg.kernels; the name 'kernels' belongs to another project\n"
        "try:     pip install -e . in the checkout, then import redalg.kernels"
    )
