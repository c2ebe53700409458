"""`redalg.parsing.parse`; where every other module is blocked, as the checker and audits may run, `ast.parse`."""

from __future__ import annotations

try:
    from redalg.parsing import parse
except ImportError:
    from ast import parse  # type: ignore[assignment]

__all__ = ["parse"]
