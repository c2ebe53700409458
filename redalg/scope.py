"""What varies and what depends on stage values, how generators are centred, and the trace of a derivation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from redalg import normal as nf
from redalg.graph import Node
from redalg.normal import Poly
from redalg.plan import COUNT

CLOSED, OPEN, EXPONENT = "closed", "open", "exponent"
MAX_POWER = 12  # integer powers of mixed sums are expanded up to here
MAX_CONTEXT = 24  # terms of a stage value that are still substituted into a body


class Centring(Protocol):
    """How generators are centred (see `redalg.anchoring`); the raw analysis uses `NoCentring`."""

    def element(self, node: Node, stage: Node | None) -> Poly | None: ...
    def deviation(self, node: Node, stage: Node | None) -> Poly | None: ...
    def factor(self, node: Node, stage: Node | None) -> Node | None: ...
    def tie(self, element: Node, stage: Node) -> Node | None: ...
    def cast(self, dtype: str, element: Poly, context: Poly) -> Poly | None: ...
    def is_centred(self, node: Node) -> bool: ...
    def is_active(self) -> bool: ...
    def moves(self, p: Poly) -> bool: ...


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

    def tie(self, element: Node, stage: Node) -> Node | None:
        gen = Node("eq", (element, stage))
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
        found = self._earlier.get(node)
        if found is None:
            if node in self.known or node is COUNT and bool(self.known):
                found = True
            else:
                found = any(map(self.is_known, node.args)) and not self.uses(node) and not self.varies(node)
            self._earlier[node] = found
        return found

    def varies(self, node: Node) -> bool:
        return bool(node.axes & self.axes)

    def is_stage(self, node: Node) -> bool:
        return node.op == "reduce" and node.attr.axes == self.axis and node not in self.known

    def uses(self, node: Node) -> bool:
        found = self._uses.get(node)
        if found is None:
            if node in self.known:
                found = False
            elif self.is_stage(node) or node is COUNT and not self.known or node.op == "state" and node is not COUNT:
                found = True
            else:
                found = any(self.uses(a) for a in node.args)
            self._uses[node] = found
        return found

    def mixed(self, node: Node) -> bool:
        return self.varies(node) and self.uses(node)
