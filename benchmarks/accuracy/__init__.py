"""Accuracy of derived forms and of published updates, against exact values."""
