"""What slots and folds are reduced by: a closed union of monoids.

Whoever treats some of them apart asks for the class; `kind` is the word in texts, certificates and printed code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, assert_never

from redalg.graph.node import FALSE, INF, NEG_INF, ONE, TRUE, ZERO, Node


@dataclass(frozen=True)
class Sum:
    kind: ClassVar[str] = "sum"
    operation: ClassVar[str] = "add"  # of the graph
    identity: ClassVar[Node] = ZERO


@dataclass(frozen=True)
class Average:
    """(Σ lift) / n: both sides have the weight of their counts."""

    kind: ClassVar[str] = "average"


@dataclass(frozen=True)
class Product:
    kind: ClassVar[str] = "prod"
    operation: ClassVar[str] = "mul"
    identity: ClassVar[Node] = ONE


@dataclass(frozen=True)
class Extremum:
    kind: Literal["max", "min"]

    @property
    def operation(self) -> str:
        return f"{self.kind}imum"

    @property
    def identity(self) -> Node:
        return NEG_INF if self.kind == "max" else INF

    @property
    def relation(self) -> str:
        """How a value compares with one that it replaces."""
        return ">" if self.kind == "max" else "<"


@dataclass(frozen=True)
class NumberExtremum(Extremum):
    """One that NaN is no candidate for: it stands for a comparison with any or all elements."""


@dataclass(frozen=True)
class Quantifier:
    kind: Literal["any", "all"]

    @property
    def operation(self) -> str:
        return "or" if self.kind == "any" else "and"

    @property
    def identity(self) -> Node:
        return FALSE if self.kind == "any" else TRUE


@dataclass(frozen=True)
class Position:
    """An extremum and its first position."""

    kind: Literal["argmax", "argmin"]

    @property
    def extremum(self) -> Extremum:
        return Extremum("max" if self.kind == "argmax" else "min")


@dataclass(frozen=True)
class TopK:
    """The k largest, descending, along a new axis, and their positions."""

    k: int
    axis: str

    kind: ClassVar[str] = "topk"


class UserMonoid(Protocol):
    """What the engine and its backends ask of a `redalg.Monoid`."""

    name: str
    digest: str
    width: int
    commutative: bool
    combined: tuple[Node, ...]
    identity_nodes: tuple[Node, ...]
    acted: tuple[tuple[str, tuple[Node, ...]], ...]

    def combine_nodes(self, a: Sequence[Node], b: Sequence[Node]) -> tuple[Node, ...]: ...


@dataclass(frozen=True)
class Custom:
    """A user's monoid."""

    monoid: UserMonoid

    kind: ClassVar[str] = "monoid"


Binary = Sum | Product | Extremum | Quantifier  # one commutative operation of the graph, with an identity
Additive = Sum | Average
Operator = Binary | Average | Position | TopK | Custom


def operator(kind: str, extra: Any = None) -> Operator:
    """What holds the value of a reduction of the graph, or the value at a position.

    >>> operator("max", "ignore_nan"), operator("topk_indices", (3, "t")), operator("argmin_value")
    (NumberExtremum(kind='max'), TopK(k=3, axis='t'), Position(kind='argmin'))
    """
    match kind.removesuffix("_value"):
        case "sum":
            return Sum()
        case "prod":
            return Product()
        case "max" | "min" as word:
            return NumberExtremum(word) if extra == "ignore_nan" else Extremum(word)
        case "any" | "all" as word:
            return Quantifier(word)
        case "argmax" | "argmin" as word:
            return Position(word)
        case "monoid":
            return Custom(extra[0])
        case _:
            return TopK(*extra)


def reductions(op: Operator) -> tuple[tuple[str, Any], ...]:
    """For every part the kind and extra of the reduction that gives it; an average's is still to be divided."""
    match op:
        case Sum() | Average():
            return (("sum", None),)
        case Extremum():
            return ((op.kind, "ignore_nan" if isinstance(op, NumberExtremum) else None),)
        case Product() | Quantifier():
            return ((op.kind, None),)
        case Position():
            return (op.extremum.kind, None), (op.kind, None)
        case TopK():
            return ("topk_values", (op.k, op.axis)), ("topk_indices", (op.k, op.axis))
        case Custom():
            return tuple(("monoid", (op.monoid, i)) for i in range(op.monoid.width))
        case _:
            assert_never(op)
