"""What a sum over pairs adds for every row and column: a function of a number of A and one of B, in LLVM's language.

``sum[d]((x[i,d] - c[k,d])**2)`` and ``sum[d](abs(x[i,d] - c[k,d]))`` are computed by the same tiles of sums as matrix
products are; only the instructions between loading two numbers and adding differ. A function that needs more than a
few instructions of the processor (exponentials and their like) is left to kernels of rows.

So is one that may lose its range unseen. A tile says that a sum is infinite or NaN, and the call is then computed
anew; it cannot say that a factor was 0 which others would have made large again. So what is multiplied or divided are
values as large as what they are made of (`_linear`): two of them, powers of one, a quotient; constants from 1 on are
multiplied first, smaller ones last, so that no number on the way is smaller than the term and the factors are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir

from redalg.graph.node import Node, leaves

LEFT, RIGHT = "a", "b"
MOST_STEPS = 16  # operations of a term: values of more leave registers
POWERS = (2, 3, 4)
LEAST = Fraction(1, 2**100)  # of a constant
ORDERS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}


class Term(NamedTuple):
    """A function of two numbers: an operation and its arguments, or the value of a constant."""

    op: str
    args: tuple[Term, ...] = ()
    value: float = 0.0

    def __str__(self) -> str:
        if self.op == "const":
            return repr(self.value)
        return f"{self.op}({', '.join(map(str, self.args))})" if self.args else self.op

    @property
    def steps(self) -> int:
        """Operations, those of equal arguments again."""
        return bool(self.args) + sum(t.steps for t in self.args)


PRODUCT = Term("mul", (Term(LEFT), Term(RIGHT)))
MINUS = Term("const", value=-1.0)


# --- reading ---------------------------------------------------------------------------------------------------------


def term_of(body: Node, left: Node, right: Node) -> Term | None:
    """The function of two tensors that a body is; None where it reads anything else, or may lose its range.

    >>> import redalg as ra
    >>> def term(text):
    ...     body = ra.parse(f"return y = sum[d]({text})").outputs["y"].args[0]
    ...     leaves = {n.attr.name: n for n in ra.graph.node.leaves(body, "tensor")}
    ...     return str(term_of(body, leaves["x"], leaves["c"]))
    >>> term("(x[i,d] - c[k,d])**2"), term("abs(x[i,d] - c[k,d])/8")
    ('mul(sub(a, b), sub(a, b))', 'mul(abs(sub(a, b)), 0.125)')
    >>> term("x[i,d]/(1 + exp(c[k,d]))"), term("(x[i,d]*c[k,d])**2*x[i,d]")
    ('None', 'None')
    """
    if any(not in_range(c.attr) for c in leaves(body, "const")):
        return None
    found = _whole(body, {left: Term(LEFT), right: Term(RIGHT)})
    return found if found is not None and found.steps <= MOST_STEPS else None


def in_range(value: Fraction) -> bool:
    """Whether a constant is 0, or far enough from the ends of float32 to keep its digits there."""
    return value == 0 or LEAST <= abs(value) <= 1 / LEAST


Leaves = Mapping[Node, Term]


def _whole(node: Node, known: Leaves) -> Term | None:
    """A sum of products, its absolute value, or a choice of such."""
    if node.op == "add" and _linear(node, known) is None:
        return _sum([_with_factor(_whole(a, known)) for a in node.args])
    if node.op == "where":
        return _applied("where", [_condition(node.args[0], known), *(_whole(a, known) for a in node.args[1:])])
    if node.op == "abs" and _linear(node, known) is None:
        return _applied("abs", [_whole(node.args[0], known)])
    return _product(node, known)


def _applied(op: str, args: list[Term | None]) -> Term | None:
    """An operation, in an order that follows from its arguments where that changes nothing."""
    known = [a for a in args if a is not None]
    if len(known) < len(args):
        return None
    if op == "abs" and known[0].op == "sub":
        known = [Term("sub", tuple(sorted(known[0].args, key=str)))]
    return Term(op, tuple(sorted(known, key=str) if op in ("maximum", "minimum") else known))


def _with_factor(term: Term | None) -> tuple[float, Term] | None:
    """A summand, and -1 where it is taken away."""
    if term is None or term.op != "mul" or term.args[0] != MINUS:
        return None if term is None else (1.0, term)
    rest = term.args[1:]
    return -1.0, Term("mul", rest) if len(rest) > 1 else rest[0]


def _linear(node: Node, known: Leaves) -> Term | None:
    """A value as large as what it is made of: sums, differences, extrema, absolute values and roots of the numbers."""
    if node in known or node.op == "const":
        return known.get(node) or Term("const", value=float(node.attr))
    if node.op in ("abs", "relu", "maximum", "minimum"):
        return _applied(node.op, [_linear(a, known) for a in node.args])
    if node.op == "pow" and node.args[1].op == "const" and float(node.args[1].attr) == 0.5:
        return _applied("sqrt", [_linear(node.args[0], known)])
    if node.op == "where":
        return _applied("where", [_condition(node.args[0], known), *(_linear(a, known) for a in node.args[1:])])
    if node.op == "add":
        return _sum([_scaled(a, known) for a in node.args])
    scaled = _scaled(node, known) if node.op == "mul" else None
    return _times(*scaled) if scaled is not None else None


def _scaled(node: Node, known: Leaves) -> tuple[float, Term] | None:
    """A summand of a linear value, and a constant of it that makes it no smaller."""
    factor, others = _factors(node)
    if not others:
        return 1.0, Term("const", value=factor)
    inner = _linear(others[0], known) if len(others) == 1 else None
    return (factor, inner) if inner is not None and abs(factor) >= 1 else None


def _sum(parts: list[tuple[float, Term] | None]) -> Term | None:
    """What is added comes first, then what is taken away; in an order that follows from the terms."""
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    first, *others = sorted(known, key=lambda p: (p[0] < 0, str(p[1]), p[0]))
    total = _times(*first)
    for factor, term in others:
        total = Term("sub" if factor < 0 else "add", (total, _times(abs(factor), term)))
    return total


def _times(factor: float, term: Term) -> Term:
    return term if factor == 1 else Term("mul", (Term("const", value=factor), term))


def _condition(node: Node, known: Leaves) -> Term | None:
    """A comparison of numbers as they are."""
    if node.op in ("and", "or", "not"):
        return _applied(node.op, [_condition(a, known) for a in node.args])
    if node.op not in ORDERS or any(a not in known and a.op != "const" for a in node.args):
        return None
    return _applied(node.op, [_linear(a, known) for a in node.args])


def _factors(node: Node) -> tuple[float, list[Node]]:
    """The constants of a product, multiplied, and its other factors."""
    parts = node.args if node.op == "mul" else (node,)
    others = [p for p in parts if p.op != "const"]
    return reduce(lambda x, p: x * float(p.attr), (p for p in parts if p.op == "const"), 1.0), others


def _product(node: Node, known: Leaves) -> Term | None:
    """A constant, and a linear value, two of them, a power of one, a quotient, or that of a square."""
    factor, others = _factors(node)
    if not others:
        return Term("const", value=factor)
    powers = [p for p in (_power(n, known) for n in others) if p is not None]
    if len(powers) < len(others) or len(others) > 2:
        return None
    above = sorted((t for t, n in powers for _ in range(n)), key=str)
    below = [t for t, n in powers if n < 0]
    alone = len(others) == 1 or len(above) <= 2 - (len({*above}) > 1 and bool(below))
    return _quotient(factor, above, below) if alone and len(below) < 2 else None


def _quotient(factor: float, above: list[Term], below: list[Term]) -> Term:
    """A constant from 1 on comes first, a smaller one last."""
    if not above:
        return Term("div", (Term("const", value=factor), below[0]))
    first = _times(factor, above[0]) if abs(factor) >= 1 else above[0]
    first = Term("div", (first, below[0])) if below else first
    last = [Term("const", value=factor)] if abs(factor) < 1 else []
    found = (first, *above[1:], *last)
    return Term("mul", found) if len(found) > 1 else first


def _power(node: Node, known: Leaves) -> tuple[Term, int] | None:
    """A linear value, and how often it is a factor; -1 where it divides."""
    power = 1.0
    if node.op == "pow" and node.args[1].op == "const" and float(node.args[1].attr) in (-1, *POWERS):
        node, power = node.args[0], float(node.args[1].attr)
    term = _linear(node, known)
    return (term, int(power)) if term is not None else None


# --- printing --------------------------------------------------------------------------------------------------------


class Printed:
    """Terms as instructions on vectors of a kind."""

    def __init__(self, builder: Any, kind: Any, module: Any) -> None:
        self.b, self.kind, self.module = builder, kind, module
        self.zero = self.constant(0.0)

    def constant(self, value: float) -> Any:
        return ir.Constant(self.kind, [value] * self.kind.count)

    def added(self, term: Term, a: Any, b: Any, total: Any) -> Any:
        """A sum and one more term, in one rounding where that is a product."""
        known = {Term(LEFT): a, Term(RIGHT): b}
        if term.op == "mul":
            *others, last = (self.value(t, known) for t in term.args)
            return self.b.call(self._intrinsic("fma", 3), (reduce(self.b.fmul, others), last, total))
        return self.b.fadd(total, self.value(term, known))

    def value(self, term: Term, known: dict[Term, Any]) -> Any:
        """The instructions of a term, once for equal ones."""
        if term not in known:
            args = [self.value(t, known) for t in term.args]
            if term.op == "const":
                known[term] = self.constant(term.value)
            elif term.op in ORDERS:
                compare = self.b.fcmp_unordered if term.op == "ne" else self.b.fcmp_ordered
                known[term] = compare(ORDERS[term.op], *args)
            else:
                known[term] = OPERATIONS[term.op](self, args)
        return known[term]

    def _intrinsic(self, name: str, count: int) -> Any:
        full = f"llvm.{name}.v{self.kind.count}f{32 if self.kind.element == ir.FloatType() else 64}"
        known = self.module.globals.get(full)
        return known or ir.Function(self.module, ir.FunctionType(self.kind, (self.kind,) * count), full)

    def call(self, name: str, x: Any) -> Any:
        return self.b.call(self._intrinsic(name, 1), (x,))

    def divided(self, x: Any, y: Any) -> Any:
        """A quotient; NaN where what divides left the range, which is looked into."""
        return self.b.fadd(self.b.fdiv(x, y), self.b.fsub(y, y))

    def extremum(self, order: str, x: Any, y: Any) -> Any:
        """One of two numbers; NaN where the second is not finite, and where the first is NaN."""
        chosen = self.b.select(self.b.fcmp_ordered(order, y, x), y, x)
        return self.b.fadd(chosen, self.b.fsub(y, y))

    def positive(self, x: Any) -> Any:
        return self.b.select(self.b.fcmp_ordered("<", x, self.zero), self.zero, x)


OPERATIONS: dict[str, Callable[[Printed, list[Any]], Any]] = {
    "add": lambda p, args: reduce(p.b.fadd, args),
    "sub": lambda p, args: p.b.fsub(*args),
    "mul": lambda p, args: reduce(p.b.fmul, args),
    "div": lambda p, args: p.divided(*args),
    "abs": lambda p, args: p.call("fabs", args[0]),
    "sqrt": lambda p, args: p.call("sqrt", args[0]),
    "maximum": lambda p, args: reduce(lambda x, y: p.extremum(">", x, y), args),
    "minimum": lambda p, args: reduce(lambda x, y: p.extremum("<", x, y), args),
    "relu": lambda p, args: p.positive(args[0]),
    "where": lambda p, args: p.b.select(*args),
    "not": lambda p, args: p.b.not_(args[0]),
    "and": lambda p, args: reduce(p.b.and_, args),
    "or": lambda p, args: reduce(p.b.or_, args),
}


__all__ = ["PRODUCT", "Printed", "Term", "term_of"]
