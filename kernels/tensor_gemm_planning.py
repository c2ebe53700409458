"""A spec that ends in a matrix product, planned: what kernels before it prepare, its tiles, and where each comes from.

Operands that are not read in place (`redalg.kernels.tensor_gemm_plan`) and the states of the epilogue are made by
ordinary kernels of derived forms, one for each operand; the product reads them from scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.graph import Node, walk
from redalg.kernels.ir import STORAGE, Operand, Program, Result
from redalg.kernels.layouts import View
from redalg.kernels.target import Target
from redalg.kernels.tensor_class import Outside
from redalg.kernels.tensor_gemm import Gemm
from redalg.kernels.tensor_gemm_class import FLOAT8, TYPES, Cut, Side, cut, operand_types
from redalg.kernels.tensor_gemm_epilogue import pairs
from redalg.kernels.tensor_gemm_plan import GemmPlan, Place, blocks_of, place_of, tiles_of
from redalg.kernels.tensor_plan import TENSOR_RATE, Map
from redalg.printing import short

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.spec import Spec

RATE = {2: TENSOR_RATE, 1: 1.75 * TENSOR_RATE}  # by bytes of an operand; that of float8 is a guess, not measured


@dataclass(frozen=True)
class First:
    """What comes before the product: a form with its dtypes, the dtypes of its results, and where they are padded.

    ``side``: of the operand it makes, 0 the left one; ``axes``: that number its rows, in order."""

    side: int
    axes: tuple[str, ...]
    form: Form
    dtypes: Mapping[str, Any]
    results: Mapping[str, str]
    views: Mapping[str, View]


@dataclass(frozen=True)
class GemmPlanned:
    """The product, and what comes before it. ``scratch``: operands that a kernel before it fills, and how they lie."""

    gemm: Gemm
    plan: GemmPlan
    firsts: tuple[First, ...]
    scratch: Mapping[str, tuple[Operand, View]]
    maps: tuple[Map, Map]
    sizes: Mapping[str, int]
    fixed: Mapping[str, int]
    blocks: int
    reasons: tuple[str, ...]
    seconds: float


def gemm_planned(
    form: Form, program: Program, dtypes: Mapping[str, Any], sizes: Mapping[str, int], views: Mapping[str, View],
    target: Target, insisted: bool,
) -> GemmPlanned:  # fmt: skip
    """The product's kernel and its predecessors. `program`: the whole form's; `insisted`: by ``schedule="tensor"``.

    Raises: Outside, with the reason.
    """
    if any(n == 0 for n in sizes.values()):
        raise Outside("an axis has length 0")
    formats = {o.name: o.dtype for o in program.operands}
    made = cut(form.spec, form.plan.axis, formats)
    if target.cc < (9, 0) or target.cc >= (10, 0):
        raise Outside(f"{target.name} has compute capability {target.cc[0]}.{target.cc[1]}, not 9.0")
    if program.real != "float32":
        raise Outside("it accumulates in float64")
    kinds = operand_types(made.left, made.right)
    _require_accuracy(made, kinds, program, insisted)
    rows, batches = prod(sizes[a] for a in made.rows), prod(sizes[a] for a in made.batch)
    places = tuple(place_of(made, s, k, sizes, views) for s, k in zip((made.left, made.right), kinds, strict=True))
    results = tuple(
        replace(r, node=_grouped(made.outputs[r.name], made.column), void=None)
        for r in program.results
        if r.name in made.outputs
    )
    staged, width = _staged(results, made.column, sizes)
    broad = staged and not _by_column(results, made.column)
    plan = tiles_of(kinds, places[1].flat, rows, sizes[made.column], sizes[made.stream], batches, target, broad=broad)
    plan = replace(plan, staged=staged, vector=width > 1)
    firsts = tuple(_first(made, k, places[k], program, dtypes, sizes) for k in range(2))
    scratch = _scratch(made, places, sizes)
    own = tuple(o for o in program.operands if o.number or o.name in _read(made, places))
    whole = Program(
        program.name, made.rows, (made.stream,), (made.column,), own + tuple(o for o, _ in scratch.values()), results,
        (), "float32", title=program.title,
    )  # fmt: skip
    maps = _maps(made, places, plan)
    gemm = Gemm(whole, made.batch, made.rows, made.column, made.stream, plan, maps)
    count, down, over = blocks_of(plan, rows, sizes[made.column], batches)
    blocks = plan.cluster * min(count, target.multiprocessors // plan.cluster)
    rounds = -(-count // max(1, target.multiprocessors // plan.cluster))
    tile = 2 * plan.rows * plan.columns * (plan.chunks + 4) * plan.chunk  # four chunks for the pipeline to fill
    computing = rounds * tile * target.multiprocessors / RATE[STORAGE[kinds[0]]]
    moved = rows * batches * sizes[made.stream] + sizes[made.stream] * sizes[made.column]
    seconds = target.launch + max(computing, STORAGE[kinds[0]] * moved / target.reachable)
    extra = {_merged(made.rows): rows}
    return GemmPlanned(
        gemm, plan, tuple(f for f in firsts if f is not None), scratch, maps, {**sizes, **extra},
        {"tiles": count, "down": down, "over": over, "all_rows": rows}, blocks,
        tuple(_reasons(made, kinds, places, plan, count, blocks)), seconds,
    )  # fmt: skip


def _by_column(results: Sequence[Result], column: str) -> bool:
    """Whether epilogues read more of a column than the sums: with wide tiles, that takes more registers than are."""
    return any(column in n.axes for n in walk(*(r.node for r in results)) if n.op in ("tensor", "index"))


def _staged(results: Sequence[Result], column: str, sizes: Mapping[str, int]) -> tuple[bool, int]:
    """Whether results go by way of shared memory: there is one, of 16 bits; and how many may be written together."""
    width = min(pairs(r, column, sizes[column]) for r in results)
    return len(results) == 1 and results[0].dtype in TYPES and width == 8, width


def _grouped(node: Node, column: str) -> Node:
    """Factors of a row are one factor, computed once a row."""
    args = tuple(_grouped(a, column) for a in node.args)
    if node.op == "mul":
        still = [a for a in args if column not in a.axes]
        if 1 < len(still) < len(args):
            args = (Node("mul", tuple(still)), *(a for a in args if column in a.axes))
    return node if args == node.args else Node(node.op, args, node.attr)


def _require_accuracy(made: Cut, kinds: tuple[str, str], program: Program, insisted: bool) -> None:
    """An operand is rounded where the results are rounded as much anyway, or where it is asked for."""
    rounded = [s for s in (made.left, made.right) if s.format is None]
    if not rounded or insisted:
        return
    if kinds[0] == "float16":
        raise Outside(f"{rounded[0].name} = {short(rounded[0].node)} may be too large for float16")
    wide = [r.name for r in program.results if STORAGE[r.dtype] > 2 and r.name in made.outputs]
    if wide:
        raise Outside(f"{wide[0]} is float32, and {short(rounded[0].node)} would be rounded to {kinds[0]}")


# --- what comes before -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _derived(spec: Spec, stream: str) -> Form:
    from redalg.derive import derive_incremental

    folds = any(n.op == "reduce" for n in walk(*spec.outputs.values()))
    return derive_incremental(spec, axis=stream if folds else None, max_passes=8)


def _first(
    made: Cut, number: int, place: Place, program: Program, dtypes: Mapping[str, Any], sizes: Mapping[str, int]
) -> First | None:
    """The kernel that prepares one operand, or only its states."""
    side, kept = (made.left, made.right)[number], dict(made.given[number])
    if not place.why and not kept:
        return None
    spec = made.made(number, bool(place.why))
    try:
        form = _derived(spec, made.stream)
    except RedalgError as problem:
        raise Outside(f"what comes before the product does not derive: {problem.why}") from problem
    whole = {r.name: r.dtype for r in program.results}
    results = {n: whole.get(n, "float32") for n in kept}
    found: dict[str, View] = {}
    if place.why:
        results[side.name] = place.dtype
        found[side.name] = _padded(made, side, place, sizes)
    return First(number, side.axes, form, {t.name: dtypes[t.name] for t in spec.tensors}, results, found)


def _padded(made: Cut, side: Side, place: Place, sizes: Mapping[str, int]) -> View:
    """An operand's scratch as the kernel that fills it sees it: rows start at multiples of 16 bytes."""
    axes = side.axes
    shape = tuple(sizes[a] for a in (*axes, made.stream))
    pitch = place.strides[-2]
    strides = [pitch * prod(shape[d + 1 : -1]) for d in range(len(axes))]
    return View(shape, (*strides, 1))


