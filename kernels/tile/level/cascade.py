"""Online softmax, and every cascade over scores that are a contraction, as tile programs.

What a form's plan says of a block (its maximum, how sums move to a new one, what is folded) are operations here, in
the plan's order: `Mask` (a score function and its masks), `Reduce` (along the stream, weights in the scores' place),
`Rows` (what every row computes of these), `Scale` (the sum with columns moves to the new anchor). The first block is
lifted, the others are absorbed, so that no state needs a value before there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from redalg.graph.node import Node, state, substitute, walk
from redalg.kernels.ir.program import Fold, Join, Let, Loop, Step, step_nodes
from redalg.kernels.ir.tensor_cores import CHUNK
from redalg.kernels.tile.contractions import join_of, operand_of, share_of
from redalg.kernels.tile.level.program import (
    Clear,
    Convert,
    Exchange,
    For,
    Home,
    Load,
    Meet,
    Mma,
    Op,
    Own,
    Store,
    Tile,
    TileProgram,
    inner,
)
from redalg.kernels.tile.match import Class, weight_of
from redalg.kernels.tile.mma_sync_plan import MmaPlan
from redalg.kernels.tile.plan import TensorPlan, WidePlan, chunks, positional
from redalg.kernels.tile.scores import deferred
from redalg.kernels.tile.top_k import Listed
from redalg.text.nodes import short


@dataclass(frozen=True)
class Mask(Op):
    """Scores become what is folded: ``tile <- node`` where an element is there and its condition holds, `missing`
    elsewhere. `edge`: whether the block may reach beyond the end of the stream."""

    tile: str
    node: Node
    condition: Node | None
    missing: Node
    edge: bool

    def lines(self) -> Iterator[str]:
        where = [] if self.condition is None else [f"where {short(self.condition)}"]
        where += ["within the stream"] if self.edge else []
        other = f" {' and '.join(where)}, else {short(self.missing)}" if where else ""
        yield f"{self.tile} <- map({short(self.node)}){other}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.tile,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.tile,)


@dataclass(frozen=True)
class Reduce(Op):
    """Folds of a tile along its rows, in a thread, then among the threads of a row; weights take the tile's place.

    ``bodies``: what each fold takes of an element, over `tile`; ``exact``: folds that are told which elements there
    are; ``weights``: the tile of weights.
    """

    tile: str
    loop: Loop
    bodies: tuple[Node, ...]
    exact: tuple[str, ...]
    weights: str
    first: bool

    def lines(self) -> Iterator[str]:
        for f, body in zip(self.loop.folds, self.bodies, strict=True):
            if f.axes:
                yield f"{self.weights} <- map({short(body)})"
            else:
                only = "; of elements there are" if f.names[0] in self.exact else ""
                yield f"{', '.join(_left(f))} <- {f.kind} over {self.tile} of {short(body)}{only}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.tile, *_states(self.bodies, {self.tile}))

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(name for f in self.loop.folds for name in ((self.weights,) if f.axes else _left(f)))

    @property
    def replaces(self) -> tuple[str, ...]:
        return (self.tile,) if any(f.axes for f in self.loop.folds) else ()


def _left(f: Fold) -> tuple[str, ...]:
    """What a fold leaves: of the block, or a list that holds the elements of all blocks so far."""
    return tuple(name.removesuffix("_b") for name in f.names) if isinstance(f.op, Listed) else f.names


@dataclass(frozen=True)
class Rows(Op):
    """What every row computes of its statistics; then `kept` of them, whose names end in `end`, are its state."""

    steps: tuple[Let | Join, ...]
    kept: tuple[str, ...]
    end: str

    def lines(self) -> Iterator[str]:
        for step in self.steps:
            if isinstance(step, Let):
                yield f"{step.name} <- {short(step.node)}"
            elif not step.axes:
                a, b = (", ".join(map(short, side)) for side in (step.a, step.b))
                yield f"{', '.join(step.names)} <- {step.kind}({a}; {b})"
        if self.kept:
            yield f"{', '.join(self.kept)} <- {', '.join(name + self.end for name in self.kept)}"

    @property
    def reads(self) -> tuple[str, ...]:
        own = {name for s in self.steps for name in ((s.name,) if isinstance(s, Let) else s.names)}
        nodes = [n for s in self.steps if isinstance(s, Let) or not s.axes for n in step_nodes(s)]
        before = (name + self.end for name in self.kept if name + self.end not in own)
        return tuple(dict.fromkeys((*_states(nodes, own), *before)))

    @property
    def writes(self) -> tuple[str, ...]:
        rows = (n for s in self.steps for n in ((s.name,) if isinstance(s, Let) else () if s.axes else s.names))
        return (*rows, *self.kept)


@dataclass(frozen=True)
class Scale(Op):
    """``tile <- tile * by``: sums move to a new anchor, each row by its own factor."""

    tile: str
    by: Node

    def lines(self) -> Iterator[str]:
        yield f"{self.tile} <- {self.tile} * {short(self.by)}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.tile, *_states([self.by]))

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.tile,)


@dataclass(frozen=True)
class PingPong(Op):
    """Warpgroups issue products in turns: this one's begins, or it is the next one's."""

    begins: bool

    def lines(self) -> Iterator[str]:
        yield "wait for the turn to multiply" if self.begins else "the next warpgroup's turn"


@dataclass(frozen=True)
class Names:
    """Tiles by what they are for: operands, scores, weights, and the sum with columns ("" where there is none)."""

    left: str
    multiplied: str  # the left operand as products read it
    right: str
    values: str
    products: str  # what products are added to, chunk by chunk
    scores: str
    weights: str
    sums: str

    @property
    def fragments(self) -> str:
        """Weights as a left operand."""
        return f"{self.weights}'"


def _states(nodes: Iterable[Node], but: Collection[str] = ()) -> tuple[str, ...]:
    found = dict.fromkeys(n.attr.name for n in walk(*nodes) if n.op == "state")
    return tuple(name for name in found if name not in but)


# --- derivation ------------------------------------------------------------------------------------------------------


def names_of(made: Class, plan: TensorPlan) -> Names:
    left, right = ("+".join(getattr(p, side).attr.name for p in made.products) for side in ("left", "right"))
    taken = {o.name for o in made.program.operands} | {p.name for p in made.walk.parts} | {left, right}

    def fresh(name: str) -> str:
        while name in taken:
            name += "_"
        return name

    values = "" if made.values is None else made.values.attr.name
    if _common(plan):
        values = right
    elif values and values in (left, right):
        values = fresh(values)
    sums = next((p.name for p in made.walk.parts if p.axes), "")
    kept = isinstance(plan, MmaPlan) or not plan.in_registers
    multiplied = left if kept else fresh(f"{left}'")
    scores = fresh("S")
    products = fresh(f"{scores}'") if isinstance(plan, MmaPlan) and plan.long else scores
    return Names(left, multiplied, right, values, products, scores, fresh("P"), sums)


def _common(plan: TensorPlan) -> bool:
    return isinstance(plan, WidePlan) and plan.common


def derived(made: Class, plan: TensorPlan, steps: Sequence[Step]) -> TileProgram:
    """The tile program in plain order, with homes and lengths. `steps`: what absorbs a block."""
    names = names_of(made, plan)
    first, other = (_block(made, plan, names, s, k) for k, s in enumerate((made.walk.lift, steps)))
    stays: tuple[Op, ...] = () if plan.long else tuple(Load(names.left, p.left) for p in made.products)
    begun: tuple[Op, ...] = (Clear(names.sums),) if names.sums else ()
    begun = (Convert(names.multiplied, names.left), *begun) if names.multiplied != names.left else begun
    skips = "" if made.condition is None or not positional(made) else "where the condition holds nowhere"
    loops = (For(made.stream, first, skips, "first"), For(made.stream, other, skips, "other"))
    store: tuple[Op, ...] = tuple(Store(r.name, _counted(made, r.node)) for r in made.program.results)
    if isinstance(plan, WidePlan):
        stays = (Own(names.right, parts(names.right)), Own(names.fragments, parts(names.fragments)), *stays)
        late = tuple(sorted(deferred(made.walk)))
        store = (Exchange(late, ("sum",) * len(late)), *store) if late else store
    body = (*stays, *begun, *loops, *store)
    mma = isinstance(plan, MmaPlan)
    how: dict[str, object] = {"instruction": "mma.sync"} if mma else {"consumers": plan.consumers}
    facts = how | {"registers for tiles": plan.registers, "shared bytes": plan.shared}
    tiles = _tiles(made, plan, names, body)
    axes = made.row, made.stream, made.batch
    results = tuple(r.name for r in made.program.results)
    return TileProgram(made.program.title, *axes, tiles, {"all": body}, made.condition, facts, results=results)


def _counted(made: Class, node: Node) -> Node:
    """A result's node with the number of elements as the length of the stream."""
    counts = [n for n in walk(node) if n.op == "state" and n.attr.name == "n"]
    return substitute(node, dict.fromkeys(counts, Node("size", (), made.stream)), raw=True)


