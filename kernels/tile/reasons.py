"""Where each part of a tensor-core kernel comes from: lines of `run.explain()`, computed from what is printed."""

from __future__ import annotations

from redalg.graph.node import NEG_INF, Node, is_const
from redalg.kernels.ir.tensor_cores import TF32
from redalg.kernels.tile.contractions import NARROW, join_of, share_of
from redalg.kernels.tile.kernel import TensorKernel
from redalg.kernels.tile.match import Class
from redalg.kernels.tile.mma_sync_plan import MmaPlan
from redalg.kernels.tile.plan import Frozen, TensorPlan, WidePlan, positive
from redalg.kernels.tile.top_k import entries
from redalg.source.names import local, plain
from redalg.text.nodes import short


def origins(made: Class, plan: TensorPlan) -> tuple[str, ...]:
    """One line for every choice that the algebra made for the kernel.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> from redalg.kernels.tile.match import classified
    >>> from redalg.kernels.tile.plan import Contracted
    >>> form = ra.derive_incremental(ra.catalog["attention_causal"])
    >>> made = classified(lower(form, dict.fromkeys("QKV", "bfloat16") | {"scale": float}))
    >>> for line in origins(made, TensorPlan(2, 128, 2, Contracted(128), 128, True, True))[1:]:
    ...     print(line)
    factor: scale waits, since max and exp(u + …) are all that reads u; its sign goes to Q
    elements where the condition fails, and those beyond the end, score -oo: every fold takes that for its identity
    blocks of j up to i_last + 1, by the condition's extremes over a tile; others are not loaded
    blocks where j_last <= i_first are not masked
    sum_exp: each thread keeps its share to the end, since only its own update reads it, and linearly
    sums: weights times V, by tensor cores; rescale multiplies them when the anchor moves
    """
    kernel = TensorKernel(made, plan)
    rows, who = (8 * plan.held, "warp") if isinstance(plan, MmaPlan) else (64, "warpgroup")
    tile = f"{rows} rows of {made.row} by {plan.columns} of {made.stream} a {who}"
    found = [f"S holds {short(made.scores)}, {tile}: all that varies along both"]
    found += _factor(made, plan)
    found += _missing(made)
    b = kernel.bounds
    reach = [f"from {b.low}"] * bool(b.low) + [f"up to {b.high}"] * bool(b.high)
    if reach:
        what = f"blocks of {made.stream} {' '.join(reach)}"
        found.append(f"{what}, by the condition's extremes over a tile; others are not loaded")
    if b.whole not in ("True", "False"):
        found.append(f"blocks where {b.whole} are not masked")
    for part in sorted(kernel.tile.deferred):
        why = "since only its own update reads it, and linearly"
        found.append(f"{local(part)}: each thread keeps its share to the end, {why}")
    found += _columns(made, kernel)
    found += _lists(kernel)
    found += _sums(made, kernel)
    if isinstance(plan.anchor, Frozen):
        found.append(
            f"{kernel.anchor} is frozen: results have degree (0, 0) in it; {kernel.tested} is tested at the end"
        )
    if plan.splits > 1:
        found.append(f"{made.stream} in {plan.splits} splits; a second kernel merges their states by the derived merge")
    return tuple(map(plain, found))


def conversions(made: Class) -> tuple[str, ...]:
    """What becomes of operands that tensor cores do not multiply as they are, and why mma.sync multiplies them."""
    if not made.converted:
        return ()
    if made.multiplied == TF32:
        return (
            "float32 is rounded to tf32 before it multiplies, weights included: a relative 2^-11 each, sums in float32",
            "wgmma takes no tf32 whose columns lie side by side, as V's do: mma.sync reads it in the order of weights",
        )
    leaves = (made.left, made.right, *([made.values] if made.values is not None else []))
    kinds = (made.multiplied, made.multiplied, made.dtype)
    found = {}
    for leaf, stored, kind in zip(leaves, made.stored, kinds, strict=False):
        if stored in NARROW:
            found[leaf.attr.name] = f"{leaf.attr.name} is {stored}, multiplied as {kind}, which holds it exactly"
    weights = f"; weights are rounded to {made.dtype}" if made.values is not None else ""
    return (
        "; ".join(found.values()) + weights,
        "8 bits become 16 on their way to registers, and wgmma reads shared memory: products are mma.sync",
    )


def _factor(made: Class, plan: TensorPlan) -> list[str]:
    if made.scale is None or is_const(made.scale, 1):
        return []
    turning = not plan.in_registers and not isinstance(plan, MmaPlan)
    sign = "" if positive(made) else f"; its sign goes to {'S' if turning else made.left.attr.name}"
    return [f"factor: {short(made.scale)} waits, since max and exp(u + …) are all that reads u{sign}"]


def _missing(made: Class) -> list[str]:
    where = "elements beyond the end"
    if made.condition is not None:
        where = "elements where the condition fails, and those beyond the end,"
    score = _word(made.missing)
    found = [f"{where} score {score}: every fold takes that for its identity"]
    if made.guarded:
        names = ", ".join(sorted({n.removesuffix("_b") for n in made.guarded}))
        found = [f"{where} score {score}; {names} would not take that for the identity and is told which there are"]
    return found


def _columns(made: Class, kernel: TensorKernel) -> list[str]:
    columns = kernel.tile.columns
    if not columns.voted:
        return []
    after = "; extrema pass over what it excludes" if columns.passed_over else ""
    return [f"the condition does not vary along {made.row}: a warp asks once for every {made.stream}, in bits{after}"]


def _lists(kernel: TensorKernel) -> list[str]:
    order = "NaN before all numbers, the lowest position among equals"
    top_k = kernel.tile.top_k
    return [
        f"{', '.join(top_k.names(f))}: the first {entries(f)} of each thread's, merged at the end; {order}"
        for f in top_k.folds
    ]


def _word(missing: Node) -> str:
    return "-oo" if missing is NEG_INF else "0" if missing.op == "const" else "oo"


def _sums(made: Class, kernel: TensorKernel) -> list[str]:
    if made.values is None:
        return []
    moved = share_of(join_of(kernel.steps)) is not None
    ends = "; rescale multiplies them when the anchor moves" if moved else "; nothing rescales them"
    found = [f"sums: weights times {made.values.attr.name}, by tensor cores{ends}"]
    if isinstance(kernel.plan, WidePlan):
        found.append(
            f"columns: {kernel.plan.value_columns} are too many for one warpgroup; two trade maxima, sums and weights"
        )
        if kernel.plan.common:
            found.append(f"{made.values.attr.name} is loaded once: it is what scores are made of, and what is summed")
    return found
