"""Tiles that lie inside a row need no bounds: the work of one is said twice, with them and without.

A thread of a column schedule steps from line to line, and between two elements of a tile lies a test of 64 bits and a
product for its address; without tests, addresses follow from each other by sums. All but the last tile are whole.

>>> from redalg.source.render import render
>>> from redalg.source.builder import Builder
>>> out = Builder()
>>> with out.block("for k in range(4):"):
...     out("at = min(first + k * 8, stop - 1)", role=Role.PLACE)
...     out("x_tile[k] = load_bfloat16(x, at * x_s0)")
>>> with out.block("for k in range(4):"):
...     out("at = first + k * 8", role=Role.PLACE)
...     with out.block("if at < stop:", Role.INSIDE):
...         out("total = total + x_tile[k]")
>>> print(render(in_two(out.body(), "first + 24 < stop")), end="")
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
from collections.abc import Iterable
from dataclasses import replace

from redalg.kernels.code.roles import Role
from redalg.source.statements import Assign, Block, If, Statement, changed, expression, rewritten


def in_two(block: Iterable[Statement], whole: str) -> Block:
    """The work of a tile, in two: where it is `whole`, every place lies inside the row."""
    given = tuple(block)
    return (If(test=expression(whole), body=changed(given, _unbounded), orelse=given),)


def _unbounded(s: Statement) -> Block:
    if isinstance(s, If) and s.role is Role.INSIDE:
        return s.body
    if isinstance(s, Assign) and s.role is Role.PLACE:
        return (replace(s, value=rewritten(s.value, _greatest)),)
    return () if s.role is Role.LEFT else (s,)


def _greatest(e: ast.expr) -> ast.expr | None:
    """What a place is where it is not the least of two."""
    least = isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == "min"
    return e.args[0] if least and isinstance(e, ast.Call) else None
