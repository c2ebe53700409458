"""Where the anchors go (theory, sections 3.1 and 3.3): a policy, decided from the raw normal forms.

Correctness never depends on an anchor, so these rules only serve accuracy and range:

* an exponential e^u whose rate meets a stage value is centred where every exponent is provably <= 0: on the extremum
  the spec itself subtracts if an order fact proves u <= T under the mask of e^u, else on a running maximum of u there;
* an element expression that meets stage values additively is centred on a *location* of it, a stage value that moves
  with it (`redalg.engine.anchors.locations`): an extremum or a weighted mean Σgu/Σg; without one, on its own running
  mean;
* an element that is divided by a bound of its size, to a power of two or more, is scaled by that bound;
* invariants and factors (log l, 1/σ, slopes) are never anchors: they are deferred to finalize.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono, Poly
from redalg.algebra.signs import NEG, POS
from redalg.algebra.signs import ZERO as SIGN_ZERO
from redalg.engine.anchors import locations
from redalg.engine.anchors.choices import BoundedChoice, Choices, TargetChoice, WeightedChoice, conditions
from redalg.engine.anchors.locations import is_extremum
from redalg.engine.anchors.units import units
from redalg.engine.rules.cascade import Cascade, RawBackend
from redalg.engine.rules.separate import EXPONENT, Centring
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.graph.plan import COUNT, ScaleAnchor

NOTHING: frozenset[Node] = frozenset()
UNWEIGHED = frozenset({"exp", "relu", "maximum", "minimum"})  # no factors whose being 0 says which elements count


def choose(raw: Cascade, backend: RawBackend, stages: list[Node], outputs: list[Node]) -> Choices:
    """Anchors for the given (derivable) stages."""
    choices = Choices()
    meeting = [s for s in stages if raw.scope.uses(s.args[0])]
    for body in _bodies(raw, stages):
        _exponents(raw, body, choices)
        _scales(raw, body, choices)
    for s in stages:
        if s.attr.kind == "sum" and s not in meeting:  # e^x alone is held at the anchor that e^x - D has
            _exponents(raw, raw.value(s).body or Poly(), choices, known=True)
    _weights(raw, stages, choices)
    _growths(raw, stages, choices)
    locations.whole_bodies(raw, stages, choices)
    sums = [s for s in meeting if s.attr.kind == "sum"]
    for s in sums:
        locations.deviations(raw, backend, s, choices)
    for s in sums:
        locations.elements(raw, backend, s, raw.value(s), choices)
    choices.units = units(raw, stages, outputs)
    locations.means(raw, backend, outputs, choices)
    locations.settle(raw, stages, choices)
    locations.beside_exponentials(raw, stages, choices)
    _formal(backend, choices)
    return choices


def _bodies(raw: Cascade, stages: list[Node]) -> Iterator[Poly]:
    """Normal forms of the bodies that meet stage values: sums, and extrema that separate by a factor."""
    for s in stages:
        if not raw.scope.uses(s.args[0]):
            continue
        if s.attr.kind == "sum":
            body = raw.value(s).body
            assert body is not None
            yield body
        elif s.attr.kind in ("max", "min"):
            p = raw.separator.poly(s.args[0])
            if not raw.separator.mixed_generators(p):
                yield p


# --- exponentials --------------------------------------------------------------------------------------------------


def exponent(raw: Cascade, m: Mono) -> Poly:
    total = Poly()
    for gen, p in m:
        if gen.op == "exp":
            total = total + raw.separator.poly(gen.args[0], EXPONENT).scale(p)
    return total


def normalised(p: Poly) -> tuple[Poly, Fraction]:
    """(u, λ) with p = λ·u, λ > 0, the leading coefficient of u being ±1."""
    lead = abs(p.ordered()[0][1])
    return p.scale(1 / lead), lead


def _exponents(raw: Cascade, body: Poly, choices: Choices, known: bool = False) -> None:
    """Anchors for the exponentials of a body (`known`: for those that have one under some other mask)."""
    for m in (nf.plain(m) for m, _ in body.ordered()):
        varying, fixed = raw.separator.split(m)
        element, context = exponent(raw, varying), exponent(raw, fixed)
        if not element or any("complex" in leaf.attr.domain for gen, _ in varying for leaf in g.leaves(gen)):
            continue
        u, rate = normalised(element)
        node = nf.poly_node(u)
        mask = mask_of(varying, raw.backend.centring)
        if known and (choices.exponent(node, mask) or not choices.with_exponent(node)):
            continue
        if (node, mask) not in choices.exponents and not _by_terms(raw, u, mask, fixed, choices):
            _centre(raw, u, mask, context.scale(-1 / rate), choices, rate)


def _centre(
    raw: Cascade, u: Poly, mask: Node, subtracted: Poly, choices: Choices, rate: Fraction = Fraction(1)
) -> None:
    """An anchor for e^u under a mask: what it is a multiple of, or the whole."""
    node = nf.poly_node(u)
    located = Poly({k: c for k, c in subtracted.terms.items() if any(is_extremum(gen) for gen, _ in k)})
    bare = located.single() is not None and _is_bound(raw, node, mask, located) and is_extremum(nf.poly_node(located))
    paced = None if bare else _paced(raw, u, mask, located, rate)
    if paced is None:
        choice = _exponent_choice(raw, node, _target(raw, node, mask, located))
    else:
        choice, choices.paces[node, mask] = paced
    choices.exponents[node, mask] = choices.shared(choice)


def _target(raw: Cascade, node: Node, mask: Node, located: Poly) -> Node:
    """The extremum that the spec itself subtracts, if an order fact proves node <= T under the mask; else one of its
    own."""
    if _is_bound(raw, node, mask, located):
        return nf.poly_node(located)
    return _bound_of(raw, node) or _running(raw, node, mask)


def _is_bound(raw: Cascade, node: Node, mask: Node, located: Poly) -> bool:
    """Whether an order fact proves that the node is at most what is subtracted from it."""
    below = g.sub(nf.poly_node(located), node)
    return bool(located) and not raw.signs.of(below, None if mask is g.TRUE else mask) & NEG


def _paced(raw: Cascade, u: Poly, mask: Node, located: Poly, rate: Fraction) -> tuple[TargetChoice, Node] | None:
    """An exponent u = k·v that is centred on v's extremum, k·(v - max v), and the pace k >= 0 (<= 0 at a minimum).

    So the spec writes it: k·v and k·max v, each rounded by itself, would differ by as much as they are large, and so
    would two ways to write v. The anchor is that of v, and 0 is what the largest element gives. Multiples of
    contractions stay whole: tiles of scores are multiplied in one operation with the subtraction. What is c·v - max c·v
    in all, `rate` times the exponent, is no multiple.
    """
    multiple = _multiple(raw, located)
    if multiple is None:
        return None
    k, stage = multiple
    pace = nf.poly_node(k)
    sign, held = raw.signs.of(pace), conditions(mask)
    for b in (b for b in raw.signs.bounds if b.extremum is stage and (b.mask is None or conditions(b.mask) <= held)):
        element, wrong = (b.lesser, NEG) if b.greater is stage else (b.greater, POS)
        whole = pace is not g.ONE and not g.is_const(pace, 1 / rate) and any(n.op == "reduce" for n in g.walk(element))
        if not whole and not sign & wrong and raw.separator.poly(element, EXPONENT) * k == u:
            why = "the exponent is centred on an extremum the spec takes: no exponential exceeds 1"
            return TargetChoice(element, stage, why), pace
    return None


def _multiple(raw: Cascade, located: Poly) -> tuple[Poly, Node] | None:
    """(k, E) of a multiple k·E of one extremum, k being the same for all elements."""
    one = located.single()
    if one is None:
        return None
    stages = [gen for gen, p in one[1] if p == 1 and is_extremum(gen) and gen not in raw.scope.known]
    k = nf.from_mono(tuple(t for t in one[1] if t[0] not in stages), one[0])
    fixed = not raw.scope.uses(nf.poly_node(k)) and nf.poly_node(k).axes.isdisjoint(raw.axis)
    return (k, stages[0]) if len(stages) == 1 and fixed else None


def _weights(raw: Cascade, stages: list[Node], choices: Choices) -> None:
    """Running maxima of exponents whose exponentials have weights wherever they are summed: of elements that have one.

    What lies above them and counts for nothing, a score that a 0 masks, would make all others 0.
    """
    held: dict[tuple[Node, Node], set[frozenset[Node]]] = {}
    for m in _summands(raw, stages):
        varying, fixed = raw.separator.split(nf.plain(m))
        if element := exponent(raw, varying):
            mask, (u, rate) = mask_of(varying, raw.backend.centring), normalised(element)
            node, subtracted = nf.poly_node(u), nf.poly_node(exponent(raw, fixed).scale(-1 / rate))
            whole = choices.exponent(node, mask) is not None and subtracted is not _running(raw, node, mask)
            parts = [nf.from_mono(t, c) for t, c in u.ordered()] if choices.exponent(node, mask) is None else [u]
            for part in (nf.poly_node(normalised(p)[0]) for p in parts):
                weights = _weighed(raw, varying, part) if whole else NOTHING  # what is subtracted bounds it as it is
                held.setdefault(choices.key(part, mask), set()).add(weights)
    for (of, mask), found in held.items():
        choice = choices.exponents.get((of, mask))
        if choice is not None and NOTHING not in found and choice.target is _running(raw, of, mask):
            choices.exponents[of, mask] = choices.shared(_of_those_that_count(raw, choice, mask, found))


def _summands(raw: Cascade, stages: list[Node]) -> Iterator[Mono]:
    """The terms of everything that is summed, or an extremum of which is taken."""
    for s in stages:
        body = raw.value(s).body if s.attr.kind == "sum" else raw.separator.poly(s.args[0])
        for m, _ in (body or Poly()).ordered():
            yield m


def _weighed(raw: Cascade, varying: Mono, u: Node) -> frozenset[Node]:
    """The numbers beside an exponential that may be 0, of the elements that it is of and no others.

    Not contractions, which would be computed once more for the condition, and none whose zeros are an interval.
    """
    own = (gen for gen, p in varying if p > 0 and gen.op not in UNWEIGHED and gen.axes <= u.axes | raw.scope.axes)
    plain = (gen for gen in own if not gen.is_boolean and not any(n.op == "reduce" for n in g.walk(gen)))
    return frozenset(gen for gen in plain if raw.signs.of(gen) & SIGN_ZERO)


def _running(raw: Cascade, u: Node, mask: Node) -> Node:
    """The largest u under a mask, where the spec has no name for it."""
    return raw.value(g.reduction("max", raw.axis, _under(mask, u))).node


def _of_those_that_count(
    raw: Cascade, choice: TargetChoice, mask: Node, weights: set[frozenset[Node]]
) -> WeightedChoice:
    u = choice.generator
    least = frozenset(w for w in weights if not any(other < w for other in weights))
    seen = (g.logical("and", *(g.compare("ne", gen, g.ZERO) for gen in w)) for w in sorted(least, key=_digests))
    infinite = g.negate(g.compare("lt", u, g.INF))  # 0·e^oo is no 0
    counts = g.logical("or", infinite, *seen)
    why = "the exponent is centred on its maximum over elements of some weight: their exponentials are at most 1"
    target = raw.value(g.reduction("max", raw.axis, _under(g.logical("and", mask, counts), u))).node
    return WeightedChoice(u, target, why, counts=counts, weights=least)


def _digests(nodes: frozenset[Node]) -> list[Any]:
    return sorted(n.digest for n in nodes)


@dataclass(frozen=True)
class _Row:
    """One term of a sum's body: e^(rate·u)·rest under a mask, with its coefficient."""

    stage: Node
    varying: Mono
    u: Node  # 0: without an exponential
    mask: Node
    rate: Fraction
    rest: Mono
    coefficient: Poly


