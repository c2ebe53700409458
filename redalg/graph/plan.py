"""What the engine hands to everyone else: anchors, slots and passes as frozen data over graph nodes.

A *state* of one pass is a count ``n`` (elements seen), one array per anchor and the arrays of the slots. In every
expression below, a state part is a `state` leaf of that name; `n` is the leaf ``COUNT``.

Laws the runtime relies on (theory, section 3)::

    lift:     u      = ⊕_j slot.lift[j]            with the anchors A of the piece as `state` leaves
    move:     u(A')  = Σ move.coefficient · u_(move.slot)(A)   over the leaves SHIFT of each anchor
    combine:  u      = move(u_a) ⊕ move(u_b)       both at the same new anchors
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import ClassVar, Self, TypeVar

from redalg.graph.node import MINUS_ONE, ONE, ZERO, Node, div, leaves, reduction, state, sub, where
from redalg.graph.operators import Average, Operator, TopK, reductions

Value = TypeVar("Value")
COUNT = state("n", (), ("integer", "positive"))

# named assumptions of a form that does without an anchor: they are about rounding and range, not about what is true
IN_RANGE, MODERATE, APART = "exponentials_in_range", "moderate_offsets", "products_in_range"
NUMERIC = frozenset((IN_RANGE, MODERATE, APART))


def shift(anchor: str, axes: tuple[str, ...]) -> Node:
    """The leaf for how an anchor moves: A' - A (kind "add") or A / A' (kind "mul"). Exactly 0 (or 1) when A' == A."""
    return state(f"shift:{anchor}", axes)


def unit(name: str, axes: tuple[str, ...]) -> Node:
    """The leaf of a scale anchor that is a power of 2: positive on every state."""
    return state(name, axes, ("positive",))


def key(leaf: Node) -> str:
    """What a leaf's value goes by where tensors lie beside parts of a state, which may have the same names."""
    return f"given:{leaf.attr.name}" if leaf.op == "tensor" else str(leaf.attr.name)


def given(tensors: Mapping[str, Value]) -> dict[str, Value]:
    """What belongs to tensors, under the keys of their leaves.

    >>> given({"n": 1})
    {'given:n': 1}
    """
    return {f"given:{name}": value for name, value in tensors.items()}


@dataclass(frozen=True)
class _Anchor:
    """A value the slots are centred on. Any value at which the moves are defined gives the same result."""

    name: str
    axes: tuple[str, ...]
    generator: Node  # element expression that is centred

    policy: ClassVar[str]  # the word of certificates
    divides: ClassVar[bool] = False  # elements enter as generator / A; else as generator - A

    @property
    def kind(self) -> str:
        """How elements enter, in the words of certificates."""
        return "mul" if self.divides else "add"

    @property
    def leaf(self) -> Node:
        return state(self.name, self.axes)

    @property
    def still(self) -> Node:
        """The shift of an anchor that does not move."""
        return ONE if self.divides else ZERO

    def between(self, old: Node, new: Node) -> Node:
        """The shift of an anchor that moves."""
        return div(old, new) if self.divides else sub(new, old)


@dataclass(frozen=True)
class MeanAnchor(_Anchor):
    """A := A + shift, kept where that is not finite."""

    shift: Node  # target - A, over slots held at A
    why: str = ""  # the computed reason for the choice, for `explain`
    follows: bool = False  # lean forms: it moves to infinities and NaN, too, since no slot is left that remembers them

    policy: ClassVar[str] = "mean"

    @property
    def source(self) -> Node:
        """What the anchor is computed from."""
        return self.shift

    def map(self, read: Callable[[Node], Node]) -> Self:
        return replace(self, generator=read(self.generator), shift=read(self.shift))


@dataclass(frozen=True)
class _Following(_Anchor):
    """A := target."""

    target: Node  # over slots (earlier ones, or slots without this anchor) and parameters
    why: str = ""

    policy: ClassVar[str] = "extremum"

    @property
    def source(self) -> Node:
        return self.target

    def map(self, read: Callable[[Node], Node]) -> Self:
        return replace(self, generator=read(self.generator), target=read(self.target))


@dataclass(frozen=True)
class ExtremumAnchor(_Following):
    """What is subtracted; -oo and oo are allowed."""


@dataclass(frozen=True)
class ScaleAnchor(_Following):
    """What is divided by."""

    divides: ClassVar[bool] = True


@dataclass(frozen=True)
class UnitAnchor(_Following):
    """A power of 2 that elements are divided by. Any positive value serves, so that nothing rests on its target."""

    policy: ClassVar[str] = "scale"
    divides: ClassVar[bool] = True

    @property
    def leaf(self) -> Node:
        return unit(self.name, self.axes)


Anchor = MeanAnchor | ExtremumAnchor | ScaleAnchor | UnitAnchor


@dataclass(frozen=True)
class Move:
    coefficient: Node  # over `shift:` leaves, units at their new values, parameters; 1 for the slot itself
    slot: str  # a sum slot, or "n": Σ_j 1; read as a sum or as an average, as the moved slot is one


