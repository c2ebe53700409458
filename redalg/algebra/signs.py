"""Signs of expressions on reachable states (theory, section 3.4): what is known without evaluating anything.

A sign is the set of values sign(t) can take, as bits NEG | ZERO | POS, over the reals (NaN aside). Order facts come
from the spec itself: an element never exceeds the maximum taken over it (under the same mask).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from redalg.algebra.polynomial import may_be_complex
from redalg.graph import node as g
from redalg.graph import spans
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Levels, Node

NEG, ZERO, POS = 1, 2, 4
ANY = NEG | ZERO | POS
NONNEGATIVE = ZERO | POS
NONPOSITIVE = ZERO | NEG
MAX_DEPTH = 2
STEP = 16  # nodes on top of one another that are looked at by recursion


def flip(s: int) -> int:
    return (s & ZERO) | (NEG if s & POS else 0) | (POS if s & NEG else 0)


def times(a: int, b: int) -> int:
    out = ZERO if (a | b) & ZERO else 0
    if (a & POS and b & POS) or (a & NEG and b & NEG):
        out |= POS
    if (a & POS and b & NEG) or (a & NEG and b & POS):
        out |= NEG
    return out


def plus(a: int, b: int) -> int:
    if a == ZERO:
        return b
    if b == ZERO:
        return a
    if not (a | b) & NEG:  # both non-negative: positive if one is
        return POS if POS in (a, b) else NONNEGATIVE
    if not (a | b) & POS:
        return NEG if NEG in (a, b) else NONPOSITIVE
    return ANY


def linear(node: Node) -> dict[Node, Fraction]:
    """The node as Σ coefficient · (node that is no sum); constants under ``graph.ONE``."""
    out: dict[Node, Fraction] = {}
    for term in node.args if node.op == "add" else (node,):
        if term.op == "const":
            c, body = term.attr, g.ONE
        elif term.op == "mul" and term.args[0].op == "const":
            c, body = term.args[0].attr, g.mul(*term.args[1:])
        else:
            c, body = Fraction(1), term
        out[body] = out.get(body, Fraction(0)) + c
    return out


@dataclass(frozen=True)
class Bound:
    """``lesser <= greater`` for every element for which `mask` holds (None: for every element)."""

    lesser: Node
    greater: Node
    mask: Node | None
    extremum: Node  # the stage that says so


class Signs:
    """Sign analysis with the order facts of the given stages (extrema over the cascade's axis).

    `limits`: what tends to 0 at an infinity, as exp and 1/x do, may be 0.
    """

    def __init__(self, stages: Iterable[Node], limits: bool = False) -> None:
        self.stages, self.limits = tuple(stages), limits
        self.bounds = [b for s in self.stages for b in _bounds(s)]
        self._memo: dict[tuple[Node, Node | None], int] = {}
        self._levels: dict[Node | None, Levels] = {}  # of what is settled, under each mask
        self._depth = 0  # of order facts used inside order facts: work is bounded, a sign stays unknown beyond

    @cached_property
    def at_infinities(self) -> Signs:
        """The signs of values that may be infinite: conditions have no NaN that would tell of one."""
        return self if self.limits else Signs(self.stages, limits=True)

    def of(self, node: Node, mask: Node | None = None) -> int:
        key = (node, mask)
        if key not in self._memo:
            self._below(node, mask)
            self._memo[key] = ANY  # recursion guard: shared graphs are acyclic, this only bounds repeated work
            self._memo[key] = self._structural(node, mask)
        return self._memo[key]

    def _below(self, node: Node, mask: Node | None) -> None:
        """What is known of reductions below, and of some levels of nodes: the rules recurse no deeper than these."""
        for n in self._levels.setdefault(mask, Levels(STEP, {"reduce"})).below(node):
            key = (n, None if n.op == "reduce" else mask)
            if key not in self._memo:
                self._memo[key] = ANY
                self._memo[key] = self._structural(*key)

    def nonnegative(self, node: Node, mask: Node | None = None) -> bool:
        return not self.of(node, mask) & NEG

    def positive(self, node: Node, mask: Node | None = None) -> bool:
        return self.of(node, mask) == POS

    def ordered(self, t: Node, mask: Node | None = None) -> int:
        """Sign of a difference from one order fact: t = q·(greater - lesser) + rest."""
        if self._depth >= MAX_DEPTH:
            return ANY
        self._depth += 1
        try:
            return self._ordered(t, mask)
        finally:
            self._depth -= 1

    def _ordered(self, t: Node, mask: Node | None) -> int:
        terms = linear(t)
        for b in self.bounds:
            if b.mask is not None and b.mask is not mask and not _implies(mask, b.mask):
                continue
            q = terms.get(b.extremum)
            if not q:
                continue
            diff = g.sub(b.greater, b.lesser)
            sign = 1 if linear(diff).get(b.extremum, Fraction(0)) > 0 else -1
            rest = g.sub(t, g.mul(g.const(q * sign), diff))
            if b.extremum in linear(rest):
                continue
            direction = NONNEGATIVE if q * sign > 0 else NONPOSITIVE
            total = plus(direction, self.of(rest, mask))
            if total != ANY:
                return total
        return ANY

    def _structural(self, node: Node, mask: Node | None) -> int:
        rule = _RULES.get(node.op, Signs._function)
        return rule(self, node, mask)

    def _leaf(self, node: Node, mask: Node | None) -> int:
        domain = node.attr.domain
        if "complex" in domain:
            return ANY
        return POS if "positive" in domain else NONNEGATIVE if domain & {"nonnegative", "bool"} else ANY

    def _add(self, node: Node, mask: Node | None) -> int:
        total = ZERO
        for a in node.args:
            total = plus(total, self.of(a, mask))
        if total == ANY:
            total = spans.sign(spans.span(node, lambda n: self.of(n, mask)))
        return self.ordered(node, mask) if total == ANY else total

    def _mul(self, node: Node, mask: Node | None) -> int:
        total = POS
        for a in node.args:
            total = times(total, self.of(a, mask))
        return total

    def _power(self, node: Node, mask: Node | None) -> int:
        base, e = self.of(node.args[0], mask), node.args[1]
        if may_be_complex(node.args[0]):
            return ANY
        if self.limits and base == POS and not (e.op == "const" and e.attr > 0):
            return NONNEGATIVE
        if e.op == "const" and e.attr.denominator == 1:
            if e.attr.numerator % 2:
                return base
            return POS if not base & ZERO else NONNEGATIVE
        if base == POS:
            return POS
        return NONNEGATIVE if e.op == "const" else ANY  # a real power is never negative where it is defined

    @staticmethod
    def _extremum(op: str, signs: list[int]) -> int:
        if op == "minimum":
            return flip(Signs._extremum("maximum", [flip(s) for s in signs]))
        if any(s == POS for s in signs):
            return POS
        out = 0
        for s in signs:
            out |= s
        return out & ~NEG if any(not s & NEG for s in signs) else out

    def _reduce(self, node: Node) -> int:
        kind, body = node.attr.kind, node.args[0]
        if kind in g.POSITIONS:
            return ANY
        s = self.of(body)
        if kind in ("sum", "max", "min"):
            return s if s in (POS, NEG, ZERO, NONNEGATIVE, NONPOSITIVE) else s | (ZERO if kind == "sum" else 0)
        if kind == "prod":
            return POS if s == POS else NONNEGATIVE if not s & NEG else ANY
        return NONNEGATIVE if kind in ("any", "all") else ANY

    def _function(self, node: Node, mask: Node | None) -> int:
        fact = FUNCTIONS.get(node.op)
        if fact is None:
            return NONNEGATIVE if node.is_boolean else ANY
        if fact.range:
            vanishes = self.limits and 0 in fact.limits
            return POS if fact.range == "positive" and not vanishes else NONNEGATIVE
        if fact.direction > 0 and (fact.strict or fact.parity == "odd") and fact.values.get(Fraction(0)) == 0:
            return self.of(node.args[0], mask)  # increasing through the origin
        if node.op == "floor":
            s = self.of(node.args[0], mask)
            return s | ZERO if not s & NEG else ANY
        return ANY


def _sign_of_constant(value: Fraction) -> int:
    return POS if value > 0 else NEG if value < 0 else ZERO


# operation -> sign of a node under a mask; what has no row is a function (`Signs._function`)
_RULES: dict[str, Callable[[Signs, Node, Node | None], int]] = {
    "const": lambda signs, node, mask: _sign_of_constant(node.attr),
    "special": lambda signs, node, mask: {"-oo": NEG, "nan": ANY, "i": ANY}.get(node.attr, POS),
    "tensor": Signs._leaf,
    "state": Signs._leaf,
    "size": lambda signs, node, mask: POS,  # a state exists only once an element was seen
    "index": lambda signs, node, mask: NONNEGATIVE,
    "add": Signs._add,
    "mul": Signs._mul,
    "pow": Signs._power,
    "maximum": lambda signs, node, mask: signs._extremum(node.op, [signs.of(a, mask) for a in node.args]),
    "minimum": lambda signs, node, mask: signs._extremum(node.op, [signs.of(a, mask) for a in node.args]),
    "where": lambda signs, node, mask: signs.of(node.args[1], mask) | signs.of(node.args[2], mask),
    "cast": lambda signs, node, mask: signs.of(node.args[0], mask) | ZERO,
    "reduce": lambda signs, node, mask: signs._reduce(node),
}


def _bounds(stage: Node) -> list[Bound]:
    if stage.op != "reduce" or stage.attr.kind not in ("max", "min"):
        return []
    out = []
    for body, mask in _unmasked(stage.args[0], None):
        pair = (body, stage) if stage.attr.kind == "max" else (stage, body)
        out.append(Bound(pair[0], pair[1], mask, stage))
        if body.op == "abs":  # |x| <= M gives -M <= x <= M
            if stage.attr.kind == "max":
                out.append(Bound(body.args[0], stage, mask, stage))
                out.append(Bound(g.neg(stage), body.args[0], mask, stage))
    return out


def _unmasked(body: Node, mask: Node | None) -> list[tuple[Node, Node | None]]:
    """The body, and what it selects under which condition: ``where(c, u, -oo)`` also bounds u under c."""
    out = [(body, mask)]
    if body.op == "where":
        c, a, b = body.args
        out += _unmasked(a, g.logical("and", *(m for m in (mask, c) if m is not None)))
        if b.op != "special":
            out += _unmasked(b, g.logical("and", *(m for m in (mask, g.negate(c)) if m is not None)))
    return out


def _implies(known: Node | None, wanted: Node) -> bool:
    if known is None:
        return False
    have = set(known.args) if known.op == "and" else {known}
    need = set(wanted.args) if wanted.op == "and" else {wanted}
    return need <= have


DEFINED_EVERYWHERE = frozenset(
    "const tensor state index size add mul sin cos tanh exp expm1 abs sign relu sigmoid erf erfc sinh cosh atan asinh "
    "floor ceil maximum minimum where reduce re im conj cast true false and or not eq ne lt le".split()
)


def always_finite(node: Node) -> bool:
    """Whether the node is a finite number for all finite data, as far as its form shows."""
    signs = Signs(())
    return all(n.op in DEFINED_EVERYWHERE or is_defined(n, signs) for n in g.walk(node))


def is_defined(n: Node, signs: Signs) -> bool:
    """Whether the argument of a logarithm or a power is in its domain, as far as signs are known."""
    if n.op == "log":
        return signs.positive(n.args[0])
    if n.op != "pow" or n.args[1].op != "const":
        return False
    base, e = n.args[0], n.args[1].attr
    if e < 0 and not signs.positive(base):
        return False
    return bool(e.denominator == 1) or signs.nonnegative(base)
