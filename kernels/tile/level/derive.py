"""From a program to a tile program, by its structure: which contractions, which maps, which sums over which axis.

Nothing here knows a name of a spec. A program is taken if its state is sums with a column axis over one stream,

    part[row, column] = Σ_stream weight(S1, S2, …, positions, row values, stream values) · V[stream, column],

where every S is a contraction ``Σ_terms A[row, terms] · B[stream, terms]`` of two tensors. Reductions of one side alone
(attention's Σ_e O·dO) are values of a row or of the stream: kernels before this one compute them once. Factors that do
not vary along the stream leave the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from redalg.graph.node import FALSE, NEG_INF, TRUE, ZERO, Node, fresh, mul, rename_axes, state, substitute, tensor, walk
from redalg.graph.operators import Sum
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Join, Let, Loop, Operand, Program, Result
from redalg.kernels.tile.contractions import TYPES, Outside, factored
from redalg.kernels.tile.level.program import Clear, Convert, For, Load, Map, Mma, Op, Store, Tile, TileProgram
from redalg.kernels.tile.limits import at

LONGEST = 256  # of an axis that is contracted, or of columns


@dataclass(frozen=True)
class Box:
    """A tensor that tiles are loaded of: its leaf, its axes in the tile with the contiguous one last."""

    name: str
    leaf: Node
    axes: tuple[str, str]
    streamed: bool


@dataclass(frozen=True)
class Product:
    """``tile (+)= left · right`` over an axis."""

    tile: str
    left: str
    right: str
    over: str


@dataclass(frozen=True)
class Parts:
    """What a program consists of. ``scores`` and ``sums``: its products, before and after the maps; ``weights``: what
    elements become, by the tile that holds it; ``firsts``: values that kernels before this one compute; ``part``: the
    state by its accumulator; ``condition``: outside of which all weights are 0."""

    program: Program
    row: str
    stream: str
    batch: tuple[str, ...]
    boxes: Mapping[str, Box]
    scores: tuple[Product, ...]
    weights: Mapping[str, Node]
    sums: tuple[Product, ...]
    part: Mapping[str, tuple[str, str]]
    results: tuple[Result, ...]
    firsts: Mapping[str, Node]
    condition: Node | None
    dtype: str


def taken_apart(program: Program, sizes: Mapping[str, int], views: Mapping[str, View]) -> Parts:
    """Raises: Outside, with what stands against it."""
    bodies = {name: factored(body) for name, body in _sums(program).items()}
    stream = program.stream[0]
    program, bodies, firsts = _apart(program, bodies, stream)
    contractions = [n for n in walk(*bodies.values()) if n.op == "reduce"]
    if not contractions:
        raise Outside("an element holds no contraction")
    row = _row(program, contractions, bodies, stream, sizes)
    names = _Boxes(program, row, stream, views)
    scores, leaves = [], {}
    for number, node in enumerate(contractions):
        left, right, terms = _factors(node, row, stream)
        name = f"S{number}"
        scores.append(Product(name, names(left, terms, False), names(right, terms, True), terms))
        leaves[node] = state(name, (row, stream))
    weights: dict[str, Node] = {}
    sums, part, outside = [], {}, {}
    for number, (slot, body) in enumerate(bodies.items()):
        column = next(p.axes[0] for p in program.passes[0].parts if p.name == slot)
        leaf = _column_leaf(body, column, stream, row)
        weight, rest = _still(_without(body, leaf), stream)
        weight = substitute(weight, dict(leaves), raw=True)
        if not {row, stream} <= weight.axes:
            raise Outside("a weight does not vary along rows and the stream")
        held = next((w for w, node in weights.items() if node is weight), f"W{len(weights)}")
        weights[held] = weight
        name = f"A{number}"
        sums.append(Product(name, held, names(leaf, column, True), stream))
        part[name] = slot, column
        outside[slot] = rest
    weights = _grouped(weights)
    return Parts(
        program,
        row,
        stream,
        tuple(a for a in program.rows if a != row),
        names.found,
        tuple(scores),
        weights,
        tuple(sums),
        part,
        _results(program, part, outside, row),
        firsts,
        _condition(list(weights.values())),
        names.dtype,
    )


def derived(parts: Parts) -> TileProgram:
    """The tile program, before anything is decided: what is loaded, multiplied, mapped and stored, in plain order."""
    p = parts
    tiles: dict[str, Tile] = {b.name: Tile(b.name, b.axes, p.dtype) for b in p.boxes.values()}
    for s in p.scores:
        tiles[s.tile] = Tile(s.tile, (p.row, p.stream), "float32")
    for name in p.weights:
        tiles[name] = Tile(name, (p.row, p.stream), "float32")
        tiles[f"{name}'"] = Tile(f"{name}'", (p.row, p.stream), p.dtype)
    for s in p.sums:
        tiles[s.tile] = Tile(s.tile, (p.row, p.part[s.tile][1]), "float32")
    body: list[Op] = [Load(b.name, b.leaf) for b in p.boxes.values() if b.streamed]
    body += [Mma(s.tile, s.left, s.right, s.over, True) for s in p.scores]
    body += [Map(tuple(p.weights.items()))]
    body += [Convert(f"{name}'", name) for name in p.weights]
    body += [Mma(s.tile, f"{s.left}'", s.right, s.over, False) for s in p.sums]
    whole = (
        *(Load(b.name, b.leaf) for b in p.boxes.values() if not b.streamed),
        *(Clear(s.tile) for s in p.sums),
        For(p.stream, tuple(body)),
        *(Store(r.name, r.node) for r in p.results),
    )
    results = tuple(r.name for r in p.results)
    return TileProgram(p.program.title, p.row, p.stream, p.batch, tiles, {"all": whole}, p.condition, results=results)


# --- sums of the state -----------------------------------------------------------------------------------------------


def _sums(program: Program) -> dict[str, Node]:
    """Part -> what it adds up for every element. Raises: Outside for any other state."""
    for bars, why in BARS:
        if bars(program):
            raise Outside(why)
    walked = program.passes[0]
    found: dict[str, Node] = {}
    for step in walked.lift:
        if isinstance(step, Loop):
            found |= _folded(step)
        elif not (isinstance(step, Let) and step.name == "n_new"):
            raise Outside("a sum is moved before it is added to")
    if {p.name for p in walked.parts} != set(found):
        raise Outside("a part of its state is no sum")
    if any(n.op == "state" for n in walk(*found.values())):
        raise Outside("an element reads the state")
    return found


def _folded(loop: Loop) -> dict[str, Node]:
    found = {}
    for f in loop.folds:
        if loop.part or not isinstance(f.op, Sum) or len(f.axes) != 1:
            raise Outside(f"it folds by {f.kind}")
        found[f.names[0].removesuffix("_b")] = f.bodies[0]
    return found


def _moves(program: Program) -> bool:
    """Whether a sum is more than added to another one when states are combined."""
    joins = [s for s in program.passes[0].combine if isinstance(s, Join)]
    return any(not isinstance(j.op, Sum) or {j.a[0].op, j.b[0].op} != {"state"} for j in joins)


def _is_other(program: Program) -> bool:
    return any(len(p.axes) != 1 or p.kind != "f" or p.top is not None for p in program.passes[0].parts)


BARS: tuple[tuple[Callable[[Program], bool], str], ...] = (
    (lambda p: len(p.passes) != 1 or len(p.stream) != 1, "it takes several passes, or its stream has several axes"),
    (lambda p: p.real != "float32" or p.keeps, "it accumulates in float64, or a result keeps the stream's axis"),
    (_is_other, "its state is not sums with one column axis"),
    (_moves, "a sum moves to another anchor"),
)


def _apart(
    program: Program, bodies: Mapping[str, Node], stream: str
) -> tuple[Program, dict[str, Node], dict[str, Node]]:
    """Reductions that vary along one side alone become tensors of their own."""
    taken = {o.name for o in program.operands}
    firsts: dict[str, Node] = {}
    mapping: dict[Node, Node] = {}
    operands = list(program.operands)
    for node in [n for n in walk(*bodies.values()) if n.op == "reduce"]:
        streamed = [a for n in walk(*node.args) if n.op == "tensor" for a in [stream in n.axes]]
        if any(streamed) and not all(streamed):
            continue
        name = fresh(f"value{len(firsts) + 1}", taken)
        axes = tuple(a for a in (*program.rows, stream) if a in node.axes)
        if set(axes) != node.axes:
            raise Outside("a reduction inside an element varies along columns")
        firsts[name] = node
        mapping[node] = tensor(name, axes)
        operands.append(Operand(name, axes, "float32"))
    found = {n: substitute(b, dict(mapping), raw=True) for n, b in bodies.items()}
    return replace(program, operands=tuple(operands)), found, firsts


def _row(
    program: Program, contractions: Sequence[Node], bodies: Mapping[str, Node], stream: str, sizes: Mapping[str, int]
) -> str:
    """The axis that numbers rows of a tile: of every left operand, and of nothing that is loaded along the stream."""
    taken: set[str] = set()
    lefts = []
    for node in contractions:
        factors = node.args[0].args if node.args[0].op == "mul" else ()
        for f in factors:
            if stream in f.axes:
                taken |= f.axes
            else:
                lefts.append(f.axes)
    columns = set(program.columns)
    for n in walk(*bodies.values()):
        if n.op == "tensor" and n.axes & columns:
            taken |= n.axes
    found = [a for a in program.rows if a not in taken and all(a in axes for axes in lefts)]
    if not found or not lefts:
        raise Outside("no axis numbers rows that share what is loaded along the stream")
    return max(found, key=lambda a: sizes.get(a, 0))


def _factors(node: Node, row: str, stream: str) -> tuple[Node, Node, str]:
    """The left leaf, the right one, and the contracted axis. Raises: Outside."""
    product = node.args[0]
    plain = node.attr.kind == "sum" and len(node.attr.axes) == 1 and product.op == "mul" and len(product.args) == 2
    if not plain or any(f.op != "tensor" for f in product.args):
        raise Outside("a contraction is not one of two tensors")
    terms = node.attr.axes[0]
    left = next((f for f in product.args if stream not in f.axes), None)
    right = next((f for f in product.args if stream in f.axes), None)
    if left is None or right is None or row not in left.axes or not all(terms in f.axes for f in product.args):
        raise Outside("a contraction does not join rows and the stream")
    return left, right, terms


def _column_leaf(body: Node, column: str, stream: str, row: str) -> Node:
    found = [n for n in walk(body) if n.op == "tensor" and column in n.axes]
    if len(found) != 1 or stream not in found[0].axes or row in found[0].axes:
        raise Outside("what has columns is not a sum of weights times one tensor")
    return found[0]


def _without(body: Node, leaf: Node) -> Node:
    """What the leaf is multiplied by. Raises: Outside where the body is not linear in it."""
    if body is leaf:
        return mul()
    if body.op == "mul":
        own = [f for f in body.args if leaf in set(walk(f))]
        if len(own) == 1:
            rest = tuple(f for f in body.args if f is not own[0])
            return _product((*rest, *_split(_without(own[0], leaf))))
    if body.op == "where" and leaf not in set(walk(body.args[0])):
        condition, then, other = body.args
        if other is ZERO:
            return Node("where", (condition, _without(then, leaf), ZERO))
    raise Outside("a sum with columns is not a weight times a tensor")


def _split(node: Node) -> tuple[Node, ...]:
    return node.args if node.op == "mul" else () if node is mul() else (node,)


def _product(factors: Sequence[Node]) -> Node:
    return mul() if not factors else factors[0] if len(factors) == 1 else Node("mul", tuple(factors))


def _still(weight: Node, stream: str) -> tuple[Node, tuple[Node, ...]]:
    """The weight without factors that do not vary along the stream, and these."""
    if weight.op == "where" and weight.args[2] is ZERO:
        inside, rest = _still(weight.args[1], stream)
        return Node("where", (weight.args[0], inside, ZERO)), rest
    factors = _split(weight)
    rest = tuple(f for f in factors if stream not in f.axes)
    return _product([f for f in factors if f not in rest]), rest


def _grouped(weights: Mapping[str, Node]) -> dict[str, Node]:
    """A weight that is a product with all factors of another one reads it as one factor, computed once."""
    found = dict(weights)
    for small in list(found.values()):
        factors = set(_split(_bare(small)))
        for name, node in found.items():
            bare = _bare(node)
            if node is small or bare is _bare(small) or not factors < set(_split(bare)):
                continue
            rest = [f for f in _split(bare) if f not in factors]
            found[name] = substitute(node, {bare: Node("mul", (*rest, _bare(small)))}, raw=True)
    return found


def _bare(weight: Node) -> Node:
    """A weight inside its conditions."""
    return _bare(weight.args[1]) if weight.op == "where" and weight.args[2] is ZERO else weight


def _condition(weights: Sequence[Node]) -> Node | None:
    """A condition outside of which every weight is 0, whatever finite numbers there are."""
    conditions = {n.args[0]: None for n in walk(*weights) if n.op == "where"}
    return next((c for c in conditions if all(_is_zero(assuming(w, c, False)) for w in weights)), None)


def _is_zero(node: Node) -> bool:
    return node is ZERO or at(node, NEG_INF, NEG_INF, {}) is ZERO


def assuming(node: Node, condition: Node, holds: bool) -> Node:
    """The node where the condition holds, or where it does not."""
    new: dict[Node, Node] = {condition: TRUE if holds else FALSE}
    for n in walk(node, done=new):
        args = tuple(new[a] for a in n.args)
        if n.op == "where" and args[0] in (TRUE, FALSE):
            new[n] = args[1] if args[0] is TRUE else args[2]
        elif n.op == "mul" and any(a is ZERO for a in args):
            new[n] = ZERO
        else:
            new[n] = n if args == n.args else Node(n.op, args, n.attr)
    return new[node]


def _results(
    program: Program, part: Mapping[str, tuple[str, str]], outside: Mapping[str, tuple[Node, ...]], row: str
) -> tuple[Result, ...]:
    """Results over accumulators, times what left the sums."""
    if program.passes[0].exports:
        raise Outside("a result reads a value of the whole row")
    mapping: dict[Node, Node] = {}
    leaves = [n for r in program.results for n in walk(r.node) if n.op == "state"]
    for name, (slot, column) in part.items():
        sums = state(name, (row, column))
        for leaf in (n for n in leaves if n.attr.name == slot):
            mapping[leaf] = _product((*outside[slot], sums))
    found = []
    for r in program.results:
        if r.masked is not None or row not in r.axes or len(set(r.axes) & set(program.columns)) != 1:
            raise Outside(f"{r.name} is no sum of a row and a column")
        found.append(replace(r, node=substitute(r.node, dict(mapping), raw=True)))
    if any(n.op == "state" and n.attr.name not in part for r in found for n in walk(r.node)):
        raise Outside("a result reads more than sums")
    return tuple(found)


# --- tensors that tiles are loaded of --------------------------------------------------------------------------------


class _Boxes:
    """Tiles by the tensor and the axes they are read along."""

    def __init__(self, program: Program, row: str, stream: str, views: Mapping[str, View]) -> None:
        self.program, self.row, self.stream, self.views = program, row, stream, views
        self.found: dict[str, Box] = {}
        self.dtype = ""

    def __call__(self, leaf: Node, other: str, streamed: bool) -> str:
        outer = self.stream if streamed else self.row
        operand = next(o for o in self.program.operands if o.name == leaf.attr.name)
        if operand.dtype not in TYPES or self.dtype not in ("", operand.dtype):
            raise Outside(f"it multiplies {operand.dtype}; tiles are of one of {', '.join(TYPES)}")
        self.dtype = operand.dtype
        axes = self._axes(leaf, outer, other)
        if not streamed and axes[1] == self.row:
            raise Outside(f"{leaf.attr.name} is contiguous along rows, and a left operand is read along its terms")
        base = leaf.attr.name
        name = base
        for box in self.found.values():
            own = rename_axes(box.leaf, {a: other for a in box.axes if a != outer}, raw=True)
            if own is leaf and box.streamed is streamed:
                return box.name
            if box.name == name:
                name += "_"
        self.found[name] = Box(name, leaf, axes, streamed)
        return name

    def _axes(self, leaf: Node, outer: str, other: str) -> tuple[str, str]:
        """The axes of a tile, the contiguous one last. Raises: Outside."""
        if any(a not in (outer, other) and a not in self.program.rows or a == self.row != outer for a in leaf.axes):
            raise Outside(f"{leaf.attr.name} varies along axes that a tile does not have")
        strides = dict(zip(leaf.attr.axes, self.views[leaf.attr.name].strides, strict=True))
        axes = (outer, other) if strides[other] == 1 else (other, outer)
        if strides[axes[1]] != 1:
            raise Outside(f"{leaf.attr.name} is not contiguous along {outer} or {other}")
        return axes


def one_sided(nodes: Sequence[Node], row: str, stream: str) -> Iterator[tuple[Node, str]]:
    """Maximal parts of maps that vary along rows alone ("row") or along the stream alone ("stream")."""
    stack, seen = list(reversed(nodes)), set()
    while stack:
        n = stack.pop()
        if n in seen or n.is_boolean or n.op in ("const", "special", "state"):
            if n.is_boolean:
                stack += [a for a in n.args if a not in seen]
                seen.add(n)
            continue
        seen.add(n)
        sides = {row, stream} & n.axes
        if len(sides) == 1 and n.op != "index" and not _scores(n):
            yield n, "row" if row in sides else "stream"
        else:
            stack += reversed(n.args)


def _scores(node: Node) -> bool:
    return any(n.op == "state" for n in walk(node))
