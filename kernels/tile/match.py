"""Which programs run on tensor cores: cascades over scores that are a contraction, with states that are scalars or
sums of a weight times a row of a matrix.

A program is in the class if its elements read the stream through one contraction
``S[i, j] = Σ_d A[…, i, d]·B[…, j, d]`` (and through tensors, positions and row parameters), if it folds them in one
pass in any order, and if what has columns is ``Σ_j g(S, …)·V[…, j, e]``. `classified` says so, or what stands against
it.

Elements that do not exist (beyond the end of the stream, or of a tile) and those a condition excludes are given a
`Class.missing` score that every fold takes for its identity: found here by evaluating the folds at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import NEG_INF, ZERO, Node, mul, substitute, walk
from redalg.graph.operators import Extremum, NumberExtremum, Sum
from redalg.kernels.ir.program import First, Fold, Join, Loop, Pass, Program, Step
from redalg.kernels.ir.tensor_cores import TF32
from redalg.kernels.lower.signs import SEEN
from redalg.kernels.tile.contractions import (
    NARROW,
    TYPES,
    Outside,
    Product,
    factored,
    folds,
    joined,
    multiplied,
    operand_of,
    scores_of,
    shares,
    weighed_last,
    with_bodies,
    with_values_first,
)
from redalg.kernels.tile.limits import INF, at
from redalg.kernels.tile.monotone import pulled_out
from redalg.kernels.tile.top_k import Listed, objection, top_k_folds

__all__ = ["TYPES", "Class", "Outside", "classified", "folds", "operand_of", "weight_of"]


@dataclass(frozen=True)
class WeightedSum:
    """What has columns: Σ weight·values, along the axis `column`, over the stream."""

    weight: Node
    values: Node
    column: str


@dataclass(frozen=True)
class Class:
    """What a program of the class consists of.

    ``scores``: the contraction, or the sum of several, which are ``products``; ``row``: the axis of their left operands
    whose indices number the rows of a tile. ``value``: the node that stands for an element in every fold; where
    ``condition`` is given it is ``shown`` if that holds and ``missing`` otherwise, else it is ``shown``.
    ``scale``: if `shown` is this multiple of the scores, and folds read it where multiplying can wait.
    ``summed``: the sum with columns; None without columns, and so are ``weight``, ``values``, ``column``.
    ``guarded``: folds (by their first name) that `missing` would change: they are told which elements there are.
    """

    program: Program
    scores: Node
    products: tuple[Product, ...]
    row: str
    value: Node
    shown: Node
    missing: Node
    condition: Node | None = None
    scale: Node | None = None
    summed: WeightedSum | None = None
    guarded: frozenset[str] = frozenset()

    @property
    def weight(self) -> Node | None:
        return None if self.summed is None else self.summed.weight

    @property
    def values(self) -> Node | None:
        return None if self.summed is None else self.summed.values

    @property
    def column(self) -> str | None:
        return None if self.summed is None else self.summed.column

    @property
    def stream(self) -> str:
        return self.program.stream[0]

    @property
    def left(self) -> Node:
        """The left operand of the first product."""
        return self.products[0].left

    @property
    def right(self) -> Node:
        """The right operand of the first product."""
        return self.products[0].right

    @property
    def terms(self) -> str:
        """The axis the first product is summed over."""
        return self.products[0].terms

    @property
    def shared(self) -> bool:
        """Whether the first product's right operand is the tensor with columns."""
        return shares(self.program, self.products[0], self.values)

    @property
    def walk(self) -> Pass:
        return self.program.passes[0]

    @property
    def batch(self) -> tuple[str, ...]:
        """The rows' other axes."""
        return tuple(a for a in self.program.rows if a != self.row)

    @property
    def stored(self) -> tuple[str, str, str]:
        """The types of the first product's operands and of the tensor with columns, or again the right one's."""
        leaves = (self.left, self.right, self.right if self.summed is None else self.summed.values)
        left, right, values = (operand_of(self.program, leaf).dtype for leaf in leaves)
        return left, right, values

    @property
    def multiplied(self) -> str:
        """The type in which the contraction's operands are multiplied."""
        return multiplied(*self.stored[:2])

    @property
    def dtype(self) -> str:
        """The type that weights are rounded to, in which they are multiplied; of the contraction without columns."""
        return self.multiplied if self.summed is None else weights_type(self.stored[2], self.summed.weight)

    @property
    def converted(self) -> bool:
        """Whether operands are converted on their way to tensor cores."""
        return not set(self.stored) <= set(TYPES)