def _rows(raw: Cascade, stages: list[Node]) -> Iterator[_Row]:
    for s in (s for s in stages if s.attr.kind == "sum"):
        for e, h in raw.separator.rows(raw.value(s).body or Poly()).items():
            e = nf.plain(e)
            element, rest = exponent(raw, e), weight_of(e)
            u, rate = normalised(element) if element else (Poly(), Fraction(0))
            mask = mask_of(e, raw.backend.centring)
            yield _Row(s, e, nf.poly_node(u) if element else g.ZERO, mask, rate, rest, h)


def _growths(raw: Cascade, stages: list[Node], choices: Choices) -> None:
    """Exponentials that stand beside others of the same u, or beside 1, with stage values: e^u - mean e^u.

    At an anchor they are near 1, and what counts is how they differ from it: they are held as e^(u-A) - 1, with
    whatever both are multiplied by. What has another weight, and no partner, is held as it is: of little weight at A,
    Σ w·(e^(u-A) - 1) and Σ w would cancel.
    """
    rows = list(_rows(raw, stages))
    alike: dict[tuple[Node, Node, Mono], list[_Row]] = {}
    for row in rows:
        alike.setdefault((row.stage, row.mask, row.rest), []).append(row)
    met: dict[tuple[Node, Node], tuple[Fraction, set[Node]]] = {}
    for row in rows:
        if (row.u, row.mask) not in choices.exponents or not raw.scope.uses(row.stage.args[0]):
            continue
        found = _growth(raw, row, alike[row.stage, row.mask, row.rest])
        if found is not None:
            choices.growths[row.stage, row.u, row.mask, tensors_of(row.rest)], inside = found
            met[row.u, row.mask] = found[0], inside | met.get((row.u, row.mask), found)[1]
    for row in rows:  # their means in the same terms
        unit, inside = met.get((row.u, row.mask), (Fraction(0), set()))
        if unit and (row.rate / unit).denominator == 1:
            leaf = g.reduction("sum", raw.axis, nf.mono_node(row.varying))
            if leaf in inside or not raw.scope.uses(row.stage.args[0]):
                choices.growths.setdefault((row.stage, row.u, row.mask, tensors_of(row.rest)), unit)


