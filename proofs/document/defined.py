"""Where a definition has a value: what each output computes, and at which places.

What an output divides by is not 0 where that output has a value, at that position: y[g] = 1/d[g] says nothing of the
other places along g, and nothing of an output z that does not divide by d. What stands below a sum over g it computes
at every place along g. A part of the state has to have a value wherever one of the outputs that read it has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from redalg.proofs.document.document import Document
from redalg.proofs.document.functions import FUNCTIONS
from redalg.proofs.document.terms import Term, base, leaves, walk
from redalg.proofs.document.work import spend

Places = tuple[Term, frozenset[str]]  # a term, and the axes at all places along which it is computed
Chosen = tuple[tuple[Term, bool, frozenset[str]], ...]  # conditions, whether they hold, and at places along which axes
MOST_CHOICES = 4  # that one term stands below
SHOW = {"add", "mul"} | {name for name, row in FUNCTIONS.items() if row.shows}  # an infinity stays none or NaN
COPY = "~%"  # of an axis at whose other places a form computes something; no axis of a document has such a name


class Visit(NamedTuple):
    """A term below a root that does not hide its infinity or NaN.

    `free`: the axes of places that an extremum chooses from; `bound`: those at all places along which it is computed.
    """

    term: Term
    free: frozenset[str]
    bound: frozenset[str]
    chosen: Chosen


def exposed(*roots: Term) -> Iterator[Places]:
    """Terms whose infinity or NaN no root can hide: where one of them divides by 0, a root is no number.

    exp(-1/d²) is 0 at d = 0, and max_j(0, -1/d²) too: what stands below such a map, below a `where` or in a comparison
    does not count. Below an extremum over j counts what does not depend on j.
    """
    return ((t, bound) for t, bound, chosen in shown(*roots) if not chosen)


def selected(*roots: Term) -> Iterator[tuple[Term, Chosen]]:
    """Terms whose infinity or NaN no root can hide where conditions on elements hold, at any place along some axes.

    The terms are the same for all elements: Σ_j where(c_j, x_j/d, 0) divides by d where c holds for some j.
    """
    return ((t, chosen) for t, bound, chosen in shown(*roots) if chosen and not bound)


def shown(*roots: Term) -> Iterator[tuple[Term, frozenset[str], Chosen]]:
    """Terms whose infinity or NaN no root can hide, the axes everywhere along which, and under which conditions."""
    seen: set[Visit] = set()
    stack = [Visit(t, frozenset(), frozenset(), ()) for t in roots]
    while stack:
        found = stack.pop()
        if found in seen:
            continue
        seen.add(found)
        spend(1 + len(found.chosen))
        if not found.term.axes & found.free:
            yield found.term, found.bound, found.chosen
        stack += _shown_below(found)


def _shown_below(found: Visit) -> Iterator[Visit]:
    """The arguments of a term whose infinity or NaN it does not hide."""
    t, free, bound, chosen = found
    if t.op in SHOW or (t.op == "reduce" and t.attr.kind in ("sum", "prod")):
        bound = _within(t, bound)
        yield from (Visit(a, free & a.axes, bound & a.axes, chosen) for a in t.args)
    elif t.op == "reduce" and t.attr.kind in ("max", "min", "topk_values"):
        (a,) = t.args
        yield Visit(a, (free | frozenset(t.attr.axes)) & a.axes, bound & a.axes, chosen)
    elif t.op == "pow" and t.args[1].op == "const" and t.args[1].attr > 0:
        yield Visit(t.args[0], free, bound, chosen)
    elif t.op == "where" and not t.axes & free and len(chosen) < MOST_CHOICES:
        c = t.args[0]
        for a, holds in zip(t.args[1:], (True, False), strict=True):
            yield Visit(a, frozenset(), bound & a.axes, (*chosen, (c, holds, bound & c.axes)))


def _within(t: Term, bound: frozenset[str]) -> frozenset[str]:
    return bound | frozenset(t.attr.axes) if t.op == "reduce" else bound


def copied(places: Iterable[str]) -> dict[str, str]:
    """Another name for places along axes that an output has its positions along."""
    return {a: a + COPY for a in places}


class Defined:
    """Which outputs of a document need a part of its form, and what they compute themselves."""

    def __init__(self, doc: Document) -> None:
        self.doc = doc
        self.terms: dict[str, list[Term]] = {}  # of parts of the form
        self.reads: dict[str, set[str]] = {}
        self._parts()
        self.reached = {o.name: self.below(o.value) for o in doc.outputs}
        self.summed = {o: self._summed(o) for o in doc.spec}
        self.needed: dict[str, list[str]] = {}  # what `outputs` found
        self.written: dict[str, dict[Term, list[frozenset[str]]]] = {}
        for name, root in doc.spec.items():
            found = self.written.setdefault(name, {})
            for t, bound in exposed(root):
                found.setdefault(t, []).append(bound)

    def _parts(self) -> None:
        for p in self.doc.passes:
            for s in p.slots:
                self._part(s.name, *s.lift, *(m.coefficient for m in s.moves))
                self.reads[s.name] |= {m.slot for m in s.moves}
                if s.monoid is not None and 0 <= s.monoid < len(self.doc.monoids):
                    self.reads[s.name].add(self.doc.monoids[s.monoid].name)
                for part in s.parts:
                    self.reads.setdefault(part, set()).add(s.name)
            for a in p.anchors:
                self._part(a.name, *(x for x in (a.generator, a.target, a.shift) if x is not None))
            for name, value in p.exports:
                self._part(name, value)

    def _part(self, name: str, *terms: Term) -> None:
        self.terms.setdefault(name, []).extend(terms)
        self.reads.setdefault(name, set()).update(_names(*terms))

    def below(self, value: Term) -> set[str]:
        """The names of all parts of the state that a term is computed from."""
        found: set[str] = set()
        stack = list(_names(value))
        while stack:
            name = stack.pop()
            if name not in found:
                found.add(name)
                spend()
                stack += self.reads.get(name, ())
        return found

    def outputs(self, subject: str) -> list[str]:
        """The outputs that an output, or a part of the state, is computed for: all, where none reads it."""
        if subject not in self.needed:
            found = [o for o in self.doc.spec if o == subject or subject in self.reached.get(o, ())]
            self.needed[subject] = found or list(self.doc.spec)
        return self.needed[subject]

    def open(
        self, subject: str, t: Term, bound: frozenset[str], part: bool, axes: frozenset[str] = frozenset()
    ) -> frozenset[str] | None:
        """None where the term has a value wherever the outputs that need the subject have one, and it is computed.

        Else the axes along which the form computes it at other places than the position of an output: `bound` are
        those along which it is computed at every place, `axes` those it and the conditions on it are read along.
        """
        others: frozenset[str] = frozenset()
        written = True
        for o in self.outputs(subject):
            everywhere = bound | self._everywhere(o, axes | t.axes) if part or o != subject else bound
            others |= everywhere & self.doc.spec[o].axes
            written = written and any(everywhere & t.axes <= b for b in self.written[o].get(t, ()))
        return None if written and self.doc.spec else others

    def _everywhere(self, output: str, axes: frozenset[str]) -> frozenset[str]:
        """Those of a part's axes along which the output reads more places than its own."""
        own = self.doc.spec[output].axes - set(self.doc.axis)
        return frozenset(a for a in axes if a not in own or a in self.summed[output])

    def _summed(self, output: str) -> set[str]:
        """The axes along which what an output is computed from is read at other places."""
        roots = [o.value for o in self.doc.outputs if o.name == output]
        roots += [t for name in self.reached.get(output, ()) for t in self.terms.get(name, ())]
        found: set[str] = set()
        for t in walk(*roots):
            names = {*t.attr.axes, *t.axes} if t.op == "reduce" else t.axes
            found |= {base(a) for a in names if t.op == "reduce" and a in t.attr.axes or base(a) != a}
        return found


def _names(*terms: Term) -> set[str]:
    return {leaf.attr.name.removeprefix("shift:") for t in terms for leaf in leaves(t)}
