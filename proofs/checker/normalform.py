"""The normal form of terms: rational functions, exponentials, logarithms, cases and reductions over exact rationals.

Sums over an axis are linear: Σ_j of a polynomial is a polynomial in atoms Σ_j (monomial in j), with everything that
does not depend on j in front. Extrema let go of what does not depend on j and of increasing maps. Two terms with the
same normal form are equal wherever both have values; the converse is not claimed.
"""

from __future__ import annotations

from collections.abc import Callable

from redalg.proofs.checker import inequalities as signs
from redalg.proofs.checker import polynomial as po
from redalg.proofs.checker.generators import Value, frozen
from redalg.proofs.checker.orders import Orders
from redalg.proofs.checker.polynomial import Unknown
from redalg.proofs.document.intervals import ends
from redalg.proofs.document.terms import COUNTED, Term, base
from redalg.proofs.document.work import spend

CASTS = ("cast_commutes", "cast_left_out")


_ASKS = frozenset({"and", "or", "not", "where", "reduce"})


def _truths(t: Term) -> tuple[Term, ...]:
    """The arguments that must be truths: the normal form of a condition is 0 or 1, and `and` is a product."""
    if t.op in ("and", "or", "not"):
        return t.args
    if t.op == "where":
        return t.args[:1]
    return t.args if t.op == "reduce" and t.attr.kind in ("any", "all") else ()


class Normal(Orders):
    """Normal forms of the terms of one document, with each term's computed once."""

    def __init__(self, assumed: frozenset[str] = frozenset(), finite: bool = False) -> None:
        super().__init__(assumed, finite)
        self.done: dict[Term, Value] = {}

    def __call__(self, root: Term) -> Value:
        done, stack, steps = self.done, [root], 0
        while stack:
            t = stack[-1]
            if t in done:
                stack.pop()
                continue
            missing = [a for a in t.args if a not in done]
            if missing:
                stack += missing[::-1]
                continue
            stack.pop()
            steps += 1 + len(t.args)
            if steps > COUNTED:
                spend(steps)
                steps = 0
            done[t] = self._value(t)
        spend(steps)
        return done[root]

    def _value(self, t: Term) -> Value:
        args = [self.done[a] for a in t.args]
        if t.op in _ASKS and not all(a.is_boolean for a in _truths(t)):
            raise Unknown(f"{t.op} of a number, where a truth is expected")
        rule = _RULES.get(t.op)
        return self.fun(t.op, args[0]) if rule is None else rule(self, t, args)

    def _raised(self, base: Value, exponent: Value) -> Value:
        constant = po.as_constant(exponent) if isinstance(exponent, dict) else None
        return self.to_the_power(base, exponent) if constant is None else self.power_of(base, constant)

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

    def _compared(self, t: Term, args: list[Value]) -> Value:
        """[a = b] of two numbers, or of two truths."""
        boolean = t.args[0].is_boolean and t.args[1].is_boolean
        return self.alike(*args) if boolean else self.equal(*args)

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


_RULES: dict[str, Callable[[Normal, Term, list[Value]], Value]] = {  # a map of reals has none
    **dict.fromkeys(("const", "special", "true", "false"), lambda n, t, args: n._constant(t)),
    **dict.fromkeys(("tensor", "state", "index", "size"), lambda n, t, args: n._leaf(t)),
    **dict.fromkeys(("maximum", "minimum"), lambda n, t, args: n.extremum(t.op, args)),
    "add": lambda n, t, args: n.plus(*args),
    "mul": lambda n, t, args: n.by(*args),
    "pow": lambda n, t, args: n._raised(*args),
    "exp": lambda n, t, args: n.exp(*args),
    "log": lambda n, t, args: n.log(*args),
    "cast": lambda n, t, args: n._cast(t.attr, *args),
    "where": lambda n, t, args: n.choose(*args),
    "and": lambda n, t, args: n.by(*args),
    "or": lambda n, t, args: n.negated(n.by(*map(n.negated, args))),
    "not": lambda n, t, args: n.negated(*args),
    "eq": lambda n, t, args: n._compared(t, args),
    "ne": lambda n, t, args: n.negated(n._compared(t, args)),
    "lt": lambda n, t, args: n.on_both(n.less, *args),
    "le": lambda n, t, args: n.negated(n.on_both(n.less, *reversed(args))),
    "reduce": lambda n, t, args: n._reduce(t.attr.kind, tuple(t.attr.axes), args, t.attr.extra),
}
