"""Certificates as data: what a document holds, and its JSON text (version 1).

::

    {"format": "redalg certificate", "version": 1, "spec_hash": …,
     "terms": [[operation, attributes, numbers of earlier terms …], …],
     "spec": {"axis": [axes], "outputs": {name: term}, "empty": {name: term}},
     "monoids": [{"name", "commutative", "identity", "combined", "actions"}],
     "passes": [{"order", "anchors", "slots", "exports"}], "outputs": [{"name", "value", "axes", "keeps_axis"}],
     "stages": [{"name", "node", "pair", "rank", "generators", "coefficients", "rules"}],
     "assumptions": [name, …], "obligations": [{"law", "subject", "left", "right", "equality", "given", "variables"}]}

Terms are numbered by their place. Nothing in a document is ever executed; every field is held to its type.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from redalg.proofs.document.terms import Leaf, Term, Terms, digest, walk

FORMAT, VERSION = "redalg certificate", 1


@dataclass(frozen=True)
class Monoid:
    """A user's monoid: its combination over the state leaves ``a0 a1 … b0 b1 …``; actions over ``a0 … h``."""

    name: str
    commutative: bool
    identity: tuple[Term, ...]
    combined: tuple[Term, ...]
    actions: tuple[tuple[str, tuple[Term, ...]], ...] = ()


@dataclass(frozen=True)
class Anchor:
    """What slots are centred on: `generator` is centred, A := target ("extremum") or A := A + shift ("mean").

    A "scale" is any positive number: which one is nobody's concern, for the form is proved for all of them.
    """

    name: str
    axes: tuple[str, ...]
    kind: str  # "add" | "mul"
    policy: str  # "extremum" | "mean" | "scale"
    generator: Term | None  # what A starts on, for a mean
    target: Term | None
    shift: Term | None

    @property
    def leaf(self) -> Leaf:
        return Leaf(self.name, self.axes, frozenset({"positive"} if self.policy == "scale" else ()))


@dataclass(frozen=True)
class Move:
    """One entry of the transport T: a coefficient over the anchors' shifts (and the scales they move to), and the slot
    (or "n") it multiplies."""

    coefficient: Term
    slot: str


@dataclass(frozen=True)
class Slot:
    """One mergeable quantity: ⊕ over the elements of `lift`, with the identity of ⊕ where it is a value."""

    name: str
    kind: str
    axes: tuple[str, ...]
    lift: tuple[Term, ...]
    parts: tuple[str, ...]
    identity: tuple[Term, ...] | None
    domain: frozenset[str] = frozenset()
    moves: tuple[Move, ...] = ()
    average: bool = False
    vanishes: bool = False
    extra: tuple[int, str] | None = None  # topk: (k, new axis)
    monoid: int | None = None

    def leaf(self, part: int = 0) -> Leaf:
        axes = self.axes + ((self.extra[1],) if self.extra else ())
        return Leaf(self.parts[part], axes, self.domain)


@dataclass(frozen=True)
class Pass:
    order: tuple[str, ...]
    anchors: tuple[Anchor, ...]
    slots: tuple[Slot, ...]
    exports: tuple[tuple[str, Term], ...]


@dataclass(frozen=True)
class Output:
    name: str
    value: Term
    axes: tuple[str, ...]
    keeps_axis: bool = False


@dataclass(frozen=True)
class Stage:
    """A separated stage: its body is Σ coefficients·generators, for the pair (⊕, ⊗)."""

    name: str
    node: Term
    pair: str
    rank: int | None
    generators: tuple[Term, ...] = ()
    coefficients: tuple[Term, ...] = ()
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Obligation:
    """`left` equals `right` for all values of the variables that satisfy `given`, in the sense of `equality`."""

    law: str
    subject: str
    left: Term
    right: Term
    equality: str = "exact"  # "observational": where the definition has a value;  "domain": right is true
    given: tuple[Term, ...] = ()

    def __str__(self) -> str:
        return f"{self.law} {self.subject}"


@dataclass(frozen=True)
class Document:
    """Everything a certificate states; `terms` is the table its terms live in."""

    terms: Terms = field(compare=False)
    axis: tuple[str, ...]
    spec: dict[str, Term]
    empty: dict[str, Term]
    passes: tuple[Pass, ...]
    outputs: tuple[Output, ...]
    stages: tuple[Stage, ...] = ()
    assumptions: tuple[str, ...] = ()
    monoids: tuple[Monoid, ...] = ()
    obligations: tuple[Obligation, ...] = ()

    @property
    def spec_hash(self) -> str:
        """The hash of the spec alone: axis, outputs, values of empty rows, monoids and their actions."""
        monoids = [(m.name, m.commutative, m.combined, m.identity, m.actions) for m in self.monoids]
        return digest(("axis", self.axis), ("outputs", self.spec), ("empty", self.empty), ("monoids", monoids))

    @cached_property
    def sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the stream's axes on either side of a merge, which no axis of the spec has."""
        taken = _axes(*self.spec.values(), *self.empty.values()) | set(self.axis)
        mark = "_"
        while taken & {f"{x}{mark}{side}" for x in self.axis for side in "ab"}:
            mark += "_"
        first, second = (tuple(f"{x}{mark}{side}" for x in self.axis) for side in "ab")
        return first, second


def _axes(*roots: Term) -> set[str]:
    found: set[str] = set()
    for t in walk(*roots):
        if t.op in ("tensor", "state", "reduce"):
            found |= set(t.attr.axes)
        elif t.op in ("index", "size"):
            found.add(t.attr)
    return found


def variables(o: Obligation) -> list[str]:
    """The names an obligation quantifies over, with their axes."""
    found = {t.attr: None for t in walk(o.left, o.right, *o.given) if t.op in ("tensor", "state")}
    return sorted(f"{v.name}[{','.join(v.axes)}]" if v.axes else v.name for v in found)
