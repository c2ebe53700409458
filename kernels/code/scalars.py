"""Graph nodes as Python expressions on scalars, for generated code that Numba types.

Every literal carries its type (``f32(0.5)``), so that nothing is widened by accident. What is used more than once gets
a name, and so do the branches of a choice: both are then computed, and the choice is a select.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count

from redalg.graph.masked import is_statistic
from redalg.graph.node import COMPARISONS, Levels, Node, is_inverse, leaves, rename_axes, walk
from redalg.kernels.ir.compensated import FUNCTIONS
from redalg.kernels.ir.compensated import SUM as EXACT_SUM
from redalg.kernels.ir.contractions import unknown_inside
from redalg.kernels.ir.kinds import Kinds, counted, widest
from redalg.kernels.ir.one_hot import one_hot_of
from redalg.kernels.lower.signs import (
    inverse,
    inverse_root,
    is_count,
    is_minus,
    is_negation,
    is_safe,
    is_share,
    negated,
)
from redalg.source.names import axis_name

COMPARE, ADD, MUL, SIGN, ATOM = range(5)  # how strongly a text binds
RELATION = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
SPECIAL = {"oo": "INF", "-oo": "-INF", "nan": "NAN", "pi": "PI", "e": "E"}
DEEP = 64  # operations inside operations that recursion passes
# A divisor is scaled beyond 2^±far: a large one by 2^-far, a small one by 2^near, so that it is still small enough for
# its quotients by subnormal numbers to be normal before the scale is multiplied by.
FAR, NEAR = {"f32": 64, "f64": 512}, {"f32": 40, "f64": 460}
# A reciprocal and what it is multiplied by to be certainly, and hardly, below the exact one.
BELOW = {"f32": ("fast_rcp", 1 - Fraction(1, 2**22)), "f64": ("rcp", 1 - Fraction(1, 2**52))}
LONG = 12  # operations from which on an expression gets a line of its own
IDENTITY = {"sum": "0", "prod": "1", "any": "False", "all": "True"}
INT_LIMITS = {
    **{f"int{b}": (-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (4, 8, 16, 32)},
    **{f"uint{b}": (0, 2**b - 1) for b in (4, 8, 16, 32)},
    "uint64": (0, 2**63 - 1),  # integers of kernels are int64
}


def _is_stage(term: Node, axes: frozenset[str]) -> bool:
    """Whether a term is a statistic, or one of statistics and constants that elements choose."""
    body = negated(term) if is_negation(term) else term
    if body.op == "where":
        branches = [b for b in body.args[1:] if b.op not in ("const", "special")]
        return bool(branches) and all(_is_stage(b, axes) for b in branches)
    return is_statistic(term, axes)


def _is_saved(term: Node, axes: frozenset[str]) -> bool:
    """Whether a term may be one that a forward pass saved: a tensor of rows that is taken away from elements."""
    return is_negation(term) and negated(term).op == "tensor" and bool(axes - term.axes)


def _may_contract(term: Node, axes: frozenset[str]) -> bool:
    """Whether a term ends in a sum or product of elements, with which a compiler might fuse or reorder another sum."""
    if term.op == "add":
        return _is_rounded_apart([t for t in term.args if not _is_stage(t, axes)], axes)
    return (negated(term) if is_negation(term) else term).op in ("mul", "pow", "reduce", "where")


def _is_rounded_apart(elements: list[Node], axes: frozenset[str]) -> bool:
    """Whether these terms are to be added up and rounded before a statistic is added."""
    return len(elements) > 1 or any(_may_contract(t, axes) for t in elements)


def strength(kind: str) -> int:
    """How strongly the operands of a reduction's ⊕ have to bind."""
    return SIGN if kind in ("any", "all", "prod") else MUL


@dataclass
class Counts:
    """How often nodes are used, which are exponents, how many operations a line has so far, where recursion rests, and
    the numbers that stand for a division by a node (`Scalars._reciprocal`)."""

    uses: dict[Node, int] = field(default_factory=dict)
    exponents: set[Node] = field(default_factory=set)
    weight: dict[Node, int] = field(default_factory=dict)
    levels: Levels = field(default_factory=lambda: Levels(DEEP, closed={"reduce"}))
    divisors: dict[Node, tuple[str, ...]] = field(default_factory=dict)


