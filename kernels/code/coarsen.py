"""A function for one row a thread becomes one for several rows that lie side by side in memory.

Neighbouring rows are walked together: what does not depend on the row (positions, bounds, counts, barriers) is done
once, what does is done for each of them under a name of its own, and arrays whose rows lie side by side are loaded and
stored as one vector. What depends on the row is found as a fixed point: the name `SIDE`, whatever is computed from such
a name, and whatever is assigned where such a name decides. ("Thread coarsening" after a divergence analysis: Magni,
Dubach and O'Boyle, "A large-scale cross-architecture evaluation of thread-coarsening", 2013.)

>>> from redalg.source.render import render
>>> from redalg.source.statements import function
>>> print(render([coarsened(function('''def f(x, y, stop, x_s0):
...     row = first_row + side
...     total = f32(0)
...     for k in range(stop):
...         at = k * x_s0
...         total = total + load_bfloat16(x, row + at)
...     store_float32(y, row, total)'''), 2, frozenset({"x"}))]), end="")
def f(x, y, stop, x_s0):
    row_c0 = first_row + 0
    row_c1 = first_row + 1
    total_c0 = f32(0)
    total_c1 = f32(0)
    for k in range(stop):
        at = k * x_s0
        loaded_c0, loaded_c1 = load_bfloat16x2(x, row_c0 + at)
        total_c0 = total_c0 + loaded_c0
        total_c1 = total_c1 + loaded_c1
    store_float32(y, row_c0, total_c0)
    store_float32(y, row_c1, total_c1)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from redalg.source.render import text
from redalg.source.statements import (
    Assign,
    Block,
    Do,
    Expression,
    For,
    Function,
    If,
    Nested,
    Statement,
    Table,
    While,
    expressions,
    mapped,
    names,
    renamed,
    rewritten,
    walk,
    with_names,
)

SIDE = "side"  # the number of a row among its neighbours
# Numbers of steps and positions: they are assigned before they are read wherever they occur, so that it does not matter
# what a branch that only some of the rows take has left in them.
STEPS = frozenset("k v w j u at i m c rest".split())


def coarsened(function: Function, count: int, wide: frozenset[str], astride: frozenset[str] = frozenset()) -> Function:
    """The function for `count` neighbouring rows. `wide`: arguments in which they lie side by side; `astride`: operands
    in which they do, but start anywhere.

    Raises: ValueError where threads would have to wait for each other inside a branch that depends on the row.
    """
    return replace(function, body=_Copies(function, count, wide, astride).block(function.body))


def _targets(s: Assign) -> set[str]:
    """The names, and the arrays, that a statement changes."""
    found: set[str] = set()
    for target in s.targets:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            found |= names(part.value if isinstance(part, ast.Subscript) else part)
    return found


def _own(s: Statement) -> set[str]:
    """The names on a statement's own line."""
    return {n for e in expressions(s) for n in names(e)}


class _Depending:
    """The names that depend on the row."""

    def __init__(self, function: Function, wide: frozenset[str]) -> None:
        made = (s for s in walk(function.body) if isinstance(s, Table))
        # an array in which neighbours lie side by side is one for all of them
        self.names, self.arrays = {SIDE}, {s.name for s in made} - wide
        known = 0
        while known < len(self.names):
            known = len(self.names)
            self._block(function.body, False)

    def on(self, *found: Expression) -> bool:
        return any(not self.names.isdisjoint(names(e)) for e in found)

    def decides(self, s: Nested) -> bool:
        """Whether the row decides how often a block is run."""
        return self.on(s.over if isinstance(s, For) else s.test)

    def _block(self, block: Block, decided: bool) -> None:
        for s in block:
            self._statement(s, decided)

    def _statement(self, s: Statement, decided: bool) -> None:
        if isinstance(s, Assign):
            if self.on(*expressions(s)):
                self.names |= _targets(s)
            elif decided:
                self.names |= _targets(s) - STEPS
        elif isinstance(s, Do):
            if decided or self.on(s.value):
                self.names |= names(s.value) & self.arrays  # a function may change an array it is given
        elif isinstance(s, Nested):
            inner = decided or self.decides(s)
            if isinstance(s, For) and self.on(s.over):
                self.names |= names(s.target)
            self._block(s.body, inner)
            self._block(s.orelse if isinstance(s, If) else (), inner)


