"""The normal form of terms: rational functions, exponentials, logarithms, cases and reductions over exact rationals.

Sums over an axis are linear: Σ_j of a polynomial is a polynomial in atoms Σ_j (monomial in j), with everything that
does not depend on j in front. Extrema let go of what does not depend on j and of increasing maps. Two terms with the
same normal form are equal wherever both have values; the converse is not claimed.
"""

from __future__ import annotations

from redalg.proofs import inequalities as signs
from redalg.proofs import polynomial as po
from redalg.proofs.generators import Value, frozen
from redalg.proofs.intervals import ends
from redalg.proofs.orders import Orders
from redalg.proofs.polynomial import Unknown
from redalg.proofs.terms import Term, base, walk

CASTS = ("cast_commutes", "cast_left_out")


def _truths(t: Term) -> tuple[Term, ...]:
    """The arguments that must be truths: the normal form of a condition is 0 or 1, and `and` is a product."""
    if t.op in ("and", "or", "not"):
        return t.args
    if t.op == "where":
        return t.args[:1]
    return t.args if t.op == "reduce" and t.attr.kind in ("any", "all") else ()


class Normal(Orders):
    """Normal forms of the terms of one document, with each term's computed once."""

    def __init__(self, assumed: frozenset[str] = frozenset()) -> None:
        super().__init__(assumed)
        self.done: dict[Term, Value] = {}

    def __call__(self, root: Term) -> Value:
        for t in walk(root, until=self.done.__contains__):
            if t not in self.done:
                self.done[t] = self._value(t)
        return self.done[root]

    def _value(self, t: Term) -> Value:
        args = [self.done[a] for a in t.args]
        if not all(a.is_boolean for a in _truths(t)):
            raise Unknown(f"{t.op} of a number, where a truth is expected")
        if t.op in ("const", "special", "true", "false"):
            return self._constant(t)
        if t.op in ("tensor", "state", "index", "size"):
            return self._leaf(t)
        if t.op == "add":
            return self.plus(*args)
        if t.op == "mul":
            return self.by(*args)
        if t.op == "pow":
            exponent = po.as_constant(args[1]) if isinstance(args[1], dict) else None
            if exponent is not None:
                return self.power_of(args[0], exponent)
            return self.to_the_power(args[0], args[1])
        if t.op in ("exp", "log"):
            return self.exp(args[0]) if t.op == "exp" else self.log(args[0])
        if t.op in ("maximum", "minimum"):
            return self.extremum(t.op, args)
        if t.op == "cast":
            return self._cast(t.attr, args[0])
        if t.op == "reduce":
            return self._reduce(t.attr.kind, tuple(t.attr.axes), args, t.attr.extra)
        logical = self._logical(t, args)
        return self.fun(t.op, args[0]) if logical is None else logical

    def _constant(self, t: Term) -> Value:
        if t.op == "const":
            return po.const(t.attr)
        if t.op in ("true", "false"):
            return po.const(int(t.op == "true"))
        if t.attr in ("oo", "-oo", "nan"):
            return str(t.attr)
        if t.attr == "e":
            return self.exp(po.const(1))
        if t.attr == "i":
            raise Unknown("complex numbers")
        return po.gen(self.new("leaf", t.attr, ("special", t.attr), (), signs.POS if t.attr == "pi" else signs.ANY))

    def _leaf(self, t: Term) -> Value:
        if t.op in ("index", "size"):
            sign = signs.POS if t.op == "size" else signs.NONNEG
            axes, what = ((t.attr,), t.attr) if t.op == "index" else ((), base(t.attr))
            return po.gen(self.new("leaf", (t.op, what), (t.op, what), axes, sign))
        domain = t.attr.domain
        if "complex" in domain:
            raise Unknown("complex numbers")
        if "bool" in domain:
            return po.gen(self.new("truth", (t.op, t.attr), (t.op, t.attr), t.attr.axes, signs.NONNEG))
        sign = signs.POS if "positive" in domain else signs.NONNEG if "nonnegative" in domain else signs.ANY
        # the same name with another domain is the same leaf: a domain is a claim about it
        key = (t.op, t.attr.name, t.attr.axes)
        found = self.new("leaf", key, (t.op, t.attr), t.attr.axes, sign)
        if self.gens[found].sign != sign or ends(self.gens[found].data[1].domain) != ends(domain):
            raise Unknown(f"{t.attr.name} is declared with two domains")
        return po.gen(found)

    # --- conditions ---

    def _logical(self, t: Term, args: list[Value]) -> Value | None:
        if t.op == "where":
            return self.choose(args[0], args[1], args[2])
        if t.op in ("and", "or"):
            if t.op == "and":
                return self.by(*args)
            return self.negated(self.by(*map(self.negated, args)))
        if t.op == "not":
            return self.negated(args[0])
        if t.op in ("eq", "ne"):
            boolean = t.args[0].is_boolean and t.args[1].is_boolean
            same = self.alike(*args) if boolean else self.equal(*args)
            return same if t.op == "eq" else self.negated(same)
        if t.op in ("lt", "le"):
            low, high = args if t.op == "lt" else args[::-1]
            found = self.on_both(self.less, low, high)
            return found if t.op == "lt" else self.negated(found)
        return None

    def _cast(self, dtype: str, v: Value) -> Value:
        if dtype == "bool":  # no rounding: which numbers are not 0
            return self.on_each(lambda x: self.negated(self.equal(x, {})) if isinstance(x, dict) else "?", v)
        if any(a in self.assumed for a in CASTS):
            self.used |= self.assumed & set(CASTS)
            return v
        return self.on_each(lambda x: po.gen(self._fun(f"cast:{dtype}", x)) if isinstance(x, dict) else x, v)

    # --- reductions ---

    def _reduce(self, kind: str, axes: tuple[str, ...], args: list[Value], extra: object) -> Value:
        if kind == "sum":
            return self.sum(axes, args[0])
        if kind == "prod":
            return self.product(axes, args[0])
        if kind in ("any", "all"):
            return self.any(axes, args[0]) if kind == "any" else self.negated(self.any(axes, self.negated(args[0])))
        if kind == "monoid":
            keys = tuple(frozen(a) for a in args)
            free = frozenset().union(*map(self.axes, args)) - set(axes)
            data = (kind, axes, tuple(args), extra)
            return po.gen(self.new("reduce", (kind, axes, keys, extra), data, free, signs.ANY))
        return self.order(kind, axes, args[0], extra)
