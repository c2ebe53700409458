"""The shared graph: hash-consed expression nodes that everything after the spec language works on.

SymPy expressions are trees on which most walks are exponential in a cascade's depth. A `Node` is built once per
structure (equal structure is the *same object*), so every walk memoised by node is linear in the size of the graph.

Operations (the whole language; `attr` in brackets)::

    const [Fraction]                      special ["oo" "-oo" "nan" "pi" "e" "i"]     true  false
    tensor [Decl]  state [Decl]           index [axis]  size [axis]
    add  mul  (n-ary)                     pow (base, exponent)
    <name> in UNARY (one argument)        maximum  minimum (n-ary)
    (pow2, the unit of a scale anchor, is the engine's: no spec has it)
    where (condition, then, else)         eq ne lt le (two arguments)   and or (n-ary)   not
    cast [dtype name]
    reduce [Reduce]  (bodies)             kinds: sum prod max min any all argmax argmin
                                          topk_values topk_indices (extra = (k, new axis))
                                          monoid (extra = (Monoid, part))

`gt`/`ge` are `lt`/`le` with the arguments exchanged; `sqrt(x)` is `pow(x, 1/2)`; a mean is a sum over a size.
"""

from __future__ import annotations

import hashlib
import os
import re
import weakref
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from threading import RLock
from typing import Any

from redalg.graph.functions import UNARY

COMPARISONS = frozenset({"eq", "ne", "lt", "le"})
POSITIONS = ("argmax", "argmin", "topk_indices")  # reductions whose values are places along an axis
WRITTEN = 1 << 17  # bits of a power of constants that is written out; larger ones stay powers
BOOLEAN = COMPARISONS | {"and", "or", "not", "true", "false"}


@dataclass(frozen=True)
class Dimension:
    """A dimension of an array that is read at an affine index: ``2*h + r:3 - 1`` has the terms h, in steps of 2, and
    r, of length 3, and a `pad` of 1 zero before the first element and behind the last."""

    terms: tuple[tuple[str, int, int], ...]  # an axis, its step and its length, 0 where arrays say it
    pad: int = 0

    def __str__(self) -> str:
        steps = (("" if step == 1 else f"{step}*") + a + (f":{n}" if n else "") for a, step, n in self.terms)
        return "+".join(steps) + (f"-{self.pad}" if self.pad else "")

    def along(self, names: Mapping[str, str]) -> Dimension:
        """The same, read along other axes."""
        return Dimension(tuple((names.get(a, a), step, n) for a, step, n in self.terms), self.pad)


@dataclass(frozen=True)
class Decl:
    """A named array: its axes in order and its domain (words: `redalg.graph.intervals`, `redalg.language.leaves`).

    `array` names the tensor whose array this one is, where a spec reads that tensor along other axes a second time:
    what holds for any two tensors holds for them, and only the arrays of a call know that they are one.

    `dimensions`: of an array that is read in windows, ``x[h+r]``, whose axes are those of its windows. The same holds:
    a spec over windows is a spec over any tensor with their axes.
    """

    name: str
    axes: tuple[str, ...] = ()
    domain: frozenset[str] = frozenset()
    array: str = ""
    dimensions: tuple[Dimension, ...] = ()  # none where each is an axis

    def __str__(self) -> str:
        name = self.array or self.name
        return f"{name}[{','.join(map(str, self.dimensions or self.axes))}]" if self.axes else name

    def place(self, axis: str) -> int:
        """The dimension of the array that an axis lies along."""
        own = [[a for a, _, _ in d.terms] for d in self.dimensions] or [[a] for a in self.axes]
        return next(k for k, axes in enumerate(own) if axis in axes)

    @property
    def rank(self) -> int:
        """The number of dimensions of the array that a call passes."""
        return len(self.dimensions or self.axes)


@dataclass(frozen=True)
class Reduce:
    """What a `reduce` node does: the kind, the axes (one composite axis, row-major) and what the kind needs beside."""

    kind: str
    axes: tuple[str, ...]
    extra: Any = None


