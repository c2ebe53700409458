"""Values computed once per object, found by identity and forgotten with it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class Remember:
    """A dict on objects by identity, for keys that are slow to hash. Making a value twice must be harmless.

    >>> class Key: ...
    >>> remember, key = Remember(), Key()
    >>> remember(key, lambda: 1), remember(key, lambda: 2)
    (1, 1)
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def __call__(self, key: Any, make: Callable[[], Any]) -> Any:
        number, found = id(key), self._found
        entry = found.get(number)
        if entry is None or entry[0]() is not key:
            entry = weakref.ref(key, lambda _: found.pop(number, None)), make()
            found[number] = entry
        return entry[1]
