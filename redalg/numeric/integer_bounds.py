"""Whether the integers of a call stay in int64: bounds on every integer a spec or its plan calculates, from those of
its tensors.

Generated kernels calculate in int64, which wraps. A call whose integers are certain to stay inside, by the ranges of
their dtypes and the lengths of their axes, or by the largest magnitudes in its arrays, may run there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from redalg.graph.node import (
    COMPARISONS,
    ONE,
    POSITIONS,
    Node,
    const,
    is_inverse,
    is_position,
    leaves,
    substitute,
    walk,
)
from redalg.graph.plan import COUNT, ExtremumAnchor, Plan, shift
from redalg.numeric.dtypes import Flow, flows
from redalg.numeric.integers import EXACT, magnitude

SAFE = 1 << 61  # a form centres integers before it multiplies them: at most twice the magnitude, in two factors
DECISIVE = EXACT >> 3  # what decides may be some times as large: 3*ceil(k/3) == k
NARROW = 1 << 21  # the same of float32
_CAPPED = 200  # bits: more is too much, however much more
_LARGEST_NUMBER = 1 << 63  # what a number of a call may be
_ROUNDS = frozenset({"floor", "ceil", "cast"})
_FLOAT = const(Fraction(1, 2))  # stands for any number that is no integer


def infinite_extremum(nodes: Iterable[Node], sizes: Mapping[str, int], dtypes: Mapping[str, Any]) -> Node | None:
    """An extremum of integers over an axis of length 0 that something else is made of: the definition has an infinity
    there, which no integer is.

    >>> from redalg.graph.node import add, tensor, reduction
    >>> k, y = tensor("k", "i", "j"), tensor("y", "i")
    >>> found = [add(reduction("max", "j", k), y)], {"i": 2, "j": 0}
    >>> infinite_extremum(*found, {"k": np.dtype("int64"), "y": np.dtype("float64")}) is found[0][0].args[0]
    True
    >>> infinite_extremum(*found, {"k": np.dtype("float32"), "y": np.dtype("float64")})
    """
    if all(sizes.values()):
        return None
    roots = list(nodes)
    kinds = flows(roots, dtypes)

    def goes_on(n: Node, a: Node) -> bool:
        return n.op == "reduce" == a.op and n.attr.kind == a.attr.kind

    def is_infinite(n: Node) -> bool:
        if n.op != "reduce" or n.attr.kind not in ("max", "min") or kinds[n].kind != "i":
            return False
        return any(sizes.get(a) == 0 for a in n.attr.axes) or any(goes_on(n, a) and is_infinite(a) for a in n.args)

    return next((a for n in walk(*roots) for a in n.args if not goes_on(n, a) and is_infinite(a)), None)


class Integers:
    """The integers that a spec adds and multiplies, for tensors of such dtypes (a Python type for a number).

    `names`: the integer tensors they are made of. A plan multiplies numbers of elements by constants, too, and may
    square integers where the spec squares their quotients by a stage value. `real`: what kernels calculate floats in.

    >>> from redalg.graph.node import tensor, reduction
    >>> found = Integers([reduction("sum", "j", tensor("k", "j"))], {"k": np.dtype("int64")})
    >>> found.names, found.fit({"j": 1000}, {"k": 1 << 40}), found.certain({"j": 1000})
    (('k',), True, False)
    """

    def __init__(
        self, nodes: Sequence[Node], dtypes: Mapping[str, Any], plan: Plan | None = None, real: str = "float64"
    ) -> None:
        self._counted = _counted(plan) if plan else {}
        self._dtypes, kinds = dtypes, flows(nodes, dtypes)
        held = _with_plan(nodes, dtypes, plan, kinds) if plan else kinds
        below = [d for n in held for d in _divisor(n) if held[d.args[0]].kind == "i"]
        self._whole = [*(n for n in held if held[n].kind == "i"), *below]
        self._lists = _lists(held)
        busy = [n for n in self._whole if _calculates(n)] + _constants(kinds)
        rounded = dict.fromkeys(decisive(kinds) | _floated(nodes, held, plan), DECISIVE)
        if real == "float32":
            rounded |= dict.fromkeys(promoted(kinds, dtypes), NARROW)
        read = {leaf.attr.name for leaf in walk(*busy, *rounded) if leaf.op == "tensor" and held[leaf].kind == "i"}
        self.names = tuple(sorted(read))
        self._busy = frozenset(busy)
        self._beside = dict.fromkeys(_centred(kinds, read), EXACT) | rounded

    def certain(self, sizes: Mapping[str, int], numbers: Mapping[str, int] | None = None) -> bool:
        """Whether they fit whatever the arrays hold. `numbers`: the magnitudes of numbers, if they are known."""
        if not self._counts_fit(sizes):
            return False
        if not self._busy and not self._beside:
            return True
        ranges = {n: _LARGEST_NUMBER if isinstance(d, type) else _range(d) for n, d in self._dtypes.items()}
        return self.fit(sizes, {name: ranges[name] for name in self.names} | dict(numbers or {}))

    def fits(self, sizes: Mapping[str, int], arrays: Mapping[str, Any]) -> bool:
        """Whether they fit for these arrays and numbers, which are looked at only where the dtypes leave it open."""
        numbers = {n: magnitude(arrays[n]) for n in self.names if isinstance(self._dtypes[n], type)}
        if self.certain(sizes, numbers):
            return True
        return bool(self.names) and self.fit(sizes, {name: magnitude(arrays[name]) for name in self.names})

    def fit(self, sizes: Mapping[str, int], tensors: Mapping[str, int]) -> bool:
        """Whether int64 holds all of them, and a float those that meet floats, for tensors of such magnitudes."""
        if not self._counts_fit(sizes):
            return False
        bounds: dict[Node, int] = {}
        for n in self._whole:
            bounds[n] = _bound(n, [bounds.get(a, 1) for a in n.args], sizes, tensors)
        return all(bounds[n] <= SAFE for n in self._busy) and all(bounds[n] <= most for n, most in self._beside.items())

    def _counts_fit(self, sizes: Mapping[str, int]) -> bool:
        """Whether int64 holds what a plan makes of constants and lengths alone: not the -oo of a list that is short."""
        if any(prod(sizes.get(a, 1) for a in n.attr.axes) < n.attr.extra[0] for n in self._lists):
            return False
        bounds: dict[Node, int] = {}
        for n, axes in self._counted.items():
            if n is COUNT:
                bounds[n] = prod(sizes.get(a, 1) for a in axes)
            else:
                bounds[n] = _bound(n, [bounds[a] for a in n.args], sizes, {})
        return max(bounds.values(), default=0) <= SAFE


def _counted(plan: Plan) -> dict[Node, tuple[str, ...]]:
    """The sums, products and powers of lengths and whole constants in a plan, and what is in them."""
    closed: set[Node] = set()
    for n in walk(*_ends(plan)):
        inside = closed.issuperset(n.args)
        if n is COUNT or _whole_constant(n) or n.op == "size" or inside and _grows(n):
            closed.add(n)
        closed |= {*(_divisor(n) if inside else ())}
    return {m: plan.axis for n in closed if _grows(n) for m in walk(n)}


def _ends(plan: Plan) -> list[Node]:
    """The outputs of a plan, what its passes leave for later ones, its anchors, and what its slots move by."""
    found = [o.guarded for o in plan.outputs]
    for p in plan.passes:
        found += [node for _, node in p.exports] + [a.source for a in p.anchors]
        found += [m.coefficient for s in p.slots for m in s.moves]
    return found


def _with_plan(
    nodes: Sequence[Node], dtypes: Mapping[str, Any], plan: Plan, kinds: dict[Node, Flow]
) -> dict[Node, Flow]:
    """The flows of the nodes and, where some of them are integers, of what a plan calculates."""
    some = any(kinds[n].kind == "i" and n.axes for n in kinds)
    return flows([*nodes, *_of_plan(plan)], dtypes) if some else kinds


def _of_plan(plan: Plan) -> list[Node]:
    """What a plan calculates with slots, over the tensors: a slot is the reduction of its elements, an extremum that
    they are centred on is as large as they are, and other anchors are floats."""
    values: dict[str, Node] = {COUNT.attr.name: _product([Node("size", (), a) for a in plan.axis])}
    found: list[Node] = []

    def over_tensors(node: Node) -> Node:
        return substitute(node, {x: values.get(x.attr.name, _FLOAT) for x in leaves(node, "state")}, raw=True)

    for p in plan.passes:
        for a in p.anchors:
            if isinstance(a, ExtremumAnchor):
                values[a.name] = over_tensors(a.generator)
                values[shift(a.name, a.axes).attr.name] = Node("add", (values[a.name],) * 2)
        for s in p.slots:
            values |= dict(zip(s.parts, map(over_tensors, s.reduced(plan.axis)), strict=True))
        for s in p.slots:
            found += [Node("mul", (over_tensors(m.coefficient), values.get(m.slot, _FLOAT))) for m in s.moves]
        values |= {name: over_tensors(node) for name, node in p.exports}
    return [*found, *values.values(), *(over_tensors(o.guarded) for o in plan.outputs)]


def _lists(kinds: Mapping[Node, Flow]) -> tuple[Node, ...]:
    """The lists of integers that something is made of."""
    read = dict.fromkeys(a for n in kinds for a in n.args if a.op == "reduce" and kinds[a].kind == "i")
    return tuple(a for a in read if a.attr.kind == "topk_values")


def _product(factors: list[Node]) -> Node:
    """Of no factors 1: a plan without a stream counts nothing."""
    return Node("mul", tuple(factors)) if len(factors) > 1 else factors[0] if factors else ONE


def _whole_constant(n: Node) -> bool:
    return n.op == "const" and n.attr.denominator == 1


def _grows(n: Node) -> bool:
    return n.op in ("add", "mul") or n.op == "pow" and n.args[1].op == "const" and n.args[1].attr > 0


def _divisor(n: Node) -> list[Node]:
    """The power that a node divides by: of integers one in int64, though the quotient is a float."""
    if not is_inverse(n) or n.args[1].attr.denominator > 1:
        return []
    return [Node("pow", (n.args[0], const(-n.args[1].attr)))]


def _constants(kinds: Mapping[Node, Flow]) -> list[Node]:
    """The constants that int64 arithmetic meets: operands of nodes without a float."""
    found = []
    for n in kinds:
        args = n.args[1:] if n.op == "where" else n.args
        if n.op != "pow" and all(kinds[a].kind in "bi" for a in args):
            found += [a for a in args if a.op == "const"]
    return found


def decisive(kinds: Mapping[Node, Flow]) -> frozenset[Node]:
    """The integers that become floats below what rounds to an integer, is compared, or gives a position: a rounding of
    theirs would move that by one, or decide otherwise."""
    compared = {n for n in kinds if n.op in COMPARISONS and any(kinds[a].kind == "f" for a in n.args)}
    below = walk(*compared, *(n for n in kinds if n.op in _ROUNDS or is_position(n)))
    met = (a for n in below if n in compared or kinds[n].kind == "f" for a in n.args if kinds[a].kind == "i")
    return frozenset(a for a in met if any(leaf.op in ("tensor", "state") for leaf in walk(a)))


def promoted(kinds: Mapping[Node, Flow], dtypes: Mapping[str, Any]) -> frozenset[Node]:
    """The integers of more than 16 bits that become floats where NumPy's promotion has float64: beside float32 under a
    condition or a position, whose results do not show it, and in results that are named narrower."""
    wide = (n for n in kinds if kinds[n].kind == "f" and kinds[n].dtype.itemsize > 4)
    met = (a for n in wide for a in n.args if kinds[a].kind == "i")
    numbers = {name for name, dtype in dtypes.items() if dtype is int}
    return frozenset(a for a in met if _is_long(kinds[a], a, numbers))


def in_doubles(nodes: Iterable[Node], dtypes: Mapping[str, Any]) -> bool:
    """Whether NumPy's promotion calculates something in float64 that results may not show: integers that become floats
    under a condition or a position, or are compared with floats.

    >>> from redalg.graph.node import compare, mul, reduction, tensor
    >>> k, x, types = tensor("k", "j"), tensor("x", "j"), {"k": np.dtype("int32"), "x": np.dtype("float32")}
    >>> [in_doubles([reduction("any", "j", compare("lt", x, k))], types | {"k": t}) for t in types.values()]
    [True, False]
    >>> in_doubles([reduction("argmax", "j", mul(k, x))], types), in_doubles([reduction("argmax", "j", k)], types)
    (True, False)
    """
    kinds = flows(nodes, dtypes)
    if any(flow.kind == "f" and flow.dtype.itemsize > 4 and _reads_integers(flow) for flow in kinds.values()):
        return True
    numbers = {name for name, dtype in dtypes.items() if dtype is int}
    mixed = (n for n in kinds if n.op in COMPARISONS and {kinds[a].kind for a in n.args} == {"i", "f"})
    return any(_is_long(kinds[a], a, numbers) or _is_far(a) for n in mixed for a in n.args if kinds[a].kind == "i")


def _reads_integers(flow: Flow) -> bool:
    return any(d.kind in "iu" for d in flow.dtypes)


def _is_far(n: Node) -> bool:
    """Whether it is a number that float32 may not hold."""
    return n.op == "const" and abs(n.attr) > 1 << 24


def _is_long(flow: Flow, n: Node, numbers: Container[str]) -> bool:
    """Whether an integer is made of integers of more than 16 bits; how many elements there are does not count."""
    return any(d.itemsize > 2 for d in flow.dtypes) or any(x.attr.name in numbers for x in leaves(n, "tensor"))


def _centred(kinds: Mapping[Node, Flow], read: Container[str]) -> list[Node]:
    """What is subtracted from a float is centred there, where a rounding of the integer would be all that is left."""
    beside = {a for n in kinds if n.op == "add" and kinds[n].kind in "fc" for a in n.args if kinds[a].kind == "i"}
    return [a for a in beside if any(leaf.op == "tensor" and leaf.attr.name in read for leaf in walk(a))]


def _floated(nodes: Sequence[Node], held: Mapping[Node, Flow], plan: Plan | None) -> frozenset[Node]:
    """The integers that become floats in a plan's results which are integers: positions with a guard, k farthest."""
    outputs = _of_plan(plan)[-len(plan.outputs) :] if plan is not None else []
    pairs = ((a, b) for a, b in zip(nodes, outputs, strict=False) if b in held)
    found = [b for a, b in pairs if held[a].kind == "i" and held[b].kind == "f"]
    met = (a for n in walk(*found) if held[n].kind == "f" for a in n.args if held[a].kind == "i")
    return frozenset(a for a in met if any(leaf.op == "tensor" for leaf in walk(a)))


