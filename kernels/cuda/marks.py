"""What becomes of rows that a kernel marked, because their state left the range of the reals.

Marks lie in pinned memory of the host that the device writes through its own address: a kernel that marks no row moves
nothing, and a call looks at one word of the host's. Arrays of the host are waited for anyway: there NumPy computes
marked rows anew in wider numbers, as on a CPU (`redalg.kernels.cpu.rescue`). Arrays of a device are not waited for, and
may be written over before anybody looks: the next call of that kind, or `check()`, tells of the rows.
"""

from __future__ import annotations

import ctypes
import threading
import warnings
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.errors import RedalgError
from redalg.kernels.cpu.rescue import Rescue
from redalg.kernels.launch.driver import Pinned
from redalg.kernels.launch.planned import Planned
from redalg.kernels.rows.watch import BITS, TABLE
from redalg.numeric.binding import bind
from redalg.streaming import run_wide

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.kernels.cuda.run import CudaRun

WORD = 8  # bytes before the table
FREE: list[Pinned] = []  # of kinds of calls that are no more; a graph of theirs may still write there, to no harm


def marks_rows(planned: Planned) -> bool:
    """Whether a kernel marks rows that leave the range of the reals."""
    return any(p.role == "marks" for p in planned.module.params)


def row_marks(run: CudaRun, planned: Planned, rows: int) -> RowMarks | None:
    """The marks of a kind of call, if its kernel leaves any."""
    return RowMarks(run.form, planned) if rows and marks_rows(planned) else None


def _memory() -> Pinned:
    try:
        return FREE.pop()
    except IndexError:
        return Pinned(WORD + TABLE * BITS, "marks of rows")


class RowMarks:
    """The marks of one kind of call.

    ``fixed``: the arguments of the kernel. ``word.value``: the number of a row that left the range, from 1 on; else 0.
    """

    def __init__(self, form: Form, planned: Planned) -> None:
        self.form, self.planned = form, planned
        self.memory = _memory()
        weakref.finalize(self, FREE.append, self.memory)
        self.word = ctypes.c_int64.from_address(self.memory.address)
        self.table = np.ctypeslib.as_array((ctypes.c_uint8 * (TABLE * BITS)).from_address(self.memory.address + WORD))
        self.word.value = self.table[:] = 0
        self.fixed = {("marks", "marks", 0): self.memory.device + WORD, ("marks", "marked", 0): self.memory.device}
        self.lock = threading.Lock()  # calls with arrays of the host come one after another
        self.found: RedalgError | None = None  # that calls have come upon and `check()` has not asked for
        self.told = False
        self.rows = 0  # that NumPy computed anew

    # --- arrays of a device ------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Warn of what the kernels of earlier calls have found, once; all is left for `check()`. A call does so where
        `word` is not 0."""
        found = self.taken()
        self.found = self.found or found
        if found is not None and not self.told:
            self.told = True
            warnings.warn(str(found).replace("refused: ", "out of range: ", 1), UserWarning, stacklevel=4)

    def asked(self) -> RedalgError | None:
        """What `check()` raises: of the calls since it was asked before."""
        found, self.found = self.taken() or self.found, None
        return found

    def taken(self) -> RedalgError | None:
        """What there is to say of earlier calls; nothing is left."""
        row, self.word.value = self.word.value - 1, 0
        self.table[:] = 0
        if row < 0:
            return None
        program = self.planned.program
        place = []
        for axis in reversed(program.rows):
            row, at = divmod(row, self.planned.sizes[axis])
            place.append(f"{axis} = {at}")
        names = ", ".join(r.name for r in program.results)
        what = f"{names} at {', '.join(reversed(place))}" if place else names
        parts = ", ".join(w.part for w in program.watched)
        why = f"one of {parts} left the range of {program.real} in this row of an earlier call, at least, or the row "
        why += "holds infinities or NaN; what is computed from it may be another finite number"
        fix = 'float64, arrays scaled by a power of 2, form.compile("cpu"), or arrays of NumPy, whose rows are repaired'
        return RedalgError(what, "a call on cuda", why, fix)

    # --- arrays of the host ------------------------------------------------------------------------------------------

    def repaired(self, arrays: Mapping[str, Any], results: Mapping[str, np.ndarray]) -> None:
        """Compute marked rows anew among `results`, which the kernel has written. `arrays`: as the caller gave them."""
        if not self.table.any():
            return
        program, sizes = self.planned.program, self.planned.sizes
        total = int(np.prod([sizes[a] for a in program.rows], dtype=np.int64))
        marks = np.resize(np.packbits(self.table, bitorder="little"), total)
        self.word.value = 0
        self.table[:] = 0
        own = {t.name: t.axes for t in self.form.spec.tensors}
        if any(o.axes != own[o.name] for o in program.operands):  # axes of length 1 are left out
            wide = run_wide(self.form, arrays)
            for name, value in (wide if isinstance(wide, dict) else {next(iter(results)): wide}).items():
                results[name][...] = np.asarray(value).astype(results[name].dtype)
            return
        dtypes = bind(self.form.spec, arrays, where="the call").dtypes
        rescue = Rescue(self.form, program, sizes, dtypes, lambda **_: results, "cuda")
        rescue(program, marks, arrays, results)
        self.rows += rescue.rows

    def line(self) -> str:
        """What `explain()` says."""
        program = self.planned.program
        names = ", ".join(w.part for w in program.watched)
        wider = "float64" if program.real == "float32" else "longdouble"
        told = f"rows where one of {names} leaves the range of {program.real}: of arrays of the host NumPy computes "
        told += f"them in {wider} ({self.rows} so far), of others the next call or check() tells"
        return f"range:    {told}"