def _block(made: Class, plan: TensorPlan, names: Names, steps: Sequence[Step], number: int) -> tuple[Op, ...]:
    """What is done with a block: the first one, number 0, becomes the state, another one is absorbed."""
    leaf = state(names.scores, (made.row, made.stream))
    first = number == 0
    body: list[Op] = [*_multiplied(made, plan, names)]
    if names.products != names.scores:
        body.append(Convert(names.scores, names.products))
    shown = substitute(made.shown, {made.scores: leaf}, raw=True)
    body.append(Mask(names.scores, shown, made.condition, made.missing, first))
    for op in _folded(made, steps, first):
        if isinstance(op, Loop):
            bodies = tuple(substitute(_body(made, f), {made.value: leaf}, raw=True) for f in op.folds)
            exact = tuple(sorted(made.guarded)) if first else ()
            body.append(Reduce(names.scores, op, bodies, exact, names.weights, first))
            body += _exchanged(made, op) if isinstance(plan, WidePlan) else ()
        else:
            body.append(op)
    if not names.sums:
        return tuple(body)
    share = None if first else share_of(join_of(steps))
    body += [Scale(names.sums, share)] if share is not None else []
    body += [Convert(names.fragments, names.weights)]
    pairs = [(names.fragments, names.values)]
    if isinstance(plan, WidePlan):
        body.append(Meet(names.fragments))
        pairs = [*zip(parts(names.fragments), parts(names.values), strict=True)]
    return (*body, *(Mma(names.sums, left, right, made.stream, False) for left, right in pairs))


