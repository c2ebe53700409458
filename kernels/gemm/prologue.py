"""What prepares an operand of a matrix product, printed as a function of the product's own kernel.

The function is the kernel of a derived form, row for row (`redalg.kernels.rows.kernel`), for 128 threads: a warpgroup
is what a block is there. All warpgroups of the grid share the rows out in turns, and count them as finished in `PARTS`
parts. A part is finished when every warpgroup has counted it; each counts its parts in order, so that a part that is
finished says the same of all before it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from redalg.kernels.code.dead_code import called, eliminated
from redalg.kernels.gemm import comments
from redalg.kernels.ir.program import Param, Program
from redalg.kernels.ir.schedule import Layout, Schedule
from redalg.kernels.rows.comments import memory, shared_bytes
from redalg.kernels.rows.kernel import Kernel, read
from redalg.source.builder import Builder, said
from redalg.source.names import operand_name
from redalg.source.render import text
from redalg.source.statements import (
    Block,
    Expression,
    Function,
    Statement,
    Table,
    changed,
    expression,
    mapped,
    parameters,
    reads,
    rewritten,
    walk,
)

PARTS = 4  # finished rows are counted in so many steps: tiles of the first need not wait for the last
GROUP = 128  # threads of a warpgroup
COUNTERS = Param("counters", "finished", "int32", size=PARTS + 1)  # the last one counts blocks that wait no more


@dataclass(frozen=True)
class Inside:
    """A program of rows that runs inside the product: who shares a row, and where its results lie.

    ``side``: of the operand it makes, 0 the left one; ``pitches``: of results, in elements; ``rows``: in all;
    ``ordered``: whether they are the operand's rows one after another, so that a tile needs some of them only.
    """

    program: Program
    schedule: Schedule
    layout: Layout
    side: int
    pitches: Mapping[str, tuple[int, ...]]
    rows: int
    ordered: bool

    @property
    def groups(self) -> int:
        """Rows that a warpgroup prepares at a time are a group."""
        return -(-self.rows // self.schedule.rows)


class Prologue(Kernel):
    """Prints the function ``prologue(warpgroup, finished, row_groups, …)``."""

    def __init__(self, made: Inside, warpgroups: int) -> None:
        """`warpgroups`: of a block."""
        super().__init__(made.program, replace(made.schedule, persistent=True), made.layout)
        self.made, self.warpgroups = made, warpgroups
        self.device_functions, self.arguments = self._functions()

    def _functions(self) -> tuple[tuple[Function, ...], list[Param]]:
        """`prepare` after the functions it calls, and what it takes after `row_groups`."""
        out = self.out = Builder()
        out(
            f"grid_warpgroups = cuda.gridDim.x * {self.warpgroups}",
            f"group = i64(cuda.blockIdx.x * {self.warpgroups} + warpgroup)",
        )
        out("waves = quotient(row_groups + grid_warpgroups * PARTS - 1, grid_warpgroups * PARTS)")
        with out.block("for part in range(PARTS):"):
            with out.block("for wave in range(waves):"):
                with out.block("if group < row_groups:"):
                    self.one_group()
                out("group += grid_warpgroups")
            out.comment("All of the warpgroup's stores of this part, before its count, and before TMA copies of them.")
            out("fence_proxy_async_global()", f"named_barrier_sync(1 + warpgroup, {GROUP})")
            with out.block(f"if cuda.threadIdx.x % {GROUP} == 0:"):
                out("counter_add_release(finished, part)")
        params = {self.argument(p): p for p in self.params()}
        made = eliminated(out.function("prologue", params, self.about(), "cuda.jit(device=True, forceinline=True)"))
        params = read(params, reads(made.body))
        made = replace(made, parameters=parameters(["warpgroup", "finished", "row_groups", *params]))
        found = (*called(self.functions, reads([made])).values(), made)
        *inner, made = map(self._of_warpgroup, found)
        about = said(*comments.prologue(self.warpgroups, PARTS), *memory(made.body, 0))
        return (*inner, replace(made, body=(*about, *made.body))), list(params.values())

    def _of_warpgroup(self, f: Function) -> Function:
        """What is said of a block, said of one of the warpgroups of a block."""
        replaced = {
            "ROWS": "PROLOGUE_ROWS",
            "cuda.threadIdx.x": f"cuda.threadIdx.x & {GROUP - 1}",
            "cuda.syncthreads()": f"named_barrier_sync(1 + warpgroup, {GROUP})",
        }

        def rule(node: Expression) -> Expression | None:
            if not isinstance(node, ast.Name | ast.Attribute | ast.Call):
                return None
            found = replaced.get(text(node))
            return None if found is None else expression(found)

        def apart(s: Statement) -> Block:
            """A table of a block, as one of a table for every warpgroup."""
            if not (isinstance(s, Table) and s.shared and isinstance(s.size, ast.Constant)):
                return (s,)
            size, kind = map(text, s.call.args)
            value = expression(f"{text(s.call.func)}(({self.warpgroups}, {size}), {kind})[warpgroup]")
            return (replace(s, value=value),)

        (made,) = changed(mapped((f,), lambda e: rewritten(e, rule)), apart)
        assert isinstance(made, Function)
        return made

    @property
    def shared(self) -> int:
        """Bytes of shared memory for the tables of all warpgroups, at most: each may start at a multiple of 16."""
        tables = (s for s in walk(self.device_functions) if isinstance(s, Table))
        return sum(-(-shared_bytes(s) // 16) * 16 for s in tables)

    # --- in the product's kernel -------------------------------------------------------------------------------------

    def defined(self) -> dict[str, object]:
        found = self.numbers()
        return {"PROLOGUE_ROWS": found.pop("ROWS"), "PARTS": PARTS, **found}

    def given(self, scratch: Collection[str]) -> list[tuple[str, Param]]:
        """The kernel's arguments that are handed on, in order. `scratch`: results that the product reads."""
        return [self._given(p, scratch) for p in self.arguments]

    def _given(self, p: Param, scratch: Collection[str]) -> tuple[str, Param]:
        if p.role == "stride_out":
            name = f"{self.access.result_names[p.name]}_pitch{p.dim}"
            return name, Param("fixed", f"{p.name} {p.dim}", "int64")
        if p.role == "result" and p.name in scratch:
            return operand_name(p.name), Param("operand", p.name, p.dtype)
        return self.argument(p), p

    def fixed(self) -> dict[str, int]:
        """The numbers behind the arguments that are the same in every call."""
        pitches = {f"{n} {d}": step for n, steps in self.made.pitches.items() for d, step in enumerate(steps)}
        return {**pitches, "row_groups": self.made.groups}
