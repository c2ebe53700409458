"""Stage values as nodes over slots, in an order of evaluation that keeps digits and range (theory, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from fractions import Fraction
from functools import reduce
from itertools import zip_longest

from redalg.algebra import polynomial as nf
from redalg.engine.growths import Growths
from redalg.engine.rules.cascade import Cascade
from redalg.engine.slots import SlotBackend
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.graph.plan import COUNT, Anchor

DISCRETE = g.COMPARISONS | {"floor", "ceil", "sign"}  # what a rounding decides


class Emitter:
    """Stage nodes replaced by their values over slots; values of earlier passes, as large as they come, by exports."""

    def __init__(self, cascade: Cascade, export: Callable[[Node], Node], growths: Growths | None = None) -> None:
        self.cascade, self.export, self.growths = cascade, export, growths
        self.centring = cascade.backend.centring
        self._memo: dict[Node, Node] = {}
        self._forms: dict[Node, Node] = {}

    def __call__(self, node: Node) -> Node:
        stack, entered = [node], set[Node]()
        while stack:  # chains of stages are as deep as they like
            n = stack[-1]
            form = self._opened(n)
            below = [] if n in self._memo else [a for a in self._read(n, form) if a not in self._memo]
            if below and n in entered:
                raise AssertionError("a stage without a form is read: it is its own value")
            entered.add(n)
            stack.extend(below)
            if not below:
                stack.pop()
                if n not in self._memo:
                    args = tuple(self._memo[a] for a in self._read(n, form))
                    self._memo[n] = args[0] if self._stands(n) else g.rebuild(form, args) if args else form
        return self._memo[node]

    @property
    def far(self) -> set[Node]:
        """Sums in which nothing is near 1."""
        return set() if self.growths is None else self.growths.far

    @property
    def conditions(self) -> set[Node]:
        """Where values that have two forms take the first."""
        return set() if self.growths is None else {*self.growths.conditions.values()}

    def _stands(self, node: Node) -> bool:
        return self.cascade.scope.is_stage(node)

    def _read(self, node: Node, form: Node) -> tuple[Node, ...]:
        return (form,) if self._stands(node) else form.args

    def result(self, node: Node) -> Node:
        """A node that is wanted itself: a sum stays a sum also where its slot is held in units of the data."""
        poly = self.cascade.value(node).poly if self.cascade.scope.is_stage(node) else nf.Poly()
        if any("positive" in x.attr.domain and x is not COUNT for x in _states(poly)):
            return self._plain_sum(node, held=True) or self(node)
        return self(node)

    def _is_quotient_of_values(self, node: Node) -> bool:
        """(ρ + S·A)/S is emitted as A + ρ/S: the anchor leaves the quotient exactly."""
        below = [f.args[0] for f in node.args if g.is_inverse(f)]
        if any(map(self._is_of_differences, node.args)):
            return False
        scope, value = self.cascade.scope, self.cascade.value
        return any(f is COUNT or scope.is_stage(f) and len(value(f).poly) == 1 for f in below)

    def _plain_sum(self, stage: Node, held: bool = False) -> Node | None:
        """A sum that is wanted itself stays a sum (exact for integers), also where its mean is held centred."""
        backend, scope = self.cascade.backend, self.cascade.scope
        body = stage.args[0]
        if stage.attr.kind != "sum" or not isinstance(backend, SlotBackend) or scope.uses(body):
            return None
        if self._is_of_differences(stage):
            slot = backend.sum_slot(((body, Fraction(1)),), average=stage in backend.averaged_stages)
            return g.mul(COUNT, slot.leaf()) if slot.average else slot.leaf()
        if not scope.varies(body) or not held and not backend.holds_anchor(self.cascade.value(stage).poly):
            return None
        if not held and backend.is_raised(body):
            return None  # what is computed from it is in units of its factors: it may leave the range that they are in
        slot = backend.sum_slot(((body, Fraction(1)),))
        return g.mul(COUNT, slot.leaf()) if slot.average else slot.leaf()

    def _is_of_differences(self, stage: Node) -> bool:
        """Whether a sum is one of elements less something that is known while streaming: x - c has digits that neither
        Σx - n·c nor the mean of x has."""
        scope = self.cascade.scope
        if not scope.is_stage(stage) or stage.attr.kind != "sum" or scope.uses(stage.args[0]):
            return False
        stack = [stage.args[0]]
        while stack:
            n = stack.pop()
            varying = [a for a in n.args if scope.varies(a)]
            if n.op == "add" and len(varying) < len(n.args):
                return bool(varying)
            if n.op in ("add", "where") or n.op == "mul" and len(varying) == 1:
                stack += [a for a in varying if not a.is_boolean]
        return False

    def _opened(self, node: Node) -> Node:
        """What a node stands for: an export, a stage's value, a quotient that its anchor leaves, or itself."""
        found = self._forms.get(node)
        if found is None:
            found = self._forms[node] = self._open(node)
        return found

    def _value(self, stage: Node) -> Node:
        return self.cascade.value(stage).node if self.growths is None else self.growths(stage)

    def _grows(self, node: Node) -> bool:
        """Whether a value is computed from one that is held in two ways, and so has no one normal form."""
        return self.growths is not None and self.growths.inside(node)

    def _open(self, node: Node) -> Node:
        scope = self.cascade.scope
        if scope.is_known(node) and not scope.varies(node):
            return node if g.is_inverse(node) else self.export(node)  # elements are divided: x·(1/s) is not x/s
        if scope.is_stage(node):
            return self._plain_sum(node) or self._value(node)
        if node.op == "mul" and not scope.varies(node) and self._is_quotient_of_values(node) and not self._grows(node):
            p = self.cascade.separator.poly(node)
            if len(p) > 1 and self.centring.moves(p):
                return nf.poly_node(p)
        return node


