"""Logarithms of what is near 1, over slots that hold how far it is from 1 (theory, section 3.3).

Where results take log P - log Q of two sums, P = Σ w·e^u and Q = Σ w·e^v, that are nearly equal, both logarithms are as
large as log n, and what is left of them is rounding: of e^u every digit that tells it from e^v is gone. A positive
factor p is e^(log p). With A the largest u - v

    P = e^A·(Q + D),   D = Σ w·e^v·(e^(u-v-A) - 1),   log P - log Q = A + log1p(D/Q),

and D, a sum of terms <= 0 in which each e^t - 1 is taken as one function, has all its digits. Where D is as large as
Q, the logarithms themselves are the better way: a result has both, and takes one by |D| < Q/2. Likewise f·R - f of a
product R of such sums is f·expm1(log R). log(1 + y) is log1p(y) everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import permutations
from math import comb, gcd, lcm
from typing import NamedTuple

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono
from redalg.algebra.signs import linear
from redalg.engine.anchors.choices import TargetChoice
from redalg.engine.anchors.policy import mask_of
from redalg.engine.emit import Emitter
from redalg.engine.rules.cascade import Cascade
from redalg.engine.slots import SlotBackend
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.graph.plan import COUNT

WHY = "the difference of two exponents is centred on its maximum: what is summed is how far their ratio is from 1"
MOST_POWERS = 12  # of e^h in a sum of them that is written in powers of e^h - 1
LARGEST = 6  # terms of a sum in which two that cancel are looked for
HALF = g.const(Fraction(1, 2))


class Ratio(NamedTuple):
    """log P - log Q = centre + log1p(change/base), the exact opposite where `inverse`."""

    centre: Node
    change: Node
    base: Node
    inverse: bool = False

    @property
    def small(self) -> Node:
        """Whether the change is small beside what it changes, which is positive then."""
        return g.compare("lt", g.fn("abs", self.change), g.mul(HALF, self.base))


class Near(NamedTuple):
    """Terms of a sum, and where they serve."""

    small: Node
    terms: list[Node]


@dataclass
class NearOne:
    """Rewrites values over slots, and adds the slots that it needs.

    `raw`: the cascade before centring, which says what an extremum's value is; `emit`: of the cascade over slots.
    """

    raw: Cascade
    slots: SlotBackend
    emit: Emitter
    done: dict[Node, Node] = field(default_factory=dict)

    def __call__(self, value: Node) -> Node:
        """The value, with differences of logarithms as log1p where they are small, and log(1 + y) as log1p(y)."""
        summed = any(gen.op == "exp" for mono in self.slots.sums for gen, _ in mono)
        self.done |= {c: c for c in self.emit.conditions}  # values in two forms say where each serves
        stack = [value] if summed or any(n.op in ("log", "exp") for n in g.walk(value)) else []
        while stack:
            n = stack[-1]
            apart = self._apart(n) if n not in self.done else None
            if apart is not None:
                self.done[n] = apart
            below = [] if n in self.done else [a for a in n.args if a not in self.done]
            stack += below
            if not below:
                stack.pop()
                if n not in self.done:
                    self.done[n] = self._rebuilt(n)
        return self.done.get(value, value)

    def _rebuilt(self, node: Node) -> Node:
        args = tuple(self.done[a] for a in node.args)
        return _as_one(node if args == node.args else g.rebuild(node, args))

    def _apart(self, node: Node) -> Node | None:
        """A sum of which parts cancel where two sums are nearly equal, also as it is then; None of others."""
        if node.op not in ("add", "log") or node in self.emit.far:
            return None
        logs, rest = _opened(node)
        found = self._near(logs, powers=bool(rest))
        if found is None:
            found = self._opposite(node)
            return None if found is None else g.where(found.small, g.add(*found.terms), node)
        near = self._locations_first(g.add(*rest, *found.terms))
        return g.where(found.small, near, self._locations_first(node))

    def _opposite(self, node: Node) -> Near | None:
        """f·R - f of a product R of sums: f·expm1(log R)."""
        terms = _terms(node)
        for one, other in permutations(terms, 2) if 1 < len(terms) <= LARGEST else ():
            if _degree(one) > _degree(other):
                parts = _factors(g.mul(g.MINUS_ONE, one, g.power(other, -1)))
                logs, rest = _as_logs(parts or [], g.ONE)
                found = self._near(logs)
                if found is not None:
                    apart = g.fn("expm1", self._locations_first(g.add(*rest, *found.terms)))
                    left = [t for t in terms if t not in (one, other)]
                    return Near(found.small, [*left, g.mul(g.MINUS_ONE, other, apart)])
        return None

    def _near(self, logs: dict[Log, Fraction], powers: bool = False) -> Near | None:
        """Σ c·f·log(S) of sums S in pairs that are nearly equal; None where there are others.

        `powers`: also sums that differ by powers of elements alone, for which a logarithm of each is taken.
        """
        if not logs or not _balanced(logs):  # beside another logarithm nothing is small
            return None
        small, terms = list[Node](), list[Node]()
        for top, bottom in _pairs(logs):
            ratio = self._ratio(top.of, bottom.of, powers)
            t = min(logs[top], -logs[bottom])
            if t > 0 and ratio is not None:
                logs[top] -= t
                logs[bottom] += t
                scale = g.mul(g.const(-t if ratio.inverse else t), top.factor)
                terms += [g.mul(scale, x) for x in _terms(ratio.centre)]
                terms.append(g.mul(scale, g.fn("log1p", g.div(ratio.change, ratio.base))))
                small.append(ratio.small)
        return None if not small or any(logs.values()) else Near(g.logical("and", *small), terms)

    def _locations_first(self, total: Node) -> Node:
        """A sum in which what is as large as the data cancels before anything small is added, extrema first of all."""
        sites = self.slots.sites.values()
        ends = {s.leaf() for s in self.slots.others.values() if s.kind in ("max", "min")}
        ends |= {site.choice.generator for site in sites}
        ends |= {self.emit(site.choice.target) for site in sites if isinstance(site.choice, TargetChoice)}
        means = {site.leaf for site in sites}
        groups: tuple[list[Node], ...] = ([], [], [])
        for t in _terms(total):
            held = t.args if t.op == "mul" else (t,)
            groups[0 if not ends.isdisjoint(held) else 1 if not means.isdisjoint(held) else 2].append(t)
        first = [g.add(*groups[0])] if groups[0] else []
        large = Node("add", (*first, *groups[1])) if first and groups[1] else g.add(*groups[0], *groups[1])
        parts = (*((large,) if large is not g.ZERO else ()), *groups[2])
        return Node("add", parts) if len(parts) > 1 else parts[0]

    # --- ratios ---

    def _ratio(self, top: Node, bottom: Node, powers: bool) -> Ratio | None:
        """Two sums of the same weight under exponentials (or powers); None of others."""
        above, below = self._summed(top), self._summed(bottom)
        if above is None or below is None:
            return None
        rates, base = self._rates(above, below)
        grows = any(gen.op == "exp" for gen in rates) or bool(rates) and powers
        if not grows or not all(map(self._is_exponential, rates)) or not self.slots.is_weighed(base):
            return None
        if len(rates) == 1 and min(rates.values()) < 0:
            swapped = self._ratio(bottom, top, powers)
            return None if swapped is None else swapped._replace(inverse=True)
        growth, centre = self._growth(rates, mask_of(below, self.slots))
        change = nf.mono_mul(base, ((growth, Fraction(1)),))
        return None if change is None else Ratio(centre, self.slots.sum_slot(change).leaf(), bottom)

    def _rates(self, above: Mono, below: Mono) -> tuple[dict[Node, Fraction], Mono]:
        """By which powers one monomial is larger than the other, which is selected as the one above is, too: what has
        no weight may have any exponential."""
        whole = [self.slots.of_all(m) for m in (above, below)]
        rates = {gen: _rate(above, gen) - _rate(below, gen) for gen, _ in (*whole[0], *whole[1])}
        base = nf.mono({**dict(below), **{t: p for t, p in above if t not in dict(whole[0])}})
        return {gen: p for gen, p in rates.items() if p}, base or nf.UNIT

    def _is_exponential(self, gen: Node) -> bool:
        """Whether a factor is an exponential, or e^(log w) of a positive w.

        Not of contractions: tiles of scores are multiplied, and weighed by one exponential, as they are.
        """
        if gen.is_boolean or nf.may_be_complex(gen) or any(n.op == "reduce" for n in g.walk(gen)):
            return False
        return gen.op == "exp" or self.slots.role_of(gen) is None and self.raw.signs.positive(gen)

    def _summed(self, value: Node) -> Mono | None:
        """What a value sums, nothing for the count; None of what is no sum."""
        if value is COUNT:
            return nf.UNIT
        mono = self.slots.monos.get(value.attr.name) if value.op == "state" else None
        slot = self.slots.sums.get(mono) if mono is not None else None
        return mono if slot is not None and slot.leaf() is value and not slot.average else None

    def _growth(self, rates: dict[Node, Fraction], mask: Node) -> tuple[Node, Node]:
        """e^(t-A) - 1 of the t = Σ rate·u between two exponents u - A_u, and A - Σ rate·A_u."""
        found = [(rate, *self._exponent(gen)) for gen, rate in rates.items()]
        (rate, u, site) = found[0]
        if len(found) == 1 and site is not None:
            return self.slots.growth(next(iter(rates)), rate), g.ZERO
        t = g.add(*(g.mul(g.const(rate), u) for rate, u, _ in found))
        extremum = g.reduction("max", self.raw.axis, t if mask is g.TRUE else g.where(mask, t, g.NEG_INF))
        choice = self.slots.choices.shared(TargetChoice(t, self.raw.value(extremum).node, WHY))
        moved = [g.mul(g.const(-rate), at) for rate, _, at in found if at is not None]
        return self.slots.growth_about(self.slots.site(choice), g.ONE), g.add(self.emit(choice.target), *moved)

    def _exponent(self, gen: Node) -> tuple[Node, Node | None]:
        """The exponent of an exponential over elements, and what its anchor takes from it."""
        found = self.slots.role_of(gen)
        if found is None:
            return gen.args[0] if gen.op == "exp" else g.fn("log", gen), None
        site, _, names = found
        assert isinstance(site.choice, TargetChoice)  # exponents have extrema
        u, pace = self.slots.pace(gen, site, names)
        return u, g.mul(pace, self.emit(site.choice.target))


class Log(NamedTuple):
    """factor·log(of), a term of a sum."""

    factor: Node
    of: Node


def _opened(node: Node) -> tuple[dict[Log, Fraction], list[Node]]:
    """A sum as Σ c·factor·log(value) and the other terms; logarithms of products of positive factors are opened."""
    logs: dict[Log, Fraction] = {}
    rest: list[Node] = []
    for term in _terms(node):
        factors = term.args if term.op == "mul" else (term,)
        log = next((f for f in factors if f.op == "log"), None)
        parts = None if log is None else _factors(log.args[0])
        if log is None or parts is None:
            rest.append(term)
            continue
        c = next((f.attr for f in factors if f.op == "const"), Fraction(1))
        factor = g.mul(*(f for f in factors if f is not log and f.op != "const"))
        own, beside = _as_logs(parts, factor)
        rest += [g.mul(g.const(c), x) for x in beside]
        for key, e in own.items():
            logs[key] = logs.get(key, Fraction(0)) + c * e
    return logs, rest


def _as_logs(parts: list[tuple[Node, Fraction]], factor: Node) -> tuple[dict[Log, Fraction], list[Node]]:
    """factor·log of a product, as logarithms of parts of a state and other terms."""
    logs: dict[Log, Fraction] = {}
    rest = []
    for base, e in parts:
        if base.op in ("exp", "const"):
            rest.append(g.mul(g.const(e), factor, base.args[0] if base.op == "exp" else g.fn("log", base)))
        else:
            logs[Log(factor, base)] = logs.get(Log(factor, base), Fraction(0)) + e
    return logs, rest


def _degree(term: Node) -> int:
    """How many factors a term has."""
    return len(term.args) if term.op == "mul" else 1


def _factors(value: Node) -> list[tuple[Node, Fraction]] | None:
    """A product of parts of a state, exponentials and positive numbers as powers; None of other factors."""
    found = []
    for f in value.args if value.op == "mul" else (value,):
        base, e = (f.args[0], f.args[1].attr) if f.op == "pow" and f.args[1].op == "const" else (f, Fraction(1))
        if base.op not in ("state", "exp", "size") and not (base.op == "const" and base.attr > 0):
            return None
        found.append((base, e))
    return found


def _balanced(logs: dict[Log, Fraction]) -> bool:
    """Whether as many logarithms are added as are subtracted, with every factor."""
    totals: dict[Node, Fraction] = {}
    for log, c in logs.items():
        totals[log.factor] = totals.get(log.factor, Fraction(0)) + c
    return not any(totals.values())


def _pairs(logs: dict[Log, Fraction]) -> Iterator[tuple[Log, Log]]:
    """Logarithms with the same factor, added and subtracted."""
    for top in [log for log, c in logs.items() if c > 0]:
        for bottom in [log for log, c in logs.items() if c < 0]:
            if top.factor is bottom.factor and logs[top] > 0 and logs[bottom] < 0:
                yield top, bottom


def _rate(m: Mono, gen: Node) -> Fraction:
    return dict(m).get(gen, Fraction(0))


def _terms(node: Node) -> tuple[Node, ...]:
    return node.args if node.op == "add" else (node,)


def _as_one(node: Node) -> Node:
    """log(1 + y) as log1p(y), and f·(e^h - 1) as f·expm1(h)."""
    if node.op == "log" and node.args[0].op == "add" and g.ONE in node.args[0].args and not nf.may_be_complex(node):
        return g.fn("log1p", g.add(*(a for a in node.args[0].args if a is not g.ONE)))
    return _grown(node) if node.op == "add" else node


class Power(NamedTuple):
    """A term coefficient·e^exponent·f of a sum."""

    term: Node
    coefficient: Fraction
    exponent: Node


def _grown(total: Node) -> Node:
    """A sum in which f·Σ c_k·e^(k·h) that is 0 at h = 0 is a polynomial in expm1(h): f·(e^(2h) - 2·e^h + 1) is
    f·expm1(h)^2."""
    groups: dict[Node, list[Power]] = {}
    for term in total.args:
        rest, power = _as_power(term)
        groups.setdefault(rest, []).append(power)
    terms, changed = dict.fromkeys(total.args), False
    for rest, powers in groups.items():
        found = _in_growths(rest, powers) if len(powers) > 1 else None
        if found is not None:
            own = {p.term for p in powers}
            terms, changed = {t: None for t in terms if t not in own} | dict.fromkeys(found), True
    return g.add(*terms) if changed else total


def _as_power(term: Node) -> tuple[Node, Power]:
    """f, and what it is multiplied by."""
    factors = term.args if term.op == "mul" else (term,)
    power = next((f for f in factors if f.op == "exp" and not nf.may_be_complex(f)), None)
    c = next((f.attr for f in factors if f.op == "const"), Fraction(1))
    rest = g.mul(*(f for f in factors if f is not power and f.op != "const"))
    return rest, Power(term, c, g.ZERO if power is None else power.args[0])


def _in_growths(rest: Node, powers: list[Power]) -> list[Node] | None:
    """f·Σ c_k·e^(k·h) by powers of e^h - 1; of what is not 0 at h = 0, a pair that is."""
    unit = next(p.exponent for p in sorted(powers, key=lambda p: g.is_const(p.exponent, 0)))
    rates = [r for p in powers if (r := _rate_of(p.exponent, unit)) is not None]
    if sum(p.coefficient for p in powers) or len(rates) < len(powers):
        return _pair(rest, powers)
    if len(powers) == 2 and min(rates) <= 0 <= max(rates):  # nothing cancels, also where h is infinite
        return [
            g.mul(g.const(p.coefficient), rest, g.fn("expm1", p.exponent))
            for p, r in zip(powers, rates, strict=True)
            if r
        ]
    return _as_polynomial(rest, powers, rates, unit) or _pair(rest, powers)


def _as_polynomial(rest: Node, powers: list[Power], rates: list[Fraction], unit: Node) -> list[Node]:
    """f·e^(l·h)·Σ c_k·(e^h - 1)^k, of the least rate l; nothing of too many powers."""
    step = Fraction(gcd(*(r.numerator for r in rates)), lcm(*(r.denominator for r in rates)))
    least = min(rates)
    steps = [int((r - least) / step) for r in rates]
    if max(steps) > MOST_POWERS:
        return []
    growth = g.fn("expm1", g.mul(g.const(step), unit))
    common = g.fn("exp", g.mul(g.const(least), unit)) if least else g.ONE
    about = _about_one([p.coefficient for p in powers], steps)
    return [g.mul(g.const(c), rest, common, g.power(growth, i)) for i, c in about if c]


def _about_one(coefficients: list[Fraction], powers: list[int]) -> list[tuple[int, Fraction]]:
    """Σ c_k·(1 + t)^k by powers of t, without the constant."""
    terms = list(zip(coefficients, powers, strict=True))
    return [(i, Fraction(sum(c * comb(k, i) for c, k in terms))) for i in range(1, max(powers) + 1)]


def _pair(rest: Node, powers: list[Power]) -> list[Node] | None:
    """f·e^h - f among other terms as f·expm1(h)."""
    plain = next((p for p in powers if g.is_const(p.exponent, 0)), None)
    for p in powers if plain is not None else ():
        if p is not plain and plain is not None and p.coefficient == -plain.coefficient:
            others = [q.term for q in powers if q not in (p, plain)]
            return [*others, g.mul(g.const(p.coefficient), rest, g.fn("expm1", p.exponent))]
    return None


def _rate_of(exponent: Node, unit: Node) -> Fraction | None:
    """k where an exponent is k times another."""
    if g.is_const(exponent, 0):
        return Fraction(0)
    own, other = linear(exponent), linear(unit)
    if own.keys() != other.keys():
        return None
    rates = {own[x] / other[x] for x in own}
    return rates.pop() if len(rates) == 1 else None


__all__ = ["NearOne"]