class Node:
    """One operation. Immutable and interned: `a is b` exactly when the structures are equal."""

    __slots__ = ("op", "args", "attr", "axes", "digest", "order", "named", "__weakref__")
    op: str
    args: tuple[Node, ...]
    attr: Any
    axes: frozenset[str]
    named: bool  # whether it has its digests
    digest: bytes
    order: bytes  # the digest without the numbers of copies of axes: ``g~1`` is ordered, and so rounded, as ``g`` is

    def __new__(cls, op: str, args: tuple[Node, ...] = (), attr: Any = None) -> Node:
        key = (op, tuple(map(id, args)), attr)
        kept = _TABLE.get(key)
        if kept is not None:
            found = kept()
            if found is not None:
                return found
        node = object.__new__(cls)
        node.op, node.args, node.attr = op, args, attr
        node.axes = _free_axes(op, args, attr)
        node.named = False
        return _interned(key, node)

    def __getattr__(self, name: str) -> Any:
        """Digests are made when they are first asked for: few nodes of what is written as it stands are ever sorted."""
        if name not in ("digest", "order"):
            raise AttributeError(f"'Node' object has no attribute {name!r}")
        stack = [self]
        while stack:
            node = stack[-1]
            unnamed = [a for a in node.args if not a.named]
            if unnamed:
                stack += unnamed
            else:
                stack.pop()._name()
        return object.__getattribute__(self, name)

    def _name(self) -> None:
        text = _text(self.attr)
        digest = order = _digest(self.op, text, [a.digest for a in self.args])
        if "~" in text or any(a.order is not a.digest for a in self.args):
            order = _digest(self.op, _COPY.sub("", text), [a.order for a in self.args])
        self.digest, self.order, self.named = digest, order, True

    def __reduce__(self) -> tuple[Any, ...]:
        return Node, (self.op, self.args, self.attr)

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: Any) -> Node:
        return self

    def __repr__(self) -> str:
        return f"<Node {self.op} {self.attr if self.attr is not None else ''} #{self.digest.hex()[:8]}>"

    @property
    def is_boolean(self) -> bool:
        if self.op in BOOLEAN:
            return True
        if self.op == "where":
            return self.args[1].is_boolean and self.args[2].is_boolean
        if self.op == "reduce":
            return self.attr.kind in ("any", "all")
        return self.op in ("tensor", "state") and "bool" in self.attr.domain


# Nodes by operation, arguments and attribute. References have no callbacks, since most nodes live for one derivation:
# entries of those that are gone stay until there are many; their keys, which name arguments by number, find nothing.
_TABLE: dict[tuple[Any, ...], weakref.ref[Node]] = {}
_ENTRIES = [1 << 14]  # from which on the table is cleared of these
_LOCK = RLock()  # of whoever writes into the table; a collection of garbage inside may build nodes


def _interned(key: tuple[Any, ...], node: Node) -> Node:
    """The node of a key: this one, if no other thread was faster."""
    with _LOCK:
        kept = _TABLE.get(key)
        found = None if kept is None else kept()
        if found is not None:
            return found
        if len(_TABLE) >= _ENTRIES[0]:
            for k in [k for k, entry in _TABLE.copy().items() if entry() is None]:
                entry = _TABLE.pop(k)
                if entry() is not None:  # one that was built in the meantime
                    _TABLE[k] = entry
            _ENTRIES[0] = max(1 << 14, 2 * len(_TABLE))
        _TABLE[key] = weakref.ref(node)
        return node


def _unlocked() -> None:
    """A process begun by a fork has none of the threads that may have held the lock."""
    global _LOCK
    _LOCK = RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_unlocked)


def _free_axes(op: str, args: tuple[Node, ...], attr: Any) -> frozenset[str]:
    if op in ("tensor", "state"):
        return frozenset(attr.axes)
    if op == "index":
        return frozenset({attr})
    free: frozenset[str] = args[0].axes if args else frozenset()
    for a in args[1:]:
        if a.axes is not free:
            free |= a.axes
    if op == "reduce":
        free -= frozenset(attr.axes)
        if attr.kind.startswith("topk"):
            free |= {attr.extra[1]}
    return free


def _written(attr: Any) -> str:
    """The text of an attribute; of constants that Python does not print in decimals, in hexadecimals."""
    if isinstance(attr, Fraction) and max(attr.numerator.bit_length(), attr.denominator.bit_length()) > 1 << 13:
        return f"{attr.numerator:x}/{attr.denominator:x}"
    return repr(attr)


