"""Polynomials over generators, signs, budgets of work, and the algebra of a state: lift, combine, finalize."""
