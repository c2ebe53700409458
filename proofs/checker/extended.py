"""Where a definition is no number: what values a term can have, infinities and NaN included, at a pole of another.

A set of values is a union of six: negative, 0, positive, oo, -oo and NaN, with the conventions of IEEE (0·oo and
oo - oo are NaN, only a `where` and a comparison let go of NaN) and both signs for 1/0. A truth is positive or 0.
softmax(x/T) is no number at T = 0, whatever x is: x/T is infinite or NaN for every element, so that each of its
exponentials is 0 or NaN. exp(-1/d²) is one at d = 0, and so nothing is known of d.

A new rule says what follows from a pole (`_consequences`), or what an operation makes of each of the six (`MAPS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

from redalg.proofs.checker import polynomial as po
from redalg.proofs.checker.inequalities import NEG, POS, ZERO
from redalg.proofs.checker.normalform import Normal
from redalg.proofs.checker.polynomial import Unknown
from redalg.proofs.document.rounding import INTEGERS
from redalg.proofs.document.terms import BOOLEAN, Term, Terms, base, walk
from redalg.proofs.document.work import spend

HIGH, LOW, NAN = 8, 16, 32
FINITE, EVERY, TRUTH = NEG | ZERO | POS, 63, POS | ZERO
ORDER = (LOW, NEG, ZERO, POS, HIGH)  # of the five that are ordered
NOWHERE = "nowhere%"  # of a term that stands in no document
MOST_SCALED = 3  # products with a reciprocal, by whose values cases are told apart
MOST_FACTORS = 6  # of a divisor, any of which may be 0


def _atoms(values: int) -> Iterator[int]:
    return (x for x in (NEG, ZERO, POS, HIGH, LOW, NAN) if values & x)


def _pairs(f: Callable[[int, int], int]) -> Callable[[int, int], int]:
    @cache
    def of_sets(a: int, b: int) -> int:
        found = 0
        for x in _atoms(a):
            for y in _atoms(b):
                found |= f(x, y)
        return found

    return of_sets


def _sum(x: int, y: int) -> int:
    if NAN in (x, y) or (x | y) == HIGH | LOW:
        return NAN
    if (x | y) & (HIGH | LOW):
        return (x | y) & (HIGH | LOW)
    return FINITE if x | y == NEG | POS else (x if y == ZERO else y)


def _product(x: int, y: int) -> int:
    if NAN in (x, y):
        return NAN
    infinite = (x | y) & (HIGH | LOW)
    if ZERO in (x, y):
        return NAN if infinite else ZERO
    above = (x in (NEG, LOW)) == (y in (NEG, LOW))
    return (HIGH if above else LOW) if infinite else (POS if above else NEG)


def _larger(x: int, y: int) -> int:
    return NAN if NAN in (x, y) else max(x, y, key=ORDER.index)


def _smaller(x: int, y: int) -> int:
    return NAN if NAN in (x, y) else min(x, y, key=ORDER.index)


def _less(x: int, y: int) -> int:
    if NAN in (x, y):
        return ZERO
    return TRUTH if x == y and x in (NEG, POS) else POS if ORDER.index(x) < ORDER.index(y) else ZERO


def _equal(x: int, y: int) -> int:
    return TRUTH if x == y and x in (NEG, POS) else POS if x == y and x != NAN else ZERO


def _below(x: int, minus_top: int) -> int:
    """u - max u, of -max u."""
    if NAN in (x, minus_top):
        return NAN
    if x == HIGH:
        return NAN if minus_top == LOW else 0
    if x == LOW:
        return NAN if minus_top == HIGH else LOW
    return {LOW: LOW, HIGH: 0}.get(minus_top, NEG | ZERO)


plus, times, larger, smaller, less, equal, below = map(
    _pairs, (_sum, _product, _larger, _smaller, _less, _equal, _below)
)
CHANGED = {0: 0, POS: ZERO, ZERO: POS, TRUTH: TRUTH}


def _map(low: int, negative: int, zero: int, positive: int, high: int) -> dict[int, int]:
    return {LOW: low, NEG: negative, ZERO: zero, POS: positive, HIGH: high, NAN: NAN}


_ODD = _map(NEG, NEG, ZERO, POS, POS)
_GROWING = _map(LOW, NEG, ZERO, POS, HIGH)
MAPS = {  # what a map makes of -oo, the negative numbers, 0, the positive ones and oo
    "exp": _map(ZERO, POS, POS, POS, HIGH),
    "log": _map(NAN, NAN, LOW, FINITE, HIGH),
    "log1p": _map(NAN, NEG | LOW | NAN, ZERO, POS, HIGH),
    "expm1": _map(NEG, NEG, ZERO, POS, HIGH),
    "abs": _map(HIGH, POS, ZERO, POS, HIGH),
    "relu": _map(ZERO, ZERO, ZERO, POS, HIGH),
    "sigmoid": _map(ZERO, POS, POS, POS, POS),
    "erfc": _map(POS, POS, POS, POS, ZERO),
    "cosh": _map(HIGH, POS, POS, POS, HIGH),
    "sign": _ODD,
    "tanh": _ODD,
    "erf": _ODD,
    "atan": _ODD,
    "sinh": _GROWING,
    "asinh": _GROWING,
    "floor": _map(LOW, NEG, ZERO, TRUTH, HIGH),
    "ceil": _map(LOW, NEG | ZERO, ZERO, POS, HIGH),
    "sin": _map(NAN, FINITE, ZERO, FINITE, NAN),
    "cos": _map(NAN, FINITE, POS, FINITE, NAN),
}


def _each(table: dict[int, int], values: int) -> int:
    found = 0
    for x in _atoms(values):
        found |= table[x]
    return found


def power(values: int, e: po.Number) -> int:
    """Powers with an exponent other than 0."""
    odd = e.denominator == 1 and e % 2 == 1
    below = NAN if e.denominator != 1 else NEG if odd else POS
    far = {NAN: NAN, NEG: LOW, POS: HIGH}[below] if e > 0 else NAN if below == NAN else ZERO
    pole = HIGH | (LOW if odd else 0)
    return _each(_map(far, below, ZERO if e > 0 else pole, POS, HIGH if e > 0 else ZERO), values)


class Pole(NamedTuple):
    """Where a term has a value of a set, and what follows from it there.

    `null`: terms that are 0 at that place, at every place along the axes named with them; `single`: axes of one
    element; `constant`: terms that are equal along some axes to what stands beside them.
    """

    term: Term
    values: int
    null: tuple[tuple[Term, tuple[str, ...]], ...] = ()
    single: frozenset[str] = frozenset()
    constant: tuple[tuple[Term, Term], ...] = ()
    chosen: tuple[tuple[Term, int], ...] = ()  # what else has one of its values in a case


class Extended:
    """Decides whether definitions are no numbers at the poles of their parts."""

    def __init__(self, terms: Terms, normal: Normal) -> None:
        self.terms, self.normal = terms, normal
        self.free = _Values(self, Pole(terms.state(NOWHERE), EVERY))

    def excluded(self, root: Term, term: Term, values: int) -> frozenset[str] | None:
        """The axes at all places along which a term of the root has none of the values, where the root is finite.

        None where it may have one at the position of the root.
        """
        for at in dict.fromkeys((frozenset[str](), term.axes & root.axes)):
            if all(self._excluded(root, at, pole) for pole in self._poles(term, values)):
                return term.axes - at
        return None

    def _excluded(self, root: Term, at: frozenset[str], pole: Pole) -> bool:
        """Whether the root is no number at a pole, in each case of what is multiplied by the reciprocal."""
        values = _Values(self, pole)
        if not values(root, at) & FINITE:
            return True
        if pole.values != ZERO or pole.chosen:
            return False
        place = pole.term.axes | root.axes
        scaled = [t for t in walk(root) if t.axes <= place and _divides(t, pole.term)][:MOST_SCALED]
        kinds = [list(_atoms(values(t, place))) for t in scaled]
        cases = (tuple(zip(scaled, case, strict=True)) for case in product(*kinds))
        own = at | (root.axes - pole.term.axes)
        return bool(scaled) and all(not _Values(self, pole._replace(chosen=c))(root, own) & FINITE for c in cases)

    def _poles(self, term: Term, values: int) -> Iterator[Pole]:
        """The cases in which a term has a value of the set: a product is 0 where one of its factors is."""
        factors = [f for f in _factors(term) if self.values(f) != POS] if values == ZERO else []
        for f in factors if len(factors) <= MOST_FACTORS else ():
            yield Pole(term, ZERO, ((f, ()), *self._null(f)), self._single(f), tuple(self._constant(f)))
        if not 0 < len(factors) <= MOST_FACTORS:
            yield Pole(term, values)

    def values(self, t: Term) -> int:
        """The values a term can have anywhere."""
        return self.free(t, frozenset())

    def sign(self, t: Term) -> int:
        """The signs of the normal form, which is that of what is finite throughout."""
        try:
            v = self.normal(t)
            return self.normal.decide(v) if isinstance(v, dict) else FINITE
        except Unknown:
            return FINITE

    def vanishes(self, t: Term) -> bool:
        try:
            v = self.normal(t)
            return isinstance(v, dict) and self.normal.is_zero(v)
        except Unknown:
            return False

    def _null(self, f: Term) -> list[tuple[Term, tuple[str, ...]]]:
        """What else is 0 where f is, and the axes at all places along which it is."""
        null: list[tuple[Term, tuple[str, ...]]] = []
        todo: list[tuple[Term, tuple[str, ...]]] = [(f, ())]
        while todo:
            t, along = todo.pop()
            spend()
            null.append((t, along))
            axes = t.attr.axes if t.op == "reduce" else ()
            todo += [(x, (*along, *axes)) for x in self._null_below(t)]
        return null

    def _null_below(self, t: Term) -> list[Term]:
        """The arguments that are 0 where a term is, at every place where it reduces them."""
        if t.op == "mul":
            rest = [a for a in t.args if self.values(a) != POS]
            return rest if len(rest) == 1 else []
        if t.op == "where":
            counts = self.values(t.args[1]) == POS and self.values(t.args[2]) == ZERO
            return [t.args[0]] if counts else []
        if t.op == "abs" or _is_power(t):
            return [t.args[0]]
        sums = t.op == "add" or (t.op == "reduce" and t.attr.kind in ("sum", "max"))
        return [] if not sums or any(self.values(a) & (NEG | LOW) for a in t.args) else list(t.args)

    def _single(self, f: Term) -> frozenset[str]:
        """The axis of which f says that it has one element: its length less 1."""
        t = self.terms
        found = (x for x in walk(f) if x.op == "size")
        return frozenset(x.attr for x in found if self._multiple(f, t.sub(x, t.const(1))))

    def _constant(self, f: Term) -> Iterator[tuple[Term, Term]]:
        """The largest is the smallest, so that all are."""
        ends = [x for x in walk(f) if x.op == "reduce" and x.attr.kind in ("max", "min")]
        for low in (x for x in ends if x.attr.kind == "min"):
            for high in (x for x in ends if x.attr.kind == "max"):
                alike = low.args == high.args and low.attr.axes == high.attr.axes
                if alike and self._multiple(f, self.terms.sub(high, low)):
                    yield from ((low.args[0], low), (high, low))

    def _multiple(self, f: Term, g: Term) -> bool:
        try:
            p, q = self.normal(f), self.normal(g)
        except Unknown:
            return False
        if not isinstance(p, dict) or not isinstance(q, dict) or not p or not q:
            return False
        m = min(p)
        return m in q and self.normal.same(po.scaled(p, q[m]), po.scaled(q, p[m]))


def _divides(t: Term, divisor: Term) -> bool:
    """Whether a term is a product with the reciprocal of the divisor, or that alone."""
    return any(
        f.op == "pow" and f.args[0] is divisor and f.args[1].op == "const" and f.args[1].attr < 0
        for f in (t.args if t.op == "mul" else (t,))
    )


def _factors(t: Term) -> list[Term]:
    """Factors of which one is 0 where the term is."""
    if t.op == "mul":
        return [f for a in t.args for f in _factors(a)]
    return _factors(t.args[0]) if _is_power(t) else [t]


def _is_power(t: Term) -> bool:
    return t.op == "pow" and t.args[1].op == "const" and bool(t.args[1].attr > 0)


class _Values:
    """The values of terms at one pole. `own`: the axes along which a term is read at the place of the pole."""

    def __init__(self, extended: Extended, pole: Pole) -> None:
        self.extended, self.terms, self.pole = extended, extended.terms, pole
        self.found: dict[tuple[Term, frozenset[str]], int] = {}
        self.real: dict[tuple[Term, frozenset[str]], bool] = {}  # whether the term and all below it are finite
        self.changed: dict[Term, Term] = {}

    def __call__(self, t: Term, own: frozenset[str]) -> int:
        own &= t.axes
        key = t, own
        if key not in self.found:
            spend(2)
            self.found[key], self.real[key] = self._value(t, own)
        return self.found[key]

    def _value(self, t: Term, own: frozenset[str]) -> tuple[int, bool]:
        here = self.pole.term.axes <= own
        if t is self.pole.term and here:
            return self.pole.values, not self.pole.values & ~FINITE
        if here and self._is_null(t):
            return ZERO, True
        for term, kind in self.pole.chosen:
            if t is term and t.axes <= own:
                return kind, not kind & ~FINITE
        if t.op == "reduce":
            found, real = self._reduced(t, own)
        else:
            args = [self(a, own) for a in t.args]
            found = self._of(t, args, own)
            real = not found & ~FINITE and all(self.real[a, own & a.axes] for a in t.args)
        if real and found not in (NEG, ZERO, POS) and not t.is_boolean:
            found &= self._known(t, here)
        return found, real

    def _known(self, t: Term, here: bool) -> int:
        """The signs that the normal form of what is finite throughout can have, where it can be computed."""
        changed = self._change(t) if here else t
        if here and self.extended.vanishes(changed):
            return ZERO
        return self.extended.sign(changed) or FINITE

    def _is_null(self, t: Term) -> bool:
        return any(self._same(t, n, along) for n, along in self.pole.null)

    def _same(self, t: Term, null: Term, along: tuple[str, ...]) -> bool:
        """Whether a term is one that is 0, at whatever place along the axes it is so everywhere."""
        if t is null:
            return True
        if t.op not in ("tensor", "state") or null.op != t.op or t.attr.name != null.attr.name:
            return False
        return all(
            a == b or (b in along and base(a) == base(b)) for a, b in zip(t.attr.axes, null.attr.axes, strict=True)
        )

    def _change(self, root: Term) -> Term:
        """The term with what is 0 at the pole replaced, except at other places than its own."""
        p, t = self.pole, self.terms
        values = dict(p.constant)

        def new(x: Term) -> Term | None:
            if x.op == "reduce":
                if set(x.attr.axes) & p.term.axes or x in values.values():
                    return x
                if set(x.attr.axes) <= p.single and x.attr.kind in ("sum", "prod", "max", "min"):
                    return self._change(x.args[0])
            if x.op == "size" and x.attr in p.single:
                return t.const(1)
            if self._is_null(x):
                return t.const(0)
            return values.get(x)

        if root not in self.changed:
            self.changed[root] = t.map(root, new)
        return self.changed[root]

    # --- operations ---

    def _of(self, t: Term, args: list[int], own: frozenset[str]) -> int:
        if not t.args:
            return _leaf(t)
        if t.op == "add":
            return self._added(t, own)
        if t.op == "exp":
            return self._exponential(t, args[0], own)
        if t.op in FOLDED:
            return _fold(FOLDED[t.op], args)
        if t.op == "pow":
            return power(args[0], t.args[1].attr) if t.args[1].op == "const" and t.args[1].attr else EVERY
        if t.op == "where":
            return (args[1] if args[0] & POS else 0) | (args[2] if args[0] & ZERO else 0)
        if t.op in BOOLEAN:
            return _truth(t.op, args)
        return _cast(t.attr, args[0]) if t.op == "cast" else _mapped(t.op, args[0])

    def _exponential(self, t: Term, exponent: int, own: frozenset[str]) -> int:
        """exp(u - c) is 0 where u is -oo, though u - c may be NaN: not where a term of it is NaN by itself."""
        found = _each(MAPS["exp"], exponent)
        terms = t.args[0].args if t.args[0].op == "add" else t.args
        certain = any(self(a, own) == NAN for a in terms)  # whichever side of it that is a part of is NaN
        return found if certain or not exponent & NAN else found | ZERO

    def _added(self, t: Term, own: frozenset[str]) -> int:
        """Sums; u - max u is never oo, for what is infinite has an infinite maximum.

        u may itself be a sum, whose terms stand beside the maximum.
        """
        left, found = list(t.args), ZERO
        for top in t.args:
            for body in _below_extremum(self.terms, top):
                parts = [*(body.args if body.op == "add" else [body]), top]
                if all(left.count(x) >= parts.count(x) for x in parts):
                    for x in parts:
                        left.remove(x)
                    found = plus(found, below(self(body, own), self(top, own)))
        return _fold(plus, [found, *(self(a, own) for a in left)])

    def _reduced(self, t: Term, own: frozenset[str]) -> tuple[int, bool]:
        """The value over the elements, of which the one at the pole is one and the others may have any other."""
        axes, kind, body = frozenset(t.attr.axes), t.attr.kind, t.args[0]
        if kind not in FOLDS:
            return {"argmax": TRUTH, "argmin": TRUTH, "topk_indices": FINITE}.get(kind, EVERY), False
        others = own - axes
        at = others | (axes & self.pole.term.axes)
        found, rest = self(body, at), self(body, others)
        while (more := found | FOLDS[kind](found, rest)) != found:
            found = more
        real = self.real[body, at & body.axes] and self.real[body, others & body.axes]
        return found, real and not found & ~FINITE


FOLDED = {"mul": times, "maximum": larger, "minimum": smaller, "or": larger, "and": smaller}
FOLDS = {
    "sum": plus,
    "prod": times,
    "max": larger,
    "min": smaller,
    "any": larger,
    "all": smaller,
}


def _fold(f: Callable[[int, int], int], values: list[int]) -> int:
    found, *rest = values
    for v in rest:
        found = f(found, v)
    return found


def _below_extremum(t: Terms, top: Term) -> Iterator[Term]:
    """u of -max u, and -u of min u."""
    minus = t.const(-1)
    if top.op == "mul" and len(top.args) == 2 and top.args[0] is minus:
        if top.args[1].op == "reduce" and top.args[1].attr.kind == "max":
            yield top.args[1].args[0]
    if top.op == "reduce" and top.attr.kind == "min":
        yield t("mul", minus, top.args[0])


def _leaf(t: Term) -> int:
    if t.op == "const":
        return NEG if t.attr < 0 else POS if t.attr > 0 else ZERO
    if t.op == "special":
        return {"oo": HIGH, "-oo": LOW, "nan": NAN, "pi": POS, "e": POS}.get(t.attr, EVERY)
    if t.op in ("tensor", "state"):
        domain = t.attr.domain
        if "complex" in domain:
            return EVERY
        return POS if "positive" in domain else TRUTH if domain & {"nonnegative", "bool"} else FINITE
    return {"size": POS, "true": POS, "false": ZERO, "index": TRUTH}.get(t.op, EVERY)


def _truth(op: str, args: list[int]) -> int:
    if op in ("lt", "eq", "ne"):
        found = less(*args) if op == "lt" else equal(*args)
        return CHANGED[found] if op == "ne" else found
    if op == "le":
        return less(*args) | equal(*args) if equal(*args) == ZERO else TRUTH
    if op == "not":
        return CHANGED.get(args[0], TRUTH)
    return _fold(FOLDED[op], args)


def _cast(dtype: str, values: int) -> int:
    """NaN stays NaN; a rounded number may be 0, or too large for its format."""
    if dtype == "bool":
        return TRUTH
    found = values & (NAN | ZERO)
    if values & ~(NAN | ZERO):
        found |= FINITE if dtype in INTEGERS else EVERY
    return found


def _mapped(name: str, values: int) -> int:
    """Of a map without a row no more is known than that NaN stays NaN."""
    return _each(MAPS[name], values) if name in MAPS else NAN if values == NAN else EVERY
