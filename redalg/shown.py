"""`Shown`: what has a rich display, which `redalg.display` computes when one is asked for."""

from __future__ import annotations

from typing import Any

from redalg import _hooks


class Shown:
    """In Jupyter the object appears as formulas and tables, in a terminal as text (`redalg.display`)."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return _hooks.bundle(self)

    def _repr_html_(self) -> str:
        return _hooks.html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The text of a bundle; IPython asks for it first where it has a printer of its own, as for exceptions."""
        printer.text(_hooks.plain(self))
