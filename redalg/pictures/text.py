"""Formulas in pictures: nodes as mathtext where matplotlib can set it, as plain lines where not, and their size."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from functools import lru_cache

from redalg.graph.node import Node, leaves, walk
from redalg.pictures.style import BODY
from redalg.text.latex import LatexWriter
from redalg.text.tables import CallWriter

LINES = 4  # of a formula that is set as plain text; the rest is cut off


@lru_cache(maxsize=4096)
def extent(text: str, size: float = BODY) -> tuple[float, float]:
    """Width and height in inches. Raises ValueError for mathtext that cannot be set."""
    from matplotlib.cbook import is_math_text  # type: ignore[attr-defined, unused-ignore]
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font, width, height = FontProperties(size=size), 0.0, 0.0
    for line in text.split("\n"):
        math = text.count("$") > 1 and is_math_text(line)
        w, h, _ = text_to_path.get_text_width_height_descent(line or " ", font, math)
        width, height = max(width, w), height + max(h, 1.2 * size)
    return width / 72, height / 72


def widest(texts: Iterable[str], size: float = BODY) -> float:
    return max((extent(t, size)[0] for t in texts), default=0.0)


def plain(text: str) -> str:
    """Text in which no character starts a formula."""
    return text.replace("$", r"\$")


def formula(node: Node, names: Mapping[Node, str], width: float, defined: bool = False, size: float = BODY) -> str:
    """A node as mathtext no wider than so many inches, else as lines of plain text. `names`: nodes that have one.

    `defined`: the node has a name itself, and its definition is wanted.

    >>> from redalg.graph.node import fn, tensor
    >>> formula(fn("exp", tensor("x", "j")), {}, 3.0)
    '$e^{{x}_{j}}$'
    """
    short = {n: n.attr.name for n in leaves(node, "state")}  # a part of a state, without its axes
    latex, text = LatexWriter(short | dict(names)), CallWriter(short | dict(names))
    words = text.written(node)[1] if defined else text.text(node)
    if all(n.op != "call" for n in walk(node)):
        tex = f"${latex.written(node)[1] if defined else latex.text(node)}$".replace(r"\frac", r"\dfrac")
        if fits(tex, width, size):
            return tex
    return wrapped(words, width, size)


def fits(tex: str, width: float, size: float = BODY) -> bool:
    """Whether matplotlib can set it on one line of that width."""
    try:
        return extent(tex, size)[0] <= width
    except ValueError:
        return False


def wrapped(words: str, width: float, size: float = BODY, most: int = LINES) -> str:
    """Plain text in lines of that width, cut off after so many."""
    letters = max(8, int(width * len(words) / max(extent(plain(words), size)[0], 1e-9)))
    lines = textwrap.wrap(words, letters, break_long_words=True)
    lines = lines if len(lines) <= most else [*lines[: most - 1], lines[most - 1][: letters - 2] + " …"]
    return plain("\n".join(lines))
