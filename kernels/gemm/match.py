"""Which specs are a matrix product with a cascade on its input: the last fold is Σ_j L[…, i, j]·R[…, j, k].

L and R are any expressions of the elements and of earlier stages along j. `cut` takes the spec apart at the operands of
the fold: what makes L (`Side`) is a spec of its own, which keeps its axis and is derived and run like any other; what
is done with the sums is the epilogue, on elements (i, k), rows i and columns k.

An operand may be a matrix product itself, over another axis (a chain: Σ_j f(Σ_d x·y)·z), and the epilogue may read
the sums of other products over the same axis (a gate: Σ_j x·y · g(Σ_j x·z)). Each is a kernel of its own before this
one, and passes its results through memory. Another product of the same left operand with a tensor (a gate's other
half) is multiplied beside the first one, by the same kernel, where that tensor is read in place.

Products of tensors that are added, Σ_j x·y + Σ_d u·v, are one product whose terms are those of both (`Cut.joined`).

An operand is exact where it is a tensor, or a cast: the cast in the spec is the rounding. Any other expression is
rounded once to the type that is multiplied (a relative 2^-8 for bfloat16, 2^-11 for float16). Factors that do not vary
along j stay with an operand that is rounded anyway, and leave one that is exact for the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from redalg.graph.masked import finite
from redalg.graph.node import (
    Node,
    add,
    factors,
    fresh,
    logical,
    mul,
    outermost_reductions,
    special,
    state,
    substitute,
    tensor,
    walk,
    where,
)
from redalg.kernels.tile.match import Outside
from redalg.language.spec import Spec
from redalg.text.nodes import short

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
SMALL = (*FLOAT8, "int4", "uint4", "int8", "uint8")  # formats whose numbers are all numbers of bfloat16 and float16
TYPES = ("bfloat16", "float16")
SUMS = "sums"  # the leaf that stands for the fold in the epilogue


class NoProduct(Outside):
    """Why a spec does not end in a GEMM at all."""


class Lacking(Outside):
    """Why a product is not computed on tensor cores of a device, but is on those of others."""


@dataclass(frozen=True)
class Side:
    """One operand: `node` over `axes` and the stream. ``format``: of its exact values, None where it is rounded."""

    name: str
    node: Node
    axes: tuple[str, ...]  # the batch, then what numbers the rows of its matrix
    format: str | None

    @property
    def bare(self) -> bool:
        return self.node.op == "tensor"


class More(NamedTuple):
    """Products beside the fold: right operands of those of the same left operand, whose sums are the leaves `sums_of`
    (1, 2, …); products of tensors whose terms are added to the same sums."""

    parallel: tuple[Side, ...] = ()
    joined: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class Cut:
    """A spec taken apart: ``outputs`` over the leaf `SUMS`, the tensors, and states of ``states``, which are named.

    ``given``: for each side the states and the outputs that it makes besides its operand; then those that are made of
    other products over the stream, along rows and columns.
    """

    spec: Spec
    fold: Node
    along: tuple[str, ...]
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    column: str
    left: Side
    right: Side
    outputs: Mapping[str, Node]
    states: Mapping[str, Node]
    given: tuple[Mapping[str, Node], Mapping[str, Node], Mapping[str, Node]]
    more: More = More()

    @property
    def parallel(self) -> tuple[Side, ...]:
        return self.more.parallel

    @property
    def joined(self) -> tuple[Cut, ...]:
        return self.more.joined

    @property
    def stream(self) -> str:
        """The axes of the terms, taken together."""
        return merged(self.along)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Every operand: the left one, the right one, and right ones of products beside it."""
        return (self.left, self.right, *self.parallel)

    @property
    def chained(self) -> tuple[bool, bool]:
        """Which operands are made of a product over another axis."""
        left, right = (_other_folds(s.node, self.along) for s in (self.left, self.right))
        return bool(left), bool(right)

    def held(self, name: str) -> tuple[str, ...]:
        """The axes of a stage that the epilogue reads, in the order in which its maker writes them."""
        orders = (self.left.axes, self.right.axes, self.spec.axes)
        return _as_written(self.states[name], [o for o, names in zip(orders, self.given, strict=True) if name in names])

    def made(self, number: int, operand: bool = True) -> Spec:
        """The spec of what side `number` makes: its operand, and what is given beside it; 2: of other products."""
        if number == 2:
            outputs = self.spec.output_axes
            axes = {n: outputs.get(n) or [a for a in self.spec.axes if a in x.axes] for n, x in self.given[2].items()}
            return Spec.from_nodes(self.given[2], order=axes)
        side = (self.left, self.right)[number]
        nodes = {**({side.name: side.node} if operand else {}), **self.given[number]}
        order = {n: [a for a in (*side.axes, *self.along) if a in x.axes] for n, x in nodes.items()}
        return Spec.from_nodes(nodes, order={n: axes for n, axes in order.items() if len(axes) > 1})


