"""How small and how large the terms of an extremum may be, from the elements they are computed of.

A nearest neighbour is at the distance 0 where a point is met, and where the squares of differences vanish below the
range. Which of both it is the elements say: a sum, a difference or a product of numbers is no smaller, unless it is 0,
than their smallest magnitudes are, by as many bits as a number has; and it is no larger than their largest ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, log2

from redalg.graph.node import Node, is_const, leaves, walk
from redalg.kernels.ir.program import Factor

SAME = frozenset({"abs", "relu", "floor", "ceil"})  # of one argument, whose magnitude they have
CHOICES = frozenset({"maximum", "minimum", "where"})
EXTREMA = frozenset({"max", "min"})
MOST = 1 << 20  # of a power's exponent
LENGTH = 40.0  # log2 of more than a size or an index is


def is_datum(body: Node) -> bool:
    """Whether a body is a number of the data as it is, but for its sign and constants."""
    if body.op == "mul":
        return all(n.op == "const" or is_datum(n) for n in body.args) and sum(n.op != "const" for n in body.args) <= 1
    if body.op in SAME or body.op in CHOICES or body.op == "reduce" and body.attr.kind in EXTREMA:
        return all(map(is_datum, _choices(body)))
    return body.op in ("tensor", "const", "special")


def size_of(const: Node) -> float:
    """The log2 of a constant's magnitude, which may be beyond all floats.

    >>> from redalg.graph.node import const
    >>> size_of(const(10**400)) > 1328
    True
    """
    return log2(abs(const.attr.numerator)) - log2(const.attr.denominator)


def degree_of(exponent: Node) -> float:
    """A constant exponent, or one that leaves every range as it does."""
    return float(max(-MOST, min(MOST, exponent.attr)))


def bounds_of(body: Node) -> tuple[Factor, ...] | None:
    """The factors that bound a body's magnitude, all elements at their smallest or at their largest; none where that
    is not known.

    >>> import redalg as ra
    >>> from redalg.kernels.ir.program import Loop
    >>> from redalg.kernels.programs import lower
    >>> program = lower(ra.derive_incremental(ra.catalog["nearest_neighbour"]), {"q": "float32", "x": "float32"})
    >>> loop = next(step for step in program.passes[0].lift if isinstance(step, Loop))
    >>> bounds_of(loop.folds[0].bodies[0])
    (Factor(tensor='q', centred=True, degree=2.0, others=('x',)),)
    """
    match body.op:
        case "const" | "size" | "index" | "special":
            return ()
        case "tensor":
            return (Factor(body.attr.name, False, 1.0),)
        case op if op in SAME:
            return bounds_of(body.args[0])
        case "mul":
            return _multiplied(map(bounds_of, body.args))
        case "pow":
            return _raised(body)
        case op if op == "add" or op in CHOICES:
            return _grouped(body, op == "add")
        case "reduce" if body.attr.kind == "sum" or body.attr.kind in EXTREMA:
            return _grouped(body, body.attr.kind == "sum")
    return None


def _multiplied(found: Iterable[tuple[Factor, ...] | None]) -> tuple[Factor, ...] | None:
    product: list[Factor] = []
    for factors in found:
        if factors is None:
            return None
        product += factors
    return tuple(product)


def _raised(power: Node) -> tuple[Factor, ...] | None:
    base, exponent = power.args
    inner = bounds_of(base) if is_const(exponent) else None
    return None if inner is None else tuple(f._replace(degree=f.degree * degree_of(exponent)) for f in inner)


def _choices(body: Node) -> tuple[Node, ...]:
    return body.args[1:] if body.op == "where" else body.args


def _grouped(body: Node, summed: bool) -> tuple[Factor, ...] | None:
    """What bounds a sum, or one of several values: all tensors of its terms, by the largest degree of one of them."""
    terms = [bounds_of(n) for n in _choices(body) if not (summed and _is_of_row(n))]
    known = [t for t in terms if t]
    if len(body.args) == 1:
        return known[0] if known else None  # over an axis: one term is as small as the smallest
    factors = _multiplied(terms)
    if not factors or any(f.degree < 0 for f in factors):
        return None
    names = tuple(dict.fromkeys(name for f in factors for name in (f.tensor, *f.others)))
    degree = max(sum(f.degree for f in t) for t in known)
    return (Factor(names[0], summed or any(f.centred for f in factors), degree, names[1:]),)


def _is_of_row(node: Node) -> bool:
    """Whether a value is computed of the state alone."""
    return bool(leaves(node, "state")) and not leaves(node, "tensor")


def slack_of(body: Node) -> float:
    """The bits by which constants, sizes and indices make a body larger or smaller than its bounds; infinitely many for
    values of the row, of which elements say nothing."""
    return sum(_bits(n) for n in walk(body))


def _bits(node: Node) -> float:
    if node.op == "const":
        return abs(size_of(node)) if node.attr else 0.0
    if node.op == "state":
        return inf
    return LENGTH if node.op in ("size", "index") else 0.0
