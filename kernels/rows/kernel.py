"""A program and a schedule as one numba.cuda kernel: readable Python, printed step by step from the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from redalg.graph.node import COMPARISONS, Node, is_inverse, leaves, walk
from redalg.graph.operators import Position, TopK
from redalg.graph.plan import COUNT
from redalg.kernels.code.coarsen import SIDE, coarsened
from redalg.kernels.code.dead_code import called, eliminated
from redalg.kernels.code.imports import imports
from redalg.kernels.code.scalars import Scalars
from redalg.kernels.code.text import definitions, finished
from redalg.kernels.ir.kinds import program_kinds
from redalg.kernels.ir.layouts import steps_nodes
from redalg.kernels.ir.one_hot import one_hot_of
from redalg.kernels.ir.program import Loop, Module, Param, Pass, Program, renamed
from redalg.kernels.ir.schedule import ALONE, Layout, Neighbours, Schedule
from redalg.kernels.rows import comments
from redalg.kernels.rows.access import Access, tensor_leaves
from redalg.kernels.rows.anchoring import Anchoring
from redalg.kernels.rows.columns import ColumnRows
from redalg.kernels.rows.element import Elements
from redalg.kernels.rows.fold import Folding
from redalg.kernels.rows.group import MANY, Group
from redalg.kernels.rows.kept import Kept, KeptPrefetch, can_prefetch
from redalg.kernels.rows.peel import Peel
from redalg.kernels.rows.prefetch import Prefetch
from redalg.kernels.rows.results import Results
from redalg.kernels.rows.staged_groups import StagedGroups
from redalg.kernels.rows.staging import Staging
from redalg.kernels.rows.steps import StepPrinter
from redalg.kernels.rows.sums import Sums
from redalg.kernels.rows.turn import Turn
from redalg.kernels.rows.watch import Marks
from redalg.kernels.schedule.cost_terms import rounds_elements
from redalg.kernels.schedule.sampling import most_together, together
from redalg.source.builder import Builder, said
from redalg.source.names import axis_name, local, result_name
from redalg.source.statements import Block, Function, parameters, reads


def emit(program: Program, schedule: Schedule, layout: Layout, neighbours: Neighbours = ALONE) -> Module:
    """The kernel's source, its entry and its arguments. `neighbours`: what is launched before and behind it.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> form = ra.derive_incremental(ra.catalog["logsumexp"])
    >>> module = emit(lower(form, {"x": "float32"}), Schedule(threads=32, rows=4, tile=4), Layout())
    >>> [p.name for p in module.params if p.role in ("operand", "result")]
    ['x', 'y']
    """
    return Kernel(program, schedule, layout, neighbours).module()


class Kernel:
    """What the printers of one kernel share: text, addresses, kinds, and the values known per row."""

    def __init__(self, program: Program, schedule: Schedule, layout: Layout, neighbours: Neighbours = ALONE) -> None:
        self.program, self.schedule, self.layout, self.neighbours = program, schedule, layout, neighbours
        self.access = self.addresses()
        self.real = self.access.real
        self.kinds = program_kinds(program)
        self.out = Builder()
        self.functions: dict[str, Function] = {}
        self.helpers: set[str] = set()
        self.constants: dict[str, int] = {}
        self.prefetch = Prefetch(self)
        self.peel = Peel(self)
        kept = Kept(self)
        self.kept = KeptPrefetch(self) if can_prefetch(self, kept) else kept
        self.turn = Turn(self)
        self.sums = Sums(self)
        self.staging: Staging = StagedGroups(self) if schedule.staged and schedule.persistent else Staging(self)
        elements, folding = self.parts()
        self.elements, self.folding = elements(self), folding(self)
        self.group = Group(self)
        self.results = self.writer()
        self.lists = {part.name: part.top for p in program.passes for part in p.parts if part.top}
        bounded = frozenset(n + end for n in program.attained for end in ("", "_b", "_new"))
        self.row: Scalars = Scalars(
            self.real, self.kinds, self.elements.row_leaf, self.access.size, bounded=bounded, names=self.quick
        )

    # --- the module --------------------------------------------------------------------------------------------------

    approximates = True  # whether functions of 16-bit elements may be the quicker ones of the target

    @cached_property
    def quick(self) -> dict[str, str]:
        """Functions that take the place of others (`redalg.kernels.code.scalars.Scalars`)."""
        program = self.program
        if not self.approximates:
            return {}
        # What a reciprocal and its rest cost, about two quotients do.
        shared = {"/shared": "quotient"} if self.schedule.tile >= SHARED else {}
        return self.divisions | shared | fast_names(program) | common_roots(program)

    @cached_property
    def divisions(self) -> dict[str, str]:
        """The same of divisions alone, by counts and by roots."""
        return branchless(self.program) if self.approximates else {}

    def parts(self) -> tuple[type[Elements], type[Folding]]:
        """The printers of tiles and of walks over them."""
        return Elements, Folding

    def addresses(self) -> Access:
        return Access(self.program, self.schedule, self.layout)

    def writer(self) -> Results:
        return Results(self)

    def column_rows(self) -> ColumnRows:
        """The printer of rows whose state holds arrays along columns."""
        return ColumnRows(self)

    def module(self) -> Module:
        if self.neighbours.behind:
            self.comment("The kernel behind this one may begin: it reads nothing of what this one writes.")
            self.out("kernel_behind_launch()")
        self.sums.begin()
        if self.program.summed:
            self.elements.of_all_rows()
        with self._groups():
            self.one_group()
        self.sums.write()
        if self.neighbours.before:
            self.comment("Until the kernel before this one has ended, too: what comes next waits for this one alone.")
            self.out("kernel_before_wait()")
        return self._finished()

    def one_group(self) -> None:
        """Everything from where a row lies to its results, for the rows that a block has at a time."""
        self._where_am_i()
        self.group.begin()
        self.write()
        self.group.leave(self.schedule.persistent)

    @contextmanager
    def _groups(self) -> Iterator[None]:
        """The loop of a block over the groups of rows, where the grid has fewer blocks than there are groups."""
        s, out = self.schedule, self.out
        if not s.persistent:
            yield
            return
        parts = s.cluster * s.split
        rows = self.total
        self.group.begin_persistent()
        out(f"group = i64(cuda.blockIdx.x){f' // {parts}' if parts > 1 else ''}")
        groups = f"({rows} + {s.rows_per_block - 1}) // {s.rows_per_block}" if s.rows_per_block > 1 else rows
        step = f"i64(cuda.gridDim.x){f' // {parts}' if parts > 1 else ''}"
        if s.prefetch_distance:
            out(f"group_stride = {step}", f"groups = {groups}")
            step, groups = "group_stride", "groups"
        if s.prefetch:
            self.prefetch.begin(step, f"{{}} < {groups}")
        self.staging.first(f"{{}} < {groups}")
        self.kept.first(f"{{}} < {groups}")
        turns = s.staged or self.kept.prefetches or s.prefetch and not s.prefetch_distance
        with out.block(f"while group < {groups}:"):
            if turns:
                out(f"next_group = group + {step}", f"has_next = next_group < {groups}")
            yield
            self.prefetch.leave()
            self.kept.after()
            out(f"group {'= next_group' if turns else f'+= {step}'}")

    def write(self) -> None:
        """Everything a row takes, from its first element to its results."""
        if self.program.passes:
            for number, p in enumerate(self.program.passes):
                self._pass(p, number == len(self.program.passes) - 1)
        else:
            self.elements.whole_tile()
            self.results.write({}, None)

    def _finished(self) -> Module:
        name = f"{result_name(self.program.name)}_kernel"
        params = {self.argument(p): p for p in self.params()}
        made = self.several(eliminated(self.out.function(name, params, self.about(), "cuda.jit")))
        made = replace(made, body=(*said(*self.header(made.body)), *made.body))
        params = read(params, reads(made.body))
        made = replace(made, parameters=parameters(params))
        functions = called(self.functions, reads([made])).values()
        used = reads([*functions, made])
        block = (*imports(used), *definitions(used, self.numbers()), *functions, made)
        return finished(Module("", name, tuple(params.values()), shared=self.shared_bytes), block)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a launch gives."""
        return self.prefetch.bytes + self.staging.bytes + self.kept.bytes

    def several(self, function: Function) -> Function:
        """The function for all neighbouring rows of a thread."""
        if self.schedule.coarsen == 1:
            return function
        named = self.access.array_names | {r.key: self.access.result_names[r.name] for r in self.program.results}
        wide, astride = (frozenset(named[n] for n in ns) for ns in (self.layout.coarsened, self.layout.astride))
        return coarsened(function, self.schedule.coarsen, wide | self.kept.tables, astride)

    def params(self) -> list[Param]:
        found = [Param("number" if o.number else "operand", o.name, o.dtype) for o in self.program.operands]
        found += dict.fromkeys(Param("result", r.name, r.dtype) for r in self.program.results)
        return found + self.access.more()

    def argument(self, p: Param) -> str:
        """The name of an argument."""
        results, arrays = self.access.result_names, self.access.array_names
        if p.role in ("stride", "stride_out"):
            return f"{(arrays if p.role == 'stride' else results)[p.name]}_s{p.dim}"
        if p.role == "size":
            return f"size_{axis_name(p.name)}"
        return p.name if p.role in ("scratch", "marks") else (results if p.role == "result" else arrays)[p.name]

    def header(self, body: Block) -> Iterator[str]:
        """What the kernel says of itself, before its first line."""
        return comments.header(self, body)

    def about(self) -> list[str]:
        """The kernel's docstring: what it computes, in the words of the spec."""
        what, _, spec = self.program.title.partition(": ")
        return [f"{what}{self.walk()}.", *spec.split("; ")]

    def walk(self) -> str:
        """How rows are walked, after the names of what is computed."""
        s = self.schedule
        held = "held in registers" if s.resident else "walked in tiles"
        held = f"prefetched to shared memory and {held}" if s.prefetch else held
        return f"; {s.threads} thread{'s' if s.threads > 1 else ''} per row, {held}"

    def numbers(self) -> dict[str, object]:
        """The constants that a kernel may use, by name."""
        s = self.schedule
        return {
            "INF": f"{self.real}(np.inf)",
            "NAN": f"{self.real}(np.nan)",
            "PI": f"{self.real}(np.pi)",
            "E": f"{self.real}(np.e)",
            "THREADS": s.threads,
            "ROWS": s.rows,
            "TILE": s.tile,
            "ENTRIES": s.tile + 1,
            "VECTOR": s.vector,
            "CLUSTER": s.cluster,
            "SPLIT": s.split,
            "COLUMNS": s.columns_per_thread,
            "COARSEN": s.coarsen,
            "PREFETCH": s.prefetch,
            "RING": s.ring,
            "MISSING": "i64(2**62)",
            "NONE": "u64(0)",
            **Marks(self).numbers(),
            **self.constants,
        }

    # --- one row -----------------------------------------------------------------------------------------------------

    def who(self) -> None:
        """Which of the threads, and of the blocks, that share a row."""
        s, out = self.schedule, self.out
        if s.rows == 1:
            out("t = cuda.threadIdx.x", *(["r = 0"] if s.column else []))
        elif s.threads == 1:
            out("t = 0", "r = cuda.threadIdx.x")
        elif s.column:
            out(f"t = cuda.threadIdx.x >> {s.rows.bit_length() - 1}", "r = and_i32(cuda.threadIdx.x, ROWS - 1)")
        else:
            out("t = and_i32(cuda.threadIdx.x, THREADS - 1)", f"r = cuda.threadIdx.x >> {s.threads.bit_length() - 1}")
        if s.blocks_per_row > 1:
            out(f"split = rem_u32(cuda.blockIdx.x, {s.blocks_per_row})")

    def _where_am_i(self) -> None:
        """Which row, and which of the threads that share it."""
        s, out = self.schedule, self.out
        self.comment("Which row, which of its threads, and where the row begins in memory.")
        if not (s.prefetch or s.staged and s.persistent or self.kept.prefetches):
            self.who()
        first = "cuda.blockIdx.x" if s.blocks_per_row == 1 else f"div_u32(cuda.blockIdx.x, {s.blocks_per_row})"
        if s.persistent:
            first = "group"
        if s.coarsen > s.neighbours:
            self._rows_apart(first)
        else:
            self._row(first)
        self.row_axes()
        if s.prefetch:
            self.elements.offsets()
            self._numbers_of_row()
            self.peel.print()
            self.prefetch.arrive()
            return
        if not (s.staged and s.persistent or self.kept.prefetches):
            out(f"length = {self.row_length()}")
        self.elements.offsets()
        self._numbers_of_row()
        self.peel.print()
        self.staging.begin()
        self.kept.begin()

    def _numbers_of_row(self) -> None:
        """Where rows are held, numbers of a row are asked for before elements are waited for: each of them would be
        waited for by itself where branches lie between them (roots and quotients have such)."""
        if not (self.program.summed or self.schedule.resident):
            return
        for leaf in tensor_leaves(self.elements.everything()):
            if (
                leaf.axes
                and leaf.axes <= self.program.fixed
                and leaf.axes & {*self.program.rows}
                or self._is_alone(leaf)
            ):
                self.row.define(leaf)
        self.flush(self.row)

    def _is_alone(self, leaf: Node) -> bool:
        """Whether a leaf is one number of memory, for all elements."""
        return not leaf.axes and not self.access.operands[leaf.attr.name].number

    @property
    def total(self) -> str:
        """The text of the number of all rows."""
        return " * ".join(self.access.size(a) for a in self.own_rows) or "1"

    @property
    def own_rows(self) -> tuple[str, ...]:
        """The axes that number rows."""
        return self.program.rows

    def _rows_apart(self, first: str) -> None:
        """The numbers of a thread's rows, of group `first`, where these lie apart."""
        s, out, total = self.schedule, self.out, self.total
        mine = " + r" if s.rows > 1 else ""
        out(f"row = i64({first}) * {s.rows_per_block} + {SIDE} * ROWS{mine}", f"live = row < {total}")
        out(f"row = row if live else {total} - 1  # threads beyond the last row repeat it and write nothing")

    def _row(self, first: str) -> None:
        """The number of a thread's row, or of neighbouring ones, of group `first`."""
        s, out, total = self.schedule, self.out, self.total
        if s.rows > 1:
            name, last = ("row", "1") if s.coarsen == 1 else ("first_row", "COARSEN")
            out(f"{name} = {self.numbered(f'i64({first}) * ROWS + r')}", f"live = {name} < {total}")
            what = "the last row repeat it" if s.coarsen == 1 else "the last rows repeat them"
            if not self.layout.astride:
                out(f"{name} = {name} if live else {total} - {last}  # threads beyond {what} and write nothing")
        elif self.program.rows or s.split > 1:
            out(f"{'row' if s.coarsen == 1 else 'first_row'} = {self.numbered(f'i64({first})')}")
        if self.layout.astride:
            out(f"first_row = min(first_row, {total} - COARSEN)  # the last rows may be those of two threads")
        if s.coarsen > 1:
            out(f"row = first_row + {SIDE}")

    def row_axes(self) -> None:
        """The index along every axis of the rows, from the number of a row."""
        self.out(*self.access.indices("row", self.own_rows))

    def row_length(self) -> str:
        """The text of the length of a row."""
        return " * ".join(self.access.size(a) for a in self.program.stream) or "1"

    def numbered(self, group: str) -> str:
        """The number of the first row of a thread."""
        return group if self.schedule.coarsen == 1 else f"({group}) * COARSEN" if " " in group else f"{group} * COARSEN"

    @property
    def live(self) -> str | None:
        s = self.schedule
        return "live" if s.rows > 1 or s.coarsen > s.neighbours else None

    # --- passes ------------------------------------------------------------------------------------------------------

    def _pass(self, p: Pass, last: bool) -> None:
        self.row = self.row.child()
        self.row.lines = []
        self.row.forget(COUNT)  # of a thread's elements now: exports of an earlier pass are of all
        if self.program.columns:
            self.column_rows().walk(p)
            names = {}
        elif self.schedule.together:
            names = self._resident(p, last)
        else:
            self._streamed(p, last)
            names = {}
        self.look(p, names)
        if self.program.columns:
            self.column_rows().exports(p)
        else:
            self.row.announce([let.node for let in p.exports])
            for let in p.exports:
                self.row.assign(local(let.name), renamed(let.node, names))
        self.flush(self.row)
        if last:
            with self.out.block(self.writes):
                self.results.write(names, p)

    def look(self, p: Pass, names: dict[str, str]) -> None:
        """Look at a row's state, once it is known."""
        if self.program.watched:
            Marks(self).state(p, names)

    @property
    def writes(self) -> str | None:
        """The condition under which results of a row are written."""
        return None

    def _resident(self, p: Pass, last: bool) -> dict[str, str]:
        """The whole row in registers: lift it as one tile, every reduction over the whole group."""
        names = {part.name: part.name + "_b" for part in p.parts} | {"n": "n_b"}
        self.out("n_b = length")
        bodies = [renamed(r.node, names) for r in self.program.results if r.keeps] if last else []
        self.comment("The row to registers; all of it is under way before anything waits.")
        self.elements.whole_tile(p.lift, bodies)
        if last:
            self._one_hots()
        self.group.reciprocals(p.lift, self.row, MANY)
        StepPrinter(self, self.row).steps(p.lift, whole=True)
        return names

    def _one_hots(self) -> None:
        """Terms that are read at one place of the row are asked for while the row is on its way."""
        for n in walk(*(r.node for r in self.program.results)):
            if one_hot_of(n) is not None and not leaves(n, "state") and n.axes <= {*self.program.rows}:
                self.row.text(n)
        self.flush(self.row)

    def _streamed(self, p: Pass, last: bool) -> None:
        """Every thread folds its own tiles into a state of its own; then the states are merged."""
        counted = self.group.counts(p)
        self.comment("The state of no element; each thread folds its own elements into a state of its own.")
        self.group.combine(p, counted)  # before the loop: it may have to read parameters of the row
        self.flush(self.row)
        self.group.declare(p, counted)
        if self.schedule.resident:
            self._single(p, counted, last)
        else:
            self._tiles(p, counted, last and not self.program.keeps)
        self.group.merge(p, counted)
        self.out("n = length")

    def _single(self, p: Pass, counted: bool, last: bool) -> None:
        """The only tile of a thread, which stays in registers: its state is the tile's own."""
        printer, out = StepPrinter(self, self.row), self.out
        self.elements.whole_tile(p.lift, [r.node for r in self.program.results if r.keeps] if last else [])
        if counted:
            count = self.elements.count()
            out(f"n_b = {count if self.schedule.exact else f'max(0, {count})'}")
        printer.scope = self.row.child()
        self.group.reciprocals(p.lift, printer.scope, MANY)
        printer.steps(p.lift)
        names = [part.name for part in p.parts]
        out(*(f"{local(n)} = {local(n + '_b')}" for n in names), *(["n = n_b"] if counted else []))

    def _tiles(self, p: Pass, counted: bool, last: bool) -> None:
        at_once = together(self.schedule, most_together(self.program, p))
        if at_once > 1:
            Anchoring(self, p, counted, at_once).print()
            return
        printer, out = StepPrinter(self, self.row), self.out
        steps = p.update if p.update and (p.absorbs or not counted) else ()
        with self.elements.tiles(p.ordered):
            if counted:
                out(f"n_b = {self.elements.count()}")
            printer.scope = self.row.child()
            self.elements.load_tile(steps or p.lift)
            if last:
                self.prefetch.next()
            with out.block(self.peel.any_left):
                if steps:
                    out(*(["n_new = n + n_b"] if counted else []))
                    printer.steps([s for s in steps if getattr(s, "name", "") != "n_new"])
                    out(*self._commit(p, counted))
                else:
                    self.group.reciprocals(p.lift, printer.scope, MANY)
                    printer.steps(p.lift)
                    self.flush(printer.scope)
                    self.group.absorb(p, counted)

    def _commit(self, p: Pass, counted: bool) -> list[str]:
        lines = [f"{local(x.name)} = {local(x.name + '_new')}" for x in p.parts if not x.top]
        return lines + (["n = n_new"] if counted else [])

    def comment(self, text: str) -> None:
        """What a CUDA engineer asks of what is printed next."""
        self.out.comment(text)

    def told(self, value: str, real: str, lane: str) -> str:
        """The text of a value of another lane."""
        return f"shfl_idx_{real}({value}, {lane})"

    def flush(self, scope: Scalars) -> None:
        """Write what a scope has collected."""
        self.out(*scope.lines)
        scope.lines = []