def merged(axes: Sequence[str]) -> str:
    """The name of axes that are taken together, as one."""
    return " ".join(axes)


def sums_of(number: int) -> str:
    """The leaf that stands for the sums of a product: the fold, or one beside it."""
    return f"{SUMS}{number + 1}" if number else SUMS


def cut(spec: Spec, along: Sequence[str], formats: Mapping[str, str], parallel: bool = True, joins: bool = True) -> Cut:
    """The spec as operands, fold and epilogue. `along`: the streamed axes; `formats`: tensor -> dtype; `parallel`:
    whether products of the same left operand are multiplied in the same kernel; `joins`: whether terms of products
    that are added are added to the same sums.

    Raises: NoProduct, with the reason.

    >>> import redalg as ra
    >>> found = cut(ra.catalog["fp8_per_token_gemm"], ("j",), {"x": "bfloat16", "w": "float8_e4m3fn"})
    >>> found.rows, found.column, found.left.format, found.right.format, sorted(found.states)
    (('i',), 'k', 'float8_e4m3fn', 'float8_e4m3fn', ['state1'])
    >>> print(found.made(0))
    state1 = max[j](abs(x[i,j])); left = cast(448 * x[i,j] / state1, float8_e4m3fn); return left, state1
    """
    stream = tuple(along)
    fold = _fold(spec, stream)
    names = partial(fresh, taken={t.name for t in spec.tensors} | set(spec.outputs))
    batch, rows, column, factors = _roles(spec, fold, stream)
    left, right, rest = _sides(factors, stream, (*batch, *rows), (*batch, column), formats, names)
    sums = state(SUMS, (*batch, *rows, column))
    whole = _scaled(sums, rest)
    total, joined = fold, tuple[Cut, ...]()
    if joins and not rest and left.bare and right.bare:
        total, joined = _joined(spec, fold, (batch, rows, column), formats, names)
    epilogue = _over(spec, total, (fold, *(x.fold for x in joined)), whole)
    states = _states(filter(_reads, epilogue.values()), stream, names)
    more = _parallel(states, left, right, (*batch, column), stream, formats) if parallel and not joined else {}
    states = {n: x for n, x in states.items() if n not in more}
    alone = {n: x for n, x in epilogue.items() if not _reads(x)}
    places = ({*left.axes, *stream}, {*right.axes, *stream}, {*left.axes, column} - {*stream})
    given = _makers({**states, **alone}, states, places, stream)
    leaves = _leaves(states, given, (left.axes, right.axes, spec.axes))
    leaves |= {node: state(sums_of(number), sums.attr.axes) for number, (node, _) in enumerate(more.values(), 1)}
    outputs = {n: substitute(x, dict(leaves), raw=True) for n, x in epilogue.items() if n not in alone}
    _require_no_further_axes(outputs, sums)
    products = More(tuple(side for _, side in more.values()), joined)
    return Cut(spec, fold, stream, batch, rows, column, left, right, outputs, states, given, products)


