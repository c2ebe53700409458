"""One stream in several divisions into pieces: what accumulators give that take it in so, without one for each.

Arrays are looked at once, every piece is lifted once, and a form whose passes another one has goes on where that one
ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redalg.streaming import checks, results
from redalg.streaming.accumulator import Accumulator
from redalg.streaming.snapshot import Snapshot

if TYPE_CHECKING:
    from redalg.form import Form


class Divided:
    """The ends of the passes of a form, for every division of a stream; `divisions`: where pieces begin and end.

    >>> import numpy as np, redalg as ra
    >>> form = ra.derive_incremental(ra.parse("return y = mean[j](x[j])"))
    >>> list(Divided(form, {"x": np.array([1.0, 2.0, 6.0])}, ((0, 3), (0, 1, 3))).values(form))
    [{'y': array(3.)}, {'y': array(3.)}]
    """

    def __init__(self, form: Form, arrays: Mapping[str, Any], divisions: Sequence[Sequence[int]]) -> None:
        streamed = {d.name for d in form.spec.tensors if form.plan.axis[0] in d.axes}
        bound = {name: x for name, x in arrays.items() if name not in streamed}
        self.acc = form.accumulator(start=0, **bound)
        chunk = {name: x for name, x in arrays.items() if name in streamed}
        self.found = checks.chunk(self.acc._layout, self.acc._now, chunk)
        self.start, self.divisions = self.acc._now, tuple(divisions)
        self.ends: list[Snapshot] = []

    def values(self, form: Form) -> Iterator[dict[str, Any]]:
        """The outputs of a form that has these passes, for one division after the other.

        Raises: RedalgError for integers that int64 does not hold.
        """
        acc = self.acc if form is self.acc.form else Accumulator._of(form, self.acc._bound, self.start)
        kept = [o.name for o in form.plan.outputs if o.keeps_axis]
        for number in range(len(self.divisions)):
            if number == len(self.ends):
                self.ends.append(self._end(self.divisions[number]))
            acc._now = self.ends[number]
            found = self._named(form, results.rows(acc, self.found, 0)) if kept else {}
            if len(kept) < len(form.plan.outputs):
                found = {**self._named(form, results.totals(acc)), **found}
            yield found

    def _end(self, cuts: Sequence[int]) -> Snapshot:
        acc = self.acc
        acc._now = self.start
        for number in range(acc._layout.passes):
            if number:
                acc.next_pass(start=0)
            acc._take(self.found, cuts)
        return acc._now

    @staticmethod
    def _named(form: Form, result: Any) -> dict[str, Any]:
        return result if len(form.spec.outputs) > 1 else {next(iter(form.spec.outputs)): result}