@dataclass(frozen=True)
class Slot:
    """One mergeable quantity. `parts` names its arrays (one, except positions, top-k lists and users' monoids)."""

    name: str
    op: Operator
    axes: tuple[str, ...]  # of every part; top-k adds its new axis last
    lift: tuple[Node, ...]  # element expressions (one; several for a monoid of tuples) over tensors and anchors
    parts: tuple[str, ...]  # positions: (value, index); top-k: (values, indices)
    domain: frozenset[str] = frozenset()  # of the parts' leaves ("integer", "bool", …)
    anchors: tuple[str, ...] = ()  # anchors that occur in lift or moves
    moves: tuple[Move, ...] = ()  # empty: not moved by any anchor
    meaning: str = ""
    vanishes: bool = False  # lean forms: zero whenever its anchor equals the target, so used for `shift` but not stored

    @property
    def kind(self) -> str:
        """sum prod max min any all argmax argmin topk monoid"""
        return "sum" if self.average else self.op.kind

    @property
    def average(self) -> bool:
        """Whether the array holds (Σ lift) / n."""
        return isinstance(self.op, Average)

    @property
    def declared(self) -> tuple[str, ...]:
        """The axes of its parts: its own, and that of a list."""
        return (*self.axes, self.op.axis) if isinstance(self.op, TopK) else self.axes

    def leaf(self, part: int = 0) -> Node:
        return state(self.parts[part], self.declared, self.domain)

    def reduced(self, axes: tuple[str, ...]) -> list[Node]:
        """Each part as a reduction of the lift over elements that are at hand."""
        found = [reduction(kind, axes, *self.lift, extra=extra) for kind, extra in reductions(self.op)]
        return [div(found[0], COUNT)] if self.average else found

    def map(self, read: Callable[[Node], Node]) -> Self:
        moves = tuple(replace(m, coefficient=read(m.coefficient)) for m in self.moves)
        return replace(self, lift=tuple(map(read, self.lift)), moves=moves)


def list_axes(slots: Iterable[Slot], nodes: Iterable[Node]) -> dict[str, int]:
    """The axes that lists of largest elements lie along, also where nodes read them along another one; with lengths."""
    lists = [(s.op, s.parts) for s in slots if isinstance(s.op, TopK)]
    held = {part: op.k for op, parts in lists for part in parts}
    read = [x.attr for n in nodes for x in leaves(n, "state") if x.attr.name in held] if lists else []
    return {op.axis: op.k for op, _ in lists} | {d.axes[-1]: held[d.name] for d in read}


@dataclass(frozen=True)
class PassPlan:
    """One pass over the axis. `order` lists anchor and slot names so that everything used is computed before."""

    anchors: tuple[Anchor, ...] = ()
    slots: tuple[Slot, ...] = ()
    order: tuple[str, ...] = ()
    exports: tuple[tuple[str, Node], ...] = ()  # values later passes read as `state` leaves of these names

    @property
    def means(self) -> tuple[MeanAnchor, ...]:
        return tuple(a for a in self.anchors if isinstance(a, MeanAnchor))

    @property
    def units(self) -> tuple[UnitAnchor, ...]:
        return tuple(a for a in self.anchors if isinstance(a, UnitAnchor))


@dataclass(frozen=True)
class Guard:
    """Where `finite` does not hold, the identities behind a value are not the definition's, and it is `otherwise`."""

    finite: Node
    otherwise: Node  # NaN, or no position


@dataclass(frozen=True)
class Output:
    """`value` over state parts (of the last pass), exports, parameters and, if `keeps_axis`, the axis' tensors."""

    name: str
    value: Node
    axes: tuple[str, ...]
    keeps_axis: bool = False
    empty: object = None  # value for rows without a valid element, where the spec states one
    guard: Guard | None = None
    position: bool = False  # an index: where `value` is NaN it is computed as -1, since integers have no NaN

    @property
    def guarded(self) -> Node:
        """The value as it is computed; `value` alone is what the laws and certificates are about."""
        value = _or_none(self.value) if self.position else self.value
        return value if self.guard is None else where(self.guard.finite, value, self.guard.otherwise)

    def map(self, read: Callable[[Node], Node]) -> Self:
        guard = self.guard and Guard(read(self.guard.finite), read(self.guard.otherwise))
        return replace(self, value=read(self.value), guard=guard)


def _or_none(value: Node) -> Node:
    """A position, and none in the cases where it is NaN."""
    if value.op == "where":
        return where(value.args[0], *map(_or_none, value.args[1:]))
    return MINUS_ONE if value.op == "special" and value.attr == "nan" else value


@dataclass(frozen=True)
class Obligation:
    """One law as an *unevaluated* pair: `left` equals `right` for all values of `variables` under `assumptions`."""

    name: str  # O1 … O8 of theory section 6
    subject: str  # the stage or slot it is about
    left: Node
    right: Node
    equality: str = "exact"  # or "observational"
    assumptions: tuple[Node, ...] = ()  # boolean nodes
    note: str = ""


@dataclass(frozen=True)
class StageReport:
    """What was decided about one stage, for `explain`, `form.ranks` and certificates."""

    name: str
    node: Node
    pair: str  # "(sum, ×)", "(max, monotone)", …
    rank: int | None
    passes: int
    rules: tuple[str, ...] = ()  # trace of applied rules, in order
    generators: tuple[Node, ...] = ()  # G_k over raw elements (rank factorisation), where it applies
    coefficients: tuple[Node, ...] = ()  # H_k over stage values


@dataclass(frozen=True)
class Plan:
    """Everything a form consists of, before it is given its public face (`redalg.form.Form`)."""

    axis: tuple[str, ...]
    passes: tuple[PassPlan, ...]
    outputs: tuple[Output, ...]
    stages: tuple[StageReport, ...] = ()
    assumptions: tuple[tuple[str, str], ...] = ()  # (name, what is assumed and why)
    obligations: tuple[Obligation, ...] = field(default=(), compare=False)
    known: tuple[tuple[Node, Node], ...] = ()  # values as the spec has them, and the exports that later passes read


def nodes_of(value: object) -> Iterator[Node]:
    """The nodes that a plan, or a part of one, is made of; not those below them."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, Mapping | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from nodes_of(one)
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from nodes_of(getattr(value, one.name))