def _require_no_further_axes(outputs: Mapping[str, Node], sums: Node) -> None:
    """Raises: NoProduct where a result varies along an axis that no sum of the product has."""
    for n, x in outputs.items():
        if further := x.axes - sums.axes:
            raise NoProduct(f"{n} has the axes {', '.join(sorted(further))}, too, which no sum of the product has")


def _leaves(states: Mapping[str, Node], given: Sequence[Collection[str]], orders: Sequence[Along]) -> dict[Node, Node]:
    """Tensors in the places of stages. `orders`: the axes of what each of those that make them writes."""
    own = [*zip(orders, given, strict=True)]
    return {x: tensor(n, _as_written(x, [order for order, names in own if n in names])) for n, x in states.items()}


def _as_written(node: Node, orders: Sequence[Along]) -> Along:
    """A stage's axes in the order in which its maker, the first of these, has them."""
    return tuple(a for a in orders[0] if a in node.axes)


def _over(spec: Spec, total: Node, folds: Collection[Node], whole: Node) -> dict[str, Node]:
    """The outputs over what stands for the sums of a product, or of several that are added."""
    added = () if total in folds else (a for a in total.args if a not in folds)
    replaced = {total: whole if total in folds else add(whole, *added)}
    return {n: substitute(x, dict(replaced), raw=True) for n, x in spec.outputs.items()}


def _summands(spec: Spec, fold: Node) -> tuple[Node, tuple[Node, ...]]:
    """The sum that a product is a summand of, and other products among its summands, where nothing else reads them;
    else the product alone."""
    every = [*walk(*spec.outputs.values())]
    total, *others = [n for n in every if fold in n.args] or [fold]
    if others or total.op != "add" or fold in spec.outputs.values():
        return fold, ()
    alike = [a for a in total.args if a is not fold and a.op == "reduce" and a.attr.kind == "sum"]
    found = tuple(a for a in alike if a.axes == fold.axes and _product(a, a.attr.axes))
    elsewhere = {a for n in every if n is not total for a in n.args} | {*spec.outputs.values()}
    return (fold, ()) if elsewhere.intersection(found) else (total, found)


def _joined(
    spec: Spec,
    fold: Node,
    roles: tuple[Along, Along, str],
    formats: Mapping[str, str],
    names: Callable[[str], str],
) -> tuple[Node, tuple[Cut, ...]]:
    """The sum that a product is a summand of, and its other products, of tensors, as cuts of their own; the product
    alone where one of them is of another kind."""
    total, others = _summands(spec, fold)
    (batch, rows, column), found = roles, []
    for other in others:
        along: Along = other.attr.axes
        try:
            *own, parts = _roles(spec, other, along)
            left, right, rest = _sides(parts, along, (*batch, *rows), (*batch, column), formats, names)
        except NoProduct:
            return fold, ()
        if tuple(own) != roles or rest or not (left.bare and right.bare):
            return fold, ()
        found.append(Cut(spec, other, along, batch, rows, column, left, right, {}, {}, ({}, {}, {})))
    return (total, tuple(found)) if found else (fold, ())


def _scaled(sums: Node, factors: Sequence[Node]) -> Node:
    """The sums times factors that left them: NaN where one is infinite, and meets terms of either sign and zeros.

    The product is as it stands: what cancels may be 0 or infinite.
    """
    if not factors:
        return sums
    bounded = logical("and", *(finite(f) for f in factors))
    return where(bounded, Node("mul", (*factors, sums)), special("nan"))


def _parallel(
    states: Mapping[str, Node],
    left: Side,
    right: Side,
    axes: tuple[str, ...],
    stream: Along,
    formats: Mapping[str, str],
) -> dict[str, tuple[Node, Side]]:
    """Stages that are products of the same left operand with a tensor of the right one's format, by their names."""
    found: dict[str, tuple[Node, Side]] = {}
    if not right.bare:
        return found
    for name, node in states.items():
        if node.attr.kind != "sum" or node.attr.axes != stream:
            continue
        own = [f for f in factors(node) if axes[-1] in f.axes]
        rest = [f for f in factors(node) if axes[-1] not in f.axes]
        if len(own) == 1 and own[0].op == "tensor" and rest and mul(*rest) is left.node:
            if own[0].axes == {*axes, *stream} and formats[own[0].attr.name] == right.format:
                found[name] = node, Side(own[0].attr.name, own[0], axes, right.format)
    return found