def _merged(rows: Sequence[str]) -> str:
    return " ".join(rows)


def _scratch(made: Cut, places: Sequence[Place], sizes: Mapping[str, int]) -> dict[str, tuple[Operand, View]]:
    found = {}
    for number, (side, place) in enumerate(zip((made.left, made.right), places, strict=True)):
        own = side.axes[len(made.batch) :]
        if place.why:
            axes = (*made.batch, _merged(own), made.stream)
            shape = (*(sizes[a] for a in made.batch), prod(sizes[a] for a in own), sizes[made.stream])
            found[side.name] = Operand(side.name, axes, place.dtype), View(shape, place.strides)
        for name in made.given[number]:
            if name in made.states:
                held = tuple(a for a in made.spec.axes if a in made.states[name].axes)
                found[name] = Operand(name, held, "float32"), View.contiguous(tuple(sizes[a] for a in held))
    return found


def _read(made: Cut, places: Sequence[Place]) -> set[str]:
    """Tensors of the call that the product reads."""
    leaves = {n.attr.name for n in walk(*made.outputs.values()) if n.op == "tensor"}
    return leaves | {p.name for p in places if not p.why}


def _maps(made: Cut, places: Sequence[Place], plan: GemmPlan) -> tuple[Map, Map]:
    found = []
    for side, place, length, tile in zip(
        (made.left, made.right), places, (plan.rows, plan.columns), ("left", "right"), strict=True
    ):
        half = 2 if plan.cluster > 1 and plan.shared == ("left" if side is made.left else "right") else 1
        row, outer = _merged(side.axes[len(made.batch) :]), tuple(reversed(made.batch))
        inner = (row, made.stream) if place.flat else (made.stream, row)
        found.append(Map(place.name, (*inner, *outer), 64 if place.flat else length // half, tile, 0, 1))
    return found[0], found[1]


# --- words -----------------------------------------------------------------------------------------------------------


def _reasons(
    made: Cut, kinds: tuple[str, str], places: Sequence[Place], plan: GemmPlan, count: int, blocks: int
) -> list[str]:
    rows = 64 * plan.halves
    pair = f", pairs of blocks share the {plan.shared} operand" if plan.cluster > 1 else ""
    lines = [
        f"tensor cores: the fold {short(made.fold)} is a product of matrices, {plan.teams} warpgroups of {rows} rows "
        f"by {plan.columns} columns, one more warpgroup brings {plan.stages} chunks of {plan.chunk} terms ahead{pair}",
        f"{count} tiles shared out among {blocks // plan.cluster} {'pairs of ' * (plan.cluster > 1)}blocks, "
        f"{plan.group} rows of them before the next columns",
    ]
    for side, place, kind in zip((made.left, made.right), places, kinds, strict=True):
        rounding = "exact" if side.format is not None else f"rounded once to {kind}"
        where = f"prepared before the product, since {place.why}" if place.why else "read in place"
        lines.append(f"{side.name} = {short(side.node)} as {kind}, {rounding}: {where}")
    for name, node in made.states.items():
        lines.append(f"{name} = {short(node)}, a stage that the epilogue reads, kept with it")
    for name, node in made.outputs.items():
        lines.append(f"epilogue: {name} = {short(node)}, on sums in registers")
    if kinds[0] in FLOAT8:
        lines.append(
            "sums of 128 terms are added in float32" if plan.promoted else "sums stay with about 14 bits of mantissa"
        )
    return lines


def result_dtypes(program: Program, wanted: Mapping[str, str]) -> Program:
    """The program with results of these dtypes: states are not rounded to that of the tensors."""

    def kept(r: Result) -> Result:
        narrow = r.dtype in wanted.values() or "float" in r.dtype
        return replace(r, dtype=wanted[r.name]) if r.name in wanted and narrow else r

    return replace(program, results=tuple(kept(r) for r in program.results))
