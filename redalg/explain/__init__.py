"""Forms in words and formulas, computed from their plans."""