def read(params: Mapping[str, Param], names: frozenset[str]) -> dict[str, Param]:
    """The arguments of a function that reads these names: sizes and strides that are read, everything else."""
    return {n: p for n, p in params.items() if n in names or p.role not in ("size", "stride", "stride_out")}


def fast_names(program: Program) -> dict[str, str]:
    """Where all inexact tensors have at most 16 bits, exponentials, logarithms and quotients are as exact as the
    results they are rounded to.

    The error of 2^(x·log2 e) is about |x| units in the last place of float32, that of a logarithm 24 and of a quotient
    2.5, far below one of bfloat16 or float16. Quotients that are rounded, compared or cast keep the nearest one: 63.5
    is a tie. A number for each row may have more bits (what a forward pass saved) where all results are rounded.
    """
    if program.real != "float32" or not rounds_elements(program):
        return {}
    names = {"exp": "fast_exp", "log": "fast_log"}
    return names | ({} if _judged(program) else {f"/{axis}": "fast_div" for axis in program.stream})


def common_roots(program: Program) -> dict[str, str]:
    """Reciprocal roots of what all rows share, which every row computes anew for each of its elements (a weight's
    gradient is a sum of x/sqrt(v), v of each): by one instruction, which is off by 2.5 units in the last place of
    float32 where a root and a quotient are by one."""
    if program.real != "float32" or not program.rows or _judged(program):
        return {}
    return {f"1/sqrt {axis}": "rsqrt" for axis in program.stream}


