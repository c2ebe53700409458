"""Whether what comes before a matrix product runs inside the product's kernel, and with which schedule.

It can where one operand is prepared, by a schedule that 128 threads can run, and it does not where that is predicted to
take longer than the kernels apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from redalg.kernels.gemm.kernel import Gemm
from redalg.kernels.gemm.plan import First
from redalg.kernels.gemm.prologue import GROUP, Inside, Prologue
from redalg.kernels.ir.layouts import View, Walk
from redalg.kernels.ir.program import Program
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.schedule.case import Case, exact, registers
from redalg.kernels.schedule.choose import micro, rank, words
from redalg.kernels.schedule.cost import estimate
from redalg.kernels.schedule.legality import refusals
from redalg.kernels.schedule.target import Target
from redalg.kernels.tile.match import Outside

# Launches of a call that says nothing of them. With 1, the model decides where both are legal. On an H200 one launch
# took as long as two where float8 is prepared, and 4 % longer for LayerNorm and RMSNorm
# (benchmarks/records/gpu_attention.md).
LAUNCHES = 2
REGISTERS = 160  # of the 168 a thread has before they are given from the producer to the consumers
CLOSE = 1.1  # predicted times that differ by less do not tell which way is faster


@dataclass(frozen=True)
class Prepared:
    """What would be launched before the product: its program, as it is chosen for and as it is printed, its own
    schedule, and the seconds that is predicted."""

    first: First
    program: Program
    printed: Program
    walk: Walk
    schedule: Schedule
    seconds: float


def inside(
    gemm: Gemm, made: Prepared, sizes: Mapping[str, int], target: Target, deterministic: bool, insisted: bool
) -> tuple[Inside, float, str]:
    """How it runs in the product's kernel, the seconds that is predicted to take, and a line for `explain`.

    Raises: Outside, with the reason why it is a launch of its own.
    """
    program, first = made.program, made.first
    if program.columns or program.real != "float32":
        raise Outside("its state holds arrays along columns" if program.columns else "it computes in float64")
    case = Case.of(program, sizes, made.walk, _busy(target, gemm.plan.consumers + 1))
    schedule = _schedule(case, made, deterministic)
    shapes = {r.name: tuple(sizes[a] for a in r.axes) for r in program.results}
    pitches = {n: (first.views.get(n) or View.contiguous(shape)).strides for n, shape in shapes.items()}
    rows = prod(sizes[a] for a in program.rows)
    found = Inside(
        made.printed,
        schedule,
        made.walk.layout(schedule.vector),
        first.side,
        pitches,
        rows,
        program.rows == first.axes,
    )
    left = target.most_shared - gemm.plan.size
    if (need := Prologue(found, gemm.plan.consumers + 1).shared) > left:
        raise Outside(f"its tables take {need} bytes of shared memory, and tiles leave {left}")
    seconds = estimate(case, schedule).seconds - target.launch
    if not (deterministic or insisted) and seconds > CLOSE * made.seconds:
        raise Outside(
            f"{micro(seconds)} are predicted inside the product's kernel, and {micro(made.seconds)} before it"
        )
    line = f"fused prologue: all warpgroups first prepare rows, {words(schedule)}, predicted {micro(seconds)}; "
    return found, seconds, line + f"a tile waits until {'its' if found.ordered else 'all'} rows are counted as finished"


def _busy(target: Target, warpgroups: int) -> Target:
    """The device with as many threads as the product's kernel has, and the registers each of them has."""
    return target.having(threads=GROUP * warpgroups)


def _schedule(case: Case, made: Prepared, deterministic: bool) -> Schedule:
    """The schedule of its own if 128 threads can run it, or what is predicted to be faster here.

    `deterministic`: the same additions in one launch and in two, whatever the number of rows. Raises: Outside.
    """
    own = _refitted(case, made.schedule)
    found = [own] if own is not None else []
    if not deterministic:
        found += [s for s, _ in rank(case) if _fits(case, s)]
    if not found:
        raise Outside(f"no schedule of {GROUP} threads runs it: its own is {made.schedule}")
    return min(dict.fromkeys(found), key=lambda s: estimate(case, s).seconds)


def _refitted(case: Case, s: Schedule) -> Schedule | None:
    """The schedule with as many rows as fill a warpgroup: no row is computed otherwise for that."""
    if s.threads > GROUP or s.column and s.block != GROUP:
        return None
    s = replace(s, rows=GROUP // s.threads)
    s = replace(s, exact=exact(case.work, s))
    return s if _fits(case, s) else None


def _fits(case: Case, s: Schedule) -> bool:
    """Whether a warpgroup runs it, one group of rows after another, which come from where they lie in memory."""
    alone = s.block == GROUP and s.blocks_per_row == s.coarsen == 1 and not (s.persistent or s.staged)
    return alone and registers(case, s) <= REGISTERS and next(refusals(case, s), None) is None
