"""Names in generated code: symbols while it is under construction, spelled from a table with scopes when it is printed.

Printers write their own names (``row``, ``t``, ``load_float32``) as they are, and whatever comes from a spec as a
symbol: the word between marks, letters that identifiers may hold, so that it can stand in a line of text. So no name of
a spec is ever taken for one of the printer's, whatever printers put before or behind it, and no list of words has to
be kept. The `SymbolTable` of a module says how symbols are spelled. A word keeps its spelling unless an identifier it
stands in would then be one that is seen there already; then it gets another one. Identifiers that were different stay
so: nothing is captured.

>>> from redalg.source.render import render
>>> from redalg.source.statements import statements
>>> x, y = operand_name("x"), operand_name("t")
>>> block = statements(f"def f({x}, {y}):\\n    t = load({x}, {y})\\ndef g({y}):\\n    return {y}")
>>> print(render(block, names=spellings(block)), end="")
def f(x, t_):
    t = load(x, t_)
<BLANKLINE>
<BLANKLINE>
def g(t_):
    return t_
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from redalg.source.statements import Block, Function, Import, Statement, expressions, walk

OPERAND, RESULT, VALUE, AXIS, ESCAPE = "ǀǁǂǃʘ"
KINDS = OPERAND + RESULT + VALUE + AXIS
ENDINGS = re.compile(r"(.*?)((?:_(?:a|b|new|other|best|some|start|(?:seen|first)\d*))*)")  # of values in steps
FIXED = frozenset(keyword.kwlist) | frozenset(dir(builtins)) | {"__debug__"}
COUNTS = frozenset({"n", "n_b", "n_new", "n_some"})

_WORD = re.compile(r"[^\W\d]\w*")
_MARKED = re.compile(rf"([{KINDS}])(\w*?)\1")


def operand_name(name: str) -> str:
    """A tensor in text under construction."""
    return _between(OPERAND, name)


def result_name(name: str) -> str:
    """An output in text under construction."""
    return _between(RESULT, name)


def axis_name(name: str) -> str:
    """An axis in text under construction, where it is a part of identifiers."""
    return _between(AXIS, name)


@lru_cache(maxsize=1 << 12)
def local(name: str) -> str:
    """A part of a state or a value of a step in text under construction; counts of elements are the printer's own.

    >>> local("n_b"), local("max_x_b") == local("max_x") + "_b"
    ('n_b', True)
    """
    if name in COUNTS:
        return name
    found = ENDINGS.fullmatch(name)
    assert found is not None
    return _between(VALUE, found[1]) + found[2]


@lru_cache(maxsize=1 << 12)
def _between(mark: str, name: str) -> str:
    if name.isascii() and name.isidentifier():
        return f"{mark}{name}{mark}"
    inside = "".join(c if c.isalnum() and c not in KINDS + ESCAPE or c == "_" else _escaped(c) for c in name)
    return f"{mark}{inside}{mark}"


def _escaped(c: str) -> str:
    return f"{ESCAPE}{ord(c)}{ESCAPE}"


def plain(text: str) -> str:
    """The text as it reads without marks: for people, and for the order of names.

    >>> plain(f"{operand_name('x')}_row")
    'x_row'
    """
    return _MARKED.sub(lambda found: _spelled(found[2]), text)


def _spelled(inside: str) -> str:
    def letter(found: re.Match[str]) -> str:
        c = chr(int(found[1]))
        return c if c.isalnum() else "_moved" if c == "'" else "_"

    return re.sub(rf"{ESCAPE}(\d+){ESCAPE}", letter, inside)


def prose(text: str, names: Mapping[str, str]) -> str:
    """Comments and docstrings with identifiers as they are spelled."""
    return _WORD.sub(lambda found: names.get(found[0]) or plain(found[0]), text)


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scope:
    """A function, or what stands around them: the printer's names bound there, and identifiers with words of a spec."""

    own: frozenset[str]
    symbols: tuple[str, ...]


