"""States along two axes as outer products: what of an element varies along one of them alone, and what reductions read.

A block that shares out such a state (`Schedule.entries`) computes what varies along one axis once for every element of
the stream, and leaves it in a table of shared memory; its threads add up functions of two entries of these tables. That
is how a product of matrices is computed, with whatever map and reduction a form has in place of multiply and add.

Means that only centre what is summed come from a part of a block's elements, as in `redalg.kernels.schedule.sampling`:
with one element in f looked at, moments about them are at most 1 + f times those about the mean, and so is their
rounding. Other reductions that anchors are made of (means with weights) are of all its elements, which are read twice.
Names and tables along the second axis that are those of the first one (``X[j,b]`` beside ``X[j,a]``) are held once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Any

from redalg.graph.node import Node, leaves, substitute, walk
from redalg.graph.operators import Extremum, Product, Quantifier, Sum
from redalg.kernels.ir.program import First, Fold, Join, Let, Loop, Pass, Program, Step, step_nodes
from redalg.kernels.schedule.sampling import ALL, SOME, means

COMMUTE = frozenset({"add", "mul", "eq", "ne", "and", "or", "maximum", "minimum"})
GROUPED = frozenset({"mul", "and"})  # operations of many whose operands along one axis are joined first
AREAS, VECTOR = (128, 64), 8  # columns of an area at most; of which a width is a multiple
COUNTS = frozenset({"n_b", SOME.attr.name})


class Undivided(ValueError):
    """Why a state cannot be shared out so."""


@dataclass(frozen=True)
class Side:
    """One of the two axes. `whole`: its length; `width`: columns of a block; `guesses`: steps that make anchors along
    it; `values`: what is kept of an element, in tables of shared memory; `folds`: reductions that vary along this axis
    alone; `run`: elements of the stream that a load brings, where they and not columns are neighbours in memory (0)."""

    axis: str
    whole: int
    width: int
    guesses: tuple[Step, ...]
    values: tuple[Node, ...]
    folds: tuple[Fold, ...]
    run: int = 0

    @property
    def areas(self) -> int:
        """Blocks beside each other along the axis, each for a part of the state."""
        return -(-self.whole // self.width)

    @property
    def loops(self) -> list[Loop]:
        """Walks over a part of the elements."""
        return [s for s in self.guesses if isinstance(s, Loop)]

    @property
    def leaves(self) -> list[Node]:
        """The tensors that an element reads."""
        nodes = [*self.values, *(n for f in self.folds for n in f.bodies)]
        nodes += [n for s in self.loops for n in step_nodes(s)]
        return [n for n in walk(*nodes) if n.op == "tensor"]


@dataclass(frozen=True)
class Outer:
    """A pass of a program, divided. `cells`: reductions along both axes, over values of the sides; `ends`: what follows
    once they are known; `kept`: anchors that it reads; `same`: names along the second axis -> those of the first that
    they are, and `mirror` the same of values; `symmetric`: whether cells stay what they are where the axes change
    places; `length`: elements of the stream; `turned`: of a symmetric state in areas, of which those on and above the
    diagonal are computed: names along the second axis -> those of the first; `stored`: entries beside each other that a
    thread writes to results as a vector."""

    sides: tuple[Side, Side]
    cells: tuple[Fold, ...]
    ends: tuple[Let, ...]
    kept: tuple[str, ...]
    same: Mapping[str, str]
    mirror: Mapping[Node, Node]
    symmetric: bool
    length: int
    turned: Mapping[str, str] | None = None
    stored: int = 1

    @property
    def axes(self) -> tuple[str, str]:
        return self.sides[0].axis, self.sides[1].axis

    @property
    def areas(self) -> int:
        """Parts of the state, which blocks compute for themselves."""
        a, b = (side.areas for side in self.sides)
        return a * b if self.turned is None else a * (a + 1) // 2

    @property
    def made(self) -> list[Side]:
        """The sides that have tables of their own."""
        return [s for s in self.sides if not (self.mirror and s is self.sides[1])]

    @property
    def plain(self) -> bool:
        """Whether no entry is that of a mirror image, too."""
        return not self.symmetric and self.turned is None

    def side_of(self, name: str) -> int | None:
        """The side a name that is kept or folded varies along; None for a cell."""
        for number, side in enumerate(self.sides):
            if name in [n for step in (*side.guesses, Loop(side.folds)) for n in _names(step)]:
                return number
        return None


def outers(program: Program, sizes: Mapping[str, int]) -> Iterable[Outer]:
    """Ways to divide a program whose states lie along rows; wide ones also in areas of some columns each. There is
    nothing to divide of a state, or of a stream, without elements."""
    if not all(sizes[a] for a in (*program.rows, *program.stream)):
        return
    last = {r.axes[-1] for r in program.results if r.axes}
    for pair in combinations(program.rows, 2):
        axes = pair[::-1] if pair[0] in last and pair[1] not in last else pair  # results lie along the second one
        try:
            found = outer(program, axes, sizes)
        except Undivided:
            continue
        yield found
        yield from (made for columns in AREAS if (made := in_areas(found, columns)).areas > 1)


def in_areas(found: Outer, columns: int) -> Outer:
    """The same in areas of at most so many columns along each axis, as wide as each other, in whole vectors. Sides of
    an area are no longer alike; of a symmetric state one of two areas is computed, and written twice.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> form = ra.derive_incremental(ra.parse("return s = sum[j](X[j,a] * Y[j,b])"))
    >>> program = lower(form, {"X": "float32", "Y": "float32"})
    >>> made = in_areas(outer(program, ("a", "b"), {"j": 9, "a": 500, "b": 100}), 128)
    >>> [(side.width, side.areas) for side in made.sides]
    [(128, 4), (100, 1)]
    """

    def narrowed(side: Side) -> Side:
        count = -(-side.whole // columns)
        width = -(-side.whole // (VECTOR * count)) * VECTOR if count > 1 else side.whole
        return replace(side, width=width)

    first, second = map(narrowed, found.sides)
    turned = found.same if found.symmetric else None
    return replace(found, sides=(first, second), same={}, mirror={}, symmetric=False, turned=turned)


def outer(program: Program, axes: tuple[str, str], sizes: Mapping[str, int]) -> Outer:
    """A program divided along two of its rows' axes.

    Raises: Undivided where a reduction reads another, or an element varies along both axes.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> form = ra.derive_incremental(ra.parse("return s = sum[j](X[j,a] * X[j,b])"))
    >>> program = lower(form, {"X": "float32", "X_j_b": "float32"})
    >>> found = outer(program, ("a", "b"), {"j": 100, "a": 8, "b": 8})
    >>> [len(side.values) for side in found.made], found.symmetric
    ([1], True)
    """
    return _Division(program, axes, sizes).outer()


class _Division:
    def __init__(self, program: Program, axes: tuple[str, str], sizes: Mapping[str, int]) -> None:
        self.program, self.axes, self.sizes = program, axes, sizes
        self.stream = frozenset(program.stream)
        whole = len(program.passes) == 1 and len(program.stream) == 1 and program.real == "float32"
        special = program.columns or program.places or program.lengths or program.inner or program.summed
        if not whole or special or program.keeps or program.passes[0].ordered:
            raise Undivided("a state of another kind")
        self.of: Pass = program.passes[0]
        self.values: tuple[dict[Node, None], ...] = ({}, {})

    def outer(self) -> Outer:
        guesses, folds, ends = self._steps()
        known = {n for s in guesses for n in _names(s)}
        if not _read(n for f in folds for n in f.bodies) <= known:
            raise Undivided("a reduction that reads another one")
        cells = [replace(f, bodies=(self._regrouped(f.bodies[0]),)) for f in folds if self.place(f.bodies[0]) == 2]
        if not cells:
            raise Undivided("no value along both axes")
        sides = tuple(self._side(i, guesses, folds) for i in range(2))
        read = _read(s.node for s in ends) | {f"{x.name}_b" for x in self.of.parts}
        kept = tuple(n for s in guesses for n in _names(s) if n in read)
        same, mirror = self._alike(sides, kept)
        symmetric = bool(mirror) and self._symmetric(cells)
        length = prod(self.sizes[a] for a in self.program.stream)
        return Outer((sides[0], sides[1]), tuple(cells), tuple(ends), kept, same, mirror, symmetric, length)

    def _symmetric(self, cells: Iterable[Fold]) -> bool:
        """Whether the axes may change places in all of these."""
        a, b = self.axes
        keys, turned = _Keys(self.of), ({a: "@1", b: "@2"}, {a: "@2", b: "@1"})
        return all(len({keys.node(f.bodies[0], at) for at in turned}) == 1 for f in cells)

    def place(self, node: Node) -> int:
        """0 or 1 for what varies along one of the axes, or neither; 2 for both."""
        along = [a in node.axes for a in self.axes]
        return 2 if all(along) else int(along[1])

    def _steps(self) -> tuple[list[Step], list[Fold], list[Let]]:
        """Steps that make anchors, reductions over all elements, and what follows from these."""
        sums, whole = means(self.of), self._read_by_others()
        guesses: list[Step] = []
        folds: list[Fold] = []
        ends: list[Let] = []
        known: set[str] = set()
        for step in self.of.lift:
            if isinstance(step, Loop):
                some = tuple(f for f in step.folds if f.names[0] in sums)
                every = tuple(f for f in step.folds if f.names[0] in whole - sums)
                folds += [f for f in step.folds if f.names[0] not in sums | whole]
                guesses += [Loop(own, own is some) for own in (some, every) if own]
                known |= {n for f in (*some, *every) for n in f.names}
            elif isinstance(step, Join):
                raise Undivided("a join of values")
            elif isinstance(step, First) or (read := _read([step.node]) - COUNTS) and read <= known:
                sampled = not sums.isdisjoint(_read([step.node]))
                node = substitute(step.node, {ALL: SOME}, raw=True) if sampled else step.node
                guesses.append(replace(step, node=node))
                known.add(step.name)
            else:
                ends.append(step)
        self._require_plain(folds, guesses)
        return guesses, folds, ends

    def _require_plain(self, folds: Iterable[Fold], guesses: Iterable[Step]) -> None:
        if any(not isinstance(f.op, Sum | Product | Extremum | Quantifier) or len(f.names) > 1 for f in folds):
            raise Undivided("a reduction to more than a number")
        if any(self.place(n) == 2 for s in guesses for n in step_nodes(s)):
            raise Undivided("an anchor along both axes")
        elements = [*(n for f in folds for n in f.bodies), *(n for s in guesses for n in step_nodes(s))]
        if any(n.op == "reduce" for n in walk(*elements)):
            raise Undivided("an element that is a reduction along an axis of its own")

    def _read_by_others(self) -> set[str]:
        """Reductions that others read, by way of anchors."""
        made: dict[str, set[str]] = {}
        found: set[str] = set()
        for step in self.of.lift:
            parts = step.folds if isinstance(step, Loop) else (step,)
            read = [_read(f.bodies if isinstance(f, Fold) else step_nodes(f)) for f in parts]
            below = [set().union(*(made.get(n, set()) for n in names)) for names in read]
            for f, names in zip(parts, below, strict=True):
                own = isinstance(f, Fold)
                found |= names if own else set()
                made |= {n: names | ({f.names[0]} if isinstance(f, Fold) else set()) for n in _names_of(f)}
        return found

    def _side(self, number: int, guesses: list[Step], folds: list[Fold]) -> Side:
        mine: list[Step] = []
        for s in guesses:
            if isinstance(s, Loop):
                some = tuple(f for f in s.folds if self.place(f.bodies[0]) == number)
                mine += [Loop(some, s.part)] if some else []
            elif self.place(step_nodes(s)[0]) == number:
                mine.append(s)
        axis = self.axes[number]
        own = tuple(f for f in folds if self.place(f.bodies[0]) == number)
        return Side(axis, self.sizes[axis], self.sizes[axis], tuple(mine), tuple(self.values[number]), own)

    def _regrouped(self, n: Node) -> Node:
        """A body over values of the two sides, which are noted."""
        if not n.axes & self.stream:
            if leaves(n, "state"):
                raise Undivided("an anchor apart from elements")
            return n
        if (number := self.place(n)) < 2:
            self.values[number][n] = None
            return n
        if n.op in ("tensor", "reduce"):
            raise Undivided("an element along both axes")
        if n.op not in GROUPED:
            return Node(n.op, tuple(map(self._regrouped, n.args)), n.attr)
        groups: dict[object, list[Node]] = {}
        for i, x in enumerate(n.args):  # what varies along no axis is apart, so that the sides may be alike
            alone = not x.axes & self.stream or self.place(x) == 2
            groups.setdefault(i if alone else x.axes & {*self.axes}, []).append(x)
        joined = [g[0] if len(g) == 1 else Node(n.op, tuple(g), n.attr) for g in groups.values()]
        return Node(n.op, tuple(map(self._regrouped, joined)), n.attr)

    def _alike(self, sides: tuple[Side, ...], kept: Iterable[str]) -> tuple[dict[str, str], dict[Node, Node]]:
        """What stands along the second axis as names and values of the first; nothing where one has no such."""
        a, b = self.axes
        if self.sizes[a] != self.sizes[b]:
            return {}, {}
        keys, at = _Keys(self.of), {a: "@", b: "@"}
        values = {keys.node(n, at): n for n in sides[0].values}
        first, second = ([n for s in (*side.guesses, Loop(side.folds)) for n in _names(s)] for side in sides)
        names = {keys.name(n, at): n for n in first}
        folded = {n for f in sides[1].folds for n in f.names} | {*kept}
        wanted = {n: keys.name(n, at) for n in second if n in folded}
        mirror = {n: keys.node(n, at) for n in sides[1].values}
        if not ({*wanted.values()} <= names.keys() and {*mirror.values()} <= values.keys()):
            return {}, {}
        return {n: names[k] for n, k in wanted.items()}, {n: values[k] for n, k in mirror.items()}


def _read(nodes: Iterable[Node]) -> set[str]:
    """The names of a state that nodes read."""
    return {x.attr.name for n in nodes for x in leaves(n, "state")}


def _names(step: Step) -> list[str]:
    return [n for f in (step.folds if isinstance(step, Loop) else (step,)) for n in _names_of(f)]


def _names_of(step: Step | Fold) -> list[str]:
    if isinstance(step, Fold | Join):
        return list(step.names)
    return [step.name] if isinstance(step, Let | First) else []


class _Keys:
    """Numbers of values: two are equal where the values are, once axes have the names of `at`."""

    def __init__(self, p: Pass) -> None:
        self.steps: dict[str, Step] = {n: s for s in p.lift if not isinstance(s, Loop) for n in _names(s)}
        self.folds = {n: f for s in p.lift if isinstance(s, Loop) for f in s.folds for n in f.names}
        self.numbers: dict[Any, int] = {}

    def _number(self, key: Any) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def name(self, name: str, at: Mapping[str, str]) -> int:
        if name in self.folds:
            f = self.folds[name]
            return self._number(("fold", repr(f.op), *(self.node(n, at) for n in f.bodies)))
        if name in self.steps:
            step = self.steps[name]
            return self._number((type(step).__name__, *(self.node(n, at) for n in step_nodes(step))))
        return self._number(("name", name))

    def node(self, root: Node, at: Mapping[str, str]) -> int:
        found: dict[Node, int] = {}
        for n in walk(root):
            below = [found[x] for x in n.args]
            if n.op == "tensor":
                d = n.attr
                own = d.array if d.array and not d.dimensions else d.name
                key: Any = ("tensor", own, tuple(at.get(x, x) for x in d.axes))
            elif n.op == "state":
                found[n] = self.name(n.attr.name, at)
                continue
            elif n.op in ("index", "size"):
                key = (n.op, at.get(n.attr, n.attr))
            else:
                key = (n.op, repr(n.attr), *(sorted(below) if n.op in COMMUTE else below))
            found[n] = self._number(key)
        return found[root]