IDENTITY = {"sum": ZERO, "max": NEG_INF, "min": INF, "argmax": NEG_INF, "argmin": INF, "topk": NEG_INF}


def classified(program: Program, sizes: Mapping[str, int] | None = None, tf32: bool = False) -> Class:
    """The program as one of the class. `sizes`: lengths of axes; the longest one there is numbers the rows of tiles.
    `tf32`: with tensors of float32, which tensor cores round; they are not in the class otherwise.

    Raises: Outside, with the reason.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> form = ra.derive_incremental(ra.catalog["attention_causal"])
    >>> made = classified(lower(form, dict.fromkeys("QKV", "bfloat16") | {"scale": float}))
    >>> made.row, made.terms, made.column, made.scale is not None, made.condition is not None
    ('i', 'd', 'e', True, True)
    """
    _simple(program)
    program = weighed_last(joined(_grouped(pulled_out(with_bodies(program, factored)))))
    p = program.passes[0]
    scores, products = scores_of(program, tf32)
    row = _row(program, products, sizes or {})
    summed = _summed(program, p, products[0])
    if summed is not None:
        products = with_values_first(program, products, summed.values)
        if _type(program, summed.values) == "float16" and not is_bounded(summed.weight):
            raise Outside("weights that may be larger than 1 are not rounded to float16")
    value, missing, guarded = _value(scores, folds(p), summed)
    _require_positions(p, value, guarded)
    # blocks that a condition empties are skipped, which folds that are no identity there have to see
    condition, shown = (None, value) if guarded else _condition(value, missing)
    scale = _scale(program, scores, shown, value, row)
    if condition is not None and scores in set(walk(condition)):
        scale = None  # registers hold scores without its sign, which the condition would see
    return Class(program, scores, products, row, value, shown, missing, condition, scale, summed, guarded)


def _require_positions(p: Pass, value: Node, guarded: frozenset[str]) -> None:
    if any(isinstance(f.op, Listed) and (f.bodies[0] is not value or f.names[0] in guarded) for f in folds(p)):
        raise Outside("positions are kept of elements that other folds read in another way")


def _condition(value: Node, missing: Node) -> tuple[Node | None, Node]:
    """What an element is under which condition, where it is missing otherwise."""
    if missing is NEG_INF and value.op == "where" and value.args[2] is NEG_INF:
        return value.args[0], value.args[1]
    return None, value


def _read(p: Pass) -> Iterator[Node]:
    for step in (*p.lift, *p.update):
        if isinstance(step, Loop):
            yield from (f.bodies[0] for f in step.folds)
        elif isinstance(step, Join):
            yield from (*step.a, *step.b)
        elif step.name != "n_new":
            yield step.node


Bar = tuple[Callable[[Program], object], str | Callable[[Program], str]]


def _steps(program: Program) -> tuple[Step, ...]:
    return (*program.passes[0].lift, *program.passes[0].update)


def _unreal(program: Program) -> bool:
    """Whether the state holds more than real numbers, lists with positions apart."""
    p, lists = program.passes[0], top_k_folds(program.passes[0])
    return any(part.top is not None or part.kind != "f" for part in p.parts if part.name not in lists)


def _counted(program: Program) -> bool:
    return any(n.op == "state" and n.attr.name in SEEN for n in walk(*_read(program.passes[0])))


def _unfolded(program: Program) -> list[Fold]:
    """Folds that nothing here prints."""
    every = folds(program.passes[0])
    known = [f for f in every if isinstance(f.op, Sum | Extremum | Listed) and not isinstance(f.op, NumberExtremum)]
    return [f for f in every if f not in known]


BARS: tuple[Bar, ...] = (  # what keeps a program out of the class, and the reason
    (
        lambda program: len(program.passes) != 1,
        lambda program: f"it takes {len(program.passes)} passes over the stream",
    ),
    (lambda program: len(program.stream) != 1, "its stream has several axes"),
    (lambda program: program.keeps, "a result keeps the stream's axis"),
    (lambda program: len(program.columns) > 1, "its state has several column axes"),
    (lambda program: program.real != "float32", "it accumulates in float64"),
    (lambda program: program.passes[0].ordered, "its splits must be combined in the order of the stream"),
    (
        lambda program: not (program.passes[0].update and program.passes[0].absorbs),
        "a tile cannot be folded into a state at the new anchors",
    ),
    (
        lambda program: objection(program.passes[0], bool(program.columns)),
        lambda program: str(objection(program.passes[0], bool(program.columns))),
    ),
    (_unreal, "its state holds more than real numbers"),
    (lambda program: any(isinstance(s, First) for s in _steps(program)), "an anchor is an element of the stream"),
    (_counted, "a state depends on the number of elements"),
    (_unfolded, lambda program: f"it folds by {_unfolded(program)[0].kind}"),
)