def _growth(raw: Cascade, row: _Row, alike: Sequence[_Row]) -> tuple[Fraction, set[Node]] | None:
    """The least rate beside an exponential, if the others are multiples of it, and what multiplies them; None where
    their coefficients are no stage values independent of one another."""
    beside = [r for r in alike if r.u in (row.u, g.ZERO)]
    unit = min(r.rate for r in beside if r.rate)
    pairs = nf.rank_factor({((COUNT, r.rate + 1),): r.coefficient for r in beside})
    inside = {gen for r in beside for m in r.coefficient.terms for gen, p in m if p > 0}
    whole = all((r.rate / unit).denominator == 1 for r in beside)
    differ = any(map(raw.scope.uses, inside)) or _vanish(raw, beside)
    return (unit, inside) if len(pairs) > 1 and whole and differ else None


def _vanish(raw: Cascade, rows: Sequence[_Row]) -> bool:
    """Whether Σ h_r·e^(r·u) is 0 at one value D of u, e^(u-D) - 1: h_r = c_r·e^(-r·D) with Σ c_r = 0."""
    total, places = Poly(), set[Poly]()
    for row in rows:
        for m, c in row.coefficient.ordered():
            context = exponent(raw, m)
            if row.rate:
                places.add(context.scale(-1 / row.rate))
            elif context:
                return False
            total = total + nf.from_mono(weight_of(m), c)
    return not total and len(places) == 1 and any(places)


