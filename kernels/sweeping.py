"""What a printed function does not need: values that reach no store, no barrier and no result.

Printers write a step where it belongs without knowing who will read it: a position, a count, a sum that cancels in the
end. Here a statement is kept if it acts, or assigns something that a kept statement reads later; a block is kept around
what is kept in it. The rest goes, with the shuffles and the shared memory it would have taken. (Strong liveness:
Giegerich, Möncke and Wilhelm, "Invariance of approximate semantics with respect to program transformations", 1981.)

>>> print(swept('''def f(x, n):
...     count = i64(0)
...     total = f32(0)
...     last = f32(0)
...     for k in range(n):
...         at = 2 * k
...         total = total + load_float32(x, k)
...         last = load_float32(x, at)
...         count = count + 1
...     return total''')[0])
def f(x, n):
    total = f32(0)
    for k in range(n):
        total = total + load_float32(x, k)
    return total
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

QUIET = re.compile(  # calls that do nothing but give a value
    r"(load(?!_acquire)|dsm_load|shfl|key|pointer|stack|heap)_\w+|missing|(?!.*store)\w+_f(32|64)|[fi](32|64)|u64|min|max|abs|range"
    r"|np\.\w+|cuda\.(local|shared)\.array"
)
Names = frozenset[str]
Block = ast.For | ast.While | ast.If
Simple = ast.Assign | ast.AugAssign | ast.Expr | ast.Return | ast.Raise | ast.Pass


@lru_cache(maxsize=256)
def names_read(text: str) -> Names:
    """Every name the text reads."""
    tree = ast.parse(text)
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def called(functions: Mapping[str, str], names: Names) -> dict[str, str]:
    """The functions with these names, and those they call, in the order they are given."""
    while more := {n for name in names & set(functions) for n in names_read(functions[name])} - names:
        names |= more
    return {name: source for name, source in functions.items() if name in names}


def swept(function: str) -> tuple[str, Names]:
    """The source of one function without what it does not need, and the names it reads.

    A statement stands on a line of its own, and an array has one name. A function with statements other than loops,
    conditions, assignments, calls, errors and returns is left as it is.
    """
    tree = ast.parse(function).body[0]
    assert isinstance(tree, ast.FunctionDef)
    sweep = _Sweep(frozenset(a.arg for a in tree.args.args))
    try:
        sweep.block(tree.body, frozenset())
    except _Unknown:
        return function, names_read(function)
    lines: list[str | None] = list(function.split("\n"))
    _drop(tree.body, sweep.kept, lines)
    return "\n".join(line for line in lines if line is not None), sweep.names()


class _Unknown(Exception):
    """A statement whose effect is not known here."""


@dataclass(frozen=True)
class _Effect:
    """What a statement, or the head of a block, does: names it assigns, arrays it writes into, names it reads."""

    assigns: Names
    writes: Names
    reads: Names
    acts: bool


@dataclass
class _Sweep:
    """Walks a function backwards. `live` is always what is read later on by statements that are kept."""

    given: Names  # parameters: what is written into them is seen outside
    kept: set[ast.stmt] = field(default_factory=set)
    known: dict[ast.AST, _Effect] = field(default_factory=dict)

    def names(self) -> Names:
        """What is read by anything that is kept."""
        heads = [s.iter if isinstance(s, ast.For) else s.test for s in self.kept if isinstance(s, Block)]
        return frozenset().union(*(self.known[x].reads for x in [*heads, *self.kept] if x in self.known))

    def block(self, statements: list[ast.stmt], live: Names) -> Names:
        for s in reversed(statements):
            live = self._before(s, live)
        return live

    def _before(self, s: ast.stmt, live: Names) -> Names:
        """What is live before a statement, from what is live after it."""
        if isinstance(s, ast.If):
            return self._headed(s, s.test, live, self.block(s.body, live) | self.block(s.orelse, live))
        if isinstance(s, ast.For | ast.While):
            return self._loop(s, self.block(s.orelse, live))
        if not isinstance(s, Simple):
            raise _Unknown
        effect = self._effect(s)
        if not effect.acts and live.isdisjoint(effect.assigns | effect.writes):
            return live
        self.kept.add(s)
        return effect.reads | (frozenset() if isinstance(s, ast.Return | ast.Raise) else live - effect.assigns)

    def _loop(self, s: ast.For | ast.While, after: Names) -> Names:
        head = s.iter if isinstance(s, ast.For) else s.test
        live = after
        while (more := self._headed(s, head, after, live | self.block(s.body, live))) != live:
            live = more
        return live

    def _headed(self, s: Block, head: ast.expr, after: Names, before: Names) -> Names:
        """What is live before a block, whose own head is read if anything in it is kept."""
        effect = self._effect(head)
        if effect.acts or any(x in self.kept for x in [*s.body, *s.orelse]):
            self.kept.add(s)
            return before | effect.reads
        return after

    def _effect(self, tree: ast.AST) -> _Effect:
        if tree in self.known:
            return self.known[tree]
        assigns: set[str] = set()
        writes: set[str] = set()
        reads: set[str] = set()
        acts = isinstance(tree, ast.Expr | ast.Return | ast.Raise)
        for n in ast.walk(tree):
            if isinstance(n, ast.Name):
                (reads if isinstance(n.ctx, ast.Load) else assigns).add(n.id)
            elif isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store):
                writes.add(ast.unparse(n.value))
            elif isinstance(n, ast.Call):
                acts |= not _quiet(n.func)
        reads |= assigns if isinstance(tree, ast.AugAssign) else set()
        acts |= not self.given.isdisjoint(writes)
        self.known[tree] = _Effect(frozenset(assigns), frozenset(writes), frozenset(reads), acts)
        return self.known[tree]


def _quiet(called: ast.expr) -> bool:
    return QUIET.fullmatch(called.id if isinstance(called, ast.Name) else ast.unparse(called)) is not None


def _drop(block: list[ast.stmt], kept: set[ast.stmt], lines: list[str | None]) -> None:
    """Empty the lines of what is not kept; a block that others follow keeps at least a ``pass``."""
    for s in block:
        assert s.end_lineno is not None
        if s not in kept:
            lines[s.lineno - 1 : s.end_lineno] = [None] * (s.end_lineno - s.lineno + 1)
        elif isinstance(s, Block):
            for part in (s.body, s.orelse):
                _drop(part, kept, lines)
            if not any(x in kept for x in s.body):
                lines[s.body[0].lineno - 1] = " " * s.body[0].col_offset + "pass"
            if s.orelse and not any(x in kept for x in s.orelse):
                above, below = s.body[-1].end_lineno, s.orelse[0].lineno - 1
                assert above is not None
                lines[above:below] = [None] * (below - above)