class SymbolTable:
    """The identifiers of a module: of the printer by scope, and those that hold words of a spec.

    `everywhere` are the printer's names that all functions see. A word has one spelling in all of a module.
    """

    def __init__(self, everywhere: frozenset[str], scopes: Iterable[Scope]) -> None:
        self.everywhere, self.scopes = everywhere, tuple(scopes)

    @classmethod
    def of(cls, block: Block) -> SymbolTable:
        """That of the statements of a module."""
        everywhere: set[str] = set()
        scopes = []
        for s in block:
            found = dict.fromkeys(word for inner in walk([s]) for word in _named(inner))
            symbols = tuple(word for word in found if _is_symbol(word))
            bound = (_bound(s) if isinstance(s, Function) else frozenset()).difference(symbols)
            everywhere |= found.keys() - bound - {*symbols}
            scopes.append(Scope(bound, symbols))
        return cls(frozenset(everywhere), scopes)

    def spellings(self) -> dict[str, str]:
        """Identifier with words -> as it is spelled.

        Words are taken in the order of their kinds, then as they appear. One keeps its spelling unless an identifier
        that it stands in is a keyword, a builtin, a name that all functions see, one that a function binds in which it
        occurs, or another word's.
        """
        seen_beside = self._seen_beside()
        found = {symbol: symbol for symbol in seen_beside}
        words = dict.fromkeys(m for symbol in found for m in _MARKED.findall(symbol))
        taken = {*FIXED, *self.everywhere}
        for mark, inside in sorted(words, key=lambda m: KINDS.index(m[0])):
            word = f"{mark}{inside}{mark}"
            bearers = [symbol for symbol in found if word in found[symbol]]
            seen = taken.union(*{id(own): own for b in bearers for own in seen_beside[b]}.values())
            for spelled in _spellings(mark, _spelled(inside)):
                tried = {b: found[b].replace(word, spelled) for b in bearers}
                whole = [_read(name) for name in tried.values() if not _is_symbol(name)]
                if len({*whole}) == len(whole) and seen.isdisjoint(whole):
                    break
            found |= tried
            taken |= {*whole}
        return found

    def _seen_beside(self) -> dict[str, list[frozenset[str]]]:
        """Every symbol, and the printer's names that are bound where it occurs."""
        found: dict[str, list[frozenset[str]]] = {}
        for scope in self.scopes:
            for symbol in scope.symbols:
                found.setdefault(symbol, []).append(scope.own)
        return found


def spellings(block: Block) -> dict[str, str]:
    """How the identifiers of a module that hold words of a spec are spelled; those that differ stay different."""
    return SymbolTable.of(block).spellings()


def _is_symbol(identifier: str) -> bool:
    return _MARKED.search(identifier) is not None


def _bound(function: Function) -> frozenset[str]:
    """What a function binds."""
    return frozenset(function.arguments).union(*(_line(s)[1] for s in walk(function.body)))


def _named(s: Statement) -> tuple[str, ...]:
    """The identifiers of a statement's own line."""
    if isinstance(s, Function):
        return (s.name, *s.arguments, *_line(s)[0])
    return (*s.names, *_line(s)[0]) if isinstance(s, Import) else _line(s)[0]


@lru_cache(maxsize=1 << 14)
def _line(s: Statement) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names in the expressions of a statement's own line, and those it assigns."""
    found = [n for e in expressions(s) for n in _within(e)]
    return tuple(n.id for n in found), tuple(n.id for n in found if isinstance(n.ctx, ast.Store))


def _within(e: ast.expr) -> Iterator[ast.Name]:
    """Names in an expression, in the order of `ast.walk`, which takes three times as long."""
    todo: list[Any] = [e]
    for n in todo:  # grows
        if type(n) is ast.Name:
            yield n
            continue
        for field in n._fields:
            inside = getattr(n, field, None)
            if isinstance(inside, list):
                todo += [x for x in inside if isinstance(x, ast.AST)]
            elif isinstance(inside, ast.AST) and inside._fields:
                todo.append(inside)


def _spellings(mark: str, word: str) -> Iterator[str]:
    yield word
    if mark == RESULT:
        yield f"{word}_out"
    while True:
        word += "_"
        yield word


def _read(name: str) -> str:
    """The identifier as Python reads it."""
    return unicodedata.normalize("NFKC", name)
