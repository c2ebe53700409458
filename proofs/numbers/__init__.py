"""Rigorous numbers: dyadic enclosures, elementary functions, derivatives."""