def _calculates(n: Node) -> bool:
    return n.op in ("add", "mul", "pow", "abs") or n.op == "reduce" and n.attr.kind in ("sum", "prod", "monoid")


def _range(dtype: Any) -> int:
    return 1 << (8 * dtype.itemsize - (dtype.kind == "i"))


def _bound(n: Node, args: list[int], sizes: Mapping[str, int], tensors: Mapping[str, int]) -> int:
    if n.op == "const":
        return abs(int(n.attr))
    if n.op in ("size", "index"):
        return sizes.get(n.attr, 1)
    if n.op == "tensor":
        return tensors.get(n.attr.name, 1)
    if n.op == "add":
        return sum(args)
    if n.op == "mul":
        return _power(args, 1)
    if n.op == "pow":
        return _power(args[:1], int(n.args[1].attr) if n.args[1].op == "const" else _CAPPED)
    if n.op == "reduce":
        terms = int(np.prod([sizes.get(a, 1) for a in n.attr.axes], dtype=object))
        if n.attr.kind == "prod":
            return _power(args, terms)
        if n.attr.kind == "monoid" and _multiplies(n):
            return 1 << _CAPPED
        if n.attr.kind in POSITIONS:
            return terms
        return sum(args) * max(terms, 1) if n.attr.kind in ("sum", "monoid") else max(args)
    return max(args, default=1)


def _power(factors: list[int], e: int) -> int:
    result = 1
    for f in factors:
        if f > 1 and f.bit_length() * e > _CAPPED:
            return 1 << _CAPPED
        result *= f**e if f > 1 else max(f, 1)
    return result


def _multiplies(n: Node) -> bool:
    """Whether a user's monoid makes this part of a result by products (those of conditions aside)."""
    monoid, part = n.attr.extra
    todo = [monoid.combined[part]]
    while todo:
        m = todo.pop()
        if m.op in ("mul", "pow"):
            return True
        todo += m.args[1:] if m.op == "where" else m.args
    return False
