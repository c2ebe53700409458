"""Pages of `redalg.display`, taken apart: well-formed HTML with its text and its tables."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any


class Balanced(HTMLParser):
    """Collects text and table cells; refuses tags that do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "br":
            return
        self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data


def well_formed(page: str) -> Balanced:
    found = Balanced(page)
    for formula in re.findall(
        r"\$(.*?)\$", re.sub(r"<pre.*?</pre>|<details>.*?</details>", "", page, flags=re.S), re.S
    ):
        latex = unescape(formula)
        assert latex.count("{") == latex.count("}"), latex
        assert latex.count(r"\left") - latex.count(r"\leftarrow") == latex.count(r"\right"), latex
        assert latex.count(r"\begin") == latex.count(r"\end"), latex
    return found
