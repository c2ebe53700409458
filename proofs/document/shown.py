"""`Shown`: what has a rich display where the rest of the library is there, and none where it is blocked."""

from __future__ import annotations

try:
    from redalg.shown import Shown
except ImportError:  # the checker also runs with every other module blocked

    class Shown:  # type: ignore[no-redef]
        """Without `redalg.display` an object has its text alone."""

        __slots__ = ()


__all__ = ["Shown"]
