"""Where a spec may be cut in parts: at nodes of its graph that are written to memory once, so that what reads them does
not compute them again for every axis that they do not vary along.

* Products of matrices. They have a height: how many of them stand inside each other up to there. One cut for every
  height, below which no product is higher; one for every stream, below which no product runs along it; and one for
  what stands inside of other products alone.
* Reductions that an element of another one reads, along axes of their own: norms of the rows and columns of scores,
  distances that a minimum is taken of.
* Operands of products, where these are computed: rows that are divided by their norms before they are multiplied,
  weights of a mean. Of products inside of elements alone, and of all.
* Terms and factors of a result whose reductions have nothing in common: a difference of two averages by weights of
  their own.
* Products, and distances of all rows from all others, without the maps around them.
* The reductions of a result that vary along different axes: a sum of every row that a matrix is divided by.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from redalg.graph.contractions import compares, contracts
from redalg.graph.node import (
    BOOLEAN,
    Node,
    extend,
    factors,
    outermost,
    outermost_reductions,
    walk,
)

SUMMED = frozenset({"sum", "mean", "prod", "max", "min"})  # what gives floats where its elements are


@dataclass(frozen=True)
class Cut:
    """A spec's outputs, regrouped where parts want it, and the nodes in them that are written to memory; ``together``:
    a number for those that one part computes with all others of the same number; ``alone``: those that no map around
    them goes along with."""

    outputs: Mapping[str, Node]
    nodes: frozenset[Node]
    together: Mapping[Node, int] = field(default_factory=dict)
    alone: frozenset[Node] = frozenset()


def cuts(outputs: Mapping[str, Node], further: bool = True) -> Iterator[Cut]:
    """Every cut, by products of the least height first. `further`: also those that kernels on tensor cores gain nothing
    by, which prepare operands of their last product, and compute maps and sums of rows with it.

    >>> import redalg as ra
    >>> from redalg.text.nodes import short
    >>> spec = ra.parse("return y = min[k](sum[d](x[i,d]*c[k,d]))")
    >>> {short(n) for cut in cuts(spec.outputs) for n in cut.nodes}
    {'sum[d](x[i,d] * c[k,d])'}
    """
    roots = [*outputs.values()]
    for wanted in _products(roots):
        yield Cut(outputs, frozenset(outermost(wanted.__contains__, *roots)))
    inner = _inner(roots)
    yield Cut(outputs, frozenset(outermost(inner.__contains__, *roots)))
    yield _operands(outputs, {m for n in walk(*roots) if n.op == "reduce" for m in walk(*n.args)})
    yield _apart(outputs)
    if further:
        yield from _alone(outputs)
        yield _operands(outputs, {*walk(*roots)})
        yield _by_axes(outputs)


def may_be_cut(outputs: Mapping[str, Node]) -> bool:
    """Whether a reduction in the outputs may be worth a part of its own: one of several, along axes of its own, or one
    with a map around it."""
    reductions = {n for n in walk(*outputs.values()) if n.op == "reduce"}
    if len(reductions) < 2:
        return any(compares(n) or contracts(n) for n in reductions.difference(outputs.values()))
    return any(map(contracts, reductions)) or bool(_inner([*outputs.values()]) or _by_axes(outputs).nodes)


# --- products --------------------------------------------------------------------------------------------------------


def _products(roots: list[Node]) -> Iterator[set[Node]]:
    products = [n for n in walk(*roots) if contracts(n)]
    heights = _heights(roots)
    for top in sorted({heights[n] for n in products}):
        yield {n for n in products if heights[n] <= top}
    for along in dict.fromkeys(n.attr.axes for n in products):
        yield {n for n in products if n.attr.axes != along}
    yield {m for n in products for m in walk(*n.args) if contracts(m)}


def _alone(outputs: Mapping[str, Node]) -> Iterator[Cut]:
    """Products and distances without the maps around them; products alone, too, where there are both."""
    roots = [*outputs.values()]
    products = frozenset(outermost(contracts, *roots))
    yield Cut(outputs, products, alone=products)
    both = frozenset(outermost(lambda n: contracts(n) or compares(n), *roots))
    if both != products:
        yield Cut(outputs, both, alone=both)


def _heights(roots: Iterable[Node]) -> dict[Node, int]:
    """How many products stand inside each other, up to every node."""
    found: dict[Node, int] = {}
    for n in walk(*roots):
        found[n] = max((found[a] for a in n.args), default=0) + contracts(n)
    return found


# --- reductions along axes of their own ------------------------------------------------------------------------------


def _inner(roots: list[Node]) -> set[Node]:
    """Reductions that vary, run along axes that no reduction around them runs along, and are no products."""
    around: dict[Node, set[str]] = {}
    for n in walk(*roots):
        if n.op == "reduce":
            for m in walk(*n.args):
                if m.op == "reduce":
                    around.setdefault(m, set()).update(n.attr.axes)
    return {
        m
        for m, axes in around.items()
        if m.axes and m.attr.kind in SUMMED and axes.isdisjoint(m.attr.axes) and not contracts(m)
    }


# --- operands --------------------------------------------------------------------------------------------------------


def _operands(outputs: Mapping[str, Node], among: Container[Node]) -> Cut:
    """The operands of products among these nodes, where they are computed."""
    new: dict[Node, Node] = {}
    found = set[Node]()
    for node in walk(*outputs.values()):
        if node in among and contracts(node) and (sides := _sides(node)) is not None:
            *both, rest = ([new[a] for a in side] for side in sides)
            whole = [side[0] if len(side) == 1 else Node("mul", tuple(side)) for side in both]
            found |= {x for x in whole if x.op != "tensor"}
            new[node] = Node("reduce", (Node("mul", (*whole, *rest)),), node.attr)
        else:
            extend([node], new, raw=True)
    return Cut({n: new[x] for n, x in outputs.items()}, frozenset(found))


def _sides(product: Node) -> tuple[list[Node], list[Node], list[Node]] | None:
    """The factors of a product of two matrices, by the side they are computed with, and those that are of neither; None
    where both sides are tensors, or one of a factor cannot be told."""
    pair = _matrices(product)
    if pair is None:
        return None
    sides: tuple[list[Node], list[Node], list[Node]] = ([pair[0]], [pair[1]], [])
    for f in (f for f in factors(product) if f not in pair):
        number = next((i for i, side in enumerate(pair) if f.axes <= side.axes), 2)
        still = f.axes.isdisjoint(product.attr.axes) and not any(n.op == "reduce" for n in walk(f))
        if number == 2 and not still:
            return None
        sides[2 if still else number].append(f)
    both = [*sides[0], *sides[1]]
    return sides if len(both) > 2 or any(f.op != "tensor" for f in both) else None


def _matrices(product: Node) -> tuple[Node, Node] | None:
    """Two factors of the most axes, each with one that the other lacks."""
    along = {*product.attr.axes}
    moving = [f for f in factors(product) if along & f.axes]
    right = max(moving, key=lambda f: len(f.axes))
    lefts = [f for f in moving if f.axes - right.axes - along and right.axes - f.axes - along]
    return (max(lefts, key=lambda f: len(f.axes)), right) if lefts else None


# --- results apart ---------------------------------------------------------------------------------------------------


def _apart(outputs: Mapping[str, Node]) -> Cut:
    """The largest nodes whose reductions have others inside in common, where there are several kinds of them."""
    numbers = _numbered(outputs.values())
    if len({*numbers.values()}) < 2:
        return Cut(outputs, frozenset())
    found: dict[Node, int] = {}
    made: dict[Node, Node] = {}

    def kinds(node: Node) -> set[int]:
        return {numbers[n] for n in outermost_reductions(node)}

    def regrouped(node: Node) -> Node:
        if node not in made:
            made[node] = _regrouped(node)
        return made[node]

    def _regrouped(node: Node) -> Node:
        own = kinds(node)
        if len(own) == 1 and node.op not in BOOLEAN:
            (found[node],) = own
            return node
        if not own or node.op == "reduce":
            return node
        if node.op not in ("add", "mul"):
            return Node(node.op, tuple(map(regrouped, node.args)), node.attr)
        groups: dict[object, list[Node]] = {}
        for place, arg in enumerate(node.args):
            mine = kinds(arg)
            groups.setdefault(min(mine) if len(mine) == 1 else (place,), []).append(arg)
        args = (regrouped(g[0] if len(g) == 1 else Node(node.op, tuple(g))) for g in groups.values())
        return Node(node.op, tuple(args))

    whole = {n: regrouped(x) for n, x in outputs.items()}
    return Cut(whole, frozenset(found), found)


def _by_axes(outputs: Mapping[str, Node]) -> Cut:
    """The reductions of results by themselves, those along the same axes together, where they vary along different
    ones."""
    folds = dict.fromkeys(outermost_reductions(*outputs.values()))
    kinds = {(n.axes, n.attr.axes): number for number, n in enumerate(folds)}
    if len({axes for axes, _ in kinds}) < 2 or any(n.attr.kind not in SUMMED or not n.axes for n in folds):
        return Cut(outputs, frozenset())
    found = frozenset(folds)
    return Cut(outputs, found, {n: kinds[n.axes, n.attr.axes] for n in folds}, found)


def _numbered(roots: Iterable[Node]) -> dict[Node, int]:
    """A number for every outermost reduction; the same for those that have a reduction inside in common, and for all
    that have none."""
    groups: list[tuple[set[Node], list[Node]]] = []
    for fold in outermost_reductions(*roots):
        inside = {m for m in walk(*fold.args) if m.op == "reduce"}
        same = [g for g in groups if g[0] & inside or not (g[0] or inside)]
        groups = [g for g in groups if g not in same]
        groups.append((inside.union(*(g[0] for g in same)), [fold, *(n for g in same for n in g[1])]))
    return {fold: number for number, (_, folds) in enumerate(groups) for fold in folds}


__all__ = ["Cut", "cuts", "may_be_cut"]
