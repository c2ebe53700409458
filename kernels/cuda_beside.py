"""A printed function for one row a thread becomes one for several rows that lie side by side in memory.

Neighbouring rows are walked together: what does not depend on the row (positions, bounds, counts, barriers) is done
once, what does is done for each of them under a name of its own, and arrays whose rows lie side by side are loaded and
stored as one vector. What depends on the row is found from the text alone, as a fixed point: the name `SIDE`, whatever
is computed from such a name, and whatever is assigned where such a name decides. ("Thread coarsening" after a
divergence analysis: Magni, Dubach and O'Boyle, "A large-scale cross-architecture evaluation of thread-coarsening",
2013.)

>>> print(beside('''def f(x, y, stop, x_s0):
...     row = home + side
...     total = f32(0)
...     for k in range(stop):
...         at = k * x_s0
...         total = total + load_bfloat16(x, row + at)
...     store_float32(y, row, total)''', 2, frozenset({"x"})))
def f(x, y, stop, x_s0):
    row_c0 = home + 0
    row_c1 = home + 1
    total_c0 = f32(0)
    total_c1 = f32(0)
    for k in range(stop):
        at = k * x_s0
        near_c0, near_c1 = load_bfloat16x2(x, row_c0 + at)
        total_c0 = total_c0 + near_c0
        total_c1 = total_c1 + near_c1
    store_float32(y, row_c0, total_c0)
    store_float32(y, row_c1, total_c1)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

SIDE = "side"  # the number of a row among its neighbours
# Numbers of steps and positions: they are assigned before they are read wherever they occur, so that it does not matter
# what a branch that only some of the rows take has left in them.
STEPS = frozenset("k v w j at i m c rest".split())
ARRAYS = re.compile(r"cuda\.(local|shared)\.array\(")


def beside(function: str, count: int, wide: frozenset[str]) -> str:
    """The function for `count` neighbouring rows. `wide`: arguments in which they lie side by side.

    A statement stands on a line of its own. Raises: ValueError where threads would have to wait for each other inside a
    branch that depends on the row.
    """
    tree = ast.parse(function).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return _Copies(function, tree, count, wide).text()


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _targets(s: ast.Assign | ast.AugAssign) -> set[str]:
    """The names, and the arrays, that a statement changes."""
    found: set[str] = set()
    for target in s.targets if isinstance(s, ast.Assign) else [s.target]:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            found |= _names(part.value if isinstance(part, ast.Subscript) else part)
    return found


class _Depending:
    """The names that depend on the row."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self.names, self.arrays = {SIDE}, _arrays(tree)
        known = 0
        while known < len(self.names):
            known = len(self.names)
            self._block(tree.body, False)

    def on(self, node: ast.AST) -> bool:
        return not self.names.isdisjoint(_names(node))

    def _block(self, statements: Sequence[ast.stmt], decided: bool) -> None:
        for s in statements:
            self._statement(s, decided)

    def _statement(self, s: ast.stmt, decided: bool) -> None:
        if isinstance(s, ast.Assign | ast.AugAssign):
            if self.on(s):
                self.names |= _targets(s)
            elif decided:
                self.names |= _targets(s) - STEPS
        elif isinstance(s, ast.Expr):
            if decided or self.on(s):
                self.names |= _names(s) & self.arrays  # a function may change an array it is given
        elif isinstance(s, ast.For):
            if self.on(s.iter):
                self.names |= _names(s.target)
            self._block(s.body, decided or self.on(s.iter))
        elif isinstance(s, ast.While | ast.If):
            self._block(s.body, decided or self.on(s.test))
            self._block(s.orelse, decided or self.on(s.test))


def _arrays(tree: ast.FunctionDef) -> set[str]:
    """The names of arrays that are made in the function."""
    made = [s for s in ast.walk(tree) if isinstance(s, ast.Assign) and ARRAYS.match(ast.unparse(s.value))]
    return {name for s in made for name in _targets(s)}


