"""Between SymPy expressions and the shared graph, both ways; a reduction is one opaque leaf for SymPy.

SymPy walks trees, so a reduction keeps its body in the graph and shows SymPy no arguments: building, comparing and
hashing a cascade costs its graph, not its tree. An argument of a map whose tree grows large is condensed likewise.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy
from sympy.core.relational import Relational
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean

from redalg import functions as f
from redalg import graph as g
from redalg.broadcast import SINGLE, reduced
from redalg.expr import Carrier, Index, Size, TensorSymbol
from redalg.graph import Node
from redalg.lowering import UNSUPPORTED, refuse_unsupported, to_node
from redalg.operand import Operand
from redalg.printing import short

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
        return True if self.node.op in ("exp", "abs", "relu", "sigmoid") and self.is_extended_real else None

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
        if self.kind in ("argmax", "argmin", "topk_indices", "any", "all"):
            return True
        return True if all(b.is_extended_real for b in self.bodies if isinstance(b, sympy.Expr)) else None

    def _eval_is_integer(self) -> bool | None:
        return True if self.kind in ("argmax", "argmin", "topk_indices") else None

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
    "oo": sympy.S.Infinity, "-oo": sympy.S.NegativeInfinity, "nan": sympy.S.NaN, "pi": sympy.S.Pi,
    "e": sympy.S.Exp1, "i": sympy.S.ImaginaryUnit,
}  # fmt: skip
_OWN: dict[str, Callable[..., Any]] = {
    "exp": f.exp, "log": f.log, "abs": f.Abs, "relu": f.relu, "sigmoid": f.sigmoid, "log1p": f.log1p,
    "expm1": f.expm1, "maximum": f.maximum, "minimum": f.minimum, "where": f.where, "choose": f.choose,
    "eq": f.eq, "ne": f.ne,
}  # fmt: skip
_PLAIN: dict[str, Callable[..., Any]] = {
    "exp": sympy.exp, "log": sympy.log, "abs": sympy.Abs, "relu": lambda x: sympy.Max(x, 0),
    "sigmoid": lambda x: 1 / (1 + sympy.exp(-x)), "log1p": lambda x: sympy.log(1 + x),
    "expm1": lambda x: sympy.exp(x) - 1, "maximum": sympy.Max, "minimum": sympy.Min,
    "where": lambda c, a, b: _piecewise(c, a, b),
    "choose": sympy.ITE, "eq": sympy.Eq, "ne": sympy.Ne,
}  # fmt: skip
_SAME: dict[str, Callable[..., Any]] = {
    "sign": sympy.sign, "tanh": sympy.tanh, "erf": sympy.erf, "erfc": sympy.erfc, "sin": sympy.sin, "cos": sympy.cos,
    "tan": sympy.tan, "sinh": sympy.sinh, "cosh": sympy.cosh, "asin": sympy.asin, "acos": sympy.acos,
    "atan": sympy.atan, "asinh": sympy.asinh, "acosh": sympy.acosh, "atanh": sympy.atanh, "floor": sympy.floor,
    "ceil": sympy.ceiling, "conj": sympy.conjugate, "re": sympy.re, "im": sympy.im,
    "add": sympy.Add, "mul": sympy.Mul, "pow": sympy.Pow, "and": sympy.And, "or": sympy.Or,
    "pow2": f.pow2,
    "not": lambda c: sympy.Not(c, evaluate=not isinstance(c, Relational)),
}  # fmt: skip


CONSTRUCTORS = {**_SAME, **_OWN}
_ALGEBRA = frozenset({"add", "mul", "pow"})  # SymPy collects through these, so their arguments stay open
_HEAVY = 60  # SymPy objects in the tree of an argument that stays open


def to_sympy(node: Node, names: Mapping[str, Any] | None = None, plain: bool = False) -> Any:
    """The SymPy expression of a node; total. `to_node` inverts it on nodes that came from SymPy.

    State leaves become plain symbols. `names` maps the name of a tensor or state leaf to another name or to an
    expression. `plain` uses SymPy's own exp, log, Abs, Max, Min and Piecewise instead of this package's classes, for
    readers who go on calculating; their evaluation assumes ordinary real numbers.
    """
    names, table = names or {}, {**_SAME, **_PLAIN} if plain else CONSTRUCTORS
    limit = 20 * _HEAVY if plain else _HEAVY
    done: dict[Node, Any] = {}
    weight: dict[Node, int] = {}  # of the SymPy tree
    stack = [node]
    while stack:
        n = stack[-1]
        todo = [] if n.op == "reduce" else [a for a in n.args if a not in done]
        stack.extend(todo)
        if todo:
            continue
        stack.pop()
        if not n.args or n.op == "reduce":
            done[n], weight[n] = _leaf(n, names), 1
            continue
        for a in n.args:
            if weight[a] > limit and n.op not in _ALGEBRA:
                done[a], weight[a] = Opaque(_renamed(a, names) if names else settle(a)), 1
        done[n], weight[n] = _apply(n, done, table), 1 + sum(weight[a] for a in n.args)
    return done[node]


def _leaf(n: Node, names: Mapping[str, Any]) -> Any:
    if n.op == "const":
        return sympy.Rational(n.attr.numerator, n.attr.denominator)
    if n.op == "special":
        return _ATOMS[n.attr]
    if n.op in ("true", "false"):
        return sympy.true if n.op == "true" else sympy.false
    if n.op in ("index", "size"):
        return (Index if n.op == "index" else Size)(n)
    if n.op in ("tensor", "state"):
        other = names.get(n.attr.name)
        if other is None:
            return leaf_symbol(n)
        return sympy.Symbol(other) if isinstance(other, str) else other
    if n.op == UNSUPPORTED:
        return sympy.Symbol(n.attr[1])
    return Opaque(_renamed(n, names))


def _renamed(n: Node, names: Mapping[str, Any]) -> Node:
    """Rename the leaves inside a reduction."""
    mapping = {}
    for leaf in g.leaves(n, "tensor", "state") if names else ():
        other = names.get(leaf.attr.name)
        if isinstance(other, str):
            mapping[leaf] = g.state(other, leaf.attr.axes, leaf.attr.domain)
        elif other is not None:
            mapping[leaf] = to_node(other, strict=False)
    return _replaced(n, mapping) if mapping else n


def _apply(n: Node, done: Mapping[Node, Any], table: Mapping[str, Callable[..., Any]]) -> Any:
    args = [done[a] for a in n.args]
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
    count, stack = 0, [expr]
    while stack and count <= _HEAVY:
        count += 1
        stack.extend(stack.pop().args)
    if count <= _HEAVY:
        return expr
    node = settle(to_node(expr, strict=False))
    return Opaque(node) if node.args else to_sympy(node)
