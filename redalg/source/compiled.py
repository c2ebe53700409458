"""Printed functions as callables: compiled once per text, and known to tracebacks.

>>> from redalg.source.statements import function
>>> executed(function("def twice(x):\\n    return 2 * x"), {})(3)
6
"""

from __future__ import annotations

import itertools
import linecache
import sys
import unicodedata
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from redalg.source.builder import Text
from redalg.source.names import plain, spellings
from redalg.source.render import render
from redalg.source.statements import Block, Function, Import

_NUMBERS = itertools.count()


def executed(function: Function | Text, names: Mapping[str, Any]) -> Callable[..., Any]:
    """The function that a statement defines, or lines do, where `names` are defined.

    Words of a spec stay symbols: they are identifiers, and only readers of text want them spelled. Python takes
    identifiers that have one compatible form for one; where that could be, symbols are spelled as in printed text.
    """
    name, text = function.name, function.text if isinstance(function, Text) else render((function,), sys.maxsize)
    if not unicodedata.is_normalized("NFKC", text):
        function = function.function if isinstance(function, Text) else function
        spelled = spellings((function,))
        names = {spelled.get(name, name): value for name, value in names.items()}
        name, text = spelled.get(name, name), render((function,), names=spelled)
    space = {**names}
    exec(_code(text), space)
    found: Callable[..., Any] = space[name]
    return found


@lru_cache(maxsize=1 << 12)
def _code(source: str) -> CodeType:
    filename = f"<redalg {next(_NUMBERS)}>"
    code = compile(source, filename, "exec")
    linecache.cache[filename] = (len(source), None, plain(source).splitlines(True), filename)
    weakref.finalize(code, linecache.cache.pop, filename, None)
    return code


@lru_cache(maxsize=1 << 12)
def called(fn: Callable[..., Any]) -> str:
    """How a function of NumPy or of a module is called in printed text."""
    name: str = fn.__name__
    return f"np.{name}" if vars(np).get(name) is fn else name


def imports(functions: Iterable[Callable[..., Any]]) -> Block:
    """Imports of all functions of modules among these."""
    found: dict[str, set[str]] = {}
    for fn in functions:
        if not called(fn).startswith("np."):
            found.setdefault(fn.__module__, set()).add(fn.__name__)
    return tuple(Import(module=module, names=tuple(sorted(found[module]))) for module in sorted(found))
