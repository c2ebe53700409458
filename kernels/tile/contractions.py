"""The contractions inside an element of a program: S = Σ_d A·B, or a sum of several of them.

Every term is a product of a tensor that varies along the rows and one that varies along the stream, summed over an axis
of its own. Several are computed as one: their axes are laid side by side (latent attention: Σ_c q·c + Σ_r q'·k').
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from redalg.graph.node import Node, factors, mul, rebuild, substitute, walk
from redalg.kernels.ir.program import Fold, Join, Loop, Operand, Pass, Program, Step
from redalg.kernels.ir.tensor_cores import TF32

TYPES = ("bfloat16", "float16")
NARROW = ("float8_e4m3fn", "float8_e5m2")  # exact in both of them


class Outside(Exception):
    """Why a program is not in the class."""


@dataclass(frozen=True)
class Product:
    """Σ_terms left·right; both leaves have the axis ``terms``, and ``right`` has the stream's."""

    left: Node
    right: Node
    terms: str


def operand_of(program: Program, leaf: Node) -> Operand:
    return next(o for o in program.operands if o.name == leaf.attr.name)


def folds(p: Pass) -> list[Fold]:
    return [f for step in (*p.lift, *p.update) if isinstance(step, Loop) for f in step.folds]


def join_of(steps: Iterable[Step]) -> Join | None:
    """The step that moves the sum with columns to another anchor."""
    return next((s for s in steps if isinstance(s, Join) and s.axes), None)


def share_of(step: Join | None) -> Node | None:
    """What the sum with columns is multiplied by before a block is added; None for 1."""
    if step is None:
        return None
    part, a = step.names[0].removesuffix("_new"), step.a[0]
    parts = a.args if a.op == "mul" else (a,)
    rest = [x for x in parts if not (x.op == "state" and x.attr.name == part)]
    if not rest:
        return None
    return rest[0] if len(rest) == 1 else Node("mul", tuple(rest))


def with_bodies(program: Program, change: Callable[[Node], Node]) -> Program:
    """The program with what its folds take in changed."""
    p = program.passes[0]

    def step(s: Step) -> Step:
        if not isinstance(s, Loop):
            return s
        return Loop(tuple(replace(f, bodies=tuple(map(change, f.bodies))) for f in s.folds))

    return replace(program, passes=(replace(p, lift=tuple(map(step, p.lift)), update=tuple(map(step, p.update))),))


def weighed_last(program: Program) -> Program:
    """The program whose sum with columns is folded by the last loop over a block's elements: weights take the scores'
    place, which other folds have to have read by then."""
    p = program.passes[0]
    return replace(program, passes=(replace(p, lift=_weighed_last(p.lift), update=_weighed_last(p.update)),))


