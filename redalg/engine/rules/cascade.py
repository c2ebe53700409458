"""Values of the stages of one pass, on demand and memoised over the shared graph.

A `Cascade` asks a *backend* for the quantities it accumulates: the raw backend answers with the reductions themselves
(``Σ_j G``), the slot backend of `redalg.engine.slots` with the parts of a centred state. Everything else (separation,
splitting, pull-out, cancellation between stages) is the same for both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono, Poly, TooLarge
from redalg.algebra.scope import Stages
from redalg.algebra.signs import Signs
from redalg.engine.rules.actions import act_outside
from redalg.engine.rules.monotone import CannotPull, Puller
from redalg.engine.rules.separate import OPEN, Centring, NoCentring, Scope, Separator, Trace
from redalg.graph import node as g
from redalg.graph.functions import FUNCTIONS, POLES
from redalg.graph.node import Node
from redalg.graph.plan import COUNT
from redalg.text.nodes import short

ORDER_KINDS = ("argmax", "argmin")
EXTREMA = ("max", "min", "topk_values")
VALUES = {"argmax_value": "max", "argmin_value": "min"}  # what a slot of a position holds beside it


@dataclass
class Blocked:
    """Why a stage has no incremental form in this pass: the node in the way."""

    stage: Node
    node: Node
    why: str
    budget: str = ""  # an expansion was given up, and nothing follows about the stage


@dataclass
class StageValue:
    node: Node  # over slots (or raw reductions) and parameters
    poly: Poly
    trace: Trace
    blocked: Blocked | None = None
    body: Poly | None = None  # normal form of a sum's body
    selective: bool = False  # terms that no element selects are 0, whatever multiplies them

    def renamed(self, names: dict[str, str]) -> StageValue:
        """The same value along other axes."""

        def poly(p: Poly) -> Poly:
            return Poly({nf.renamed(m, names): c for m, c in p.terms.items()})

        body = None if self.body is None else poly(self.body)
        return replace(self, node=g.rename_axes(self.node, names), poly=poly(self.poly), body=body)


class Backend(Protocol):
    @property
    def centring(self) -> Centring: ...

    def term(self, varying: Mono, separator: Separator) -> tuple[Mono, Poly]: ...
    def terms(self, varying: Mono, separator: Separator, stage: Node) -> list[tuple[Mono, Poly]]: ...
    def leaf(self, varying: Mono, stage: Node) -> Poly: ...
    def slot(
        self, kind: str, *lift: Node, ignore_nan: bool = False, extra: Any = None, varying: Mono | None = None
    ) -> Node: ...
    def ratio(self, varying: Node, fixed: Node, mask: Node | None, count: Node) -> Node | None: ...
    def may_lack(self, value: Node) -> bool: ...


class RawBackend:
    """Nothing is centred; what is accumulated is named by its own reduction."""

    def __init__(self, axis: tuple[str, ...]) -> None:
        self.axis = axis
        self.centring = NoCentring()
        self.monos: dict[Node, Mono] = {}  # Σ_j G -> the monomial G

    def mono_of(self, leaf: Node) -> Mono | None:
        """The monomial G of a leaf Σ_j G, also where it is read along a fresh axis."""
        if leaf in self.monos:
            return self.monos[leaf]
        plain, undo = nf.plain_axes(leaf)
        found = self.monos.get(plain) if undo else None
        return None if found is None else nf.renamed(found, {v: k for k, v in undo.items()})

    def term(self, varying: Mono, separator: Separator) -> tuple[Mono, Poly]:
        return varying, nf.constant(1)

    def terms(self, varying: Mono, separator: Separator, stage: Node) -> list[tuple[Mono, Poly]]:
        return [(varying, nf.constant(1))]

    def leaf(self, varying: Mono, stage: Node) -> Poly:
        node = g.reduction("sum", self.axis, nf.mono_node(varying))
        self.monos[node] = varying
        return nf.generator(node)

    def slot(
        self, kind: str, *lift: Node, ignore_nan: bool = False, extra: Any = None, varying: Mono | None = None
    ) -> Node:
        return g.reduction(VALUES.get(kind, kind), self.axis, *lift, extra=extra)

    def ratio(self, varying: Node, fixed: Node, mask: Node | None, count: Node) -> Node | None:
        return None

    def may_lack(self, value: Node) -> bool:
        """Whether a value is an extremum that may be one of no element."""
        return may_lack(value)


def may_lack(value: Node) -> bool:
    """Whether a reduction is an extremum of elements that may all be infinite: by a mask, say."""
    is_extremum = value.op == "reduce" and value.attr.kind in EXTREMA
    return is_extremum and any(n.op == "special" for n in g.walk(value.args[0]))


class Cascade:
    """The stages of one pass under a backend. `known`: stages of earlier passes, which are constants here."""

    def __init__(
        self, stages: list[Node], axis: tuple[str, ...], known: frozenset[Node], backend: Backend, commute: bool
    ) -> None:
        self.axis, self.backend = axis, backend
        self.scope = Scope(axis, known)
        self.signs = Signs(stages)
        self.commute = commute
        self._values: dict[Node, StageValue] = {}
        self._seen: set[Node] = set()
        self._leaves: set[Node] = set()  # raw reductions that stand for themselves
        self._bad: set[Node] = set()  # formal sums of mixed monomials
        self._sound: tuple[int, set[Node]] = (0, set())  # what depends on none of so many of these
        self._poles: dict[Node, bool] = {}
        self.separator = self._separator(Trace())

    def _separator(self, trace: Trace, stage: Node | None = None) -> Separator:
        return Separator(self.scope, self.signs, self._poly_of, self.backend.centring, trace, self.commute, stage)

    def _poly_of(self, stage: Node) -> Poly:
        return nf.generator(stage) if stage in self._leaves else self.value(stage).poly

    def value(self, stage: Node) -> StageValue:
        found = self._values.get(stage)
        if found is None:
            for earlier in self._before(stage):
                self.value(earlier)
            plain, undo = nf.plain_axes(stage)
            if undo:  # read along the axis of an open contraction
                found = self.value(plain).renamed({v: k for k, v in undo.items()})
            else:
                found = self._sum(stage) if stage.attr.kind == "sum" else self._other(stage)
            self._values[stage] = found
        return found

    def _before(self, stage: Node) -> list[Node]:
        """The stages below without a value, innermost first: a chain of stages is as long as it likes."""
        new = [n for n in g.walk(*stage.args, done=self._seen) if n not in self._values]
        self._seen.update(new)
        return [n for n in new if self.scope.is_stage(n)]

    # --- sums ---

    def _sum(self, stage: Node) -> StageValue:
        trace = Trace()
        separator = self._separator(trace, stage)
        body = separator.poly(stage.args[0], OPEN)
        rows: dict[Mono, Poly] = {}
        for e, h in separator.rows(body).items():
            for centred, factor in self.backend.terms(e, separator, stage):
                rows[centred] = rows.get(centred, Poly()) + _product(h, factor, e, _fresh_axes(centred) | stage.axes)
        total, guarded = Poly(), dict[Node, tuple[Poly, Poly]]()
        for e, h in sorted(((e, h) for e, h in rows.items() if h), key=lambda r: nf.mono_key(r[0])):
            mixed = [gen for gen, _ in e if separator.is_mixed(gen)]
            if mixed:
                leaf = g.reduction("sum", self.axis, nf.mono_node(e))
                self._bad.add(leaf)
                self._leaves.add(leaf)
                part = nf.generator(leaf)
            else:
                part = self._accumulated(e, stage)
            term = self._bind(h, part, stage.axes, e)
            total = total + term
            mask = self._mask(e)
            if mask is not None and not mixed and self._may_be_infinite(h):
                plain_part, safe = guarded.get(mask, (Poly(), Poly()))
                selected = self._slot("any", mask) if _opened(mask, stage) else None
                guarded[mask] = plain_part + term, safe + self._bind(h, part, stage.axes, e, selected)
        plain = self._reduced(total)
        blocked = self._blocked(stage, plain, trace)
        node = nf.poly_node(plain) if not guarded or blocked else self._guarded(stage, total, guarded)
        return StageValue(node, plain, trace, blocked, body, bool(guarded))

    def _mask(self, e: Mono) -> Node | None:
        conditions = [gen for gen, _ in e if gen.is_boolean and not self.backend.centring.is_centred(gen)]
        return g.logical("and", *conditions) if conditions else None

    def _may_be_infinite(self, h: Poly) -> bool:
        return any(
            p < 0 and gen is not COUNT and not self.signs.positive(gen) or self._has_pole(gen)
            for m in h.terms
            for gen, p in m
        )

    def _has_pole(self, gen: Node) -> bool:
        """Whether a factor may be infinite or NaN where all elements are finite: by a divisor, a logarithm, or an
        extremum of no element."""
        if gen not in self._poles:
            self._poles[gen] = any(map(self._is_pole, g.walk(gen)))
        return self._poles[gen]

    def _is_pole(self, n: Node) -> bool:
        if n.op == "pow":
            base, e = n.args
            if e.op == "const" and e.attr >= 0:
                return e.attr.denominator != 1 and not self.signs.nonnegative(base)
            return base is not COUNT and not self.signs.positive(base)
        if n.op in FUNCTIONS and FUNCTIONS[n.op].domain:
            return not (n.op in POLES and self.signs.positive(n.args[0]))
        return n.op in ("reduce", "state") and self.backend.may_lack(n)

    def _guarded(self, stage: Node, total: Poly, guarded: dict[Node, tuple[Poly, Poly]]) -> Node:
        """What no element selects contributes 0, whatever the stage values that multiply it (0·oo, 0·NaN)."""
        rest = total
        terms = []
        for mask, (part, safe) in guarded.items():
            rest = rest - part
            term = nf.poly_node(safe)
            terms.append(term if _opened(mask, stage) else g.where(self._slot("any", mask), term, g.ZERO))
        return g.add(nf.poly_node(rest), *terms)

    def _reduced(self, total: Poly) -> Poly:
        """The value modulo the values of other stages in it: S = n·(u - r²) lets u go where that leaves fewer terms."""
        for gen in sorted(total.generators(), key=lambda n: n.digest):
            if not self.scope.is_stage(gen) or gen in self._leaves:
                continue
            relation = _solved(self.value(gen).poly, gen)
            if relation is not None:
                slot, replacement = relation
                shorter = _substituted(total, slot, replacement)
                total = shorter if shorter is not None and len(shorter) < len(total) else total
        return total

    def _accumulated(self, e: Mono, stage: Node) -> Poly:
        if not e:
            return nf.generator(COUNT)
        plain, names = _plain(e)
        leaf = self.backend.leaf(plain, stage)
        if names:
            leaf = Poly({nf.renamed(m, names): c for m, c in leaf.terms.items()})
        self._leaves.update(gen for gen in leaf.generators() if gen.op == "reduce")
        return leaf

    @staticmethod
    def _bind(h: Poly, leaf: Poly, free: frozenset[str], element: Mono = nf.UNIT, selected: Node | None = None) -> Poly:
        """h·leaf, summed over the fresh axes of the contractions that were swapped here (not over the stage's own).

        `element`: what the leaf sums; an axis of it that is in no factor any more counts its positions.
        `selected`: a condition on those axes, under which a term counts.
        """
        total, seen = Poly(), nf.UNIT if selected is None else ((selected, Fraction(1)),)
        for m, c in _product(h, leaf, element, _fresh_axes(seen) | free).terms.items():
            fresh = tuple(sorted((_fresh_axes(m) | _fresh_axes(seen)) - free))
            bound = tuple((gen, p) for gen, p in m if gen.axes & set(fresh))
            rest = nf.from_mono(tuple(t for t in m if t not in bound), c)
            total = total + (rest * nf.total(bound, fresh, selected) if fresh else rest)
        return total

    def contracted(self, pairs: list[tuple[Poly, Poly]], stage: Node) -> Iterator[tuple[Poly, Poly]]:
        """Pairs whose products have the same fresh axes of open contractions in every term: those of the elements."""
        for big, factor in pairs:
            if not any(_fresh(m) for p in (big, factor) for m in p.terms):
                yield big, factor
                continue
            for m, c in big.terms.items():
                along = frozenset(a for gen, _ in m for a in gen.axes)
                yield nf.from_mono(m, c), self._bind(factor, nf.constant(1), stage.axes | along)

    # --- order reductions, products, quantifiers, user monoids ---

    def _other(self, stage: Node) -> StageValue:
        trace = Trace()
        separator = self._separator(trace, stage)
        puller = Puller(separator, self._slot, lambda e: self.backend.term(e, separator), self.backend.ratio)
        kind, body = stage.attr.kind, stage.args[0]
        try:
            if kind in ("max", "min"):
                node = puller.extremum(kind, body)
            elif kind in ORDER_KINDS:
                node = puller.position(kind, body)
            elif kind.startswith("topk"):
                node = puller.topk(kind, body, stage.attr.extra)
            elif kind == "prod":
                node = puller.product(body)
            elif kind in ("any", "all"):
                node = puller.quantifier(kind, body)
            else:
                node = self._user(stage, separator)
        except CannotPull as e:
            return self._block_whole(stage, trace, e)
        poly = nf.generator(stage) if node is stage else separator.poly(node)
        blocked = self._blocked(stage, nf.generator(node) if node is not stage else poly, trace)
        return StageValue(node, poly, trace, blocked)

    def _slot(
        self, kind: str, *lift: Node, ignore_nan: bool = False, extra: Any = None, varying: Mono | None = None
    ) -> Node:
        if kind == "sum":
            node = g.reduction("sum", self.axis, *lift)
            return self.value(node).node
        names: dict[str, str] = {}
        if len(lift) == 1:  # one slot, whatever axes of open contractions it is read along
            plain, undo = nf.plain_axes(lift[0])
            lift, names = (plain,), {v: k for k, v in undo.items()}
            varying = nf.renamed(varying, undo) if varying and undo else varying
        node = self.backend.slot(kind, *lift, ignore_nan=ignore_nan, extra=extra, varying=varying)
        node = g.rename_axes(node, names) if names else node
        if node.op == "reduce":
            self._leaves.add(node)
        return node

    def _user(self, stage: Node, separator: Separator) -> Node:
        if not any(self.scope.uses(a) for a in stage.args):
            return self._slot("monoid", *stage.args, extra=stage.attr.extra)
        return act_outside(stage, separator, self._slot)

    def _block_whole(self, stage: Node, trace: Trace, reason: CannotPull) -> StageValue:
        self._bad.add(stage)
        self._leaves.add(stage)
        blocked = Blocked(stage, reason.node, reason.why, _budget(reason.node, trace))
        return StageValue(stage, nf.generator(stage), trace, blocked)

    # --- what is in the way ---

    def _blocked(self, stage: Node, poly: Poly, trace: Trace) -> Blocked | None:
        for gen in poly.generators():
            culprit = self.first_bad(gen)
            if culprit is not None:
                if culprit in self._values and self._values[culprit].blocked is not None:
                    return self._values[culprit].blocked
                inside = g.walk(culprit.args[0], done=Stages(self.scope))
                mixed = [n for n in inside if self.scope.mixed(n)] or [culprit]
                node = _innermost(mixed)
                return Blocked(stage, node, self._why(node), _budget(culprit, trace))
        return None

    def _why(self, node: Node) -> str:
        """Why a node is not opened: for want of a sign, or because no law is known."""
        if node.op == "pow" and node.args[1].op != "const" and not self.signs.positive(node.args[0]):
            return f"it mixes elements and stage values, and {short(node.args[0])} may be negative or 0"
        return "it mixes elements and stage values"

    @property
    def is_sound(self) -> bool:
        """Whether nothing that was asked for is in the way of anything."""
        return not self._bad

    def first_bad(self, node: Node) -> Node | None:
        """The first formal sum of mixed terms, or blocked stage, that the node depends on."""
        if self._sound[0] != len(self._bad):  # what was sound may read a sum that has become bad
            self._sound = len(self._bad), set()
        count, sound = self._sound
        seen: set[Node] = set()
        stack = [node]
        while stack:
            n = stack.pop()
            if n in seen or n in sound:
                continue
            seen.add(n)
            if n in self._bad:
                return n
            if self.scope.is_stage(n):
                if n not in self._leaves:
                    value = self.value(n)
                    if value.blocked is not None:
                        return value.blocked.stage if value.blocked.stage in self._bad else n
                    stack.extend(value.poly.generators())
                continue
            stack.extend(reversed(n.args))
        if count == len(self._bad):
            sound |= seen
        return None


def _opened(mask: Node, stage: Node) -> bool:
    """Whether a condition is read along the axis of a contraction that is summed in the value of the stage."""
    return any("~" in a for a in mask.axes - stage.axes)


def _is_given(gen: Node) -> bool:
    """The count, or a unit: positive on every state, so that one can divide by it."""
    return gen.op == "state" and "positive" in gen.attr.domain


def _solved(value: Poly, stage: Node) -> tuple[Node, Poly] | None:
    """stage = c·slot + rest as slot = (stage - rest)/c, for a slot that stands in one term, times a monomial."""
    for m, c in value.ordered():
        for gen, p in m:
            alone = sum(gen in dict(other) for other in value.terms) == 1
            if (
                p == 1
                and gen.op == "state"
                and not _is_given(gen)
                and alone
                and all(_is_given(x) for x, _ in m if x is not gen)
            ):
                factor = nf.from_mono(tuple((x, -q) for x, q in m if x is not gen), 1 / c)
                rest = value - nf.from_mono(m, c)
                return gen, (nf.generator(stage) - rest) * factor
    return None


def _substituted(p: Poly, slot: Node, value: Poly) -> Poly | None:
    total = Poly()
    try:
        for m, c in p.terms.items():
            k = dict(m).get(slot, Fraction(0))
            if k.denominator != 1 or k < 0:
                return None
            rest = nf.from_mono(tuple(t for t in m if t[0] is not slot), c)
            total = total + rest * value ** int(k)
    except TooLarge:
        return None
    return total


def _fresh(m: Mono) -> bool:
    return any(_fresh_among(gen.axes) for gen, _ in m)


def _fresh_axes(m: Mono) -> frozenset[str]:
    return frozenset[str]().union(*(_fresh_among(gen.axes) for gen, _ in m if gen.axes))


@lru_cache(maxsize=1024)
def _fresh_among(axes: frozenset[str]) -> frozenset[str]:
    return frozenset(a for a in axes if "~" in a)


def _product(a: Poly, b: Poly, element: Mono, kept: frozenset[str]) -> Poly:
    """a·b of what multiplies an element: fresh axes that the factors lose count positions, but for those kept beside.

    Σ_t s[t]⁻¹·s[t] is the length of t, though no factor has the axis any more.
    """
    total = a * b
    if not any(_fresh(m) for m in (*a.terms, *b.terms, element)):
        return total
    for (m, c), (n, d) in itertools.product(a.terms.items(), b.terms.items()):
        term = nf.from_mono(m, c) * nf.from_mono(n, d)
        read = {axis for gen in term.generators() for axis in gen.axes}
        lost = (_fresh_axes(m) | _fresh_axes(n) | _fresh_axes(element)) - kept - read
        if lost:
            total = total + term * (nf.sizes(axis.split("~")[0] for axis in sorted(lost)) - nf.constant(1))
    return total


def _budget(node: Node, trace: Trace) -> str:
    """The budget that an expansion inside the node went beyond, or nothing."""
    return next((trace.oversized[n] for n in g.walk(node) if n in trace.oversized), "")


def _innermost(mixed: list[Node]) -> Node:
    return next((n for n in mixed if n.op not in ("add", "mul")), mixed[0])


def _plain(e: Mono) -> tuple[Mono, dict[str, str]]:
    """The monomial with fresh axis names undone, so that equal slots are found equal, and how to read it back."""
    _, undo = nf.plain_axes(g.mul(*(gen for gen, _ in e)) if len(e) > 1 else e[0][0])
    return (nf.renamed(e, undo) if undo else e), {v: k for k, v in undo.items()}
