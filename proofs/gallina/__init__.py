"""Certificates for Rocq."""
