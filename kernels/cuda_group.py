"""The threads that share a row: reductions over all of them, and merges of the states they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.graph import Node, leaves, state, walk
from redalg.kernels.cuda_element import DTYPE
from redalg.kernels.cuda_text import Text, better, joined, literal
from redalg.kernels.ir import Fold, Let, Loop, Param, Part, Pass, step_nodes
from redalg.kernels.scalars import Scalars
from redalg.naming import local

if TYPE_CHECKING:
    from redalg.kernels.emit_cuda import Kernel

SHUFFLE = {"i": "i64", "b": "b1", "k": "u64"}


class Group:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.schedule = kernel, kernel.schedule
        self.tables = 0
        self.uses_cluster = False
        self.shared_lists: dict[str, str] = {}  # lists of keys that lie in shared memory, by their name in the program

    # --- reductions of a resident row --------------------------------------------------------------------------------

    def reduce(self, loop: Loop, scope: Scalars) -> None:
        """Every fold of the loop, over all threads of the row: all of them know the result."""
        s, out = self.schedule, self.kernel.out
        lists = [f for f in loop.folds if f.kind in ("topk", "keytop")]
        plain = [f for f in loop.folds if f not in lists]
        lanes = min(s.threads, 32)
        if plain:
            self._exchange(plain, lanes)
        warps = s.threads // 32
        if plain and warps > 1:
            self._through(plain, "warps", warps, s.rows)
        if plain and s.cluster > 1:
            self._across_cluster(plain)
        for fold in lists:
            if fold.kind == "keytop":
                from redalg.kernels.cuda_select import Selection

                Selection(self, fold, scope).print()
            else:
                self._select(fold)
        if s.cluster > 1:
            self.uses_cluster = True
        out()

    def _exchange(self, folds: list[Fold], lanes: int) -> None:
        """A butterfly over neighbouring lanes."""
        out = self.kernel.out
        if lanes == 1:
            return
        with out.block(f"for step in range({lanes.bit_length() - 1}):"):
            for fold in folds:
                self._joined(fold, [self._shuffled(fold, i, "1 << step") for i in range(len(fold.names))])

    def _shuffled(self, fold: Fold, i: int, mask: str) -> str:
        number = self.number(fold, i)
        return f"shfl_xor_{SHUFFLE.get(number, self.kernel.real)}({local(fold.names[i])}, {mask})"

    def number(self, fold: Fold, i: int) -> str:
        if fold.kind in ("keymax", "keytop"):
            return "k"
        if i and fold.kind != "monoid":
            return "i"
        names = self.kernel.kinds.names
        return names.get(fold.names[i]) or self.kernel.kinds.reduced(fold.kind, fold.bodies)

    def _joined(self, fold: Fold, others: list[str]) -> None:
        """The fold's names joined with other values."""
        out, names = self.kernel.out, [local(n) for n in fold.names]
        number, real = self.number(fold, 0), self.kernel.real
        if len(names) == 1 and fold.kind != "monoid" and not fold.ignore_nan:
            out(f"{names[0]} = {joined(fold.kind, number, real, names[0], others[0])}")
            return
        found = [f"{name}_other" for name in names]
        out(*(f"{name} = {text}" for name, text in zip(found, others, strict=True)))
        if fold.kind == "monoid":
            self._joined_monoid(fold, found)
        elif fold.ignore_nan:
            relation = ">" if fold.kind == "max" else "<"
            out(f"{names[0]} = {found[0]} if {found[0]} {relation} {names[0]} else {names[0]}")
        else:
            with out.block(f"if {better(fold.kind, number, names[0], found[0], names[1], found[1])}:"):
                out(*(f"{a} = {b}" for a, b in zip(names, found, strict=True)))

    def _joined_monoid(self, fold: Fold, found: list[str]) -> None:
        kernel = self.kernel
        a = tuple(state(name) for name in fold.names)
        b = tuple(state(f"{name}_other") for name in fold.names)
        for x, y in zip(a, b, strict=True):
            kernel.kinds.names[y.attr.name] = kernel.kinds.names[x.attr.name]
        scope = Scalars(kernel.real, kernel.kinds, kernel.elements.row_leaf, kernel.access.size, kernel.row.counter)
        combined = fold.extra.combine_nodes(a, b)
        scope.announce(combined)
        made = [scope.converted(n, kernel.kinds.names[name]) for n, name in zip(combined, fold.names, strict=True)]
        kernel.flush(scope)
        kernel.out(f"{', '.join(local(n) for n in fold.names)} = {', '.join(made)}")

    def _through(self, folds: list[Fold], what: str, count: int, rows: int) -> None:
        """Through shared memory: every warp leaves its value, every warp reads those of all."""
        out, kernel = self.kernel.out, self.kernel
        tables = [[self._table(fold, i, what, count * rows) for i in range(len(fold.names))] for fold in folds]
        row = f"r * {count} + " if rows > 1 else ""
        with out.block("if t % 32 == 0:"):
            for fold, names in zip(folds, tables, strict=True):
                out(*(f"{table}[{row}t // 32] = {local(n)}" for table, n in zip(names, fold.names, strict=True)))
        out("cuda.syncthreads()")
        for fold, names in zip(folds, tables, strict=True):
            out(*(f"{local(n)} = {table}[{row}t % {count}]" for table, n in zip(names, fold.names, strict=True)))
        self._exchange(folds, count)
        kernel.helpers.add("syncthreads")

    def _table(self, fold: Fold, i: int, what: str, size: int) -> str:
        name = f"{local(fold.names[i])}_{what}"
        dtype = DTYPE.get(self.number(fold, i), self.kernel.elements.real)
        self.kernel.out(f"{name} = cuda.shared.array({size}, {dtype})")
        return name

    def _across_cluster(self, folds: list[Fold]) -> None:
        """Through distributed shared memory: every block reads the values of all blocks of its cluster."""
        out, s = self.kernel.out, self.schedule
        tables = [[self._table(fold, i, "blocks", 1) for i in range(len(fold.names))] for fold in folds]
        with out.block("if t == 0:"):
            for fold, names in zip(folds, tables, strict=True):
                out(*(f"{table}[0] = {local(n)}" for table, n in zip(names, fold.names, strict=True)))
        out("cluster_sync()")
        for fold, names in zip(folds, tables, strict=True):
            for i, (table, n) in enumerate(zip(names, fold.names, strict=True)):
                kind = SHUFFLE.get(self.number(fold, i), self.kernel.real)
                out(f"{local(n)} = dsm_load_{kind}({table}, 0, t % {s.cluster})")
        self._exchange(folds, s.cluster)

    def leave(self, again: bool = False) -> None:
        """A block stays until nobody reads its shared memory any more, nor its own threads if it starts `again`."""
        if self.uses_cluster:
            self.kernel.out("cluster_sync()")
        elif again and (self.schedule.threads > 32 or self.schedule.column):
            self.kernel.out("cuda.syncthreads()")
        elif again and self.shared_lists:
            self.kernel.out("cuda.syncwarp()")

    def _select(self, fold: Fold) -> None:
        """The first k of all threads' sorted lists: k times the best of the lists' heads, which then moves on."""
        kernel, out, s = self.kernel, self.kernel.out, self.schedule
        k, number = fold.extra[0], self.number(fold, 0)
        values, places = (local(n) for n in fold.names)
        if s.threads == 1:
            return
        head = Fold((f"{fold.names[0]}_best", f"{fold.names[1]}_best"), "argmax", fold.bodies)
        kernel.kinds.names |= {head.names[0]: number, head.names[1]: "i"}
        best, place = (local(n) for n in head.names)
        kinds = [DTYPE.get(number, kernel.elements.real), "np.int64"]
        out(*(f"{n}_all = cuda.local.array({k}, {d})" for n, d in zip((values, places), kinds, strict=True)))
        warps = s.threads // 32
        tables = []
        if warps > 1 or s.cluster > 1:
            tables = [self._table(head, i, "warps", max(warps, 1) * s.rows * k) for i in range(2)]
        if s.cluster > 1:
            tables += [self._table(head, i, "blocks", k) for i in range(2)]
        with out.block(f"for i in range({k}):"):
            out(f"{best} = {values}[0]", f"{place} = {places}[0]")
            self._exchange([head], min(s.threads, 32))
            if warps > 1:
                at = f"(i * ROWS + r) * {warps} + " if s.rows > 1 else f"i * {warps} + "
                with out.block("if t % 32 == 0:"):
                    out(f"{tables[0]}[{at}t // 32] = {best}", f"{tables[1]}[{at}t // 32] = {place}")
                out("cuda.syncthreads()")
                out(f"{best} = {tables[0]}[{at}t % {warps}]", f"{place} = {tables[1]}[{at}t % {warps}]")
                self._exchange([head], warps)
            if s.cluster > 1:
                with out.block("if t == 0:"):
                    out(f"{tables[-2]}[i] = {best}", f"{tables[-1]}[i] = {place}")
                out("cluster_sync()")
                out(f"{best} = dsm_load_{SHUFFLE.get(number, kernel.real)}({tables[-2]}, i, t % {s.cluster})")
                out(f"{place} = dsm_load_i64({tables[-1]}, i, t % {s.cluster})")
                self._exchange([head], s.cluster)
            out(f"{values}_all[i] = {best}", f"{places}_all[i] = {place}")
            with out.block(f"if {places}[0] == {place} and {place} != MISSING:  # the winner's list moves on"):
                with out.block(f"for m in range({k - 1}):"):
                    out(f"{values}[m] = {values}[m + 1]", f"{places}[m] = {places}[m + 1]")
                empty = kernel.folding.identities(fold)
                out(f"{values}[{k - 1}] = {empty[0]}", f"{places}[{k - 1}] = MISSING")
        with out.block(f"for i in range({k}):"):
            out(f"{values}[i] = {values}_all[i]", f"{places}[i] = {places}_all[i]")

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
        return bool(names & {"n", "n_b", "n_new"})

    def declare(self, p: Pass, counted: bool) -> None:
        """The state of no element."""
        out = self.kernel.out
        for part in p.parts:
            value = self.identity(part)
            if part.top:
                out(f"{local(part.name)} = cuda.local.array({part.top}, {self.dtype(part)})")
                with out.block(f"for i in range({part.top}):"):
                    out(f"{local(part.name)}[i] = {value}")
            else:
                out(f"{local(part.name)} = {value}")
        out(*(["n = i64(0)"] if counted else []))

    def identity(self, part: Part) -> str:
        if part.kind == "i" and (part.identity == -1 and part.top or self._is_position(part)):
            return "MISSING"
        return literal(part.identity, part.kind, self.kernel.real)

    def _is_position(self, part: Part) -> bool:
        folds = [f for p in self.kernel.program.passes for s in p.lift if isinstance(s, Loop) for f in s.folds]
        return any(f.kind in ("argmax", "argmin") and f.names[1] == part.name + "_b" for f in folds)

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
        return self.schedule.beside > 1

    def combine(self, p: Pass, counted: bool) -> tuple[str, list[str]]:
        """The function that joins two states, and what it is given beside them."""
        from redalg.kernels.cuda_steps import StepPrinter

        kernel = self.kernel
        number = kernel.program.passes.index(p)
        name = f"combine{number + 1 if number else ''}"
        nodes = [n for step in p.combine for n in step_nodes(step)]
        outer = [n for n in walk(*nodes) if n.op in ("tensor", "size")]
        outer += [n for n in walk(*nodes) if n.op == "state" and self._exported(n)]
        given = [kernel.row.define(n) for n in outer]
        kernel.flush(kernel.row)
        inner = {n: f"p{i}" for i, n in enumerate(outer)}
        saved, kernel.out = kernel.out, Text()
        kernel.out.depth = 1
        scope = Scalars(kernel.real, kernel.kinds, kernel.elements.row_leaf, kernel.access.size, known=inner)
        mine = [local(part.name) for part in p.parts]
        stored = [local(part.name) for part in p.parts if not part.top]
        results = [*(["n"] if counted and not self.apart else []), *stored]
        kernel.out('"""The state of a stream, followed by another\'s."""')
        lists = [s for s in p.combine if getattr(s, "kind", "") in ("topk", "keytop")]
        printer = StepPrinter(kernel, scope)
        printer.steps(lists)
        if counted and not p.absorbs and results:
            with kernel.out.block("if n_b == 0:"):
                kernel.out(f"return {', '.join(results)}")
            with kernel.out.block("if n == 0:"):
                kernel.out(f"return {', '.join(f'{x}_b' for x in results)}")
        if counted:
            kernel.out("n_new = n + n_b")
        printer.steps([s for s in p.combine if s not in lists and getattr(s, "name", "") != "n_new"])
        if results:
            new = [f"{x}_new" for x in results]
            kernel.out(f"return {', '.join(new)}")
        body, kernel.out = kernel.out, saved
        arguments = [*(["n"] if counted else []), *mine, *(["n_b"] if counted else []), *(f"{n}_b" for n in mine)]
        head = f"def {name}({', '.join([*arguments, *inner.values()])}):"
        kernel.functions[name] = "\n".join(["@cuda.jit(device=True)", head, body.text().rstrip()])
        return name, given

    def _exported(self, n: Node) -> bool:
        return any(let.name == n.attr.name for p in self.kernel.program.passes for let in p.exports)

    # --- merges ------------------------------------------------------------------------------------------------------

    def merge(self, p: Pass, counted: bool) -> None:
        """All threads of the row end up with the state of the whole row."""
        from redalg.kernels.cuda_merge import Merge

        Merge(self, p, counted).whole_row()

    def scratch(self, name: str, dtype: str, per_row: int) -> str:
        """A workspace of `per_row` entries for every row."""
        self.kernel.access.used[f"scratch_{name}"] = Param("scratch", name, dtype, size=per_row)
        return name
