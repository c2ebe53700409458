"""Products, any and all: splitting by conditions and factors, comparisons decided by extrema (theory, section 2)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any, Protocol

from redalg import graph as g
from redalg import normal as nf
from redalg.graph import Node
from redalg.normal import Mono
from redalg.plan import COUNT
from redalg.scope import Scope, Trace
from redalg.separate import Separator
from redalg.signs import Signs


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
    """Part of `redalg.monotone.Puller`."""

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
        if op in ("and", "or"):
            return self._junction(kind, body, mask)
        if op == "where":
            return self._choice(kind, body, mask)
        if op in ("lt", "le"):
            return self._order(kind, body, mask)
        if op in ("eq", "ne") and kind == ("all" if op == "eq" else "any"):
            a, b = body.args  # all(a = b) and any(a != b): both orders
            weak = [g.compare("le", a, b), g.compare("le", b, a)]
            if op == "eq":
                return g.logical("and", *(self.quantifier("all", w, mask) for w in weak))
            strong = [g.compare("lt", a, b), g.compare("lt", b, a)]
            return g.logical("or", *(self.quantifier("any", w, mask) for w in strong))
        raise CannotPull(body, f"{kind} of a mixed {op}")

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
            ordered = self.quantifier("all", _reals(g.sub(b, a), self), mask)
            low, high = self._sides(a, b, "max", "min", mask)
            return g.logical("and", ordered, g.compare(body.op, low, high))
        low, high = self._sides(a, b, "min", "max", mask)
        self.trace.rule("a comparison with a stage value is decided by an extremum")
        return g.compare(body.op, low, high)

    def _sides(self, a: Node, b: Node, kind_a: str, kind_b: str, mask: Node | None) -> tuple[Node, Node]:
        if not self.scope.varies(b):
            return self.extremum(kind_a, a, mask, True), b
        if not self.scope.varies(a):
            return a, self.extremum(kind_b, b, mask, True)
        return g.ZERO, self.extremum(kind_b, g.sub(b, a), mask, True)

    # --- products ---

    def product(self, body: Node, mask: Node | None = None) -> Node:
        scope = self.scope
        if not scope.varies(body):
            self.trace.rule("a constant factor of a product contributes its n-th power")
            return g.power(body, self._factors(mask))
        if not scope.uses(body):
            return self.slot("prod", body if mask is None else g.where(mask, body, g.ONE))
        op = body.op
        if op == "mul":
            return self._product_of_factors(body, mask)
        if op == "pow" and not scope.varies(body.args[1]):
            self._power_guard(body)
            return g.power(self.product(body.args[0], mask), body.args[1])
        if op == "pow":
            return self.product(self._as_exponential(body), mask)
        if op == "abs" and body.args[0].op == "mul":
            return self.product(g.mul(*map(self._size, body.args[0].args)), mask)
        if op == "abs":
            return g.fn("abs", self.product(body.args[0], mask))
        if op == "exp":
            total = body.args[0] if mask is None else g.where(mask, body.args[0], g.ZERO)
            self.trace.rule("a product of exponentials is the exponential of a sum")
            return g.fn("exp", g.reduction("sum", scope.axis, total))
        if op == "where" and not scope.uses(body.args[0]):
            c, a, b = body.args
            held = [x if mask is None else g.logical("and", x, mask) for x in (c, g.negate(c))]
            parts = [self.product(x, m) for x, m in zip((a, b), held, strict=True) if not g.is_const(x, 1)]
            return g.mul(*parts)
        return self._product_by_rank(body, mask)

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
        divisors = [n.args[0] for n in g.walk(e) if n.op == "pow" and n.args[1].op == "const" and n.args[1].attr < 0]
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
    terms = t.args if t.op in ("add", "mul") else (t,)
    parts = [a for a in terms if puller.scope.varies(a) and not puller.scope.uses(a)]
    return g.logical("and", *(g.compare("eq", p, p) if p.op != "const" else g.TRUE for p in parts))
