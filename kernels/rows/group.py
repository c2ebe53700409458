"""The threads that share a row: reductions over all of them, and merges of the states they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from redalg.graph.node import Node, leaves, state, walk
from redalg.graph.operators import Custom, NumberExtremum, Position, TopK, UserMonoid
from redalg.kernels.code.scalars import Scalars
from redalg.kernels.code.text import better, joined, literal
from redalg.kernels.ir.all_reduce import AllReduce, all_reduced
from redalg.kernels.ir.program import Fold, KeyMax, KeyTop, Let, Loop, Param, Part, Pass, Step, step_nodes
from redalg.kernels.ir.schedule import by_network
from redalg.kernels.lower.signs import SEEN, is_share
from redalg.kernels.rows.column_reduction import ColumnReduction
from redalg.kernels.rows.element import DTYPE
from redalg.kernels.rows.merge import LANE, Merge, field, warp_of_row
from redalg.kernels.rows.network import Network
from redalg.kernels.rows.select import Selection
from redalg.kernels.rows.steps import StepPrinter
from redalg.source.builder import Builder
from redalg.source.names import local

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel

EXCHANGES = "EXCHANGES"  # how often the blocks of a cluster write to each other
MANY = 4  # values that a tile divides by its count, from which on they are multiplied by its reciprocal
SHUFFLE = {"i": "i64", "b": "b1", "k": "u64"}


def _steps(lanes: int) -> str:
    count = lanes.bit_length() - 1
    return f"{count} steps" if count > 1 else "a step"


class Group:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.schedule = kernel, kernel.schedule
        self.declared: set[str] = set()  # tables in shared memory
        self.uses_cluster = False
        self.sends = False  # whether exchanges of a cluster count in at mbarriers
        self.exchanged = 0  # how often its blocks have done so
        self.to_meet = False  # whether the blocks of a cluster have not waited for each other's beginning yet
        self.shared_lists: dict[str, tuple[str, str]] = {}  # lists of keys in shared memory, and names of their lengths

    # --- reductions of a resident row --------------------------------------------------------------------------------

    def reduce(self, loop: Loop, scope: Scalars) -> None:
        """Every fold of the loop, over all threads of the row: all of them know the result."""
        s, out = self.schedule, self.kernel.out
        lists = [f for f in loop.folds if isinstance(f.op, TopK | KeyTop)]
        plain = [f for f in loop.folds if f not in lists]
        if plain and s.column:
            ColumnReduction(self, plain).print()
        elif plain:
            self._over_threads(plain)
        if lists and s.cluster > 1:
            self.uses_cluster = True
            self.met()
        for fold in lists:
            if isinstance(fold.op, KeyTop) and by_network(s, fold.op.k):
                Network(self, fold, fold.op.k, scope).print()
            elif isinstance(fold.op, KeyTop):
                Selection(self, fold, fold.op.k, scope).print()
            elif isinstance(fold.op, TopK):
                self._select(fold, fold.op.k)
        out()

    def _over_threads(self, folds: list[Fold]) -> None:
        """Neighbouring threads share a row."""
        s = self.schedule
        self._exchange(folds, min(s.threads, 32))
        warps = s.threads // 32
        if warps > 1:
            self._through(folds, "warps", warps, s.rows)
        if s.cluster > 1:
            self._across_cluster(folds)

    def _exchange(self, folds: list[Fold], lanes: int) -> None:
        """A butterfly over neighbouring lanes."""
        out = self.kernel.out
        if lanes == 1:
            return
        self.kernel.comment(
            f"Warp reduction: {_steps(lanes)} of shuffles over {lanes} lanes; all of them have the result."
        )
        with out.block(f"for step in range({lanes.bit_length() - 1}):"):
            for fold in folds:
                self._joined(fold, [self._shuffled(fold, i, "1 << step") for i in range(len(fold.names))])

    def _shuffled(self, fold: Fold, i: int, mask: str) -> str:
        return f"shfl_xor_{self.shuffled_kind(fold, i)}({local(fold.names[i])}, {mask})"

    def shuffled_kind(self, fold: Fold, i: int) -> str:
        return SHUFFLE.get(self.number(fold, i), self.kernel.real)

    def number(self, fold: Fold, i: int) -> str:
        if isinstance(fold.op, KeyMax | KeyTop):
            return "k"
        if i and not isinstance(fold.op, Custom):
            return "i"
        names = self.kernel.kinds.names
        return names.get(fold.names[i]) or self.kernel.kinds.reduced(fold.kind, fold.bodies)

    def _joined(self, fold: Fold, others: list[str]) -> None:
        """The fold's names joined with other values."""
        out, names = self.kernel.out, [local(n) for n in fold.names]
        number, real = self.number(fold, 0), self.kernel.real
        if len(names) == 1 and not isinstance(fold.op, Custom | NumberExtremum):
            out(f"{names[0]} = {joined(fold.kind, number, real, names[0], others[0])}")
            return
        found = [f"{name}_other" for name in names]
        out(*(f"{name} = {text}" for name, text in zip(found, others, strict=True)))
        if isinstance(fold.op, Custom):
            self._joined_monoid(fold, fold.op.monoid, found)
        elif isinstance(fold.op, NumberExtremum):
            out(f"{names[0]} = {found[0]} if {found[0]} {fold.op.relation} {names[0]} else {names[0]}")
        else:
            with out.block(f"if {better(fold.kind, number, names[0], found[0], names[1], found[1])}:"):
                out(*(f"{a} = {b}" for a, b in zip(names, found, strict=True)))

    def _joined_monoid(self, fold: Fold, monoid: UserMonoid, found: list[str]) -> None:
        kernel = self.kernel
        a = tuple(state(name) for name in fold.names)
        b = tuple(state(f"{name}_other") for name in fold.names)
        for x, y in zip(a, b, strict=True):
            kernel.kinds.names[y.attr.name] = kernel.kinds.names[x.attr.name]
        scope = Scalars(kernel.real, kernel.kinds, kernel.elements.row_leaf, kernel.access.size, kernel.row.counter)
        combined = monoid.combine_nodes(a, b)
        scope.announce(combined)
        made = [scope.converted(n, kernel.kinds.names[name]) for n, name in zip(combined, fold.names, strict=True)]
        kernel.flush(scope)
        kernel.out(f"{', '.join(local(n) for n in fold.names)} = {', '.join(made)}")

    def _through(self, folds: list[Fold], what: str, count: int, rows: int) -> None:
        """Through shared memory: every warp leaves its value, every warp reads those of all."""
        out, kernel = self.kernel.out, self.kernel
        tables = [[self._table(fold, i, what, count * rows) for i in range(len(fold.names))] for fold in folds]
        s = self.schedule
        mine, other = field(32, s.block // 32), warp_of_row(s, field(1, count))
        self.kernel.comment(
            f"Block reduction: lane 0 of each of a row's {count} warps to shared memory, then every warp reads all."
        )
        out(f"slot = {mine}")
        with out.block(f"if {LANE} == 0:"):
            for fold, names in zip(folds, tables, strict=True):
                out(*(f"{table}[slot] = {local(n)}" for table, n in zip(names, fold.names, strict=True)))
        out("cuda.syncthreads()")
        for fold, names in zip(folds, tables, strict=True):
            out(*(f"{local(n)} = {table}[{other}]" for table, n in zip(names, fold.names, strict=True)))
        self._exchange(folds, count)
        kernel.helpers.add("syncthreads")

    def _table(self, fold: Fold, i: int, what: str, size: int) -> str:
        name = f"{local(fold.names[i])}_{what}"
        dtype = DTYPE.get(self.number(fold, i), self.kernel.elements.real)
        return self.shared_table(name, size, dtype)

    def shared_table(self, name: str, size: int, dtype: str) -> str:
        """A table of shared memory; states of splits are merged in those that states of threads were, of which all
        threads have read, for the block has met since."""
        if name not in self.declared or self.schedule.split == 1:
            self.kernel.out(f"{name} = cuda.shared.array({size}, {dtype})")
            self.declared.add(name)
        return name

    def begin(self) -> None:
        """The blocks of a cluster write to each other: all of them must have begun, which is waited for later."""
        s = self.schedule
        passes = self.kernel.program.passes
        reduces = s.together or any(self.all_reduce(p, self.counts(p)) for p in passes)
        if s.cluster > 1 and reduces and not s.persistent and passes:
            self.to_meet = True
            self.sends = s.column or s.coarsen == 1
            if self.sends:
                self._mbarriers()
            self.kernel.comment("This block has begun: the others of its cluster may write to its shared memory.")
            self.kernel.out("cluster_arrive()")

    def begin_persistent(self) -> None:
        """Before the loop over groups of rows: rows side by side are written to other blocks once all have begun."""
        s = self.schedule
        if s.persistent and s.column and s.cluster > 1 and self.kernel.program.passes:
            self.kernel.comment("The blocks of a cluster write to each other's shared memory once all have begun.")
            self.kernel.out("cluster_sync()")

    def _mbarriers(self) -> None:
        """One for each exchange of the cluster, so that none is used twice."""
        self.kernel.comment("An mbarrier for each exchange of the cluster.")
        self.kernel.out(f"arrivals = cuda.shared.array({EXCHANGES}, np.int64)")
        with self.kernel.out.block("if cuda.threadIdx.x == 0:"), self.kernel.out.block(f"for e in range({EXCHANGES}):"):
            self.kernel.out("tx_init(arrivals, e)")
        self.kernel.constants[EXCHANGES] = 1

    def met(self) -> None:
        """Wait until all blocks of the cluster have begun."""
        if self.to_meet:
            self.to_meet = False
            self.kernel.out("cluster_wait()")

    def _across_cluster(self, folds: list[Fold]) -> None:
        """Through distributed shared memory: every block has the values of all blocks of its cluster.

        Blocks write their values to all others, one store for each, where a kernel has one group of rows; every warp
        that reads asks for as many as there are blocks, and the last one may leave only when nobody reads any more.
        The stores count their bytes in at an mbarrier of the block they go to, which waits for these alone: a barrier
        of the cluster would release all memory that its threads have written.
        Where a block goes on with further rows, what it would write may still be read: there they are read.
        """
        out, s = self.kernel.out, self.schedule
        pushed = not s.persistent
        how = "every block writes its value to all" if pushed else "every block reads the values of all"
        self.kernel.comment(f"Cluster reduction: {how} {s.cluster} by distributed shared memory.")
        size = s.cluster if pushed else 1
        tables = [[self._table(fold, i, "blocks", size) for i in range(len(fold.names))] for fold in folds]
        values = [
            (local(n), table, self.shuffled_kind(fold, i))
            for fold, names in zip(folds, tables, strict=True)
            for i, (table, n) in enumerate(zip(names, fold.names, strict=True))
        ]
        if pushed:
            self.met()
            self.pushed(values, "split")
            out(*(f"{n} = {table}[{field(1, s.cluster)}]" for n, table, _ in values))
        else:
            self.uses_cluster = True
            with out.block("if t == 0:"):
                out(*(f"{table}[0] = {n}" for n, table, _ in values))
            out("cluster_sync()")
            out(*(f"{n} = dsm_load_{kind}({table}, 0, {field(1, s.cluster)})" for n, table, kind in values))
        self._exchange(folds, s.cluster)

    def pushed(self, values: Sequence[tuple[str, str, str]], place: str, rows: int = 1) -> None:
        """Names, tables and kinds of values, to a place in the tables of all blocks of the cluster; each block gets
        those of so many rows of every other."""
        out, s = self.kernel.out, self.schedule
        if not self.sends or any(kind == "b1" for _, _, kind in values):
            with out.block(f"if t < {s.cluster}:"):
                out(*(f"dsm_store_{kind}({table}, {place}, t, {n})" for n, table, kind in values))
            out("cluster_sync()")
            return
        number, self.exchanged = self.exchanged, self.exchanged + 1
        self.kernel.constants[EXCHANGES] = self.exchanged
        size = s.cluster * rows * sum(int(kind[1:]) // 8 for _, _, kind in values)
        with out.block("if cuda.threadIdx.x == 0:" if s.column else "if t == 0:"):
            out(f"tx_expect(arrivals, {number}, {size})")
        with out.block(f"if t < {s.cluster}:"):
            out(*(f"dsm_send_{kind}({table}, {place}, t, {n}, arrivals, {number})" for n, table, kind in values))
        out(f"tx_wait(arrivals, {number})")

    def leave(self, restarts: bool = False) -> None:
        """A block stays until nobody reads its shared memory any more, nor its own threads if it `restarts`."""
        self.met()
        if self.uses_cluster or restarts:
            self.kernel.comment("Shared memory stays as it is until nobody reads it any more.")
        if self.uses_cluster:
            self.kernel.out("cluster_sync()")
        elif restarts and (self.schedule.threads > 32 or self.schedule.column):
            self.kernel.out("cuda.syncthreads()")
        elif restarts and self.shared_lists:
            self.kernel.out("cuda.syncwarp()")

    def _select(self, fold: Fold, k: int) -> None:
        """The first k of all threads' sorted lists: k times the best of the lists' heads, which then moves on."""
        kernel, out, s = self.kernel, self.kernel.out, self.schedule
        number = self.number(fold, 0)
        values, places = (local(n) for n in fold.names)
        if s.threads == 1:
            return
        head = Fold((f"{fold.names[0]}_best", f"{fold.names[1]}_best"), Position("argmax"), fold.bodies)
        kernel.kinds.names |= {head.names[0]: number, head.names[1]: "i"}
        best, place = (local(n) for n in head.names)
        kinds = [DTYPE.get(number, kernel.elements.real), "np.int64"]
        out(*(f"{n}_all = cuda.local.array({k}, {d})" for n, d in zip((values, places), kinds, strict=True)))
        warps = s.threads // 32
        tables = self._tables_of_heads(head, k, warps)
        with out.block(f"for i in range({k}):"):
            out(f"{best} = {values}[0]", f"{place} = {places}[0]")
            self._exchange([head], min(s.threads, 32))
            if warps > 1:
                self._best_of_warps(head, tables[:2], warps)
            if s.cluster > 1:
                self._best_of_blocks(head, tables[-2:], SHUFFLE.get(number, kernel.real))
            out(f"{values}_all[i] = {best}", f"{places}_all[i] = {place}")
            with out.block(f"if {places}[0] == {place} and {place} != MISSING:  # the winner's list moves on"):
                with out.block(f"for m in range({k - 1}):"):
                    out(f"{values}[m] = {values}[m + 1]", f"{places}[m] = {places}[m + 1]")
                empty = kernel.folding.identities(fold)
                out(f"{values}[{k - 1}] = {empty[0]}", f"{places}[{k - 1}] = MISSING")
        with out.block(f"for i in range({k}):"):
            out(f"{values}[i] = {values}_all[i]", f"{places}[i] = {places}_all[i]")

    def _tables_of_heads(self, head: Fold, k: int, warps: int) -> list[str]:
        """Tables of shared memory for the heads of warps, and of blocks: values and places of each."""
        s, tables = self.schedule, []
        if warps > 1 or s.cluster > 1:
            tables = [self._table(head, i, "warps", max(warps, 1) * s.rows * k) for i in range(2)]
        if s.cluster > 1:
            tables += [self._table(head, i, "blocks", k) for i in range(2)]
        return tables

    def _best_of_warps(self, head: Fold, tables: list[str], warps: int) -> None:
        """The best head of all warps of a row, through tables of shared memory."""
        out, (best, place) = self.kernel.out, map(local, head.names)
        first, s = f"i * {warps * self.schedule.rows} + ", self.schedule
        mine, other = first + field(32, s.block // 32), first + warp_of_row(s, field(1, warps))
        out(f"slot = {mine}")
        with out.block(f"if {LANE} == 0:"):
            out(f"{tables[0]}[slot] = {best}", f"{tables[1]}[slot] = {place}")
        out("cuda.syncthreads()")
        out(f"{best} = {tables[0]}[{other}]", f"{place} = {tables[1]}[{other}]")
        self._exchange([head], warps)

    def _best_of_blocks(self, head: Fold, tables: list[str], real: str) -> None:
        """The best head of all blocks of a cluster, through distributed shared memory."""
        out, (best, place), cluster = self.kernel.out, map(local, head.names), self.schedule.cluster
        with out.block("if t == 0:"):
            out(f"{tables[0]}[i] = {best}", f"{tables[1]}[i] = {place}")
        out("cluster_sync()")
        out(f"{best} = dsm_load_{real}({tables[0]}, i, {field(1, cluster)})")
        out(f"{place} = dsm_load_i64({tables[1]}, i, {field(1, cluster)})")
        self._exchange([head], cluster)

    # --- states ------------------------------------------------------------------------------------------------------

    def counts(self, p: Pass) -> bool:
        """Whether a state has to know how many elements it has seen."""
        if not p.absorbs:
            return True
        nodes = [n for step in (*p.combine, *p.update, *p.lift) for n in step_nodes(step)]
        skip = {
            n for step in (*p.combine, *p.update) if isinstance(step, Let) and step.name == "n_new" for n in [step.node]
        }
        names = {leaf.attr.name for n in nodes if n not in skip for leaf in leaves(n, "state")}
        return not names.isdisjoint(SEEN)

    def declare(self, p: Pass, counted: bool) -> None:
        """The state of no element."""
        for part in p.parts:
            self.start(part)
        self.kernel.out(*(["n = i64(0)"] if counted else []))

    def start(self, part: Part) -> None:
        """A part of the state of no element."""
        out, value = self.kernel.out, self.identity(part)
        if part.top:
            out(f"{local(part.name)} = cuda.local.array({part.top}, {self.dtype(part)})")
            with out.block(f"for i in range({part.top}):"):
                out(f"{local(part.name)}[i] = {value}")
        else:
            out(f"{local(part.name)} = {value}")

    def identity(self, part: Part) -> str:
        if part.kind == "i" and (part.identity == -1 and part.top or self._is_position(part)):
            return "MISSING"
        return literal(part.identity, part.kind, self.kernel.real)

    def _is_position(self, part: Part) -> bool:
        folds = [f for p in self.kernel.program.passes for s in p.lift if isinstance(s, Loop) for f in s.folds]
        return any(isinstance(f.op, Position) and f.names[1] == part.name + "_b" for f in folds)

    def dtype(self, part: Part) -> str:
        return DTYPE.get(part.kind, self.kernel.elements.real)

    def absorb(self, p: Pass, counted: bool) -> None:
        """The state joined with the tile's own."""
        names = [local(part.name) for part in p.parts]
        self._call(p, counted, [f"{n}_b" for n in names], "n_b")

    def _call(self, p: Pass, counted: bool, others: list[str], count: str) -> None:
        mine = [local(part.name) for part in p.parts]
        function, extra = self.combine(p, counted)
        given = [*(["n"] if counted else []), *mine, *([count] if counted else []), *others, *extra]
        results = [*(["n"] if counted and not self.apart else []), *(local(x.name) for x in p.parts if not x.top)]
        call = f"{function}({', '.join(given)})"
        self.kernel.out(f"{', '.join(results)} = {call}" if results else call)
        if counted and self.apart:
            self.kernel.out(f"n += {count}")

    @property
    def apart(self) -> bool:
        """Whether counts are added beside states, because several states have one."""
        return self.schedule.coarsen > 1

    def combine(self, p: Pass, counted: bool) -> tuple[str, list[str]]:
        """The function that joins two states, and what it is given beside them."""
        kernel = self.kernel
        number = kernel.program.passes.index(p)
        name = f"combine{number + 1 if number else ''}"
        outer = self._outer(p)
        given = [kernel.row.define(n) for n in outer]
        kernel.flush(kernel.row)
        inner = {n: f"p{i}" for i, n in enumerate(outer)}
        saved, kernel.out = kernel.out, Builder()
        self._joining(p, counted, inner)
        body, kernel.out = kernel.out, saved
        mine = [*(["n"] if counted else []), *(local(part.name) for part in p.parts)]
        arguments = [*mine, *(f"{n}_b" for n in mine), *inner.values()]
        doc = ["The state of a stream, followed by another's."]
        kernel.functions[name] = body.function(name, arguments, doc, "cuda.jit(device=True)")
        return name, given

    def _outer(self, p: Pass) -> list[Node]:
        """What the function reads beside the states: tensors, lengths, what earlier passes export."""
        nodes = list(walk(*(n for step in p.combine for n in step_nodes(step))))
        found = [n for n in nodes if n.op in ("tensor", "size")]
        return found + [n for n in nodes if n.op == "state" and self._exported(n)]

    def _joining(self, p: Pass, counted: bool, known: dict[Node, str]) -> None:
        """The body of the function: lists in place, everything else as what it returns."""
        kernel = self.kernel
        scope = Scalars(
            kernel.real, kernel.kinds, kernel.elements.row_leaf, kernel.access.size, known=known, names=kernel.divisions
        )
        counts = ["n"] if counted and not self.apart else []
        results = [*counts, *(local(part.name) for part in p.parts if not part.top)]
        lists = [s for s in p.combine if getattr(s, "kind", "") in ("topk", "keytop")]
        printer = StepPrinter(kernel, scope)
        printer.steps(lists)
        if counted and not p.absorbs and results:
            self._one_side(results)
        if counted:
            kernel.out("n_new = n + n_b")
            self.reciprocals(p.combine, scope, 2)
        printer.steps([s for s in p.combine if s not in lists and getattr(s, "name", "") != "n_new"])
        if results:
            kernel.out(f"return {', '.join(f'{x}_new' for x in results)}")

    def reciprocals(self, steps: Iterable[Step], scope: Scalars, least: int) -> None:
        """Names of the reciprocals of counts by which steps divide at least so many values.

        A division has a branch of its own behind which nothing runs where few threads merge: with six instead of two
        dozen in each of 17 merges a moment of inertia of 2^20 particles takes 20 us for 42 (H100, 2026-11-26). A count
        is a normal number, and so is its reciprocal.
        """
        nodes = [n for step in steps for n in step_nodes(step)]
        uses = Counter(a for n in walk(*nodes) if n.op == "mul" for a in n.args if is_share(a))
        for node in [n for n, count in uses.items() if count >= least and self.kernel.approximates]:
            name = node.args[0].attr.name
            scope.known[node] = f"per_{name}"
            one, count = f"{self.kernel.real}(1)", f"{self.kernel.real}({name})"
            self.kernel.out(f"per_{name} = {scope.by_count(one, count)}")

    def _one_side(self, results: list[str]) -> None:
        """A state of nothing gives the other one."""
        with self.kernel.out.block("if n_b == 0:"):
            self.kernel.out(f"return {', '.join(results)}")
        with self.kernel.out.block("if n == 0:"):
            self.kernel.out(f"return {', '.join(f'{x}_b' for x in results)}")

    def _exported(self, n: Node) -> bool:
        return any(let.name == n.attr.name for p in self.kernel.program.passes for let in p.exports)

    # --- merges ------------------------------------------------------------------------------------------------------

    def all_reduce(self, p: Pass, counted: bool) -> AllReduce | None:
        """The steps that merge the states of threads at once."""
        return all_reduced(p, counted) if self.schedule.merges_at_once else None

    def merge(self, p: Pass, counted: bool) -> None:
        """All threads of the row end up with the state of the whole row."""
        Merge(self, p, counted).whole_row()

    def scratch(self, name: str, dtype: str, per_row: int) -> str:
        """A workspace of `per_row` entries for every row."""
        self.kernel.access.used[f"scratch_{name}"] = Param("scratch", name, dtype, size=per_row)
        return name
