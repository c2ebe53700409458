"""Vectorised NumPy evaluation of graph nodes over named axes.

Every array is held in one global axis order, with length 1 along axes it does not have, so broadcasting is NumPy's own
and nothing is transposed in between. Numbers known without data (constants, lengths, Python scalars) stay Python
numbers, which are weak in NumPy's promotion. All inexact arithmetic happens in one float dtype; integers are int64
until they meet a float or a division; Booleans count as 0 and 1.

Two things deviate from a plain walk over the graph: large sums of products are contracted as matrix products instead of
being written out, and ``exp(u - max u)`` is 0 where u is -inf (`redalg.graph.masked.split_exponent`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from redalg.graph.formula import operation
from redalg.graph.masked import is_masked, is_statistic, new_axes, split_exponent
from redalg.graph.node import Decl, Node, is_const, power, state, walk
from redalg.numeric.arithmetic import Arithmetic, compute_dtype, settle
from redalg.numeric.reductions import contract, fold, reduce_last, top_k, unfilled

Array = Any
_SMALL = 1 << 10  # elements of values that are kept until the end
_WRITTEN_OUT = 1 << 14  # sums of at most this many products in all are summed pairwise, not contracted


def evaluate(
    nodes: Sequence[Node],
    env: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
    *,
    dtype: Any = None,
    offsets: Mapping[str, int] | None = None,
    orders: Sequence[Sequence[str]] | None = None,
    limit: int = 0,
) -> list[Array]:
    """The values of the nodes as arrays, evaluated together so that shared subgraphs are computed once.

    ``env`` gives an array for every `tensor` and `state` leaf by name, dimensions in the order of the leaf's own axes;
    Python numbers are allowed for leaves without axes and are weak. ``sizes`` gives the lengths of axes (those seen in
    arrays need not be given), ``offsets`` where ``index`` starts counting. ``dtype`` is the dtype of all inexact
    arithmetic; by default the result type of the arrays, at least float32. ``object`` computes with Fractions.
    ``orders[i]`` is the order of dimensions of result i (an axis the node lacks is broadcast); by default the order of
    first appearance. Results may be views of the input. Integers never wrap: beyond int64 they are Python's, in arrays
    of objects. An integer beyond ``limit`` that floats are calculated with raises `Beyond` (0: it is rounded).

    >>> from redalg.graph.node import tensor, reduction, mul
    >>> q, k = tensor("q", "id"), tensor("k", "jd")
    >>> a = np.arange(6.0).reshape(2, 3)
    >>> evaluate([reduction("sum", "d", mul(q, k))], {"q": a, "k": a}, orders=["ij"])[0]
    array([[ 5., 14.],
           [14., 50.]])
    """
    first = [axis for order in orders or () for axis in order]
    evaluator = Evaluator(nodes, env, sizes or {}, dtype, offsets or {}, first)
    evaluator.numbers.limit = limit
    with np.errstate(all="ignore"):
        evaluator.compute(nodes)
        wanted = orders if orders is not None else [evaluator.default_order(n) for n in nodes]
        return [evaluator.arranged(n, order) for n, order in zip(nodes, wanted, strict=True)]


class Evaluator:
    """One evaluation: the axis order, the arithmetic, and the values of nodes that are still needed."""

    def __init__(
        self,
        nodes: Sequence[Node],
        env: Mapping[str, Any],
        sizes: Mapping[str, int],
        dtype: Any,
        offsets: Mapping[str, int],
        first_axes: Iterable[str] = (),
    ) -> None:
        self.env, self.offsets, self.sizes = env, offsets, dict(sizes)
        self.values: dict[Node, Any] = {}
        self.roots = frozenset(nodes)
        self._groups: dict[Node, tuple[tuple[Node, ...], ...]] = {}
        self._folds: dict[tuple[Any, ...], list[Array]] = {}
        self.sizes.update(new_axes(*nodes))
        order = dict.fromkeys(first_axes)
        leaves = []
        for node in walk(*nodes):
            order.update(dict.fromkeys(_axes_of(node)))
            if node.op in ("tensor", "state"):
                leaves.append(env[node.attr.name])
                self._note_sizes(node.attr, env[node.attr.name])
        self.position = {axis: p for p, axis in enumerate(order)}
        self.rank = len(order)
        self.numbers = Arithmetic(compute_dtype(leaves) if dtype is None else np.dtype(dtype))

    def _note_sizes(self, decl: Decl, array: Any) -> None:
        shape = np.shape(array)
        if len(shape) != len(decl.axes):
            raise ValueError(f"{decl}: an array of shape {shape} has {len(shape)} dimensions, not {len(decl.axes)}")
        for axis, length in zip(decl.axes, shape, strict=True):
            if self.sizes.setdefault(axis, length) != length:
                raise ValueError(f"{decl}: axis {axis!r} has length {length} here and {self.sizes[axis]} elsewhere")

    # --- order of evaluation -----------------------------------------------------------------------------------------

    def compute(self, wanted: Sequence[Node]) -> None:
        """Evaluate what the wanted nodes need, arguments first, dropping values after their last use."""
        order = self._schedule(wanted)
        operands = {node: frozenset(self._operands(node)) for node in order}
        uses = Counter(operand for node in order for operand in operands[node])
        for node in order:
            self.values[node] = self._apply(node)
            for operand in operands[node]:
                uses[operand] -= 1
                if not uses[operand] and operand not in self.roots and operand not in wanted:
                    self._drop(operand)

    def _drop(self, node: Node) -> None:
        """Give up a value; small ones stay, or what masked exponents read once more would be computed below each."""
        if np.size(self.values.get(node, 0)) > _SMALL:
            del self.values[node]

    def _schedule(self, wanted: Sequence[Node]) -> list[Node]:
        order: list[Node] = []
        seen: set[Node] = set(self.values)
        stack = [(node, False) for node in reversed(wanted)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((a, False) for a in reversed(self._operands(node)) if a not in seen)
        return order

    def value(self, node: Node) -> Any:
        if node not in self.values:
            self.compute([node])
        return self.values[node]

    def _operands(self, node: Node) -> tuple[Node, ...]:
        """The nodes whose values an operation reads: divisors instead of reciprocals, factors of a contraction."""
        factors: Iterable[Node] = node.args
        if node.op == "reduce" and (groups := self._contraction(node)):
            factors = [f for group in groups for f in group]
        elif node.op == "add":
            factors = [f for t, negative in _terms(node) for f in (t.args[1:] if negative else [t])]
        elif node.op != "mul":
            return node.args
        return tuple(_divisor(f) or f for f in factors)

    # --- operations --------------------------------------------------------------------------------------------------

    def _apply(self, node: Node) -> Any:
        if node.op in _OWN_RULE:
            return _OWN_RULE[node.op](self, node)
        return operation(self.numbers, node, [self.value(a) for a in node.args])

    def _leaf(self, node: Node) -> Any:
        value = self.numbers.admit(self.env[node.attr.name])
        return self._spread(value, node.attr.axes) if isinstance(value, np.ndarray) else value

    def _spread(self, array: Array, axes: Sequence[str]) -> Array:
        """Put the dimensions named ``axes`` at their global positions, with length 1 elsewhere (a view)."""
        order = sorted(range(len(axes)), key=lambda d: self.position[axes[d]])
        shape = [1] * self.rank
        for d in order:
            shape[self.position[axes[d]]] = array.shape[d]
        return array.transpose(order).reshape(shape)

    def _index(self, node: Node) -> Array:
        start = self.offsets.get(node.attr, 0)
        return self._spread(np.arange(start, start + self.sizes[node.attr], dtype=np.int64), (node.attr,))

    def _sum(self, node: Node) -> Any:
        terms = _terms(node)
        values = [self._product(t.args[1:]) if negative else self.value(t) for t, negative in terms]
        return self.numbers.total(values, [negative for _, negative in terms])

    def _product(self, factors: Sequence[Node]) -> Any:
        above, below = [], []
        for factor in factors:
            divisor = _divisor(factor)
            if divisor is not None:
                below.append(self.value(divisor))
            elif factor.op == "const" and _divides(factor.attr):
                above.append(self.numbers.number(Fraction(factor.attr.numerator)))
                below.append(factor.attr.denominator)
            else:
                above.append(self.value(factor))
        return self.numbers.quotient(above, below)

    def _pow(self, node: Node) -> Any:
        base, exponent = node.args
        if exponent.op == "const":
            return self.numbers.power(self.value(base), exponent.attr)
        return self.numbers.general_power(self.value(base), self.value(exponent))

    def _where(self, node: Node) -> Any:
        condition, then, other = (self.value(a) for a in node.args)
        return self.numbers.where(condition, then, other, node.is_boolean)

    def _exp(self, node: Node) -> Any:
        plain = self.numbers.inexact(self.value(node.args[0]))
        if isinstance(plain, np.ndarray) and plain.dtype.kind == "f" and np.isnan(plain).any():
            plain = self._resolved(node.args[0], plain)
        return settle(np.exp(plain), [plain])

    def _resolved(self, arg: Node, plain: Any) -> Any:
        """The argument of an exp under the rule of masked elements: -inf where it is masked."""
        if arg.op == "where":
            then, other = (self._resolved(b, self.numbers.inexact(self.value(b))) for b in arg.args[1:])
            return self.numbers.where(self.value(arg.args[0]), then, other, False)
        split = split_exponent(arg)
        if split is None:
            return plain
        return np.where(self.value(is_masked(split)), -np.inf, plain)

    # --- reductions --------------------------------------------------------------------------------------------------

    def _reduce(self, node: Node) -> Any:
        kind, axes = node.attr.kind, node.attr.axes
        if groups := self._contraction(node):
            a, b = self.numbers.unify([self._product(group) for group in groups])
            return contract(a, b, [self.position[axis] for axis in axes])
        if kind == "monoid":
            return self._monoid(node)
        x = self._flattened(self.value(node.args[0]), axes)
        if kind.startswith("topk"):
            k, new_axis = node.attr.extra
            values, indices = top_k(x, k)
            result = indices if kind == "topk_indices" else unfilled(values, indices)
            place = self.position[new_axis]
            return np.moveaxis(np.squeeze(self._restored(result, axes), place), -1, place)
        return self._restored(reduce_last(kind, x), axes)

    def _contraction(self, node: Node) -> tuple[tuple[Node, ...], ...]:
        """Two groups of factors for a matrix product, or () where writing the products out costs little."""
        if node not in self._groups:
            self._groups[node] = self._split_factors(node)
        return self._groups[node]

    def _split_factors(self, node: Node) -> tuple[tuple[Node, ...], ...]:
        body = node.args[0]
        if node.attr.kind != "sum" or body.op != "mul" or self._volume(body.axes) <= _WRITTEN_OUT:
            return ()
        widest = max(body.args, key=lambda f: self._volume(f.axes))
        wide = tuple(f for f in body.args if f.axes and f.axes <= widest.axes)
        rest = tuple(f for f in body.args if f not in wide)
        axes = frozenset().union(*(f.axes for f in rest))
        grows = self._volume(body.axes) > 2 * max(self._volume(widest.axes), self._volume(axes))
        return (wide, rest) if grows and set(node.attr.axes) <= axes & widest.axes else ()

    def _volume(self, axes: Iterable[str]) -> int:
        return prod(self.sizes[a] for a in axes)

    def _flattened(self, value: Any, axes: Sequence[str]) -> Array:
        """The body with the reduced axes, row-major, as its last dimension; the others stay in global order."""
        array = value if isinstance(value, np.ndarray) else self.numbers.constant(value).reshape([1] * self.rank)
        where = [self.position[a] for a in axes]
        shape = list(array.shape)
        for axis, p in zip(axes, where, strict=True):
            shape[p] = self.sizes[axis]
        moved = np.moveaxis(np.broadcast_to(array, shape), where, range(-len(where), 0))
        kept = self.rank - len(where)
        return moved.reshape(*moved.shape[:kept], prod(moved.shape[kept:]))

    def _restored(self, array: Array, axes: Sequence[str]) -> Array:
        """Length-1 dimensions back at the positions of the reduced axes; a further last dimension stays last."""
        return np.expand_dims(array, tuple(sorted(self.position[a] for a in axes)))

    def _monoid(self, node: Node) -> Array:
        monoid, part = node.attr.extra
        key = (monoid, node.args, node.attr.axes)
        if key not in self._folds:
            self._folds[key] = self._fold(monoid, node.args, node.attr.axes)
        return self._folds[key][part]

    def _fold(self, monoid: Any, bodies: Sequence[Node], axes: Sequence[str]) -> list[Array]:
        leaves = [tuple(state(f"{side}.{i}") for i in range(len(bodies))) for side in "ab"]
        combined = list(monoid.combine_nodes(*leaves))
        parts = np.broadcast_arrays(*(self._flattened(self.value(body), axes) for body in bodies))
        if parts[0].shape[-1] == 0:
            units = [self.numbers.constant(v) for v in self._scalars(list(monoid.identity_nodes), {})]
            return [self._restored(np.broadcast_to(u, p.shape[:-1]), axes) for u, p in zip(units, parts, strict=True)]

        def combine(a: Sequence[Array], b: Sequence[Array]) -> list[Array]:
            given = dict(zip([*leaves[0], *leaves[1]], [*a, *b], strict=True))
            return [np.broadcast_to(np.asarray(v), a[0].shape) for v in self._scalars(combined, given)]

        return [self._restored(p, axes) for p in fold(parts, combine)]

    def _scalars(self, nodes: list[Node], given: Mapping[Node, Any]) -> list[Any]:
        """Nodes without axes evaluated on arrays of any shape: the leaves' values are put in place directly."""
        inner = Evaluator([], {}, self.sizes, self.numbers.real, {})
        inner.numbers.limit = self.numbers.limit
        inner.roots = frozenset(nodes) | frozenset(given)
        inner.values.update(given)
        inner.compute(nodes)
        return [inner.values[n] for n in nodes]

    # --- results -----------------------------------------------------------------------------------------------------

    def default_order(self, node: Node) -> tuple[str, ...]:
        return tuple(sorted(node.axes, key=lambda axis: self.position[axis]))

    def arranged(self, node: Node, order: Sequence[str]) -> Array:
        """The value with exactly the dimensions ``order``."""
        if not node.axes <= set(order):
            raise ValueError(f"the value has the axes {sorted(node.axes)}, more than the order {tuple(order)} names")
        value = self.values[node]
        array = value if isinstance(value, np.ndarray) else self.numbers.constant(value).reshape([1] * self.rank)
        places = [self.position[a] for a in order]
        rest = [p for p in range(self.rank) if p not in places]
        array = array.transpose(places + rest).reshape([array.shape[p] for p in places])
        return np.broadcast_to(array, [self.sizes.get(a, n) for a, n in zip(order, array.shape, strict=True)])


