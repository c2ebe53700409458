"""Products, any and all: splitting by conditions and factors, comparisons decided by extrema (theory, section 2)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono
from redalg.algebra.scope import Scope, Trace
from redalg.algebra.signs import Signs
from redalg.engine.rules.conditions import ENTIRE
from redalg.engine.rules.separate import Separator
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.graph.plan import COUNT


class CannotPull(Exception):
    """No law applies: `node` mixes elements and stage values in a way that is not monotone."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(why)
        self.node, self.why = node, why


class SlotMaker(Protocol):
    def __call__(
        self, kind: str, *lift: Node, ignore_nan: bool = False, extra: Any = None, varying: Mono | None = None
    ) -> Node: ...


class RatioMaker(Protocol):
    def __call__(self, varying: Node, fixed: Node, mask: Node | None, count: Node) -> Node | None: ...


class Quantifiers:
    """Part of `redalg.engine.rules.monotone.Puller`."""

    separator: Separator
    slot: SlotMaker
    ratio: RatioMaker
    scope: Scope
    signs: Signs
    trace: Trace
    if TYPE_CHECKING:
        extremum: Callable[..., Node]

    # --- any and all ---

    def quantifier(self, kind: str, body: Node, mask: Node | None = None) -> Node:
        if not self.scope.varies(body) and mask is None:
            return body
        if not self.scope.uses(body):
            held = body if mask is None else self._under(kind, mask, body)
            return self.slot(kind, held)
        op = body.op
        if op == "not":
            return g.negate(self.quantifier({"any": "all", "all": "any"}[kind], body.args[0], mask))
        if op == {"any": "or", "all": "and"}[kind]:
            self.trace.rule(f"{kind} splits over {op}")
            return g.logical(op, *(self.quantifier(kind, a, mask) for a in body.args))
        rule = self._QUANTIFIED.get(op)
        if rule is None:
            raise CannotPull(body, f"{kind} of a mixed {op}")
        return rule(self, kind, body, mask)

    @staticmethod
    def _under(kind: str, mask: Node, body: Node) -> Node:
        return g.logical("and", mask, body) if kind == "any" else g.logical("or", g.negate(mask), body)

    def _junction(self, kind: str, body: Node, mask: Node | None) -> Node:
        """any(c(x) and d(D) and rest): d leaves, c masks the rest (dually for all and or)."""
        fixed = [a for a in body.args if not self.scope.varies(a)]
        pure = [a for a in body.args if self.scope.varies(a) and not self.scope.uses(a)]
        mixed = [a for a in body.args if self.scope.mixed(a)]
        if len(mixed) > 1:
            raise CannotPull(body, f"{kind} of several mixed conditions at once")
        guards = pure if kind == "any" else [g.negate(a) for a in pure]
        held = g.logical("and", *guards, *([mask] if mask is not None else []))
        self.trace.rule("a condition on elements masks, a condition on stage values leaves the quantifier")
        if mixed:
            inner = self.quantifier(kind, mixed[0], None if held is g.TRUE else held)
        else:
            inner = self.slot(kind, held if kind == "any" else g.negate(held))
        return g.logical(body.op, *fixed, inner)

    def _choice(self, kind: str, body: Node, mask: Node | None) -> Node:
        c, a, b = body.args
        if not self.scope.varies(c):
            return g.where(c, self.quantifier(kind, a, mask), self.quantifier(kind, b, mask))
        if self.scope.uses(c):
            raise CannotPull(c, "a mixed condition")
        with_mask = [g.logical("and", x, *([mask] if mask is not None else [])) for x in (c, g.negate(c))]
        parts = [self.quantifier(kind, x, m) for x, m in zip((a, b), with_mask, strict=True)]
        return g.logical("or" if kind == "any" else "and", *parts)

    def _order(self, kind: str, body: Node, mask: Node | None) -> Node:
        """any(a < b) is min a < b; a max that ignores NaN decides, since comparisons with NaN are false."""
        a, b = body.args
        if kind == "all":  # NaN makes a comparison false: all(a < b) also needs every element to be ordered
            if a is b:
                return self._numbers(a, mask)
            ordered = self.quantifier("all", _reals(g.sub(b, a), self), mask)
            low, high = self._sides(a, b, "max", "min", mask)
            every = g.logical("and", ordered, g.compare(body.op, low, high))
            if mask is None or not (_scaled(low) or _scaled(high)):
                return every
            return g.logical("or", g.negate(self.slot("any", mask)), every)  # 0 times the extremum of nothing is NaN
        low, high = self._sides(a, b, "min", "max", mask)
        self.trace.rule("a comparison with a stage value is decided by an extremum")
        return g.compare(body.op, low, high)

    def _numbers(self, t: Node, mask: Node | None) -> Node:
        """Whether t is a number for every element: whether its parts are."""
        inside = [n for n in g.walk(t) if self.scope.mixed(n)]
        if any(n.op not in ENTIRE or any(map(self._divides, n.args)) for n in inside):  # 0 times infinity
            raise CannotPull(t, "whether it is a number does not follow from its parts")
        fixed = dict.fromkeys(a for n in inside for a in n.args if not self.scope.varies(a) and a.op != "const")
        held = g.logical("and", *(g.compare("eq", f, f) for f in fixed))
        if mask is not None:
            held = g.logical("or", g.negate(self.slot("any", mask)), held)
        self.trace.rule("a value of numbers is a number")
        return g.logical("and", self.quantifier("all", _reals(t, self), mask), held)

    def _equality(self, kind: str, body: Node, mask: Node | None) -> Node:
        """all(a = b) is both weak orders, any(a != b) its opposite where there is an element: NaN differs from all. The
        others are decided by no extremum."""
        if (kind, body.op) not in (("all", "eq"), ("any", "ne")):
            raise CannotPull(body, f"{kind} of a mixed {body.op}")
        a, b = body.args
        alike = g.logical("and", *(self.quantifier("all", g.compare("le", *pair), mask) for pair in ((a, b), (b, a))))
        if kind == "all":
            return alike
        return g.logical("and", g.negate(alike), *([] if mask is None else [self.slot("any", mask)]))

    _QUANTIFIED: ClassVar[dict[str, Callable[[Quantifiers, str, Node, Node | None], Node]]] = {
        **dict.fromkeys(("and", "or"), _junction),
        "where": _choice,
        **dict.fromkeys(("lt", "le"), _order),
        **dict.fromkeys(("eq", "ne"), _equality),
    }

    def _sides(self, a: Node, b: Node, kind_a: str, kind_b: str, mask: Node | None) -> tuple[Node, Node]:
        if not self.scope.varies(b):
            return self.extremum(kind_a, a, mask, True), b
        if not self.scope.varies(a):
            return a, self.extremum(kind_b, b, mask, True)
        return g.ZERO, self.extremum(kind_b, g.sub(b, a), mask, True)

    # --- products ---

    def product(self, body: Node, mask: Node | None = None) -> Node:
        if not self.scope.varies(body):
            self.trace.rule("a constant factor of a product contributes its n-th power")
            return g.power(body, self._factors(mask))
        if not self.scope.uses(body):
            return self.slot("prod", body if mask is None else g.where(mask, body, g.ONE))
        rule = self._PRODUCTS.get(body.op)
        found = rule(self, body, mask) if rule is not None else None
        return self._product_by_rank(body, mask) if found is None else found

    def _product_of_powers(self, body: Node, mask: Node | None) -> Node:
        base, e = body.args
        if self.scope.varies(e):
            return self.product(self._as_exponential(body), mask)
        self._power_guard(body)
        return g.power(self.product(base, mask), e)

    def _product_of_sizes(self, body: Node, mask: Node | None) -> Node:
        inner = body.args[0]
        if inner.op == "mul":
            return self.product(g.mul(*map(self._size, inner.args)), mask)
        return g.fn("abs", self.product(inner, mask))

    def _product_of_exponentials(self, body: Node, mask: Node | None) -> Node:
        total = body.args[0] if mask is None else g.where(mask, body.args[0], g.ZERO)
        self.trace.rule("a product of exponentials is the exponential of a sum")
        return g.fn("exp", g.reduction("sum", self.scope.axis, total))

    def _product_of_choices(self, body: Node, mask: Node | None) -> Node | None:
        c, a, b = body.args
        if self.scope.uses(c):
            return None
        held = [x if mask is None else g.logical("and", x, mask) for x in (c, g.negate(c))]
        return g.mul(*(self.product(x, m) for x, m in zip((a, b), held, strict=True) if not g.is_const(x, 1)))

    def _size(self, factor: Node) -> Node:
        if self.signs.nonnegative(factor):
            return factor
        return g.fn("abs", factor)

    def _factors(self, mask: Node | None) -> Node:
        """How many factors a product has."""
        return COUNT if mask is None else self.slot("sum", g.where(mask, g.ONE, g.ZERO))

    def _product_of_factors(self, body: Node, mask: Node | None) -> Node:
        """The elements with what stage values multiply them by, where that can be one slot; else factor by factor."""
        self.trace.rule("a product of products splits")
        root, e = _whole_power(body)
        if e > 1:
            return g.power(self.product(root, mask), e)
        fixed = [a for a in body.args if not self.scope.varies(a)]
        pure = [a for a in body.args if self.scope.varies(a) and not self.scope.uses(a)]
        held = self._ratio(g.mul(*pure), g.mul(*fixed), mask)
        if held is None:
            return g.mul(*(self.product(a, mask) for a in body.args))
        return g.mul(held, *(self.product(a, mask) for a in body.args if self.scope.mixed(a)))

    def _ratio(self, varying: Node, fixed: Node, mask: Node | None) -> Node | None:
        """Π x·h of elements x and a stage value h, as one slot that is centred on 1/h; None where it cannot be."""
        factors = fixed.args if fixed.op == "mul" else (fixed,)
        if not any(map(self._divides, factors)) or not self.scope.varies(varying):
            return None
        held = self.ratio(varying, fixed, mask, self._factors(mask))
        if held is not None:
            self.trace.rule("a constant factor of a product contributes its n-th power")
        return held

    def _divides(self, factor: Node) -> bool:
        """Whether it is 1 over a stage value."""
        below = factor.args[0] if factor.op == "abs" else factor
        return self.scope.uses(below) and _is_power(below) and below.args[1].attr < 0 and below.args[0] is not COUNT

    def _as_exponential(self, body: Node) -> Node:
        base, e = body.args
        if nf.may_be_complex(base):
            raise CannotPull(body, "a power of complex numbers has more than one branch")
        if not self.signs.positive(base):
            self.trace.assume("positive_log_arguments", "b^e = exp(e·log b) holds for a positive base b")
        divisors = [n.args[0] for n in g.walk(e) if g.is_inverse(n)]
        if not all(map(self.signs.positive, divisors)):
            self.trace.assume("finite_exponents", "b^e = exp(e·log b) holds for a finite exponent e")
        return g.fn("exp", g.mul(e, g.fn("log", base)))

    def _power_guard(self, body: Node) -> None:
        base, e = body.args
        whole = e.op == "const" and e.attr.denominator == 1
        if not whole and nf.may_be_complex(base):
            raise CannotPull(body, "a power of complex numbers has more than one branch")
        if not whole and not self.signs.nonnegative(base):
            self.trace.assume("nonnegative_factors", "Π G^H = (Π G)^H holds for factors G >= 0")

    def _product_by_rank(self, body: Node, mask: Node | None) -> Node:
        pair = self.separator.rank_one(self.separator.poly(body))
        if pair is None:
            raise CannotPull(body, "a product of a mixed sum")
        varying, fixed = (nf.poly_node(q) for q in pair)
        held = self._ratio(varying, fixed, mask)
        return held if held is not None else g.mul(self.product(varying, mask), self.product(fixed, mask))

    # operation -> product of a mixed body; None where only its normal form may help
    _PRODUCTS: ClassVar[dict[str, Callable[[Quantifiers, Node, Node | None], Node | None]]] = {
        "mul": _product_of_factors,
        "pow": _product_of_powers,
        "abs": _product_of_sizes,
        "exp": _product_of_exponentials,
        "where": _product_of_choices,
    }


