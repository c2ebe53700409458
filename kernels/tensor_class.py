"""Which programs run on tensor cores: cascades over scores that are a contraction, with states that are scalars or
sums of a weight times a row of a matrix.

A program is in the class if its elements read the stream through one contraction
``S[i, j] = Σ_d A[…, i, d]·B[…, j, d]`` (and through tensors, positions and row parameters), if it folds them in one
pass in any order, and if what has lanes is ``Σ_j g(S, …)·V[…, j, e]``. `classified` says so, or what stands against it.

Elements that do not exist (beyond the end of the stream, or of a tile) and those a condition excludes are given a
`Class.missing` score that every fold takes for its identity: found here by evaluating the folds at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from redalg.graph import NEG_INF, ZERO, Node, mul, substitute, walk
from redalg.kernels.ir import First, Fold, Join, Loop, Pass, Program
from redalg.kernels.tensor_limits import INF, at
from redalg.kernels.tensor_monotone import pulled_out
from redalg.kernels.tensor_picks import KINDS, objection, picked
from redalg.kernels.tensor_products import (
    NARROW,
    TF32,
    TYPES,
    Outside,
    Product,
    folds,
    joined,
    multiplied,
    operand_of,
    scores_of,
    shares,
    with_bodies,
    with_values_first,
)  # fmt: skip

__all__ = ["TYPES", "Class", "Outside", "classified", "folds", "operand_of", "weight_of"]


@dataclass(frozen=True)
class Class:
    """What a program of the class consists of.

    ``scores``: the contraction, or the sum of several, which are ``products``; ``row``: the axis of their left operands
    whose indices number the rows of a tile. ``value``: the node that stands for an element in every fold; where
    ``condition`` is given it is ``shown`` if that holds and ``missing`` otherwise, else it is ``shown``.
    ``scale``: if `shown` is this multiple of the scores, and folds read it where multiplying can wait.
    ``weight``, ``values``, ``lane``: the sum with lanes is Σ weight·values, along this axis; None without lanes.
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
    weight: Node | None = None
    values: Node | None = None
    lane: str | None = None
    guarded: frozenset[str] = frozenset()

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
        """Whether the first product's right operand is the tensor with lanes."""
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
        """The types of the first product's operands and of the tensor with lanes, or again the right one's."""
        leaves = (self.left, self.right, self.right if self.values is None else self.values)
        left, right, values = (operand_of(self.program, leaf).dtype for leaf in leaves)
        return left, right, values

    @property
    def multiplied(self) -> str:
        """The type in which the contraction's operands are multiplied."""
        return multiplied(*self.stored[:2])

    @property
    def dtype(self) -> str:
        """The type that weights are rounded to, in which they are multiplied; of the contraction without lanes."""
        return self.multiplied if self.weight is None else weights_type(self.stored[2], self.weight)

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
    >>> from redalg.kernels.lower import lower
    >>> form = ra.derive_incremental(ra.catalog["attention_causal"])
    >>> made = classified(lower(form, dict.fromkeys("QKV", "bfloat16") | {"scale": float}))
    >>> made.row, made.terms, made.lane, made.scale is not None, made.condition is not None
    ('i', 'd', 'e', True, True)
    """
    _simple(program)
    program = joined(_grouped(pulled_out(program)))
    p = program.passes[0]
    scores, products = scores_of(program, tf32)
    row = _row(program, products, sizes or {})
    weight, values, lane = _values(program, p, products[0])
    products = with_values_first(program, products, values)
    if weight is not None and values is not None and _type(program, values) == "float16" and not _bounded(weight):
        raise Outside("weights that may be larger than 1 are not rounded to float16")
    bodies = [f.bodies[0] for f in folds(p) if not f.axes] + ([weight] if weight is not None else [])
    value, missing, guarded = _value(scores, bodies, folds(p), weight)
    if any(f.kind in KINDS and (f.bodies[0] is not value or f.names[0] in guarded) for f in folds(p)):
        raise Outside("positions are kept of elements that other folds read in another way")
    shown, condition = value, None
    if missing is NEG_INF and value.op == "where" and value.args[2] is NEG_INF:
        condition, shown = value.args[:2]
    scale = _scale(program, scores, shown, value, row)
    if condition is not None and scores in set(walk(condition)):
        scale = None  # registers hold scores without its sign, which the condition would see
    return Class(program, scores, products, row, value, shown, missing, condition, scale, weight, values, lane, guarded)


def _read(p: Pass) -> Iterator[Node]:
    for step in (*p.lift, *p.update):
        if isinstance(step, Loop):
            yield from (f.bodies[0] for f in step.folds)
        elif isinstance(step, Join):
            yield from (*step.a, *step.b)
        elif step.name != "n_new":
            yield step.node


def _simple(program: Program) -> None:
    if len(program.passes) != 1:
        raise Outside(f"it takes {len(program.passes)} passes over the stream")
    if len(program.stream) != 1:
        raise Outside("its stream has several axes")
    if program.keeps:
        raise Outside("a result keeps the stream's axis")
    if len(program.lanes) > 1:
        raise Outside("its state has several lane axes")
    if program.real != "float32":
        raise Outside("it accumulates in float64")
    p = program.passes[0]
    if p.ordered:
        raise Outside("its pieces must be combined in the order of the stream")
    if not (p.update and p.absorbs):
        raise Outside("a tile cannot be folded into a state at the new anchors")
    why = objection(p, bool(program.lanes))
    if why is not None:
        raise Outside(why)
    lists = picked(p)
    if any(part.top is not None or part.kind != "f" for part in p.parts if part.name not in lists):
        raise Outside("its state holds more than real numbers")
    if any(isinstance(step, First) for step in (*p.lift, *p.update)):
        raise Outside("an anchor is an element of the stream")
    if any(n.op == "state" and n.attr.name in ("n", "n_b", "n_new") for n in walk(*_read(p))):
        raise Outside("a state depends on the number of elements")
    for f in folds(p):
        if f.kind not in ("sum", "max", "min", *KINDS) or f.ignore_nan or len(f.bodies) != 1:
            raise Outside(f"it folds by {f.kind}")


def _row(program: Program, products: tuple[Product, ...], sizes: Mapping[str, int]) -> str:
    """The longest axis of the left operands that nothing brought along the stream has: the last one of several."""
    lane = set(program.lanes)
    bodies = [f.bodies[0] for f in folds(program.passes[0])]
    values = [n for n in walk(*bodies) if n.op == "tensor" and lane & n.axes]
    taken = frozenset().union(*(n.axes for n in (*values, *(p.right for p in products))))
    found = [a for a in products[0].left.attr.axes if a in program.rows and a not in taken]
    found = [a for a in found if all(a in p.left.axes for p in products)]
    if not found:
        raise Outside("no axis numbers rows that share the right operand")
    return max(reversed(found), key=lambda a: sizes.get(a, 0))


def _values(program: Program, p: Pass, product: Product) -> tuple[Node | None, Node | None, str | None]:
    laned = [f for f in folds(p) if f.axes]
    if not laned:
        return None, None, None
    lane = program.lanes[0]
    found = set()
    for f in laned:
        body = f.bodies[0]
        parts = list(body.args) if body.op == "mul" else [body]
        own = [x for x in parts if lane in x.axes]
        if f.kind != "sum" or len(own) != 1 or own[0].op != "tensor" or program.stream[0] not in own[0].axes:
            raise Outside("what has lanes is not a sum of weights times a tensor")
        found.add((tuple(f.names), own[0]))
    if len({leaf for _, leaf in found}) != 1 or len({names for names, _ in found}) != 1:
        raise Outside("several sums have lanes")
    _, leaf = next(iter(found))
    wide = {_type(program, x) for x in (leaf, product.left, product.right)} - set(NARROW)
    if len(wide) > 1 or not wide <= {*TYPES, _type(program, product.left)}:
        raise Outside(f"the tensor with lanes has dtype {_type(program, leaf)}, the scores another")
    for step in p.update:
        if isinstance(step, Join) and step.axes:
            _require_factor(step, lane)
    return weight_of(laned[-1], leaf), leaf, lane


def _require_factor(step: Join, lane: str) -> None:
    """A sum with lanes is multiplied by something without them, and the block's sum is added."""
    name = step.names[0].removesuffix("_new")
    a, b = step.a[0], step.b[0]
    rest = [x for x in (a.args if a.op == "mul" else (a,)) if not (x.op == "state" and x.attr.name == name)]
    whole = len(rest) == (len(a.args) if a.op == "mul" else 1) - 1
    added = b.op == "state" and b.attr.name == f"{name}_b"
    if step.kind != "sum" or not (whole and added) or any(lane in x.axes for x in rest):
        raise Outside("a sum with lanes moves to another anchor by more than a factor")


