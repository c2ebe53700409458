"""Lines of text about nodes: aligned tables, and names for what is written more than once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from redalg.graph.node import Node, walk
from redalg.text.nodes import ATOM as _ATOM
from redalg.text.nodes import Writer

Paint = Callable[[str], str]
WORTH = 6  # operations from which on a repeated expression gets a line of its own


class CallWriter(Writer):
    """Also writes the operations on sorted lists that `redalg.algebra.state` names, and paints what is ``marked``."""

    def __init__(self, names: dict[Node, str], paint: Paint = str) -> None:
        super().__init__(names)
        self.paint = paint

    def written(self, n: Node) -> tuple[int, str]:
        if n.op == "marked":
            (inner,) = n.args
            level, text = super().written(inner)
            return (_ATOM, self.paint(f"({text})")) if inner.op == "add" else (level, self.paint(text))
        level, text = super().written(n)
        return (level, f"{n.attr}({self.listed(n.args)})") if n.op == "call" else (level, text)


class Lines:
    """Writes nodes that share parts: what occurs more than once is bound to a name first.

    >>> from redalg.graph.node import tensor, reduction, fn, sub
    >>> x = tensor("x", "j")
    >>> s = reduction("sum", "d", tensor("q", "jd"))
    >>> lines = Lines([fn("exp", s), sub(s, x)], taken=("x", "q"))
    >>> lines.bindings()
    [('t1', 'sum[d](q[j,d])')]
    >>> lines.text(fn("exp", s))
    'exp(t1)'
    """

    def __init__(
        self,
        roots: Iterable[Node],
        taken: Iterable[str] = (),
        known: Mapping[Node, str] = {},
        paint: Paint = str,
    ) -> None:
        roots, self._taken = list(roots), {*taken, *known.values()}
        self.names: dict[Node, str] = dict(known)
        self.new: dict[Node, str] = {}
        for node in self._shared(roots):
            self.names[node] = self.new[node] = self._fresh()
        self._writer = CallWriter(self.names, paint)

    def _shared(self, roots: Sequence[Node]) -> Iterable[Node]:
        """Nodes used more than once, or too large for one line, arguments first."""
        uses: dict[Node, int] = dict.fromkeys(roots, 0)
        weight: dict[Node, int] = {}
        for root in roots:
            uses[root] += 1
        for node in walk(*roots):
            for a in dict.fromkeys(node.args):
                uses[a] = uses.get(a, 0) + 1
        for node in walk(*roots):
            weight[node] = 1 + sum(weight[a] for a in node.args)
            often = uses[node] > 1 and (weight[node] >= WORTH or node.op == "reduce")
            if node in self.names:
                weight[node] = 1
            elif node.args and (often or weight[node] > 12 * WORTH):
                weight[node] = 1
                yield node

    def _fresh(self) -> str:
        number = len(self.new) + 1
        while f"t{number}" in self._taken:
            number += 1
        self._taken.add(f"t{number}")
        return f"t{number}"

    def text(self, node: Node) -> str:
        return self._writer.text(node)

    def definition(self, node: Node) -> str:
        """The text of a node that has a name itself."""
        return self._writer.written(node)[1]

    def bindings(self) -> list[tuple[str, str]]:
        return [(name, self.definition(node)) for node, name in self.new.items()]


def table(rows: Iterable[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows of cells as lines with aligned columns; the last column is not padded.

    >>> table([("a", "bb"), ("ccc", "d")], indent="")
    ['a    bb', 'ccc  d']
    """
    rows = [tuple(r) for r in rows]
    widths = [max(len(r[i]) for r in rows if i < len(r)) for i in range(max(map(len, rows), default=0))]
    padded = ("  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=False)).rstrip() for r in rows)
    return [indent + line for line in padded]


def equations(pairs: Iterable[tuple[str, str]], indent: str = "  ") -> list[str]:
    """``name = text`` with the equal signs below each other."""
    pairs = list(pairs)
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"{indent}{name.ljust(width)} = {text}" for name, text in pairs]


def listed(words: Iterable[str], empty: str = "nothing") -> str:
    """Words as prose: "a", "a and b", "a, b and c"."""
    words = list(words)
    if len(words) < 2:
        return words[0] if words else empty
    return ", ".join(words[:-1]) + " and " + words[-1]


def volume(axes: Sequence[str]) -> str:
    """The number of values in an array as a product of axis lengths."""
    return "·".join(f"|{a}|" for a in axes) or "1"


def bytes_of(volumes: Iterable[str], each: int = 8) -> str:
    """Bytes of arrays of the given volumes, equal ones collected.

    >>> bytes_of(["|i|", "1", "|i|"]), bytes_of(["1", "1"])
    ('8·(1 + 2·|i|)', '16')
    """
    values = total(volumes)
    if values.isdigit():
        return str(each * int(values))
    return f"{each}·({values})" if " + " in values else f"{each}·{values}"


def total(volumes: Iterable[str]) -> str:
    """A sum of volumes with equal ones collected: ``2·|i| + |i|·|e|``."""
    counts: dict[str, int] = {}
    for v in volumes:
        counts[v] = counts.get(v, 0) + 1
    ones = counts.pop("1", 0)
    terms = ([str(ones)] if ones else []) + [v if k == 1 else f"{k}·{v}" for v, k in counts.items()]
    return " + ".join(terms) or "0"


def plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}es" if word.endswith("s") else f"{number} {word}s"
