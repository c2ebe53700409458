"""Lists of the largest that both ends of the elements decide: top-k of |t - u|, (t - u)², t·u (theory, section 2.3).

A body that is monotone on each side of a point has its k largest values among those of the k largest t and of the k
smallest. So both lists are kept with their positions, and `finalize` ranks their entries as the definition does: by
value, then by position, a NaN before every number. An entry's rank is the number of entries before it; one that is in
both lists counts once. What a mask hides is -oo, so that the first k hidden positions are entries, too. Where all
elements are tied (u = 0 in t·u) the positions are the first k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from redalg.engine.rules.ends import Course, Ends, before
from redalg.graph import node as g
from redalg.graph.masked import finite
from redalg.graph.node import Node
from redalg.laws.infinities import FINITE

Extra = tuple[int, str]  # the length of a list and the axis it lies along
LISTS = ("topk_values", "topk_indices")
NAN = g.special("nan")


class Entry(NamedTuple):
    """An entry of a list, along the list's axis: what it is ranked by, its value and position, whether it counts."""

    score: Node
    value: Node
    place: Node
    there: Node


Entries = Callable[[str], Entry]  # a list read along an axis


class Ranked(Ends):
    """Part of `redalg.engine.rules.monotone.Puller`."""

    def ranked(self, kind: str, body: Node, extra: Extra) -> Node:
        """The values or positions of the first k of a body that is a valley, or that a stage value turns round."""
        mask, body = self.unmasked("argmax", body)
        found = self.course_at_the_ends("argmax", body)
        self.trace.rule("a list is decided by both ends of the elements")
        lists, up = self._lists(found, mask, extra), mask is not None or not found.turned
        axis, along = extra[1], f"{extra[1]}~1"
        here = Node("index", (), axis)
        selected = []
        for mine in (entries(along) for entries in lists):
            rank = g.add(*(_number_before(entries(axis), mine, axis, up) for entries in lists))
            selected.append((mine, g.logical("and", mine.there, g.compare("eq", rank, here))))

        def chosen(nothing: Node, part: Callable[[Entry], Node]) -> Node:
            each = (g.reduction("max", (along,), g.where(c, part(e), nothing)) for e, c in selected)
            return g.extremum("maximum", *each)

        if found.factors or kind == "topk_indices":
            self.trace.assume(*FINITE)
        if kind == "topk_values":
            usable = g.logical("and", *map(finite, found.factors))
            return g.where(usable, chosen(g.NEG_INF, lambda e: e.value), NAN)
        places = chosen(g.MINUS_ONE, lambda e: e.place)
        return self._tied(found, mask, extra, [entries(axis) for entries in lists[:2]], places)

    def _lists(self, found: Course, mask: Node | None, extra: Extra) -> list[Entries]:
        """The first k are among these; no element is there twice."""
        axis, copy = extra[1], f"{extra[1]}~1"

        def end(sign: int) -> Entries:
            t = found.inner if sign > 0 else g.neg(found.inner)
            t = t if mask is None else g.where(mask, t, g.NEG_INF)

            values, places = (self.slot(kind, t, extra=extra) for kind in LISTS)

            def entries(along: str) -> Entry:
                held, place = (g.rename_axes(x, {axis: along}) for x in (values, places))
                there = g.compare("ge", place, g.ZERO)
                if mask is not None:  # hidden, or infinite and the first of the other list
                    there = g.logical("and", there, g.compare("ne", held, g.NEG_INF))
                inner = held if sign > 0 else g.neg(held)
                value = found.whole(inner)
                return Entry(found.value(inner) if mask is None else value, value, place, there)

            return entries

        top, bottom = end(1), end(-1)

        def apart(along: str) -> Entry:
            across = copy if along == axis else axis
            mine, other = bottom(along), top(across)
            same = g.logical("and", other.there, g.compare("eq", other.place, mine.place))
            twice = g.reduction("any", (across,), same)
            return mine._replace(there=g.logical("and", mine.there, g.negate(twice)))

        return [top, apart] if mask is None else [top, apart, self._hidden(mask, extra)]

    def _hidden(self, mask: Node, extra: Extra) -> Entries:
        """The first k that the mask leaves out."""
        values, places = (self.slot(kind, g.where(mask, g.NEG_INF, g.ZERO), extra=extra) for kind in LISTS)

        def entries(along: str) -> Entry:
            held, place = (g.rename_axes(x, {extra[1]: along}) for x in (values, places))
            return Entry(g.NEG_INF, g.NEG_INF, place, g.compare("eq", held, g.ZERO))

        return entries

    def _tied(self, found: Course, mask: Node | None, extra: Extra, ends: list[Entry], places: Node) -> Node:
        """The positions; the first k where a factor is 0, or what is added infinite: then all elements are tied."""
        first = self.slot("topk_indices", g.ZERO if mask is None else g.where(mask, g.ZERO, g.NEG_INF), extra=extra)
        still = [g.compare("eq", v, g.ZERO) for v in found.factors]
        still += [g.negate(finite(v)) for v in found.addends]
        if still:
            lost = g.logical("or", *(g.logical("and", e.there, Node("ne", (e.score, e.score))) for e in ends))
            tied = g.where(g.reduction("any", (extra[1],), lost), g.MINUS_ONE, first)  # where an element is infinite
            places = g.where(g.logical("or", *still), tied, places)
        if found.factors:  # oo·t is NaN where t is 0, which no end shows
            usable = g.logical("and", *map(finite, found.factors))
            places = g.where(usable, places, g.MINUS_ONE)
        return g.where(g.logical("or", *(Node("ne", (v, v)) for v in found.context)), first, places)


def _number_before(other: Entry, mine: Entry, axis: str, up: bool) -> Node:
    """How many entries of a list along the axis come before one."""
    ahead, behind = before(up, other.score, mine.score), before(up, mine.score, other.score)
    earlier = g.logical("and", g.negate(behind), g.compare("lt", other.place, mine.place))
    counts = g.logical("and", other.there, g.logical("or", ahead, earlier))
    return g.reduction("sum", (axis,), g.where(counts, g.ONE, g.ZERO))


__all__ = ["Ranked"]