def parts(tile: str) -> tuple[str, str]:
    """The parts of a tile, one for each of two consumers."""
    return f"{tile}.0", f"{tile}.1"


def _exchanged(made: Class, loop: Loop) -> Iterator[Exchange]:
    """What the consumers of a row have to tell each other of a block."""
    found = [f for f in loop.folds if not f.axes and f.names[0].removesuffix("_b") not in deferred(made.walk)]
    if found:
        yield Exchange(tuple(f.names[0] for f in found), tuple(f.kind for f in found))


def _body(made: Class, f: Fold) -> Node:
    return weight_of(f, made.values) if f.axes and made.values is not None else f.bodies[0]


def _multiplied(made: Class, plan: TensorPlan, names: Names) -> Iterator[Op]:
    """Scores of a block, of terms in chunks where both operands are streamed."""
    right = tuple(Load(names.right, p.right) for p in made.products)
    terms = "+".join(p.terms for p in made.products)
    if isinstance(plan, WidePlan):
        for own, values in zip(parts(names.right), parts(names.values), strict=True):
            yield from (replace(x, tile=own) for x in right)
            if not plan.common and made.values is not None:
                yield Load(values, made.values)
        yield from _in_boxes(Mma(names.scores, names.multiplied, names.right, terms, True), plan)
        return
    if not plan.long:
        yield from right
        if names.values and names.values != names.right and made.values is not None:
            yield Load(names.values, made.values)
        yield Mma(names.scores, names.multiplied, names.right, terms, True)
        return
    left = tuple(Load(names.left, p.left) for p in made.products)
    yield from _in_boxes(Mma(names.products, names.left, names.right, terms, True), plan, (*left, *right))


def _in_boxes(product: Mma, plan: TensorPlan, loads: tuple[Load, ...] = ()) -> Iterator[For]:
    """A product of 64 terms at a time."""
    yield For(product.over, (*loads, product), "", "first")
    if plan.terms > CHUNK:
        yield For(product.over, (*loads, replace(product, fresh=False)), "", "other")


