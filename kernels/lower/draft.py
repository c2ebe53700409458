"""What the passes of `redalg.kernels.pipeline` read and write on the way from a form to a `Program`."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redalg.graph.node import Node
from redalg.graph.plan import Plan
from redalg.kernels.ir.axis_roles import Roles
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Fold, Join, Loop, Operand, Program, Step
from redalg.kernels.lower.unrolled import Tile
from redalg.kernels.schedule.choose import Override
from redalg.kernels.schedule.target import Target
from redalg.numeric.dtypes import Flow
from redalg.text.nodes import short

if TYPE_CHECKING:
    from redalg.form import Form


@dataclass(frozen=True)
class Among:
    """Where a part of a call stands. ``known``: plans of parts, which several ways to part a call have in common;
    ``taken``: names of scratch that kernels around it have."""

    known: dict[Any, Any] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Call:
    """A kind of call, as it is asked for: dtypes and strides of its arrays, the device, and what ``compile`` was told.

    ``launches``: 1 or 2 for a GEMM and what prepares an operand of it, 0 for what the model finds faster,
    None for the default of `redalg.kernels.gemm.launches`. ``library``: whose arrays they are, where a product may be
    left to what that library multiplies by. ``alike``: results of elements lie as operands with their axes do.
    ``results``: of a part of a call, the dtypes of its results, and how they lie (`redalg.kernels.partitioned`);
    ``rounded``: the type of 16 bits to which the whole call's results are rounded, if that is one; ``among``: what is
    known of the other parts.
    """

    form: Form
    dtypes: Mapping[str, Any]
    views: Mapping[str, View]
    target: Target
    deterministic: bool = False
    schedule: Override = None
    launches: int | None = None
    library: str = ""
    alike: bool = False
    results: Mapping[str, tuple[str, View]] = field(default_factory=dict)
    rounded: str = ""
    among: Among = field(default_factory=Among, compare=False, repr=False)


@dataclass
class ProgramDraft:
    """A program under way. Each field is written by one pass and read by later ones.

    ``across``: axes that would number rows and become columns; ``tiles``: how much of such an axis a thread holds as
    single values; ``stored``: dtypes in which operands are kept, where
    these are not their own (bfloat16 on a CPU).
    """

    form: Form
    dtypes: Mapping[str, Any]
    across: Container[str] = ()
    stored: Mapping[str, str] = field(default_factory=dict)
    tiles: Mapping[str, Tile] = field(default_factory=dict)
    plan: Plan | None = None
    masked: Mapping[str, Node] = field(default_factory=dict)  # output -> where it is of no element
    flows: Mapping[str, Flow] = field(default_factory=dict)  # of outputs
    operands: tuple[Operand, ...] = ()
    real: str = ""
    roles: Roles | None = None
    program: Program | None = None

    def text(self) -> str:
        """The draft in lines, as ``dump_after=`` prints it."""
        if self.program is not None:
            return program_text(self.program)
        lines = [f"output {o.name}: {short(o.guarded)}" for o in self.plan.outputs] if self.plan is not None else []
        lines += [f"operand {o.name}: {o.dtype}" for o in self.operands]
        lines += [f"reals are {self.real}"] if self.real else []
        if self.roles is not None:
            lines.append(_roles(self.roles.rows, self.roles.stream, self.roles.columns))
        return "\n".join(lines)


def program_text(program: Program) -> str:
    """A program in lines: what is read, the steps of every pass, what is written."""
    lines = [_roles(program.rows, program.stream, program.columns)]
    lines += [f"operand {o.name}[{','.join(o.axes)}]: {o.dtype}" for o in program.operands]
    for number, p in enumerate(program.passes, 1):
        lines.append(f"pass {number}: {', '.join(f'{x.name} from {x.identity!r}' for x in p.parts)}")
        for name, steps in (("lift", p.lift), ("combine", p.combine), ("update", p.update)):
            lines += [f"  {name}: {line}" for step in steps for line in _step(step)]
        lines += [f"  export {let.name} = {short(let.node)}" for let in p.exports]
    return "\n".join([*lines, *(f"result {r.name}: {r.dtype} = {short(r.node)}" for r in program.results)])


def _roles(rows: tuple[str, ...], stream: tuple[str, ...], columns: tuple[str, ...]) -> str:
    parts = (("rows", rows), ("stream", stream), ("columns", columns))
    return "; ".join(f"{what} {', '.join(axes) or 'none'}" for what, axes in parts)


def _step(step: Step) -> Iterator[str]:
    if isinstance(step, Loop):
        yield from (_fold(f) for f in step.folds)
    elif isinstance(step, Join):
        both = ", ".join(map(short, (*step.a, *step.b)))
        yield f"{', '.join(step.names)} = {step.kind} of {both}"
    else:
        yield f"{step.name} = {short(step.node)}"


def _fold(f: Fold) -> str:
    return f"{', '.join(f.names)} = {f.kind} over elements of {', '.join(map(short, f.bodies))}"
