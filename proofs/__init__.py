"""Certificates of derived forms and what checks them, installed as ``redalg.proofs``.

The home of the checker, which shares no code with the engine that finds a form: it sees obligations, never kernels,
and imports with sympy, numpy, numba and every other redalg module blocked.
"""

if __name__ != "redalg.proofs":
    raise ImportError(
        f"refused: this folder cannot be imported as {__name__!r}\n"
        "where:   proofs/__init__.py of redalg\n"
        "why:     it is the package redalg.proofs and its modules import each other under that name\n"
        "try:     pip install -e . in the checkout, then import redalg.proofs"
    )