def branchless(program: Program) -> dict[str, str]:
    """Divisions by counts, and by roots, without a branch that few threads of a small call find others to fill.

    LayerNorm of 1824 rows of 267 bfloat16 takes an H200 3.5 us, 3.9 with the branches of ``/`` and of a root
    (2026-11-27). A root that something discrete follows from is the nearest one.
    """
    if program.real != "float32":
        return {}
    return {"/count": "div_count"} | ({} if _judged(program) else {"1/sqrt": "rcp_sqrt"})


SHARED = 4  # elements of a thread for which a reciprocal is computed, and its rest
DISCRETE = COMPARISONS | {"cast", "floor", "ceil", "sign", "mod"}


def _judged(program: Program) -> bool:
    """Whether something discrete follows from a quotient."""
    nodes = [r.node for r in program.results]
    nodes += [n for p in program.passes for n in steps_nodes((*p.lift, *p.update))]
    judged = [a for n in walk(*nodes) if n.op in DISCRETE | {"where"} for a in n.args[: 1 if n.op == "where" else None]]
    loops = [s for p in program.passes for s in (*p.lift, *p.update) if isinstance(s, Loop)]
    judged += [b for s in loops for f in s.folds if isinstance(f.op, Position | TopK) for b in f.bodies]
    return any(is_inverse(n) for n in walk(*judged))
