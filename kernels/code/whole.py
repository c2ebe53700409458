"""Tiles that lie inside a row need no bounds: the work of one is said twice, with them and without.

A thread of a column schedule steps from line to line, and between two elements of a tile lies a test of 64 bits and a
product for its address; without tests, addresses follow from each other by sums. All but the last tile are whole.

>>> from redalg.source.render import render
>>> from redalg.source.statements import statements
>>> print(render(in_two(statements('''for k in range(4):
...     at = min(first + k * 8, stop - 1)
...     x_tile[k] = load_bfloat16(x, at * x_s0)
... for k in range(4):
...     at = first + k * 8
...     if at < stop:
...         total = total + x_tile[k]'''), "stop", "first + 24 < stop")), end="")
if first + 24 < stop:
    for k in range(4):
        at = first + k * 8
        x_tile[k] = load_bfloat16(x, at * x_s0)
    for k in range(4):
        at = first + k * 8
        total = total + x_tile[k]
else:
    for k in range(4):
        at = min(first + k * 8, stop - 1)
        x_tile[k] = load_bfloat16(x, at * x_s0)
    for k in range(4):
        at = first + k * 8
        if at < stop:
            total = total + x_tile[k]

Where `left` places are left of the row, bounds are compared with that, and a place is `first + min(k * 8, left - 1)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from redalg.source.render import text
from redalg.source.statements import Assign, Block, For, If, Statement, expression, rewritten


def in_two(block: Iterable[Statement], stop: str, whole: str) -> Block:
    """The work of a tile, in two: where it is `whole`, every place `at` lies before `stop`."""
    given = tuple(block)
    return (If(test=expression(whole), body=tuple(_unbounded(given, stop)), orelse=given),)


def _unbounded(block: Block, stop: str) -> Iterator[Statement]:
    for s in block:
        if isinstance(s, If) and not s.orelse and _bounds(text(s.test), stop):
            yield from _unbounded(s.body, stop)
        elif isinstance(s, For):
            yield replace(s, body=tuple(_unbounded(s.body, stop)))
        elif isinstance(s, If):
            body, other = (tuple(_unbounded(b, stop)) for b in (s.body, s.orelse))
            yield replace(s, body=body, orelse=other)
        elif isinstance(s, Assign) and [text(t) for t in s.targets] == ["at"]:
            yield replace(s, value=rewritten(s.value, _greatest))
        elif not (isinstance(s, Assign) and [text(t) for t in s.targets] == ["left"]):
            yield s


def _bounds(test: str, stop: str) -> bool:
    return test == f"at < {stop}" or test.startswith("k") and test.endswith(" < left")


def _greatest(e: ast.expr) -> ast.expr | None:
    """What a place is where it is not the least of two."""
    least = isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == "min"
    return e.args[0] if least and isinstance(e, ast.Call) else None
