"""An extremum over rows of products: the spec is taken apart there (SPLADE's head, late interaction, any of the kind).

`pooled` finds M[b,v] = max over s of e(Σ_d H[b,s,d]·E[v,d], …) and names the value and its position, which follow from
H, E and what else e reads; outputs follow from these values by an ordinary spec. The gradient of a maximum flows to one
row: with e at that row as a spec of its own (`Extremum.element`), in which tensors along s are read there, everything
but two sums of rows by index is an ordinary derivative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redalg.adapters.heads.parts import Product, contracts, moving_factors, over_leaves, wide
from redalg.graph import node as g
from redalg.graph.node import Node, factors, fresh
from redalg.language.spec import Spec

KINDS = {"max": "max", "argmax": "max", "min": "min", "argmin": "min"}


@dataclass(frozen=True)
class Extremum:
    """A value over rows, where it is taken, and what it is there: ``element`` over tensors without the rows' axis.

    ``there``: tensor along rows -> what stands in `element` for it, at the position; ``product``: what stands there for
    the product.
    """

    value: str
    position: str
    element: Spec
    there: Mapping[str, str]
    product: str


@dataclass(frozen=True)
class Pooled:
    """A spec taken apart at extrema over ``stream``: what ``values`` are of the product as a tensor, and ``whole`` of
    its operands; ``outer``: the outputs from them, None where these are values.

    ``left``, ``right``: the axes of the operands but those that are reduced; those of the values in this order.
    ``size``: the tensor that holds how many rows there are.
    """

    spec: Spec
    products: tuple[Product, ...]
    stream: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    values: Spec
    whole: Spec
    outer: Spec | None
    extrema: tuple[Extremum, ...]
    size: str


def pooled(spec: Spec) -> Pooled | str:
    """The spec taken apart, or why it is no such spec.

    >>> import redalg as ra
    >>> found = pooled(ra.parse("m = max[s](sum[d](H[b,s,d]*E[v,d])); return y = log(1 + relu(m + bias[v]))"))
    >>> found.stream, list(found.values.outputs), sorted(t.name for t in found.outer.tensors)
    ('s', ['max1', 'argmax1'], ['bias', 'max1'])
    """
    made = _Parts(spec)
    why = made.take()
    return why or made.result()


class _Parts:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.taken = {t.name for t in spec.tensors} | set(spec.outputs) | set(spec.axes)
        self.fold: Node = g.ZERO
        self.named: dict[tuple[str, Node], tuple[str, str]] = {}  # kind, element -> names of value and position
        self.stand: dict[Node, Node] = {}  # extrema of the spec -> tensors

    def take(self) -> str | None:
        """The reason why there is nothing to take apart, if there is one."""
        nodes = list(g.walk(*self.spec.outputs.values()))
        folds = [n for n in nodes if contracts(n)]
        if len(folds) != 1:
            return f"{len(folds)} stages are sums over one axis of products of two tensors"
        self.fold = folds[0]
        extrema = [n for n in nodes if self._is_extremum(n)]
        if not extrema or self.spec.empty:
            return "it is no extremum over one axis of what a product gives"
        if len({n.attr.axes for n in extrema}) > 1:
            return "extrema are over several axes"
        why = self._operands(extrema[0].attr.axes[0])
        for n in extrema if why is None else ():
            why = why or self._named(n)
        if why is not None:
            return why
        outer = [g.substitute(x, dict(self.stand), raw=True) for x in self.spec.outputs.values()]
        return "outputs read products outside of an extremum" if self.fold in set(g.walk(*outer)) else None

    def _operands(self, stream: str) -> str | None:
        """Which operand has the rows, and the axes of both; the reason if they share more than one axis."""
        self.stream, inner = stream, self.fold.attr.axes[0]
        one, other = moving_factors(self.fold)
        left, right = (one.attr, other.attr) if stream in one.axes else (other.attr, one.attr)
        shared = {*left.axes} & {*right.axes} - {inner}
        if shared:
            return f"both operands of the product have {', '.join(sorted(shared))}"
        self.left = tuple(a for a in left.axes if a not in (inner, stream))
        self.right = tuple(a for a in right.axes if a != inner)
        self.leaf = g.tensor(fresh("product1", self.taken), (*self.left, stream, *self.right))
        self.size = g.tensor(fresh(f"size_{stream}", self.taken), (), ("integer",))
        self.scale = [f for f in factors(self.fold) if f is not one and f is not other]
        self.product = Product(self.leaf.attr, left, right, inner)
        return None

    def _is_extremum(self, n: Node) -> bool:
        """An extremum over rows of what the product gives, with no other in it."""
        if (
            n.op != "reduce"
            or n.attr.kind not in KINDS
            or len(n.attr.axes) != 1
            or n.attr.axes[0] not in self.fold.axes
        ):
            return False
        inside = set(g.walk(n.args[0]))
        return self.fold in inside and not any(
            x.op == "reduce" and x is not self.fold and self.fold in set(g.walk(x)) for x in inside
        )

    def _named(self, n: Node) -> str | None:
        body = g.substitute(n.args[0], {g.size((self.stream,)): self.size}, raw=True)
        inside = set(g.walk(body))
        if any(x.op == "reduce" and x is not self.fold and x not in set(g.walk(self.fold)) for x in inside):
            return "there is a reduction beside the product in the extremum"
        if body.axes != self.fold.axes or any(leaf.attr.array or leaf.attr.dimensions for leaf in g.leaves(body)):
            return f"the extremum is along {', '.join(sorted(body.axes))}, and the product not"
        kind = KINDS[n.attr.kind]
        if (kind, body) not in self.named:
            names = [fresh(f"{word}{len(self.named) + 1}", self.taken) for word in (kind, f"arg{kind}")]
            self.named[kind, body] = names[0], names[1]
        value, position = self.named[kind, body]
        at = n.attr.kind != kind
        self.stand[n] = g.tensor(position if at else value, (*self.left, *self.right), ("integer",) if at else ())
        return None

    def result(self) -> Pooled:
        spec, axes = self.spec, (*self.left, *self.right)
        in_place = g.mul(*self.scale, self.leaf)
        values, whole = {}, {}
        for (kind, body), names in self.named.items():
            for word, name in zip((kind, f"arg{kind}"), names, strict=True):
                whole[name] = g.reduction(word, (self.stream,), body)
                values[name] = g.substitute(whole[name], {self.fold: in_place}, raw=True)
        formats = wide(value for value, _ in self.named.values())
        order = dict.fromkeys(values, axes)
        stand = {n: x.attr.name for n, x in self.stand.items()}
        outer: Spec | None = None
        if any(stand.get(x) != n for n, x in spec.outputs.items()):
            made = {n: g.substitute(x, dict(self.stand), raw=True) for n, x in spec.outputs.items()}
            outer = over_leaves(made, spec, spec.output_axes, spec.dtypes)
        extrema = tuple(self._extremum(body, *names) for (_, body), names in self.named.items())
        own, all_of_it = (over_leaves(x, spec, order, formats) for x in (values, whole))
        return Pooled(
            spec,
            (self.product,),
            self.stream,
            self.left,
            self.right,
            own,
            all_of_it,
            outer,
            extrema,
            self.size.attr.name,
        )

    def _extremum(self, body: Node, value: str, position: str) -> Extremum:
        axes, taken = (*self.left, *self.right), set(self.taken)
        at = g.tensor(position, axes, ("integer",))
        product = fresh(f"{self.leaf.attr.name}_there", taken)
        new: dict[Node, Node] = {self.fold: g.mul(*self.scale, g.tensor(product, axes))}
        there: dict[str, str] = {}
        for n in g.walk(g.substitute(body, {self.fold: self.leaf}, raw=True)):
            if n.op == "index" and n.attr == self.stream:
                new[n] = at
            elif n.op == "tensor" and n is not self.leaf and self.stream in n.axes:
                there[n.attr.name] = fresh(f"{n.attr.name}_there", taken)
                new[n] = g.tensor(there[n.attr.name], axes, tuple(n.attr.domain))
        made = {value: g.substitute(body, new, raw=True)}
        return Extremum(value, position, over_leaves(made, self.spec, {value: axes}), there, product)


__all__ = ["Extremum", "Pooled", "pooled"]
