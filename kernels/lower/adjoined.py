"""Users' monoids with an identity that is adjoined: a fold that has seen no element gives what it meets, bit for bit.

Folds, threads, tiles and splits begin with a state of nothing. Combining with the identity that a monoid states is only
an equation of real numbers: 0·oo + b is NaN for an affine map, and so is max(-oo, -oo) + log1p(exp(-|-oo + oo|)).
A state has a part more, whether it has seen an element, unless the identity goes by rules that hold for every number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from redalg.graph.node import FALSE, INF, NEG_INF, ONE, TRUE, ZERO, Node, logical, state, where
from redalg.graph.operators import Custom, UserMonoid
from redalg.graph.plan import PassPlan, Slot

SEEN = "~seen"  # what the name of the part more ends in
NEUTRAL = {"add": ZERO, "mul": ONE, "maximum": NEG_INF, "minimum": INF, "and": TRUE, "or": FALSE}


@dataclass(unsafe_hash=True, kw_only=True)
class OwnMonoid:
    """A monoid that lowering makes: what `redalg.graph.operators.UserMonoid` asks of one, but for its operation."""

    name: str
    digest: str
    width: int
    commutative: bool
    identity_nodes: tuple[Node, ...]
    combined: tuple[Node, ...] = ()
    acted: tuple[tuple[str, tuple[Node, ...]], ...] = ()


@dataclass(unsafe_hash=True, kw_only=True)
class Adjoined(OwnMonoid):
    """A monoid beside a condition that is last: whether this is more than its identity."""

    inner: UserMonoid

    @staticmethod
    def of(m: UserMonoid) -> Adjoined:
        return Adjoined(
            inner=m,
            name=m.name,
            digest=f"adjoined {m.digest}",
            width=m.width + 1,
            commutative=m.commutative,
            identity_nodes=(*m.identity_nodes, FALSE),
        )

    def combine_nodes(self, a: Sequence[Node], b: Sequence[Node]) -> tuple[Node, ...]:
        *mine, some = a
        *theirs, more = b
        both = self.inner.combine_nodes(mine, theirs)
        parts = (where(more, where(some, z, y), x) for x, y, z in zip(mine, theirs, both, strict=True))
        return *parts, logical("or", some, more)


def adjoined(p: PassPlan) -> PassPlan:
    """The pass, with a part more for monoids whose identity is one of real numbers alone."""
    slots = tuple(map(_slot, p.slots))
    return p if slots == p.slots else replace(p, slots=slots)


def _slot(s: Slot) -> Slot:
    if not isinstance(s.op, Custom) or neutral(s.op.monoid):
        return s
    seen = s.name + SEEN
    return replace(s, op=Custom(Adjoined.of(s.op.monoid)), lift=(*s.lift, TRUE), parts=(*s.parts, seen))


def neutral(monoid: UserMonoid) -> bool:
    """Whether combining with the identity, on either side, gives whatever number it meets, NaN, too."""
    values = tuple(state(f"value{i}") for i in range(monoid.width))
    sides = ((monoid.identity_nodes, values), (values, monoid.identity_nodes))
    return all(_met(monoid, *side) == values for side in sides)


def _met(monoid: UserMonoid, a: Sequence[Node], b: Sequence[Node]) -> tuple[Node, ...]:
    """What a combination gives, simplified by nothing but neutral elements."""
    mapping = {state(f"{name}{i}"): x for name, side in (("a", a), ("b", b)) for i, x in enumerate(side)}
    done: dict[Node, Node] = {}
    return tuple(_plain(n, mapping, done) for n in monoid.combined)


def _plain(n: Node, mapping: dict[Node, Node], done: dict[Node, Node]) -> Node:
    if n in mapping:
        return mapping[n]
    if n not in done:
        args = tuple(_plain(x, mapping, done) for x in n.args)
        rest = tuple(x for x in args if x is not NEUTRAL.get(n.op))
        if n.op in NEUTRAL and len(rest) < 2:
            done[n] = rest[0] if rest else NEUTRAL[n.op]
        else:
            done[n] = n if not args else Node(n.op, rest if n.op in NEUTRAL else args, n.attr)
    return done[n]