def _folded(made: Class, steps: Sequence[Step], first: bool) -> Iterator[Loop | Rows]:
    """The steps of a block: rows take all they can before the next fold, so that what one waits for, another uses."""
    waiting: list[Let | Join] = []
    for step in steps:
        if isinstance(step, Loop):
            yield from [Rows(tuple(waiting), (), "")] if waiting else []
            waiting = []
            yield step
        elif _of_rows(step):
            waiting.append(step)
    end = "_b" if first else "_new"
    new = {name for s in steps if not isinstance(s, Let) for name in _new(s)}
    kept = tuple(p.name for p in made.walk.parts if not p.axes and p.name + end in new)
    if waiting or kept:
        yield Rows(tuple(waiting), kept, end)


def _of_rows(step: Step) -> TypeGuard[Let | Join]:
    """Whether a step computes numbers of rows; lists are kept by folds."""
    return not isinstance(step.op, Listed) if isinstance(step, Join) else isinstance(step, Let) and step.name != "n_new"


def _new(step: Step) -> Iterator[str]:
    """Parts of the state, by their new names."""
    if isinstance(step, Loop):
        yield from (f.names[0] for f in step.folds if not isinstance(f.op, Listed))
    elif isinstance(step, Join) and not isinstance(step.op, Listed):
        yield step.names[0]


def _tiles(made: Class, plan: TensorPlan, names: Names, body: tuple[Op, ...]) -> dict[str, Tile]:
    """Tiles with homes: operands, scores and what takes their place, the sum with columns, and rows' numbers."""
    terms = "+".join(p.terms for p in made.products)
    count = CHUNK if plan.long else plan.terms
    staged = plan.stages
    kept = Home.LEFT if isinstance(plan, MmaPlan) and plan.in_registers else Home.SHARED
    scores = (made.row, made.stream), (plan.rows, plan.columns)
    stored = [operand_of(made.program, leaf).dtype for leaf in (made.left, made.right)]
    streamed = staged if plan.long else 1
    tiles = {
        names.left: Tile(names.left, (made.row, terms), stored[0], kept, (plan.rows, count), streamed),
        names.right: Tile(names.right, (made.stream, terms), stored[1], Home.SHARED, (plan.columns, count), staged),
        names.scores: Tile(names.scores, scores[0], "float32", Home.ACCUMULATOR, scores[1]),
    }
    tiles[names.products] = replace(tiles[names.scores], name=names.products)
    if names.multiplied != names.left:
        tiles[names.multiplied] = replace(tiles[names.left], name=names.multiplied, home=Home.LEFT)
    if made.column is not None:
        tiles = _weighed(made, plan, names, tiles, staged)
    if isinstance(plan, WidePlan):
        tiles = _parted(plan, names, tiles)
    rows = [w for op in inner(body) if isinstance(op, Reduce | Rows) for w in op.writes if w not in tiles]
    return tiles | {w: Tile(w, (made.row,), "float32", Home.ROW, (plan.rows,)) for w in dict.fromkeys(rows)}


def _weighed(made: Class, plan: TensorPlan, names: Names, tiles: dict[str, Tile], staged: int) -> dict[str, Tile]:
    """Tiles with those of the sum with columns: values, weights, and the sum."""
    assert made.column is not None
    wide, rows = plan.value_columns, (made.row, made.stream)
    values = Tile(names.values, (made.stream, made.column), made.stored[2], Home.SHARED, (plan.columns, wide), staged)
    left = Home.SHARED if isinstance(plan, WidePlan) else Home.LEFT
    return (
        {names.values: values}
        | tiles
        | {
            names.weights: replace(tiles[names.scores], name=names.weights),
            names.fragments: Tile(names.fragments, rows, made.dtype, left, (plan.rows, plan.columns)),
            names.sums: Tile(
                names.sums, (made.row, made.column), "float32", Home.ACCUMULATOR, (plan.rows, plan.own_columns)
            ),
        }
    )


def _parted(plan: WidePlan, names: Names, tiles: dict[str, Tile]) -> dict[str, Tile]:
    """Tiles of which each consumer has a part; the right operand of scores arrives box by box."""
    tiles[names.right] = replace(tiles[names.right], boxes=chunks(plan.terms))
    shared = dict.fromkeys((names.right, names.values, names.fragments))
    made = {own: replace(tiles[t], name=own, part=k) for t in shared for k, own in enumerate(parts(t))}
    return {n: t for n, t in tiles.items() if n != names.values or plan.common} | made
