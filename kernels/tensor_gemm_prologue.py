"""What prepares an operand of a matrix product, printed as a function of the product's own kernel.

The function is the kernel of a derived form, row for row (`redalg.kernels.emit_cuda`), for 128 threads: a warpgroup is
what a block is there. All warpgroups of the grid share the rows out in turns, and count them as finished in `PARTS`
parts. A part is finished when every warpgroup has counted it; each counts its parts in order, so that a part that is
finished says the same of all before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from redalg.kernels.cuda_text import Text
from redalg.kernels.emit_cuda import Kernel, read
from redalg.kernels.ir import STORAGE, Param, Program
from redalg.kernels.schedule import Layout, Schedule
from redalg.kernels.sweeping import called, names_read, swept
from redalg.naming import operand_name

PARTS = 4  # finished rows are counted in so many steps: tiles of the first need not wait for the last
GROUP = 128  # threads of a warpgroup
COUNTERS = Param("counters", "finished", "int32", size=PARTS + 1)  # the last one counts blocks that wait no more
TABLE = re.compile(r"cuda\.shared\.array\((\d+), np\.(\w+)\)")


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
    """Prints the function ``prepare(team, finished, row_groups, …)``."""

    def __init__(self, made: Inside, teams: int) -> None:
        """`teams`: warpgroups of a block."""
        super().__init__(made.program, replace(made.schedule, persistent=True), made.layout)
        self.made, self.teams = made, teams
        self.text, self.names, self.arguments = self._function()

    def _function(self) -> tuple[list[str], frozenset[str], list[Param]]:
        """The functions, the names they read, and what `prepare` takes after `row_groups`."""
        out = self.out = Text()
        out.depth = 1
        out(f"workers = cuda.gridDim.x * {self.teams}", f"group = i64(cuda.blockIdx.x * {self.teams} + team)")
        out("every = quotient(row_groups + workers * PARTS - 1, workers * PARTS)")
        with out.block("for part in range(PARTS):"):
            with out.block("for turn in range(every):"):
                with out.block("if group < row_groups:"):
                    self.one_group()
                out("group += workers")
            out("publish()", f"turn_wait(1 + team, {GROUP})")
            with out.block(f"if cuda.threadIdx.x % {GROUP} == 0:"):
                out("count_up(finished, part)")
        params = {self.argument(p): p for p in self.params()}
        about = "\n".join([*self.about(), ""])
        body, names = swept(f"def prepare({', '.join(params)}):\n{about}{out.text()}")
        params = read(params, names)
        head = f"def prepare({', '.join(['team', 'finished', 'row_groups', *params])}):\n"
        functions = called(self.functions, names)
        texts = [*functions.values(), f"@cuda.jit(device=True, forceinline=True)\n{head}{body[body.index(about) :]}"]
        texts = [self._of_warpgroup(x.rstrip()) for x in texts]
        return texts, frozenset().union(*map(names_read, texts)), list(params.values())

    def _of_warpgroup(self, text: str) -> str:
        """What is said of a block, said of one of the warpgroups of a block."""
        text = re.sub(r"\bROWS\b", "FIRST_ROWS", text)
        text = text.replace("cuda.threadIdx.x", f"(cuda.threadIdx.x & {GROUP - 1})")
        text = text.replace("cuda.syncthreads()", f"turn_wait(1 + team, {GROUP})")
        return TABLE.sub(rf"cuda.shared.array(({self.teams}, \1), np.\2)[team]", text)

    @property
    def shared(self) -> int:
        """Bytes of shared memory for the tables of all warpgroups, at most: each may start at a multiple of 16."""
        found = re.findall(r"cuda\.shared\.array\(\((\d+), (\d+)\), np\.(\w+)\)", "\n".join(self.text))
        sizes = (int(teams) * int(n) * STORAGE[kind.rstrip("_")] for teams, n, kind in found)
        return sum(-(-size // 16) * 16 for size in sizes)

    # --- in the product's kernel -------------------------------------------------------------------------------------

    def defined(self) -> dict[str, object]:
        found = self.numbers()
        return {"FIRST_ROWS": found.pop("ROWS"), "PARTS": PARTS, **found}

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
