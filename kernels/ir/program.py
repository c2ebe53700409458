"""What lies between a form and source text: programs over the elements of one row, with named axes.

A `Program` says what is computed; a schedule (`redalg.kernels.ir.schedule`) says by whom. Both backends print the same
program. Its axes play four roles::

    rows     one state each, independent of each other (flattened to one row number)
    stream   the axes a state is folded over (flattened row-major to one position ``pos``)
    columns    axes along which part of a row's state is an array (the columns e of attention's P·V); usually none
    inner    axes of contractions inside an element (the d of Q·K): complete for every element

A stream is folded in *tiles*. Grammar (names are read as graph leaves ``state(name)``)::

    Pass    = lift: Step*  update: Step*  combine: Step*  parts: Part*  exports: Let*
    Step    = Let(name, node)                name := node, per row (or per column, if the node has column axes)
            | First(name, node)              name := node at the tile's first element if that is finite, else 0
            | Loop(Fold*)                    one walk over the tile: every fold reads only names known before
            | Join(names, op, a, b)          names := a ⊕ b, values held at the same anchors, a first in the stream
    Fold    = (names, op, bodies)            names := the reduction of the bodies over the tile

``lift`` makes a tile's state under the names ``part + "_b"`` from an empty start. ``combine`` reads the state ``part``
(first in the stream) and ``part + "_b"`` with counts ``n`` and ``n_b``, both non-empty, and leaves ``part + "_new"``.
``update`` folds a tile into the state: it reads ``part`` and the tile and leaves ``part + "_new"``. Where anchors are
extrema it lifts the tile at the *new* anchors; it holds for an empty state too if `Pass.absorbs`, and is empty where
there is nothing better than lift, then combine. What a step names `_new` or `_b` is final: no name is assigned twice in
a list of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from redalg.graph.node import Node, leaves, state, substitute
from redalg.graph.operators import Operator

STORAGE = {  # dtypes of arrays -> bytes; narrow floats are computed in float32
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}
CELLS = {  # what holds an element, as NumPy and Numba name it: formats that they do not have are bits
    d: d if d[0] in "iu" or d in ("float64", "float32") else f"uint{8 * size}" for d, size in STORAGE.items()
}


@dataclass(frozen=True)
class Operand:
    """A tensor of the spec as an argument: an array read by position, or a number passed by value (`number`)."""

    name: str
    axes: tuple[str, ...]
    dtype: str  # a key of STORAGE; for a number "float64", "int64" or "bool"
    number: bool = False


class Place(NamedTuple):
    """An index that a leaf is read at, by the name of an axis: `number`, or entry `number` of a tile of `tile` entries
    along `axis`, where the axis of rows `outer` numbers tiles; `exact`: all tiles are whole."""

    number: int
    outer: str = ""
    tile: int = 1
    axis: str = ""
    exact: bool = True


@dataclass(frozen=True)
class Result:
    """An output array: `node` at every index of `axes`; where `masked` holds, the number `empty`."""

    name: str
    axes: tuple[str, ...]
    dtype: str
    node: Node
    keeps: bool = False  # whether its node is evaluated per element of the stream
    masked: Node | None = None
    empty: Any = None
    summed: bool = False  # added over the rows of each group of threads instead of written: an array of partial sums

    @property
    def key(self) -> str:
        """What its array goes by among all arrays of a call: an output may have the name of a tensor."""
        return result_key(self.name)


def result_key(output: str) -> str:
    """The key of an output's array beside those of tensors, which go by their names.

    >>> result_key("y")
    'y made'
    """
    return f"{output} made"


@dataclass(frozen=True)
class Let:
    """A value by its name; `guess`: it only makes an anchor, for which every number near it is as good."""

    name: str
    node: Node
    guess: bool = False


@dataclass(frozen=True)
class First:
    """The node at the first element of the tile, if it is finite, else 0."""

    name: str
    node: Node


@dataclass(frozen=True)
class KeyMax:
    """A position packed with its value (`redalg.kernels.lower.packed_keys`): the largest key."""

    kind: ClassVar[str] = "keymax"


@dataclass(frozen=True)
class KeyTop:
    """A list of the k largest keys."""

    k: int
    axis: str

    kind: ClassVar[str] = "keytop"


FoldOperator = Operator | KeyMax | KeyTop


@dataclass(frozen=True)
class Fold:
    """Names of a position: (value, position in the stream); of a top-k: (values, positions)."""

    names: tuple[str, ...]
    op: FoldOperator
    bodies: tuple[Node, ...]
    axes: tuple[str, ...] = ()  # column axes of the result

    @property
    def kind(self) -> str:
        return self.op.kind


@dataclass(frozen=True)
class Loop:
    """`part`: a walk over a part of the tile, `n_some` of its `n_b` elements (`redalg.kernels.schedule.sampling`)."""

    folds: tuple[Fold, ...]
    part: bool = False


@dataclass(frozen=True)
class Join:
    """`names` := `a` ⊕ `b`; an average is a + (b - a)·n_b/(n + n_b)."""

    names: tuple[str, ...]
    op: FoldOperator
    a: tuple[Node, ...]
    b: tuple[Node, ...]
    axes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.op.kind


Step = Let | First | Loop | Join


def step_nodes(step: Step) -> list[Node]:
    """The nodes a step computes."""
    if isinstance(step, Let | First):
        return [step.node]
    if isinstance(step, Join):
        return [*step.a, *step.b]
    return [body for fold in step.folds for body in fold.bodies]


def renamed(node: Node, names: dict[str, str]) -> Node:
    """The node over the same parts under other names."""
    mapping = {
        leaf: state(names[leaf.attr.name], leaf.attr.axes, leaf.attr.domain)
        for leaf in leaves(node, "state")
        if leaf.attr.name in names
    }
    return substitute(node, mapping, raw=True) if mapping else node


@dataclass(frozen=True)
class Part:
    """One stored value of a state. `kind`: "f" (the real dtype), "i" (int64) or "b"; `top`: the length of a list."""

    name: str
    kind: str
    identity: float | int | bool
    axes: tuple[str, ...] = ()  # column axes
    top: int | None = None


@dataclass(frozen=True)
class Pass:
    parts: tuple[Part, ...]
    lift: tuple[Step, ...]
    combine: tuple[Step, ...]
    update: tuple[Step, ...] = ()
    absorbs: bool = False  # update and combine also hold where a state is the identity (n = 0 or n_b = 0)
    ordered: bool = False  # splits must be combined in the order of the stream
    exports: tuple[Let, ...] = ()  # read by later passes and results


class Factor(NamedTuple):
    """A power of a tensor, or of a tensor less something of its row (`centred`), that an element is multiplied by.

    `others`: tensors that are added to it or compared with it, so that the base is as small as the smallest of them; of
    a sum, tensors that it is held in one unit with, so that it is the smaller the larger they are.
    """

    tensor: str
    centred: bool
    degree: float
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Watch:
    """A sum, product or extremum whose state says whether a row left the range of the reals
    (`redalg.kernels.lower.watched`).

    `reads`: the tensors it is of; `positive`: those of them that are no numbers for it at 0 or below; `average`: of its
    terms; `extremum`: one of them. With `factors`, those of its terms, it is to be no smaller than normal numbers are,
    too, and not only finite, or that alone where it cannot be `above` the range. Results take a `power` of it, or a sum
    of so many `terms` as large, which are to be in the range as well. `bounds`: what is multiplied to the terms of an
    extremum, up to 2^`slack`; they tell extrema of rows that are in the range (0 of a point that is met, an infinity of
    no elements) from those that left it. `product`: of all elements, which is below the range unless one of them is 0.
    Of a sum `terms` are 2 where results hide a product of it and others: its power is to be normal whatever the signs.
    """

    part: str
    reads: frozenset[str]
    positive: tuple[str, ...] = ()
    average: bool = False
    factors: tuple[Factor, ...] = ()
    power: float = 1.0
    terms: int = 1
    extremum: bool = False
    above: bool = True
    bounds: tuple[Factor, ...] = ()
    slack: float = 0.0
    product: bool = False

    @property
    def low(self) -> bool:
        """Whether it is to be no smaller than normal numbers are."""
        return bool(self.factors) or self.product

    @property
    def least(self) -> float:
        """The power of it that is to be a normal number: sums of terms of both signs are small by themselves."""
        powers = self.extremum or self.product or self.terms > 1
        return self.power if powers or all(f.degree % 2 == 0 for f in self.factors) else 1.0


@dataclass(frozen=True)
class Program:
    """Everything a backend prints, before any decision about threads."""

    name: str
    rows: tuple[str, ...]
    stream: tuple[str, ...]
    columns: tuple[str, ...]
    operands: tuple[Operand, ...]
    results: tuple[Result, ...]
    passes: tuple[Pass, ...]
    real: str  # "float32" or "float64": what inexact values are computed in
    lengths: dict[str, int] = field(
        default_factory=dict, hash=False
    )  # axes whose length is part of the program (top-k)
    attained: frozenset[str] = frozenset()  # parts that are sums of exp(u - max u): at least 1 where any u is a number
    title: str = ""  # what is computed, in the words of the spec
    inner: dict[str, str] = field(default_factory=dict, hash=False)  # a contraction's axis -> the one it is as long as
    places: dict[str, Place] = field(default_factory=dict, hash=False)  # axes that are one index (`lower.unrolled`)
    watched: tuple[Watch, ...] = ()  # what tells of rows that left the range of the reals

    @cached_property
    def keeps(self) -> bool:
        return any(r.keeps for r in self.results)

    @property
    def fixed(self) -> frozenset[str]:
        """Axes along which a row has one index."""
        return frozenset({*self.rows, *self.places})

    def outer(self, axes: Iterable[str]) -> set[str]:
        """The axes of rows that these vary along."""
        return {(self.places[a].outer if a in self.places else a) for a in axes} & {*self.rows}

    @cached_property
    def summed(self) -> tuple[Result, ...]:
        """The results that are added over rows."""
        return tuple(r for r in self.results if r.summed)


BARRIER = "barrier"  # scratch that blocks meet at: its words come back with the highest bit changed, see `splits_sync`


@dataclass(frozen=True)
class Param:
    """One argument of a generated function, in order.

    `role`: "operand" or "result" (a pointer), "number" (a scalar operand), "size" (length of axis `name`), "stride" or
    "stride_out" (of the operand or result `name` along dimension `dim`, in elements), "scratch" (a workspace of `size`
    entries for every row, one in all if that is 0; counters start at 0; on a CPU `size` entries for every split),
    "counters" (`size` words that are 0 when a launch starts, and that it leaves at 0), "span" (elements of a split,
    CPU), "width" (rows side by side that are walked together, CPU), "low" or "high" (a range of rows or splits, CPU),
    "marks" (a byte for every row), "marked" (a word: whether one is not 0) and "spare" (a number: whether rows with a
    mark are left as they are) of rows that left the range of the reals, CPU; on a GPU "marks" is what both point to,
    "maps" (the tensors' maps in device memory, 128 bytes each), "fixed"
    (a number that is the same for all calls of one kind).
    """

    role: str
    name: str
    dtype: str  # a key of STORAGE
    dim: int = 0
    size: int = 0


@dataclass(frozen=True)
class Module:
    """Generated source: a Python module as text, its entry point, and what the entry takes.

    ``threads``: of every block, where the kernel was written for that number; ``shared``: bytes of shared memory that
    are given at the launch.
    """

    source: str
    entry: str
    params: tuple[Param, ...]
    threads: int = 0
    shared: int = 0

    def renamed(self, source: str, names: Mapping[str, str]) -> Self:
        """The module as a source in which some names are others."""
        params = tuple(replace(p, name=names.get(p.name, p.name)) for p in self.params)
        return replace(self, source=source, entry=names.get(self.entry, self.entry), params=params)
