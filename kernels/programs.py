"""The passes between a plan and a program, and from a program to functions on the CPU, with what runs any pass.

The page for GPUs, `redalg.kernels.pipeline`, goes on from here; this one loads neither Numba nor what prints for GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from redalg.errors import RedalgError
from redalg.kernels.cpu import plan as cpu
from redalg.kernels.cpu.columns import supported
from redalg.kernels.cpu.plan import CpuDraft, Kind
from redalg.kernels.cpu.schedule import CpuModule, CpuSchedule
from redalg.kernels.ir.check import check
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.one_hot import gathered
from redalg.kernels.ir.program import Program
from redalg.kernels.ir.schedule import Layout
from redalg.kernels.lower import program as lowering
from redalg.kernels.lower.draft import ProgramDraft
from redalg.kernels.lower.program import COMPENSATED
from redalg.kernels.lower.tilings import MOST_PARTS, tilings
from redalg.kernels.lower.unrolled import Tile, Whole, cut_sizes
from redalg.kernels.lower.watched import watched
from redalg.kernels.schedule.sampling import sampled

if TYPE_CHECKING:
    from redalg.form import Form

WHERE = "redalg.kernels.pipeline"


class Draft(Protocol):
    """What passes of one list read and write."""

    def text(self) -> str: ...


class Pass(NamedTuple):
    """A step on the way to a kernel: its name, what it does in a line, the function."""

    name: str
    does: str
    run: Callable[[Any], None]


def rewriting(rewrite: Callable[[Program], Program]) -> Callable[[ProgramDraft], None]:
    """A pass from a function of programs."""

    def run(draft: ProgramDraft) -> None:
        assert draft.program is not None
        draft.program = rewrite(draft.program)

    return run


def _columns_of_rows(draft: CpuDraft) -> None:
    """Rows side by side become columns of a program lowered anew, where every fold can be walked so."""
    paired = draft.form.accuracy == COMPENSATED  # sums of such programs are arrays, which are not held as pairs
    found = cpu_program(draft.form, draft.kind, draft.across) if draft.across and not paired else draft.program
    if not (draft.across and paired) and supported(found):
        draft.program = found
    else:
        draft.across, draft.turned = (), False


# --- the lists ------------------------------------------------------------------------------------------------------

LOWER = (
    Pass("masked slots", "slots that say where a row has no valid element", lowering.masked_slots),
    Pass("first positions", "no slots for positions that are the first ones anyway", lowering.first_positions),
    Pass("align", "what is read along other axes than it is held in: slots of their own", lowering.aligned_plan),
    Pass("types", "dtypes of operands, of results, and of the reals between them", lowering.typed),
    Pass("axes", "which axes number rows, are streamed over, or are held in a row's state", lowering.assigned),
    Pass("lower", "nodes as steps: lift a tile, combine states, update, results", lowering.lowered),
)
UNROLL = Pass("unroll", "columns as single values, where a thread holds a tile of them", lowering.unroll)
GATHER = Pass("gather", "sums of a single term read that term where it lies", rewriting(gathered))
COMPENSATE = Pass("compensate", 'sums as pairs, where accuracy="compensated" asks for that', lowering.compensate)
SAMPLE = Pass("sample", "anchors that only centre sums, from a part of a tile", rewriting(sampled))
TILE_PROGRAM = (*LOWER, SAMPLE)
ROW_PROGRAM = (*LOWER, UNROLL, GATHER, SAMPLE, COMPENSATE)
STORED = Pass("stored", "operands in the dtypes they are kept in", lowering.stored)
WATCH = Pass("watch", "sums and products that tell whether a row left the range of the reals", rewriting(watched))
CPU_COLUMN_PROGRAM = (*LOWER, STORED, WATCH)
CPU_PROGRAM = (*LOWER, GATHER, STORED, COMPENSATE, WATCH)

CPU = (
    Pass("side by side", "rows that are walked together, where the stream is not contiguous", cpu.side_by_side),
    Pass("turned", "short rows that are walked together once blocks of them are transposed", cpu.turned),
    Pass("columns", "such rows as columns of a program lowered anew: CPU_COLUMN_PROGRAM", _columns_of_rows),
    Pass("layout", "what strides allow a kernel to assume", cpu.placed),
    Pass("schedule", "rows as one tile, in tiles, or in splits", cpu.scheduled),
    Pass("past caches", "whether results go past the caches", cpu.streamed_out),
    Pass("print", "the functions' source", cpu.sourced),
)
NAMES = tuple(dict.fromkeys(p.name for passes in (TILE_PROGRAM, ROW_PROGRAM, CPU_PROGRAM, CPU) for p in passes))
CPU_NAMES = tuple(dict.fromkeys(p.name for passes in (CPU_PROGRAM, CPU) for p in passes))


# --- running them ----------------------------------------------------------------------------------------------------


class BrokenPass(RedalgError):
    """A pass left a program or a draft that breaks an invariant: an error of redalg, never of the spec."""


@dataclass
class Dump:
    """After which pass the draft is printed; the same text once."""

    after: str | None
    last: str = ""

    def __call__(self, name: str, draft: Draft) -> None:
        if name == self.after and (text := draft.text()) != self.last:
            self.last = text
            print(text)


QUIET = Dump(None)
Dumps = Callable[[str, Any], None]


def run_passes(passes: Sequence[Pass], draft: Any, dump: Dumps = QUIET, until: str = "", since: str = "") -> Any:
    """The draft after the passes, those before `until` or from `since` on."""
    names = [p.name for p in passes]
    first, last = names.index(since) if since else 0, names.index(until) if until else len(names)
    for step in passes[first:last]:
        known = [id(p) for p in _programs(draft)]
        step.run(draft)
        for program in _programs(draft):
            if id(program) not in known:
                _require_sound(partial(check, program), step.name)
        if hasattr(draft, "check"):
            _require_sound(draft.check, step.name)
        dump(step.name, draft)
    return draft


def _programs(draft: Any) -> Iterator[Program]:
    found = (getattr(draft, "program", None), getattr(draft, "printed", None))
    return (p for p in found if p is not None)


def _require_sound(checking: Callable[[], object], name: str) -> None:
    try:
        checking()
    except RedalgError as broken:
        raise BrokenPass(f"{broken.what}, after pass {name!r}", broken.where, broken.why, broken.fix) from broken


def named(dump_after: str | None, names: Sequence[str], where: str = WHERE) -> Dump:
    """What prints after a pass. Raises: RedalgError for one that is none of these."""
    if dump_after is not None and dump_after not in names:
        like = next(iter(get_close_matches(str(dump_after), names, 1, 0.0)))
        raise RedalgError(
            f"dump_after={dump_after!r}", where, f"the passes are {', '.join(names)}", f"dump_after={like!r}"
        )
    return Dump(dump_after)


# --- programs --------------------------------------------------------------------------------------------------------


def lower(form: Form, dtypes: Mapping[str, Any], across: Container[str] = (), dump_after: str | None = None) -> Program:
    """The program of a form. `dtypes`: tensor -> name of a dtype, or a Python type for a number passed by value.

    `across`: axes that would number rows and become columns, so that one walk over the stream serves all of them.

    Raises: RedalgError for complex tensors, which kernels do not compute with; BrokenPass.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.catalog["logsumexp"])
    >>> program = lower(form, {"x": "float32"}, dump_after="axes")
    output y: log(sum_exp[i]) + max_x[i]
    operand x: float32
    reals are float32
    rows i; stream j; columns none
    >>> [part.name for part in program.passes[0].parts]
    ['max_x', 'sum_exp']
    """
    return _lowered(ProgramDraft(form, dtypes, across), LOWER, named(dump_after, NAMES))


def cpu_program(form: Form, kind: Kind, across: tuple[str, ...] = (), dump_after: str | None = None) -> Program:
    """The program of calls of a kind on the CPU; `across`: rows that become columns.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.catalog["softmax"])
    >>> made = cpu_program(form, Kind((("x", "bfloat16"),), (("x", "float32"),)))
    >>> made.operands[0].dtype, made.results[0].dtype
    ('float32', 'bfloat16')
    """
    draft = ProgramDraft(form, dict(kind.dtypes), across, dict(kind.stored))
    return _lowered(draft, CPU_COLUMN_PROGRAM if across else CPU_PROGRAM, named(dump_after, CPU_NAMES))


def _lowered(draft: ProgramDraft, passes: Sequence[Pass], dump: Dump = QUIET) -> Program:
    program = run_passes(passes, draft, dump).program
    assert isinstance(program, Program)
    return program


_PROGRAMS: dict[Any, Program] = {}


def program_of(
    form: Form,
    dtypes: Mapping[str, Any],
    passes: Sequence[Pass],
    dump: Dump = QUIET,
    tiles: Mapping[str, Tile] | None = None,
) -> Program:
    """One program per form, dtypes, list and tiles of its state: schedules are remembered by it."""
    tiles = tiles or {}
    draft = ProgramDraft(form, dtypes, tuple(tiles), tiles=tiles)
    if dump.after is not None and dump.after in [p.name for p in passes]:
        return _lowered(draft, passes, dump)
    key = (
        form,
        passes is ROW_PROGRAM,
        tuple(sorted((n, d if isinstance(d, type) else str(d)) for n, d in dtypes.items())),
        tuple(tiles.items()),
    )
    found = _PROGRAMS.get(key)
    return found if found is not None else _PROGRAMS.setdefault(key, _lowered(draft, passes))


def tiled_programs(
    form: Form, dtypes: Mapping[str, Any], program: Program, sizes: Mapping[str, int], columns_only: bool = False
) -> Iterator[tuple[Program, dict[str, int]]]:
    """Programs whose states are tiles of single values, and the lengths of their axes. `columns_only`: axes that number
    rows stay what they are."""
    for tiles in tilings(program, sizes, columns_only):
        with suppress(Whole):
            made = program_of(form, dtypes, ROW_PROGRAM, tiles=tiles)
            if sum(len(p.parts) for p in made.passes) <= MOST_PARTS:
                yield made, {**sizes, **cut_sizes(tiles)}
                if not cut_sizes(tiles):  # a state that is held whole needs no tiles
                    return


def usual_dtypes(form: Form, real: str) -> dict[str, Any]:
    dtypes: dict[str, Any] = {}
    for t in form.spec.tensors:
        word = next((w for w in ("bool", "integer") if w in t.domain), "")
        dtypes[t.name] = {"bool": "bool", "integer": "int64"}.get(word, real) if t.axes else float
    return dtypes


# --- on a CPU --------------------------------------------------------------------------------------------------------


def plan_cpu(
    form: Form,
    kind: Kind,
    program: Program,
    sizes: Mapping[str, int],
    views: Mapping[str, View],
    asked: str | None = None,
    dump_after: str | None = None,
) -> CpuDraft:
    """What runs where arrays lie like this, not yet printed: rows side by side become columns, long rows are split."""
    draft = CpuDraft(form, kind, program, sizes, views, asked)
    found = run_passes(CPU, draft, named(dump_after, CPU_NAMES), until="print")
    assert isinstance(found, CpuDraft)
    return found


def print_cpu(draft: CpuDraft, dump_after: str | None = None) -> CpuModule:
    """The functions of a plan."""
    module = run_passes(CPU, draft, named(dump_after, CPU_NAMES), since="print").module
    assert isinstance(module, CpuModule)
    return module


def typical_cpu(form: Form) -> CpuModule:
    """The functions for float64 arrays of moderate size."""
    kind = Kind(tuple(usual_dtypes(form, "float64").items()))
    schedule = CpuSchedule(resident=True)
    return print_cpu(CpuDraft(form, kind, cpu_program(form, kind), layout=Layout(), schedule=schedule))
