"""Straight-line programs: graphs as printed functions of array operations, and the few functions these call."""
