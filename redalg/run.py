"""`Run`: a form as one callable on whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.numeric.binding import with_unnamed
from redalg.shown import Shown
from redalg.streaming import run_numpy
from redalg.streaming.lift import BLOCK_ELEMENTS
from redalg.streaming.source import numpy_source

if TYPE_CHECKING:
    from redalg.form import Form


class Run(Shown):
    """A form compiled for NumPy: ``run(Q=…, K=…, out=None)`` gives the outputs, one array or a dict of them by name.

    Arrays may be NumPy, PyTorch, CuPy, JAX or Numba arrays; the same kind comes back. `out` receives the results
    instead of new arrays. Thread-safe and picklable.

    Raises: RedalgError, in four parts, for arrays that do not fit the spec, and for a schedule, a stream or a
    pass, which this target does not have.

    >>> import redalg as ra
    >>> x = ra.tensors("x[j]")
    >>> run = ra.derive_incremental(ra.Spec(m=ra.max(x, "j"), at=ra.argmax(x, "j"))).compile("numpy")
    >>> run([1.0, 3.0, 2.0])  # as run(x=[1.0, 3.0, 2.0]): there is one tensor
    {'m': array(3.), 'at': array(1)}
    >>> run.target, run.schedule[:22]
    ('numpy', 'blocks in stream order')
    >>> "max_over" in run.source, run.explain().splitlines()[-1][:12]
    (True, '  schedule: ')
    >>> program = {}
    >>> exec(run.source, program)
    >>> import numpy as np
    >>> int(program["run"](np.array([1.0, 3.0, 2.0]), block=2)["at"])
    1
    """

    target = "numpy"

    def __init__(
        self, form: Form, schedule: Any = None, deterministic: bool = False, dump_after: str | None = None
    ) -> None:
        if dump_after is not None:
            why, fix = "the NumPy target is no kernel, and has no passes", 'target="cpu", or run.source'
            raise RedalgError(f"dump_after={dump_after!r}", "form.compile", why, fix)
        if schedule is not None:
            raise RedalgError(
                f"schedule={schedule!r}",
                "form.compile",
                "the NumPy target has one schedule: blocks in stream order, or a fixed tree with deterministic=True",
                "leave the schedule out",
            )
        self.form, self.deterministic = form, deterministic

    def __call__(self, /, *unnamed: Any, out: Any = None, stream: Any = None, **arrays: Any) -> Any:
        if unnamed:
            arrays = with_unnamed(self.form.spec.tensors, unnamed, arrays)
        if stream is not None:
            raise RedalgError(f"stream={stream!r}", "the call", "the NumPy target has no streams", "leave it out")
        return run_numpy(self.form, arrays, out=out, deterministic=self.deterministic)

    @property
    def source(self) -> str:
        """What a call runs for float64 arrays, as Python: ``exec`` it and call its ``run``, for the same bits.

        Straight-line functions of array operations, compensation of sums and more range where one overflows included,
        as calls of few functions of the library, which it imports. A call adds the validation of arguments.
        """
        return numpy_source(self.form.spec, self.form.plan)

    @property
    def schedule(self) -> str:
        """How the axis is walked, in words."""
        if self.deterministic:
            return "a binary tree over absolute positions, the same for every chunking"
        return f"blocks in stream order, the largest temporary of a block at most {BLOCK_ELEMENTS} elements"

    def explain(self) -> str:
        """The form's explanation, and how this target runs it."""
        return f"{self.form.explain().rstrip()}\n\nrun\n  target:   {self.target}\n  schedule: {self.schedule}\n"

    def __repr__(self) -> str:
        return f"<Run of {', '.join(self.form.spec.outputs)} on {self.target}>"
