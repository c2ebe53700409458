"""`kernel`: the CUDA kernel that a call would launch on a device of the table, printed; it needs no GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.kernels.ir.layouts import View
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import TABLE
from redalg.kernels.tile.match import Outside
from redalg.shown import Shown

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.kernels.ir.schedule import Schedule

WHERE = "redalg.explore.kernel"


@dataclass(frozen=True, repr=False)
class Printed(Shown):
    """A kernel to be read: its `source`, its `schedule` with the `reasons` for it, and the predicted time and bytes.

    >>> import redalg as ra
    >>> printed = kernel(ra.derive_incremental(ra.catalog["softmax"]), {"i": 4096, "j": 4096}, "H200")
    >>> printed.target, printed.bytes, 0 < printed.seconds < 1e-3
    ('cuda (H200)', 134217728, True)
    >>> "@cuda.jit" in printed.source, printed.explain().splitlines()[0]
    (True, 'definition')
    """

    form: Form = field(compare=False)
    device: str
    schedule: Schedule
    source: str
    reasons: tuple[str, ...]
    seconds: float
    bytes: int

    @property
    def target(self) -> str:
        """For which device the kernel was printed."""
        return f"cuda ({self.device})"

    def explain(self) -> str:
        """The form's explanation, and why this schedule."""
        reasons = "\n".join(f"  {line}" for reason in self.reasons for line in reason.splitlines())
        return f"{self.form.explain().rstrip()}\n\nschedule\n{reasons}\n"

    def __repr__(self) -> str:
        return f"<Printed kernel of {', '.join(self.form.spec.outputs)} for {self.device}: {self.schedule}>"


def kernel(
    form: Form,
    sizes: Mapping[str, int],
    device: str = "H200",
    dtype: str = "float32",
    schedule: Any = None,
    deterministic: bool = False,
    dump_after: str | None = None,
) -> Printed:
    """The kernel for contiguous arrays of these lengths, as ``form.compile("cuda")`` would print it on that device.

    `sizes`: axis -> length; `device`: a name of `redalg.kernels.schedule.target.TABLE`; `dtype` of all real tensors;
    `schedule`
    and `deterministic` as in `Form.compile`; `dump_after`: the name of a pass of `redalg.kernels.pipeline`, after which
    what there is of the kernel is printed.

    Raises: RedalgError for what is no form, an axis without a length (a whole number of at least 0), an unknown
    device or pass, and a schedule that breaks a law.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.catalog["logsumexp"])
    >>> kernel(form, {"i": 8, "j": 16_000_000}).schedule.family, kernel(form, {"i": 65536, "j": 32}).schedule.family
    ('split', 'warp')
    >>> printed = kernel(form, {"i": 8, "j": 16}, dump_after="walk")  # doctest: +ELLIPSIS
    Placed(name='x', pattern='stream', width=16, size=4, ...)
    """
    if not hasattr(form, "plan"):
        what, fix = f"a form of type {type(form).__name__}", "pass ra.derive_incremental(spec)"
        raise RedalgError(what, WHERE, "kernels are printed of derived forms", fix)
    targets = {t.name: t for t in TABLE}
    if device not in targets:
        raise RedalgError(f"device={device!r}", WHERE, f"the table has {', '.join(targets)}", 'device="H200"')
    needed = dict.fromkeys(a for t in form.spec.tensors for a in t.axes)
    sizes = {a: n for t in form.spec.tensors for d in t.dimensions for a, _, n in d.terms if n} | dict(sizes)
    _check_lengths(needed, sizes)
    dtypes = {t.name: _dtype(t, dtype) for t in form.spec.tensors}
    bare = {t.name: View.usual(t, sizes, False) for t in form.spec.tensors if t.axes}
    how = targets[device], deterministic, schedule
    try:  # as a call does: zeros around an array lie in memory where kernels need them
        found = plan(form, dtypes, bare, *how, dump_after=dump_after)
    except Outside:
        views = {t.name: View.usual(t, sizes) for t in form.spec.tensors if t.axes}
        found = plan(form, dtypes, views, *how, dump_after=dump_after)
    c = found.choice
    return Printed(form, device, c.schedule, found.source, c.reasons, c.seconds, c.bytes)


def _check_lengths(needed: Iterable[str], sizes: Mapping[str, Any]) -> None:
    for axis in needed:
        if not isinstance(sizes.get(axis), Integral) or sizes[axis] < 0:
            what = f"axis {axis} of length {sizes[axis]}" if axis in sizes else f"axis {axis} without a length"
            raise RedalgError(what, WHERE, f"the axes are {', '.join(needed)}", f"sizes={{{axis!r}: …}}")


def _dtype(tensor: Any, dtype: str) -> Any:
    word = next((w for w in ("bool", "integer") if w in tensor.domain), "")
    if not tensor.axes:
        return {"bool": bool, "integer": int}.get(word, float)
    return {"bool": "bool", "integer": "int64"}.get(word, dtype)
