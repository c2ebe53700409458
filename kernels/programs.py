"""The passes between a plan and a program, with what runs any pass.

The pages for GPUs, `redalg.kernels.pipeline`, and for the CPU, `redalg.kernels.cpu_programs`, go on from here, and
neither loads what the other one prints with.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from redalg.errors import RedalgError
from redalg.kernels.ir.check import check
from redalg.kernels.ir.one_hot import gathered
from redalg.kernels.ir.program import Program
from redalg.kernels.lower import program as lowering
from redalg.kernels.lower.draft import ProgramDraft
from redalg.kernels.lower.tilings import MOST_PARTS, tilings
from redalg.kernels.lower.unrolled import Tile, Whole, cut_sizes
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
NAMES = tuple(dict.fromkeys(p.name for passes in (TILE_PROGRAM, ROW_PROGRAM) for p in passes))


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
    return lowered_by(ProgramDraft(form, dtypes, across), LOWER, named(dump_after, NAMES))


def lowered_by(draft: ProgramDraft, passes: Sequence[Pass], dump: Dump = QUIET) -> Program:
    """What the passes make of a draft."""
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
        return lowered_by(draft, passes, dump)
    key = (
        form,
        passes is ROW_PROGRAM,
        tuple(sorted((n, d if isinstance(d, type) else str(d)) for n, d in dtypes.items())),
        tuple(tiles.items()),
    )
    found = _PROGRAMS.get(key)
    return found if found is not None else _PROGRAMS.setdefault(key, lowered_by(draft, passes))


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
