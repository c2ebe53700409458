"""Maps of reals in normal form: powers, exponentials, logarithms and the others.

Where a rule needs a condition (a positive factor under a logarithm), the condition is read off signs, or it is one of
the document's named assumptions, which is then recorded as used.
"""

from __future__ import annotations

from fractions import Fraction

from redalg.proofs.checker import inequalities as signs
from redalg.proofs.checker import polynomial as po
from redalg.proofs.checker.generators import Value, frozen
from redalg.proofs.checker.polynomial import Mono, Number, Poly
from redalg.proofs.checker.signed import Signed, as_mono
from redalg.proofs.document.functions import FUNCTIONS, RISES, STRICTLY, evaluated
from redalg.proofs.document.work import spend

POSITIVE_LOGS, NONNEGATIVE = "positive_log_arguments", "nonnegative_factors"
# Maps that are values of their own here, not written in terms of others.
STRICT = frozenset(name for name, row in FUNCTIONS.items() if row.rises == STRICTLY and name not in ("exp", "log"))
WEAK = frozenset(name for name, row in FUNCTIONS.items() if row.rises == RISES)
SIGNS = {name: signs.POS if row.sign == "positive" else signs.NONNEG for name, row in FUNCTIONS.items() if row.sign}


def _limit(text: str) -> Value:
    return text if text in ("oo", "-oo", "nan", "?") else po.const(Fraction(text))


def _mirrored(rule: str, minus: Poly) -> tuple[Poly, ...]:
    """f(t) for t with a negative leading term, from -f(-t): one form for both."""
    return (minus,) if rule == "-y" else (po.const(1), minus)


