"""Terms over the real numbers: what a term is worth, and where it has a value or an infinite one.

A term of a spec may hold ``oo``, ``-oo`` and ``nan``; SMT-LIB's reals do not. Every term becomes four terms that hold
none: its value as a real number, the condition under which it has a value at all (no division by 0, no logarithm or
root outside its domain, so no ``log 0``; no ``oo - oo``, ``0·oo``, ``nan``), and the conditions under which that value
is ``oo`` or ``-oo``. Variables are real numbers. What cannot be told apart this way raises `Unexpressed`.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

from redalg.proofs.document.functions import FUNCTIONS, evaluated
from redalg.proofs.document.terms import Reduction, Term, Terms, base, walk
from redalg.proofs.smt.logic import Logic, Lowered, Unexpressed

COMPARED, HALF = ("max", "min"), Fraction(1, 2)
COMPLEX = frozenset({"conj", "re", "im"})


class Lowering:
    """Lowers terms of a document into `terms`, a table of its own.

    `excuse_nan`: a written ``nan`` counts as a value (in hypotheses: nothing is true because both sides are ``nan``).
    `exact_casts`: roundings are left out, as the form assumes by name.
    """

    def __init__(self, terms: Terms, excuse_nan: bool = False, exact_casts: bool = False) -> None:
        self.t, self.logic = terms, Logic(terms)
        self.excuse_nan, self.exact_casts = excuse_nan, exact_casts
        self.done: dict[Term, Lowered] = {}

    def __call__(self, root: Term) -> Lowered:
        for term in walk(root):
            if term not in self.done:
                self.done[term] = self._lower(term, [self.done[a] for a in term.args])
        return self.done[root]

    def real(
        self, value: Term, defined: Term | None = None, high: Term | None = None, low: Term | None = None
    ) -> Lowered:
        g = self.logic
        return Lowered(value, defined or g.true, high or g.false, low or g.false)

    def _lower(self, term: Term, args: list[Lowered]) -> Lowered:
        op = term.op
        method = getattr(self, f"_{op}", None)
        if method is None and op in FUNCTIONS and op not in COMPLEX:
            written = FUNCTIONS[op].written
            return evaluated(written, _Formulas(self, term), *args) if written else self._opaque(term, args)
        if method is None:
            raise Unexpressed(f"the operation {term.op} has no statement over the real numbers here")
        return method(term, args)

    def finite(self, a: Lowered) -> Term:
        return self.logic.no(self.logic.any(a.high, a.low))

    def _defined(self, args: list[Lowered]) -> Term:
        return self.logic.all(*(a.defined for a in args))

    def _finite_only(self, term: Term, args: list[Lowered]) -> Term:
        if any(self.finite(a) is not self.logic.true for a in args):
            raise Unexpressed(f"{term.op} of what may be infinite")
        return self._defined(args)

    # --- leaves ---

    def _const(self, term: Term, args: list[Lowered]) -> Lowered:
        return self.real(self.t(term.op, attr=term.attr))

    _index = _true = _false = _const

    def _size(self, term: Term, args: list[Lowered]) -> Lowered:
        return self.real(self.t("size", attr=base(term.attr)))

    def _tensor(self, term: Term, args: list[Lowered]) -> Lowered:
        if "complex" in term.attr.domain:
            raise Unexpressed(f"{term.attr.name} is complex")
        return self.real(self.t(term.op, attr=term.attr))

    _state = _tensor

    def _special(self, term: Term, args: list[Lowered]) -> Lowered:
        g = self.logic
        if term.attr == "nan":
            return self.real(g.zero, g.true if self.excuse_nan else g.false)
        if term.attr in ("oo", "-oo"):
            up = term.attr == "oo"
            return self.real(g.zero, None, g.true if up else None, None if up else g.true)
        if term.attr == "pi":
            return self.real(self.t("special", attr="pi"))
        if term.attr == "e":
            return self.real(self.t("exp", g.one))
        raise Unexpressed(f"the constant {term.attr}")

    # --- arithmetic ---

    def _add(self, term: Term, args: list[Lowered]) -> Lowered:
        g = self.logic
        high, low = g.any(*(a.high for a in args)), g.any(*(a.low for a in args))
        value = self.t.add(*(a.value for a in args))
        return Lowered(value, g.all(self._defined(args), g.no(g.all(high, low))), high, low)

    def _mul(self, term: Term, args: list[Lowered]) -> Lowered:
        if all(self.finite(a) is self.logic.true for a in args):
            return self.real(self.t.mul(*(a.value for a in args)), self._defined(args))
        return reduce(self._times, args)

    def _times(self, a: Lowered, b: Lowered) -> Lowered:
        g = self.logic
        infinite = g.any(a.high, a.low, b.high, b.low)
        alike = g.any(g.all(self._above(a), self._above(b)), g.all(self._below(a), self._below(b)))
        nought = g.any(*(g.all(self.finite(x), self.t("eq", x.value, g.zero)) for x in (a, b)))
        defined = g.all(a.defined, b.defined, g.no(g.all(infinite, nought)))
        high, low = g.all(infinite, alike), g.all(infinite, g.no(alike))
        return Lowered(self.t.mul(a.value, b.value), defined, high, low)

    def _above(self, a: Lowered) -> Term:
        positive = self.t("lt", self.logic.zero, a.value)
        if a.value.op == "const":
            positive = self.logic.true if a.value.attr > 0 else self.logic.false
        return self.logic.any(a.high, self.logic.all(self.finite(a), positive))

    def _below(self, a: Lowered) -> Term:
        negative = self.t("lt", a.value, self.logic.zero)
        if a.value.op == "const":
            negative = self.logic.true if a.value.attr < 0 else self.logic.false
        return self.logic.any(a.low, self.logic.all(self.finite(a), negative))

    def _pow(self, term: Term, args: list[Lowered]) -> Lowered:
        g, t = self.logic, self.t
        base, e = args
        if e.value.op != "const" or self.finite(e) is not g.true:
            defined = self._finite_only(term, args)
            known = g.any(t("lt", g.zero, base.value), t("power_defined", base.value, e.value))
            return self.real(t("power", base.value, e.value), g.all(defined, known))
        exponent = e.value.attr
        if exponent.denominator == 1 and exponent >= 0:
            return self._whole_power(base, int(exponent))
        needed = "ne" if exponent.denominator == 1 else "lt" if exponent < 0 else "le"
        order = t(needed, base.value, g.zero) if needed == "ne" else t(needed, g.zero, base.value)
        value = base.value if exponent.denominator == 1 else t("root", base.value, attr=exponent.denominator)
        value = t("pow", value, t.const(exponent.numerator)) if exponent.numerator != 1 else value
        if exponent.denominator > 1:
            finite = g.all(g.no(base.low), g.any(base.high, order))
        else:
            finite = g.any(base.high, base.low, order)
        defined = g.all(base.defined, finite)
        infinite = g.any(base.high, base.low)
        if exponent < 0:
            return self.real(g.when(infinite, g.zero, value), defined)
        return self.real(value, defined, base.high)

    def _whole_power(self, base: Lowered, n: int) -> Lowered:
        if n == 0:
            return self.real(self.logic.one, base.defined)
        value = base.value if n == 1 else self.t("pow", base.value, self.t.const(n))
        if n % 2 or base.low is self.logic.false:
            return Lowered(value, base.defined, base.high, base.low)
        return Lowered(value, base.defined, self.logic.any(base.high, base.low), self.logic.false)

    def _maximum(self, term: Term, args: list[Lowered]) -> Lowered:
        return reduce(lambda a, b: self._extreme(term.op, a, b), args)

    _minimum = _maximum

    def _extreme(self, op: str, a: Lowered, b: Lowered) -> Lowered:
        g = self.logic
        both = self.t(op, a.value, b.value)
        defined = g.all(a.defined, b.defined)
        if op == "maximum":
            value = g.when(a.low, b.value, g.when(b.low, a.value, both))
            return Lowered(value, defined, g.any(a.high, b.high), g.all(a.low, b.low))
        value = g.when(a.high, b.value, g.when(b.high, a.value, both))
        return Lowered(value, defined, g.all(a.high, b.high), g.any(a.low, b.low))

    # --- maps ---

    def _exp(self, term: Term, args: list[Lowered]) -> Lowered:
        (a,) = args
        return self.real(self.logic.when(a.low, self.logic.zero, self.t("exp", a.value)), a.defined, a.high)

    def _log(self, term: Term, args: list[Lowered]) -> Lowered:
        (a,) = args
        inside = self.logic.any(a.high, self.t("lt", self.logic.zero, a.value))
        return self.real(self.t("log", a.value), self.logic.all(a.defined, self.logic.no(a.low), inside), a.high)

    def _log1p(self, term: Term, args: list[Lowered]) -> Lowered:
        (a,) = args
        return self._log(term, [a._replace(value=self.t.add(self.logic.one, a.value))])

    def _expm1(self, term: Term, args: list[Lowered]) -> Lowered:
        e = self._exp(term, args)
        return e._replace(value=self.t.add(e.value, self.t.const(-1)))

    def _abs(self, term: Term, args: list[Lowered]) -> Lowered:
        (a,) = args
        return self.real(self.t("abs", a.value), a.defined, self.logic.any(a.high, a.low))

    def _relu(self, term: Term, args: list[Lowered]) -> Lowered:
        (a,) = args
        return self._extreme("maximum", self.real(self.logic.zero), a)

    def _sign(self, term: Term, args: list[Lowered]) -> Lowered:
        g, (a,) = self.logic, args
        return self.real(g.when(a.high, g.one, g.when(a.low, self.t.const(-1), self.t("sign", a.value))), a.defined)

    def _sigmoid(self, term: Term, args: list[Lowered]) -> Lowered:
        """1/(1 + exp(-x))."""
        g, t, (a,) = self.logic, self.t, args
        e = t("exp", t.mul(t.const(-1), a.value))
        value = t("pow", t.add(g.one, e), t.const(-1))
        return self.real(g.when(a.high, g.one, g.when(a.low, g.zero, value)), a.defined)

    def _halves(self, a: Lowered) -> tuple[Term, Term]:
        """exp x and exp(-x)."""
        return self.t("exp", a.value), self.t("exp", self.t.mul(self.t.const(-1), a.value))

    def _tanh(self, term: Term, args: list[Lowered]) -> Lowered:
        g, t, (a,) = self.logic, self.t, args
        return self.real(g.when(a.high, g.one, g.when(a.low, t.const(-1), t("tanh", a.value))), a.defined)

    def _sinh(self, term: Term, args: list[Lowered]) -> Lowered:
        t, (a,) = self.t, args
        up, down = self._halves(a)
        value = t.mul(t.const(HALF), t.sub(up, down))
        return Lowered(value, a.defined, a.high, a.low)

    def _cosh(self, term: Term, args: list[Lowered]) -> Lowered:
        t, (a,) = self.t, args
        up, down = self._halves(a)
        return self.real(t.mul(t.const(HALF), t.add(up, down)), a.defined, self.logic.any(a.high, a.low))

    def _opaque(self, term: Term, args: list[Lowered]) -> Lowered:
        if term.op == "cast" and self.exact_casts and term.attr != "bool":
            return args[0]
        defined = self._finite_only(term, args)
        if term.op in ("tan", "cast") or FUNCTIONS[term.op].domain:
            defined = self.logic.all(defined, self.t(f"{term.op}_defined", *(a.value for a in args), attr=term.attr))
        return self.real(self.t(term.op, *(a.value for a in args), attr=term.attr), defined)

    _cast = _opaque

    # --- conditions ---

    def _where(self, term: Term, args: list[Lowered]) -> Lowered:
        g = self.logic
        c, a, b = args
        either = [g.when(c.value, x, y) for x, y in zip(a[1:], b[1:], strict=True)]
        defined, high, low = either
        if a.value.is_boolean:
            value = g.when(c.value, a.value, b.value)
        elif g.any(a.high, a.low) is g.true or a.defined is g.false:
            value = b.value
        elif g.any(b.high, b.low) is g.true or b.defined is g.false:
            value = a.value
        else:
            value = g.when(c.value, a.value, b.value)
        return Lowered(value, g.all(c.defined, defined), high, low)

    def _lt(self, term: Term, args: list[Lowered]) -> Lowered:
        g, (a, b) = self.logic, args
        value = self.t(term.op, a.value, b.value)
        if g.true is self.finite(a) is self.finite(b):
            return self.real(value, self._defined(args))
        inside = g.all(self.finite(a), self.finite(b), value)
        strict = g.any(g.all(a.low, g.no(b.low)), g.all(b.high, g.no(a.high)))
        if term.op == "le":
            strict = g.any(a.low, b.high)
        return self.real(g.any(strict, inside), self._defined(args))

    _le = _lt

    def _eq(self, term: Term, args: list[Lowered]) -> Lowered:
        value = self.same(*args)
        return self.real(value if term.op == "eq" else self.logic.no(value), self._defined(args))

    _ne = _eq

    def same(self, a: Lowered, b: Lowered) -> Term:
        """The two are the same number, infinity or truth value."""
        g = self.logic
        if a.value.is_boolean != b.value.is_boolean:
            raise Unexpressed("a condition is compared with a number")
        value = self.t("eq", a.value, b.value)
        if g.true is self.finite(a) is self.finite(b):
            return value
        return g.any(g.all(a.high, b.high), g.all(a.low, b.low), g.all(self.finite(a), self.finite(b), value))

    def _and(self, term: Term, args: list[Lowered]) -> Lowered:
        g = self.logic
        decided = [g.all(a.defined, g.no(a.value) if term.op == "and" else a.value) for a in args]
        defined = self._defined(args)
        if defined is not g.true:
            defined = g.any(defined, *(d for a, d in zip(args, decided, strict=True)))
        join = g.all if term.op == "and" else g.any
        return self.real(join(*(a.value for a in args)), defined)

    _or = _and

    def _not(self, term: Term, args: list[Lowered]) -> Lowered:
        return self.real(self.logic.no(args[0].value), args[0].defined)

    # --- reductions ---

    def _reduce(self, term: Term, args: list[Lowered]) -> Lowered:
        g, t = self.logic, self.t
        kind, axes = term.attr.kind, term.attr.axes
        if any(base(a) != a for a in axes):
            renamed = self._named_again(axes, args)
            if renamed is not None:
                term, args = (
                    t("reduce", *(a.value for a in renamed[1]), attr=term.attr._replace(axes=renamed[0])),
                    renamed[1],
                )
                axes = term.attr.axes
        defined = g.every(axes, self._defined(args))
        if kind in ("any", "all"):
            (a,) = args
            return self.real((g.some if kind == "any" else g.every)(axes, a.value), defined)
        if kind in COMPARED:
            return self._extremum(term, args[0], defined)
        if kind == "sum":
            (a,) = args
            high, low = g.some(axes, a.high), g.some(axes, a.low)
            return Lowered(t.reduce("sum", axes, a.value), g.all(defined, g.no(g.all(high, low))), high, low)
        return self._list(term, args, defined)

    def _named_again(self, axes: tuple[str, ...], args: list[Lowered]) -> tuple[tuple[str, ...], list[Lowered]] | None:
        """Bound axes d~1 and d' under the name d, which they are other names of, where d is free for it."""
        names = {a: base(a) for a in axes if base(a) != a}
        after = tuple(names.get(a, a) for a in axes)
        inside = {x for a in args for part in a for x in part.axes}
        if len(set(after)) < len(after) or inside & set(names.values()):
            return None
        return after, [Lowered(*(self.t.renamed(part, names) for part in a)) for a in args]

    def _extremum(self, term: Term, a: Lowered, defined: Term) -> Lowered:
        """The largest of the finite values, where there is one; -oo where every value is, oo where some value is."""
        g, t, axes = self.logic, self.t, term.attr.axes
        up = term.attr.kind == "max"
        outer, inner = (a.high, a.low) if up else (a.low, a.high)
        bodies = (a.value,) if self.finite(a) is g.true else (a.value, self.finite(a))
        value = t.reduce(term.attr.kind, axes, *bodies)
        some, every = g.some(axes, outer), g.every(axes, inner)
        if some is not g.false and every is not g.false:
            every = g.all(every, g.no(some))
        return Lowered(value, defined, *((some, every) if up else (every, some)))

    def _list(self, term: Term, args: list[Lowered], defined: Term) -> Lowered:
        """Products, positions, lists and monoids: functions of the values, their infinities and nothing else."""
        r: Reduction = term.attr
        if r.kind in ("prod", "monoid"):
            self._finite_only(term, args)
        finite = all(self.finite(a) is self.logic.true for a in args)
        bodies = [x for a in args for x in ((a.value,) if finite else (a.value, a.high, a.low))]

        def of(kind: str) -> Term:
            return self.t("reduce", *bodies, attr=Reduction(kind, r.axes, r.extra))

        if r.kind == "topk_values":  # the places of a list that is too short
            return self.real(of(r.kind), defined, self._flag(of("topk_high")), self._flag(of("topk_low")))
        return self.real(of(r.kind), defined)

    def _flag(self, value: Term) -> Term:
        """A condition that only a reduction knows, as a number that is not 0."""
        return self.t("ne", value, self.logic.zero)


class _Formulas:
    """Formulas of the table of functions, lowered."""

    def __init__(self, low: Lowering, term: Term) -> None:
        self.low, self.term = low, term

    def number(self, value: Fraction) -> Lowered:
        return self.low.real(self.low.t.const(value))

    def pi(self) -> Lowered:
        return self.low.real(self.low.t("special", attr="pi"))

    def plus(self, a: Lowered, b: Lowered) -> Lowered:
        return self.low._add(self.term, [a, b])

    def times(self, a: Lowered, b: Lowered) -> Lowered:
        return self.low._mul(self.term, [a, b])

    def power(self, base: Lowered, exponent: Fraction) -> Lowered:
        return self.low._pow(self.term, [base, self.number(exponent)])

    def call(self, name: str, x: Lowered) -> Lowered:
        found: Lowered = getattr(self.low, f"_{name}")(self.term, [x])
        return found
