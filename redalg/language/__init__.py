"""The language of specs: leaves, maps and reductions as SymPy expressions, the text grammar, and `Spec`."""