def _simple(program: Program) -> None:
    """Raises: Outside, with the first reason there is."""
    for bars, why in BARS:
        if bars(program):
            raise Outside(why if isinstance(why, str) else why(program))


def _row(program: Program, products: tuple[Product, ...], sizes: Mapping[str, int]) -> str:
    """The longest axis of the left operands that nothing loaded along the stream has: the last one of several."""
    columns = set(program.columns)
    bodies = [f.bodies[0] for f in folds(program.passes[0])]
    values = [n for n in walk(*bodies) if n.op == "tensor" and columns & n.axes]
    taken = frozenset().union(*(n.axes for n in (*values, *(p.right for p in products))))
    found = [a for a in products[0].left.attr.axes if a in program.rows and a not in taken]
    found = [a for a in found if all(a in p.left.axes for p in products)]
    if not found:
        raise Outside("no axis numbers rows that share the right operand")
    return max(reversed(found), key=lambda a: sizes.get(a, 0))


def _summed(program: Program, p: Pass, product: Product) -> WeightedSum | None:
    with_columns = [f for f in folds(p) if f.axes]
    if not with_columns:
        return None
    column = program.columns[0]
    leaves = [_with_column(f, column, program.stream[0]) for f in with_columns]
    if len({*leaves}) != 1 or len({tuple(f.names) for f in with_columns}) != 1:
        raise Outside("several sums have columns")
    leaf = leaves[0]
    wide = {_type(program, x) for x in (leaf, product.left, product.right)} - set(NARROW)
    if len(wide) > 1 or not wide <= {*TYPES, _type(program, product.left)}:
        raise Outside(f"the tensor with columns has dtype {_type(program, leaf)}, the scores another")
    for step in p.update:
        if isinstance(step, Join) and step.axes:
            _require_factor(step, column)
    return WeightedSum(weight_of(with_columns[-1], leaf), leaf, column)


def _with_column(f: Fold, column: str, stream: str) -> Node:
    """The tensor whose rows a sum adds, each times a weight. Raises: Outside, for anything else."""
    body = f.bodies[0]
    own = [x for x in (body.args if body.op == "mul" else (body,)) if column in x.axes]
    if not isinstance(f.op, Sum) or len(own) != 1 or own[0].op != "tensor" or stream not in own[0].axes:
        raise Outside("what has columns is not a sum of weights times a tensor")
    return own[0]


def _require_factor(step: Join, column: str) -> None:
    """A sum with columns is multiplied by something without them, and the block's sum is added."""
    name = step.names[0].removesuffix("_new")
    a, b = step.a[0], step.b[0]
    rest = [x for x in (a.args if a.op == "mul" else (a,)) if not (x.op == "state" and x.attr.name == name)]
    whole = len(rest) == (len(a.args) if a.op == "mul" else 1) - 1
    added = b.op == "state" and b.attr.name == f"{name}_b"
    if not isinstance(step.op, Sum) or not (whole and added) or any(column in x.axes for x in rest):
        raise Outside("a sum with columns moves to another anchor by more than a factor")


def weight_of(fold: Fold, values: Node) -> Node:
    """What a sum with columns multiplies the values by."""
    body = fold.bodies[0]
    return mul(*(x for x in (body.args if body.op == "mul" else (body,)) if x is not values))


def _type(program: Program, leaf: Node) -> str:
    return operand_of(program, leaf).dtype


def weights_type(dtype: str, weight: Node) -> str:
    """The type in which weights multiply a tensor: its own, float16 for 8 bits where they are at most 1."""
    if dtype in NARROW:
        return "float16" if is_bounded(weight) else "bfloat16"
    return TF32 if dtype == "float32" else dtype


