"""The numbers behind `separation_rank`: a stage's body at elements × contexts, exactly, and the rank of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any

from redalg.graph.node import Node, leaves, size, substitute, tensor, walk
from redalg.graph.plan import COUNT
from redalg.numeric.exact import Exact
from redalg.numeric.exact_numbers import Number, arithmetic
from redalg.testing.sampling import draw

if TYPE_CHECKING:
    from redalg.graph.node import Decl
    from redalg.language.spec import Spec
    from redalg.verdicts.witness import Witness

DIGITS, LOST = 100, 75  # what is computed with; a remainder below 10^-LOST of the largest entry is rounding
AFTER = 2  # elements that follow the common ones in a drawn stream
Values = Mapping[str, Any]  # tensor -> nested sequences, an array, or a function of indices


@dataclass(frozen=True)
class Table:
    """`values[p][q]`: the body at element `p` in the context of stream `q`. Every element occurs in every stream."""

    values: tuple[tuple[Number, ...], ...]
    streams: tuple[Values, ...]
    rows: tuple[int, ...]  # of the minor, or the pivots
    columns: tuple[int, ...]
    remainders: tuple[float, ...]  # largest entry that is left, relative, after 0, 1, … rows; ends at 0, or one short

    @property
    def rank(self) -> int:
        """Rows until nothing is left."""
        return next((k for k, r in enumerate(self.remainders) if r == 0), len(self.remainders))


def counted(node: Node, axis: Sequence[str]) -> Node:
    """The node with the length of the stream in place of the count a state holds."""
    return substitute(node, {COUNT: size(axis)})


def drawn_table(
    spec: Spec, body: Node, axis: tuple[str, ...], known: Sequence[Node], elements: int, seed: int = 0
) -> Table:
    """A table at small random rationals: as many streams as elements, which all streams begin with.

    `known`: stages of earlier passes; they have the values of the first stream in every column.
    """
    rng = Random(seed)
    lengths = {a: 1 for d in spec.tensors for a in d.axes} | dict.fromkeys(_inner(spec, axis), 2)
    lengths[axis[0]] = elements + AFTER
    first = {d.name: draw(d, [lengths[a] for a in d.axes], rng) for d in spec.tensors}
    streams = [first]
    for q in range(1, elements):
        streams.append({d.name: _continued(first[d.name], d, axis[0], elements, q, rng) for d in spec.tensors})
    body, fixed = _fixed(body, known, first, lengths)
    table = [_column(body, {**s, **fixed}, lengths, axis[0], range(elements)) for s in streams]
    return _ranked(list(zip(*table, strict=True)), streams)


def witness_table(witness: Witness, body: Node) -> Table:
    """The table of a witness, recomputed: all elements its streams have in common, those of its minor among them."""
    axis, columns = witness.axis[0], list[list[Number]]()
    streams: list[Values] = []
    common = _common(witness.streams)
    for stream in witness.streams:
        values = {name: _along(stream, name, body, axis) for name in stream[0]} | dict(witness.parameters)
        sizes = {**witness.sizes, axis: len(stream)}
        columns.append(_column(body, values, sizes, axis, range(common), witness.positions))
        streams.append(values)
    table = tuple(zip(*columns, strict=True))
    minor = _ranked([table[p] for p in witness.places], streams, proved=True)
    return Table(table, tuple(streams), witness.places, tuple(range(len(streams))), minor.remainders)


def matrix_table(witness: Witness) -> Table:
    """The matrix of a witness as it stands."""
    import sympy

    def number(value: Any) -> Number:
        if isinstance(value, Fraction | int):
            return Fraction(value)
        mp = _context()
        return mp.mpf(str(sympy.N(value, DIGITS)))

    rows = [[number(v) for v in row] for row in witness.matrix]
    found = _ranked(rows, (), proved=True)
    k = range(len(rows))
    return Table(found.values, (), tuple(k), tuple(k), found.remainders)


def _context() -> Any:
    return arithmetic(DIGITS).mp


# --- evaluating ------------------------------------------------------------------------------------------------------


def _inner(spec: Spec, axis: tuple[str, ...]) -> set[str]:
    return {a for n in walk(*spec.outputs.values()) if n.op == "reduce" for a in n.attr.axes} - set(axis)


def _continued(array: Any, decl: Decl, axis: str, elements: int, q: int, rng: Random) -> Any:
    """The first elements as they are, larger ones after them; tensors without the axis are the same everywhere."""
    if axis not in decl.axes:
        return array
    other = draw(decl, array.shape, rng) if "bool" in decl.domain else draw(decl, array.shape, rng) * (1 + q)
    place = (slice(None),) * decl.axes.index(axis) + (slice(0, elements),)
    other[place] = array[place]
    return other


def _fixed(body: Node, known: Sequence[Node], first: Values, lengths: Mapping[str, int]) -> tuple[Node, dict[str, Any]]:
    """The body with known stages as leaves, and their values on the first stream."""
    exact, leaf_of, values = Exact(first, lengths, DIGITS), {}, {}
    for number, stage in enumerate(known):
        axes, name = tuple(sorted(stage.axes)), f"known:{number}"
        leaf_of[stage] = tensor(name, axes)
        values[name] = _reader(exact, stage, axes)
    return substitute(body, leaf_of), values


def _reader(exact: Exact, node: Node, axes: tuple[str, ...]) -> Any:
    if not axes:
        return exact.value(node, {})
    return lambda *where: exact.value(node, dict(zip(axes, where, strict=True)))


def _column(
    body: Node,
    values: Values,
    sizes: Mapping[str, int],
    axis: str,
    elements: range,
    first: Mapping[str, int] | None = None,
) -> list[Number]:
    exact = Exact(values, sizes, DIGITS, first)
    at = dict.fromkeys((*sizes, *body.axes), 0)
    return [exact.numbers.public(exact.value(body, {**at, axis: p})) for p in elements]


def _common(streams: Sequence[Sequence[Any]]) -> int:
    """How many elements all streams begin with."""
    length = min(map(len, streams))
    return next((k for k in range(length) if any(s[k] != streams[0][k] for s in streams)), length)


def _along(stream: Sequence[Mapping[str, Any]], name: str, body: Node, axis: str) -> Any:
    """A tensor of a witness's stream as a function of its indices."""
    decl = next((n.attr for n in leaves(body) if n.attr.name == name), None)

    def read(*where: int) -> Any:
        assert decl is not None
        place = decl.axes.index(axis)
        value = stream[where[place]][name]
        for i in (*where[:place], *where[place + 1 :]):
            value = value[i]
        return value

    return read


