"""Maps of reals in normal form: powers, exponentials, logarithms, extrema, comparisons.

Every function here takes values that may be split by cases; `on_each` carries it to polynomials without indicators.
Where a rule needs a condition (a positive factor under a logarithm), the condition is read off signs, or it is one of
the document's named assumptions, which is then recorded as used.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from redalg.proofs import inequalities as signs
from redalg.proofs import polynomial as po
from redalg.proofs.generators import Case, Generators, Value, frozen
from redalg.proofs.polynomial import UNIT, Mono, Number, Poly
from redalg.proofs.terms import base
from redalg.proofs.work import spend

POSITIVE_LOGS, NONNEGATIVE = "positive_log_arguments", "nonnegative_factors"
STRICT = frozenset("tanh sigmoid log1p expm1 erf sinh atan asinh".split())
LIMITS: dict[str, tuple[int | str, int | str]] = {
    "tanh": (-1, 1),
    "sigmoid": (0, 1),
    "relu": (0, "oo"),
    "erf": (-1, 1),
    "abs": ("oo", "oo"),
    "log1p": ("nan", "oo"),
}
# f(t) for t with a negative leading term, from -f(-t): one form for both
MIRRORED: dict[str, Callable[[Poly, Poly], tuple[Poly, ...]]] = dict.fromkeys(
    ("tanh", "erf", "atan", "asin", "asinh", "atanh", "sign"), lambda t, minus: (minus,)
)
MIRRORED["sigmoid"] = lambda t, minus: (po.const(1), minus)
SIGNS = {"abs": signs.NONNEG, "relu": signs.NONNEG, "sigmoid": signs.POS, "cosh": signs.POS, "erfc": signs.POS}


class Maps(Generators):
    """Constructors of values; `assumed` are the document's named assumptions, `used` those that were needed."""

    def __init__(self, assumed: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.assumed, self.used = assumed, set[str]()
        self.facts: list[signs.Constraint] = []
        self.quantified: dict[tuple[int, int], tuple[tuple[str, ...], Poly]] = {}  # (indicator, value): holds nowhere

    def may(self, assumption: str) -> bool:
        if assumption in self.assumed:
            self.used.add(assumption)
        return assumption in self.assumed

    def on_each(self, f: Callable[[Value], Value], v: Value) -> Value:
        """f at every case of a value; of what is not known nothing is."""
        g = self.first_indicator(v)
        if g is None:
            return v if v == "?" else f(v)
        return self.case(g, self.on_each(f, self.cofactor(v, g, 1)), self.on_each(f, self.cofactor(v, g, 0)))

    def on_both(self, f: Callable[[Value, Value], Value], a: Value, b: Value) -> Value:
        """f of two values, split only where one of them is not a polynomial."""
        spend()
        tops = [v.gen for v in (a, b) if isinstance(v, Case)]
        if not tops:
            return f(a, b)
        g = min(tops)
        yes = self.on_both(f, self.cofactor(a, g, 1), self.cofactor(b, g, 1))
        return self.case(g, yes, self.on_both(f, self.cofactor(a, g, 0), self.cofactor(b, g, 0)))

    # --- arithmetic with infinities ---

    def plus(self, *values: Value) -> Value:
        if all(isinstance(v, dict) for v in values):
            return self.add(*values)  # type: ignore[arg-type]
        total = values[0]
        for v in values[1:]:
            total = self.on_both(self._plus, total, v)
        return total

    def _plus(self, a: Value, b: Value) -> Value:
        if isinstance(a, dict) and isinstance(b, dict):
            return self.add(a, b)
        if "?" in (a, b):
            return "?"
        if isinstance(a, dict):
            return b
        return a if isinstance(b, dict) or a == b else "nan"

    def by(self, *values: Value) -> Value:
        total: Value = po.const(1)
        for v in values:
            if isinstance(total, dict) and isinstance(v, dict):
                total = self.mul(total, v)
            else:
                total = self.on_both(self._by, total, v)
        return total

    def _by(self, a: Value, b: Value) -> Value:
        if isinstance(a, dict) and isinstance(b, dict):
            return self.mul(a, b)
        if "?" in (a, b):
            return "?"
        if "nan" in (a, b) or a == {} or b == {}:
            return "nan"
        finite = b if isinstance(a, str) else a
        g = self.first_indicator(finite)
        if g is not None:
            limit = a if isinstance(a, str) else b
            return self.case(g, *(self._by(limit, self.cofactor(finite, g, k)) for k in (1, 0)))
        sign = signs.product(self.decide(a), self.decide(b))
        if sign not in (signs.POS, signs.NEG):
            return "?"  # an infinity times a value of unknown sign
        return "oo" if sign == signs.POS else "-oo"

    def decide(self, v: Value) -> int:
        """The signs a value can have, with what is known of extrema and by assumption."""
        if not isinstance(v, dict):
            return self.value_sign(v)
        s = self.sign(v)
        if s != signs.ANY or as_mono(v) is not None:
            return s
        spread = self._spread(v)
        if spread != signs.ANY:
            return spread
        facts = [*self.facts, *self.bounds(v)]
        if not facts:
            return s
        known = facts + self.known([v, *(p for p, _ in facts)])
        minus = po.scaled(v, -1)
        possible = {signs.POS: [(v, True)], signs.NEG: [(minus, True)], signs.ZERO: [(v, False), (minus, False)]}
        return sum(bit for bit, claim in possible.items() if signs.solvable([*known, *claim]))

    def _spread(self, v: Poly) -> int:
        """Σa·Σb - (Σc)² is not negative where a >= 0, b >= 0 and c² = a·b for every element (Cauchy-Schwarz)."""
        if len(v) != 2 or sum(v.values()) != 0:
            return signs.ANY
        shared = tuple(sorted(po.common(v)))
        (plus, square), outer = sorted(v, key=v.__getitem__, reverse=True), self.sign_of_mono(shared)
        product, square = (self.times(m, po.inverse(shared)) for m in (plus, square))
        if len(square) != 1 or square[0][1] != 2 or self.gens[square[0][0]].kind != "sum":
            return signs.ANY
        axes, c = self.gens[square[0][0]].data
        sums = [self.gens[g].data[1] for g, e in product if e == 1 and self.gens[g].data[:1] == (axes,)]
        others = [self.gens[g].data if e == 1 else None for g, e in product if self.gens[g].data[:1] != (axes,)]
        if len(sums) == 1 and sorted(others, key=str) == sorted((("size", base(a)) for a in axes), key=str):
            sums, others = [*sums, UNIT], []  # the length of the axis is the sum of 1
        if len(sums) != 2 or others or len(product) > 2 + len(axes):
            return signs.ANY
        a, b = sums
        fits = self.times(a, b) == self.times(c, c) and not (self.sign_of_mono(a) | self.sign_of_mono(b)) & signs.NEG
        return signs.product(signs.NONNEG, outer) if fits else signs.ANY

    def known(self, polys: list[Poly]) -> list[signs.Constraint]:
        """What the signs of monomials say."""
        monos = {m for p in polys for m in p if m != UNIT}
        spend(sum(map(len, polys)))
        found: list[signs.Constraint] = []
        for m in sorted(monos):
            s = self.sign_of_mono(m)
            if not s & signs.NEG or not s & signs.POS:
                found.append(({m: 1 if s & signs.POS else -1}, s in (signs.POS, signs.NEG)))
        return found

    def bounds(self, p: Poly) -> list[signs.Constraint]:
        """Elements lie between the extrema over them."""
        found: list[signs.Constraint] = []
        for g in {g for m in p for g, _ in m}:
            gen = self.gens[g]
            if gen.kind == "reduce" and gen.data[0] in ("max", "min") and isinstance(gen.data[2], dict):
                gap = self.sub(po.gen(g), gen.data[2])
                found.append((gap if gen.data[0] == "max" else po.scaled(gap, -1), False))
        return found

    # --- powers ---

    def power_of(self, base: Value, e: Number) -> Value:
        if isinstance(base, dict) and e.denominator == 1 and e >= 0:
            return self.power(base, int(e))
        return self.on_each(lambda v: self._power(v, e), base)

    def _power(self, v: Value, e: Number) -> Value:
        if v == "oo":
            return "oo" if e > 0 else po.const(0)
        if isinstance(v, str):
            if v == "-oo" and e.denominator == 1:
                return po.const(0) if e < 0 else ("oo" if e % 2 == 0 else "-oo")
            return "nan"
        assert isinstance(v, dict)
        if not v:
            return "nan" if e < 0 else po.const(0)
        if e.denominator == 1 and e >= 0:
            return self.power(v, int(e))
        single = as_mono(v)
        if single is not None:
            return self._power_of_mono(*single, e)
        c, m, rest = self.primitive(v, e.denominator == 1)
        outer = self._power_of_mono(m, c, e)
        assert isinstance(outer, dict)
        g = self.keyed("base", rest, None, (rest,), self.axes(rest), self.decide(rest))
        return self.mul(outer, po.gen(g, e))

    def primitive(self, p: Poly, whole: bool) -> tuple[Number, Mono, Poly]:
        """p = c·m·q with q primitive; `whole`: every common factor leaves, else only those that are not negative."""
        c: Number = po.number(po.content(p))
        m = tuple((g, e) for g, e in po.common(p) if whole or not self.gens[g].sign & signs.NEG)
        if whole and self.leading_negative(p):
            c = -c
        q = {k: po.number(Fraction(x) / c) for k, x in self.mul(p, {po.inverse(m): 1}).items()}
        return c, m, q

    def _power_of_mono(self, m: Mono, c: Number, e: Number) -> Value:
        if e.denominator == 1:
            if c not in (1, -1):
                po.bounded(c, times=abs(int(e)))
            return {tuple((g, po.exponent(x * e)) for g, x in m): po.number(Fraction(c) ** int(e))}
        free = [(g, x) for g, x in m if not self.gens[g].sign & signs.NEG]
        even = [(g, x) for g, x in m if (g, x) not in free and x.denominator == 1 and x % 2 == 0]
        held = [x for x in m if x not in free and x not in even]
        if held and self.may(NONNEGATIVE):
            free, held = free + held, []
        outer: Poly = {tuple(sorted((g, po.exponent(x * e)) for g, x in free)): 1}
        for g, x in even:  # (t²)^q = |t|^2q
            outer = self.mul(outer, po.gen(self._fun("abs", po.gen(g)), po.exponent(x * e)))
        root = self.rational_root(c, e)
        if root is not None and not held:
            return po.scaled(outer, root)
        inner: Poly = {tuple(held): c}
        g = self.keyed("base", inner, None, (inner,), self.axes(inner), self.sign(inner))
        return self.mul(outer, po.gen(g, e))

    # --- exponentials and logarithms ---

    def exp(self, v: Value) -> Value:
        return self.on_each(self._exp, v)

    def _exp(self, v: Value) -> Value:
        if isinstance(v, str):
            return po.const(0) if v == "-oo" else v
        assert isinstance(v, dict)
        total: Value = po.const(1)
        for m, c in v.items():
            if len(m) == 1 and m[0][1] == 1 and self.gens[m[0][0]].kind == "log":
                total = self.by(total, self.power_of(self.gens[m[0][0]].data[0], c))
            else:
                g = self.new("exp", m, (m,), self.mono_axes(m), signs.POS)
                total = self.by(total, po.gen(g, po.exponent(c)))
        return total

    def log(self, v: Value) -> Value:
        return self.on_each(self._log, v)

    def _log(self, v: Value) -> Value:
        if isinstance(v, str):
            return "oo" if v == "oo" else "nan"
        assert isinstance(v, dict)
        if not v:
            return "-oo"
        single = as_mono(v)
        if single is None:
            c, m, rest = self.primitive(v, False)
            m = tuple((g, e) for g, e in m if self.gens[g].sign == signs.POS)
            rest = self.mul(v, {po.inverse(m): Fraction(1) / c})
            rest = {k: po.number(x) for k, x in rest.items()}
            return self.plus(self._log_of_number(c), self._log_of_mono(m, 1), self._log_atom(rest))
        return self._log_of_mono(*single)

    def _log_of_mono(self, m: Mono, c: Number) -> Value:
        parts: list[Value] = []
        held: list[tuple[int, Number]] = []
        for g, e in m:
            gen = self.gens[g]
            if gen.kind == "exp":
                parts.append({gen.data[0]: e})
            elif gen.sign == signs.POS or self.may(POSITIVE_LOGS):
                inner = gen.data[0] if gen.kind == "base" else po.gen(g)
                parts.append(self.by(po.const(e), self._log_atom(inner)))
            else:
                held.append((g, e))
        if held:
            parts.append(self._log_atom({tuple(held): 1 if c > 0 else -1}))
        elif c < 0:
            return "nan"
        return self.plus(*parts, self._log_of_number(po.magnitude(c)))

    def _log_atom(self, p: Poly) -> Poly:
        if p == po.const(1):
            return {}
        return po.gen(self.keyed("log", p, None, (p,), self.axes(p), signs.ANY))

    def _log_of_number(self, c: Number) -> Poly:
        """log of a positive rational over the logarithms of its primes (large cofactors stay whole)."""
        total: Poly = {}
        for value, sign in ((c.numerator, 1), (c.denominator, -1)):
            for prime, times in _factors(value):
                total = self.add(total, po.scaled(self._log_atom(po.const(prime)), sign * times))
        return total

    # --- other maps ---

    def fun(self, name: str, v: Value) -> Value:
        return self.on_each(lambda x: self._map(name, x), v)

    def _map(self, name: str, v: Value) -> Value:
        if isinstance(v, str):
            low, high = LIMITS.get(name, ("nan", "nan"))
            limit = high if v == "oo" else low if v == "-oo" else "nan"
            return limit if isinstance(limit, str) else po.const(limit)
        assert isinstance(v, dict)
        if name in ("abs", "relu", "sign"):
            known = self._by_sign(name, v)
            if known is not None:
                return known
            factor, v = self._scale_out(name, v)
            if factor != po.const(1):
                return self.by(factor, self._map(name, v))
        if v and self.leading_negative(v) and name in MIRRORED:
            mirrored = po.gen(self._fun(name, po.scaled(v, -1)))
            return self.add(*MIRRORED[name](v, po.scaled(mirrored, -1)))
        if name in ("sin", "cos"):
            return self._trigonometric_sum(name, v)
        if name in ("sinh", "cosh"):
            grow, fall = self.exp(v), self.exp(po.scaled(v, -1))
            return self.by(
                po.const(Fraction(1, 2)), self.plus(grow, self.by(po.const(1 if name == "cosh" else -1), fall))
            )
        if name == "expm1":
            return self.plus(self.exp(v), po.const(-1))
        if name == "log1p":
            return self.log(self.plus(v, po.const(1)))
        return po.gen(self._fun(name, v))

    def _fun(self, name: str, p: Poly) -> int:
        if name == "abs" and self.leading_negative(p):
            p = po.scaled(p, -1)
        return self.keyed("fun", p, name, (name, p), self.axes(p), SIGNS.get(name, signs.ANY))

    def _scale_out(self, name: str, v: Poly) -> tuple[Poly, Poly]:
        """|c·t| = |c|·|t|, relu(c·t) = c·relu(t) and sign(c·t) = sign(t) for the factors c that are not negative."""
        c, m, rest = self.primitive(v, name == "abs")
        if name == "sign":
            m = tuple((g, e) for g, e in m if self.gens[g].sign == signs.POS)
            return po.const(1), self.mul(v, {po.inverse(m): 1})
        if name == "relu" or len(v) > 1 or len(m) > 1 or m[0][1] != 1:
            factor: Poly = {(): po.magnitude(c)}
            for g, e in m:
                held = self.gens[g].sign & signs.NEG
                factor = self.mul(factor, po.gen(self._fun("abs", po.gen(g)) if held else g, e))
            if name == "relu" or len(rest) > 1:
                return factor, rest
            return factor, po.const(1)
        return {(): po.magnitude(c)}, {m: 1}

    def _by_sign(self, name: str, v: Poly) -> Poly | None:
        s = self.decide(v)
        if not s & signs.NEG:
            return v if name != "sign" else po.const(1) if s == signs.POS else None
        if not s & signs.POS:
            done = {"abs": po.scaled(v, -1), "relu": po.const(0)}
            return done.get(name) if name != "sign" else po.const(-1) if s == signs.NEG else None
        return None

    def _trigonometric_sum(self, name: str, v: Poly) -> Value:
        """Addition theorems, one term of the argument at a time."""
        if not v:
            return po.const(int(name == "cos"))
        spend(len(v))
        m = max(v)
        c, rest = v[m], {k: x for k, x in v.items() if k != m}
        unit: Poly = {m: po.magnitude(c)}
        pair = {}
        for f in ("sin", "cos"):
            pair[f] = po.gen(self.new("fun", (f, frozen(unit)), (f, unit), self.axes(unit), signs.ANY))
        sine = pair["sin"] if c > 0 else po.scaled(pair["sin"], -1)
        if not rest:
            return sine if name == "sin" else pair["cos"]
        s, k = self._trigonometric_sum("sin", rest), self._trigonometric_sum("cos", rest)
        if name == "sin":
            return self.plus(self.by(sine, k), self.by(pair["cos"], s))
        return self.plus(self.by(pair["cos"], k), self.by(po.const(-1), sine, s))


def as_mono(p: Poly) -> tuple[Mono, Number] | None:
    return next(iter(p.items())) if len(p) == 1 else None


def _factors(n: int) -> list[tuple[int, int]]:
    found, p = [], 2
    spend(n.bit_length())
    while p * p <= n and p < 2000:
        k = 0
        while n % p == 0:
            n, k = n // p, k + 1
        if k:
            found.append((p, k))
        p += 1
    return [*found, (n, 1)] if n > 1 else found
