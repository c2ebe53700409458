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
...         total = total + x_tile[k]'''), "at", "stop", "first + 24 < stop")), end="")
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
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from redalg.source.render import text
from redalg.source.statements import Assign, Block, For, If, Statement, expression


def in_two(block: Iterable[Statement], place: str, stop: str, whole: str) -> Block:
    """The work of a tile, in two: where it is `whole`, every `place` lies before `stop`."""
    given = tuple(block)
    return (If(test=expression(whole), body=tuple(_unbounded(given, place, stop)), orelse=given),)


def _unbounded(block: Block, place: str, stop: str) -> Iterator[Statement]:
    for s in block:
        if isinstance(s, If) and not s.orelse and text(s.test) == f"{place} < {stop}":
            yield from _unbounded(s.body, place, stop)
        elif isinstance(s, For):
            yield replace(s, body=tuple(_unbounded(s.body, place, stop)))
        elif isinstance(s, If):
            body, other = (tuple(_unbounded(b, place, stop)) for b in (s.body, s.orelse))
            yield replace(s, body=body, orelse=other)
        elif isinstance(s, Assign) and [text(t) for t in s.targets] == [place] and _least(s.value):
            assert isinstance(s.value, ast.Call)
            yield replace(s, value=s.value.args[0])
        else:
            yield s


def _least(e: ast.expr) -> bool:
    return isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == "min"
