"""A head: a spec whose elements are the products of two matrices that are read nowhere as a whole (a loss over logits).

`head` takes the spec apart at the products: `Head.values` computes, from rows of the products as a tensor, one value a
row (log-probabilities, normalisers, entropies); `Head.outer` computes the spec's outputs from those values where they
are not outputs themselves (a mean over tokens). Rows are independent of one another, so that the products are made,
used and forgotten in slabs of rows; where nothing of a gradient runs along a row, in slabs of columns, too.

What is known of positions and lengths of an axis that is cut into slabs is passed as numbers (`Placed`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.graph.node import Decl, Node, factors, fresh
from redalg.language.spec import Number, Spec

WHERE = "redalg.torch.head"
WIDE = "float32"  # values of rows are at least that, however narrow the products are held


@dataclass(frozen=True)
class Product:
    """``leaf[row, column]`` is Σ over ``inner`` of ``left[row, inner]·right[column, inner]``."""

    leaf: Decl
    left: Decl
    right: Decl
    inner: str


@dataclass(frozen=True)
class Head:
    """A spec taken apart: ``products``, the spec of the ``values`` of a row, and of the outputs from them.

    ``outer`` is None where the outputs are values of rows.
    """

    spec: Spec
    products: tuple[Product, ...]
    row: str
    column: str
    values: Spec
    outer: Spec | None


@dataclass(frozen=True)
class Placed:
    """A spec in which positions along some axes start at a number, and some lengths are numbers.

    ``first``: axis -> the tensor that holds the first position; ``lengths``: axis -> the tensor of its whole length.
    """

    spec: Spec
    first: Mapping[str, str]
    lengths: Mapping[str, str]


def head(spec: Spec) -> Head:
    """The spec as a head.

    Raises: RedalgError where it has no product of two matrices, or where its outputs are not made from rows of it.

    >>> import redalg as ra
    >>> found = head(ra.parse("return lse = logsumexp[v](sum[d](H[t,d]*W[v,d]))"))
    >>> found.row, found.column, str(found.products[0].leaf), list(found.values.outputs), found.outer
    ('t', 'v', 'product1[t,v]', ['lse'], None)
    """
    folds = [n for n in g.walk(*spec.outputs.values()) if _is_product(n)]
    if not folds:
        why = "no stage is a sum over one axis of products of two tensors, one along rows and one along columns"
        raise RedalgError(f"the spec {spec}", WHERE, why, "ra.torch.compile(spec)")
    axes = {frozenset(n.axes) for n in folds}
    if len(axes) > 1:
        named = " and ".join(", ".join(sorted(a)) for a in sorted(axes, key=sorted))
        raise RedalgError(f"products along {named}", WHERE, "their rows and columns differ", "ra.torch.compile(spec)")
    kept = [n for n in spec.outputs if axes & {frozenset(spec.outputs[n].axes)}]
    if kept:
        why = "it has the axes of the products, which are not kept"
        raise RedalgError(f"the output {kept[0]}", WHERE, why, "leave it out, or ra.torch.compile(spec)")
    first, second = (a for a in spec.axes if a in folds[0].axes)
    reasons = []
    for row, column in ((first, second), (second, first)):
        found = _taken_apart(spec, folds, row, column)
        if isinstance(found, Head):
            return found
        reasons.append(found)
    raise RedalgError(f"the spec {spec}", WHERE, "; ".join(reasons), "ra.torch.compile(spec)")


def contracts(n: Node) -> bool:
    """A sum along one axis of two tensors along it, which are not the same one, each with one axis more at least."""
    if n.op != "reduce" or n.attr.kind != "sum" or len(n.attr.axes) != 1:
        return False
    moving = moving_factors(n)
    if len(moving) != 2 or any(f.op != "tensor" or len(f.attr.axes) < 2 for f in moving):
        return False
    return moving[0].axes != moving[1].axes and not any(f.attr.array or f.attr.dimensions for f in moving)


def _is_product(n: Node) -> bool:
    """A product of two matrices."""
    return contracts(n) and len(n.axes) == 2 and all(len(f.attr.axes) == 2 for f in moving_factors(n))


def moving_factors(fold: Node) -> list[Node]:
    """Those that vary along the sum."""
    return [f for f in factors(fold) if fold.attr.axes[0] in f.axes]


def _taken_apart(spec: Spec, folds: list[Node], row: str, column: str) -> Head | str:
    """The head with these rows and columns, or why it is none."""
    taken = {t.name for t in spec.tensors} | set(spec.outputs)
    leaves = {fold: _leaf(fold, number, row, column, taken) for number, fold in enumerate(folds, 1)}
    products = tuple(p for _, p in leaves.values())
    outputs = {n: g.substitute(x, {f: x for f, (x, _) in leaves.items()}, raw=True) for n, x in spec.outputs.items()}
    reads = reading(outputs.values(), {g.tensor(p.leaf.name, p.leaf.axes) for p in products})
    values: dict[Node, str] = {}
    for name, node in outputs.items():
        why = collect(name, node, (row,), column, reads, values, taken)
        if why:
            return why
    if values.keys() >= set(outputs.values()):
        own = over_leaves(outputs, spec, spec.output_axes, wide(outputs), spec.empty)
        return Head(spec, products, row, column, own, None)
    if spec.empty:
        return "an output that says what it is where nothing is valid is not a value of a row"
    named = {n: x for x, n in values.items()}
    inner = over_leaves(named, spec, {}, wide(named))
    stand = {x: g.tensor(n, inner.output_axes[n]) for n, x in named.items()}
    outer = {n: g.substitute(x, dict(stand), raw=True) for n, x in outputs.items()}
    return Head(spec, products, row, column, inner, over_leaves(outer, spec, spec.output_axes))


def _leaf(fold: Node, number: int, row: str, column: str, taken: set[str]) -> tuple[Node, Product]:
    """What stands in the place of a fold: the product as a tensor, times what does not vary along the sum."""
    one, other = moving_factors(fold)
    left, right = (one, other) if row in one.axes else (other, one)
    leaf = g.tensor(fresh(f"product{number}", taken), (row, column))
    still = [f for f in factors(fold) if f not in (one, other)]
    return g.mul(*still, leaf), Product(leaf.attr, left.attr, right.attr, fold.attr.axes[0])


def over_leaves(
    outputs: Mapping[str, Node],
    spec: Spec,
    order: Mapping[str, tuple[str, ...]],
    dtypes: Mapping[str, str] | None = None,
    empty: Mapping[str, Number] | None = None,
) -> Spec:
    """Outputs over the tensors that they read, those of the spec last and in its order."""
    read = {leaf.attr for x in outputs.values() for leaf in g.leaves(x)}
    own = [d for d in spec.tensors if d in read]
    more = sorted(read.difference(own), key=lambda d: d.name)
    return Spec.from_nodes(outputs, tensors=[*more, *own], order=dict(order), empty=empty, dtypes=dict(dtypes or {}))


def wide(outputs: Iterable[str]) -> dict[str, str]:
    """The dtypes of values of rows."""
    return dict.fromkeys(outputs, WIDE)


def reading(roots: Iterable[Node], marks: Container[Node]) -> set[Node]:
    """The nodes that depend on a product."""
    found: set[Node] = set()
    for n in g.walk(*roots):
        if n in marks or not found.isdisjoint(n.args):
            found.add(n)
    return found


def collect(
    name: str,
    root: Node,
    rows: tuple[str, ...],
    column: str,
    reads: set[Node],
    values: dict[Node, str],
    taken: set[str],
) -> str | None:
    """Name the largest parts that depend on a product and are values of a row; the reason where a part is none."""
    row = ",".join(rows)
    stack = [root]
    while stack:
        n = stack.pop()
        if n not in reads or n in values:
            continue
        if n.axes.issuperset(rows) and column not in n.axes and not _crosses(n, rows) and not _weighted(n, reads):
            values[n] = name if n is root else fresh(f"value{len(values) + 1}", taken)
        elif column in n.axes or not n.args:
            return f"{name} is no value of one {row} alone: it reads others' products, or a stage over {row} with one"
        else:
            stack.extend(n.args)
    return None


def _crosses(root: Node, rows: tuple[str, ...]) -> bool:
    """Whether anything is reduced over the rows, of which a slab has a part."""
    return any(n.op == "reduce" and not set(n.attr.axes).isdisjoint(rows) for n in g.walk(root))


def _weighted(n: Node, reads: set[Node]) -> bool:
    """Whether a value is made of one and of tensors that may be differentiated: that is left to the outer spec."""
    if n.op not in ("add", "mul", "where"):
        return False
    others = [a for a in n.args if a not in reads]
    return any(not leaf.attr.domain & {"integer", "bool"} for a in others for leaf in g.leaves(a))


def placed(spec: Spec, axes: Iterable[str]) -> Placed:
    """The spec for a part of some axes: positions count from a number that is passed, lengths are numbers.

    >>> import redalg as ra
    >>> found = placed(ra.parse("return y = x[i]*index[i] + size[i]"), "i")
    >>> print(found.spec)
    tensors x[i], first_i integer, size_i integer; y = x[i] * (first_i + index[i]) + size_i; return y
    >>> found.first, found.lengths
    ({'i': 'first_i'}, {'i': 'size_i'})
    """
    taken = {t.name for t in spec.tensors} | set(spec.outputs)
    first: dict[str, str] = {}
    lengths: dict[str, str] = {}
    swapped: dict[Node, Node] = {}
    for n in g.walk(*spec.outputs.values()):
        if n.op in ("index", "size") and n.attr in axes:
            into, word = (first, "first") if n.op == "index" else (lengths, "size")
            into[n.attr] = fresh(f"{word}_{n.attr}", taken)
            leaf = g.tensor(into[n.attr], (), ("integer",))
            swapped[n] = g.add(leaf, n) if n.op == "index" else leaf
    if not swapped:
        return Placed(spec, {}, {})
    outputs = {n: g.substitute(x, dict(swapped)) for n, x in spec.outputs.items()}
    new = [x.attr for n, x in swapped.items() if n.op == "size"]
    new += [leaf.attr for n, x in swapped.items() if n.op == "index" for leaf in g.leaves(x)]
    made = Spec.from_nodes(
        outputs,
        tensors=[*spec.tensors, *sorted(new, key=lambda d: d.name)],
        order=dict(spec.output_axes),
        empty=spec.empty,
        dtypes=spec.dtypes,
    )
    return Placed(made, first, lengths)


def hoisted(spec: Spec, row: str, column: str) -> tuple[Spec | None, Spec]:
    """What varies along rows alone, as a spec of its own, and the spec that reads it: a map over all elements would
    divide and take logarithms of numbers of its row again at every element.

    Terms of a sum and factors of a product that vary along rows alone are taken together.

    >>> import redalg as ra
    >>> rows, rest = hoisted(ra.parse("return y = (log(a[i]) + b[i] + x[i,j])*x[i,j]/b[i]"), "i", "j")
    >>> print(str(rows).partition(" dtype")[0])
    tensors a[i], b[i]; of_row1 = b[i] + log(a[i]); of_row2 = 1 / b[i];
    >>> print(rest)
    y = (x[i,j] + of_row1[i]) * x[i,j] * of_row2[i]; return y
    """
    hoist = _Hoist(spec, row)
    new: dict[Node, Node] = {}
    for n in g.walk(*spec.outputs.values()):
        args = tuple(new[a] for a in n.args)
        made = hoist.without(n, args) if column in n.axes else args
        new[n] = n if made == n.args else g.rebuild(n, made)
    outputs = {name: new[n] for name, n in spec.outputs.items()}
    read = {leaf.attr for n in outputs.values() for leaf in g.leaves(n)}
    formats = set(spec.dtypes.values()) & {d.name for d in spec.tensors}
    if not hoist.parts or not formats <= {d.name for d in read}:
        return None, spec
    parts = {x.attr.name: n for n, x in hoist.parts.items()}
    own = over_leaves(parts, spec, {}, wide(parts))
    more = sorted(read.difference(spec.tensors), key=lambda d: d.name)
    tensors = [*(d for d in spec.tensors if d in read), *more]
    made_of = Spec.from_nodes(outputs, tensors=tensors, order=spec.output_axes, empty=spec.empty, dtypes=spec.dtypes)
    return own, made_of


class _Hoist:
    """What is taken out of a spec, and what stands for it."""

    def __init__(self, spec: Spec, row: str) -> None:
        self.row = row
        self.parts: dict[Node, Node] = {}
        self._taken = {t.name for t in spec.tensors} | set(spec.outputs)

    def without(self, n: Node, new: tuple[Node, ...]) -> tuple[Node, ...]:
        """The arguments of a node that varies along columns; `new`: what has become of them."""
        still = [_of_row(a, self.row) for a in n.args]
        if not any(still):
            return new
        if n.op not in ("add", "mul"):
            return tuple(self._stand_in(a) if own else x for a, own, x in zip(n.args, still, new, strict=True))
        group = [a for a, own in zip(n.args, still, strict=True) if own or a.op == "const"]
        whole = g.rebuild(n, tuple(group)) if len(group) > 1 else group[0]
        return (*(x for a, x in zip(n.args, new, strict=True) if a not in group), self._stand_in(whole))

    def _stand_in(self, n: Node) -> Node:
        if n.op == "tensor":
            return n
        if n not in self.parts:
            self.parts[n] = g.tensor(fresh(f"of_row{len(self.parts) + 1}", self._taken), (self.row,))
        return self.parts[n]


def _of_row(n: Node, row: str) -> bool:
    return n.axes == {row} and not n.is_boolean


def reduces(spec: Spec, axis: str) -> bool:
    """Whether anything is reduced over the axis."""
    return any(n.op == "reduce" and axis in n.attr.axes for n in g.walk(*spec.outputs.values()))


def slabs(length: int, per_item: int, workspace: int, multiple: int = 128) -> Iterator[tuple[int, int]]:
    """Equal parts of [0, length), but for the last, each at most `workspace` bytes at `per_item` bytes an item.

    A part has a multiple of `multiple` items where it has that many; there is at least one item in a part.

    >>> list(slabs(1000, 4, 2000)), list(slabs(0, 4, 100)), list(slabs(3, 4, 1))
    ([(0, 384), (384, 768), (768, 1000)], [], [(0, 1), (1, 2), (2, 3)])
    """
    most = max(1, workspace // max(1, per_item))
    count = -(-length // most)
    each = -(-length // count) if count else 0
    if each > multiple:
        up = -(-each // multiple) * multiple
        each = up if up <= most else each // multiple * multiple
    for start in range(0, length, max(1, each)):
        yield start, min(length, start + each)


__all__ = [
    "Head",
    "Placed",
    "Product",
    "collect",
    "contracts",
    "factors",
    "fresh",
    "head",
    "hoisted",
    "moving_factors",
    "over_leaves",
    "placed",
    "reading",
    "reduces",
    "slabs",
    "wide",
]
