"""Tokens of the text grammar, and errors that show the place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from redalg.errors import RedalgError

_TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<op>\*\*|[<>=!]=|[-+*/<>()\[\],;:=.])"
    r"|(?P<newline>\n)|(?P<skip>[ \t\r]+|\#[^\n]*)|(?P<bad>.)"
)


_OPEN_BEFORE = frozenset("** + - * / < <= > >= == != = , . and or".split())
_OPEN_AFTER = _OPEN_BEFORE | frozenset("not return tensors order empty dtype monoid".split())


@dataclass(frozen=True)
class Token:
    kind: str  # number name op end
    text: str
    at: int


_INSTEAD = {
    "@": "write sum[d](a[i,d]*b[d,k]) for a product of matrices",
    "^": "use ** for powers",
    "%": "write a - b*floor(a/b)",
    "\N{MINUS SIGN}": "write -",
}


@dataclass
class Tokens:
    """The tokens of a text and the place of the next one."""

    text: str
    tokens: list[Token] = field(init=False)
    position: int = 0

    def __post_init__(self) -> None:
        self.tokens, nesting = [], 0
        for m in _TOKEN.finditer(self.text):
            kind, text = m.lastgroup or "bad", m.group()
            nesting += (text in ("(", "[")) - (text in (")", "]"))
            if kind == "bad":
                fix = _INSTEAD.get(text, "see help(redalg.language.grammar) for the grammar")
                raise self.error(m.start(), f"the character {text!r}", "it is not in the grammar", fix)
            if kind == "newline" and nesting <= 0 and not self._goes_on():
                self.tokens.append(Token("op", ";", m.start()))
            elif kind not in ("newline", "skip"):
                self._append(Token(kind, text, m.start()))
        self.tokens.append(Token("end", "the end", len(self.text)))

    def _goes_on(self) -> bool:
        """Whether no statement ends in the last token: an operator, a comma, a word that something has to follow."""
        last = self.tokens[-1].text if self.tokens else ";"
        return last in _OPEN_AFTER

    def _append(self, token: Token) -> None:
        """A line that begins with an operator of two sides goes on with the one before: no statement begins so."""
        while token.text in _OPEN_BEFORE and self.tokens and self._broken_line():
            self.tokens.pop()
        self.tokens.append(token)

    def _broken_line(self) -> bool:
        return self.text[self.tokens[-1].at] == "\n"

    def error(self, at: int, what: str, why: str, fix: str) -> RedalgError:
        start = self.text.rfind("\n", 0, at) + 1
        shown = self.text[max(start, at - 30) : at + 30].split("\n")[0]
        return RedalgError(what, f"ra.parse, at character {at}: …{shown}…", why, fix)

    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    def take(self, *texts: str) -> str | None:
        """The next token if it is one of these operators or words."""
        token = self.next
        if token.kind in ("op", "name") and token.text in texts:
            self.position += 1
            return token.text
        return None

    def need(self, text: str) -> None:
        if self.take(text) is None:
            raise self.unexpected(f"{text!r} is expected")

    def unexpected(self, why: str) -> RedalgError:
        return self.error(self.next.at, f"{self.next.text!r}", why, "see help(redalg.language.grammar) for the grammar")

    def kind(self, kind: str, what: str) -> str:
        token = self.next
        if token.kind != kind:
            raise self.unexpected(f"{what} is expected")
        self.position += 1
        return token.text
