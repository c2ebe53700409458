"""Tile programs of cascades from a class and its tiles to a module."""

from __future__ import annotations

from redalg.kernels.ir.program import Module, Step
from redalg.kernels.tile.frozen_max import frozen_steps
from redalg.kernels.tile.kernel import TensorKernel
from redalg.kernels.tile.level.cascade import derived
from redalg.kernels.tile.level.cascade_long import LongSkeleton
from redalg.kernels.tile.level.cascade_mma import LongMmaSkeleton, MmaSkeleton
from redalg.kernels.tile.level.cascade_wgmma import Skeleton
from redalg.kernels.tile.level.cascade_wide import WideSkeleton
from redalg.kernels.tile.level.check import check
from redalg.kernels.tile.level.program import TileProgram
from redalg.kernels.tile.level.schedule import cleared_late, overlapped, parted, waited
from redalg.kernels.tile.match import Class
from redalg.kernels.tile.mma_sync_plan import MmaPlan
from redalg.kernels.tile.plan import Frozen, TensorPlan, WidePlan


def operations(made: Class, plan: TensorPlan) -> TileProgram:
    steps: tuple[Step, ...] = frozen_steps(made)[0] if isinstance(plan.anchor, Frozen) else made.walk.update
    return derived(made, plan, steps)


def in_order(program: TileProgram, plan: TensorPlan) -> TileProgram:
    if plan.long or isinstance(plan, MmaPlan):
        return program
    body = cleared_late(program.bodies["all"])
    return program.with_body(body if isinstance(plan, WidePlan) else overlapped(body))


def is_together(plan: TensorPlan) -> bool:
    """Whether one barrier, or one arrival, gives back the stages of all tiles of a block."""
    return isinstance(plan, MmaPlan | WidePlan)


def in_roles(program: TileProgram, plan: TensorPlan) -> TileProgram:
    if isinstance(plan, MmaPlan):
        return program
    return parted(program, plan.consumers > 1 and not (plan.long or isinstance(plan, WidePlan)), is_together(plan))


def scheduled(made: Class, plan: TensorPlan) -> TileProgram:
    """The tile program of a class by these tiles, after all passes; each keeps its laws."""
    program = operations(made, plan)
    check(program)
    for change in (in_order, lambda p, plan: waited(p, is_together(plan)), in_roles):
        program = change(program, plan)
        check(program)
    return program


def printed(made: Class, plan: TensorPlan, program: TileProgram | None) -> Module:
    """The kernel's module; its parameters of role "maps" and "fixed" are `TensorPlan`'s."""
    kernel, tiles = TensorKernel(made, plan), scheduled(made, plan) if program is None else program
    if isinstance(plan, MmaPlan):
        (LongMmaSkeleton if plan.long else MmaSkeleton)(kernel, tiles).write()
    else:
        (LongSkeleton if plan.long else WideSkeleton if kernel.wide else Skeleton)(kernel, tiles).write()
    return kernel.module()


def emit_tensor(made: Class, plan: TensorPlan) -> Module:
    """The module of a class by these tiles."""
    return printed(made, plan, None)


def emit_merge(made: Class, plan: TensorPlan) -> Module:
    """The module of the kernel that merges the states of splits, a thread for every row and column."""
    return TensorKernel(made, plan).merging()