def _weighed_last(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    loops = [s for s in steps if isinstance(s, Loop)]
    early = [f for s in loops[:-1] for f in s.folds if f.axes]
    if not early:
        return steps
    moved = {s: Loop(tuple(f for f in s.folds if not f.axes), s.part) for s in loops[:-1]}
    moved[loops[-1]] = replace(loops[-1], folds=(*loops[-1].folds, *early))
    kept = (moved[s] if isinstance(s, Loop) else s for s in steps if not (isinstance(s, Join) and s.axes))
    joins = (s for s in steps if isinstance(s, Join) and s.axes)
    return (*(s for s in kept if not (isinstance(s, Loop) and not s.folds)), *joins)


def factored(body: Node) -> Node:
    """The body with factors that do not vary along a contraction in front of it, and those that all contractions of a
    sum have in front of the sum: Σ_d (q/8)·k is (Σ_d q·k)/8.

    >>> import redalg as ra
    >>> from redalg.text.nodes import short
    >>> y = ra.parse("return y = exp(sum[d](q[d]*k[j,d]/8) + sum[r](p[r]*c[j,r]/8))").outputs["y"]
    >>> short(factored(y))
    'exp(1/8 * (sum[d](k[j,d] * q[d]) + sum[r](p[r] * c[j,r])))'
    """
    new: dict[Node, Node] = {}
    for node in walk(body):
        whole = rebuild(node, tuple(new[a] for a in node.args))
        new[node] = _in_front(whole) if whole.op == "reduce" else _of_all(whole) if whole.op == "add" else whole
    return new[body]


def _in_front(fold: Node) -> Node:
    moving = [f for f in factors(fold) if not f.axes.isdisjoint(fold.attr.axes)]
    still = [f for f in factors(fold) if f not in moving]
    if fold.attr.kind != "sum" or not moving or not still:
        return fold
    return mul(*still, Node("reduce", (mul(*moving),), fold.attr))


def _of_all(whole: Node) -> Node:
    """A sum whose contractions have the same factors in front of them, with these in front of the sum of them."""
    found: dict[Node, frozenset[Node]] = {}
    for term in whole.args:
        parts = term.args if term.op == "mul" else (term,)
        sums = [a for a in parts if a.op == "reduce"]
        if len(sums) == 1:
            found[term] = frozenset(parts) - {sums[0]}
    common = next(iter(found.values()), frozenset())
    if len(found) < 2 or not common or any(own != common for own in found.values()):
        return whole
    first = next(iter(found))
    still = [a for a in first.args if a in common]
    inner = Node("add", tuple(next(a for a in t.args if a not in common) for t in found))
    outer = Node("mul", (*still, inner))  # raw: a number would be multiplied out
    return Node("add", (outer, *rest)) if (rest := [t for t in whole.args if t not in found]) else outer


def joined(program: Program) -> Program:
    """Sums that hold several contractions among other terms hold them as one term."""
    stream = program.stream[0]
    mapping: dict[Node, Node] = {}
    for n in walk(*(f.bodies[0] for f in folds(program.passes[0]))):
        own = [a for a in n.args if a.op == "reduce" and stream in a.axes] if n.op == "add" else []
        if 1 < len(own) < len(n.args):
            mapping[n] = Node("add", (Node("add", tuple(own)), *(a for a in n.args if a not in own)))
    return with_bodies(program, lambda b: substitute(b, mapping, raw=True)) if mapping else program


def scores_of(program: Program, tf32: bool = False) -> tuple[Node, tuple[Product, ...]]:
    """The node that is the contraction, or the sum of several, and its terms. `tf32`: of float32, and nothing else.

    Raises: Outside.
    """
    stream, bodies = program.stream[0], [f.bodies[0] for f in folds(program.passes[0])]
    nodes = [n for n in walk(*bodies) if n.op == "reduce"]
    along = [n for n in nodes if stream in n.axes]
    if not along:
        raise Outside("an element holds no contraction")
    if len(nodes) != len(along) or any(n.attr.kind != "sum" or len(n.attr.axes) != 1 for n in along):
        raise Outside("an element holds more than sums over one axis of tensors' products")
    scores = along[0] if len(along) == 1 else _sum_of(bodies, along)
    found = tuple(_product(program, n) for n in (scores.args if len(along) > 1 else (scores,)))
    _require_types(program, found, tf32)
    return scores, found


def _require_types(program: Program, products: tuple[Product, ...], tf32: bool) -> None:
    kinds = [tuple(operand_of(program, leaf).dtype for leaf in (p.left, p.right)) for p in products]
    every = sorted({k for pair in kinds for k in pair})
    names = " and ".join(every)
    if tf32 or every == ["float32"]:
        if every != ["float32"]:
            raise Outside(f"it multiplies {names}; tf32 is what float32 is rounded to")
        if not tf32:
            asked = f'float32 is rounded to tf32 where schedule="{TF32}" asks for it'
            raise Outside(f"it multiplies float32; tensor cores are used for {', '.join(TYPES)}, float8; {asked}")
        return
    if len(set(every) & {*TYPES}) > 1 or not set(every) <= {*TYPES, *NARROW}:
        raise Outside(f"it multiplies {names}; tensor cores are used for {', '.join(TYPES)}, float8")
    if len(set(kinds)) > 1:
        raise Outside(f"it multiplies {names}, its contractions different ones")
    if any(a in NARROW and b in TYPES for a, b in kinds):
        raise Outside(f"it multiplies {names}, where it is the operand along the stream that may be narrower")


def multiplied(left: str, right: str) -> str:
    """The type in which tensors of these types are multiplied: both are exact in it, but for float32.

    >>> multiplied("bfloat16", "float8_e4m3fn"), multiplied("float8_e5m2", "float8_e4m3fn")
    ('bfloat16', 'float16')
    """
    if "float32" in (left, right):
        return TF32
    return next((k for k in (left, right) if k in TYPES), "float16")


def _sum_of(bodies: list[Node], along: list[Node]) -> Node:
    """The one sum of all contractions through which everything reads them."""
    sums = [n for n in walk(*bodies) if n.op == "add" and set(n.args) == set(along)]
    readers = {n for n in walk(*bodies) if set(n.args) & set(along)}
    if len(sums) != 1 or readers != set(sums):
        raise Outside(f"an element holds {len(along)} contractions, not their sum alone")
    return sums[0]


def _product(program: Program, contraction: Node) -> Product:
    product, stream = contraction.args[0], program.stream[0]
    terms = contraction.attr.axes[0]
    parts = product.args if product.op == "mul" else ()
    if len(parts) != 2 or any(a.op != "tensor" or terms not in a.axes for a in parts):
        raise Outside("the contraction is not one of two tensors")
    right = [a for a in parts if stream in a.axes]
    if len(right) != 1:
        raise Outside("both sides of the contraction vary along the stream")
    return Product(parts[0] if right[0] is parts[1] else parts[1], right[0], terms)


def with_values_first(program: Program, products: tuple[Product, ...], values: Node) -> tuple[Product, ...]:
    """The product first whose right operand is the tensor with columns, if there is one: it is loaded once."""
    return tuple(sorted(products, key=lambda p: not shares(program, p, values)))


def shares(program: Program, product: Product, values: Node | None) -> bool:
    """Whether the right operand is the tensor with columns: the same one, its terms being its columns."""
    if values is None or product.right.attr.name != values.attr.name:
        return False
    column = program.columns[0]
    renamed = tuple(column if a == product.terms else a for a in product.right.attr.axes)
    return renamed == tuple(values.attr.axes)
