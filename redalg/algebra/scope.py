"""What varies and what depends on stage values, how generators are centred, and the trace of a derivation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Poly
from redalg.graph.node import Node, walk
from redalg.graph.plan import COUNT

CLOSED, OPEN, EXPONENT, WHOLE = "closed", "open", "exponent", "whole"
MAX_POWER = 12  # integer powers of sums that stay mixed, or are left open, are expanded up to here
MAX_CONTEXT = 24  # terms of a stage value that are still substituted into a body


class Centring(Protocol):
    """How generators are centred (see `redalg.engine.anchors.policy`); the raw analysis uses `NoCentring`."""

    def element(self, node: Node, stage: Node | None) -> Poly | None: ...
    def deviation(self, node: Node, stage: Node | None) -> Poly | None: ...
    def factor(self, node: Node, stage: Node | None) -> Node | None: ...
    def tie(self, element: Node, stage: Node, op: str) -> Node: ...
    def cast(self, dtype: str, element: Poly, context: Poly) -> Poly | None: ...
    def is_centred(self, node: Node) -> bool: ...
    def is_active(self) -> bool: ...
    def moves(self, p: Poly) -> bool: ...


def beside(op: str, element: Node, extremum: Node, kind: str) -> Node:
    """How an element lies to an extremum over it: at it ("eq"), strictly inside ("lt"), or not at it ("ne").

    The extremum is NaN if an element is: then nothing is at it or inside, and everything is not at it.
    """
    pair = (element, extremum) if op != "lt" or kind == "max" else (extremum, element)
    return Node(op, pair)


class NoCentring:
    """Raw analysis: nothing is centred; ties and commuting casts are kept as formal element generators."""

    def __init__(self) -> None:
        self.ties: dict[Node, tuple[Node, Node]] = {}  # generator -> (element, extremum stage)
        self.casts: dict[Node, tuple[Poly, Poly]] = {}  # generator -> (G, H)

    def element(self, node: Node, stage: Node | None) -> Poly | None:
        return None

    def deviation(self, node: Node, stage: Node | None) -> Poly | None:
        return None

    def factor(self, node: Node, stage: Node | None) -> Node | None:
        return None

    def tie(self, element: Node, stage: Node, op: str) -> Node:
        gen = beside(op, element, stage, stage.attr.kind)
        self.ties[gen] = (element, stage)
        return gen

    def cast(self, dtype: str, element: Poly, context: Poly) -> Poly | None:
        gen = Node("cast", (nf.poly_node(element),), dtype)
        self.casts[gen] = (element, context)
        return nf.generator(gen) * context

    def is_centred(self, node: Node) -> bool:
        return node in self.ties

    def is_active(self) -> bool:
        return False

    def moves(self, p: Poly) -> bool:
        return True


@dataclass
class Trace:
    """What was used on the way: rules in order of first use, and named assumptions with their reason."""

    rules: dict[str, None] = field(default_factory=dict)
    assumptions: dict[str, str] = field(default_factory=dict)
    oversized: dict[Node, str] = field(default_factory=dict)  # left as they are, with the budget that says so

    def rule(self, name: str) -> None:
        self.rules.setdefault(name)

    def assume(self, name: str, why: str) -> None:
        self.assumptions.setdefault(name, why)


class Scope:
    """Which nodes vary along the axis and which depend on stage values of the current pass."""

    def __init__(self, axis: tuple[str, ...], known: Iterable[Node] = ()) -> None:
        self.axis = axis
        self.axes = frozenset(axis)
        self.known = frozenset(known)  # stages of earlier passes: constants, and with them the count of elements
        self._uses: dict[Node, bool] = {}
        self._earlier: dict[Node, bool] = {}

    def is_known(self, node: Node) -> bool:
        """A function of earlier passes' stage values (and of parameters), of nothing in this pass."""
        if node in self._earlier:
            return self._earlier[node]
        for n in walk(node, done=self._earlier):
            if n in self.known or n is COUNT and bool(self.known):
                self._earlier[n] = True
            else:
                earlier = any(self._earlier[a] for a in n.args)
                self._earlier[n] = earlier and not self.uses(n) and not self.varies(n)
        return self._earlier[node]

    def varies(self, node: Node) -> bool:
        return bool(node.axes & self.axes)

    def is_stage(self, node: Node) -> bool:
        return node.op == "reduce" and node.attr.axes == self.axis and node not in self.known

    def uses(self, node: Node) -> bool:
        if node in self._uses:
            return self._uses[node]
        for n in walk(node, done=self._uses):
            if n in self.known:
                self._uses[n] = False
            elif self.is_stage(n) or n is COUNT and not self.known or n.op == "state" and n is not COUNT:
                self._uses[n] = True
            else:
                self._uses[n] = any(self._uses[a] for a in n.args)
        return self._uses[node]

    def mixed(self, node: Node) -> bool:
        return self.varies(node) and self.uses(node)


class Stages:
    """As a container of nodes: the stages, which no walk through a body enters."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Node) and self.scope.is_stage(node)
