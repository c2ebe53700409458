"""What a generated function does not need: values that reach no store, no barrier and no result.

Printers say a step where it belongs without knowing who will read it: a position, a count, a sum that cancels in the
end. Here a statement is kept if it acts, or assigns something that a kept statement reads later; a block is kept around
what is kept in it. The rest goes, with the shuffles and the shared memory it would have taken, and with comments
that nothing is left of what they stand above, up to the next comment or the block's end. (Strong liveness:
Giegerich, Möncke and Wilhelm, "Invariance of approximate semantics with respect to program transformations", 1981.)

>>> from redalg.source.render import render
>>> from redalg.source.statements import function
>>> print(render([eliminated(function('''def f(x, n):
...     count = i64(0)
...     total = f32(0)
...     last = f32(0)
...     for k in range(n):
...         at = 2 * k
...         total = total + load_float32(x, k)
...         last = load_float32(x, at)
...         count = count + 1
...     return total'''))]))
def f(x, n):
    total = f32(0)
    for k in range(n):
        total = total + load_float32(x, k)
    return total
<BLANKLINE>
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from redalg.source.statements import (
    Assign,
    Block,
    Comment,
    Do,
    Expression,
    For,
    Function,
    If,
    Nested,
    Pass,
    Raise,
    Return,
    Statement,
    expressions,
    reads,
)

QUIET = re.compile(  # calls that do nothing but give a value
    r"(unaligned|load(?!_acquire)|dsm_load|shfl|key|pointer|stack|heap)_\w+|missing|unlikely|(?!.*store)\w+_f(32|64)|[fi](32|64)|u64|min|max|abs|range"
    r"|np\.\w+|cuda\.(local|shared)\.array"
)
Names = frozenset[str]
NONE: Names = frozenset()


def called(functions: Mapping[str, Function], names: Names) -> dict[str, Function]:
    """The functions with these names, and those they call, in the order they are given."""
    while more := {n for name in names & set(functions) for n in reads([functions[name]])} - names:
        names |= more
    return {name: made for name, made in functions.items() if name in names}


def eliminated(function: Function) -> Function:
    """The function without what it does not need. An array has one name."""
    kept, _ = _Liveness(frozenset(function.arguments)).block(function.body, NONE)
    return replace(function, body=kept or (Pass(),))


@dataclass(frozen=True)
class _Effect:
    """What a statement's own line does: names it assigns, arrays it writes into, names it reads."""

    assigns: Names
    writes: Names
    reads: Names
    acts: bool


@dataclass(frozen=True)
class _Liveness:
    """Walks a function backwards. `live` is always what is read later on by statements that are kept."""

    given: Names  # parameters: what is written into them is seen outside

    def block(self, block: Block, live: Names) -> tuple[Block, Names]:
        """What is kept of a block, and what is live before it, from what is live after it."""
        kept: list[Statement] = []
        told = False  # whether something is left below, as far as the next comment
        for s, below in zip(reversed(block), (None, *reversed(block)), strict=False):
            if isinstance(s, Comment):
                kept += [s] if told else []
                continue
            told = told and not isinstance(below, Comment)
            found, live = self._before(s, live)
            told = told or bool(found)
            kept += found
        return tuple(reversed(kept)), live

    def _before(self, s: Statement, live: Names) -> tuple[Block, Names]:
        if isinstance(s, If):
            body, then = self.block(s.body, live)
            orelse, other = self.block(s.orelse, live)
            return self._headed(s, live, then | other, body, orelse)
        if isinstance(s, Nested):
            return self._loop(s, live)
        if isinstance(s, Pass):
            return (), live
        effect = _effect(s)
        acts = effect.acts or not self.given.isdisjoint(effect.writes)
        if not acts and live.isdisjoint(effect.assigns | effect.writes):
            return (), live
        return (s,), effect.reads | (NONE if isinstance(s, Return | Raise) else live - effect.assigns)

    def _loop(self, s: Nested, after: Names) -> tuple[Block, Names]:
        """What is live at the end of a loop's body is live at its beginning, too: to the least fixed point."""
        live = after
        while True:
            body, inside = self.block(s.body, live)
            kept, before = self._headed(s, after, live | inside, body)
            if before == live:
                return kept, live
            live = before

    def _headed(self, s: Nested, after: Names, before: Names, body: Block, orelse: Block = ()) -> tuple[Block, Names]:
        """A block whose own head is read if anything in it is kept."""
        head = _effect(s)
        if not (head.acts or _counts(body) or _counts(orelse)):
            return (), after
        made = replace(s, body=body or (Pass(),))
        return (replace(made, orelse=orelse) if isinstance(made, If) else made,), before | head.reads


def _counts(block: Block) -> bool:
    return any(not isinstance(s, Comment) for s in block)


@lru_cache(maxsize=1 << 14)
def _effect(s: Statement) -> _Effect:
    """What a statement does by itself: of a block, its head."""
    assigns: set[str] = set()
    writes: set[str] = set()
    found: set[str] = set()
    acts = isinstance(s, Do | Return | Raise)
    for node in (n for e in _heads(s) for n in ast.walk(e)):
        if isinstance(node, ast.Name):
            (found if isinstance(node.ctx, ast.Load) else assigns).add(node.id)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            writes.add(ast.unparse(node.value))
        elif isinstance(node, ast.Call):
            acts |= not _quiet(node.func)
    found |= assigns if isinstance(s, Assign) and s.operator is not None else set()
    return _Effect(frozenset(assigns), frozenset(writes), frozenset(found), acts)


def _heads(s: Statement) -> tuple[Expression, ...]:
    """The expressions of its own line; what a loop counts with is assigned again in every turn."""
    return (s.over,) if isinstance(s, For) else expressions(s)


def _quiet(name: Expression) -> bool:
    return QUIET.fullmatch(name.id if isinstance(name, ast.Name) else ast.unparse(name)) is not None
