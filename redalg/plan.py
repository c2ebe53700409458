"""What the engine hands to everyone else: anchors, slots and passes as frozen data over graph nodes.

A *state* of one pass is a count ``n`` (elements seen), one array per anchor and the arrays of the slots. In every
expression below, a state part is a `state` leaf of that name; `n` is the leaf ``COUNT``.

Laws the runtime relies on (theory, section 3)::

    lift:     u      = ⊕_j slot.lift[j]            with the anchors A of the piece as `state` leaves
    move:     u(A')  = Σ move.coefficient · u_(move.slot)(A)   over the leaves SHIFT of each anchor
    combine:  u      = move(u_a) ⊕ move(u_b)       both at the same new anchors
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from redalg.graph import Node, state, where

Value = TypeVar("Value")
COUNT = state("n", (), ("integer", "positive"))

# named assumptions of a form that does without an anchor: they are about rounding and range, not about what is true
IN_RANGE, MODERATE = "exponentials_in_range", "moderate_offsets"


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
class Anchor:
    """A value the slots are centred on. Any value at which the moves are defined gives the same result."""

    name: str
    axes: tuple[str, ...]
    kind: str  # "add": elements enter as generator - A; "mul": as generator / A
    generator: Node  # element expression that is centred
    policy: str  # "extremum": A := target, void (-oo or oo) allowed; "mean": A := A + shift, kept if that is not finite
    target: Node | None  # policy "extremum": over slots (earlier ones, or slots without this anchor) and parameters
    shift: Node | None  # policy "mean": target - A, over slots held at A
    why: str = ""  # the computed reason for the choice, for `explain`
    follows: bool = False  # lean forms: it moves to infinities and NaN, too, since no slot is left that remembers them

    @property
    def is_unit(self) -> bool:
        """A power of 2 that elements are divided by. Any positive value serves, so that nothing rests on its target."""
        return self.kind == "mul" and self.target is not None and self.target.op == "pow2"

    @property
    def leaf(self) -> Node:
        return unit(self.name, self.axes) if self.is_unit else state(self.name, self.axes)


@dataclass(frozen=True)
class Move:
    coefficient: Node  # over `shift:` leaves, units at their new values, parameters; 1 for the slot itself
    slot: str  # a sum slot, or "n": Σ_j 1; read as a sum or as an average, as the moved slot is one


@dataclass(frozen=True)
class Slot:
    """One mergeable quantity. `parts` names its arrays (one, except argmax/argmin/topk/monoid)."""

    name: str
    kind: str  # sum prod max min any all argmax argmin topk monoid
    axes: tuple[str, ...]  # of every part; topk adds its new axis last
    lift: tuple[Node, ...]  # element expressions (one; several for a monoid of tuples) over tensors and anchors
    parts: tuple[str, ...]  # argmax/argmin: (value, index); topk: (values, indices)
    domain: frozenset[str] = frozenset()  # of the parts' leaves ("integer", "bool", …)
    anchors: tuple[str, ...] = ()  # anchors that occur in lift or moves
    moves: tuple[Move, ...] = ()  # empty: not moved by any anchor
    average: bool = False  # sum slots only: the array holds (Σ lift) / n
    ignore_nan: bool = False  # max/min that stand for any/all comparisons
    extra: object = None  # topk: (k, new axis); monoid: the Monoid
    meaning: str = ""
    vanishes: bool = False  # lean forms: zero whenever its anchor equals the target, so used for `shift` but not stored

    def leaf(self, part: int = 0) -> Node:
        axes = self.axes + ((self.extra[1],) if self.kind == "topk" else ())  # type: ignore[index]
        return state(self.parts[part], axes, self.domain)


@dataclass(frozen=True)
class PassPlan:
    """One pass over the axis. `order` lists anchor and slot names so that everything used is computed before."""

    anchors: tuple[Anchor, ...] = ()
    slots: tuple[Slot, ...] = ()
    order: tuple[str, ...] = ()
    exports: tuple[tuple[str, Node], ...] = ()  # values later passes read as `state` leaves of these names


@dataclass(frozen=True)
class Output:
    """`value` over state parts (of the last pass), exports, parameters and, if `keeps_axis`, the axis' tensors."""

    name: str
    value: Node
    axes: tuple[str, ...]
    keeps_axis: bool = False
    empty: object = None  # value for rows without a valid element, where the spec states one
    finite: Node | None = None  # where this does not hold the identities behind `value` are not the definition's
    otherwise: Node | None = None  # what the result is there: NaN, or no position

    @property
    def guarded(self) -> Node:
        """The value as it is computed; `value` alone is what the laws and certificates are about."""
        if self.finite is None or self.otherwise is None:
            return self.value
        return where(self.finite, self.value, self.otherwise)


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
