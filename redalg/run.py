"""`Run`: a form as one callable on whole arrays; `OnHost`: by kernels, or by it where there are none."""

from __future__ import annotations

from collections.abc import Mapping
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


class OnHost:
    """A form (or several in one call) on the CPU: by kernels, and by NumPy calls with dtypes that these have none for.

    Which way a call goes follows from its own dtypes, whatever was called before. `target`: of the kernels.
    """

    def __init__(self, form: Any, target: str | None = "cpu") -> None:
        self._form, self._kernels = form, form.compile(target)
        self._numpy: Any = None
        self._without: set[frozenset[Any]] = set()  # dtypes that were refused

    def __call__(self, /, **arrays: Any) -> Any:
        """Raises: RedalgError where NumPy refuses the call, too; its note is why kernels did."""
        if not self._without or _dtypes(arrays) not in self._without:
            try:
                return self._kernels(**arrays)
            except RedalgError as refused:
                self._numpy = self._numpy or self._form.compile("numpy")
                try:
                    found = self._numpy(**arrays)
                except RedalgError as again:
                    if str(again) != str(refused):
                        again.add_note(f"The kernels refused it, too:\n{refused}")
                    raise
                self._without.add(_dtypes(arrays))
                return found
        return self._numpy(**arrays)


def _dtypes(arrays: Mapping[str, Any]) -> frozenset[Any]:
    return frozenset((name, getattr(x, "dtype", x.__class__)) for name, x in arrays.items() if name != "out")
