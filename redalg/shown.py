"""`Shown`: what has a rich display, which `redalg.display` computes when one is asked for."""

from __future__ import annotations

from typing import Any


class Shown:
    """In Jupyter the object appears as formulas and tables, in a terminal as text (`redalg.display`)."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from redalg.display import bundle

        return bundle(self)
