"""Accumulators by group: one state per key, with the groups as a leading axis."""