# --- the rank --------------------------------------------------------------------------------------------------------


def _ranked(rows: Sequence[Sequence[Number]], streams: Sequence[Values], proved: bool = False) -> Table:
    """Elimination with complete pivoting: which rows and columns are used, and what is left after each.

    `proved`: the rank is known to be full, so nothing that is left is taken for rounding.
    """
    values = tuple(tuple(row) for row in rows)
    mp = _context()
    rational = all(isinstance(v, Fraction | int) for row in values for v in row)
    rest = [[Fraction(v) if rational else _float(mp, v) for v in row] for row in values]
    floor = 0 if rational or proved else _largest(rest) * mp.mpf(10) ** -LOST
    pivots, remainders = _eliminated(rest, floor)
    return Table(values, tuple(streams), tuple(p for p, _ in pivots), tuple(q for _, q in pivots), tuple(remainders))


def _eliminated(rest: list[list[Any]], floor: Any) -> tuple[list[tuple[int, int]], list[float]]:
    """The pivots and the largest entry left before and after each, relative to the table's; up to `floor` it is 0."""
    places = [(p, q) for p in range(len(rest)) for q in range(len(rest[0]))]
    full = min(len(rest), len(rest[0]) if rest else 0)
    start = _largest(rest)
    remainders: list[float] = [1.0 if start else 0.0]
    pivots: list[tuple[int, int]] = []
    while len(pivots) < full and remainders[-1] != 0:
        p, q = max(places, key=lambda at: abs(rest[at[0]][at[1]]))
        pivots.append((p, q))
        row = [v / rest[p][q] for v in rest[p]]
        rest = [[v - r[q] * w for v, w in zip(r, row, strict=True)] for r in rest]
        left = _largest(rest)
        remainders.append(float(left / start) if left > floor else 0.0)
    return pivots, remainders[:full]  # of n rows, nothing is left after n: that says nothing


def _largest(rows: Sequence[Sequence[Any]]) -> Any:
    return max((abs(v) for row in rows for v in row), default=0)


def _float(mp: Any, value: Number) -> Any:
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else mp.mpf(value)
