"""Tokens of the text grammar, and errors that show the place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from redalg.errors import RedalgError

_TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<op>\*\*|[<>=!]=|[-+*/<>()\[\],;:=.])"
    r"|(?P<newline>\n)|(?P<skip>[ \t\r]+|\#[^\n]*)|(?P<bad>.)"
)


@dataclass(frozen=True)
class Token:
    kind: str  # number name op end
    text: str
    at: int


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
            if kind == "newline" and nesting <= 0:
                kind, text = "op", ";"
            if kind == "bad":
                raise self.error(m.start(), f"the character {text!r}", "it is not in the grammar", "use ** for powers")
            if kind not in ("newline", "skip"):
                self.tokens.append(Token(kind, text, m.start()))
        self.tokens.append(Token("end", "the end", len(self.text)))

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
