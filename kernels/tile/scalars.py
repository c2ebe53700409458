"""Expressions on the elements of a tile of scores: exponentials by base 2, positions as exact floats."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from redalg.graph.node import Node, add, walk
from redalg.kernels.code.scalars import ADD, ATOM, MUL, Scalars

UNROLLED = 32  # elements of a row in one loop: of longer ones the compiler leaves the registers in memory


@dataclass
class Element:
    """How elements are written: `value` stands for one, as ``shift + rate·text`` in the exponent of 2.

    ``text``: the register; ``factor``: what the register has to be multiplied by to be the value ("" for 1); ``rate``:
    that factor times log2 e. ``shifts``: nodes added to the value in an exponent -> names of these times log2 e.
    ``floats``: index nodes -> their texts as float32, exact below 2^24.
    """

    value: Node
    text: str
    factor: str = ""
    rate: str = "LOG2E"
    shifts: dict[Node, str] | None = None
    floats: dict[Node, str] | None = None


class TileScalars(Scalars):
    """`Scalars` inside a loop over elements (with `element`), or around such loops."""

    element: Element | None = None

    def child(self, axes: Iterable[str] = ()) -> TileScalars:
        made = TileScalars(
            self.real,
            self.kinds,
            self.leaf,
            self.length,
            self.counter,
            {n: t for n, t in self.known.items() if n.axes.isdisjoint(axes)},
            self.looped | {*axes},
            self.bounded,
            self.names,
        )
        made.element = self.element
        self._hand_divisors(made, axes)
        return made

    def _written(self, node: Node) -> tuple[int, str]:
        element = self.element
        if element is not None and node is element.value:
            return (MUL, f"{element.factor} * {element.text}") if element.factor else (ATOM, element.text)
        return super()._written(node)

    def _map(self, node: Node) -> tuple[int, str]:
        element = self.element
        rest = exponent(node, element.value) if element is not None else None
        if element is None or rest is None or element.shifts is None:
            return super()._map(node)
        shift = element.shifts.get(rest)
        if shift is not None:
            return ATOM, f"exp2_fast(fma_f32({element.text}, {element.rate}, {shift}))"
        if rest.op == "const" and rest.attr == 0:
            return ATOM, f"exp2_fast({element.text} * {element.rate})"
        return ATOM, f"exp2_fast(fma_f32({element.text}, {element.rate}, LOG2E * {self.converted(rest, 'f', MUL)}))"

    def converted(self, node: Node, kind: str, level: int = 0) -> str:
        """Sums of positions are added as floats, which is exact."""
        floats = self.element.floats if self.element is not None else None
        if kind != "f" or not floats or self.kinds.of(node) != "i" or not self._positions(node):
            return super().converted(node, kind, level)
        if node in floats:
            return floats[node]
        text = ""
        for minus, word in (self._term(term, floats) for term in node.args):
            text += f" {'-' if minus else '+'} {word}" if text else f"-{word}" if minus else word
        return f"({text})" if level > ADD else text

    def _term(self, term: Node, floats: dict[Node, str]) -> tuple[bool, str]:
        """Whether a term of a sum of positions is subtracted, and its text without a sign."""
        inner = term.args[1] if term.op == "mul" else term
        word = self.number(abs(inner.attr)) if inner.op == "const" else floats[inner]
        return term.op == "mul" or term.op == "const" and term.attr < 0, word

    def _positions(self, node: Node) -> bool:
        """Whether a node is a position, or a sum of some, with signs, and of small constants."""
        assert self.element is not None
        floats = self.element.floats or {}
        terms = node.args if node.op == "add" else (node,)
        for term in terms:
            inner = term.args[1] if _negation(term) else term
            small = inner.op == "const" and abs(inner.attr) < 2**20
            if inner not in floats and not small:
                return False
        return len(terms) <= 4 and (node.op == "add" or node in floats)


def _negation(term: Node) -> bool:
    return term.op == "mul" and len(term.args) == 2 and term.args[0].op == "const" and term.args[0].attr == -1


def exponent(node: Node, value: Node) -> Node | None:
    """What is added to the value in exp(value + …); None for anything else."""
    if node.op != "exp":
        return None
    arg = node.args[0]
    if arg is value:
        return add()
    if arg.op == "add" and value in arg.args:
        rest = [a for a in arg.args if a is not value]
        return rest[0] if len(rest) == 1 else Node("add", tuple(rest))
    return None


def exponents(bodies: Iterable[Node], value: Node) -> list[Node]:
    """What is added to the value in exponentials below these nodes."""
    found = [exponent(n, value) for n in walk(*bodies)]
    return list(dict.fromkeys(rest for rest in found if rest is not None))


def guarded_top(rest: Node, tops: Collection[str]) -> Node | None:
    """The maximum m in ``-(0 where m = -oo, else m)``, one of these of all that is exponentiated.

    Any finite number does in place of that 0, for all elements of a row whose m is -oo are -oo; and so does the larger
    of m and a number whose product with log2 e is finite: where m is below it, that product is not.
    """
    if not _negation(rest) or rest.args[1].op != "where":
        return None
    condition, there, other = rest.args[1].args
    zero = there.op == "const" and there.attr == 0 and condition.op == "eq" and other in condition.args
    lowest = any(a.op == "special" and a.attr == "-oo" for a in condition.args)
    own = other.op == "state" and other.attr.name.removesuffix("_b").removesuffix("_new") in tops
    return other if zero and lowest and own else None


def floored(bodies: Iterable[Node], value: Node, top: Node, tops: Collection[str]) -> bool:
    """Whether every exponential of an element that reads this maximum takes it with its floor (`guarded_top`)."""
    rests = [rest for rest in exponents(bodies, value) if top in walk(rest)]
    return bool(rests) and all(guarded_top(rest, tops) is top for rest in rests)


def risen(node: Node, tops: Collection[str]) -> tuple[Node, Node] | None:
    """The maximum before a block and after it, where the node is what one of all that is exponentiated rises by:
    ``0 where old = new, else new - old``."""
    if node.op != "where" or node.args[0].op != "eq":
        return None
    condition, there, other = node.args
    if there.op != "const" or there.attr != 0 or other.op != "add" or len(other.args) != 2:
        return None
    for old, new in (condition.args, condition.args[::-1]):
        names = [x.attr.name if x.op == "state" else "" for x in (old, new)]
        if _is_difference(other, new, old) and names[0] in tops and names[1] == f"{names[0]}_new":
            return old, new
    return None


def _is_difference(node: Node, a: Node, b: Node) -> bool:
    """Whether a sum of two terms is a - b."""
    less = [x for x in node.args if x is not a]
    return a in node.args and len(less) == 1 and _negation(less[0]) and less[0].args[1] is b


def only_shrinks(nodes: Iterable[Node], name: str) -> Node | None:
    """exp(-x), if nothing else below the nodes reads the state x of this name."""
    nodes = list(nodes)
    below = list(walk(*nodes))
    leaves = [n for n in below if n.op == "state" and n.attr.name == name]
    minus = [n for n in below if any(a in leaves for a in n.args)]
    found = [n for n in below if any(a in minus for a in n.args)]
    plain = all(_negation(n) for n in minus) and all(n.op == "exp" for n in found)
    plain = plain and not any(n in leaves or n in minus for n in nodes)
    return found[0] if len(leaves) == len(minus) == len(found) == 1 and plain else None
