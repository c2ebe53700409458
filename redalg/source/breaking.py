"""Line breaks in rendered statements: no line longer than a width where Python allows a break, and the same meaning.

Breaks are put where a reader looks for them: arguments fill the lines inside their brackets, a long formula breaks
before its weakest operators. What stands in no bracket gets a pair of parentheses, which the tree does not show.

>>> print(*broken("total = combine(count, mean, square, count_b, mean_b, square_b)", 40), sep="\\n")
total = combine(
    count, mean, square, count_b,
    mean_b, square_b
)
>>> print(*broken("if (value > best) | (value != value) & (best == best):", 40), sep="\\n")
if (
    (value > best)
    | (value != value) & (best == best)
):
"""

from __future__ import annotations

import io
import keyword
import textwrap
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

WIDTH = 110  # columns of a printed line
INDENT = 4
HEADED = frozenset({"if", "elif", "while", "return"})  # statements of a word and an expression
BINDING = [  # operators, those that bind weakest first; a formula breaks before them
    ("if", "else", "for"),
    ("or",),
    ("and",),
    ("<", ">", "<=", ">=", "==", "!=", "in", "is", "not"),
    ("|",),
    ("^",),
    ("&",),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "//", "%", "@"),
]
LEVEL = {operator: level for level, operators in enumerate(BINDING) for operator in operators}
ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "//=", "%=", "@=", "&=", "|=", "^=", "<<=", ">>=", "**="})
WORDS = frozenset({"None", "True", "False"})  # keywords that are values
_SKIPPED = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_OPENS, _CLOSES = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True)
class Item:
    """A token, or brackets with what they hold; `start` and `end` are its columns."""

    text: str
    start: int
    end: int
    inside: tuple[Item, ...] | None = None

    @property
    def is_operand(self) -> bool:
        """Whether an operator after it has two operands."""
        if self.inside is not None or self.text in WORDS:
            return True
        return not keyword.iskeyword(self.text) and (self.text[0].isalnum() or self.text[0] in "_\"'")


def broken(line: str, width: int = WIDTH) -> list[str]:
    """The lines of a line; what cannot be broken (a word, a string) stays as long as it is."""
    if len(line) <= width or line.lstrip().startswith("#"):
        return [line]
    tokens = tokenize.generate_tokens(io.StringIO(line).readline)
    return _Statement(line, width).broken([t for t in tokens if t.type not in _SKIPPED])


def documented(summary: str, lines: Iterable[str], width: int = WIDTH) -> list[str]:
    """A function's docstring: a sentence, and lines of formulas, which break at spaces.

    >>> print("\\n".join(documented("The mean.", ["u = sum[j](x[j]) / size[j]", "return u"])))
        \"\"\"The mean.
    <BLANKLINE>
        u = sum[j](x[j]) / size[j]
        return u
        \"\"\"
    """
    pad, deeper = " " * INDENT, " " * 2 * INDENT
    lines = list(lines)
    alone = not lines
    found = textwrap.wrap(f'{pad}"""{summary}' + ('"""' if alone else ""), width, subsequent_indent=pad)
    if alone:
        return found
    body = [
        part
        for line in lines
        for part in textwrap.wrap(
            line, width, initial_indent=pad, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False
        )
    ]
    return [*found, "", *body, f'{pad}"""']


def _items(tokens: Iterator[tokenize.TokenInfo]) -> Iterator[Item]:
    """Tokens with brackets closed; ends at the bracket that closes what is around them."""
    for token in tokens:
        if token.string in _CLOSES:
            yield Item(token.string, token.start[1], token.end[1])
            return
        if token.string in _OPENS:
            *inside, close = _items(tokens)
            yield Item(token.string, token.start[1], close.end, tuple(inside))
        else:
            yield Item(token.string, token.start[1], token.end[1])


