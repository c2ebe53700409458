"""Graphs, tables and formulas as text and LaTeX."""
