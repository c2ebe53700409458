"""Between SymPy expressions and the shared graph, both ways; a reduction is one opaque leaf for SymPy.

SymPy walks trees, so a reduction keeps its body in the graph and shows SymPy no arguments: building, comparing and
hashing a cascade costs its graph, not its tree. An argument of a map whose tree grows large is condensed likewise.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.core.relational import Relational
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean

from redalg.graph import node as g
from redalg.graph.functions import NOT_NEGATIVE
from redalg.graph.node import Node
from redalg.language import functions as f
from redalg.language.arithmetic import LEVELS, TREE, Operand, is_larger
from redalg.language.broadcast import SINGLE, reduced
from redalg.language.leaves import Carrier, Index, Size, TensorSymbol
from redalg.language.sympy_to_graph import UNSUPPORTED, refuse_unsupported, to_node
from redalg.text.nodes import short

__all__ = ["Reduction", "condensed", "refuse_unsupported", "settle", "to_node", "to_sympy"]


class Opaque(Operand, Carrier, sympy.AtomicExpr):
    """An expression that shows SymPy no arguments: it stands for its graph `node`. Interned; `axes` are its own."""

    is_commutative = True
    node: Node
    _objects: weakref.WeakValueDictionary[Node, Opaque] = weakref.WeakValueDictionary()

    def __new__(cls, node: Node) -> Opaque:
        found = cls._objects.get(node)
        if found is None:
            plain, boolean = (Reduction, BooleanReduction) if node.op == "reduce" else (Opaque, BooleanOpaque)
            found = sympy.AtomicExpr.__new__(boolean if node.is_boolean else plain)
            found.node = node
            found = cls._objects.setdefault(node, found)
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Opaque, (self.node,)

    def __copy__(self) -> Opaque:
        return self

    def __deepcopy__(self, memo: Any) -> Opaque:
        return self

    def _hashable_content(self) -> tuple[Any, ...]:
        return (self.node.digest,)

    def sort_key(self, order: Any = None) -> Any:
        return self.class_key(), (1, (self.node.digest.hex(),)), sympy.S.One.sort_key(), sympy.S.One

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(sorted(self.node.axes))

    @property
    def free_symbols(self) -> set[sympy.Basic]:
        found = self.__dict__.get("_free")
        if found is None:
            found = self._free = frozenset(leaf_symbol(n) for n in g.leaves(self.node, "tensor", "state"))
        return set(found)

    def _eval_is_extended_real(self) -> bool | None:
        return True if all(s.is_extended_real for s in self.free_symbols) else None

    def _eval_is_extended_nonnegative(self) -> bool | None:
        return True if self.node.op in NOT_NEGATIVE and self.is_extended_real else None

    def _eval_is_polynomial(self, syms: Iterable[sympy.Basic]) -> bool:
        return not self.free_symbols & set(syms)

    _eval_is_rational_function = _eval_is_algebraic_expr = _eval_is_polynomial

    def _eval_derivative(self, symbol: sympy.Basic) -> sympy.Expr:
        if symbol not in self.free_symbols:
            return sympy.S.One if symbol == self else sympy.S.Zero
        return sympy.Derivative(self, symbol, evaluate=False)

    def _eval_subs(self, old: sympy.Basic, new: sympy.Basic) -> sympy.Basic | None:
        return self._replace({old: new}) if old in self.free_symbols else None

    def xreplace(self, rule: Mapping[Any, Any], hack2: bool = False) -> sympy.Basic:
        return self._xreplace(rule)[0]

    def _xreplace(self, rule: Mapping[Any, Any]) -> tuple[sympy.Basic, bool]:
        if self in rule:
            return rule[self], True
        inside = {old: new for old, new in rule.items() if old in self.free_symbols}
        return (self._replace(inside), True) if inside else (self, False)

    def _replace(self, rule: Mapping[Any, Any]) -> sympy.Basic:
        leaves = {n: leaf_symbol(n) for n in g.leaves(self.node, "tensor", "state")}
        mapping = {n: to_node(rule[symbol], strict=False) for n, symbol in leaves.items() if symbol in rule}
        return to_sympy(_replaced(self.node, mapping))

    def _sympystr(self, printer: Any) -> str:
        return short(self.node)

    def _pretty(self, printer: Any) -> Any:
        return printer.emptyPrinter(self)

    def _latex(self, printer: Any) -> str:
        return r"\mathtt{" + short(self.node).replace("_", r"\_") + "}"


class BooleanOpaque(Opaque, Boolean):
    """A condition, that counts as 0 or 1 in arithmetic."""


class Reduction(Opaque):
    """A reduction over named axes: its `kind`, the reduced `axis`, the `axes` that are left, and its `body`."""

    @property
    def kind(self) -> str:
        return self.node.attr.kind

    @property
    def axis(self) -> tuple[str, ...]:
        return self.node.attr.axes

    @property
    def bodies(self) -> tuple[sympy.Basic, ...]:
        return tuple(to_sympy(a) for a in self.node.args)

    @property
    def body(self) -> sympy.Basic:
        return self.bodies[0]

    def _eval_is_extended_real(self) -> bool | None:
        if self.kind in (*g.POSITIONS, "any", "all"):
            return True
        return True if all(b.is_extended_real for b in self.bodies if isinstance(b, sympy.Expr)) else None

    def _eval_is_integer(self) -> bool | None:
        return True if self.kind in g.POSITIONS else None

    def _eval_is_extended_nonnegative(self) -> bool | None:
        if self.kind not in ("sum", "prod"):
            return None  # an extremum over no elements is infinite
        return True if self.body.is_extended_nonnegative else None


class BooleanReduction(Reduction, Boolean):
    """`any` and `all`: conditions, that count as 0 or 1 in arithmetic."""


def leaf_symbol(node: Node) -> sympy.Symbol:
    return TensorSymbol(node) if node.op == "tensor" else sympy.Symbol(node.attr.name)


def _replaced(root: Node, mapping: dict[Node, Node]) -> Node:
    done = {**mapping}
    for node in g.walk(root, done=done):
        args = tuple(done[a] for a in node.args)
        if node.op == "reduce" and node.attr.kind in SINGLE:
            done[node] = reduced(node.attr.kind, node.attr.axes, args[0], node.attr.extra)
        else:
            done[node] = g.rebuild(node, args)
    return done[root]


# --- nodes to SymPy ------------------------------------------------------------------------------------------------

_ATOMS = {
    "oo": sympy.S.Infinity,
    "-oo": sympy.S.NegativeInfinity,
    "nan": sympy.S.NaN,
    "pi": sympy.S.Pi,
    "e": sympy.S.Exp1,
    "i": sympy.S.ImaginaryUnit,
}
_OWN: dict[str, Callable[..., Any]] = {
    **f.MAPS,
    "maximum": f.maximum,
    "minimum": f.minimum,
    "where": f.where,
    "choose": f.choose,
    "eq": f.eq,
    "ne": f.ne,
}
_PLAIN: dict[str, Callable[..., Any]] = {
    **f.PLAIN,
    "maximum": sympy.Max,
    "minimum": sympy.Min,
    "where": lambda c, a, b: _piecewise(c, a, b),
    "choose": sympy.ITE,
    "eq": sympy.Eq,
    "ne": sympy.Ne,
}
_SAME: dict[str, Callable[..., Any]] = {
    "add": sympy.Add,
    "mul": sympy.Mul,
    "pow": sympy.Pow,
    "and": sympy.And,
    "or": sympy.Or,
    "not": lambda c: sympy.Not(c, evaluate=not isinstance(c, Relational)),
}


CONSTRUCTORS = {**_SAME, **_OWN}
_ALGEBRA = frozenset({"add", "mul", "pow"})  # SymPy collects through these, so their arguments stay open longer
_HEAVY = 60  # SymPy objects in the tree of an argument that stays open


def to_sympy(node: Node, plain: bool = False) -> Any:
    """The SymPy expression of a node; total. `to_node` inverts it on nodes that came from SymPy.

    State leaves become plain symbols. `plain` uses SymPy's own exp, log, Abs, Max, Min and Piecewise instead of this
    package's classes, for readers who go on calculating; their evaluation assumes ordinary real numbers.
    """
    return _Tree(plain).expression(node)


@dataclass(frozen=True)
class _Part:
    """An expression with the objects and levels of its tree."""

    expr: Any
    weight: int = 1
    levels: int = 1


class _Tree:
    """The SymPy tree of a graph. What is too large for the operation that reads it is an opaque leaf there."""

    def __init__(self, plain: bool) -> None:
        self.table = {**_SAME, **_PLAIN} if plain else CONSTRUCTORS
        self.limit = 20 * _HEAVY if plain else _HEAVY
        self.remembers = not plain
        self.done: dict[Node, _Part] = {}

    def expression(self, node: Node) -> Any:
        stack = [node]
        while stack:
            n = stack[-1]
            todo = [] if n.op == "reduce" else [a for a in n.args if a not in self.done and not self.is_known(a, n)]
            stack.extend(todo)
            if not todo:
                stack.pop()
                if n not in self.done:
                    self.done[n] = self.part(n)
        return self.done[node].expr

    def part(self, n: Node) -> _Part:
        if not n.args or n.op == "reduce":
            return _Part(_leaf(n))
        parts = [self.read(a, n) for a in n.args]
        expr = _apply(n, [p.expr for p in parts], self.table)
        part = _Part(expr, 1 + sum(p.weight for p in parts), 1 + max(p.levels for p in parts))
        if self.remembers:
            _sizes[n] = part.weight, part.levels
        return part

    def read(self, a: Node, n: Node) -> _Part:
        """An argument as the operation reads it."""
        if self.is_known(a, n):
            return _Part(Opaque(a))
        part = self.done[a]
        if self.is_large(n, part.weight, part.levels):
            return _Part(Opaque(settle(a)))
        return part

    def is_known(self, a: Node, n: Node) -> bool:
        """Whether it is an opaque leaf, as is known from before: nobody enters it then."""
        return self.remembers and a in _settled and a in _sizes and self.is_large(n, *_sizes[a])

    def is_large(self, n: Node, weight: int, levels: int) -> bool:
        return levels > LEVELS or weight > (max(TREE, self.limit) if n.op in _ALGEBRA else self.limit)


_sizes: weakref.WeakKeyDictionary[Node, tuple[int, int]] = weakref.WeakKeyDictionary()


def _leaf(n: Node) -> Any:
    if n.op == "const":
        return sympy.Rational(n.attr.numerator, n.attr.denominator)
    if n.op == "special":
        return _ATOMS[n.attr]
    if n.op in ("true", "false"):
        return sympy.true if n.op == "true" else sympy.false
    if n.op in ("index", "size"):
        return (Index if n.op == "index" else Size)(n)
    if n.op in ("tensor", "state"):
        return leaf_symbol(n)
    if n.op == UNSUPPORTED:
        return sympy.Symbol(n.attr[1])
    return Opaque(n)


def _apply(n: Node, args: list[Any], table: Mapping[str, Callable[..., Any]]) -> Any:
    if n.op == "cast":
        return f.cast(args[0], Str(n.attr))
    if n.op in ("lt", "le"):
        return _comparison(n.op, *args)
    if n.op == UNSUPPORTED:
        return sympy.Function(n.attr[1])(*args)
    name = "choose" if n.op == "where" and n.is_boolean else n.op
    try:
        return table[name](*args)
    except (
        TypeError,
        AttributeError,
        ValueError,
    ):  # SymPy's own functions refuse some arguments (an order of non-real numbers)
        return CONSTRUCTORS[name](*args)


def _piecewise(condition: Any, then: Any, other: Any) -> Any:
    """Piecewise drops the conditions of one that occurs in its own conditions; this package's class does not."""
    if condition.has(sympy.Piecewise):
        return f.where(condition, then, other)
    return sympy.Piecewise((then, condition), (other, True), evaluate=False)