class Scalars:
    """The statements of one block of code, and the values known in it.

    `leaf` gives the text of a tensor, state, size or index node (inexact ones in the real type); `real` is "f32" or
    "f64". `lines` grows as values get names; a `child` knows everything known here and has lines of its own.
    """

    def __init__(
        self,
        real: str,
        kinds: Kinds,
        leaf: Callable[[Node], str],
        length: Callable[[str], str] = lambda axis: f"size_{axis_name(axis)}",
        counter: Iterator[int] | None = None,
        known: Mapping[Node, str] | None = None,
        looped: Iterable[str] = (),
        bounded: frozenset[str] = frozenset(),
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.real, self.kinds, self.leaf, self.length = real, kinds, leaf, length
        self.counter = counter if counter is not None else count(1)
        self.known: dict[Node, str] = dict(known or {})
        self.bounded = bounded  # parts of the state whose reciprocal may stand for a division by them
        # Functions called by another name; "/j": divisions that vary along j, "/count": by numbers of elements,
        # "1/sqrt": by roots, "1/sqrt j": by roots that vary along j, "/shared": by what many elements have in common.
        self.names = dict(names or {})
        self.looped = frozenset(looped)  # axes that have a loop, and so an index ``i_<axis>``, around this block
        self.lines: list[str] = []
        self._counts = Counts()

    def child(self, axes: Iterable[str] = ()) -> Scalars:
        """A block inside this one, in loops over `axes`."""
        known = {node: name for node, name in self.known.items() if node.axes.isdisjoint(axes)}
        looped = self.looped | {*axes}
        made = Scalars(
            self.real, self.kinds, self.leaf, self.length, self.counter, known, looped, self.bounded, self.names
        )
        self._hand_divisors(made, axes)
        return made

    def _hand_divisors(self, made: Scalars, axes: Iterable[str]) -> None:
        """What stands for divisions here does so in a block in loops over `axes`, but where these make a difference."""
        divisors = self._counts.divisors
        made._counts.divisors = {node: names for node, names in divisors.items() if node.axes.isdisjoint(axes)}

    # --- statements --------------------------------------------------------------------------------------------------

    def announce(self, roots: Iterable[Node]) -> None:
        """Count the uses of everything below the roots, so that what is shared gets a name."""
        for root in roots:
            self._counts.uses[root] = self._counts.uses.get(root, 0) + 1
        for node in walk(*roots):
            for a in node.args:
                self._counts.uses[a] = self._counts.uses.get(a, 0) + 1
            if node.op in ("exp", "expm1"):
                self._counts.exponents.add(node.args[0])

    def assign(self, name: str, node: Node, kind: str | None = None) -> None:
        """`name = node`, converted to `kind` if one is given; the node is known by that name from here on."""
        text = self.text(node) if kind is None else self.converted(node, kind)
        self.lines.append(f"{name} = {text}")
        if kind is None or kind == self.kinds.of(node):
            self.known[node] = name

    def forget(self, leaf: Node) -> None:
        """From here on the leaf is another value."""
        self.known = {node: name for node, name in self.known.items() if leaf not in leaves(node, leaf.op)}
        divisors = self._counts.divisors
        self._counts.divisors = {node: names for node, names in divisors.items() if leaf not in leaves(node, leaf.op)}

    def define(self, node: Node) -> str:
        """The name of a node's value; assigned here if it has none."""
        if node not in self.known:
            text = self._written(node)[1]
            if text.isidentifier():
                self.known[node] = text
            if node not in self.known:
                self.known[node] = self.fresh()
                self.lines.append(f"{self.known[node]} = {text}")
        return self.known[node]

    @contextmanager
    def apart(self) -> Iterator[None]:
        """A block of a loop: what gets a name there is not known behind it."""
        known, divisors = dict(self.known), dict(self._counts.divisors)
        yield
        self.known, self._counts.divisors = known, divisors

    def fresh(self) -> str:
        return f"t{next(self.counter)}"

    def hoist(self, roots: Iterable[Node], varying: Iterable[str]) -> None:
        """Give names to everything below the roots that costs something and does not vary along these axes."""
        seen, stack = set(), [(root, frozenset(varying)) for root in roots]
        while stack:
            node, axes = stack.pop()
            if node in seen or node in self.known:
                continue
            seen.add(node)
            if not node.axes.isdisjoint(axes):
                inside = axes | frozenset(node.attr.axes) if node.op == "reduce" else axes
                stack += [(a, inside) for a in reversed(node.args)]
            elif is_negation(node):
                stack += [(a, axes) for a in node.args]
            elif is_inverse(node):
                stack += [(a, axes) for a in self._hoisted_inverse(node, axes)]
            elif node.op == "tensor" or node.args:
                self.define(node)

    def _hoisted_inverse(self, node: Node, varying: Iterable[str]) -> tuple[Node, ...]:
        """Name an inverse, or the root whose power it is; what is to be named where that may not be multiplied by."""
        root = inverse_root(node)
        if root is None and not is_safe(node, self.bounded):
            self._reciprocal(inverse(node), any(f"/{axis}" in self.names for axis in varying))
            return (inverse(node),)
        self.define(root[0] if root else node)
        return ()

    def _reciprocal(self, divisor: Node, quick: bool) -> None:
        """Name numbers by which what is divided by a divisor may be multiplied, one after the other.

        The reciprocal of a number out of [2^-64, 2^64] may be out of range where a quotient is not: it is scaled. Where
        quotients may be `quick`, two products stand for about six instructions, and are off by no more (1.5 units in
        the last place); else three stand for some ten and a branch, for the nearest quotient but in rare cases.
        """
        shared = self.names.get("/shared")
        if not quick and shared is None or divisor in self._counts.divisors:
            return
        if is_count(divisor) or self._root_function(divisor):
            return
        by, scale, reciprocal = self.atom(divisor, "f"), self.fresh(), self.fresh()
        far = 2 ** FAR[self.real]
        high, low, up, one = (self.number(Fraction(n)) for n in (far, Fraction(1, far), 2 ** NEAR[self.real], 1))
        self.lines.append(f"# For quotients by {by}: its reciprocal, scaled where that may leave the range.")
        self.lines.append(f"{scale} = {low} if abs({by}) > {high} else {up} if abs({by}) < {low} else {one}")
        if quick:
            self.lines.append(f"{reciprocal} = fast_rcp_{self.real}({by} * {scale})")
            self._counts.divisors[divisor] = reciprocal, scale
            return
        scaled, rest, (function, below) = self.fresh(), self.fresh(), BELOW[self.real]
        self.lines.append(f"{scaled} = {by} * {scale}")
        self.lines.append(f"{reciprocal} = {function}_{self.real}({scaled}) * {self.number(below)}")
        self.lines.append(
            f"{rest} = reciprocal_rest_{self.real}({scaled}, {reciprocal})  # what 1/{scaled} has beyond it"
        )
        self._counts.divisors[divisor] = reciprocal, rest, scale

    # --- expressions -------------------------------------------------------------------------------------------------

    def kind(self, node: Node) -> str:
        return self.kinds.of(node)

    def text(self, node: Node, level: int = COMPARE) -> str:
        """The node's value, in parentheses if it binds weaker than `level`."""
        if node in self.known:
            return self.known[node]
        own, text = self._written(node)
        if node in self.known:
            return self.known[node]
        if self._deserves_name(node):
            name = self.known[node] = self.fresh()
            self.lines.append(f"{name} = {text}")
            return name
        return f"({text})" if own < level else text

    def converted(self, node: Node, kind: str, level: int = COMPARE) -> str:
        """The value as another kind; literals are written in it."""
        own = self.kinds.of(node)
        if own == kind:
            return self.text(node, level)
        if kind == "f":
            return self.number(node.attr) if node.op == "const" else f"{self.real}({self.text(node)})"
        if kind == "i":
            return f"i64({self.text(node)})"
        return f"({self.text(node, ADD)} != 0)"

    def number(self, value: Fraction) -> str:
        if value.denominator == 1 and abs(value.numerator) < 2**24:
            return f"{self.real}({value.numerator})"
        try:
            return f"{self.real}({float(value)!r})"
        except OverflowError:
            return "INF" if value > 0 else "-INF"

    def atom(self, node: Node, kind: str | None = None) -> str:
        """A name or a literal: something that may be written twice at no cost."""
        if node.op in ("const", "special") or node in self.known or is_negation(node) and node.args[1] in self.known:
            return self.converted(node, kind or self.kinds.of(node), ATOM)
        if kind is not None and kind != self.kinds.of(node):
            name = self.fresh()
            self.lines.append(f"{name} = {self.converted(node, kind)}")
            return name
        return self.define(node)

    def _deserves_name(self, node: Node) -> bool:
        if not node.args:
            return node.op == "tensor" and self._counts.uses.get(node, 0) > 1
        weight = 1 + sum(1 if a in self.known else self._counts.weight.get(a, 1) for a in node.args)
        self._counts.weight[node] = weight
        dear = weight > 2 or node.op not in ("add", "mul")
        if self._counts.uses.get(node, 0) > 1 and dear and not is_negation(node) or weight > LONG:
            self._counts.weight[node] = 1
            return True
        return False

    def _written(self, node: Node) -> tuple[int, str]:
        for inner in self._counts.levels.below(node):
            if not (is_inverse(inner) or is_negation(inner)):
                self.define(inner)
        op = node.op
        if op in ("tensor", "state", "size", "index"):
            return ATOM, self.leaf(node)
        if op == "const":
            kind = self.kinds.of(node)
            return (ATOM, self.number(node.attr)) if kind == "f" else _integer(node.attr.numerator)
        if op == "special":
            return SIGN if node.attr == "-oo" else ATOM, SPECIAL[node.attr]
        if op in ("true", "false"):
            return ATOM, op.capitalize()
        rule = getattr(self, f"_{op}", None)
        if rule is not None:
            return rule(node)
        if op in COMPARISONS:
            a, b = self._compared(node)
            return COMPARE, f"{a} {RELATION[op]} {b}"
        return self._map(node)

    def _compared(self, node: Node) -> list[str]:
        """Both sides of a comparison. An integer and a float32 are compared as float64, as they are by NumPy: 2^24 + 1
        is no float32."""
        kinds = [self.kinds.of(a) for a in node.args]
        whole = node.args[kinds.index("i")] if {*kinds} == {"i", "f"} else None
        if self.real == "f32" and whole is not None and (whole.op != "const" or abs(whole.attr) > 2**24):
            return [_double(a.attr) if a.op == "const" else f"f64({self.text(a)})" for a in node.args]
        return [self.converted(a, widest(kinds), ADD) for a in node.args]

    # --- arithmetic --------------------------------------------------------------------------------------------------

    def _add(self, node: Node) -> tuple[int, str]:
        """Terms that vary most first and statistics last, so that u in u - max u rounds as it does below the max.

        A sum, or a product, that a compiler might add a statistic to before it is rounded is added by `exact_sum`: x·w
        contracted with - max(x·w) is what rounding left of x·w, not 0, and grows with it (e^88 at 2^30 in float32).
        What an exponent of a gradient takes away is such a maximum, too, which was saved.
        """
        kind, given = self.kinds.of(node), node in self._counts.exponents

        def is_stage(t: Node) -> bool:
            return _is_stage(t, node.axes) or given and _is_saved(t, node.axes)

        terms = sorted(node.args, key=lambda t: (is_stage(t), is_minus(t), -len(t.axes)))
        elements = [t for t in terms if not is_stage(t)]
        apart = kind == "f" and len(elements) < len(terms) and _is_rounded_apart(elements, node.axes)
        text = self.converted(terms[0], kind, ADD)
        for at, t in enumerate(terms[1:], start=1):
            if apart and at >= len(elements):
                text = f"{EXACT_SUM}_{self.real}({text}, {self.converted(t, kind)})"
            elif is_minus(t) and t not in self.known:
                text += f" - {self.converted(negated(t), kind, MUL)}"
            else:
                text += f" + {self.converted(t, kind, MUL)}"
        return ATOM if apart else ADD, text

    def _mul(self, node: Node) -> tuple[int, str]:
        kind = self.kinds.of(node)
        if is_negation(node):
            return SIGN, f"-{self.converted(negated(node), kind, SIGN)}"
        above, below, roots = [], [], []
        for f in node.args:
            if times := self._roots(f):
                roots += times
            elif is_inverse(f) and f not in self.known:
                below.append(inverse(f))
            elif f.op == "const" and f.attr.denominator > 1 and abs(f.attr.numerator) < 2**53 > f.attr.denominator:
                above += [Node("const", (), Fraction(f.attr.numerator))] if f.attr.numerator != 1 else []
                below.append(Node("const", (), Fraction(f.attr.denominator)))
            else:
                above.append(f)
        above.sort(key=lambda f: len(f.axes))
        if len(above) > 2 and any(map(is_inverse, above)):  # what a statistic scales has a common size then
            above = above[-1:] + sorted(above[:-1], key=lambda f: not is_inverse(f))
        text = " * ".join(self.converted(f, kind, MUL if i == 0 else SIGN) for i, f in enumerate(above))
        return MUL, " * ".join([self._over(text or self.number(Fraction(1)), below, node), *roots])

    def _roots(self, f: Node) -> list[str]:
        """The names of factors that make up a power of a root which has a name, or stand for a division by a count."""
        if f in self.known and is_share(f):
            return [self.known[f]]
        root = inverse_root(f) if is_inverse(f) and f not in self.known else None
        return [self.known[root[0]]] * root[1] if root is not None and root[0] in self.known else []

    def _over(self, text: str, below: Iterable[Node], node: Node) -> str:
        quick = next((self.names[f"/{a}"] for a in node.axes if f"/{a}" in self.names), None)
        for f in below:
            if root := self._root_function(f):
                of = f"{root}_{self.real}({self.converted(f.args[0], 'f')})"
                text = of if text == self.number(Fraction(1)) else f"{text} * {of}"
                continue
            if is_count(f) and "/count" in self.names:
                text = self.by_count(text, self.converted(f, "f"))
                continue
            if f in self._counts.divisors and (quick or "/shared" in self.names):
                text = self._by_reciprocal(text, self._counts.divisors[f])
                continue
            by = self.converted(f, "f", COMPARE if quick else SIGN)
            text = f"{quick}_{self.real}({text}, {by})" if quick else f"{text} / {by}"
        return text

    def _by_reciprocal(self, text: str, factors: tuple[str, ...]) -> str:
        """A quotient by what numbers stand for."""
        if len(factors) == 2:
            return " * ".join([text, *factors])
        return f"{self.names['/shared']}_{self.real}({text}, {', '.join(factors)})"

    def by_count(self, text: str, count: str) -> str:
        """A quotient by a number of elements."""
        quick = self.names.get("/count")
        if quick == "fast_rcp":
            return f"{text} * fast_rcp_{self.real}({count})"
        return f"{quick}_{self.real}({text}, {count})" if quick else f"{text} / {count}"

    def _root_function(self, f: Node) -> str | None:
        """The function that stands for a division by a square root: that of all its axes, or of any root."""
        if f.op != "pow" or f.args[1].op != "const" or f.args[1].attr != Fraction(1, 2) or f in self.known:
            return None
        found = {self.names.get(f"1/sqrt {axis}") for axis in f.axes}
        own = found.pop() if len(found) == 1 else None
        return own or self.names.get("1/sqrt")

    def _pow(self, node: Node) -> tuple[int, str]:
        base, e = node.args
        if e.op != "const":
            return ATOM, f"pow_{self.real}({self.converted(base, 'f')}, {self.converted(e, 'f')})"
        q = e.attr
        if q < 0:
            return MUL, self._over(self.number(Fraction(1)), [inverse(node)], node)
        if q.denominator == 1 and (q <= 4 or self.kinds.of(base) != "f"):
            kind = self.kinds.of(node)
            times = int(q) if q <= 64 else 64 + int(q) % 2  # of 0, 1 and -1: int64 holds no other such power
            return MUL, _multiplied(self.atom(base, kind), times)
        if q == Fraction(1, 2):
            return ATOM, f"sqrt_{self.real}({self.converted(base, 'f')})"
        if q == Fraction(3, 2):
            x = self.atom(base, "f")
            return MUL, f"{x} * sqrt_{self.real}({x})"
        return ATOM, f"pow_{self.real}({self.converted(base, 'f')}, {self.number(q)})"

    # --- maps --------------------------------------------------------------------------------------------------------

    def _map(self, node: Node) -> tuple[int, str]:
        op, arg = node.op, node.args[0]
        kind = counted(self.kinds.of(arg))
        if op in ("conj", "re") or kind == "i" and op in ("floor", "ceil"):
            return ATOM, self.converted(arg, kind, ATOM)
        if op == "im":
            return ATOM, "0" if kind == "i" else self.number(Fraction(0))
        if kind == "i" and op in ("abs", "relu", "sign"):
            x = self.atom(arg, "i")
            return ATOM, {"abs": f"abs({x})", "relu": f"max({x}, 0)", "sign": f"(i64({x} > 0) - i64({x} < 0))"}[op]
        x = self.converted(arg, "f")
        if op == "relu":
            return ATOM, f"max_nan_{self.real}({x}, {self.number(Fraction(0))})"
        return ATOM, f"{self.names.get(op, op)}_{self.real}({x})"

    def _extremum(self, node: Node) -> tuple[int, str]:
        kind = counted(self.kinds.of(node))
        name = node.op[:3] if kind == "i" else f"{node.op[:3]}_nan_{self.real}"
        text = self.converted(node.args[0], kind)
        for a in node.args[1:]:
            text = f"{name}({text}, {self.converted(a, kind)})"
        return ATOM, text

    _maximum = _minimum = _extremum

    def _where(self, node: Node) -> tuple[int, str]:
        kind = self.kinds.of(node)
        condition = self.text(node.args[0], ADD)
        then, other = (self.atom(a, kind) for a in node.args[1:])
        return COMPARE, f"{then} if {condition} else {other}"

    def _and(self, node: Node) -> tuple[int, str]:
        return COMPARE, " & ".join(self.text(a, ATOM) for a in node.args)

    def _or(self, node: Node) -> tuple[int, str]:
        return COMPARE, " | ".join(self.text(a, ATOM) for a in node.args)

    def _not(self, node: Node) -> tuple[int, str]:
        return COMPARE, f"not {self.text(node.args[0], ADD)}"

    def _call(self, node: Node) -> tuple[int, str]:
        """A half of a packed key, or of a pair."""
        if node.attr in FUNCTIONS:
            return ATOM, f"{node.attr}_{self.real}({', '.join(self.converted(a, 'f') for a in node.args)})"
        return ATOM, f"{node.attr}({self.text(node.args[0])})"

    def _cast(self, node: Node) -> tuple[int, str]:
        name, arg = node.attr, node.args[0]
        kind = counted(self.kinds.of(arg))
        if name == "bool":
            return COMPARE, f"{self.converted(arg, kind, ADD)} != 0"
        if kind == "i" and not name.startswith(("float", "bfloat")):
            if name not in INT_LIMITS:
                return ATOM, self.converted(arg, "i", ATOM)
            low, high = INT_LIMITS[name]
            return ATOM, f"min(max({self.converted(arg, 'i')}, {low}), {high})"
        if kind == "i":
            return ATOM, f"{self.real}(round_{name}_f64(f64({self.converted(arg, 'i')})))"
        if name == "float64" or name == "float32" and self.real == "f32":
            return ATOM, self.converted(arg, "f", ATOM)
        return ATOM, f"round_{name}_{self.real}({self.converted(arg, 'f')})"

    # --- reductions inside an element --------------------------------------------------------------------------------

    def _reduce(self, node: Node) -> tuple[int, str]:
        """A loop over axes that are complete here: a contraction, or the entries of a top-k list."""
        kind, axes = node.attr.kind, node.attr.axes
        if kind not in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"):
            raise unknown_inside(node)
        one_hot = one_hot_of(node)
        if one_hot is not None and self.kinds.of(one_hot.place) == "i" and axes[0] not in self.looped:
            return ATOM, self._gathered(node, *one_hot)
        arg, lengths = node.args[0], [self.length(axis) for axis in axes]
        inner = {axis: f"{axis}~inner" for axis in axes if axis in self.looped}
        if inner:  # an axis that is looped over outside already
            arg, axes = rename_axes(arg, inner, raw=True), tuple(inner.get(axis, axis) for axis in axes)
        self.hoist([arg], axes)
        total, body = self.fresh(), self.child(axes)
        body.announce([arg])
        lines = self._accumulated(kind, total, body, arg, axes, lengths)
        for depth, (axis, n) in enumerate(zip(axes, lengths, strict=True)):
            self.lines.append(f"{'    ' * depth}for i_{axis_name(axis)} in range({n}):")
        self.lines += ["    " * len(axes) + line for line in lines]
        self.known[node] = total + "_at" if kind.startswith("arg") else total
        return ATOM, self.known[node]

    def _gathered(self, node: Node, place: Node, term: Node) -> str:
        """A sum with a single term: no loop, and nothing is read where there is no such place."""
        (axis,), number, total = node.attr.axes, self.kinds.reduced("sum", [term]), self.fresh()
        at, body = f"i_{axis_name(axis)}", self.child([axis])
        self.lines.append(f"{at} = {self.text(place)}")
        body.announce([term])
        value = body.converted(term, number)
        self.lines.append(f"{total} = {'0' if number == 'i' else self.number(Fraction(0))}")
        self.lines.append(f"if 0 <= {at} and {at} < {self.length(axis)}:")
        self.lines += [f"    {line}" for line in (*body.lines, f"{total} = {value}")]
        return self.known.setdefault(node, total)

    def _accumulated(
        self, kind: str, total: str, body: Scalars, arg: Node, axes: tuple[str, ...], lengths: list[str]
    ) -> list[str]:
        number = self.kinds.reduced(kind.replace("arg", ""), [arg])
        value = body.converted(arg, number, strength(kind))
        identity = IDENTITY.get(kind, {"max": "-INF", "min": "INF"}.get(kind.replace("arg", ""), ""))
        if kind in ("sum", "prod"):
            identity = identity if number == "i" else f"{self.real}({identity})"
        elif number == "i" and kind not in ("any", "all"):
            identity = "-9223372036854775808" if "max" in kind else "9223372036854775807"
        self.lines.append(f"{total} = {identity}")
        if kind.startswith("arg"):
            empty = " or ".join(f"{n} == 0" for n in lengths if not n.isdigit())
            self.lines.append(f"{total}_at = -1 if {empty} else 0" if empty else f"{total}_at = 0")
            item, relation = self.fresh(), ">" if kind == "argmax" else "<"
            nan = f" or {item} != {item} and {total} == {total}" if number == "f" else ""
            return [
                *body.lines,
                f"{item} = {value}",
                f"if {item} {relation} {total}{nan}:",
                f"    {total}, {total}_at = {item}, {_flat(axes, lengths)}",
            ]
        sign = {"sum": "+", "prod": "*", "any": "|", "all": "&"}.get(kind)
        text = f"{total} {sign} {value if sign in ('+', '*') else f'({value})'}"
        if sign is None:
            text = f"{kind if number == 'i' else f'{kind}_nan_{self.real}'}({total}, {value})"
        return [*body.lines, f"{total} = {text}"]


def _flat(axes: tuple[str, ...], lengths: list[str]) -> str:
    text, *others = (f"i_{axis_name(axis)}" for axis in axes)
    for other, length in zip(others, lengths[1:], strict=True):
        text = f"({text}) * {length} + {other}"
    return text


def _multiplied(x: str, times: int) -> str:
    """A name multiplied by itself, in pairs from 4 factors on."""
    if times < 4:
        return " * ".join([x] * times)
    half = _multiplied(x, times // 2)
    return f"({half}) * ({half})" + (f" * {x}" if times % 2 else "")


def _double(value: Fraction) -> str:
    try:
        return f"f64({float(value)!r})"
    except OverflowError:
        return "INF" if value > 0 else "-INF"


def _integer(value: int) -> tuple[int, str]:
    return (SIGN if value < 0 else ATOM), str(value)