class _Copies:
    def __init__(self, function: str, tree: ast.FunctionDef, count: int, wide: frozenset[str]) -> None:
        self.tree, self.count, self.wide = tree, count, wide
        self.lines, self.depending = function.split("\n"), _Depending(tree)
        self.own = re.compile(rf"\b({'|'.join(map(re.escape, sorted(self.depending.names)))})\b")

    def text(self) -> str:
        head = self.lines[: self.tree.body[0].lineno - 1]
        last = self.tree.body[-1].end_lineno or 0
        return "\n".join([*head, *self._block(self.tree.body), *self.lines[last:]])

    def _renamed(self, text: str, copy: int) -> str:
        return self.own.sub(lambda m: str(copy) if m[1] == SIDE else f"{m[1]}_c{copy}", text)

    def _block(self, statements: Sequence[ast.stmt]) -> Iterator[str]:
        for s in statements:
            yield from self._statement(s)

    def _statement(self, s: ast.stmt) -> Iterator[str]:
        own = self.lines[s.lineno - 1 : s.end_lineno]
        if not self.depending.on(s):
            yield from own
        elif isinstance(s, ast.For | ast.While | ast.If) and not self._decides(s):
            yield own[0]
            yield from self._block(s.body)
            orelse = s.orelse if not isinstance(s, ast.For) else []
            if orelse:
                yield own[0][: len(own[0]) - len(own[0].lstrip())] + "else:"
                yield from self._block(orelse)
        elif isinstance(s, ast.For | ast.While | ast.If):
            if any("sync" in line for line in own):
                raise ValueError(f"a barrier where the row decides: {own[0].strip()}")
            for copy in range(self.count):
                yield from (self._renamed(line, copy) for line in own)
        else:
            yield from self._simple(s, own[0])

    def _decides(self, s: ast.For | ast.While | ast.If) -> bool:
        return self.depending.on(s.iter if isinstance(s, ast.For) else s.test)

    # --- loads and stores --------------------------------------------------------------------------------------------

    def _simple(self, s: ast.stmt, line: str) -> Iterator[str]:
        """A statement once for every row, with what lies side by side in one load or store."""
        space = line[: len(line) - len(line.lstrip())]
        call = s.value if isinstance(s, ast.Expr) else None
        if isinstance(call, ast.Call) and self._wide(call, "store"):
            function, (array, index, value) = ast.unparse(call.func), map(ast.unparse, call.args)
            values = ", ".join(self._renamed(value, copy) for copy in range(self.count))
            yield f"{space}{function}x{self.count}({array}, {self._renamed(index, 0)}, ({values}))"
            return
        for number, load in enumerate(n for n in ast.walk(s) if isinstance(n, ast.Call) and self._wide(n, "load")):
            text, (array, index) = ast.get_source_segment("\n".join(self.lines), load), map(ast.unparse, load.args)
            assert text is not None
            alone = isinstance(s, ast.Assign) and s.value is load
            name = f"near{number or ''}"
            targets = line.split(" = ")[0].strip() if alone else name
            several = ", ".join(
                self._renamed(targets, copy) if alone else f"{name}_c{copy}" for copy in range(self.count)
            )
            yield f"{space}{several} = {ast.unparse(load.func)}x{self.count}({array}, {self._renamed(index, 0)})"
            if alone:
                return
            line = line.replace(text, f"{name}_c{SIDE}")
        for copy in range(self.count):
            yield self._renamed(line, copy).replace(f"_c{SIDE}", f"_c{copy}")

    def _wide(self, call: ast.Call, verb: str) -> bool:
        """Whether the neighbours of what is loaded or stored lie beside it."""
        named = isinstance(call.func, ast.Name) and call.func.id.startswith(f"{verb}_") and call.args
        return bool(named) and isinstance(call.args[0], ast.Name) and call.args[0].id in self.wide