def _comparison(op: str, a: Any, b: Any) -> Any:
    """`0 < x` is shown as `x > 0`; a comparison SymPy holds impossible (of complex numbers) stays unevaluated."""
    if a.is_number and not b.is_number:
        cls, a, b = (sympy.StrictGreaterThan if op == "lt" else sympy.GreaterThan), b, a
    else:
        cls = sympy.StrictLessThan if op == "lt" else sympy.LessThan
    try:
        return cls(a, b)
    except TypeError:
        return cls(a, b, evaluate=False)


def settle(node: Node, symbols: Mapping[Any, Node] | None = None) -> Node:
    """A node that SymPy's automatic evaluation no longer changes: `to_node(to_sympy(n), symbols) is n`."""
    for _ in range(8):
        if node in _settled:
            break
        again = to_node(to_sympy(node), symbols, strict=False)
        if again is node:
            _settled.add(node)
        node = again
    return node


_settled: weakref.WeakSet[Node] = weakref.WeakSet()


def condensed(expr: Any) -> Any:
    """An argument of a map: itself while its tree is small, else one opaque leaf that carries its graph."""
    return _opaque(expr) if is_larger(expr, _HEAVY) else expr


def _opaque(expr: Any) -> Any:
    node = settle(to_node(expr, strict=False))
    return Opaque(node) if node.args else to_sympy(node)
