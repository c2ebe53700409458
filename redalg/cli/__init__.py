"""The command line: ``python -m redalg``."""
