"""Where the anchors go (theory, sections 3.1 and 3.3): a policy, decided from the raw normal forms.

Correctness never depends on an anchor, so these rules only serve accuracy and range:

* an exponential e^u whose rate meets a stage value is centred where every exponent is provably <= 0: on the extremum
  the spec itself subtracts if an order fact proves u <= T, else on a running maximum of u;
* an element x that meets stage values additively is centred on a *location* of x, a stage value that moves with x
  (∂T/∂x = 1): an extremum of x or a weighted mean Σgx/Σg; without one, on its own running mean;
* an element that is divided by a bound of its size, to a power of two or more, is scaled by that bound;
* invariants and factors (log l, 1/σ, slopes) are never anchors: they are deferred to finalize.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from redalg import graph as g
from redalg import normal as nf
from redalg.cascade import Cascade, RawBackend, StageValue
from redalg.graph import Node
from redalg.normal import Mono, Poly
from redalg.plan import COUNT
from redalg.separate import EXPONENT
from redalg.signs import NEG, linear


@dataclass(frozen=True)
class Choice:
    """One anchor to be: what is centred, how, on what, and why."""

    generator: Node
    kind: str  # "add" or "mul"
    policy: str  # "extremum" or "mean"
    target: Node | None  # extremum: over stages
    weights: Mono | None  # mean: the raw monomial g of Σgx/Σg
    why: str
    bound: Node | None = None  # scales: the stage value that bounds the generator


@dataclass
class Choices:
    exponents: dict[Node, Choice] = field(default_factory=dict)  # u -> anchor of e^u
    elements: dict[Node, Choice] = field(default_factory=dict)  # x -> anchor of x
    scales: dict[Node, Choice] = field(default_factory=dict)  # generator -> its scale
    ties: dict[tuple[Node, Node], Choice] = field(default_factory=dict)  # (element, extremum stage)
    casts: dict[tuple[Node, Node], Choice] = field(default_factory=dict)  # (G, H)


def choose(raw: Cascade, backend: RawBackend, stages: list[Node], outputs: list[Node]) -> Choices:
    """Anchors for the given (derivable) stages."""
    choices = Choices()
    sums = [(s, raw.value(s)) for s in stages if s.attr.kind == "sum" and raw.scope.uses(s.args[0])]
    for body in _bodies(raw, stages):
        _exponents(raw, body, choices)
        _scales(raw, body, choices)
    _compounds(raw, stages, outputs, choices)
    for _, value in sums:
        _elements(raw, backend, value, choices)
    _means(raw, backend, outputs, choices)
    for choice in list(choices.elements.values()):
        for gen, _ in choice.weights or ():
            choices.elements.pop(gen, None)  # what serves as a weight stays as it is
    _formal(raw, backend, choices)
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


def _exponents(raw: Cascade, body: Poly, choices: Choices) -> None:
    for m, _ in body.ordered():
        varying, fixed = raw.separator.split(m)
        element, context = exponent(raw, varying), exponent(raw, fixed)
        if not element or any("complex" in leaf.attr.domain for gen, _ in varying for leaf in g.leaves(gen)):
            continue
        u, rate = normalised(element)
        node = nf.poly_node(u)
        if node in choices.exponents or _by_terms(raw, u, choices):
            continue
        mask = g.logical("and", *(gen for gen, _ in varying if gen.is_boolean))
        located = Poly({k: c for k, c in context.terms.items() if any(_is_extremum(gen) for gen, _ in k)})
        target = nf.poly_node(located.scale(-1 / rate))
        if not located or raw.signs.of(g.sub(target, node), None if mask is g.TRUE else mask) & NEG:
            target = _bound_of(raw, node) or raw.value(g.reduction("max", raw.axis, node)).node
        choices.exponents[node] = _exponent_choice(raw, node, target)


def _exponent_choice(raw: Cascade, node: Node, target: Node) -> Choice:
    where = "an extremum the spec takes" if _bound_of(raw, node) is target else "its running maximum"
    why = f"the exponent is centred on {where}: no exponential exceeds 1"
    return Choice(node, "add", "extremum", target, None, why)


def _bound_of(raw: Cascade, node: Node) -> Node | None:
    """An extremum of the spec that the node never exceeds."""
    for b in raw.signs.bounds:
        if b.mask is None and b.extremum not in raw.scope.known:
            if b.lesser is node and b.greater is b.extremum:
                return b.extremum
            if g.neg(b.greater) is node and b.lesser is b.extremum:
                return g.neg(b.extremum)
    return None


def _by_terms(raw: Cascade, u: Poly, choices: Choices) -> bool:
    """A sum of exponents of which each has its own extremum is centred term by term: (x - A) + (y - B)."""
    if len(u) < 2:
        return False
    parts = [nf.poly_node(normalised(nf.from_mono(m, c))[0]) for m, c in u.ordered()]
    targets = [choices.exponents[p].target if p in choices.exponents else _bound_of(raw, p) for p in parts]
    if any(t is None for t in targets):
        return False
    for part, target in zip(parts, targets, strict=True):
        assert target is not None
        choices.exponents.setdefault(part, _exponent_choice(raw, part, target))
    return True


def _is_extremum(node: Node) -> bool:
    return node.op == "reduce" and node.attr.kind in ("max", "min")


# --- elements ------------------------------------------------------------------------------------------------------


def _compounds(raw: Cascade, stages: list[Node], outputs: list[Node], choices: Choices) -> None:
    """Sums of elements, like x - v, that are averaged or meet a stage value as a whole: one generator each."""
    why = "a combination of elements is centred on its own mean, not term by term"
    scope = raw.scope
    wholes: dict[Node, None] = {}
    for s in stages:
        if s.attr.kind == "sum" and not scope.uses(s.args[0]) and s.args[0].op == "add":
            wholes.setdefault(s.args[0])
        for n in _additive(s.args[0]) if scope.uses(s.args[0]) else ():
            wholes.setdefault(g.add(*(a for a in n.args if scope.varies(a) and not scope.uses(a))))
    for whole in wholes:
        varying = [a for a in whole.args if scope.varies(a)] if whole.op in ("add", "mul") else []
        opaque = any(n.op in ("exp", "where", "cast") or n.is_boolean for n in g.walk(whole))
        if len(varying) > 1 and len(varying) == len(whole.args) and not opaque and _can_centre(whole, Fraction(1)):
            choices.elements[whole] = Choice(whole, "add", "mean", None, nf.UNIT, why)


def _additive(body: Node) -> Iterator[Node]:
    """The sums of a body that are multiplied, powered or selected, not those inside other functions."""
    stack, seen = [body], set()
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if n.op == "add":
            yield n
        if n.op in ("add", "mul", "pow", "where"):
            stack.extend(n.args)


def _elements(raw: Cascade, backend: RawBackend, value: StageValue, choices: Choices) -> None:
    assert value.body is not None
    rows = raw.separator.rows(value.body)
    atoms = {gen: None for e in sorted(rows, key=nf.mono_key) for gen, p in e if _can_centre(gen, p)}
    for x in atoms:
        plain, undo = nf.plain_axes(x)
        if plain in choices.elements:
            continue
        if x in choices.exponents:  # it moves with its exponential: one anchor serves both
            if _meets_additively(raw, rows, x):
                choices.elements[x] = choices.exponents[x]
            continue
        for _, h in sorted(rows.items(), key=lambda r: nf.mono_key(r[0])):
            found = next(_locations(raw, backend, h, x), None)
            if found is not None:
                choices.elements[plain] = _renamed(found, undo)
                break
        else:
            if _meets_additively(raw, rows, x):
                why = "no stage value moves with this element: it is centred on its own running mean"
                choices.elements[plain] = Choice(plain, "add", "mean", None, nf.UNIT, why)


def _renamed(choice: Choice, names: dict[str, str]) -> Choice:
    """The choice with fresh axis names undone."""
    if not names:
        return choice
    target = choice.target and g.rename_axes(choice.target, names)
    weights = choice.weights and nf.renamed(choice.weights, names)
    return replace(choice, generator=g.rename_axes(choice.generator, names), target=target, weights=weights)


def _can_centre(gen: Node, p: Fraction) -> bool:
    if gen.is_boolean or gen.op in ("exp", "cast", "sign", "sin", "cos") or p.denominator != 1 or not 0 < p <= 12:
        return False
    return not any("complex" in leaf.attr.domain for leaf in g.leaves(gen))


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


def _locations(raw: Cascade, backend: RawBackend, h: Poly, x: Node) -> Iterator[Choice]:
    for m, _ in h.ordered():
        for weights in _ratios(backend, m, x):
            why = (
                "centred on its mean, which the stage subtracts"
                if not weights
                else ("centred on its weighted mean, which the stage subtracts")
            )
            yield Choice(x, "add", "mean", None, weights, why)
        for gen, p in m:
            if p > 0 and _is_extremum(gen):
                slope = _slope(gen.args[0], x)
                if slope:
                    why = "centred on the extremum that the stage subtracts"
                    yield Choice(x, "add", "extremum", gen if slope > 0 else g.neg(gen), None, why)


def _slope(body: Node, x: Node) -> int:
    """±1 where the body is ±x + (something free of x), also under a mask."""
    if body.op == "where" and body.args[2].op == "special":
        body = body.args[1]
    terms = linear(body)
    c = terms.get(x)
    return int(c) if c in (1, -1) and len(terms) == 1 else 0


def _ratios(backend: RawBackend, m: Mono, x: Node) -> Iterator[Mono]:
    """Weights g for which Σgx/Σg (or Σx/n) divides the monomial."""
    powers = dict(m)
    for gen, p in m:
        top = backend.mono_of(gen)
        if top is None or p <= 0 or dict(top).get(x) != 1:
            continue
        weights = tuple(t for t in top if t[0] is not x)
        below = COUNT if not weights else g.reduction("sum", backend.axis, nf.mono_node(weights))
        if powers.get(below, 0) < 0:
            yield weights


def _means(raw: Cascade, backend: RawBackend, outputs: list[Node], choices: Choices) -> None:
    """Means that are wanted themselves: anchor plus residual instead of a quotient of sums."""
    for node in g.walk(*outputs):
        if raw.scope.varies(node) or not raw.scope.uses(node) or node.op not in ("mul", "pow", "add"):
            continue
        for m, _ in raw.separator.poly(node).ordered():
            for gen, _p in m:
                for x, k in backend.monos.get(gen, ()):
                    if x in choices.elements or k != 1 or not _can_centre(x, k) or _is_integer(x):
                        continue
                    for weights in _ratios(backend, m, x):
                        if all(w.op != "exp" for w, _ in weights) and _fits(gen, x, raw):
                            why = "a mean is kept as anchor plus residual, never as a quotient of sums"
                            choices.elements[x] = Choice(x, "add", "mean", None, weights, why)


def _is_integer(x: Node) -> bool:
    return x.op == "tensor" and bool(x.attr.domain & {"integer", "bool"})


def _fits(total: Node, x: Node, raw: Cascade) -> bool:
    """Centring must not blow the element up to more axes than it has (a weighted sum over j stays a contraction)."""
    return total.axes <= x.axes - raw.scope.axes


# --- scales, ties, casts -------------------------------------------------------------------------------------------


def _scales(raw: Cascade, body: Poly, choices: Choices) -> None:
    for m, _ in body.ordered():
        varying, fixed = raw.separator.split(m)
        for gen, p in varying:
            if p < 2 or gen.is_boolean or gen.op == "exp" or gen in choices.scales:
                continue
            for bound, q in fixed:
                if q <= -p and _is_extremum(bound) and bound.attr.kind == "max" and _bounds_size(raw, bound, gen):
                    why = f"a power of {int(p) if p.denominator == 1 else p} could overflow: it is scaled by its bound"
                    choices.scales[gen] = Choice(gen, "mul", "extremum", _nonzero(bound), None, why, bound)


def _nonzero(scale: Node) -> Node:
    """A scale that a piece of zeros has not got yet is 1, so that its elements stay 0 (and not 0/0)."""
    return g.where(g.compare("eq", scale, g.ZERO), g.ONE, scale)


def _bounds_size(raw: Cascade, bound: Node, gen: Node) -> bool:
    body = bound.args[0]
    size = gen if gen.op == "abs" or raw.signs.nonnegative(gen) else g.fn("abs", gen)
    return body is size or body is g.fn("abs", gen)


def _formal(raw: Cascade, backend: RawBackend, choices: Choices) -> None:
    for element, stage in backend.centring.ties.values():
        known = choices.exponents.get(element)
        if known is None or known.target is not stage:
            why = "ties with the extremum are counted where it stands"
            known = Choice(element, "add", "extremum", stage, None, why)
        choices.ties[element, stage] = known
    for scaled, context in backend.centring.casts.values():
        big, factor = nf.poly_node(scaled), nf.poly_node(context)
        why = "rounding is done at the running scale and commutes with it by assumption"
        scale = g.power(factor, -1)
        choices.casts[big, factor] = Choice(big, "mul", "extremum", _nonzero(scale), None, why, scale)