class Maps(Signed):
    """Constructors of values."""

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
            return "?" if e < 0 else po.const(0)
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
        c = po.content(p)
        m = tuple((g, e) for g, e in po.common(p) if whole or not self.gens[g].sign & signs.NEG)
        if whole and self.leading_negative(p):
            c = -c
        return c, m, po.quotients(self.mul(p, {po.inverse(m): 1}), c)

    def _power_of_mono(self, m: Mono, c: Number, e: Number) -> Value:
        if e.denominator == 1:
            if c not in (1, -1):
                po.bounded(c, times=abs(int(e)))
            return {tuple((g, po.exponent(x * e)) for g, x in m): po.number(Fraction(c) ** int(e))}
        outer, held = self._rooted(m, e)
        root = self.rational_root(c, e)
        if root is not None and not held:
            return po.scaled(outer, root)
        inner: Poly = {held: c}
        g = self.keyed("base", inner, None, (inner,), self.axes(inner), self.sign(inner))
        return self.mul(outer, po.gen(g, e))

    def _rooted(self, m: Mono, e: Number) -> tuple[Poly, Mono]:
        """(a^e, b) with m = a·b, where a is the factors that are certainly not negative, or may be assumed to be so."""
        free = [(g, x) for g, x in m if not self.gens[g].sign & signs.NEG]
        even = [(g, x) for g, x in m if (g, x) not in free and x.denominator == 1 and x % 2 == 0]
        held = [x for x in m if x not in free and x not in even]
        if held and self.may(NONNEGATIVE):
            free, held = free + held, []
        outer: Poly = {tuple(sorted((g, po.exponent(x * e)) for g, x in free)): 1}
        for g, x in even:  # (t²)^q = |t|^2q
            outer = self.mul(outer, po.gen(self._fun("abs", po.gen(g)), po.exponent(x * e)))
        return outer, tuple(held)

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
                g = self.new("exp", m, (m,), self.mono_axes(m), self._sign_of_exp(m))
                total = self.by(total, po.gen(g, po.exponent(c)))
        return total

    def _sign_of_exp(self, m: Mono) -> int:
        """e^(y·log x) is x^y, which is 0 at x = 0; every other exponential is positive."""
        logs = (self.gens[g].data[0] for g, _ in m if self.gens[g].kind == "log")
        positive = all(self.decide(p) == signs.POS for p in logs) or self.may(POSITIVE_LOGS)
        return signs.POS if positive else signs.NONNEG

    def to_the_power(self, base: Value, e: Value) -> Value:
        """base^e for an exponent that is no constant: e^(e·log base) where the base is not negative.

        (c·t)^e = c^e·t^e for c > 0; the power of a base t of unknown sign (which has a value where e is whole) is kept
        as it is.
        """
        return self.on_both(lambda a, b: self._to_the_power(a, b), base, e)

    def _to_the_power(self, base: Value, e: Value) -> Value:
        if not isinstance(base, dict) or not isinstance(e, dict) or not base:
            return "?"
        if self.first_indicator(base) is not None or self.first_indicator(e) is not None:
            g = min(x for x in (self.first_indicator(base), self.first_indicator(e)) if x is not None)
            sides = [self._to_the_power(self.cofactor(base, g, k), self.cofactor(e, g, k)) for k in (1, 0)]
            return self.case(g, *sides)
        constant = po.as_constant(e)
        if constant is not None:
            return self.power_of(base, constant)
        if not self.decide(base) & signs.NEG or self.may(POSITIVE_LOGS):
            return self.exp(self.by(e, self.log(base)))
        m = tuple((g, x) for g, x in po.common(base) if self.gens[g].sign == signs.POS)
        outer: Poly = {m: po.content(base)}
        rest = po.quotients(self.mul(base, {po.inverse(m): 1}), outer[m])
        return self.by(self.exp(self.by(e, self.log(outer))), *(self._power_atom(rest, {k: c}) for k, c in e.items()))

    def _power_atom(self, base: Poly, e: Poly) -> Value:
        """base^e, e of one term: (s·t)^e = s^e·t^e and t^(d + e) = t^d·t^e wherever all of them have a value."""
        if po.as_constant(e) is not None:
            return self.power_of(base, e[()])
        ((k, times),) = e.items()
        if times < 0:
            return self.power_of(self._power_atom(base, {k: -times}), -1)
        single = as_mono(base)
        whole = single is not None and all(x.denominator == 1 for _, x in single[0])
        if single is None or not whole or (len(single[0]) < 2 and single == (single[0], 1) and single[0][0][1] == 1):
            g = self.new("power", (frozen(base), frozen(e)), (base, e), self.axes(base) | self.axes(e), signs.ANY)
            return po.gen(g)
        m, c = single
        if not m:
            g = self.new("power", (frozen(base), frozen(e)), (base, e), self.axes(e), signs.ANY)
            return po.gen(g)
        parts = [self.power_of(self._power_atom(po.gen(g), e), x) for g, x in m]
        return self.by(*parts, *([self._power_atom(po.const(c), e)] if c != 1 else []))

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
            return "?"  # under an assumption its factors may be negative after all
        return self.plus(*parts, self._log_of_number(po.magnitude(c)))

    def _log_atom(self, p: Poly) -> Poly:
        if p == po.const(1):
            return {}
        constant = po.as_constant(p)
        sign = signs.POS if constant is not None and constant > 1 else signs.ANY
        return po.gen(self.keyed("log", p, None, (p,), self.axes(p), sign))

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
            row = FUNCTIONS[name]
            return _limit(row.high if v == "oo" else row.low if v == "-oo" else "nan")
        assert isinstance(v, dict)
        if name in ("abs", "relu", "sign"):
            known = self._by_sign(name, v)
            if known is not None:
                return known
            factor, v = self._scale_out(name, v)
            if factor != po.const(1):
                return self.by(factor, self._map(name, v))
        row = FUNCTIONS[name]
        if row.written:
            return evaluated(row.written, _Written(self), v)
        if v and self.leading_negative(v) and row.mirror:
            mirrored = po.gen(self._fun(name, po.scaled(v, -1)))
            return self.add(*_mirrored(row.mirror, po.scaled(mirrored, -1)))
        return self._trigonometric_sum(name, v) if name in ("sin", "cos") else po.gen(self._fun(name, v))

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


class _Written:
    """Formulas of the table as normal forms."""

    def __init__(self, maps: Maps) -> None:
        self.maps = maps
        self.plus, self.times, self.power = maps.plus, maps.by, maps.power_of

    def number(self, value: Fraction) -> Value:
        return po.const(po.number(value))

    def pi(self) -> Value:
        return "?"

    def call(self, name: str, x: Value) -> Value:
        rule = {"exp": self.maps.exp, "log": self.maps.log}.get(name)
        return self.maps.fun(name, x) if rule is None else rule(x)


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