def weight_of(fold: Fold, values: Node) -> Node:
    """What a sum with lanes multiplies the values by."""
    body = fold.bodies[0]
    return mul(*(x for x in (body.args if body.op == "mul" else (body,)) if x is not values))


def _type(program: Program, leaf: Node) -> str:
    return operand_of(program, leaf).dtype


def weights_type(dtype: str, weight: Node) -> str:
    """The type in which weights multiply a tensor: its own, float16 for 8 bits where they are at most 1."""
    if dtype in NARROW:
        return "float16" if _bounded(weight) else "bfloat16"
    return TF32 if dtype == "float32" else dtype


def _bounded(weight: Node) -> bool:
    """Whether a weight is known to be at most 1: what is relative to an anchor, and functions that are bounded."""
    if weight.op == "exp":
        return any(n.op == "state" for n in walk(weight))
    if weight.op == "const":
        return bool(abs(weight.attr) <= 1)
    if weight.op == "mul":
        return all(_bounded(a) for a in weight.args)
    if weight.op == "where":
        return all(_bounded(a) for a in weight.args[1:])
    return weight.op in ("sigmoid", "tanh")


# --- the node that stands for an element -----------------------------------------------------------------------------


def _value(
    scores: Node, bodies: list[Node], every: list[Fold], weight: Node | None
) -> tuple[Node, Node, frozenset[str]]:
    """The outermost node every fold reads the scores through, what it is where there is no element, and the folds
    that would not take that for their identity: as few as can be."""
    checks = [(f.names[0], f.kind, f.bodies[0]) for f in every if not f.axes]
    checks += [(f.names[0], "sum", weight) for f in every if f.axes and weight is not None]
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
    stack, seen = [root], set()
    while stack:
        n = stack.pop()
        if n is without or n in seen:
            continue
        if n is goal:
            return True
        seen.add(n)
        stack += n.args
    return False


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
    whole = [f.bodies[0] for f in folds(p) if f.kind in ("max", "min") and f.bodies[0].op == "add"]
    whole = [u for u in whole if not any(n.op == "state" for n in walk(u))]
    if not whole:
        return program
    mapping: dict[Node, Node] = {}
    for n in walk(*(f.bodies[0] for f in folds(p))):
        if n.op == "add" and n is not whole[0] and set(whole[0].args) <= set(n.args):
            mapping[n] = Node("add", (whole[0], *(a for a in n.args if a not in whole[0].args)))

    return with_bodies(program, lambda b: substitute(b, mapping, raw=True))