class _Statement:
    """One line, and its breaks."""

    def __init__(self, line: str, width: int) -> None:
        self.line, self.width = line, width
        self.margin = len(line) - len(line.lstrip())

    def broken(self, tokens: Sequence[tokenize.TokenInfo]) -> list[str]:
        found = []
        if tokens[-1].type == tokenize.COMMENT:  # a comment goes before the statement
            *tokens, comment = tokens
            found = [" " * self.margin + comment.string]
        items = list(_items(iter(tokens)))
        if self.margin + len(self.text(items)) <= self.width:
            return [*found, " " * self.margin + self.text(items)]
        return [*found, *self._statement(items)]

    def text(self, items: Sequence[Item]) -> str:
        """As it was written."""
        return self.line[items[0].start : items[-1].end] if items else ""

    def fits(self, margin: int, *texts: str) -> bool:
        return margin + sum(map(len, texts)) <= self.width

    # --- statements --------------------------------------------------------------------------------------------------

    def _statement(self, items: list[Item]) -> list[str]:
        first, words = items[0].text, [x.text for x in items]
        if ":" in words[:-1]:  # an annotation, or a block on the same line
            return self._inside(items, self.margin)
        if first in HEADED:
            tail = ":" if first != "return" else ""
            return self._hang(f"{first} ", items[1 : -1 if tail else None], tail)
        if first == "from" and items[-1].inside is None:
            at = words.index("import") + 1
            return self._hang(self.text(items[:at]) + " ", items[at:], "", True)
        if first == "for" and "in" in words:
            at = words.index("in") + 1
            return self._hang(self.text(items[:at]) + " ", items[at:-1], ":")
        if keyword.iskeyword(first):
            return self._inside(items, self.margin)
        return self._expression(items)

    def _expression(self, items: list[Item]) -> list[str]:
        """An assignment, a decorator, or an expression alone."""
        places = [i for i, x in enumerate(items) if x.text in ASSIGNMENTS and x.inside is None]
        if places:
            return self._assignment(items, places[-1])
        return self._hang("", items, "") if items[0].text != "@" else self._inside(items, self.margin)

    def _assignment(self, items: list[Item], at: int) -> list[str]:
        targets, value = items[:at], items[at + 1 :]
        found = self._hang(f"{self.text(items[: at + 1])} ", value, "")
        words = {x.text for x in targets}
        if len(found[0]) <= self.width or "," not in words or words & ASSIGNMENTS:
            return found
        pad, inner = " " * self.margin, self.margin + INDENT
        return [f"{pad}(", *self._lines(targets, inner), *self._hang(f") {items[at].text} ", value, "")]

    def _hang(self, head: str, body: list[Item], tail: str, list_: bool = False) -> list[str]:
        """`head body tail` with breaks in the body: inside its own brackets if it ends with some, else in new ones."""
        pad, inner = " " * self.margin, self.margin + INDENT
        if self.fits(self.margin, head, self.text(body), tail):
            return [pad + head + self.text(body) + tail]
        if not list_ and len(self._parts(body)) == 1 and body[-1].inside:
            return self._inside(body, self.margin, head, tail)
        if len(body) < 2:  # one word: parentheses would only move it
            return [pad + head + self.text(body) + tail]
        return [f"{pad}{head}(", *self._lines(body, inner), f"{pad}){tail}"]

    # --- expressions, inside brackets --------------------------------------------------------------------------------

    def _lines(self, items: Sequence[Item], margin: int, head: str = "", tail: str = "") -> list[str]:
        flat = self.text(items)
        if self.fits(margin, head, flat, tail):
            return [" " * margin + head + flat + tail]
        parts = self._parts(items)
        if len(parts) == 1:
            return self._inside(items, margin, head, tail)
        if items[0] is parts[0][0] and any(x.text == "," for x in items):
            return self._filled(parts, margin, head, tail)
        found, deeper = [], margin + (INDENT if head else 0)
        for number, part in enumerate(parts):
            operator = head if not number else f"{part[0].text} "
            end = tail if number == len(parts) - 1 else ""
            found += self._lines(part[bool(number) :], deeper if number else margin, operator, end)
        return found

    def _filled(self, parts: list[list[Item]], margin: int, head: str, tail: str) -> list[str]:
        """Items of a list: as many on a line as it holds."""
        found: list[str] = []
        line = " " * margin + head
        for number, part in enumerate(parts):
            end = "," if number < len(parts) - 1 else tail
            joined = f"{line} " if line.strip() else line
            if self.fits(len(joined), self.text(part), end):
                line = joined + self.text(part) + end
                continue
            found += [line] if line.strip() else []
            *above, line = self._lines(part, margin, tail=end)
            found += above
            if above:  # what follows something broken starts a line
                found.append(line)
                line = " " * margin
        return found + ([line] if line.strip() else [])

    def _inside(self, items: Sequence[Item], margin: int, head: str = "", tail: str = "") -> list[str]:
        """Break inside the longest brackets; what has none stays."""
        places = [i for i, x in enumerate(items) if x.inside]
        pad = " " * margin
        if not places:
            return [pad + head + self.text(items) + tail]
        at = max(places, key=lambda i: items[i].end - items[i].start)
        group = items[at]
        assert group.inside is not None
        above = self.line[items[0].start : group.start + 1]
        below = self.line[group.end - 1 : items[-1].end]
        return [pad + head + above, *self._lines(group.inside, margin + INDENT), pad + below + tail]

    def _parts(self, items: Sequence[Item]) -> list[list[Item]]:
        """Cut at every comma, else before every operator of the weakest kind (which begins its part)."""
        if any(x.text == "," for x in items):
            return _between(items)
        if any(x.text in ("lambda", "yield", ":") for x in items):
            return [list(items)]
        levels = [
            LEVEL.get(x.text, len(BINDING)) if i and items[i - 1].is_operand and x.inside is None else len(BINDING)
            for i, x in enumerate(items)
        ]
        weakest = min(levels)
        if weakest == len(BINDING):
            return [list(items)]
        cuts = [0, *(i for i, level in enumerate(levels) if level == weakest), len(items)]
        return [list(items[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]


def _between(items: Sequence[Item]) -> list[list[Item]]:
    """What stands between commas; the last comma stays with what it follows if nothing comes after it."""
    parts: list[list[Item]] = [[]]
    for number, x in enumerate(items):
        if x.text != ",":
            parts[-1].append(x)
        elif number == len(items) - 1:
            parts[-1].append(x)
        else:
            parts.append([])
    return parts