def _makers(
    nodes: Mapping[str, Node], states: Collection[str], places: tuple[set[str], set[str], set[str]], stream: Along
) -> tuple[dict[str, Node], dict[str, Node], dict[str, Node]]:
    """Who makes what is none of the product's: either side, or other products. Raises: NoProduct."""
    found: tuple[dict[str, Node], dict[str, Node], dict[str, Node]] = ({}, {}, {})
    for name, node in nodes.items():
        number = next((k for k, axes in enumerate(places) if node.axes <= axes), None)
        if (
            number is None
            or (name in states and not node.axes.isdisjoint(stream))
            or number == 2
            and not _has_product(node, stream)
        ):
            along = ", ".join(sorted(node.axes))
            raise NoProduct(f"{name} varies along {along}, not along the rows or columns of a result")
        found[number][name] = node
    return found


def _reads(node: Node) -> bool:
    return any(n.op == "state" for n in walk(node))


def _fold(spec: Spec, stream: Along) -> Node:
    """The one sum over the stream whose elements have axes of rows and of columns."""
    if spec.empty:
        raise NoProduct("an output says what it is where no element is valid")
    sums = [n for n in walk(*spec.outputs.values()) if n.op == "reduce" and n.attr.axes == stream]
    found = [n for n in sums if n.attr.kind == "sum" and _product(n, stream)]
    if not found:
        raise NoProduct(f"no stage is a sum over {', '.join(stream)} of products of rows and columns")
    return found[-1]  # nothing of the others reads it


def _has_product(node: Node, stream: Along) -> bool:
    """Whether something is a product over the stream."""
    return any(
        n.op == "reduce" and n.attr.kind == "sum" and n.attr.axes == stream and _product(n, stream) for n in walk(node)
    )


def _other_folds(node: Node, stream: Along) -> set[tuple[str, ...]]:
    """The axes, beside the stream, of the outermost folds of something."""
    return {n.attr.axes for n in outermost_reductions(node) if n.attr.axes != stream}


def _product(fold: Node, stream: Along) -> bool:
    varying = [f for f in factors(fold) if not f.axes.isdisjoint(stream)]
    return any(a.axes - b.axes - {*stream} and b.axes - a.axes - {*stream} for a in varying for b in varying)


Along = tuple[str, ...]
Roles = tuple[tuple[str, ...], tuple[str, ...], str, tuple[tuple[Node, ...], tuple[Node, ...], tuple[Node, ...]]]


def _roles(spec: Spec, fold: Node, stream: Along) -> Roles:
    """Batch, rows and column, and the factors of L, of R, and those that do not vary along the stream."""
    order = next(spec.output_axes[n] for n, x in spec.outputs.items() if fold in set(walk(x)))
    still = tuple(f for f in factors(fold) if f.axes.isdisjoint(stream))
    moving = [f for f in factors(fold) if not f.axes.isdisjoint(stream)]
    for column in reversed([a for a in order if a in fold.axes]):
        left, right = (tuple(f for f in moving if (column in f.axes) is side) for side in (False, True))
        over_left, over_right = (frozenset().union(*(f.axes for f in side)) - {*stream} for side in (left, right))
        rows = over_left - over_right
        if rows and over_right - over_left == {column} and over_left | over_right == fold.axes:
            batch = tuple(a for a in order if a in over_left & over_right)
            return batch, tuple(a for a in order if a in rows), column, (left, right, still)
    raise NoProduct("its factors do not part into rows and one axis of columns")