class _Copies:
    def __init__(self, function: Function, count: int, wide: frozenset[str], astride: frozenset[str]) -> None:
        self.count, self.depending = count, _Depending(function, wide)
        self.wide = {"store": wide, "load": wide | astride, "copy": wide}
        self.astride = astride

    def block(self, block: Block) -> Block:
        return tuple(found for s in block for found in self._statement(s))

    def _names(self, copy: int) -> dict[str, str | Expression]:
        own: dict[str, str | Expression] = {name: f"{name}_c{copy}" for name in self.depending.names}
        return own | {SIDE: ast.Constant(copy)}

    def _renamed(self, e: Expression, copy: int) -> Expression:
        return with_names(e, self._names(copy))

    def _statement(self, s: Statement) -> Iterator[Statement]:
        if self.depending.names.isdisjoint({n for inner in walk([s]) for n in _own(inner)}):
            yield s
        elif isinstance(s, Nested) and not self.depending.decides(s):
            made = replace(s, body=self.block(s.body))
            yield replace(made, orelse=self.block(made.orelse)) if isinstance(made, If) else made
        elif isinstance(s, Nested):
            self._refuse_barriers(s)
            for copy in range(self.count):
                yield from renamed((s,), self._names(copy))
        else:
            yield from self._simple(s)

    def _refuse_barriers(self, s: Nested) -> None:
        called = (n for inner in walk([s]) for e in expressions(inner) for n in ast.walk(e) if isinstance(n, ast.Call))
        if any("sync" in _name(call.func) for call in called):
            head = f"for {text(s.target)} in {text(s.over)}" if isinstance(s, For) else _asked(s)
            raise ValueError(f"a barrier where the row decides: {head}:")

    # --- loads and stores --------------------------------------------------------------------------------------------

    def _simple(self, s: Statement) -> Iterator[Statement]:
        """A statement once for every row, with what lies side by side in one load or store."""
        together = self._together(s.value) if isinstance(s, Do) and isinstance(s.value, ast.Call) else None
        if together is not None:
            yield Do(value=together)
            return
        loads = [n for e in expressions(s) for n in ast.walk(e) if isinstance(n, ast.Call) and self._wide(n, "load")]
        if isinstance(s, Assign) and s.value in loads:
            yield Assign(targets=(self._several(s.targets[0]),), value=self._vector(loads[0]))
            return
        wide: dict[Expression, str] = {}
        for number, load in enumerate(loads):
            wide[load] = f"loaded{number or ''}"
            several: list[Expression] = [ast.Name(f"{wide[load]}_c{copy}", ast.Store()) for copy in range(self.count)]
            yield Assign(targets=(ast.Tuple(several, ast.Store()),), value=self._vector(load))
        for copy in range(self.count):
            loaded = {load: ast.Name(f"{name}_c{copy}", ast.Load()) for load, name in wide.items()}
            yield from renamed(_replaced(s, loaded), self._names(copy))

    def _together(self, call: ast.Call) -> Expression | None:
        """One store of all neighbours, or one copy of them to shared memory, where they lie beside each other."""
        if self._wide(call, "store"):
            array, index, value = call.args
            values = ast.Tuple([self._renamed(value, copy) for copy in range(self.count)], ast.Load())
            return self._called(call, [array, self._renamed(index, 0), values])
        if self._wide(call, "copy") and isinstance(source := call.args[2], ast.Name) and source.id in self.wide["copy"]:
            return self._called(call, [self._renamed(a, 0) for a in call.args])
        return None

    def _several(self, target: Expression) -> Expression:
        """The targets of all copies."""
        return ast.Tuple([self._renamed(target, copy) for copy in range(self.count)], ast.Store())

    def _vector(self, load: ast.Call) -> Expression:
        array, index = load.args
        return self._called(load, [array, self._renamed(index, 0)])

    def _shifted(self, call: ast.Call) -> str:
        """The name of a load, of what starts anywhere."""
        name = _name(call.func)
        if not (isinstance(call.args[0], ast.Name) and call.args[0].id in self.astride):
            return name
        way = "load_early_" if name.startswith("load_early_") else "load_"
        return f"{way}shifted_{name.removeprefix(way)}"

    def _called(self, call: ast.Call, args: list[Expression]) -> Expression:
        return ast.Call(ast.Name(f"{self._shifted(call)}x{self.count}", ast.Load()), args, [])

    def _wide(self, call: ast.Call, verb: str) -> bool:
        """Whether the neighbours of what is loaded or stored lie beside it."""
        named = isinstance(call.func, ast.Name) and call.func.id.startswith(f"{verb}_") and call.args
        return bool(named) and isinstance(call.args[0], ast.Name) and call.args[0].id in self.wide[verb]


def _name(function: Expression) -> str:
    """What a function is called, in its module."""
    assert isinstance(function, ast.Name | ast.Attribute)
    return function.id if isinstance(function, ast.Name) else function.attr


def _asked(s: While | If) -> str:
    return f"{'if' if isinstance(s, If) else 'while'} {text(s.test)}"


def _replaced(s: Statement, by: Mapping[Expression, Expression]) -> Block:
    """The statement with other expressions in the place of some."""
    return mapped((s,), lambda e: rewritten(e, by.get))