def weight_of(m: Mono) -> Mono:
    """What exponentials are multiplied by."""
    return tuple(t for t in m if t[0].op != "exp")


def tensors_of(m: Mono) -> frozenset[Node]:
    """The tensors of numbers in it, whatever is subtracted from them."""
    return frozenset(t for gen, _ in m if not gen.is_boolean for t in g.leaves(gen, "tensor"))


def mask_of(varying: Mono, centring: Centring) -> Node:
    """The condition under which a monomial is selected."""
    return g.logical("and", *(gen for gen, _ in varying if gen.is_boolean and not centring.is_centred(gen)))


def _under(mask: Node, node: Node) -> Node:
    return g.where(mask, node, g.NEG_INF)


def _exponent_choice(raw: Cascade, node: Node, target: Node) -> TargetChoice:
    where = "an extremum the spec takes" if _bound_of(raw, node) is target else "its running maximum"
    why = f"the exponent is centred on {where}: no exponential exceeds 1"
    return TargetChoice(node, target, why)


def _bound_of(raw: Cascade, node: Node) -> Node | None:
    """An extremum of the spec that the node never exceeds."""
    for b in raw.signs.bounds:
        if b.mask is None and b.extremum not in raw.scope.known:
            if b.lesser is node and b.greater is b.extremum:
                return b.extremum
            if g.neg(b.greater) is node and b.lesser is b.extremum:
                return g.neg(b.extremum)
    return None


