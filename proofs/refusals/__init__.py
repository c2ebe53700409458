"""Certificates of refusals, and their proof."""
