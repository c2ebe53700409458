"""Locations: which stage value an element expression is a deviation from (theory, sections 3.1 and 3.6).

In ``u(x) - D`` the elements ``u`` (x itself, a power of it, any function, a product, a contraction) are centred as one
value, on a stage value in D that moves with them: a weighted mean Σgu/Σg or an extremum of u; else on their own running
mean. What stands alone (Σgx, or x beside a(D)·x) takes the anchor that fits its weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono, Poly
from redalg.algebra.signs import linear
from redalg.algebra.starts import asked
from redalg.engine.anchors.choices import Choice, Choices, MeanChoice, TargetChoice, conditions, selected_by
from redalg.engine.rules.affine import Affine, affine, without_constant
from redalg.engine.rules.cascade import Cascade, RawBackend, StageValue
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.graph.plan import COUNT, ExtremumAnchor

OWN_MEAN = "no stage value moves with it: it is centred on its own running mean"


# --- deviations ----------------------------------------------------------------------------------------------------


def deviations(raw: Cascade, backend: RawBackend, stage: Node, choices: Choices) -> None:
    """The anchors of what the body of a stage holds against stage values."""
    for node in sums_inside(raw, stage.args[0]):
        plain, _ = nf.plain_axes(node)
        sum_of = affine(raw.scope, plain)
        if sum_of is not None and sum_of.single is None:
            _terms(raw, backend, stage, sum_of, choices)
        found = None if sum_of is None or sum_of.single is None else _of(raw, backend, stage, sum_of, choices)
        if found is not None and not fits(raw, stage, plain, found):
            found = _own_mean(raw, stage, found.generator)
        if found is not None:
            choices.deviations[stage, plain] = choice = choices.centre(found)
            if fits(raw, stage, choice.generator, choice):
                choices.inside.setdefault((stage, choice.generator), choice)


def sums_inside(raw: Cascade, body: Node) -> Iterator[Node]:
    """The sums of elements and stage values in a body, but for those in exponents and in other stages."""
    stack, seen = [body], set()
    while stack:
        n = stack.pop()
        if n in seen or not raw.scope.mixed(n):
            continue
        seen.add(n)
        if n.op == "add":
            yield n
        if n.op != "exp":
            stack.extend(reversed(n.args))


def _terms(raw: Cascade, backend: RawBackend, stage: Node, sum_of: Affine, choices: Choices) -> None:
    """The anchors of several values in one sum, each with a slope of its own: s·u - t·v - (s·mean u - t·mean v)."""
    fixed = g.add(*sum_of.fixed)
    for value, slope in sum_of.terms:
        x, monos = _centred(raw, value)
        if len(monos) != 1 or x is nf.mono_node(monos[0][:1]) and _is_atom(x, Fraction(1)) or not can_centre(x):
            continue  # atoms are looked for wherever they stand (`elements`)
        found = (c for c in _located(raw, backend, stage, fixed, slope, x, monos, choices) if fits(raw, stage, x, c))
        choice = next(found, None)
        if choice is not None:
            choices.inside.setdefault((stage, x), choices.centre(choice))


def _centred(raw: Cascade, value: Node) -> tuple[Node, list[Mono]]:
    """What is centred of a value of elements, without its coefficient, and its terms."""
    monos = [raw.separator.split(m)[0] for m, _ in raw.separator.poly(value).ordered()]
    return nf.mono_node(monos[0]) if len(monos) == 1 else without_constant(value)[1], monos


def _of(raw: Cascade, backend: RawBackend, stage: Node, sum_of: Affine, choices: Choices) -> Choice | None:
    fixed, ((value, slope),) = g.add(*sum_of.fixed), sum_of.terms
    x, monos = _centred(raw, value)
    if not monos or not can_centre(x):
        return None
    located = _located(raw, backend, stage, fixed, slope, x, monos, choices)
    moving = _moving(raw, stage, x, choices)
    subtracted = next((c for c in located if c in moving), None)
    if subtracted is not None:
        return subtracted
    own = _own_mean(raw, stage, x)
    if moving and (_grows_with(fixed, x) or _is_near_it(own)):
        return moving[0]  # it moves with its exponential: one anchor serves both
    return located[0] if located else own


def _located(
    raw: Cascade,
    backend: RawBackend,
    stage: Node,
    fixed: Node,
    slope: Node,
    x: Node,
    monos: list[Mono],
    choices: Choices,
) -> list[Choice]:
    """The locations of x in d/c of a sum c·x + d, and in d as it is written."""
    held = [fixed] if slope is g.ONE else [g.div(fixed, slope), fixed]
    found = (c for h in map(raw.separator.poly, held) for c in _locations(backend, h, x, monos))
    return [c for c in map(choices.shared, found) if _selected(raw, stage, x, c)]


def _moving(raw: Cascade, stage: Node, x: Node, choices: Choices) -> list[Choice]:
    """The anchors of e^x that a stage may read wherever it reads x, those under more conditions first."""
    found = [c for c in choices.with_exponent(x) if _selected(raw, stage, x, c)]
    return sorted(found, key=lambda c: -len(selected_by(c)))


def _grows_with(fixed: Node, x: Node) -> bool:
    """Whether what is subtracted is as large as the largest x, whatever hides that from the sum."""
    logs = (n for n in g.walk(fixed) if n.op == "log")
    return any(n.op == "exp" and x in g.walk(n) for n in g.walk(*logs))


def _is_near_it(own: Choice) -> bool:
    """Whether the mean of an element lies near the extremum under its exponential: that of a softmax does. Another one
    lies anywhere, and so may an element that a condition or a weight of 0 hides: seen from there, all others would be
    one number."""
    weights = [gen for gen, _ in own.weights] if isinstance(own, MeanChoice) else []
    exponentials = [{*g.walk(gen)} for gen in weights if gen.op == "exp"]
    return any(own.generator in nodes and not any(n.op == "where" for n in nodes) for nodes in exponentials)


def _own_mean(raw: Cascade, stage: Node, x: Node) -> Choice:
    """The mean of an element, over those that something beside it does not make 0: others may be of any size.

    Under the exponentials that stand beside it everywhere, which make 0 what lies far below the largest.
    """
    rests = _weights_of(raw, stage, x)
    under = {t for t in frozenset.intersection(*rests) if _is_weight(raw, t[0])} if rests else set()
    rows = [frozenset(c for gen, _ in row for c in asked(gen) if _is_own(raw, c)) for row in rests]
    common = frozenset.intersection(*rows) if rows else frozenset()
    wanted = {*common, g.logical("or", *(g.logical("and", *(row - common)) for row in rows))} - {g.TRUE, g.FALSE}
    choice = MeanChoice(x, nf.mono(dict(under) | dict.fromkeys(wanted, Fraction(1))) or nf.UNIT, OWN_MEAN)
    return choice if fits(raw, stage, x, choice) else replace(choice, weights=nf.UNIT)


def _is_weight(raw: Cascade, factor: Node) -> bool:
    return factor.op == "exp" and _is_own(raw, factor) and not nf.may_be_complex(factor)


def _is_own(raw: Cascade, node: Node) -> bool:
    """Whether a node is of elements alone."""
    return raw.scope.varies(node) and not raw.scope.uses(node)


def can_centre(x: Node) -> bool:
    """Whether a value has a size that an anchor can take away: exponentials have their own, conditions are 0 or 1."""
    if x.op == "exp" or x.is_boolean or nf.may_be_complex(x):
        return False
    return not (x.op == "where" and all(a.op == "const" for a in x.args[1:]))


def _locations(backend: RawBackend, fixed: Poly, x: Node, monos: list[Mono]) -> Iterator[Choice]:
    """Stage values in a context that move as x does; `monos` are the terms of x."""
    for m, _ in fixed.ordered():
        for weights in ratios(backend, m, monos):
            mean = "weighted mean" if weights else "mean"
            yield MeanChoice(x, weights, f"centred on its {mean}, which the stage subtracts")
        for gen, p in m:
            if p > 0 and is_extremum(gen):
                slope = _slope(gen.args[0], x)
                if slope:
                    why = "centred on the extremum that the stage subtracts"
                    yield TargetChoice(x, gen if slope > 0 else g.neg(gen), why)


def is_extremum(node: Node) -> bool:
    return node.op == "reduce" and node.attr.kind in ("max", "min")


def _slope(body: Node, x: Node) -> int:
    """±1 where the body is ±x + (something free of x), also under a mask."""
    if body.op == "where" and body.args[2].op == "special":
        body = body.args[1]
    terms = linear(body)
    c = terms.get(x)
    return int(c) if c in (1, -1) and len(terms) == 1 else 0


def ratios(backend: RawBackend, m: Mono, monos: list[Mono]) -> Iterator[Mono]:
    """Weights g for which Σgx/Σg (or Σx/n) divides the monomial, x being any of the given monomials."""
    powers = dict(m)
    for gen, p in m:
        top = backend.mono_of(gen) if p > 0 else None
        for x in monos if top is not None else ():
            weights = quotient(top or nf.UNIT, x)
            if weights is not None:
                below = COUNT if not weights else g.reduction("sum", backend.axis, nf.mono_node(weights))
                if powers.get(below, 0) < 0:
                    yield weights


def quotient(top: Mono, x: Mono) -> Mono | None:
    """top / x without the generators of x, or None where x does not divide it exactly."""
    powers = dict(top)
    if any(powers.get(gen) != p for gen, p in x):
        return None
    mine = dict(x)
    return tuple(t for t in top if t[0] not in mine)


# --- elements that stand alone -------------------------------------------------------------------------------------


def elements(raw: Cascade, backend: RawBackend, stage: Node, value: StageValue, choices: Choices) -> None:
    """The anchors of elements that meet stage values otherwise: x beside a(D)·x, or powers written out."""
    assert value.body is not None
    rows: dict[Mono, Poly] = {}
    for e, h in raw.separator.rows(value.body).items():
        rows[nf.plain(e)] = rows.get(nf.plain(e), Poly()) + h
    atoms = {gen: None for e in sorted(rows, key=nf.mono_key) for gen, p in e if _is_atom(gen, p)}
    for x in atoms:
        if (stage, x) not in choices.inside:
            found = _alone(raw, backend, stage, x, rows, choices)
            if found is not None:
                choices.inside[stage, x] = choices.centre(found)


def _alone(
    raw: Cascade, backend: RawBackend, stage: Node, x: Node, rows: dict[Mono, Poly], choices: Choices
) -> Choice | None:
    """The anchor of an element that stands alone in the rows of a stage."""
    moving = _moving(raw, stage, x, choices)
    follows = any(_grows_with(nf.poly_node(h), x) for h in rows.values())
    if moving and (follows or _is_near_it(_own_mean(raw, stage, x))):
        fitting = next((c for c in moving if fits(raw, stage, x, c)), None)
        return fitting if fitting is not None and _meets_additively(raw, rows, x) else None
    contexts = [h for _, h in sorted(rows.items(), key=lambda r: nf.mono_key(r[0]))]
    located = (_plain_choice(c) for h in contexts for c in _locations(backend, h, x, [((x, Fraction(1)),)]))
    found = next((c for c in located if fits(raw, stage, x, c)), None)
    return _own_mean(raw, stage, x) if found is None and _meets_additively(raw, rows, x) else found


def _is_atom(gen: Node, p: Fraction) -> bool:
    return can_centre(gen) and gen.op not in ("cast", "sign", "sin", "cos") and p.denominator == 1 and 0 < p <= 12


def _plain_choice(choice: Choice) -> Choice:
    """The choice with fresh axis names undone."""
    if isinstance(choice, MeanChoice):
        return replace(choice, weights=nf.plain(choice.weights))
    return replace(choice, target=nf.plain_axes(choice.target)[0])


def _meets_additively(raw: Cascade, rows: dict[Mono, Poly], x: Node) -> bool:
    """Some e·x^k and e·x^i, i < k, stand with coefficients of which one depends on stage values independently."""
    for e, h in rows.items():
        k = dict(e).get(x)
        if not k:
            continue
        rest = tuple(t for t in e if t[0] is not x)
        for lower in range(int(k)):
            other = rows.get(nf.mono({**dict(rest), x: Fraction(lower)}) or nf.UNIT)
            if other and len(nf.rank_factor({nf.UNIT: h, ((x, Fraction(1)),): other})) == 2:
                return any(raw.scope.uses(gen) for gen in (*h.generators(), *other.generators()))
    return False


def whole_bodies(raw: Cascade, stages: list[Node], choices: Choices) -> None:
    """Sums of elements, like x - v, that are averaged: centred as one value, not term by term."""
    for s in stages:
        body = s.args[0]
        if (
            s.attr.kind != "sum"
            or body.op != "add"
            or raw.scope.uses(body)
            or not all(map(raw.scope.varies, body.args))
        ):
            continue
        opaque = any(n.op in ("exp", "where", "cast") or n.is_boolean for n in g.walk(body))
        if not opaque and can_centre(body) and body not in choices.elements:
            why = "a combination of elements is centred on its own mean, not term by term"
            choices.centre(MeanChoice(body, nf.UNIT, why))


def means(raw: Cascade, backend: RawBackend, outputs: list[Node], choices: Choices) -> None:
    """Means that are wanted themselves: anchor plus residual instead of a quotient of sums."""
    why = "a mean is kept as anchor plus residual, never as a quotient of sums"
    for node in g.walk(*outputs):
        if raw.scope.varies(node) or not raw.scope.uses(node) or node.op not in ("mul", "pow", "add"):
            continue
        for m, x in _summed_elements(raw, backend, node):
            unit = choices.units.of(x, choices.units.axes) if x.op == "pow" else None
            if unit is not None and unit[0].needed and isinstance(unit[1], Node):
                continue  # of |x|^p a root is wanted: it is held in units of the elements, like a broken power
            for weights in ratios(backend, m, [((x, Fraction(1)),)]):
                if all(w.op != "exp" for w, _ in weights):
                    choices.centre(MeanChoice(x, weights, why))


def _summed_elements(raw: Cascade, backend: RawBackend, node: Node) -> Iterator[tuple[Mono, Node]]:
    """The terms of a value, with every element whose sum stands in them."""
    for m, _ in raw.separator.poly(node).ordered():
        for gen, _p in m:
            for x, k in backend.monos.get(gen, ()):
                if k == 1 and _is_atom(x, k) and not _is_integer(x) and _fits(gen, x, raw):
                    yield m, x


def _is_integer(x: Node) -> bool:
    return x.op == "tensor" and bool(x.attr.domain & {"integer", "bool"})


def _fits(total: Node, x: Node, raw: Cascade) -> bool:
    """Centring must not blow the element up to more axes than it has (a weighted sum over j stays a contraction)."""
    return total.axes <= x.axes - raw.scope.axes


# --- which anchor, where there are several --------------------------------------------------------------------------


def settle(raw: Cascade, stages: list[Node], choices: Choices) -> None:
    """The anchor of every element in every stage that has not chosen one; what serves as a weight stays as it is."""
    anchors = [c for found in choices.elements.values() for c in found]
    serving = {gen for c in anchors if isinstance(c, MeanChoice) for gen, _ in c.weights}
    by_leaf: dict[Node | None, list[Node]] = {}
    for x in choices.elements:
        by_leaf.setdefault(next(iter(g.leaves(x)), None), []).append(x)
    for s in stages:
        met = dict.fromkeys(x for leaf in (None, *g.leaves(s)) for x in by_leaf.get(leaf, ()))
        for x in met:
            _settle(raw, s, x, x in serving, choices)


def _settle(raw: Cascade, stage: Node, x: Node, serves: bool, choices: Choices) -> None:
    """The anchor of an element in a stage."""
    known = [c for c in choices.elements[x] if not _from_afar(raw, stage, x, c)]
    if len(known) > 1 and stage.attr.kind == "sum":
        _about_its_own(raw, stage, x, known, choices)
    if serves:
        choices.inside.pop((stage, x), None)
    elif (stage, x) not in choices.inside:
        best = _best_fitting(raw, stage, x, known)
        if best is not None:
            choices.inside[stage, x] = best


def beside_exponentials(raw: Cascade, stages: list[Node], choices: Choices) -> None:
    """Where an element stays whole, though its stage centres it: beside exponentials that its mean knows nothing of.

    Of w·e^u - w the second w is centred on the mean of w. Beside e^u elements that have little weight there may be
    all of what is summed, and A·Σ e^u + Σ (w - A)·e^u two large numbers. Not where A is subtracted there.
    """
    for (stage, x), choice in choices.inside.items():
        if (
            stage.attr.kind != "sum"
            or not isinstance(choice, MeanChoice)
            or any(key[0] is stage and c is choice for key, c in choices.deviations.items())
        ):
            continue
        known = {t for t in choice.weights if t[0].op == "exp"}
        met = {e for e, k in _exponential_rows(raw, stage, x) if k and e and not known & {*e}}
        choices.uncentred |= {(stage, x, e) for e in met}


def _exponential_rows(raw: Cascade, stage: Node, x: Node) -> Iterator[tuple[Mono, Fraction]]:
    """The exponentials in every row of a sum's body, with the power of x beside them."""
    for e in map(nf.plain, raw.separator.rows(raw.value(stage).body or Poly())):
        yield exponentials_of(e), dict(e).get(x, Fraction(0))