def _by_terms(raw: Cascade, u: Poly, mask: Node, fixed: Mono, choices: Choices) -> bool:
    """A sum of exponents of which the spec subtracts its extremum from each is centred so: (x - max x) + (y - max y).

    Any other one has a maximum of its own: that of x + y may be far below those of x and y together.
    """
    if len(u) < 2:
        return False
    parts = [nf.poly_node(normalised(nf.from_mono(m, c))[0]) for m, c in u.ordered()]
    known = [choices.exponents.get((p, mask)) for p in parts]
    targets = [_bound_of(raw, p) if c is None else c.target for p, c in zip(parts, known, strict=True)]
    subtracted = -exponent(raw, fixed)
    for part, target in zip(parts, targets, strict=True):
        if target is None or not (_is_among(raw, target, subtracted) or _is_divided_out(raw, part, fixed)):
            return False
    for part, target in zip(parts, targets, strict=True):
        assert target is not None
        choices.exponents.setdefault((part, mask), choices.shared(_exponent_choice(raw, part, target)))
    return True


def _is_among(raw: Cascade, target: Node, subtracted: Poly) -> bool:
    """Whether multiples of a value, > 0, are subtracted."""
    one = raw.separator.poly(target).single()
    return one is not None and subtracted.terms.get(one[1], Fraction(0)) * one[0] > 0


def _is_divided_out(raw: Cascade, u: Node, fixed: Mono) -> bool:
    """Whether a factor divides by sums of e^u: exponents of a softmax are seen from its logarithm."""
    assert isinstance(raw.backend, RawBackend)
    sums = (raw.backend.mono_of(gen) or nf.UNIT for gen, p in fixed if p < 0)
    found = (exponent(raw, m) for m in sums)
    return any(p and nf.poly_node(normalised(p)[0]) is u for p in found)


# --- scales, ties, casts -------------------------------------------------------------------------------------------


def _scales(raw: Cascade, body: Poly, choices: Choices) -> None:
    for m, _ in body.ordered():
        varying, fixed = raw.separator.split(m)
        for gen, p in varying:
            if p < 2 or gen.is_boolean or gen.op == "exp" or gen in choices.scales:
                continue
            for bound, q in fixed:
                if q <= -p and is_extremum(bound) and bound.attr.kind == "max" and _bounds_size(raw, bound, gen):
                    why = f"a power of {int(p) if p.denominator == 1 else p} could overflow: it is scaled by its bound"
                    choices.scales[gen] = BoundedChoice(gen, _nonzero(bound), why, ScaleAnchor, bound=bound)


def _nonzero(scale: Node) -> Node:
    """A scale that a piece of zeros has not got yet is 1, so that its elements stay 0 (and not 0/0)."""
    return g.where(g.compare("eq", scale, g.ZERO), g.ONE, scale)


def _bounds_size(raw: Cascade, bound: Node, gen: Node) -> bool:
    body = bound.args[0]
    size = gen if gen.op == "abs" or raw.signs.nonnegative(gen) else g.fn("abs", gen)
    return body is size or body is g.fn("abs", gen)


def _formal(backend: RawBackend, choices: Choices) -> None:
    for element, stage in backend.centring.ties.values():
        known = next((c for c in choices.with_exponent(element) if c.target is stage), None)
        if known is None:
            why = "ties with the extremum are counted where it stands"
            known = TargetChoice(element, stage, why)
        choices.ties[element, stage] = known
    for scaled, context in backend.centring.casts.values():
        big, factor = nf.poly_node(scaled), nf.poly_node(context)
        why = "rounding is done at the running scale and commutes with it by assumption"
        scale = g.power(factor, -1)
        choices.casts[big, factor] = BoundedChoice(big, _nonzero(scale), why, ScaleAnchor, bound=scale)
