"""Lists of the first k of what both ends of the elements decide, as what they are over the lists of the ends.

Where f runs one way on each side of a point, strictly, and away from it upwards, every element but the k largest and
the k smallest has k others before it (by value, then by position): those of its own side that are farther out, or tie
with it and come earlier. So the first k are among these 2k, and the one of rank r has r of them before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from redalg.proofs.checker import inequalities as signs
from redalg.proofs.checker import polynomial as po
from redalg.proofs.checker.generators import Case, Value
from redalg.proofs.checker.polynomial import Poly
from redalg.proofs.checker.sums import Sums


class Entry(NamedTuple):
    """An entry of a list along its axis: what it is ranked by, its position, whether it counts (1 or 0)."""

    score: Value
    place: Value
    there: Value


class Lists(Sums):
    """Constructors of lists."""

    def order(self, kind: str, axes: tuple[str, ...], v: Value, extra: object) -> Value:
        raise NotImplementedError

    def list_of_ends(
        self,
        kind: str,
        axes: tuple[str, ...],
        t: Poly,
        f: Callable[[Value], Value],
        context: Poly,
        extra: tuple[int, str],
    ) -> Value:
        """The values context + f(t), or the positions, of the first k by f(t); -oo and -1 where there are fewer."""
        k, axis = extra
        copy = f"{axis}~1"

        def end(sign: int, along: str) -> Entry:
            body, listed = po.scaled(t, sign), (k, along)
            held = self.unpadded(self.order("topk_values", axes, body, listed))[1]
            place = self.order("topk_indices", axes, body, listed)
            inner = held if sign > 0 else self.by(po.const(-1), held)
            return Entry(f(inner), place, self.negated(self.less(place, {})))

        def apart(along: str) -> Entry:
            across = copy if along == axis else axis
            mine, other = end(-1, along), end(1, across)
            same = self.by(other.there, self.equal(other.place, mine.place))
            return mine._replace(there=self.by(mine.there, self.negated(self.any((across,), same))))

        here = po.gen(self.new("leaf", ("index", axis), ("index", axis), (axis,), signs.NONNEG))
        along = [end(1, axis), apart(axis)]
        found = []
        for mine in (end(1, copy), apart(copy)):
            rank = self.plus(*(self._number_before(e, mine, axis) for e in along))
            chosen = self.by(mine.there, self.equal(rank, here))
            value, nothing = (
                (mine.place, po.const(-1)) if kind == "topk_indices" else (self.plus(context, mine.score), "-oo")
            )
            found.append(self.order("max", (copy,), self.choose(chosen, value, nothing), None))
        return self.extremum("maximum", found)

    def _number_before(self, other: Entry, mine: Entry, axis: str) -> Value:
        """How many entries of a list come before one."""
        ahead, behind = self.less(mine.score, other.score), self.less(other.score, mine.score)
        earlier = self.by(self.negated(behind), self.less(other.place, mine.place))
        either = self.negated(self.by(self.negated(ahead), self.negated(earlier)))
        return self.sum((axis,), self.by(other.there, either))

    @staticmethod
    def unpadded(v: Value) -> tuple[bool, Value]:
        """A list without its condition on places past the end."""
        if isinstance(v, Case) and v.yes == "-oo":
            return True, v.no
        return (True, v.yes) if isinstance(v, Case) and v.no == "-oo" else (False, v)
