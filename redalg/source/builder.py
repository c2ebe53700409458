"""Statements under construction: printers say lines, and open blocks around them.

>>> from redalg.source.render import render
>>> out = Builder()
>>> with out.block("if first:"):
...     out("total = 0")
>>> with out.block("else:"):
...     pass
>>> print(render(out.body()))
if first:
    total = 0
else:
    pass
<BLANKLINE>
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache

from redalg.source.breaking import INDENT, WIDTH
from redalg.source.statements import (
    Block,
    Comment,
    Function,
    If,
    Pass,
    Statement,
    expression,
    function,
    parameters,
    statements,
)


class Builder:
    """A block that grows at its end."""

    def __init__(self) -> None:
        self._open: list[list[Statement]] = [[]]

    def __call__(self, *lines: str | Statement, role: Enum | None = None) -> None:
        """Statements, or lines that say some; lines of a block follow the line that opens it.

        `role`: what the one statement of one line is for.
        """
        here, said = self._open[-1], []
        if role is not None:
            (line,) = lines
            assert isinstance(line, str)
            here += _with_role(line, role)
            return
        if len(lines) == 1 and isinstance(lines[0], str):
            here += statements(lines[0])
            return
        for line in lines:
            if isinstance(line, str):
                said.append(line)
                continue
            here += _read(said)
            said = []
            here.append(line)
        here += _read(said)

    def comment(self, *texts: str) -> None:
        """Comments on lines of their own, each as many as it takes. What they tell of has to follow in this block.

        >>> from redalg.source.render import render
        >>> out = Builder()
        >>> out.comment("the sum of a row")
        >>> out("total = 0")
        >>> print(render(out.body()), end="")
        # the sum of a row
        total = 0
        """
        self._open[-1] += said(*texts, depth=len(self._open))

    @contextmanager
    def block(self, head: str | None, role: Enum | None = None) -> Iterator[list[Statement]]:
        """What is said inside stands under `head`; without a head, where it is. Gives the list that grows."""
        if head is None:
            yield self._open[-1]
            return
        self._open.append([])
        try:
            yield self._open[-1]
        finally:
            body = tuple(self._open.pop()) or (Pass(),)
        here = self._open[-1]
        if head.startswith("else:"):
            above = here[-1]
            assert isinstance(above, If)
            here[-1] = replace(above, orelse=body)
            return
        code, hash_, comment = head.partition("  #")
        (opened,) = statements(f"{code} pass{hash_}{comment}")
        here.append(replace(opened, body=body, role=role))  # type: ignore[call-arg]

    @contextmanager
    def apart(self) -> Iterator[list[Statement]]:
        """What is said inside stands nowhere yet; the list is its own."""
        self._open.append([])
        try:
            yield self._open[-1]
        finally:
            self._open.pop()

    def body(self) -> Block:
        """Everything said so far."""
        assert len(self._open) == 1
        return tuple(self._open[0])

    def function(self, name: str, takes: Iterable[str], doc: Iterable[str] = (), *decorators: str) -> Function:
        """A function of what was said."""
        calls = tuple(map(expression, decorators))
        body = self.body() or (Pass(),)
        return Function(name=name, parameters=parameters(takes), body=body, decorators=calls, doc=tuple(doc))


class Lines:
    """A function under construction as text: what is run often, and looked at by few, is no tree before that.

    >>> out = Lines()
    >>> with out.block("if x < 0:"):
    ...     out("x = -x")
    >>> out("return x")
    >>> print(out.function("size", ["x"]).text, end="")
    def size(x):
        if x < 0:
            x = -x
        return x
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.margin = " " * INDENT

    def __call__(self, *lines: str) -> None:
        """Lines of one statement each."""
        margin = self.margin
        self.lines += [margin + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is said inside stands under `head`."""
        self(head)
        before, self.margin = self.margin, self.margin + " " * INDENT
        said = len(self.lines)
        try:
            yield
            if len(self.lines) == said:
                self("pass")
        finally:
            self.margin = before

    def function(self, name: str, takes: Iterable[str]) -> Text:
        """A function of what was said."""
        return Text(name, tuple(takes), tuple(self.lines))


@dataclass(frozen=True)
class Text:
    """A function as lines."""

    name: str
    takes: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join((f"def {self.name}({', '.join(self.takes)}):", *self.lines, ""))

    @cached_property
    def function(self) -> Function:
        """The same as a tree."""
        return function(self.text)


def said(*texts: str, depth: int = 1) -> Block:
    """Comments as they fit a block so many levels deep; further lines of each are indented by two."""
    width = WIDTH - INDENT * (depth + 1)  # with a few letters to spare, since names are still to be spelled
    wrapped = (
        textwrap.wrap(
            text,
            width,
            subsequent_indent=" " * (len(text) - len(text.lstrip()) + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for text in texts
    )
    return tuple(Comment(line) for lines in wrapped for line in lines)


@lru_cache(maxsize=1 << 10)
def _with_role(line: str, role: Enum) -> Block:
    return tuple(replace(s, role=role) for s in statements(line))


def _read(lines: Sequence[str]) -> Block:
    """The statements of lines, each read once; blocks among them as wholes."""
    if not any(line.startswith(" ") for line in lines):
        return tuple(s for line in lines for s in statements(line))
    return statements("\n".join(lines))