def exponentials_of(m: Mono) -> Mono:
    return tuple(t for t in m if t[0].op == "exp")


def _from_afar(raw: Cascade, stage: Node, x: Node, choice: Choice) -> bool:
    """Whether a sum of elements alone would be seen from a place that its own weights say nothing of: in units of that
    it may be nothing. A mean under these weights is near, and an extremum under its exponential."""
    if stage.attr.kind != "sum" or raw.scope.uses(stage.args[0]):
        return False
    rests = _weights_of(raw, stage, x)
    if isinstance(choice, MeanChoice):
        return rests != {frozenset(choice.weights)}
    return choice.anchor is ExtremumAnchor and not all(any(gen.op == "exp" for gen, _ in rest) for rest in rests)


def _best_fitting(raw: Cascade, stage: Node, x: Node, known: list[Choice]) -> Choice | None:
    """Of the anchors that a stage can read, the first of those whose weight agrees best with the stage's."""
    fitting = [c for c in known if fits(raw, stage, x, c)]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return max(fitting, key=lambda c: _agreement(raw, stage, c))


def _about_its_own(raw: Cascade, stage: Node, x: Node, known: list[Choice], choices: Choices) -> None:
    """A sum under one weight expands about the mean under that weight, also where it subtracts another location."""
    rests = _weights_of(raw, stage, x)
    own = next((c for c in known if isinstance(c, MeanChoice) and {frozenset(c.weights)} == rests), None)
    if own is None:
        return
    if fits(raw, stage, x, own):
        choices.inside[stage, x] = own
    for key, choice in choices.deviations.items():
        if key[0] is stage and choice.generator is x and fits(raw, stage, key[1], own):
            choices.deviations[key] = own


