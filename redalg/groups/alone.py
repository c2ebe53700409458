"""What lets one call in at a time: a second thread is refused, and nothing that it brings is half taken in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from redalg.streaming import checks


class Alone:
    """Held by one call; copies and pickles are held by none.

    >>> alone = Alone()
    >>> with alone("Grouped.update"):
    ...     pass
    """

    def __init__(self) -> None:
        self._lock = Lock()

    @contextmanager
    def __call__(self, where: str) -> Iterator[None]:
        """Raises: RedalgError while another call holds it."""
        if not self._lock.acquire(blocking=False):
            raise checks.shared(where)
        try:
            yield
        finally:
            self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Alone, ()
