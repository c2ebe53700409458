"""Certificates for SMT solvers."""

from redalg._moved import contents

__getattr__ = contents(__name__)
