"""Which blocks of a stream a condition on positions empties, and which it leaves whole: derived from the condition.

Every comparison of positions is an affine function E(i, j) compared with 0. Over a block of rows and one of the stream
its least and largest values lie at corners: E ≤ 0 may hold where the least one is, and holds everywhere where the
largest one is. Numbers that are the same for all of a tile (a length, a prefix) may stand beside them, and extrema of
such functions are conditions joined by and, or. What is not a comparison of positions (a mask that is read) may hold
anywhere and need not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redalg.graph.node import Node, add, const, mul, neg, negate, walk
from redalg.source.names import axis_name

Prints = Callable[[Node, str, str], str]  # a node with names for the row's position and the stream's -> its text


@dataclass(frozen=True)
class Bounds:
    """Texts: the first position of the stream at which the condition may hold, one past the last (None: any), and
    whether it holds in all of a block."""

    low: str | None
    high: str | None
    whole: str


def bounds(condition: Node, row: str, stream: str, prints: Prints) -> Bounds:
    """Bounds of a condition for rows ``{row}_first`` … ``{row}_last`` and positions ``{stream}_first`` …
    ``{stream}_last``."""
    op = condition.op
    if op in ("true", "false"):
        return Bounds(None, None, op.capitalize())
    if op == "not":
        inner = negate(condition.args[0])
        return bounds(inner, row, stream, prints) if inner.op != "not" else Bounds(None, None, "False")
    if op in ("and", "or"):
        parts = [bounds(a, row, stream, prints) for a in condition.args]
        return _joined(op, parts)
    found = _extremum(condition)
    if found is not None:
        return _joined(found[0], [bounds(c, row, stream, prints) for c in found[1]])
    if op in ("le", "lt", "eq"):
        below = _below(condition, row, stream, prints, *condition.args)
        if op != "eq" or below is None:
            return below or Bounds(None, None, "False")
        above = _below(condition, row, stream, prints, *reversed(condition.args))
        return _joined("and", [below, above]) if above is not None else Bounds(None, None, "False")
    return Bounds(None, None, "False")


def _joined(op: str, parts: list[Bounds]) -> Bounds:
    lows, highs = [p.low for p in parts], [p.high for p in parts]
    if op == "and":
        low, high = [x for x in lows if x is not None], [x for x in highs if x is not None]
        wholes = [p.whole for p in parts]
        whole = "False" if "False" in wholes else " and ".join(dict.fromkeys(wholes))
        return Bounds(_folded("max", low), _folded("min", high), whole)
    either = [p.whole for p in parts if p.whole != "False"]
    whole = f"({' or '.join(f'({x})' for x in either)})" if either else "False"
    least = None if None in lows else _folded("min", [x for x in lows if x is not None])
    most = None if None in highs else _folded("max", [x for x in highs if x is not None])
    return Bounds(least, most, whole)


def _folded(word: str, texts: list[str]) -> str | None:
    if not texts:
        return None
    text = texts[0]
    for other in texts[1:]:
        text = f"{word}({text}, {other})"
    return text


def _extremum(condition: Node) -> tuple[str, list[Node]] | None:
    """a ≤ max(b, c) as a ≤ b or a ≤ c, max(a, b) ≤ c as both, and so on."""
    if condition.op not in ("le", "lt"):
        return None
    for side, words in enumerate(({"maximum": "and", "minimum": "or"}, {"maximum": "or", "minimum": "and"})):
        inner, other = condition.args[side], condition.args[1 - side]
        if inner.op in words:
            pairs = [(x, other) if side == 0 else (other, x) for x in inner.args]
            return words[inner.op], [Node(condition.op, p) for p in pairs]
    return None


def _below(condition: Node, row: str, stream: str, prints: Prints, a: Node, b: Node) -> Bounds | None:
    """Of a ≤ b, or a < b, among integers; None for anything that is not an affine comparison of positions."""
    slack = 1 if condition.op == "lt" else 0
    affine = _affine(add(a, neg(b), const(slack)), row, stream)
    if affine is None:
        return None
    along, across, others = affine

    def at(largest: bool, sign: int) -> str:
        end = "last" if largest == (across > 0) else "first"
        return prints(others if sign > 0 else neg(others), f"{axis_name(row)}_{end}", "")

    corner = f"{axis_name(stream)}_{'last' if along > 0 else 'first'}"
    if along == 0:
        return Bounds(None, None, f"{at(True, 1)} <= 0")
    if along > 0:
        return Bounds(None, f"{at(False, -1)} + 1", f"{corner} <= {at(True, -1)}")
    return Bounds(f"{at(False, 1)}", None, f"{corner} >= {at(True, 1)}")


def _affine(node: Node, row: str, stream: str) -> tuple[int, int, Node] | None:
    """The factors, 1 or -1 or 0, of the positions in the stream and in the rows, and all but the stream's term."""
    found: dict[str, int] = {}
    rest = []
    for term in node.args if node.op == "add" else (node,):
        factor, leaf = (term.args[0], term.args[1]) if _scaled(term) else (const(1), term)
        if leaf.op == "index" and leaf.attr in (row, stream):
            if abs(factor.attr) != 1 or leaf.attr in found:
                return None
            found[leaf.attr] = int(factor.attr)
        elif not {row, stream} & term.axes and all(_is_uniform(n, row, stream) for n in walk(term)):
            rest.append(term)
        else:
            return None
    across = found.get(row, 0)
    return found.get(stream, 0), across, add(*rest, *([mul(const(across), Node("index", (), row))] if across else []))


def _scaled(term: Node) -> bool:
    return term.op == "mul" and len(term.args) == 2 and term.args[0].op == "const"


def _is_uniform(n: Node, row: str, stream: str) -> bool:
    """Whether a part of a term is whole, and the same for all of a tile."""
    if n.op == "index":
        return n.attr not in (row, stream)
    if n.op == "tensor":
        return "integer" in n.attr.domain
    if n.op == "const":
        return bool(n.attr.denominator == 1)
    return n.op in ("size", "add", "mul")