def _text(attr: Any) -> str:
    return f"{attr}{sorted(attr.domain)}{attr.array and attr.name}" if isinstance(attr, Decl) else _written(attr)


def _digest(op: str, text: str, args: Iterable[bytes]) -> bytes:
    h = hashlib.blake2b(f"{op}|{text}|".encode(), digest_size=16)
    for a in args:
        h.update(a)
    return h.digest()


_COPY = re.compile(r"~\d+")


# --- constructors: flatten, fold constants, collect; they never use a law that fails for infinities or NaN ---------

TRUE, FALSE = Node("true"), Node("false")
_SMALL = 16
_WHOLE = {k: Node("const", (), Fraction(k)) for k in range(-_SMALL, _SMALL + 1)}
_UNIT = Fraction(1)


def const(value: int | Fraction) -> Node:
    value = value if type(value) in (int, Fraction) else Fraction(value)
    if value.denominator == 1 and -_SMALL <= value.numerator <= _SMALL:  # a fraction takes long to hash
        return _WHOLE[value.numerator]
    return Node("const", (), value if type(value) is Fraction else Fraction(value))


def special(name: str) -> Node:
    return Node("special", (), name)


ZERO, ONE, MINUS_ONE, HALF = const(0), const(1), const(-1), const(Fraction(1, 2))
INF, NEG_INF = special("oo"), special("-oo")


def is_const(node: Node, value: int | Fraction | None = None) -> bool:
    return node.op == "const" and (value is None or node.attr == value)


def is_inverse(node: Node) -> bool:
    """Whether a node is a power with a negative constant as its exponent: it divides by its base."""
    return node.op == "pow" and node.args[1].op == "const" and bool(node.args[1].attr < 0)


