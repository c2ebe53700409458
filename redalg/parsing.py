"""Python text as a tree, from any thread."""

from __future__ import annotations

import ast
from threading import RLock
from typing import Any

_ONE_AT_A_TIME = RLock()


def parse(text: str, file: str = "<unknown>", mode: str = "exec") -> Any:
    """``ast.parse`` for threads: two that build trees at once may fail in CPython 3.11.

    They count the depth of both trees in one number, and a collection of garbage may let another thread go on inside
    (python/cpython#106905).

    >>> type(parse("a + 1", mode="eval").body).__name__
    'BinOp'
    """
    with _ONE_AT_A_TIME:
        return ast.parse(text, file, mode)
