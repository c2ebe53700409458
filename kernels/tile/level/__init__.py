"""Tile programs: what a kernel on tensor cores computes on tiles, said once, and the passes that lower it."""
