"""Derivatives of specs as specs: reverse and forward mode (`reverse`, `tangent`), and both as callables (`calls`)."""