def _sorted(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(sorted(nodes, key=lambda n: (n.order, n.digest)))


def _split_coefficient(term: Node) -> tuple[Fraction, Node]:
    if term.op == "const":
        return term.attr, ONE
    if term.op == "mul" and term.args[0].op == "const":
        rest = term.args[1:]
        return term.args[0].attr, rest[0] if len(rest) == 1 else Node("mul", rest)
    return _UNIT, term


def add(*terms: Node) -> Node:
    """Sum with like terms collected, in canonical order. ``add(x, x) -> 2*x``; ``add() -> 0``."""
    total: dict[Node, Fraction] = {}
    stack = list(reversed(terms))
    while stack:
        term = stack.pop()
        if term.op == "add":
            stack.extend(reversed(term.args))
            continue
        c, body = _split_coefficient(term)
        total[body] = total[body] + c if body in total else c
    parts = [_multiple(c, body) for body, c in total.items() if c]
    if not parts:
        return ZERO
    return parts[0] if len(parts) == 1 else Node("add", _sorted(parts))


def _multiple(c: Fraction, body: Node) -> Node:
    """``mul(c, body)``: of what is neither a constant, a product, a power nor a sum there is nothing to fold."""
    if body.op in _FOLDED:
        return mul(const(c), body)
    return body if c == 1 else Node("mul", (const(c), body))


_FOLDED = frozenset({"const", "mul", "pow", "add"})


def mul(*factors: Node) -> Node:
    """Product with constants folded and powers of one base merged, constant first."""
    c, powers = _collected(factors)
    if not c:
        return ZERO
    parts = [power(b, e) for b, e in powers.items() if e is not ZERO]
    if not parts:
        return const(c)
    if c != 1:
        if len(parts) == 1 and parts[0].op == "add":
            return add(*(mul(const(c), t) for t in parts[0].args))
        return Node("mul", (const(c), *_sorted(parts)))
    return parts[0] if len(parts) == 1 else Node("mul", _sorted(parts))


def _collected(factors: Iterable[Node]) -> tuple[Fraction, dict[Node, Node]]:
    """The constant of a product, and every base with its exponent."""
    c = _UNIT
    powers: dict[Node, Node] = {}
    stack = list(reversed(tuple(factors)))
    while stack:
        f = stack.pop()
        if f.op == "mul":
            stack.extend(reversed(f.args))
        elif f.op == "const":
            c = f.attr if c is _UNIT else c * f.attr
        else:
            base, e = (f.args[0], f.args[1]) if f.op == "pow" and f.args[1].op == "const" else (f, ONE)
            powers[base] = add(powers[base], e) if base in powers else e
    return c, powers


def power(base: Node, exponent: Node | int | Fraction) -> Node:
    """The power, folded where that holds for infinities and NaN too; see the rules per operation of the base below."""
    e = exponent if isinstance(exponent, Node) else const(exponent)
    if e is ONE:
        return base
    if e is ZERO or base is ONE:
        return ONE
    rule = _POWERS.get(base.op) if e.op == "const" else None
    folded = rule(base, e) if rule is not None else None
    return Node("pow", (base, e)) if folded is None else folded


def is_written_out(base: Fraction, e: Fraction) -> bool:
    """Whether a whole power of a constant has few enough digits to be a constant."""
    size = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    return e.denominator == 1 and size * abs(e) <= WRITTEN


def _power_of_constant(base: Node, e: Node) -> Node | None:
    if is_written_out(base.attr, e.attr) and (base.attr or e.attr > 0):
        return const(base.attr ** int(e.attr))
    return None


def _power_of_power(base: Node, e: Node) -> Node | None:
    """``(x^m)^n = x^(m·n)`` for whole exponents."""
    inner = base.args[1]
    if inner.op == "const" and inner.attr.denominator == 1 and e.attr.denominator == 1:
        return power(base.args[0], const(inner.attr * e.attr))
    return None


def _power_of_product(base: Node, e: Node) -> Node | None:
    """Distributed for negative whole exponents; ``(n·t)^q = n^q·t^q`` for state parts n positive by their nature."""
    if e.attr.denominator == 1 and e.attr < 0:
        return mul(*(power(f, e) for f in base.args))
    positive = [f for f in base.args if f.op == "state" and "positive" in f.attr.domain]
    if not positive:
        return None
    rest = mul(*(f for f in base.args if f not in positive))
    return mul(*(power(f, e) for f in positive), power(rest, e))


# base's operation -> its power to a constant exponent, or None where no rule holds
_POWERS: dict[str, Callable[[Node, Node], Node | None]] = {
    "const": _power_of_constant,
    "pow": _power_of_power,
    "mul": _power_of_product,
}


def neg(node: Node) -> Node:
    return mul(MINUS_ONE, node)


def sub(a: Node, b: Node) -> Node:
    return add(a, neg(b))


def div(a: Node, b: Node) -> Node:
    return mul(a, power(b, -1))


def fn(name: str, arg: Node) -> Node:
    if name == "exp" and is_const(arg, 0):
        return ONE
    if name == "log" and is_const(arg, 1):
        return ZERO
    return Node(name, (arg,))


def where(condition: Node, then: Node, other: Node) -> Node:
    if condition is TRUE or then is other:
        return then
    return other if condition is FALSE else Node("where", (condition, then, other))


def logical(op: str, *args: Node) -> Node:
    """`and` / `or`, flattened, without duplicates and neutral elements."""
    neutral, absorbing = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
    parts: dict[Node, None] = {}
    for a in args:
        for p in a.args if a.op == op else (a,):
            if p is absorbing:
                return absorbing
            if p is not neutral:
                parts[p] = None
    if not parts:
        return neutral
    return next(iter(parts)) if len(parts) == 1 else Node(op, _sorted(parts))


def negate(condition: Node) -> Node:
    """Logical not. An order comparison is not reversed: with NaN, not (a < b) differs from b <= a."""
    if condition is TRUE:
        return FALSE
    if condition is FALSE:
        return TRUE
    if condition.op == "not":
        return condition.args[0]
    if condition.op in ("eq", "ne"):
        return Node("ne" if condition.op == "eq" else "eq", condition.args)
    return Node("not", (condition,))


def compare(op: str, a: Node, b: Node) -> Node:
    if op in ("gt", "ge"):
        op, a, b = {"gt": "lt", "ge": "le"}[op], b, a
    if op in ("eq", "ne"):
        a, b = _sorted((a, b))
    if a.op == "const" and b.op == "const":
        holds = {"eq": a.attr == b.attr, "ne": a.attr != b.attr, "lt": a.attr < b.attr, "le": a.attr <= b.attr}[op]
        return TRUE if holds else FALSE
    return Node(op, (a, b))


def extremum(op: str, *args: Node) -> Node:
    """`maximum` or `minimum` of several arguments, flattened and without duplicates."""
    parts = dict.fromkeys(p for a in args for p in (a.args if a.op == op else (a,)))
    return next(iter(parts)) if len(parts) == 1 else Node(op, _sorted(parts))


def tensor(name: str, axes: Iterable[str] = (), domain: Iterable[str] = ()) -> Node:
    return Node("tensor", (), Decl(name, tuple(axes), frozenset(domain)))


def state(name: str, axes: Iterable[str] = (), domain: Iterable[str] = ()) -> Node:
    """A leaf that stands for a named part of a state (a slot, an anchor, a shift of an anchor)."""
    return _state(name, tuple(axes), frozenset(domain))


@lru_cache(maxsize=1024)
def _state(name: str, axes: tuple[str, ...], domain: frozenset[str]) -> Node:
    """Kept, since slots and anchors are asked for their leaves again and again."""
    return Node("state", (), Decl(name, axes, domain))


def reduction(kind: str, axes: Iterable[str], *bodies: Node, extra: Any = None) -> Node:
    return Node("reduce", tuple(bodies), Reduce(kind, tuple(axes), extra))


def size(axes: Iterable[str]) -> Node:
    return mul(*(Node("size", (), a) for a in axes))


# --- walks ---------------------------------------------------------------------------------------------------------


def walk(*roots: Node, done: Container[object] = ()) -> Iterator[Node]:
    """Every node below the roots once, arguments before the nodes that use them (deterministic order).

    What is in `done` is not entered; it may grow on the way. No walk recurses, however deep a chain of stages is.
    """
    seen: set[Node] = set()
    above: list[Node] = []  # nodes that are walked, with what is left of the arguments that each stands among
    left: list[Iterator[Node]] = []
    here = iter(roots)
    while True:
        for node in here:
            if node not in seen and node not in done:
                seen.add(node)
                if node.args:
                    above.append(node)
                    left.append(here)
                    here = iter(node.args)
                    break
                yield node
        else:
            if not above:
                return
            here = left.pop()
            yield above.pop()


def outermost(wanted: Callable[[Node], bool], *roots: Node, done: Container[object] = ()) -> Iterator[Node]:
    """Every node below the roots that is wanted once, the last roots first; below such a node no other is looked for,
    nor in what is in `done`."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen or node in done:
            continue
        seen.add(node)
        if wanted(node):
            yield node
        else:
            stack += node.args


def outermost_reductions(*roots: Node) -> Iterator[Node]:
    """The reductions below the roots that are below no other."""
    return outermost(lambda n: n.op == "reduce", *roots)


def with_states(node: Node, values: Mapping[str, Node]) -> Node:
    """The node with values in the place of state leaves of these names, as it stands."""
    mapping = {leaf: values[leaf.attr.name] for leaf in leaves(node, "state") if leaf.attr.name in values}
    return substitute(node, mapping, raw=True) if mapping else node


def factors(fold: Node) -> tuple[Node, ...]:
    """What a reduction's body multiplies."""
    body = fold.args[0]
    return body.args if body.op == "mul" else (body,)


def is_position(node: Node) -> bool:
    return node.op == "reduce" and node.attr.kind in POSITIONS


def fresh(name: str, taken: set[str]) -> str:
    """The name, or one like it that is not taken; from now on it is."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class Levels:
    """Where a recursion over a graph rests: one level of nodes out of `step`, and all of `kinds` of operation.

    Whoever has looked at the nodes `below` one, in this order, recurses through `step` levels at most, however deep a
    chain of stages or a nest of functions is. Each node is looked at once; what is below a node of `closed` is not.
    """

    def __init__(self, step: int, kinds: Container[str] = (), closed: Container[str] = ()) -> None:
        self.step, self.kinds, self.closed = step, kinds, closed
        self._height: dict[Node, int] = {}  # levels since the last rest

    def copy(self) -> Levels:
        new = Levels(self.step, self.kinds, self.closed)
        new._height = dict(self._height)
        return new

    def __contains__(self, node: object) -> bool:
        return node in self._height or isinstance(node, Node) and node.op in self.closed

    def below(self, node: Node) -> Iterator[Node]:
        """The nodes to be looked at before this one, innermost first."""
        for n in walk(*node.args, done=self):
            height = 1 + max((self._height.get(a, 0) for a in n.args), default=0)
            rests = height >= self.step or n.op in self.kinds
            self._height[n] = 0 if rests else height
            if rests:
                yield n


def rebuild(node: Node, args: tuple[Node, ...]) -> Node:
    """The same operation on other arguments, through the constructors that simplify."""
    if args == node.args:
        return node
    simple: dict[str, Callable[..., Node]] = {"add": add, "mul": mul, "pow": power, "where": where}
    if node.op in simple:
        return simple[node.op](*args)
    if node.op in UNARY:
        return fn(node.op, *args)
    if node.op in ("and", "or"):
        return logical(node.op, *args)
    if node.op == "not":
        return negate(*args)
    if node.op in COMPARISONS:
        return compare(node.op, *args)
    if node.op in ("maximum", "minimum"):
        return extremum(node.op, *args)
    return Node(node.op, args, node.attr)


def substitute(root: Node, mapping: dict[Node, Node], raw: bool = False) -> Node:
    """Replace nodes (whole subgraphs) by others; `raw` rebuilds without simplification, keeping evaluation order."""
    return substitute_all((root,), mapping, raw)[root]


def substitute_all(roots: Collection[Node], mapping: Mapping[Node, Node], raw: bool = False) -> dict[Node, Node]:
    """`substitute` in many nodes at once: what they share is rebuilt once. The result has at least the roots."""
    return extend(roots, dict(mapping), raw)


def extend(roots: Collection[Node], new: dict[Node, Node], raw: bool = False) -> dict[Node, Node]:
    """`substitute_all` with the results added to the mapping, so that the next call goes on from there."""
    for node in walk(*roots, done=new):
        args = tuple(new[a] for a in node.args)
        new[node] = node if args == node.args else Node(node.op, args, node.attr) if raw else rebuild(node, args)
    return new


def leaves(root: Node, *ops: str) -> list[Node]:
    """All leaf nodes of the given operations (default: tensor), each once, in order of first appearance."""
    wanted = ops or ("tensor",)
    return [n for n in walk(root) if n.op in wanted]


class Without(frozenset[str]):
    """As a container of nodes: those that read none of these axes."""

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Node) and self.isdisjoint(node.axes)


def rename_axes(root: Node, mapping: dict[str, str], raw: bool = False) -> Node:
    """Rename free axes. A tensor under a renamed axis keeps its name and reads along the new one.

    `raw`: terms and factors stay in their order, and so are rounded as they were.

    >>> inner = reduction("sum", "d", mul(tensor("q", ("i", "d")), tensor("k", "d")))
    >>> rename_axes(inner, {"i": "h", "d": "e"}) is rename_axes(inner, {"i": "h"})
    True
    """
    new: dict[Node, Node] = {}
    for node in walk(root, done=Without(mapping)):
        if node.op in ("tensor", "state"):
            d = node.attr
            read = tuple(x.along(mapping) for x in d.dimensions)
            new[node] = Node(node.op, (), replace(d, axes=tuple(mapping.get(a, a) for a in d.axes), dimensions=read))
            continue
        attr, args = node.attr, tuple(new.get(a, a) for a in node.args)
        if node.op == "reduce" and not mapping.keys().isdisjoint(attr.axes):  # free outside, bound here
            free = {a: b for a, b in mapping.items() if a not in attr.axes}
            args = tuple(rename_axes(a, free, raw) for a in node.args)
        if node.op == "index":
            new[node] = Node("index", (), mapping.get(attr, attr))
        elif node.op == "reduce" and attr.kind.startswith("topk") and attr.extra[1] in mapping:
            k, axis = attr.extra
            new[node] = Node("reduce", args, Reduce(attr.kind, attr.axes, (k, mapping[axis])))
        else:
            new[node] = Node(node.op, args, attr) if raw else rebuild(node, args)
    return new.get(root, root)
