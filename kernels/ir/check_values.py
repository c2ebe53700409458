"""Values in a program: every node reads names that are known, along the axes they have, by operations with a printer.

One half of `redalg.kernels.ir.check`, which says what is known where.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, NoReturn

from redalg.errors import RedalgError
from redalg.graph.formats import NAMES as FORMATS
from redalg.graph.node import BOOLEAN, UNARY, Node, walk
from redalg.kernels.ir.compensated import FUNCTIONS
from redalg.kernels.ir.contractions import of_state
from redalg.kernels.ir.program import Program

SPECIAL = frozenset({"oo", "-oo", "nan", "pi", "e"})
CALLS = frozenset({"key_value", "key_place", *FUNCTIONS})  # halves of a packed key (`lower.packed_keys`), and pairs
PLAIN = frozenset({"const", "true", "false", "state", "add", "mul", "pow", "maximum", "minimum", "where"})
KNOWN = PLAIN | UNARY | BOOLEAN
INNER = frozenset({"sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "topk_values", "topk_indices"})


class Held(NamedTuple):
    """How a name holds its value in one row: an array along columns, a list of `top` entries, or one number."""

    columns: frozenset[str] = frozenset()
    top: int | None = None

    def __str__(self) -> str:
        many = f"a list of {self.top}" if self.top is not None else "one number"
        return f"{many} along {', '.join(sorted(self.columns))}" if self.columns else many


class Values:
    """Checks the nodes of one program. `place` says where they stand; `along`: the axes names were read along."""

    def __init__(self, program: Program) -> None:
        self.program, self.place = program, "its axes"
        self.rows, self.stream = program.fixed, frozenset(program.stream)
        self.columns, self.lengths = frozenset(program.columns), program.lengths
        self.roles = self.rows | self.stream | self.columns | frozenset(self.lengths)
        self.operands = {o.name: o for o in program.operands}
        self.sized = {a for o in program.operands for a in o.axes} | {*self.lengths}
        self.sized |= {axis for place, p in program.places.items() for axis in (place, p.outer)}
        self.sized |= {axis for axis, like in program.inner.items() if like in self.sized}
        self.seen: set[Node] = set()
        self.along: dict[str, tuple[str, ...]] = {}

    def fail(self, what: str, why: str) -> NoReturn:
        where = f"the kernel program of {self.program.name}, {self.place}"
        raise RedalgError(what, where, why, "this is a defect of redalg, not of the spec: please report the spec")

    def read(self, node: Node, known: Mapping[str, Held], varies: bool) -> None:
        """A value computed where these names are known; `varies`: for every element of the stream."""
        self.scan(node)
        if not node.axes <= self.roles:
            self.fail(f"axes: {min(node.axes - self.roles)} is free in {node}", "it plays no part in the program")
        if not varies and node.axes & self.stream:
            self.fail(f"axes: {min(node.axes & self.stream)} is free in {node}", "a row has one value there")
        for leaf in _states(node):
            held = known.get(leaf.attr.name)
            if held is None:
                self.fail(f"names: {leaf.attr.name} is read", "nothing has defined it by then")
            self.leaf(leaf, held)

    def leaf(self, leaf: Node, held: Held) -> None:
        name, axes = leaf.attr.name, leaf.attr.axes
        free = frozenset(axes)
        place = self.program.places.get(axes[-1]) if held.top is not None and axes else None  # one entry
        entries = free - self.rows - self.columns if place is None else {axes[-1]}
        inside = place is not None and place.number < (held.top or 0)
        listed = held.top is not None and len(entries) == 1
        listed &= inside or self.lengths.get(min(entries, default="")) == held.top
        if free & self.columns != held.columns or bool(entries) != (held.top is not None) or entries and not listed:
            self.fail(f"axes: {name} is read along {axes}", f"it is held as {held} in a row")
        own = tuple(a for a in axes if a not in entries)  # a list is read along any axis of its length
        if self.along.setdefault(name, own) != own:
            self.fail(f"axes: {name} is read along {axes}", f"it is read along {self.along[name]} as well")

    def scan(self, root: Node) -> None:
        """Every operation below the root is one that printers know."""
        if root in self.seen:
            return
        for n in walk(root):
            if n not in self.seen:
                self.seen.add(n)
                if n.op not in KNOWN:
                    self.operation(n)

    def operation(self, n: Node) -> None:
        op, attr = n.op, n.attr
        if op == "tensor":
            operand = self.operands.get(attr.name)
            if operand is None or len(operand.axes) != len(attr.axes):
                self.fail(f"names: the tensor {attr}", "no operand has this name and as many axes")
        elif op == "reduce":
            self.contraction(n)
        elif op == "cast":
            if attr not in FORMATS:
                self.fail(f"dtypes: a cast to {attr}", "there is no format of this name")
        elif op in ("size", "index"):
            if attr not in self.sized:
                self.fail(f"axes: the {op} of {attr}", "no operand has the axis")
        elif not (op == "special" and attr in SPECIAL or op == "call" and attr in CALLS):
            self.fail(f"names: the operation {op} {'' if attr is None else attr}", "no printer knows it")

    def contraction(self, n: Node) -> None:
        r = n.attr
        if r.kind not in INNER:
            self.fail(f"names: {r.kind} inside an element", "no printer knows it")
        own = frozenset(r.axes)
        within = {a for m in walk(*n.args) if m.op == "reduce" for a in m.attr.axes}
        if own & (self.rows | self.stream) or own & (self.roles | within) and not of_state(n):
            why = "the axis has an index there already, of a row or of another contraction"
            self.fail(f"axes: {r.kind} over {r.axes} inside an element", why)
        if not own <= self.sized:
            self.fail(f"axes: {r.kind} over {r.axes}", "no operand has the axis")


@lru_cache(maxsize=4096)
def _states(node: Node) -> tuple[Node, ...]:
    return tuple(n for n in walk(node) if n.op == "state")