def _weights_of(raw: Cascade, stage: Node, x: Node) -> set[frozenset[tuple[Node, Fraction]]]:
    """What stands beside the generators of x in the rows of a sum's body."""
    body = raw.value(stage).body
    mine = set(raw.separator.poly(x).generators())
    rows = [] if body is None else [nf.plain(e) for e in raw.separator.rows(body)]
    return {frozenset(t for t in e if t[0] not in mine) for e in rows if mine & {gen for gen, _ in e}}


def fits(raw: Cascade, stage: Node, x: Node, choice: Choice) -> bool:
    """Whether an expression in the body of a stage is read along all axes of the anchor.

    A contraction that is left open reads an anchor along its own axis only where the expression has that axis.
    """
    return choice.axes(raw.axis) <= stage.axes | x.axes and _selected(raw, stage, x, choice)


def _selected(raw: Cascade, stage: Node, x: Node, choice: Choice) -> bool:
    """Whether x stands under the mask of the anchor wherever a stage reads it: elsewhere the anchor may be infinite."""
    wanted = selected_by(choice)
    if not wanted:
        return True
    body = raw.value(stage).body
    if body is None:
        return stage.args[0].op == "where" and wanted <= conditions(stage.args[0].args[0])
    mine = set(raw.separator.poly(x).generators())
    rows = [nf.plain(e) for e in raw.separator.rows(body)]
    return all(wanted <= {c for gen, _ in e for c in conditions(gen)} for e in rows if mine & {gen for gen, _ in e})


def _agreement(raw: Cascade, stage: Node, choice: Choice) -> int:
    """How well the weight of a mean fits what a stage multiplies its generator by: exactly, partly, not at all."""
    if stage.attr.kind != "sum" or not isinstance(choice, MeanChoice):
        return 0
    weights, x = set(choice.weights), _powers(raw, choice.generator)
    body = raw.value(stage).body
    assert body is not None
    rests = [quotient(nf.plain(e), x) for e in raw.separator.rows(body)]
    found = [set(rest) for rest in rests if rest is not None]
    if any(rest == weights for rest in found):
        return 1000
    return max((len(weights) for rest in found if weights <= rest), default=-len(weights))


def _powers(raw: Cascade, x: Node) -> Mono:
    one = raw.separator.poly(x).single()
    return one[1] if one is not None else ((x, Fraction(1)),)


__all__ = [
    "beside_exponentials",
    "deviations",
    "elements",
    "exponentials_of",
    "is_extremum",
    "means",
    "settle",
    "whole_bodies",
]
