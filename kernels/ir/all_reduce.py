"""All-reduce of the states of threads: all move to common anchors, then every slot is one reduction over threads.

`Pass.combine` says how a second state moves to the anchors of both and is joined slot by slot. Read for every thread's
own state as the second one, with anchors that all threads know in place of the first one's, its joins are reductions
over all threads: a handful of shuffles of one value each, where a tree of combines is as deep and moves both sides at
every level.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from redalg.graph.node import NEG_INF, ZERO, Node, compare, div, leaves, mul, state, where
from redalg.graph.operators import Average, Custom, Extremum, Sum, TopK
from redalg.graph.plan import COUNT
from redalg.kernels.ir.program import Fold, Join, KeyTop, Let, Loop, Pass, renamed, step_nodes

AllReduce = tuple[Let | Loop, ...]
TOTAL = state("n_new", (), COUNT.attr.domain)
SHARE = state("share")
EMPTY = compare("eq", COUNT, ZERO)


@lru_cache(maxsize=1024)
def all_reduced(p: Pass, counted: bool = True) -> AllReduce | None:
    """Steps after which all threads know the state of all, under the names `part + "_new"`: a `Loop`'s folds are over
    threads, of values of each. None where a tree is needed: lists, monoids of the user, states along columns, and
    anchors that may be infinite."""
    if p.ordered or any(part.top or part.axes for part in p.parts):
        return None
    return _Reducing(p, counted).steps()


class _Reducing:
    def __init__(self, p: Pass, counted: bool) -> None:
        self.parts, self.counted = {part.name: part for part in p.parts}, counted
        self.guarded = counted and not p.absorbs
        steps = [s for s in p.combine if isinstance(s, Let | Join)]
        self.combine = [s for s in steps if isinstance(s, Join) or s.name != TOTAL.attr.name]
        self.own = {f"{name}_b": name for name in self.parts} | {"n_b": COUNT.attr.name}
        self.found: list[Let | Loop] = []
        self.pending: list[Fold] = []

    def steps(self) -> AllReduce | None:
        kept = self._needed()
        nodes = [n for step in kept for n in (step.b if isinstance(step, Join) else step_nodes(step))]
        read = {leaf.attr.name for n in nodes for leaf in leaves(n, "state")}
        anchors = [name for name in self.parts if name in read]
        if not self._sound(kept, read, anchors):
            return None
        names = self.own | {name: f"{name}~common" for name in anchors}
        self._begin(anchors)
        for step in kept:
            if isinstance(step, Let):
                self._let(Let(step.name, renamed(step.node, names)))
            else:
                self._fold(step, tuple(renamed(n, names) for n in step.b))
        self._flush()
        return tuple(self.found)

    def _needed(self) -> list[Let | Join]:
        """The steps that the new state is made of, of whose joins only the second side counts."""
        kept: list[Let | Join] = []
        wanted = {f"{name}_new" for name in self.parts}
        for step in reversed(self.combine):
            names = step.names if isinstance(step, Join) else (step.name,)
            if wanted.isdisjoint(names):
                continue
            nodes = step.b if isinstance(step, Join) else step_nodes(step)
            wanted |= {leaf.attr.name for n in nodes for leaf in leaves(n, "state")}
            kept.append(step)
        return kept[::-1]

    def _sound(self, kept: list[Let | Join], read: set[str], anchors: list[str]) -> bool:
        """Whether a reduction says the same: every operation is one of numbers, and anchors that all threads have to
        know are numbers that are kept finite."""
        if not all(self._reducible(s) for s in kept if isinstance(s, Join)):
            return False
        if COUNT.attr.name in read or not self.own.keys().isdisjoint(self.parts) or anchors and not self.counted:
            return False
        lets = {s.name: s.node for s in kept if isinstance(s, Let)}
        centred = (lets.get(f"{name}_new") for name in anchors)
        return all(self.parts[a].kind == "f" for a in anchors) and all(
            n is not None and n.op == "where" for n in centred
        )

    def _reducible(self, step: Join) -> bool:
        """Whether a join of two is an operation of numbers, of which a state of nothing has one that changes none."""
        if isinstance(step.op, Custom | TopK | KeyTop) or step.axes:
            return False
        return isinstance(step.op, Sum | Average) or all(map(self._part, step.names))

    def _begin(self, anchors: list[str]) -> None:
        """How many elements there are, and anchors that all threads know: the largest of those that have elements."""
        if not self.counted:
            return
        self.pending.append(Fold((TOTAL.attr.name,), Sum(), (COUNT,)))
        for name in anchors:
            self.pending.append(Fold((f"{name}~largest",), Extremum("max"), (where(EMPTY, NEG_INF, state(name)),)))
        self._flush()
        empty = compare("eq", TOTAL, ZERO)
        self.found += [Let(f"{a}~common", where(empty, ZERO, state(f"{a}~largest"))) for a in anchors]
        if any(isinstance(s, Join) and isinstance(s.op, Average) for s in self.combine):
            self.found.append(Let(SHARE.attr.name, where(empty, ZERO, div(COUNT, TOTAL))))

    def _fold(self, step: Join, values: tuple[Node, ...]) -> None:
        """A join of two as a reduction; a state of nothing adds nothing, wherever it would move."""
        op, bodies = step.op, values
        if isinstance(op, Average):
            op, bodies = Sum(), (where(EMPTY, ZERO, mul(SHARE, values[0])),)
        elif self.guarded:
            own = [ZERO if isinstance(op, Sum) else state(self._part(name)) for name in step.names]
            bodies = tuple(where(EMPTY, o, v) if o != v else v for o, v in zip(own, values, strict=True))
        if self._waits(bodies):
            self._flush()
        self.pending.append(Fold(step.names, op, bodies))

    def _part(self, name: str) -> str:
        """The part that a join names anew; none of a slot that vanishes at its anchor."""
        return next((p for p in self.parts if name == f"{p}_new" or name.startswith(f"{p}_seen")), "")

    def _let(self, step: Let) -> None:
        if self._waits([step.node]):
            self._flush()
        self.found.append(step)

    def _waits(self, nodes: Iterable[Node]) -> bool:
        """Whether these read what is still to be reduced."""
        names = {name for fold in self.pending for name in fold.names}
        return any(leaf.attr.name in names for n in nodes for leaf in leaves(n, "state"))

    def _flush(self) -> None:
        if self.pending:
            self.found.append(Loop(tuple(self.pending)))
        self.pending = []
