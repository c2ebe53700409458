"""Certificates as data: terms, documents, reading and writing, budgets."""