def _sides(
    factors: tuple[tuple[Node, ...], tuple[Node, ...], tuple[Node, ...]],
    stream: Along,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    formats: Mapping[str, str],
    names: Callable[[str], str],
) -> tuple[Side, Side, list[Node]]:
    """Both operands, and the factors that are left for the epilogue."""
    left, right, still = factors
    rest = list(still)
    sides = []
    for name, own, axes in (("left", left, rows), ("right", right, columns)):
        exact = _exact(own, formats)
        taken = [f for f in rest if f.axes <= {*axes} and (f.axes or f.op != "const")] if exact is None else []
        rest = [f for f in rest if f not in taken]
        node = mul(*own, *taken)
        if not node.axes >= {*stream}:
            raise NoProduct(f"{short(node)} does not vary along {', '.join(sorted({*stream} - node.axes))}")
        _require_chainable(node, stream)
        if any(n.op == "index" and n.attr in stream for n in walk(node)) and exact is not None:
            exact = None
        sides.append(Side(names(name), node, axes, exact))
    return sides[0], sides[1], rest


def _require_chainable(node: Node, stream: Along) -> None:
    """Raises: NoProduct where an operand is folded over several axes, not one after the other."""
    others = _other_folds(node, stream)
    if len(others) > 1 or (others and any(n.op == "reduce" and n.attr.axes == stream for n in walk(node))):
        raise NoProduct("an element of an operand is a fold over another axis, beside a stage of its own")


def _exact(own: Iterable[Node], formats: Mapping[str, str]) -> str | None:
    """The format whose numbers the product of these factors are."""
    parts = [f for f in own if f.op != "const"]
    if len(parts) != 1:
        return None
    if parts[0].op == "tensor":
        return formats[parts[0].attr.name]
    return str(parts[0].attr) if parts[0].op == "cast" else None


def _states(outputs: Iterable[Node], stream: Along, names: Callable[[str], str]) -> dict[str, Node]:
    """The stages that the epilogue reads."""
    found: dict[str, Node] = {}
    stack, seen = list(outputs), set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "reduce":
            if _reads(node):
                raise NoProduct("a later stage reads the product")
            if node.attr.axes != stream:
                raise NoProduct(f"the result reads a fold over {', '.join(node.attr.axes)}")
            found[names(f"state{len(found) + 1}")] = node
        elif node.op == "tensor" and not node.axes.isdisjoint(stream):
            raise NoProduct("the result keeps the stream's axis")
        else:
            stack += node.args
    return found


def operand_types(left: Side, right: Side, read: Collection[str] = ()) -> tuple[str, str]:
    """The types that are multiplied: float8 where both operands are, else one of 16 bits that holds what is exact, or
    where both are computed, that of all tensors which they `read`.

    Raises: Outside where no type does.

    >>> from redalg.graph.node import tensor
    >>> side = lambda kind: Side("s", tensor("s", "ij"), ("i",), kind)
    >>> operand_types(side("float8_e4m3fn"), side("float8_e4m3fn")), operand_types(side("int8"), side("float16"))
    (('float8_e4m3fn', 'float8_e4m3fn'), ('float16', 'float16'))
    >>> operand_types(side(None), side("bfloat16")), operand_types(side("int8"), side("int8"))
    (('bfloat16', 'bfloat16'), ('bfloat16', 'bfloat16'))
    """
    formats = [s.format for s in (left, right)]
    if all(f in FLOAT8 for f in formats):
        return str(formats[0]), str(formats[1])
    known = [f for f in formats if f is not None] or [f for f in TYPES if {*read} == {f}]
    wide = {f for f in known if f not in SMALL}
    if len(wide) > 1 or not wide <= {*TYPES}:
        raise Outside(
            f"it multiplies {' and '.join(sorted(wide))}; tensor cores are used for {', '.join(TYPES)}, float8"
        )
    if not known or (not wide and None in formats):
        raise Outside("neither operand says what type of 16 bits the other may be rounded to")
    kind = next(iter(wide), TYPES[0])
    return kind, kind