def _states(poly: nf.Poly) -> set[Node]:
    return {x for gen in poly.generators() for x in g.leaves(gen, "state")}


def differences(anchors: Iterable[Anchor]) -> dict[Node, Node]:
    """What anchors are subtracted from, and minus each anchor."""
    return {a.generator: g.neg(a.leaf) for a in anchors if not a.divides}


def in_order(root: Node, pairs: Mapping[Node, Node], residuals: Container[Node] = ()) -> Node:
    """The order of evaluation that keeps digits and range (nothing may be re-ordered afterwards).

    Sums that hold both an element and minus its anchor (`pairs`) take that difference first; products divide as they
    multiply, ``a·b/c²`` as ``((a/c)·b)/c``, so that no partial product leaves the range its factors and its result are
    in. Products of elements alone stay as they are written: x·w/h - max(x·w/h) is 0 only where both round alike.
    """
    done: dict[Node, Node] = {}
    elements: set[Node] = set()  # what reads a tensor
    values: set[Node] = set()  # what reads a statistic
    judged = set(g.walk(*(a for n in g.walk(root) if n.op in DISCRETE for a in n.args)))
    for node in g.walk(root):
        if node.op == "tensor" or not elements.isdisjoint(node.args):
            elements.add(node)
        if node.op == "state" or not values.isdisjoint(node.args):
            values.add(node)
        args = tuple(done[a] for a in node.args)
        new = node if args == node.args else Node(node.op, args, node.attr)
        if node.op == "add":
            new = _difference_first(new, node, pairs)
            if node not in elements:
                new = _locations_first(new, node, pairs, residuals)
        if node.op == "mul" and not (node in elements and node not in values):
            new = _alternating(new, node in elements, node in judged)
        done[node] = new
    return done[root]


def _alternating(product: Node, element: bool, judged: bool) -> Node:
    """``((a/c)·b)/c`` for ``a·b/c²``: small whole powers are repeated factors."""
    above: list[Node] = []
    below: list[Node] = []
    for f in product.args:
        e = f.args[1].attr if f.op == "pow" and f.args[1].op == "const" else Fraction(1)
        if e.denominator == 1 and abs(e) <= 4 and (e < 0 or e > 1):
            (below if e < 0 else above).extend([f.args[0]] * abs(int(e)))
        else:
            above.append(f)
    if not below or len(above) + len(below) < 3:
        return product
    if element:
        return _in_turn(_elements_first(above, judged), below)
    return _of_values(above, below)


def _elements_first(above: list[Node], judged: bool) -> list[Node]:
    """(x/c)·w, since w/c may be beyond the range where x/c is not; statistics are of the size of c. A number is left in
    front: (2/c)·x is one quotient for a row, unless its rounding is `judged`: x/c is exactly 1 at the largest x."""

    def place(f: Node) -> int:
        if f.op == "const" or f is COUNT:
            return 2 if judged or f is COUNT else 0
        return 1 if f in elements else 0 if g.leaves(f, "state") else 2

    most = max((len(f.axes) for f in above), default=0)
    elements = {f for f in above if len(f.axes) == most and g.leaves(f, "tensor")}
    return sorted(above, key=place)


def _of_values(above: list[Node], below: list[Node]) -> Node:
    """A quotient of statistics: a number or a count alone over a subnormal one is out of range."""
    negative = g.MINUS_ONE in above and len(above) > 1
    if negative:
        above.remove(g.MINUS_ONE)
    above.sort(key=lambda f: f.op == "const" or f is COUNT)
    found = _in_turn(above, below)
    return Node("mul", (g.MINUS_ONE, found)) if negative else found


def _in_turn(above: list[Node], below: list[Node]) -> Node:
    divisors = (Node("pow", (f, g.MINUS_ONE)) for f in below)
    in_turn = (f for pair in zip_longest(above, divisors) for f in pair if f is not None)
    return reduce(lambda done, f: Node("mul", (done, f)), in_turn)


def _difference_first(new: Node, original: Node, pairs: Mapping[Node, Node]) -> Node:
    by_original = dict(zip(original.args, new.args, strict=True))
    for generator in (x for x in pairs if x in by_original) if len(original.args) > 2 else ():
        minus = pairs[generator]
        if minus in by_original:
            rest = [v for k, v in by_original.items() if k not in (generator, minus)]
            return Node("add", (Node("add", (generator, minus)), *rest))
    return new


def _locations_first(new: Node, original: Node, pairs: Mapping[Node, Node], residuals: Container[Node]) -> Node:
    """(A - m) + ρ for a mean A + ρ less another location m: where A is near m their difference is exact, and A + ρ is
    rounded."""
    minus = set(pairs.values())
    if not any(a in minus or g.neg(a) in minus for a in original.args):
        return new
    held = [any(x in residuals for x in g.walk(a)) for a in original.args]
    large = [a for a, is_small in zip(new.args, held, strict=True) if not is_small]
    small = [a for a, is_small in zip(new.args, held, strict=True) if is_small]
    return Node("add", (Node("add", tuple(large)), *small)) if small and len(large) > 1 else new


__all__ = ["Emitter", "in_order"]
