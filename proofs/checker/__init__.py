"""Proving the obligations of a document: normal forms, cases, sums, orders, domains."""