def _whole_power(body: Node) -> tuple[Node, int]:
    """(b, k) with the product b^k, k >= 1 the largest whole number: x²/u² is (x/u)², and x² alone may be large."""
    powers = [(a.args[0], a.args[1].attr) if _is_power(a) else (a, Fraction(1)) for a in body.args]
    if any(e.denominator != 1 for _, e in powers):
        return body, 1
    k = gcd(*(int(e) for _, e in powers))
    return g.mul(*(g.power(b, e / k) for b, e in powers)), k


def _is_power(node: Node) -> bool:
    return node.op == "pow" and node.args[1].op == "const"


def _reals(t: Node, puller: Quantifiers) -> Node:
    """Every varying part of t is not NaN."""
    if not puller.scope.varies(t):
        return g.TRUE
    if not puller.scope.uses(t):
        return g.compare("eq", t, t)
    return g.logical("and", *(_reals(a, puller) for a in t.args)) if t.op in _CALCULATES else g.TRUE


def _scaled(side: Node) -> bool:
    """Whether an extremum is multiplied by a stage value."""
    if side.op == "add":
        return any(map(_scaled, side.args))
    return side.op == "where" or side.op == "mul" and not (len(side.args) == 2 and g.is_const(side.args[0], -1))


_CALCULATES = ENTIRE | {"pow"}