def is_bounded(weight: Node) -> bool:
    """Whether a weight is known to be at most 1: what is relative to an anchor, and functions that are bounded."""
    if weight.op == "exp":
        return any(n.op == "state" for n in walk(weight))
    if weight.op == "const":
        return bool(abs(weight.attr) <= 1)
    if weight.op == "mul":
        return all(is_bounded(a) for a in weight.args)
    if weight.op == "where":
        return all(is_bounded(a) for a in weight.args[1:])
    row = FUNCTIONS.get(weight.op)
    return row is not None and row.direction != 0 and all(-1 <= v <= 1 for v in row.limits)


# --- the node that stands for an element -----------------------------------------------------------------------------


def _value(scores: Node, every: list[Fold], summed: WeightedSum | None) -> tuple[Node, Node, frozenset[str]]:
    """The outermost node every fold reads the scores through, what it is where there is no element, and the folds
    that would not take that for their identity: as few as can be."""
    checks = [(f.names[0], f.kind, f.bodies[0]) for f in every if not f.axes]
    bodies = [body for _, _, body in checks]
    if summed is not None:
        bodies.append(summed.weight)
        checks += [(f.names[0], "sum", summed.weight) for f in every if f.axes]
    found: list[tuple[int, int, Node, Node, frozenset[str]]] = []
    for node in _dominators(scores, bodies):
        if any(n.op == "state" for n in walk(node)):
            continue
        for missing in (NEG_INF, ZERO, INF):
            wrong = frozenset(n for n, kind, body in checks if not _is_identity(kind, at(body, node, missing, {})))
            found.append((len(wrong), len(found), node, missing, wrong))
    if not found:
        raise Outside("folds do not read the scores alone")
    _, _, node, missing, wrong = min(found, key=lambda x: x[:2])
    return node, missing, wrong


def _dominators(scores: Node, bodies: Iterable[Node]) -> list[Node]:
    """Nodes on every path from a body to the scores, outermost first."""
    bodies = [b for b in bodies if scores in set(walk(b))]
    common: list[Node] | None = None
    for body in bodies:
        chain = [n for n in walk(body) if scores in set(walk(n)) and not _reaches(body, scores, n)]
        chain.sort(key=lambda n: -len(list(walk(n))))
        common = chain if common is None else [n for n in common if n in chain]
    return common or []


def _reaches(root: Node, goal: Node, without: Node) -> bool:
    return goal in walk(root, done={without})


def _is_identity(kind: str, value: Node | None) -> bool:
    return value is IDENTITY[kind]


# --- a factor that can wait ------------------------------------------------------------------------------------------


def _scale(program: Program, scores: Node, shown: Node, value: Node, row: str) -> Node | None:
    """c if `shown` is c·scores, c the same for all of a tile, and every fold takes u as max u or exp(u + …)."""
    parts = list(shown.args) if shown.op == "mul" else [shown]
    varying = {program.stream[0], row}
    if scores not in parts or any(varying & x.axes for x in parts if x is not scores):
        return None
    rest = mul(*(x for x in parts if x is not scores))
    if any(n.op in ("state", "index") for n in walk(rest)):
        return None
    for f in folds(program.passes[0]):
        body = f.bodies[0]
        if not (f.kind in ("max", "argmax", "topk") and body is value) and not _exponential(body, value):
            return None
    return rest


def _exponential(body: Node, value: Node) -> bool:
    """Whether a body reads the value in nothing but exp(value) and exp(value + …)."""
    if body is value:
        return False
    readers = [n for n in walk(body) if value in n.args]
    sums = [n for n in readers if n.op == "add"]
    if any(n.op not in ("exp", "add") for n in readers) or body in sums:
        return False
    return all(n.op == "exp" for n in walk(body) if any(s in n.args for s in sums))


def _grouped(program: Program) -> Program:
    """Sums that hold all terms of what an extremum is taken of hold it as one term, so that it is computed once."""
    p = program.passes[0]
    whole = [f.bodies[0] for f in folds(p) if isinstance(f.op, Extremum) and f.bodies[0].op == "add"]
    whole = [u for u in whole if not any(n.op == "state" for n in walk(u))]
    if not whole:
        return program
    mapping: dict[Node, Node] = {}
    for n in walk(*(f.bodies[0] for f in folds(p))):
        if n.op == "add" and n is not whole[0] and set(whole[0].args) <= set(n.args):
            mapping[n] = Node("add", (whole[0], *(a for a in n.args if a not in whole[0].args)))

    return with_bodies(program, lambda b: substitute(b, mapping, raw=True))