def _axes_of(node: Node) -> Sequence[str]:
    if node.op in ("tensor", "state"):
        return tuple(node.attr.axes)
    if node.op == "index":
        return (node.attr,)
    if node.op != "reduce":
        return ()
    return (*node.attr.axes, node.attr.extra[1]) if node.attr.kind.startswith("topk") else node.attr.axes


def _terms(node: Node) -> list[tuple[Node, bool]]:
    """Terms that vary most first and statistics last, so that u in u - max u rounds as it does below the max, and which
    of them are subtracted."""
    terms = sorted(node.args, key=lambda t: (is_statistic(t, node.axes), -len(t.axes)))
    return [(t, i > 0 and t.op == "mul" and is_const(t.args[0], -1)) for i, t in enumerate(terms)]


def _divisor(factor: Node) -> Node | None:
    """b where the factor is 1/b."""
    if factor.op == "pow" and is_const(factor.args[1]) and factor.args[1].attr < 0:
        return power(factor.args[0], -factor.args[1].attr)
    return None


def _divides(value: Fraction) -> bool:
    """Whether a constant p/q is better applied as ·p and /q, each exact, than rounded once itself."""
    return bool(value.denominator & (value.denominator - 1)) and max(abs(value.numerator), value.denominator) < 2**24


_OWN_RULE: dict[str, Callable[[Evaluator, Node], Any]] = {
    "tensor": Evaluator._leaf,
    "state": Evaluator._leaf,
    "index": Evaluator._index,
    "size": lambda evaluator, node: evaluator.numbers.number(Fraction(evaluator.sizes[node.attr])),
    "add": Evaluator._sum,
    "mul": lambda evaluator, node: evaluator._product(node.args),
    "pow": Evaluator._pow,
    "where": Evaluator._where,
    "exp": Evaluator._exp,
    "reduce": Evaluator._reduce,
}
