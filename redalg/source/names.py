"""Names in printed source: marked while it is under construction, spelled when it is complete.

Printers write their own names (``row``, ``t``, ``load_float32``) as they are, and whatever comes from a spec between
marks: letters that identifiers may hold. So no name of a spec is ever taken for one of the printer's, whatever
printers put before or behind it, and no list of words has to be kept. `spelled` takes the marks away. A word keeps
its spelling unless an identifier it stands in would then be one that the source has already; then it gets another one.
Identifiers that were different stay so: nothing is captured.

>>> from redalg.source.render import render
>>> from redalg.source.statements import statements
>>> x, y = operand_name("x"), operand_name("t")
>>> print(render(spelled(statements(f"def f({x}, {y}):\\n    t = load({x}, {y})"))[0]), end="")
def f(x, t_):
    t = load(x, t_)
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import replace

from redalg.source.statements import Block, For, Function, If, Import, Statement, While, expressions, renamed, walk

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


def _between(mark: str, name: str) -> str:
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


def spelled(block: Block) -> tuple[Block, dict[str, str]]:
    """A module's statements with every marked identifier spelled, and how: identifiers that differ stay different."""
    own, marked = _identifiers(block)
    names = _names(own, marked)
    return _with_spellings(block, names), names


def _with_spellings(block: Block, names: Mapping[str, str]) -> Block:
    """Identifiers and prose with words as they are spelled."""

    def prose(text: str) -> str:
        return _WORD.sub(lambda found: names.get(found[0]) or plain(found[0]), text) if text else text

    def change(s: Statement) -> Statement:
        s = replace(s, comment=prose(s.comment)) if s.comment else s
        if isinstance(s, Function):
            given = tuple(replace(p, name=names.get(p.name, p.name)) for p in s.parameters)
            doc = tuple(map(prose, s.doc))
            return replace(s, name=names.get(s.name, s.name), parameters=given, doc=doc, body=inside(s.body))
        if isinstance(s, If):
            return replace(s, body=inside(s.body), orelse=inside(s.orelse))
        if isinstance(s, For | While):
            return replace(s, body=inside(s.body))
        return replace(s, names=tuple(names.get(n, n) for n in s.names)) if isinstance(s, Import) else s

    def inside(block: Block) -> Block:
        return tuple(map(change, block))

    return renamed(inside(block), names)


def _identifiers(block: Block) -> tuple[set[str], dict[str, None]]:
    """The printer's own identifiers, and those with marks in order: of variables, functions and what is imported.

    What is bound in a function without marks is nobody's business outside of it.
    """
    own: set[str] = set()
    marked: dict[str, None] = {}
    for statement in block:
        words = dict.fromkeys(word for s in walk([statement]) for word in _named(s))
        here = {word: None for word in words if _MARKED.search(word)}
        hidden = _inside(statement) if not here else set()
        own |= {*words} - {*here} - hidden
        marked |= here
    return own, marked


def _inside(statement: Statement) -> set[str]:
    """What a function binds."""
    if not isinstance(statement, Function):
        return set()
    inside = [e for s in walk(statement.body) for e in expressions(s)]
    assigned = {n.id for e in inside for n in ast.walk(e) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return assigned | {*statement.arguments}


def _named(s: Statement) -> Iterator[str]:
    if isinstance(s, Function):
        yield s.name
        yield from s.arguments
    elif isinstance(s, Import):
        yield from s.names
    for e in expressions(s):
        yield from (n.id for n in ast.walk(e) if isinstance(n, ast.Name))


def _names(own: set[str], marked: Mapping[str, None]) -> dict[str, str]:
    taken, found = FIXED | own, {word: word for word in marked}
    words = dict.fromkeys(m for word in marked for m in _MARKED.findall(word))
    for mark, inside in sorted(words, key=lambda m: KINDS.index(m[0])):
        bearers = [w for w in marked if f"{mark}{inside}{mark}" in found[w]]
        for spelled in _spellings(mark, _spelled(inside)):
            tried = {w: found[w].replace(f"{mark}{inside}{mark}", spelled) for w in bearers}
            whole = [_read(name) for name in tried.values() if not _MARKED.search(name)]
            if len({*whole}) == len(whole) and taken.isdisjoint(whole):
                break
        found |= tried
        taken = taken | {*whole}
    return found


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
