"""Columns as single values: a state that holds arrays becomes one that holds every entry under a name of its own.

``A[a]`` with three columns is then A at 0, at 1 and at 2, each a number in a register of every thread, and a sum over
``a`` of the state is written out. What is left is a program without arrays, which any schedule walks. Of an axis that
is too long a thread holds a tile of neighbouring entries, and an axis of tiles numbers rows in its place, so that what
is read of one element of the stream serves all entries of the tile (register blocking, as in a matrix product).

Numbers that later passes read of the lists of earlier ones (top-k), one for each entry of a list, are written out in
the same way (`lists`): entry 2 of a list is a number under a name of its own, and lists themselves stay lists.

Entries that are alike, whatever is streamed, are held once: of a covariance those below the diagonal, and the means
along its second axis (`redalg.kernels.lower.alike`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple, TypeVar

from redalg.errors import RedalgError
from redalg.graph.node import (
    ZERO,
    Node,
    Reduce,
    add,
    compare,
    const,
    extremum,
    logical,
    mul,
    rebuild,
    state,
    walk,
    where,
)
from redalg.graph.plan import Plan
from redalg.kernels.ir.axis_roles import Roles
from redalg.kernels.ir.program import First, Fold, Join, Let, Loop, Part, Pass, Place, Program, Result, Step

JOINS = {
    "sum": add,
    "prod": mul,
    "max": lambda *terms: extremum("maximum", *terms),
    "min": lambda *terms: extremum("minimum", *terms),
    "any": lambda *terms: logical("or", *terms),
    "all": lambda *terms: logical("and", *terms),
}
LISTED = 64  # entries of a list that later passes read, at most
Step_ = TypeVar("Step_", Let, First)
At = Mapping[str, int]  # column axis -> which entry of the tile


class Whole(ValueError):
    """What a program needs all entries of an axis together for."""


@dataclass(frozen=True)
class Tile:
    """How much of an axis of `length` entries a thread holds."""

    length: int
    held: int

    @property
    def whole(self) -> bool:
        return self.held >= self.length

    @property
    def count(self) -> int:
        return -(-self.length // self.held)


def tiles_axis(axis: str) -> str:
    """The axis that numbers the tiles of one."""
    return f"{axis} tiles"


def unrolled(program: Program, tiles: Mapping[str, Tile]) -> Program:
    """An equal program whose columns along these axes are single values.

    Raises: Whole where a tile of an axis is not enough, or where a reduction along one has no operation of two.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> form = ra.derive_incremental(ra.parse("return s = sum[j](X[j,a] * X[j,b])"))
    >>> program = lower(form, {"X": "float32", "X_j_b": "float32"}, across=("a", "b"))
    >>> [part.name for part in unrolled(program, {"a": Tile(2, 2), "b": Tile(2, 2)}).passes[0].parts]
    ['a0~b0~sum_X_X_j_b2', 'a0~b1~sum_X_X_j_b2', 'a1~b0~sum_X_X_j_b2', 'a1~b1~sum_X_X_j_b2']
    """
    made = _Unrolling(program, tiles)
    passes = tuple(made.of_pass(p) for p in program.passes)
    results = tuple(r for whole in program.results for r in made.result(whole))
    attained = {name for p in program.passes for x in p.parts if x.name in program.attained for name in made.named(x)}
    cut = tuple(tiles_axis(a) for a in made.order if not tiles[a].whole)
    return replace(
        program,
        rows=(*program.rows, *cut),
        columns=tuple(a for a in program.columns if a not in tiles),
        results=results,
        passes=passes,
        attained=frozenset(attained),
        places=made.places,
    )


def lists(plan: Plan, roles: Roles) -> dict[str, Tile]:
    """The axes of top-k lists along which a pass leaves values for later ones, each to be held whole.

    Raises: RedalgError for lists that are too long for that.
    """
    left = {a for p in plan.passes for _, n in p.exports for a in n.axes}
    found = {a: n for a, n in roles.lengths.items() if a in left}
    for axis, k in found.items():
        if k > LISTED:
            raise RedalgError(
                f"a list of {k} entries along {axis} that a later pass reads",
                "form.compile",
                f"kernels hold up to {LISTED} of them, each under a name of its own",
                'form.compile("numpy")',
            )
    return {a: Tile(k, k) for a, k in found.items()}


def written_out(program: Program, tiles: Mapping[str, Tile]) -> Program:
    """`unrolled`, of the axes of `lists`. Raises: RedalgError for a reduction along one without an operation of two."""
    try:
        return unrolled(program, tiles)
    except Whole as why:
        raise RedalgError(
            f"{why} of a list",
            "form.compile",
            "kernels reduce what later passes read of a list by sums, products, extrema, any and all",
            'form.compile("numpy")',
        ) from why


def cut_sizes(tiles: Mapping[str, Tile]) -> dict[str, int]:
    """The lengths of the axes that number tiles."""
    return {tiles_axis(a): tile.count for a, tile in tiles.items() if not tile.whole}


class _Key(NamedTuple):
    node: Node
    at: tuple[tuple[str, int], ...]


class _Unrolling:
    def __init__(self, program: Program, tiles: Mapping[str, Tile]) -> None:
        self.program, self.tiles = program, tiles
        self.order = [a for a in program.columns if a in tiles]
        self.axes = {o.name: len(o.axes) for o in program.operands}
        self.lists = {x.name + end for p in program.passes for x in p.parts if x.top for end in ("", "_b", "_new")}
        self.places: dict[str, Place] = {}
        self.made: dict[_Key, Node] = {}

    # --- which entries -----------------------------------------------------------------------------------------------

    def entries(self, axes: Iterable[str]) -> Iterator[dict[str, int]]:
        """Every entry of a tile along those of the axes that are unrolled."""
        own = [a for a in self.order if a in axes]
        for numbers in product(*(range(self.tiles[a].held) for a in own)):
            yield dict(zip(own, numbers, strict=True))

    def rest(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(a for a in axes if a not in self.order)

    def name(self, name: str, at: At) -> str:
        return "".join(f"{a}{at[a]}~" for a in self.order if a in at) + name

    def named(self, part: Part) -> list[str]:
        return [self.name(part.name, at) for at in self.entries(part.axes)]

    def place(self, axis: str, number: int) -> str:
        """The index of an entry as an axis that leaves are read along."""
        tile = self.tiles[axis]
        name = f"@{number}" if tile.whole else f"{axis}@{number}"
        exact = tile.length % tile.held == 0
        self.places[name] = Place(number) if tile.whole else Place(number, tiles_axis(axis), tile.held, axis, exact)
        return name

    # --- nodes -------------------------------------------------------------------------------------------------------

    def node(self, root: Node, at: At) -> Node:
        key = _Key(root, tuple(sorted(at.items())))
        if key not in self.made:
            new: dict[Node, Node] = {}
            for n in walk(root):
                new[n] = self._one(n, tuple(new[a] for a in n.args), at)
            self.made[key] = new[root]
        return self.made[key]

    def _one(self, n: Node, args: tuple[Node, ...], at: At) -> Node:
        if n.op in ("tensor", "state", "index"):
            return self._leaf(n, at)
        if n.op == "reduce" and any(a in self.tiles for a in n.attr.axes):
            return self._written_out(n, at)
        if args == n.args:
            return n
        if any(a.op == "const" and b.op != "const" for a, b in zip(args, n.args, strict=True)):
            return rebuild(n, args)
        if n.op == "mul" or len(args) == 2 and n.op in ("add", "eq", "ne"):  # alike, whichever entry comes first
            args = tuple(sorted(args, key=lambda a: (a.op != "const", a.order, a.digest)))
        return Node(n.op, args, n.attr)

    def _leaf(self, n: Node, at: At) -> Node:
        if n.op == "index":
            return self._index(n.attr, at) if n.attr in at else n
        d = n.attr
        if n.op == "state":
            own = {a: at[a] for a in self.order if a in d.axes and a in at}
            entry = d.axes[-1] if d.name in self.lists else ""  # what stays a list is read at its place
            if entry in own:
                last = self.place(entry, own.pop(entry))
                d = replace(d, axes=(*d.axes[:-1], last))
            cut = (tiles_axis(a) for a in own if not self.tiles[a].whole)
            return state(self.name(d.name, own), (*(a for a in d.axes if a not in own), *cut), d.domain)
        return self._operand(n, at)

    def _operand(self, n: Node, at: At) -> Node:
        """A tensor at an entry; two readings that lie alike are one operand then."""
        d = n.attr
        axes = tuple(self.place(a, at[a]) if a in at else a for a in d.axes)
        if axes == d.axes:
            return n
        if not d.array or d.dimensions or self.axes.get(d.array) != len(d.axes):  # windows of an array do not
            return Node("tensor", (), replace(d, axes=axes))
        return Node("tensor", (), replace(d, name=d.array, axes=axes, array=""))

    def _index(self, axis: str, at: At) -> Node:
        tile = self.tiles[axis]
        first = ZERO if tile.whole else mul(const(tile.held), Node("index", (), tiles_axis(axis)))
        return add(first, const(at[axis]))

    def _written_out(self, n: Node, at: At) -> Node:
        r = n.attr
        own = [a for a in r.axes if a in self.tiles]
        if r.kind not in JOINS or not all(self.tiles[a].whole for a in own):
            raise Whole(f"{r.kind} over {', '.join(own)}")
        rest = tuple(a for a in r.axes if a not in own)
        terms = []
        for numbers in product(*(range(self.tiles[a].held) for a in own)):
            term = self.node(n.args[0], {**at, **dict(zip(own, numbers, strict=True))})
            terms.append(Node("reduce", (term,), Reduce(r.kind, rest, r.extra)) if rest else term)
        return JOINS[r.kind](*terms)

    # --- programs ----------------------------------------------------------------------------------------------------

    def of_pass(self, p: Pass) -> Pass:
        lift, combine, update = (
            tuple(made for step in steps for made in self.step(step)) for steps in (p.lift, p.combine, p.update)
        )
        parts = tuple(
            replace(x, name=self.name(x.name, at), axes=self.rest(x.axes))
            for x in p.parts
            for at in self.entries(x.axes)
        )
        exports = tuple(made for let in p.exports for made in self.let(let))
        return replace(p, parts=parts, lift=lift, combine=combine, update=update, exports=exports)

    def let(self, step: Step_) -> Iterator[Step_]:
        for at in self.entries(step.node.axes):
            yield replace(step, name=self.name(step.name, at), node=self.node(step.node, at))

    def step(self, step: Step) -> Iterator[Step]:
        if isinstance(step, Let):
            yield from self.let(step)
        elif isinstance(step, First):
            yield from self.let(step)
        elif isinstance(step, Loop):
            yield Loop(tuple(f for fold in step.folds for f in self.folds(fold)), step.part)
        else:
            for at in self.entries(step.axes):
                a, b = (tuple(self.node(n, at) for n in side) for side in (step.a, step.b))
                names = tuple(self.name(n, at) for n in step.names)
                yield Join(names, step.op, a, b, self.rest(step.axes))

    def folds(self, fold: Fold) -> Iterator[Fold]:
        for at in self.entries(fold.axes):
            names = tuple(self.name(n, at) for n in fold.names)
            yield Fold(names, fold.op, tuple(self.node(b, at) for b in fold.bodies), self.rest(fold.axes))

    def result(self, r: Result) -> Iterator[Result]:
        if any(a in self.program.lengths for a in r.axes if a in self.order):
            yield self.listed(r)
            return
        for at in self.entries(r.axes):
            axes = tuple(self.place(a, at[a]) if a in at else a for a in r.axes)
            masked = None if r.masked is None else self.node(r.masked, at)
            yield replace(r, axes=axes, node=self.node(r.node, at), masked=masked)

    def listed(self, r: Result) -> Result:
        """A result along the axis of a list, which is written entry by entry: the value of the entry it is at."""

        def chosen(node: Node) -> Node:
            *rest, last = ((at, self.node(node, at)) for at in self.entries(r.axes))
            value = last[1]
            for at, one in reversed(rest):
                here = [compare("eq", Node("index", (), a), const(number)) for a, number in at.items()]
                value = where(logical("and", *here), one, value)
            return value

        return replace(r, node=chosen(r.node), masked=None if r.masked is None else chosen(r.masked))
